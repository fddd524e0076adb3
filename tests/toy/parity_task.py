"""A task from a package that headway does not know: is the sum of some digits odd? This is its light half."""

from __future__ import annotations

from dataclasses import dataclass

from headway.errors import DataError
from headway.tasks.base import Task, Tries


@dataclass(frozen=True)
class Digits:
    numbers: tuple[int, ...]
    label: str | None = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    label_smoothing: float = 0.0


class Parity(Task):
    name, title, noun, takes = "parity", "parity of digits", "parity model", "table"
    Settings = Settings
    recipe = 'task = "parity"\n[data]\nlength = 8\n[model]\ndepth = 1\n[train]\nsteps = 60\nbatch = 32\nwarmup = 5\n'
    tries = Tries('"3 1 4"', request={"input": {"numbers": [3, 1, 4]}})
    training, predictor = "parity_model:ParityTraining", "parity_model:ParityPredictor"

    def parse(self, raw):
        numbers = raw.get("numbers", raw.get("input"))
        numbers = numbers.split() if isinstance(numbers, str) else numbers
        if not isinstance(numbers, list) or not {str(n) for n in numbers} <= set("0123456789") or not numbers:
            raise DataError("D001", "numbers should be a list of digits")
        return Digits(tuple(map(int, numbers)), raw.get("label"))

    def echo(self, example):
        return {"numbers": list(example.numbers)}

    def render(self, found, *, colours):
        return (f"{result['label']} {result['probability']:.1%}  {example.numbers}" for example, result in found)
