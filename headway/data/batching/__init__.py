"""Examples to batches, as a pure function of the step."""
