"""The arguments of `headway run`, parsed and checked once, before the model is loaded.

Loading may take minutes, so what no model accepts is refused first. Whether `x=1` is a text or a misspelt setting
depends on the model's task: texts and settings are split when they are first used.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from headway.api.results import check_out
from headway.cli.run.pictures import ROLLOUTS, check_picture
from headway.cli.run.stream import stdin_is_piped
from headway.config.keys import did_you_mean, dotted_keys
from headway.config.recipe import DataConfig
from headway.errors import ConfigError, UsageError, nearest
from headway.tasks.registry import task_names, tasks

COUNTS = ("top", "n_best")
"""Settings that are integers from 1."""
CLASS = "class"
"""The word before = that names what a model should draw."""
MOST_IMAGES = 10_000
"""Images of one grid."""
LOOKS = ("rollout", "layer")
"""Settings of the pictures of a vision model's attention."""
SETTING = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)(?:\.[A-Za-z_]+)?=")


@dataclass(frozen=True, kw_only=True)
class RunArgs:
    """All that follows `headway run MODEL`."""

    args: tuple[str, ...] = ()
    """Texts and key=value settings, as typed."""
    tokens: int | None = None
    seed: int | None = None
    beam: int = 0
    score: bool = False
    chat: bool = False
    draft: str = ""
    regex: str = ""
    schema: dict[str, Any] | None = None
    colour: bool = False
    trace: bool = False
    trace_file: str = ""
    file: str = ""
    out: str = ""
    context: str = ""
    story: str = ""
    near: str = ""
    index: str = ""
    align: bool = False
    grid: str = ""
    steps: int | None = None
    guidance: float | None = None
    rollout: str = ""
    attention: str = ""
    labels: str = ""
    language: str = ""
    words: bool = False
    format: str = ""
    horizon: int | None = None
    plot: str = ""
    json: bool = False

    def check(self) -> None:
        """Refuse what is wrong for every model."""
        options = self._sampling_options()
        if self.score:
            _refuse_together("score", options)
        elif self.beam and not self.file:
            _refuse_together("beam", {name: options[name] for name in ("chat", "draft", "regex", "schema", "colour")})
        if self.regex and self.schema is not None:
            _refuse_together("schema", {"regex": True})
        if self.score and not self.args and not self.file:
            raise UsageError("U001", "--score needs a text", 'headway run MODEL --score "…"')
        if self.file and not all("=" in arg for arg in self.args):
            _refuse_together("file", {"": True})
        if self.index and not self.near:
            raise UsageError(
                "U001", "--index keeps the texts of --nearest", "headway run M --nearest FILE --index FILE …"
            )
        if self.grid:
            grid_size(self.grid)
        if self.out and not self._draws:
            if not (self.file or "-" in self.args or stdin_is_piped()):
                raise UsageError("U001", "--out is for results of a file", "headway run MODEL --file FILE --out FILE")
            check_out(self.out)
        if self.horizon is not None and self.horizon < 1:
            raise UsageError("U001", f"--horizon {self.horizon} should be at least 1")
        for name in ("rollout", "attention", "plot"):
            if path := getattr(self, name):
                check_picture(f"--{name}", path)
        known = list(dict.fromkeys(name for task in tasks() for name in task.formats))
        if self.format and self.format not in known:
            raise UsageError("U001", f"--format {self.format} is unknown", f"one of {', '.join(known)}")
        if self.format and self.json:
            raise UsageError("U001", "--json does not go with --format", "--format json, or --json alone for lines")
        self.named_task()
        if self.file or not self.score:
            self._check_settings()

    @property
    def _draws(self) -> bool:
        """Whether --out is the file of a picture."""
        return self.out.lower().endswith(".png") and not self.file

    @property
    def drawing(self) -> dict[str, Any]:
        """Options for models that draw images, by name; false where one is not given."""
        given = {name: getattr(self, name) is not None for name in ("steps", "guidance")}
        return {"grid": self.grid, **given}

    @property
    def hearing(self) -> dict[str, Any]:
        """Options for models that transcribe, by name; false where one is not given."""
        return {"language": self.language, "words": self.words, "format": self.format}

    @property
    def series(self) -> dict[str, Any]:
        """Options for models that continue series of numbers, by name; false where one is not given."""
        return {"horizon": self.horizon is not None, "plot": self.plot}

    def check_generation(self) -> None:
        """Refuse what a model that generates does not accept."""
        if self.file:
            _refuse_together("file", self._sampling_options())
        refused = {
            "context": self.context,
            "story": self.story,
            "json": self.json and not self.file,
            "align": self.align,
            **self.drawing,
        }
        refused |= {"out": self._draws, "rollout": self.rollout, "attention": self.attention}
        refused |= self.hearing | self.series
        for name, given in refused.items():
            if given:
                raise UsageError("U001", f"--{name} does not apply to a model that continues a text")

    def generation_options(self, *, search: bool) -> dict[str, Any]:
        """Options for models that generate, by name; false where one is not given. `search`: --beam is not one."""
        given = self._sampling_options() | {"tokens": self.tokens, "seed": self.seed is not None}
        return given | ({"beam": 0} if search else {})

    def _sampling_options(self) -> dict[str, Any]:
        names = ("beam", "chat", "draft", "regex", "colour")
        traced = self.trace or bool(self.trace_file)
        return {name: getattr(self, name) for name in names} | {"schema": self.schema is not None, "trace": traced}

    def named_task(self) -> str:
        """The task that task=… names, or an empty string."""
        task, known = (
            next((arg.removeprefix("task=") for arg in self.args if arg.startswith("task=")), ""),
            task_names(),
        )
        if task and task not in known:
            raise UsageError("U001", f"task={task} is unknown{nearest(task, known)}", f"one of {', '.join(known)}")
        return task

    # --- for a model that generates

    @cached_property
    def _prompt_and_settings(self) -> tuple[str, list[str]]:
        """The prompt may be left out: then the first argument is a setting."""
        args = list(self.args)
        if self.file or not args:
            return "", args
        names = [field.name for field in fields(self._settings_class)]
        known, spaced = args[0].partition("=")[0] in names, re.search(r"\s", args[0])
        if re.match(r"[a-z_]+=", args[0]) and ((known or not spaced) if self.chat else (known and not spaced)):
            return "", args
        return args[0], args[1:]

    @property
    def prompt(self) -> str:
        return read_text(self._prompt_and_settings[0])

    @property
    def overrides(self) -> dict[str, Any]:
        """Fields of Sampling, or of Beam with --beam, that options and settings set."""
        settings = [arg for arg in self._prompt_and_settings[1] if not arg.startswith("task=")]
        return self._overrides([arg for arg in settings if not (self.file and arg.startswith("data."))])

    @property
    def data(self) -> dict[str, Any]:
        """Settings of the data section, for --file."""
        from headway.config.toml import parse_overrides

        return parse_overrides([arg for arg in self.args if arg.startswith("data.")])

    def _overrides(self, settings: list[str]) -> dict[str, Any]:
        from headway.config.toml import parse_overrides

        if plain := [arg for arg in settings if "=" not in arg]:
            raise UsageError("U001", f"{plain[0]!r} is neither the prompt nor key=value", "put the prompt in quotes")
        values = parse_overrides(settings)
        if wrong := [name for name in values if name in self._beam_settings]:
            raise ConfigError("C004", f"{wrong[0]} is a setting of beam search", "add --beam 4")
        if isinstance(values.get("stop_strings"), str):
            values["stop_strings"] = [values["stop_strings"]]
        options = {"max_tokens": self.tokens, **({"width": self.beam} if self.beam else {"seed": self.seed})}
        return {**{name: value for name, value in options.items() if value is not None}, **values}

    @property
    def _beam_settings(self) -> set[str]:
        """Settings that need --beam, where it is not given."""
        from headway.config.generation import Beam, Sampling

        both = [{field.name for field in fields(each)} for each in (Beam, Sampling)]
        return set() if self.beam else both[0] - both[1] - {"width"}

    @cached_property
    def _settings_class(self) -> type[Any]:
        from headway.config.generation import Beam, Sampling

        return Beam if self.beam else Sampling

    # --- for a model that predicts

    @cached_property
    def _texts_settings_pairs(self) -> tuple[list[str], dict[str, Any], list[str]]:
        """An argument that looks like a setting and is none is probably a spelling mistake."""
        from headway.config.toml import parse_overrides

        texts, settings, pairs, names = [], [], [], setting_names()
        for arg in self.args:
            found = SETTING.match(arg)
            if found and found[1] == "pair":
                pairs.append(arg.removeprefix("pair="))
            elif found and found[1] == CLASS:
                continue
            elif found and found[1] in names:
                settings.append(arg)
            elif found and not re.search(r"\s", arg):
                close = did_you_mean(arg.partition("=")[0], (*names, *dotted_keys(DataConfig, "data")))
                hint = "put a text of one word with = in it into a file"
                raise UsageError("U001", f"{arg!r} is not a setting here{close}", hint)
            else:
                texts.append(arg)
        return texts, parse_overrides(settings), pairs

    @property
    def texts(self) -> list[str]:
        return self._texts_settings_pairs[0]

    @property
    def settings(self) -> dict[str, Any]:
        return self._texts_settings_pairs[1]

    @property
    def classes(self) -> list[str]:
        """What a model that draws images should draw: class=7, class=circle,ring."""
        return [arg.removeprefix(f"{CLASS}=") for arg in self.args if arg.startswith(f"{CLASS}=")]

    @property
    def pairs(self) -> list[str]:
        """The second text of each pair."""
        return self._texts_settings_pairs[2]

    @property
    def source(self) -> str:
        """The file to read texts from, - for stdin: as given, or the pipe where no text is given."""
        if self.file or self.classes or self.texts not in ([], ["-"]):
            return self.file
        return "-" if self.texts or (not self.near and stdin_is_piped()) else ""

    # --- for both

    def _check_settings(self) -> None:
        """Refuse settings that neither kind of model accepts."""
        from headway.config.toml import build, parse_overrides

        known, names = [f.name for f in fields(self._settings_class)], setting_names()
        generation, prediction = list[str](), list[str]()
        for arg in self._prompt_and_settings[1]:
            found = SETTING.match(arg)
            if found is None or re.search(r"\s", arg):
                continue  # a text for a model that predicts
            if found[1] in names:
                prediction.append(arg)
            elif found[1] in known or found[1] in self._beam_settings:
                generation.append(arg)
            else:
                key, _, value = arg.partition("=")
                if key in {each.name for each in fields(self)} - {"args", "near"}:
                    words = "" if isinstance(getattr(self, key), bool) else f" {shlex.quote(value)}"
                    hint = f"write --{key.replace('_', '-')}{words}"
                    raise ConfigError("C014", f"{key} is an option, not a setting", hint)
                close = did_you_mean(key, [*known, *names, *dotted_keys(DataConfig, "data")])
                hint = f"headway explain {'beam' if self.beam else 'sampling'} lists the settings of generation"
                raise ConfigError("C014", f"unknown setting {key}{close}", hint)
        build(self._settings_class, self._overrides(generation))
        check_sections(parse_overrides([arg for arg in prediction if not arg.startswith(("pair=", f"{CLASS}="))]))


