"""Training. The package is also a function: `headway.train("tiny", "train.steps=100")`."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any


class _Verb(ModuleType):
    def __call__(self, what: str, *settings: str, **more: Any) -> Path:
        """Train a recipe, given by name or path, with `key=value` words or keywords on top; returns the run's folder.

        headway.train("lm", "model.depth=6", data={"train": "book.txt"}, seed=1)
        """
        from headway.tasks.recipe import load_recipe, with_settings
        from headway.train.run import start, train

        name, recipe = load_recipe(what, settings)
        words = [] if more else [what, *settings]
        return train(start(name, with_settings(recipe, more), words), lambda kind, **facts: None).folder


sys.modules[__name__].__class__ = _Verb
