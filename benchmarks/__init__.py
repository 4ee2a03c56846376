"""How long planning takes, on jobs from one consumer GPU to sixteen thousand."""
