"""Optimizers, learning-rate schedules, and averages of weights."""
