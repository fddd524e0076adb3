"""Sparse attention: patterns of visible keys, and the kernels that compute nothing else."""
