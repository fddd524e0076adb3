"""The weights of a model: its parts, its embeddings, its units."""
