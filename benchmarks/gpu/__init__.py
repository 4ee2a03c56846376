"""One NVIDIA GPU, measured in a few minutes with torch and transformers alone: kernels, and short training runs.

The runs are rows of the common measurement header.
"""
