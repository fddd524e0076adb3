"""Ways to hold a model's matrices, or what is learned on top of them, in less memory."""
