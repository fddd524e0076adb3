"""The model that is served, and what it can do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from headway.config import TokensConfig, longest
from headway.data.template import chosen_template
from headway.data.tokenizer import Tokenizer
from headway.errors import DataError
from headway.generate.engine import Engine
from headway.model.model import Model
from headway.serve.answers import Spelling
from headway.serve.limits import Limits
from headway.serve.problems import Problem
from headway.serve.prompts import Prompts
from headway.serve.tasks import Labels, Tasks

NO_TEXT = "this model writes no text"


class Bundle(Protocol):
    """A model with its tokenizer, as `headway.load` gives it."""

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> Model: ...
    @property
    def folder(self) -> Path | None: ...
    def reader(self) -> Tokenizer: ...
    def embed(self, texts: list[str]) -> Tensor: ...


class Service:
    """Built once, before the server listens; `start` and `close` are for the engine in it."""

    def __init__(self, bundle: Bundle, limits: Limits, name: str = "") -> None:
        config, self.model = bundle.model.config, bundle.model
        self.tokenizer = bundle.reader()
        self.id, self.created = name or _name(bundle), int(time.time())
        self.spelling = Spelling(self.tokenizer)
        eos = config.special.eos
        self.ends = set() if eos is None else {eos} if isinstance(eos, int) else set(eos)
        self.engine: Engine | None = None
        self.prompts: Prompts | None = None
        if config.kind == "decoder" and config.lm is not None:
            self._writes(limits)
        embed = bundle.embed if isinstance(config.source, TokensConfig) else None
        self.tasks = Tasks(self.tokenizer, limits, _reads(self.model), embed, self._labels())
        if not self.can():
            raise DataError("D001", f"{self.id} has nothing to serve: it neither writes, embeds nor labels text")

    def _writes(self, limits: Limits) -> None:
        config = self.model.config
        self.engine = Engine(
            self.model, self.tokenizer, slots=limits.slots, capacity=limits.context or None, queue=limits.queue
        )
        self.prompts = Prompts(
            self.tokenizer,
            chosen_template(self.tokenizer.config.get("chat_template")),
            limits,
            vocab=self.model.lm.vocab,
            room=self.engine.capacity,
            start=config.special.bos or 0,
        )

    def _labels(self) -> Labels | None:
        config = self.model.config
        known = config.classify is not None and config.classify.labels > 0 and config.kind != "encoder-decoder"
        return Labels(self.model, self.tokenizer) if known and _reads_text(self.model) else None

    def writer(self) -> Prompts:
        if self.prompts is None:
            raise Problem(400, NO_TEXT, "D001", "model")
        return self.prompts

    def can(self) -> list[str]:
        able = {
            "chat": self.prompts is not None and self.prompts.template is not None,
            "complete": self.prompts is not None,
            "embed": self.tasks.embed is not None,
            "classify": self.tasks.labels is not None,
        }
        return [name for name, yes in able.items() if yes]

    def card(self) -> dict[str, Any]:
        room = self.prompts.room if self.prompts is not None else _reads(self.model)
        card = {"id": self.id, "object": "model", "created": self.created, "owned_by": "headway"}
        return {**card, "can": self.can(), "context": room}

    def check_name(self, name: str) -> None:
        if name != self.id:
            raise Problem(404, f'there is no model {name[:100]!r} here, only "{self.id}"', "model_not_found", "model")

    def alive(self) -> bool:
        return self.engine is None or self.engine.alive

    def gauges(self) -> dict[str, tuple[str, Callable[[], float]]]:
        if (engine := self.engine) is None:
            return {}
        return {
            "requests_running": ("texts being written", lambda: engine.stats().running),
            "requests_waiting": ("texts that wait for a slot", lambda: engine.stats().waiting),
            "cache_usage_ratio": ("share of the slots in use", lambda: engine.stats().used / engine.stats().slots),
            "prefix_cache_tokens": ("tokens of prompts that were known", lambda: engine.stats().prefix_tokens),
        }

    def start(self) -> None:
        if self.engine is not None:
            self.engine.start()

    def close(self) -> None:
        if self.engine is not None:
            self.engine.close()
        self.tasks.pool.shutdown(wait=False, cancel_futures=True)


def _name(bundle: Bundle) -> str:
    """A hub id or a preset as it is; of a folder only its last part, as the rest is nobody's business."""
    return bundle.name if bundle.folder is None or not Path(bundle.name).exists() else bundle.folder.resolve().name


def _reads_text(model: Model) -> bool:
    return isinstance(model.config.source or model.config.target, TokensConfig)


def _reads(model: Model) -> int | None:
    front = model.config.source or model.config.target
    assert front is not None
    return longest(front)
