"""The command line: a thin function for each verb."""

from headway.cli import compare, data, eval, explain, inspect, models, recipes, runs, serve, studio, tokens, train
from headway.cli.app import main
from headway.cli.run import command

__all__ = [
    "command",
    "compare",
    "data",
    "eval",
    "explain",
    "inspect",
    "main",
    "models",
    "recipes",
    "runs",
    "serve",
    "studio",
    "tokens",
    "train",
]
