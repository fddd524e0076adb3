"""A label for an image with its sound"""
