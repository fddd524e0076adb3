"""Optimizers, schedules, and averages of weights."""
