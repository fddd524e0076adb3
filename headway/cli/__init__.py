"""The command line: one thin function per verb, in files by what the verb is about."""

from headway.cli import comparing, data, evaluating, models, runs, serving, tokens, training, writing
from headway.cli.app import main

__all__ = ["comparing", "data", "evaluating", "main", "models", "runs", "serving", "tokens", "training", "writing"]
