"""Constrained generation: token masks, and regular expressions and JSON schemas through `llguidance`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from headway.data.tokenizers.tokenizer import Tokenizer
from headway.data.tokenizers.train import byte_ids
from headway.errors import ConfigError, DataError, NotFoundError
from headway.generate.grammar.client import Trial

if TYPE_CHECKING:
    from llguidance import LLMatcher

BYTE = re.compile(r"<0x([0-9A-F]{2})>")
"""A token for one byte, in sentencepiece vocabularies."""


Gone = Callable[[], bool]


def never() -> bool:
    return False


class Mask(Protocol):
    """Which tokens may come next in each row of a batch."""

    def allowed(self, row: int) -> Tensor | None:
        """(V,), true for tokens that may come next; None for all. If none is allowed, the sequence ends."""

    def accept(self, row: int, token: int) -> None:
        """Record the token that a row goes on with."""


class Patterns:
    """Compiles patterns for one vocabulary. Keep it: reading a large vocabulary takes a while.

    A stop token is allowed where the text matches. Without stop tokens a sequence ends only where nothing can follow.
    """

    def __init__(self, tokenizer: Tokenizer, vocab: int, stop: Sequence[int] = ()) -> None:
        """`vocab` is the model's vocabulary size, which may differ from the tokenizer's."""
        try:
            import llguidance
        except ImportError:
            what, hint = "regular expressions and JSON schemas need llguidance", "pip install 'headway[grammar]'"
            raise NotFoundError("F003", what, hint) from None
        from headway.generate.grammar.worker import compiled, make_tokenizer

        tokens = token_bytes(tokenizer)[:vocab]
        tokens += [b""] * (vocab - len(tokens)) + [b"<end>"]  # an extra end token, for models without one
        ends = list(stop) or [vocab]
        added = tokenizer.backend.get_added_tokens_decoder()
        special = sorted({*(i for i, token in added.items() if token.special and i < vocab), *ends, vocab})
        self.vocab, self.library, self.compiled = vocab, llguidance.LLMatcher, compiled
        self.tokenizer = make_tokenizer(tokens, ends, special, lambda text: tokenizer.encode(text, special=False).ids)
        self.trial = Trial(tokens, ends, special)

    def regular(self, pattern: str, gone: Gone = never) -> Grammar:
        """The new text must match a regular expression completely. Rust syntax: no look-around, \\d is any digit."""
        return self._grammar(self.library.grammar_from_regex(pattern), gone)

    def schema(self, rules: Mapping[str, Any], gone: Gone = never) -> Grammar:
        """The new text must be JSON by a schema, without white space, which a model could generate without end."""
        text = json.dumps(rules)
        return self._grammar(
            self.library.grammar_from_json_schema(text, overrides={"whitespace_flexible": False}), gone
        )

    def lark(self, grammar: str, gone: Gone = never) -> Grammar:
        """The new text must follow a grammar in llguidance's variant of Lark."""
        return self._grammar(self.library.grammar_from_lark(grammar), gone)

    def _grammar(self, grammar: str, gone: Gone) -> Grammar:
        """Compile a grammar, after the worker has compiled it within limits. `gone` says whether to give up."""
        self.trial.judge(grammar, gone)
        matcher = self.compiled(self.tokenizer, grammar)
        if matcher.is_error():
            raise ConfigError("C003", f"invalid pattern or schema: {matcher.get_error()[:300]}")
        return Grammar(matcher, self.vocab)


class Grammar:
    """A mask from a pattern. New rows start at its beginning."""

    def __init__(self, first: LLMatcher, vocab: int) -> None:
        self.first, self.vocab = first, vocab
        self.rows: dict[int, LLMatcher] = {}

    def allowed(self, row: int) -> Tensor | None:
        matcher = self._matcher(row)
        bias = matcher.compute_logit_bias()  # a byte per token, 0 if it is not allowed
        if matcher.is_error():  # an empty mask would look like a complete text
            self._check_limits(matcher)
            raise ConfigError("C003", "the pattern allows no token here, not even an end token")
        return torch.frombuffer(bytearray(bias), dtype=torch.uint8)[: self.vocab] > 0

    def accept(self, row: int, token: int) -> None:
        matcher = self._matcher(row)
        if not matcher.consume_token(token):
            self._check_limits(matcher)
            raise DataError("D001", f"token {token} does not match the pattern: {matcher.get_error()[:200]}")

    @staticmethod
    def _check_limits(matcher: LLMatcher) -> None:
        from headway.generate.grammar.worker import limit_met

        if why := limit_met(matcher):
            raise ConfigError("C005", f"the pattern became too expensive to follow: {why}")

    def matches(self, row: int) -> bool:
        """Whether the text of a row matches as it stands."""
        return self._matcher(row).is_accepting()

    def _matcher(self, row: int) -> LLMatcher:
        if row not in self.rows:
            self.rows[row] = self.first.deep_copy()
        return self.rows[row]


def token_bytes(tokenizer: Tokenizer) -> list[bytes]:
    """The bytes of each token, for tokenizers whose text is the concatenation of its tokens."""
    decoder = json.loads(tokenizer.backend.to_str())["decoder"] or {"type": None}
    kinds = {part["type"] for part in decoder.get("decoders", [decoder])}
    added = {i: token.content for i, token in tokenizer.backend.get_added_tokens_decoder().items()}
    pieces = [added.get(i, piece) for i, piece in enumerate(tokenizer.pieces(range(tokenizer.vocab_size)))]
    if "ByteLevel" in kinds:
        values = byte_ids()
        spelled = [bytes(values[c] for c in p) if i not in added else p.encode() for i, p in enumerate(pieces)]
    elif kinds & {"ByteFallback", "Metaspace", "Fuse"}:
        space = "▁" if kinds & {"Metaspace", "Replace"} else " "
        found = [BYTE.fullmatch(p) if "ByteFallback" in kinds else None for p in pieces]
        spelled = [
            bytes.fromhex(byte[1]) if byte else p.replace(space, " ").encode()
            for p, byte in zip(pieces, found, strict=True)
        ]
    else:
        names = ", ".join(sorted(map(str, kinds)))
        raise DataError(
            "D001", f"patterns need a tokenizer that concatenates its tokens; this one joins words by rules ({names})"
        )
    return spelled
