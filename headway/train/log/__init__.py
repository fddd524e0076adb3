"""The log of a run, its copies in trackers, and what the run cost."""
