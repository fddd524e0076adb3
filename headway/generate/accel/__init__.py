"""Accelerated decoding: kernels for GPUs and CPUs."""
