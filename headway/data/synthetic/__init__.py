"""Synthetic data, so that every recipe runs without a file."""
