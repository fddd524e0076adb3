"""Labels and numbers for texts and pairs of texts."""
