"""The transformer: one block as data, front ends, heads, and the KV cache."""
