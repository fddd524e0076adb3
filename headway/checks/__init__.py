"""Checks of models, recipes, tokenizers and machines; evaluation of language models."""
