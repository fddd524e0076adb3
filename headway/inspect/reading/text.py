"""Texts as a model reads them: tokens of one text or two, and what the decoder of an encoder–decoder reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from headway.config.model import ModelConfig, TokensConfig
from headway.data.prompts import start_token
from headway.data.tokenizers.tokenizer import Encoded, Tokenizer
from headway.errors import DataError
from headway.generate.decode import Sampling, decode
from headway.generate.protocol import Source
from headway.inspect.reading.base import Reading, Token
from headway.model.model import Model
from headway.tasks.predictor import Loaded

WRITTEN = 48
"""The most tokens that an encoder–decoder generates, where nobody says what it should read as its output."""
BLANK = "[MASK]"
"""How a blank may be written, whatever the tokenizer calls it."""


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
    return replace(reading, args=args, tokens=tokens, target=shown)


def _generated(model: Model, reading: Reading) -> list[int]:
    """Tokens that the model generates, each the likeliest one."""
    greedy = Sampling(temperature=0.0, max_tokens=WRITTEN)
    pieces = decode(model, None, greedy, source=Source(reading.args[0], reading.more.get("attention_mask")))
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
