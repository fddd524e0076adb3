"""Configs of models beside the single transformer, and of its front ends for samples. No torch here."""
