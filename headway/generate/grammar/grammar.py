"""Text that must match: a mask over the next token, and regular expressions and JSON schemas through `llguidance`."""

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
"""A token that stands for one byte, in vocabularies of sentencepiece."""


Gone = Callable[[], bool]


def never() -> bool:
    return False


class Mask(Protocol):
    """What may come next in each row; told of what came. A grammar library is adapted to this."""

    def allowed(self, row: int) -> Tensor | None:
        """(V,), true for tokens that may come next; None for all. With none left the text is complete."""

    def accept(self, row: int, token: int) -> None:
        """The row goes on with this token."""


class Patterns:
    """Makes masks for one vocabulary; to be kept, as a large vocabulary takes a while to read.

    A stop token may come where a text is a match; without any, a text ends only where nothing can follow.
    """

    def __init__(self, tokenizer: Tokenizer, vocab: int, stop: Sequence[int] = ()) -> None:
        """`vocab` is the model's, which may be larger or smaller than the tokenizer's."""
        try:
            import llguidance
        except ImportError:
            what, hint = "regular expressions and JSON schemas need llguidance", "pip install 'headway[grammar]'"
            raise NotFoundError("F003", what, hint) from None
        from headway.generate.grammar.worker import compiled, make_tokenizer

        tokens = token_bytes(tokenizer)[:vocab]
        tokens += [b""] * (vocab - len(tokens)) + [b"<end>"]  # one more, for vocabularies with nothing to end with
        ends = list(stop) or [vocab]
        added = tokenizer.backend.get_added_tokens_decoder()
        special = sorted({*(i for i, token in added.items() if token.special and i < vocab), *ends, vocab})
        self.vocab, self.library, self.compiled = vocab, llguidance.LLMatcher, compiled
        self.tokenizer = make_tokenizer(tokens, ends, special, lambda text: tokenizer.encode(text, special=False).ids)
        self.trial = Trial(tokens, ends, special)

    def regular(self, pattern: str, gone: Gone = never) -> Grammar:
        """New text that matches from beginning to end. The syntax is Rust's: no look-around, and \\d is any digit."""
        return self._grammar(self.library.grammar_from_regex(pattern), gone)

    def schema(self, rules: Mapping[str, Any], gone: Gone = never) -> Grammar:
        """New text that is JSON by a schema, without white space: a model may write that without end."""
        text = json.dumps(rules)
        return self._grammar(
            self.library.grammar_from_json_schema(text, overrides={"whitespace_flexible": False}), gone
        )

    def _grammar(self, grammar: str, gone: Gone) -> Grammar:
        """Compiled here only after it was compiled elsewhere, within bounds; `gone` says that nobody waits for it."""
        self.trial.judge(grammar, gone)
        matcher = self.compiled(self.tokenizer, grammar)
        if matcher.is_error():
            raise ConfigError("C003", f"not a pattern that a text can be held to: {matcher.get_error()[:300]}")
        return Grammar(matcher, self.vocab)


class Grammar:
    """A mask by a pattern. It takes new rows as they come."""

    def __init__(self, first: LLMatcher, vocab: int) -> None:
        self.first, self.vocab = first, vocab
        self.rows: dict[int, LLMatcher] = {}

    def allowed(self, row: int) -> Tensor | None:
        matcher = self._matcher(row)
        bias = matcher.compute_logit_bias()  # a byte per token, 0 where it may not come
        if matcher.is_error():  # the mask would end the text in its middle as if that were its end
            self._check_limits(matcher)
            raise ConfigError("C003", "by the pattern nothing can follow here, not even the end")
        return torch.frombuffer(bytearray(bias), dtype=torch.uint8)[: self.vocab] > 0

    def accept(self, row: int, token: int) -> None:
        matcher = self._matcher(row)
        if not matcher.consume_token(token):
            self._check_limits(matcher)
            raise DataError("D001", f"token {token} does not fit the pattern: {matcher.get_error()[:200]}")

    @staticmethod
    def _check_limits(matcher: LLMatcher) -> None:
        from headway.generate.grammar.worker import limit_met

        if why := limit_met(matcher):
            raise ConfigError("C005", f"the pattern became too hard to follow: {why}")

    def matches(self, row: int) -> bool:
        """Whether the text of a row is a match as it stands."""
        return self._matcher(row).is_accepting()

    def _matcher(self, row: int) -> LLMatcher:
        if row not in self.rows:
            self.rows[row] = self.first.deep_copy()
        return self.rows[row]


def token_bytes(tokenizer: Tokenizer) -> list[bytes]:
    """What each token adds to a text, in bytes; only for tokenizers that put tokens together as they are."""
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
        raise DataError("D001", f"a tokenizer that puts words together by rules ({names}) cannot follow a pattern")
    return spelled
