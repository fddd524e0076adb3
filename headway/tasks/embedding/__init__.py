"""Sentence embeddings, trained by contrast."""
