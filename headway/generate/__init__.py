"""Decoding: sampling, beam search, scoring, continuous batching."""
