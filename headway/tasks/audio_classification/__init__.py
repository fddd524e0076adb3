"""A label for a sound"""
