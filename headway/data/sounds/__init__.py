"""Sounds: found, decoded, resampled once into a file that is mapped into memory, and turned into log-mel frames"""