def check_sections(settings: Mapping[str, Any]) -> None:
    """Refuse settings that no model that predicts accepts."""
    from headway.tasks.recipe import read_recipe

    for name in COUNTS:
        check_count(name, settings.get(name, 1))
    _check_looks(settings)
    sections = {name: value for name, value in settings.items() if name not in ("task", *COUNTS, *LOOKS)}
    for name, value in sections.items():
        if not isinstance(value, Mapping):
            raise UsageError("U001", f"{name}={value} sets nothing: {name} is a section", f"set {name}.KEY=VALUE")
    if "data" in sections:  # data.overlap must be less than data.length, whose default may be the model's own
        read_recipe({"data": {"length": sys.maxsize, **sections["data"]}})
    for name in sections.keys() & set(task_names()):
        read_recipe({"task": name, name: sections[name]})


def setting_names() -> tuple[str, ...]:
    """What may stand before = for a model that predicts: single settings, and sections of a recipe."""
    return ("task", "pair", CLASS, "data", *COUNTS, *LOOKS, *task_names())


def grid_size(grid: str) -> tuple[int, int]:
    """Rows and columns of --grid 4x8."""
    found = re.fullmatch(r"([1-9]\d{0,3})\s*[x×]\s*([1-9]\d{0,3})", grid)
    if not found or int(found[1]) * int(found[2]) > MOST_IMAGES:
        hint = f"such as 4x4: rows and columns, {MOST_IMAGES:,} images at most"
        raise UsageError("U001", f"--grid {grid} is no size of a grid", hint)
    return int(found[1]), int(found[2])


