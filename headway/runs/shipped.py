"""The comparisons that come with headway: a file each, with a recipe, what is varied, and why. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.config.toml import build, read_toml
from headway.errors import ConfigError
from headway.runs.grid import RECIPE

SHIPPED = Path(__file__).parent.parent / "comparisons"
HERE, BLOCKS = "{here}", "{blocks}"
"""In a word: the folder of the files; the number of blocks of model.from."""
BASE = "model.from"


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """One of these files."""

    title: str
    """What is compared, in a line."""
    why: str
    """What one should see, and why: a paragraph for the page and the docs."""
    time: str
    """About how long it takes, and where."""
    recipe: str
    words: tuple[str, ...]
    """As they would follow the recipe: common and varied settings, seeds, equal terms."""
    needs: tuple[str, ...] = ()
    """Settings that only the user can give."""


def shipped_names() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def read_shipped(name: str) -> Shipped:
    values, text = read_toml(SHIPPED / f"{name}.toml")
    return build(Shipped, values, source=text)


def command_words(name: str, given: Sequence[str]) -> list[str]:
    """The words of a shipped comparison; a word that is given replaces that of the same key."""
    file = read_shipped(name)
    keys = {word.partition("=")[0]: word.partition("=")[2] for word in given}
    if missing := next((key for key in file.needs if not keys.get(key)), None):
        hint = f"headway compare {name} {missing}=org/name"
        raise ConfigError("C004", f"comparison {name} needs {missing}, which only you can give", hint)
    if RECIPE in keys:
        raise ConfigError("C004", f"comparison {name} has a recipe of its own: {file.recipe}", "leave recipe= out")
    varied = {key for word in file.words for key in word.partition("=")[0].split("+")}
    left = [word for word in given if word.partition("=")[0] not in file.needs or word.partition("=")[0] not in varied]
    own = [word for word in file.words if not set(word.partition("=")[0].split("+")) & (keys.keys() - set(file.needs))]
    base = keys.get(BASE, "")
    filled = [word.replace(HERE, str(SHIPPED)).replace("{model.from}", base) for word in own]
    return [*(word.replace(BLOCKS, _blocks(base)) if BLOCKS in word else word for word in filled), *left]


def _blocks(base: str) -> str:
    """The number of blocks of a pretrained model."""
    from headway.config.recipe import RUNS
    from headway.hub.download import pinned_name, resolve
    from headway.hub.folder import open_folder

    config = open_folder(resolve(pinned_name(base, Path(RUNS)))).config
    return str(config.output_stack.n_layers)
