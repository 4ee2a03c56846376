"""Work that takes longer than a request: a pool of solver processes and what is known of each accepted plan."""
