"""The command line: one thin function per verb, in files by what the verb is about."""

from headway.cli import models, training, writing
from headway.cli.app import main

__all__ = ["main", "models", "training", "writing"]
