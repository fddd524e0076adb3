"""Texts that describe images"""