def _check_looks(settings: Mapping[str, Any]) -> None:
    if (how := settings.get("rollout", ROLLOUTS[0])) not in ROLLOUTS:
        raise UsageError("U001", f"rollout={how} is unknown", f"one of {', '.join(ROLLOUTS)}")
    if type(layer := settings.get("layer", 0)) is not int or layer < 0:
        raise UsageError("U001", f"layer={layer} should be an integer from 0")


def check_count(name: str, value: Any) -> None:
    if type(value) is not int or value < 1:
        raise UsageError("U001", f"{name}={value} should be an integer from 1")


def read_text(arg: str) -> str:
    """A text argument; - reads stdin."""
    return sys.stdin.read().removesuffix("\n") if arg == "-" else arg


def read_schema(given: str) -> dict[str, Any] | None:
    """The JSON schema of --schema: a file, or the object itself."""
    from headway.jsonfile import JSON_VALUES, parse_object, read_json

    if not given.lstrip().startswith("{"):
        return read_json(Path(given)) if given else None
    try:
        return parse_object(given.encode(), JSON_VALUES)
    except ValueError as error:
        raise ConfigError("C001", f"--schema: {error}", "give a JSON object, or a file that holds one") from None


def _refuse_together(name: str, others: Mapping[str, Any]) -> None:
    """--score, --beam and --file do not sample step by step, so options about a sampled text do not apply."""
    if wrong := [other for other, given in others.items() if given]:
        other = f"--{wrong[0]}" if wrong[0] else "a text"
        raise UsageError("U001", f"{other} does not go with --{name}", "leave one of them out")
