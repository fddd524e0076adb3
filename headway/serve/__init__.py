"""An OpenAI-compatible server: one model, one process."""
