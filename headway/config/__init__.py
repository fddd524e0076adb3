"""Configs of models and runs: frozen dataclasses, read from and written to TOML. No torch here."""
