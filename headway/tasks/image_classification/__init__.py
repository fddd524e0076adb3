"""A label for an image"""
