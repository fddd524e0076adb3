"""The next state of a system that moves"""
