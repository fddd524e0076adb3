"""Losses, as a sum and a count."""
