"""Texts turned into others by an encoder–decoder: translations, summaries; and which word came from which.

Letters: H heads, T tokens written, S tokens read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.config.networks.kinds import AnyConfig
from headway.config.recipe import DataConfig, ShapeConfig
from headway.data.batching.padding import Examples, truncate
from headway.data.datasets.next_sentence import SENTENCE_END, sentences
from headway.data.tokenizers.tokenizer import TARGET_FILE, Encoded, Tokenizer
from headway.errors import DataError
from headway.generate.beam.search import Beam, Hypothesis, beam_search
from headway.generate.protocol import Source
from headway.hub.generation_config import read_generation
from headway.model.model import Model, evaluating
from headway.tasks.backbone import limit_of
from headway.tasks.recipe import Recipe
from headway.tasks.seq2seq.task import OutputSettings, Settings

READ_TOKENS = {"cpu": 1 << 13}
"""Tokens of sources, times the beams, that are turned at one time; elsewhere there is more room."""
ROOM = 1 << 17
LONGEST = 512
"""Tokens of a text, where neither a run nor a folder says."""


@dataclass(frozen=True)
class Translation:
    """What became of a text."""

    text: str
    score: float
    """Of the beam search; the mean over sentences that were turned one by one."""
    parts: tuple[tuple[str, tuple[int, ...]], ...]
    """Each sentence that was read, and the tokens that it became."""

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, "score": self.score}


@dataclass(frozen=True)
class Alignment:
    """Words of a text and of what it became, and for each of these the one that was looked at most."""

    source: list[str]
    target: list[str]
    links: list[tuple[int, int, float]]
    """(word written, word read, share of the attention)."""


def beam_for(recipe: Recipe) -> Beam:
    """How a recipe has its model search; tokens that its base has to begin or end with, or never writes, stay so."""
    config, base = recipe.settings, Path(recipe.model.from_)
    max_new_tokens = config.max_new_tokens or recipe.data.length
    rules = read_generation(base).rules if recipe.model.from_ and base.is_dir() else {}
    return Beam(
        width=config.beam,
        length_penalty=config.length_penalty,
        max_tokens=max_new_tokens,
        min_tokens=config.min_new_tokens,
        no_repeat=config.no_repeat_ngram_size,
        **rules,
    )


def recipe_of(
    model: Model,
    folder: Path | None,
    recipe: Recipe | None = None,
    task: str = "seq2seq",
    settings: type[OutputSettings] = Settings,
) -> Recipe:
    """How a model is used: as it was trained, or as its folder says."""
    if recipe is not None and recipe.task == task:
        return recipe
    said = read_generation(folder)
    length = source_limit(model, None) or LONGEST
    max_new_tokens = min(said.longest or LONGEST, model.config.max_length or LONGEST)
    config = settings(
        beam=said.beam or 1,  # as `transformers` does where a folder says nothing
        length_penalty=OutputSettings.length_penalty if said.length_penalty is None else said.length_penalty,
        max_new_tokens=max_new_tokens,
        min_new_tokens=said.shortest or 0,
        no_repeat_ngram_size=said.no_repeat or 0,
    )
    shape = ShapeConfig(from_="" if folder is None else str(folder))
    return Recipe(task=task, data=DataConfig(length=length), model=shape, settings=config)


def translate(
    model: Model, tokenizer: Tokenizer, texts: Sequence[str], recipe: Recipe, beam: Beam | None = None
) -> list[list[Translation]]:
    """The best that each text becomes, `beam.n_best` of them; batches are by length, the same as one by one."""
    check_model(model, tokenizer)
    beam, config = beam or beam_for(recipe), recipe.settings
    limit = source_limit(model, recipe.data.length)
    split = [_pieces(text, tokenizer, limit, config) for text in texts]
    flat = [piece for pieces, _ in split for piece in pieces]
    rows = iter(_search(model, tokenizer, [config.prefix + piece for piece in flat], limit, beam))
    return [_joined(tokenizer, pieces, gaps, [next(rows) for _ in pieces]) for pieces, gaps in split]


def check_model(model: Model, tokenizer: Tokenizer) -> None:
    config = model.config
    if config.kind != "encoder-decoder" or config.lm is None or getattr(config.source, "kind", "") != "tokens":
        raise DataError("D001", "this model does not turn one text into another", "train one: headway train translate")
    check_vocabularies(config, tokenizer)


def check_vocabularies(config: AnyConfig, tokenizer: Tokenizer) -> None:
    """Ids of one vocabulary read as those of another raise no error: they make a good model write nonsense."""
    read, written = getattr(config.source, "vocab", 0), getattr(config.target, "vocab", 0)
    if read != written and tokenizer.target is tokenizer:
        message = f"the model reads {read:,} tokens and writes {written:,} others, and its folder has one tokenizer"
        raise DataError(
            "D001", message, f"the tokenizer of what it writes belongs beside the other one, as {TARGET_FILE}"
        )


def source_limit(model: Model, length: int | None) -> int | None:
    """Tokens that the encoder reads of a text."""
    front = model.config.source
    kind = getattr(front, "positions", None)
    room = kind.length if kind is not None and kind.kind == "learned" else None
    limit = limit_of(model, length)
    return limit if room is None else room if limit is None else min(limit, room)


def read_sources(tokenizer: Tokenizer, texts: Sequence[str], limit: int | None) -> Examples:
    """Texts as the encoder reads them, with the tokens that the tokenizer puts around."""
    encoded = tokenizer.encode_batch(texts)
    for number, text in enumerate(encoded, start=1):
        if not text.ids:
            raise DataError("D001", f"text {number} has no token that the tokenizer knows")
    rows = [truncate(text, limit)[0] for text in encoded]
    return Examples(rows, [[0] * len(row) for row in rows], whole=[len(text.ids) for text in encoded])


def _search(
    model: Model, tokenizer: Tokenizer, texts: Sequence[str], limit: int | None, beam: Beam
) -> list[list[Hypothesis]]:
    if not texts:
        return []
    device = next(model.parameters()).device
    examples = read_sources(tokenizer, texts, limit)
    with evaluating(model):
        found: list[list[Hypothesis]] = [[] for _ in texts]
        with torch.autocast(device.type, enabled=False):  # close calls should not turn on what else is in the batch
            for rows in examples.batches(READ_TOKENS.get(device.type, ROOM) // beam.width):
                ids, attention_mask, _ = examples.read(rows)
                source = Source(ids.to(device), attention_mask.to(device))
                for row, hypotheses in zip(rows, beam_search(model, beam, source=source), strict=True):
                    found[row] = hypotheses
    return found


def _pieces(text: str, tokenizer: Tokenizer, limit: int | None, config: Settings) -> tuple[list[str], list[str]]:
    """A text, or its sentences, and what stood after each of them."""
    if not text.strip():
        raise DataError("D001", "a text is empty")
    if config.split == "never" or (config.split == "long" and not _too_long(text, tokenizer, limit, config)):
        return [text], [""]
    pieces, gaps, at = [], [], 0
    for end in SENTENCE_END.finditer(text):
        pieces.append(text[at : end.start()])
        gaps.append(end.group())
        at = end.end()
    pieces.append(text[at:])
    kept = [(piece, gap) for piece, gap in zip_longest(pieces, gaps, fillvalue="") if piece.strip()]
    return [piece for piece, _ in kept], [gap for _, gap in kept]


def _too_long(text: str, tokenizer: Tokenizer, limit: int | None, config: Settings) -> bool:
    """For the model to read, or for one that never saw so many sentences at one time."""
    if config.sentences and sum(1 for _ in sentences(text)) > config.sentences:
        return True
    return limit is not None and not _fits(tokenizer, config.prefix + text, limit)


def _fits(tokenizer: Tokenizer, text: str, limit: int) -> bool:
    return len(tokenizer.encode(text).ids) <= limit


def _joined(
    tokenizer: Tokenizer, pieces: Sequence[str], gaps: Sequence[str], found: Sequence[list[Hypothesis]]
) -> list[Translation]:
    """The n-th best of a text is made of the n-th best of its sentences."""
    written = []
    for place in range(max(len(each) for each in found)):
        chosen = [each[min(place, len(each) - 1)] for each in found]
        texts = [tokenizer.target.decode(h.tokens).strip() for h in chosen]
        text = "".join(chain.from_iterable(zip(texts, gaps, strict=True))).strip()
        parts = tuple((piece, tuple(h.tokens)) for piece, h in zip(pieces, chosen, strict=True))
        written.append(Translation(text, math.fsum(h.score for h in chosen) / len(chosen), parts))
    return written


def align(model: Model, tokenizer: Tokenizer, written: Translation, recipe: Recipe) -> Alignment:
    """Words by the cross-attention of the layer before the last, its heads' mean (Garg et al. 2019)."""
    limit, prefix = source_limit(model, recipe.data.length), recipe.settings.prefix
    source, target, links = list[str](), list[str](), list[tuple[int, int, float]]()
    for text, tokens in written.parts:
        words, made = text.split(), tokenizer.target.decode(list(tokens)).split()
        weights = word_weights(model, tokenizer, prefix, text, tokens, limit)
        if weights.numel():
            shares, best = weights.max(1)
            found = zip(best.tolist(), shares.tolist(), strict=True)
            links += [(len(target) + i, len(source) + j, round(share, 4)) for i, (j, share) in enumerate(found)]
        source, target = source + words, target + made
    return Alignment(source, target, links)


