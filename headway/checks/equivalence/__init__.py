"""`headway check`: every fast path of a model equals its slow path."""
