"""The comparisons that come with headway: a file each, with a recipe, what is varied, and why. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.config.toml import build, read_toml
from headway.errors import ConfigError
from headway.runs.grid import RECIPE, grid

SHIPPED = Path(__file__).parent.parent / "comparisons"
BASE = "model.from"
HERE, BLOCKS, GIVEN = "{here}", "{blocks}", "{model.from}"
"""In a word: the folder of the files; the number of blocks of model.from; that model."""


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """One of these files."""

    title: str
    """What is compared, in a line."""
    why: str
    """What one should see, and why: a paragraph for the page and the docs."""
    recipe: str
    words: tuple[str, ...]
    """As they would follow the recipe: common and varied settings, seeds, equal terms."""
    needs: tuple[str, ...] = ()
    """Settings that only the user can give."""

    @property
    def size(self) -> str:
        """How much is trained: the number of runs, and the budget of each."""
        plan = grid(self.words)
        given = dict(word.partition("=")[::2] for word in self.words)
        budget = next((f"{given[key]} {key[6:]}" for key in ("train.steps", "train.epochs") if key in given), "")
        return f"{len(plan.variants) * len(plan.seeds_from(1))} runs" + (f" of {budget}" if budget else "")


def shipped_names() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def read_shipped(name: str) -> Shipped:
    values, text = read_toml(SHIPPED / f"{name}.toml")
    return build(Shipped, values, source=text)


def command_words(name: str, given: Sequence[str]) -> list[str]:
    """The words of a shipped comparison; a word that is given replaces that of the same key."""
    file, values = read_shipped(name), dict(word.partition("=")[::2] for word in given)
    if missing := next((key for key in file.needs if not values.get(key)), None):
        hint = f"headway compare {name} {missing}=org/name"
        raise ConfigError("C004", f"comparison {name} needs {missing}, which only you can give", hint)
    if RECIPE in values:
        raise ConfigError("C004", f"comparison {name} has a recipe of its own: {file.recipe}", "leave recipe= out")
    base = values.get(BASE, "")
    own = {word: set(word.partition("=")[0].split("+")) for word in file.words}
    varied = set(file.needs) & {key for keys in own.values() for key in keys}
    # What is needed and varied is one of the values, not a word of its own.
    kept = [word for word, keys in own.items() if not keys & (values.keys() - varied)]
    filled = [word.replace(HERE, str(SHIPPED)).replace(GIVEN, base) for word in kept]
    filled = [word.replace(BLOCKS, _blocks(base)) if BLOCKS in word else word for word in filled]
    return [*filled, *(word for word in given if word.partition("=")[0] not in varied)]


def _blocks(base: str) -> str:
    """The number of blocks of a pretrained model."""
    from headway.config.recipe import RUNS
    from headway.hub.download import pinned_name, resolve
    from headway.hub.folder import open_folder

    config = open_folder(resolve(pinned_name(base, Path(RUNS)))).config
    return str(config.output_stack.n_layers)
