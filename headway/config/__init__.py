"""A model described, a run described: frozen dataclasses, read from and written to TOML."""
