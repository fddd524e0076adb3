"""Decoding on a CPU, with Numba kernels."""
