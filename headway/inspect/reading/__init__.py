"""Inputs as a model reads them: texts, images, sounds, series, graphs."""
