"""Decoding on a GPU, with Triton kernels and CUDA graphs."""
