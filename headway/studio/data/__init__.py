"""Data before training, for the pages Data and New run."""
