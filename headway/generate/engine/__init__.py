"""Continuous batching: requests that share one KV cache."""
