"""Generation constrained by a grammar."""
