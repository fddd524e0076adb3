"""Runs that were: history, comparison, retention. No torch here."""
