"""Files to batches: no torch model is needed here."""
