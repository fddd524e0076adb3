"""Logits to the next token."""
