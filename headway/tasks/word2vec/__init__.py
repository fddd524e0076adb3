"""Vectors of words, learned from the words around them"""
