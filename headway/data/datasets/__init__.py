"""Rows to examples, by kind of dataset."""
