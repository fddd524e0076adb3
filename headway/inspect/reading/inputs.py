"""Inputs of any kind, as the model reads them."""

from __future__ import annotations

from typing import Any

from headway.config.model import TokensConfig
from headway.errors import DataError
from headway.inspect.reading.base import Reading
from headway.inspect.reading.media import read_thing
from headway.inspect.reading.text import read_text
from headway.tasks.predictor import Loaded


def read_input(loaded: Loaded, given: Any, target: str | None = None) -> Reading:
    """A text or two for a model of texts; for others an image, a sound, a series, a graph, or the path of one."""
    config = loaded.model.config
    if not isinstance(config.source or config.output_front, TokensConfig):
        return read_thing(loaded, given, target)
    text, pair = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    for each in (text, pair):
        if each is not None and not isinstance(each, str):
            raise DataError("D001", f"the input is of type {type(each).__name__}, the model reads texts")
    return read_text(loaded, text, pair, target)
