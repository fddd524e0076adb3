"""The model that is served, and what it can do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headway.config.baselines import BaselineConfig
from headway.config.model import max_positions
from headway.data.prompts import PromptEncoder
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError, DataError, MemoryOrDiskError
from headway.generate.engine.engine import Engine
from headway.hub.generation_config import read_generation
from headway.model.model import Model
from headway.serve.errors import ApiError
from headway.serve.grammars import Grammars
from headway.serve.limits import Limits
from headway.serve.predict import Tasks
from headway.serve.requests import RequestBuilder
from headway.serve.responses import TokenSpelling
from headway.serve.slots import choose_slots
from headway.tasks.predictor import Loaded

NO_TEXT = "this model writes no text"


class ServedModel:
    """Built once, before the server listens; `start` and `close` are for the engine in it."""

    def __init__(self, bundle: Loaded, limits: Limits, name: str = "") -> None:
        config, self.model, self.limits = bundle.model.config, bundle.model, limits
        self.id, self.created = name or _name(bundle), int(time.time())
        self.engine: Engine | None = None
        self.requests: RequestBuilder | None = None
        self.grammars: Grammars | None = None
        if isinstance(config, BaselineConfig) and config.kind == "decoder":
            why = f"{self.id} is of kind {config.network}: the server writes with transformers"
            raise DataError("D001", why, "headway run writes with it")
        if config.kind == "decoder" and config.lm is not None:
            self._make_engine(limits, bundle.require_tokenizer(), bundle.folder)
        self.tasks = Tasks(bundle, limits, _reads(self.model))
        if not self.capabilities():
            raise DataError("D001", f"{self.id} has nothing to serve: it neither reads nor writes text")

    def _make_engine(self, limits: Limits, tokenizer: Tokenizer, folder: Path | None) -> None:
        self.spelling = TokenSpelling(tokenizer)  # only generation asks for it
        slots, most = choose_slots(limits, self.model), self.model.config.max_length
        if most is not None and limits.context > most:
            raise ConfigError("C003", f"context = {limits.context}, but the model reads at most {most} tokens")
        try:
            self.engine = Engine(
                self.model, tokenizer, slots=slots, capacity=limits.context or None, queue=limits.queue
            )
        except MemoryOrDiskError as error:
            raise MemoryOrDiskError(error.code, error.message, "set fewer slots, or a shorter context") from error
        encoder = PromptEncoder(tokenizer, self.model.config.special)
        vocab, settings = self.model.lm.vocab, read_generation(folder)
        self.requests = RequestBuilder(
            encoder, limits, vocab=vocab, context_length=self.engine.capacity, settings=settings
        )
        self.grammars = Grammars(tokenizer, limits, vocab=vocab, ends=self.requests.ends)

    def generator(self) -> tuple[RequestBuilder, Grammars]:
        if self.requests is None or self.grammars is None:
            raise ApiError(400, NO_TEXT, "D001", "model")
        return self.requests, self.grammars

    def capabilities(self) -> list[str]:
        chats = self.requests is not None and self.requests.template is not None
        writes = self.requests is not None
        return ["chat"] * chats + ["complete"] * writes + self.tasks.names

    def card(self) -> dict[str, Any]:
        room = self.requests.context_length if self.requests is not None else _reads(self.model)
        card = {"id": self.id, "object": "model", "created": self.created, "owned_by": "headway"}
        return {**card, "can": self.capabilities(), "context": room}

    def check_name(self, name: str) -> None:
        if name != self.id:
            raise ApiError(404, f'there is no model {name[:100]!r} here, only "{self.id}"', "model_not_found", "model")

    def alive(self) -> bool:
        return not self.trouble()

    def trouble(self) -> str:
        """Why requests are not answered now; empty where they are."""
        return self.stuck() or ("" if self.engine is None else self.engine.trouble)

    def stuck(self) -> str:
        """Whether a step hangs: nobody can be answered before it ends, if it ever does."""
        if self.engine is not None and self.engine.step_seconds() > self.limits.step_seconds:
            return f"a step of the model takes longer than {self.limits.step_seconds:g} s"
        return ""

    def gauges(self) -> dict[str, tuple[str, Callable[[], float]]]:
        if (engine := self.engine) is None:
            return {}
        return {
            "requests_running": ("texts being written", lambda: engine.stats().running),
            "requests_waiting": ("texts that wait for a slot", lambda: engine.stats().waiting),
            "cache_usage_ratio": ("share of the slots in use", lambda: engine.stats().used / engine.stats().slots),
            "engine_faults": ("passes through the model that failed", lambda: engine.faults),
            "prefix_cache_tokens": ("tokens of prompts that were known", lambda: engine.stats().prefix_tokens),
        }

    def start(self) -> None:
        if self.engine is not None:
            self.engine.start()

    def close(self) -> None:
        """Returns once all threads have ended."""
        pools = [self.tasks.pool, *([self.grammars.pool] if self.grammars is not None else [])]
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        if self.engine is not None:
            self.engine.close()
        for pool in pools:
            pool.shutdown()


def _name(bundle: Loaded) -> str:
    """A hub id or a preset as it is; of a folder only its last part, as the rest is nobody's business."""
    return bundle.name if bundle.folder is None or not Path(bundle.name).exists() else bundle.folder.resolve().name


def _reads(model: Model) -> int | None:
    front = model.config.source or model.config.target
    assert front is not None
    return max_positions(front)
