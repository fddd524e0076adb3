"""Past runs: read, compared, cleared away. No torch here, except in `equal`, which plans models."""
