"""Diffusion: the task, without torch. A model learns to remove noise from images, and then draws images of a class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headway.config.networks.kinds import AnyConfig
from headway.config.ranges import Range, at_least, within
from headway.errors import DataError, nearest
from headway.tasks.base import FineTuning, Json, Tries
from headway.tasks.image import LearnsImages
from headway.tasks.inputs import INPUT

NO_CLASS = "none"
"""The name for images of no class in particular."""
CLASS_COLUMNS = ("class", "label", INPUT)
MAX_STEPS, MAX_GUIDANCE, MAX_SEED = 1000, 100.0, 2**31 - 1
"""Bounds of what a request may ask for."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Section `diffusion` of a recipe."""

    objective: Literal["v", "epsilon", "flow"] = "v"
    """What the model predicts. v: noise and image together (Salimans & Ho 2022); epsilon: the noise (Ho et al. 2020);
    flow: the velocity of a straight line from image to noise (flow matching: Lipman et al. 2023)."""
    schedule: Literal["cosine", "linear"] = "cosine"
    """How images become noise. cosine: Nichol & Dhariwal 2021; linear: Ho et al. 2020. flow has its own."""
    class_dropout: float = 0.1
    """Share of training images whose class is hidden, so that the model also learns to draw without one, which
    guidance needs (Ho & Salimans 2022)."""
    solver: Literal["ddpm", "ddim", "dpm", "heun"] = "dpm"
    """How images are drawn. ddpm: Ho et al. 2020, with fresh noise in each step; ddim: Song et al. 2021, which is
    Euler's method for flow; dpm: DPM-Solver++(2M), of second order (Lu et al. 2022); heun: of second order, with two
    passes of the model in each step."""
    steps: int = 30
    """Steps of the solver."""
    guidance: float = 2.0
    """Classifier-free guidance: 1 is the model as it was trained, more follows the class more closely."""
    eval_images: int = 512
    """Images that an evaluation draws."""

    def __post_init__(self) -> None:
        within("diffusion", self, Range(0, 1), "class_dropout")
        within("diffusion", self, Range(1, MAX_STEPS), "steps")
        within("diffusion", self, Range(0, MAX_GUIDANCE), "guidance")
        at_least("diffusion", self, eval_images=2)


@dataclass(frozen=True, slots=True)
class DrawExample:
    """One image to draw: a class, and what the recipe's settings do not say."""

    label: str
    number: int = 0
    """Image number 0, 1, … of a seed."""
    seed: int = 0
    steps: int | None = None
    guidance: float | None = None


class Diffusion(LearnsImages):
    """Images of a class."""

    name, title, noun = "diffusion", "image generation", "diffusion model"
    beside = "labels"
    takes = "class"
    Settings = Settings
    tries = Tries("class=circle", own="class=0", request={"input": {"class": "0", "steps": 4}})
    made_up = "shapes that headway draws"
    fine_tuning = FineTuning(lr=1e-4)
    options = frozenset({"class", "grid", "steps", "guidance", "seed"})
    training = "headway.tasks.diffusion.training:DiffusionTraining"
    predictor = "headway.tasks.diffusion.predict:DiffusionPredictor"

    def parse(self, raw: Mapping[str, Any]) -> DrawExample:
        label = next((raw[name] for name in CLASS_COLUMNS if raw.get(name) is not None), None)
        if isinstance(label, bool) or not isinstance(label, str | int) or not str(label).strip():
            raise DataError("D001", "expected a class: its name or its number")
        return DrawExample(
            str(label).strip(),
            _number(raw, "number", MAX_SEED, int) or 0,
            _number(raw, "seed", MAX_SEED, int) or 0,
            _number(raw, "steps", MAX_STEPS, int, least=1),
            _number(raw, "guidance", MAX_GUIDANCE, float),
        )

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        return config.denoise is not None

    def render(self, found: Sequence[tuple[DrawExample, Json]], *, colours: bool) -> Iterator[str]:
        for name, count in Counter(result["class"] for _, result in found).items():
            yield f"{name}: {count} {'image' if count == 1 else 'images'}"


def _number(raw: Mapping[str, Any], name: str, most: float, kind: type, least: float = 0) -> Any:
    """A field of a request or a cell of a table; None if it is not there."""
    value = raw.get(name)
    if value is None or value == "":
        return None
    try:
        number = kind(value)
    except (TypeError, ValueError):
        number = None
    if number is None or isinstance(value, bool) or not least <= number <= most or number != float(value):
        raise DataError("D001", f"{name} = {str(value)[:40]!r} should be {Range(least, most)}")
    return number


def class_number(label: str, labels: Sequence[str]) -> int:
    """The row of a class in the model's table: by name, or else by number; the last row is no class."""
    if label in labels:
        return labels.index(label)
    if label == NO_CLASS:
        return len(labels)
    if label.isdecimal() and int(label) < len(labels):
        return int(label)
    some = ", ".join(labels[:12]) + (" …" if len(labels) > 12 else "")
    raise DataError("D001", f"no class {label[:40]!r}{nearest(label, labels)}", f"the model draws {some}; {NO_CLASS}")
