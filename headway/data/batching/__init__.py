"""From examples to batches; a batch is a pure function of the step."""
