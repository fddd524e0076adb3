"""Advice after a run: rules that read its log, each with a reason and a command to paste."""
