"""Generation for the page: token by token with what else was likely; trees of beam searches; tokens of a text."""

from __future__ import annotations

import math
import threading
from collections.abc import Generator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headway.errors import ConfigError, DataError
from headway.generate.decode import Sampling, decode
from headway.generate.detokenize import TextStream
from headway.generate.score import score_prompt
from headway.generate.trace import ALTERNATIVES, Alternative, Choice, Growth, Node, tree
from headway.serve.responses import TokenSpelling
from headway.studio.errors import described

if TYPE_CHECKING:
    from headway.api.bundle import Bundle

Json = dict[str, Any]
WIDTH, STEPS = 16, 64
"""The most beams and the most tokens of a tree that can still be drawn."""
TURN = 0.5
"""Seconds after which a page that waits for a model hears that it still waits."""


class Play:
    """A model that generates, for one request of the page."""

    def __init__(self, bundle: Bundle, lock: threading.Lock) -> None:
        self.bundle, self.lock = bundle, lock
        self.tokenizer = bundle.require_tokenizer()

    @cached_property
    def spelling(self) -> TokenSpelling:
        return TokenSpelling(self.tokenizer)

    def prompt(self, text: str | None, messages: Sequence[Json] | None, ids: Sequence[int]) -> list[int]:
        """The ids of a text, of a conversation, or as they are: a fork goes on from tokens."""
        if ids:
            size = self.bundle.model.lm.vocab
            if wrong := [i for i in ids if not 0 <= i < size]:
                raise DataError("D001", f"token {wrong[0]} does not exist: the vocabulary has {size:,}")
            return list(ids)
        return self.bundle.prompts.text(text or "") if messages is None else self.bundle.prompts.chat(messages)

    def generate(self, ids: list[int], forced: int | None, sampling: Sampling) -> Generator[Json | None, None, None]:
        """Events: the prompt, each token, why it ends; None while another request uses the model."""
        while not self.lock.acquire(timeout=TURN):
            yield None
        try:
            yield {"prompt": ids}
            if forced is not None:
                stream = TextStream(self.tokenizer, context=ids)
                yield {"forced": stream.push(forced)}
                ids = [*ids, forced]
            trace: list[Choice] = []
            for piece in decode(self.bundle.prefix_cache, [ids], sampling, tokenizer=self.tokenizer, trace=trace):
                if trace:
                    yield {"token": self._choice(trace.pop(), piece.text)}
                if piece.finish is not None:
                    yield {"finish": piece.finish}
        except Exception as error:  # the response has begun: an error is one of its events
            yield {"error": described(error)[1]}
        finally:
            self.lock.release()

    def _choice(self, choice: Choice, text: str) -> Json:
        best = [self._alternative(each) for each in choice.best]
        return {**self._alternative(choice.chosen), "text": text, "best": best}

    def _alternative(self, each: Alternative) -> Json:
        return self._token(each.token, each.probability) | {"share": round(each.share, 6)}

    def _token(self, token: int, probability: float) -> Json:
        return {"id": token, "label": self.spelling.text(token), "p": round(probability, 6)}

    def score(self, text: str) -> Json:
        """The tokens of a text, each with its probability and with what was likelier."""
        ids, start = self.tokenizer.ids([text], special=True)[0], self.bundle.config.special.bos
        if start is not None and not self.tokenizer.prefix_ids:
            ids = [start, *ids]
        if len(ids) < 2:
            raise DataError("D001", "the text has no token to predict", "write a few words")
        with self.lock:
            found = score_prompt(self.bundle.model, ids, ALTERNATIVES)
        stream = TextStream(self.tokenizer)
        tokens = [{"id": ids[0], "label": self.spelling.text(ids[0]), "text": stream.push(ids[0]), "best": []}]
        for token, (logp, best) in zip(ids[1:], found, strict=True):
            likely = [self._token(other, math.exp(value)) for other, value in best]
            tokens.append({**self._token(token, math.exp(logp)), "text": stream.push(token), "best": likely})
        total = sum(logp for logp, _ in found)
        return {
            "tokens": tokens,
            "log_probability": total,
            "perplexity": math.exp(min(700.0, -total / len(found))),
            "bits_per_byte": -total / math.log(2) / max(1, len(text.encode())),
        }

    def beams(self, text: str, settings: Mapping[str, Any]) -> Json:
        """The hypotheses of a beam search, and the tree in which it found them."""
        beam, steps = self.bundle.beam(**settings), list[Growth]()
        if beam.width > WIDTH or beam.max_tokens > STEPS:
            hint = "headway run --beam searches further"
            raise ConfigError("C003", f"the page draws up to {WIDTH} beams and {STEPS} tokens", hint)
        with self.lock:
            found = self.bundle.beams(text, beam, steps)
        best = [{"text": each.text, "score": each.score} for each in found]
        return {"tree": [self._node(node) for node in tree(steps)], "best": best}

    def _node(self, node: Node) -> Json:
        more = [self._node(each) for each in node.next]
        return {"label": self.spelling.text(node.token), "score": node.score, "ended": node.ended, "next": more}
