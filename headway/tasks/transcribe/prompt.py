"""What a decoder of speech reads before its first word: language, task, and whether there are timestamps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.config.toml import short
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError, DataError, nearest
from headway.generate.protocol import Source
from headway.hub.generation_config import FILE, copied_settings
from headway.model.model import Model
from headway.tasks.transcribe.languages import NAMES, code_of

SECONDS_PER_TIMESTAMP = 0.02
"""Timestamps are in steps of one position of the encoder: two frames of a hundredth of a second."""
LATEST_FIRST = 50
"""The latest timestamp that a text may begin with, where a folder does not say: one second (Radford et al. 2022)."""
_LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")


@dataclass(frozen=True, kw_only=True)
class SpeechTokens:
    """Tokens of a speech model that are no text; a model trained from scratch has a start and an end alone."""

    start: int
    end: int
    """Ends a text; where there are timestamps, all text tokens come before it in the vocabulary."""
    languages: dict[str, int] = field(default_factory=dict)
    """Code of a language → its token; empty for a model of one language."""
    tasks: dict[str, int] = field(default_factory=dict)
    """transcribe, and translate: into English."""
    no_timestamps: int | None = None
    """The token that says that no timestamps follow. The token after it is the first timestamp."""
    previous: int | None = None
    """Comes before the text of the window before."""
    latest_first: int = LATEST_FIRST
    special: frozenset[int] = frozenset()
    """All tokens that are no text."""
    alignment_heads: tuple[tuple[int, int], ...] = ()
    """Layers and heads of cross-attention that follow the sound; empty: nobody knows."""

    @property
    def first_timestamp(self) -> int | None:
        return None if self.no_timestamps is None else self.no_timestamps + 1

    @property
    def no_speech(self) -> int | None:
        return None if self.no_timestamps is None else self.no_timestamps - 1

    def is_text(self, token: int) -> bool:
        times = self.first_timestamp
        return token not in self.special and (times is None or token < times)

    def begin(self, language: str, *, translate: bool, timestamps: bool) -> list[int]:
        """The tokens that the decoder reads first."""
        found = [self.start]
        if self.languages:
            found.append(self.language_token(language))
        if self.tasks:
            found.append(self.tasks["translate" if translate else "transcribe"])
        if not timestamps and self.no_timestamps is not None:
            found.append(self.no_timestamps)
        return found

    def language_token(self, language: str) -> int:
        code = code_of(language)
        if code not in self.languages:
            named = [NAMES.get(each, each) for each in self.languages]
            near = nearest(language.lower(), [*self.languages, *named])
            listed = ", ".join(sorted(self.languages)) or "one language only"
            raise DataError("D001", f"the model does not know the language {language!r}{near}", f"it knows {listed}")
        return self.languages[code]


def read_speech_tokens(folder: Path | None, tokenizer: Tokenizer, start: int, ends: Sequence[int]) -> SpeechTokens:
    """The tokens of a model folder: as generation_config.json says, and as the vocabulary names them."""
    said = copied_settings(folder)
    vocab = tokenizer.backend.get_vocab(with_added_tokens=True)
    named = {found[1]: token for name, token in vocab.items() if (found := _LANGUAGE.fullmatch(name))}
    languages = {code_of(name): token for name, token in _ids(said, "lang_to_id", named).items()}
    known = {name: vocab[f"<|{name}|>"] for name in ("transcribe", "translate") if f"<|{name}|>" in vocab}
    tasks = _ids(said, "task_to_id", known)
    if said.get("is_multilingual") is False or len(languages) < 2:
        languages, tasks = {}, {}
    added = tokenizer.backend.get_added_tokens_decoder()
    names = {token for token, made in added.items() if made.special or made.content.startswith("<|")}
    special = frozenset(names) | {start, *ends, *tokenizer.special.values()}
    return SpeechTokens(
        start=start,
        end=ends[0],
        languages=languages,
        tasks=tasks,
        no_timestamps=_id(said, "no_timestamps_token_id", vocab.get("<|notimestamps|>")),
        previous=_id(said, "prev_sot_token_id", vocab.get("<|startofprev|>")),
        latest_first=_id(said, "max_initial_timestamp_index", LATEST_FIRST),
        special=special,
        alignment_heads=_heads(said.get("alignment_heads")),
    )


def _ids(said: dict[str, Any], name: str, usual: dict[str, int]) -> dict[str, int]:
    value = said.get(name, usual)
    if not isinstance(value, dict) or not all(type(token) is int for token in value.values()):
        raise ConfigError("C002", f"{FILE}: {name} = {short(value)} should be names and token numbers")
    return value


def _id(said: dict[str, Any], name: str, usual: int | None) -> Any:
    value = said.get(name, usual)
    if value is not None and type(value) is not int:
        raise ConfigError("C002", f"{FILE}: {name} = {short(value)} should be a number")
    return value


def _heads(value: Any) -> tuple[tuple[int, int], ...]:
    rows = value or []
    if not isinstance(rows, list) or not all(
        isinstance(row, list) and [type(i) for i in row] == [int] * 2 for row in rows
    ):
        raise ConfigError("C002", f"{FILE}: alignment_heads = {short(value)} should be pairs of a layer and a head")
    return tuple((layer, head) for layer, head in rows)


@torch.no_grad()
def detect_languages(model: Model, source: Source, tokens: SpeechTokens) -> list[str]:
    """The likeliest language of each window, by the logits after the start token."""
    logits = first_logits(model, source, [[tokens.start]] * len(source.inputs), 0)
    codes = list(tokens.languages)
    ids = torch.tensor([tokens.languages[code] for code in codes], device=logits.device)
    return [codes[place] for place in logits[:, ids].argmax(1).tolist()]


@torch.no_grad()
def silence(model: Model, source: Source, prompts: Sequence[Sequence[int]], tokens: SpeechTokens) -> list[float]:
    """The probability that nobody speaks, for windows whose prompts are of one length: its token's, at the start."""
    assert tokens.no_speech is not None
    at = list(prompts[0]).index(tokens.start)
    return first_logits(model, source, prompts, at).softmax(-1)[:, tokens.no_speech].tolist()


def first_logits(model: Model, source: Source, prompts: Sequence[Sequence[int]], at: int) -> Tensor:
    """Logits (N, V) after the token at a position of prompts of one length."""
    ids = torch.tensor([list(prompt)[: at + 1] for prompt in prompts], device=source.inputs.device)
    logits: Tensor = model.lm(model(source.inputs, ids, attention_mask=source.attention_mask).hidden[:, at])
    return logits.float()


def previous_text(text: str, tokenizer: Tokenizer, tokens: SpeechTokens) -> list[int]:
    """The tokens of a text that is to be read as what was said before."""
    if not text.strip():
        return []
    if tokens.previous is None:
        raise DataError("D001", "the model reads no text before that of a sound", "leave the prompt out")
    found = tokenizer.encode(" " + text.strip(), special=False).ids
    if wrong := [token for token in found if not tokens.is_text(token)]:
        raise DataError("D001", f"the prompt has the special token {tokenizer.pieces(wrong[:1])[0]}", "leave it out")
    return found
