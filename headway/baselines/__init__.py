"""Recurrent and convolutional networks, the baselines of the transformer."""
