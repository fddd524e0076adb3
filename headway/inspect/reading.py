"""Inputs as a model reads them: the arguments of its forward pass, and what stands at each position of each stack."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from headway.config.model import ModelConfig, TokensConfig
from headway.data.prompts import start_token
from headway.data.tokenizers.tokenizer import Encoded, Tokenizer
from headway.errors import DataError
from headway.generate.decode import Sampling, decode
from headway.generate.protocol import Source
from headway.model.model import Model
from headway.tasks.predictor import Loaded

Medium = Literal["text", "image", "sound", "series", "graph", "image with sound"]

WRITTEN = 48
"""The most tokens that an encoder–decoder generates, where nobody says what it should read as its output."""
BLANK = "[MASK]"
"""How a blank may be written, whatever the tokenizer calls it."""


@dataclass(frozen=True, kw_only=True)
class Token:
    """What stands at one position: a token of a text, a patch, a frame, a node."""

    label: str
    """As people read it."""
    id: int | None = None
    special: bool = False
    """Whether it separates or surrounds, and is no part of the input: [CLS], <s>, the class token."""
    span: tuple[int, int] = (0, 0)
    """Its characters in the text; the same numbers twice for what is no part of it."""

    def to_dict(self) -> dict[str, Any]:
        return {"label": self.label, "id": self.id, "special": self.special, "span": list(self.span)}


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Positions that form a picture: patches of an image, or of a spectrogram."""

    rows: int
    columns: int
    leading: int
    """Positions before the first patch."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One input, ready for the model."""

    medium: Medium
    text: str
    """What the input is called: the text itself, or the name of a file."""
    args: tuple[Tensor, ...]
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the forward pass, by name."""
    tokens: Mapping[str, tuple[Token, ...]]
    """By the kind of the stack, or under the empty name for the only one."""
    grids: Mapping[str, Grid] = field(default_factory=dict)
    target: str = ""
    """What the decoder of an encoder–decoder reads."""
    blank: int | None = None
    """The token that stands for a word to be filled in."""
    said: Mapping[str, Any] = field(default_factory=dict)
    """What the model's task says of the input, where that is no text."""

    def of(self, kind: str) -> tuple[Token, ...]:
        return self.tokens.get(kind, self.tokens.get("", ()))


def read_text(loaded: Loaded, text: str, pair: str | None, target: str | None) -> Reading:
    """A text, or a pair of texts, for a model of texts."""
    model, tokenizer, config = loaded.model, loaded.require_tokenizer(), loaded.model.config
    encoded = _encoded(loaded, tokenizer, text, pair)
    ids = encoded.ids or [start_token(config.special)]
    device = next(model.parameters()).device
    x = torch.tensor([ids], device=device)
    tokens = tokens_of(tokenizer, ids, encoded)
    if not isinstance(config, ModelConfig) or config.kind == "decoder":
        return Reading(medium="text", text=text, args=(x,), tokens={"": tokens})
    if config.kind == "encoder":
        segments = isinstance(config.source, TokensConfig) and config.source.segments > 1
        more = {"token_type_ids": torch.tensor([encoded.token_type_ids], device=device)} if segments else {}
        blank = tokenizer.special.get("mask") if config.lm is not None else None
        return Reading(medium="text", text=text, args=(x,), more=more, tokens={"": tokens}, blank=blank)
    return written(loaded, Reading(medium="text", text=text, args=(x,), tokens={"encoder": tokens}), target)


def _encoded(loaded: Loaded, tokenizer: Tokenizer, text: str, pair: str | None) -> Encoded:
    if not text.strip():
        raise DataError("D001", "the text is empty", "give a text of a few words")
    if BLANK in text and "mask" in tokenizer.special:
        text = text.replace(BLANK, tokenizer.pieces([tokenizer.special["mask"]])[0])
    encoded = tokenizer.encode(text, pair)
    limit = loaded.model.config.max_length
    front = loaded.model.config.source
    if isinstance(front, TokensConfig) and front.positions.kind == "learned":
        limit = front.positions.length
    if limit is not None and len(encoded.ids) > limit:
        raise DataError(
            "D001", f"the text has {len(encoded.ids)} tokens, the model reads {limit}", "give a shorter one"
        )
    return encoded


def written(loaded: Loaded, reading: Reading, target: str | None) -> Reading:
    """The same with what the decoder reads: the target, or what the model itself generates, greedily.

    A model with another head than one for tokens reads its input once more, as BART's classifier does.
    """
    model, tokenizer = loaded.model, loaded.require_tokenizer().target
    start = model.config.special.start
    if start is None:
        raise DataError("D001", "the decoder of this model has no start token in the config")
    if model.config.lm is None:
        ids = reading.args[0][0].tolist()
    elif target is not None:
        ids = tokenizer.encode(target).ids
    else:
        ids = _generated(model, reading)
    ends = model.config.special.eos_ids
    ids = ids[:-1] if model.config.lm is not None and ids and ids[-1] in ends else ids
    read = [start, *ids][: model.config.max_length]
    decoder = torch.tensor([read], device=next(model.parameters()).device)
    args, tokens = (reading.args[0], decoder), {**reading.tokens, "decoder": tokens_of(tokenizer, read)}
    shown = tokenizer.decode(ids) if target is None else target
    return Reading(**{**vars(reading), "args": args, "tokens": tokens, "target": shown})


def _generated(model: Model, reading: Reading) -> list[int]:
    """Tokens that the model generates, each the likeliest one."""
    greedy = Sampling(temperature=0.0, max_tokens=WRITTEN)
    pieces = decode(model, None, greedy, source=Source(reading.args[0]))
    return [piece.token for piece in pieces if piece.token is not None]


def tokens_of(tokenizer: Tokenizer, ids: Sequence[int], encoded: Encoded | None = None) -> tuple[Token, ...]:
    """Tokens as people read them."""
    pieces, special = tokenizer.pieces(ids), set(tokenizer.special.values())
    found: list[Token] = []
    for place, (i, piece) in enumerate(zip(ids, pieces, strict=True)):
        surrounds = i in special or (
            encoded is not None and place < len(encoded.texts) and encoded.texts[place] is None
        )
        span = encoded.offsets[place] if encoded is not None and place < len(encoded.offsets) else (0, 0)
        label = piece if surrounds else label_of(tokenizer.decode, i, piece)
        found.append(Token(label=label, id=i, special=surrounds, span=span))
    return tuple(found)


def label_of(decode: Callable[[Sequence[int]], str], i: int, piece: str) -> str:
    """A token as text, with the space that a byte-level or sentencepiece token begins with."""
    text = decode([i])
    if not text or "\N{REPLACEMENT CHARACTER}" in text:
        return piece or f"#{i}"
    return f" {text}" if piece[:1] == "▁" and text[0] != " " else text


def read_input(loaded: Loaded, given: Any, target: str | None = None) -> Reading:
    """An input of any kind, as the model reads it."""
    pair = given if isinstance(given, tuple) and len(given) == 2 and all(isinstance(x, str) for x in given) else None
    text, second = pair or (given, None)
    front = loaded.model.config.source or loaded.model.config.output_front
    if getattr(front, "kind", "") != "tokens":
        raise DataError("D001", f"{loaded.name} does not read texts")
    if not isinstance(text, str):
        raise DataError("D001", f"the input is of type {type(text).__name__}, the model reads texts", 'give "a text"')
    return read_text(loaded, text, second, target)
