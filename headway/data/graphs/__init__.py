"""Graphs: read from files, made into arrays, put into batches, drawn"""
