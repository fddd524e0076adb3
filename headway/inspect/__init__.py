"""Looking inside a model: attention, layers, attributions, and what happens when a part is changed."""
