"""A run before it starts: its settings in three forms, its cost, what its model will see."""
