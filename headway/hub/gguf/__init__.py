"""Models in one GGUF file."""
