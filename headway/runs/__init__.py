"""Past runs: read, compared, cleared away. No torch here."""
