"""What a training run costs: memory and time formulas on scalars or equal-length arrays."""
