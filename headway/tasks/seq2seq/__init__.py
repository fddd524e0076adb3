"""Encoder–decoder models: translation and summarization."""
