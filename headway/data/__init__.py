"""From files to batches; nothing here needs a torch model."""
