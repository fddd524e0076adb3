"""Grammars that answers have to follow: compiled one at a time, aside from all other requests."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

from headway.data.tokenizers.tokenizer import Tokenizer
from headway.generate.grammar.grammar import Grammar, Patterns
from headway.serve.errors import ApiError, overloaded
from headway.serve.limits import Limits
from headway.serve.schemas import ResponseFormat


class Grammars:
    """For one model. Used by the event loop only."""

    def __init__(self, tokenizer: Tokenizer, limits: Limits, *, vocab: int, ends: Sequence[int]) -> None:
        self.tokenizer, self.limits, self.vocab, self.ends = tokenizer, limits, vocab, ends
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="headway-grammar")
        """One thread: grammars of many clients together take no more than one core."""
        self.open = 0
        """Requests that wait for their grammar, the one that is being compiled included."""

    async def compile(self, asked: ResponseFormat | None) -> Grammar | None:
        """What a request asks its answer to follow; given up when the client leaves."""
        if asked is None or asked.type == "text":
            return None
        if self.open >= self.limits.grammars:
            raise overloaded(f"{self.open} JSON schemas wait to be compiled")
        gone = threading.Event()
        self.open += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self.pool, self._compile, asked, gone)
        finally:
            self.open -= 1
            gone.set()

    def _compile(self, asked: ResponseFormat, gone: threading.Event) -> Grammar:
        return self._patterns.schema(self._rules(asked), gone.is_set)

    def _rules(self, asked: ResponseFormat) -> Mapping[str, Any]:
        if asked.type == "json_object":
            return {"type": "object"}
        if asked.json_schema is None:
            raise ApiError(400, "type json_schema needs a json_schema", "C004", "response_format.json_schema")
        size = len(json.dumps(asked.json_schema.rules, ensure_ascii=False).encode())
        if size > self.limits.schema_bytes:
            message = f"a JSON schema of {size:,} bytes; the limit is {self.limits.schema_bytes:,}"
            raise ApiError(400, message, "C003", "response_format.json_schema")
        return asked.json_schema.rules

    @cached_property
    def _patterns(self) -> Patterns:
        return Patterns(self.tokenizer, self.vocab, self.ends)
