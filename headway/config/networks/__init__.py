"""Configs of models beside the single transformer. No torch here"""
