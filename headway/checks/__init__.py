"""Checks of models, recipes and machines; evaluation of language models."""
