"""Models that are made of several transformers"""
