"""Metrics, with intervals by resampling."""
