"""Rows of peak memory read from PyTorch's own tracker, for any transformers model, on a machine without a GPU."""
