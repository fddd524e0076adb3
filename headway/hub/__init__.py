"""Folders in the Hugging Face layout: read, converted, written."""