@torch.no_grad()
def word_weights(
    model: Model, tokenizer: Tokenizer, prefix: str, text: str, tokens: Sequence[int], limit: int | None
) -> Tensor:
    """(words written, words read): what share of its look at words each written word gave to each."""
    encoded = tokenizer.encode(prefix + text)
    ids = truncate(encoded, limit)[0]
    maps = _cross_weights(model, ids, [model.config.special.start or 0, *tokens[:-1]])
    read = _read_words(encoded, prefix, text)[: len(ids)]
    said = _said_words(tokenizer.target, tokens)
    wide, high = len(text.split()), len(tokenizer.target.decode(list(tokens)).split())
    weights = torch.zeros(high, wide)
    for i, word in enumerate(said):
        for j, other in enumerate(read):
            if word is not None and other is not None:
                weights[word, other] += float(maps[i, j])
    return weights / weights.sum(1, keepdim=True).clamp(min=1e-9)


def _cross_weights(model: Model, ids: Sequence[int], inputs: Sequence[int]) -> Tensor:
    """(T, S) of the layer before the last, where there are two."""
    device = next(model.parameters()).device
    found: list[Tensor] = []

    def hook(name: str, make: Callable[..., Tensor]) -> None:
        if name.endswith("cross.weights"):
            found.append(make())

    model(torch.tensor([list(ids)], device=device), torch.tensor([list(inputs)], device=device), hook=hook)
    if not found:
        raise DataError("D001", "the model knows its source by one vector only: there is nothing to align words by")
    return found[-2:][0][0].float().mean(0).cpu()


def _read_words(encoded: Encoded, prefix: str, text: str) -> list[int | None]:
    """The word of the text that each token read belongs to, a space to what follows; None for what was put around."""
    found: list[int | None] = []
    for (_, end), word in zip(encoded.offsets, encoded.words, strict=True):
        inside = word is not None and end > len(prefix)
        found.append(_last_word(text[: end - len(prefix)], len(text.split())) if inside else None)
    return found


def _said_words(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[int | None]:
    """The word of the text written that each token belongs to; None for its end."""
    special, found = set(tokenizer.special.values()), list[int | None]()
    count = len(tokenizer.decode(list(tokens)).split())
    for i, token in enumerate(tokens):
        found.append(None if token in special else _last_word(tokenizer.decode(list(tokens[: i + 1])), count))
    return found


def _last_word(text: str, count: int) -> int | None:
    """Which of `count` words the beginning of a text ends with, or before; None where it has none."""
    words = len(text.split()) - (not text[-1:].isspace())
    return max(0, min(words, count - 1)) if count else None


def with_best(beam: Beam, count: int) -> Beam:
    """The same search for so many hypotheses; it is as wide as that at least."""
    return replace(beam, n_best=count, width=max(beam.width, count))
