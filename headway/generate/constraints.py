"""Words that must not and words that must appear in what is written.

A word is held to the ways a tokenizer writes it, at the beginning of a text and after a space. A model that spells
it in other pieces escapes a ban.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest

import torch
from torch import Tensor

from headway.data.tokenizer import Tokenizer
from headway.errors import ConfigError, DataError
from headway.generate.beam import Beam, Hypothesis
from headway.generate.beams import Search
from headway.generate.protocol import Decoder, S, Source, opening, read_first

Spelling = tuple[int, ...]


def spellings(tokenizer: Tokenizer, word: str) -> tuple[Spelling, ...]:
    """The tokens of a word, with and without a space before it."""
    found = {tuple(tokenizer.encode(text, special=False).ids) for text in (word, f" {word}")}
    if found == {()} or not word:
        raise DataError("D001", f"the tokenizer has no token for {word!r}")
    return tuple(sorted(found - {()}))


def banned_words(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[Spelling, ...]:
    """For `Sampling.banned` and `Beam.banned`."""
    return tuple(dict.fromkeys(spelling for word in words for spelling in spellings(tokenizer, word)))


@torch.no_grad()
def search_with(
    model: Decoder[S],
    words: Sequence[Sequence[Spelling]],
    beam: Beam,
    prompt: Sequence[int] | None = None,
    *,
    source: Source | None = None,
) -> list[Hypothesis]:
    """The n best texts, for one input, in which every word appears in one of its spellings.

    Dynamic beam allocation (Post & Vilar 2018). Candidates are the likeliest, the likeliest of each beam, and all
    that bring a word nearer. Beams are dealt out in turn to those with equally many tokens of words: unlikely words
    do not drown, and as the farthest on always go on, all words come if there is room for them.
    """
    begin = opening(model, None if prompt is None else [prompt], source)
    search, wanted = Search(model, beam, begin, source), _Words(words)
    _check(search, wanted)
    state, scores = read_first(model, begin, source, search.capacity)
    beams, ended, eos = [_Text([], 0.0, frozenset(), 0, 0)], list[Hypothesis](), set(search.eos.tolist())
    for step in range(search.longest):
        logp = search.possible(scores)
        going: list[_Text] = []
        for text in _candidates(search, wanted, beams, logp, step):
            if text.tokens[-1] not in eos and step + 1 < search.longest:
                going.append(text)
            elif len(text.met) == len(words):
                ended.append(Hypothesis(text.tokens, text.score / (step + 1) ** beam.length_penalty))
        ended = sorted(ended, key=lambda h: -h.score)[: beam.width]
        beams = _deal(going, beam.width)
        best = max((text.score for text in beams), default=-math.inf) / (step + 1) ** beam.length_penalty
        if not beams or (len(ended) == beam.width and (beam.early is True or best <= ended[-1].score)):
            break
        rows = torch.tensor([text.parent for text in beams], device=logp.device)
        state = model.reorder(state, rows)
        scores = model.step(state, torch.tensor([text.tokens[-1:] for text in beams], device=logp.device))
    if not ended:
        raise DataError("D001", f"no text of {search.longest} tokens or less was found that has all the words")
    return ended[: beam.n_best]


@dataclass(frozen=True)
class _Text:
    """A beam, and which of the words it has."""

    tokens: list[int]
    score: float
    met: frozenset[int]
    bank: int
    """Tokens of words it has, and of the word it is in the middle of."""
    parent: int


class _Words:
    """How far texts are with their words."""

    def __init__(self, words: Sequence[Sequence[Spelling]]) -> None:
        self.words = words
        self.shortest = [min((len(spelling) for spelling in word), default=0) for word in words]
        if not all(self.shortest):
            raise DataError("D001", f"word {self.shortest.index(0)} has no tokens, or none in one of its spellings")

    def after(self, text: _Text, token: int, score: float, parent: int) -> _Text:
        tokens = [*text.tokens, token]
        new = {i for i, word in enumerate(self.words) if any(tuple(tokens[-len(s) :]) == s for s in word)}
        met = text.met | new
        bank = sum(self.shortest[i] for i in met)
        bank += max((self.shortest[i] - len(rest) for i, rest in self._rests(tokens, met)), default=0)
        return _Text(tokens, score, met, bank, parent)

    def next(self, text: _Text) -> set[int]:
        """Tokens that bring a word nearer which the text does not have."""
        return {rest[0] for _, rest in self._rests(text.tokens, text.met)}

    def _rests(self, tokens: list[int], met: frozenset[int]) -> Iterator[tuple[int, Spelling]]:
        """For each spelling of each missing word, what of it is still to come."""
        for i, word in enumerate(self.words):
            for spelling in word if i not in met else ():
                sizes = range(min(len(spelling) - 1, len(tokens)), 0, -1)
                yield i, spelling[next((n for n in sizes if tuple(tokens[-n:]) == spelling[:n]), 0) :]


def _candidates(search: Search, words: _Words, beams: list[_Text], logp: Tensor, step: int) -> Iterator[_Text]:
    """Possible next beams: the likeliest of all and of each, and those that bring a word nearer."""
    vocab, device = logp.shape[1], logp.device
    tokens = torch.tensor([text.tokens for text in beams], dtype=torch.long, device=device)
    logp = search.rules(logp[None], tokens[None], step)[0]
    total = logp + torch.tensor([text.score for text in beams], device=device)[:, None]
    likeliest = total.flatten().topk(min((1 + max(1, len(search.eos))) * search.beam.width, total.numel())).indices
    own = total.argmax(1) + vocab * torch.arange(len(beams), device=device)
    near = torch.tensor([i * vocab + t for i, b in enumerate(beams) for t in words.next(b)], dtype=torch.long)
    places = torch.cat([likeliest, own, near.to(device)])
    found = torch.stack([places.double(), total.flatten()[places].double()], 1).tolist()  # one wait for the device
    for place, score in dict(found).items():
        parent, token = divmod(int(place), vocab)
        if score > -math.inf:
            yield words.after(beams[parent], token, score, parent)


def _deal(texts: list[_Text], width: int) -> list[_Text]:
    """The best of each bank in turn, from those with the most words down."""
    ordered = sorted(texts, key=lambda text: (-text.bank, -text.score))
    banks = [list(group) for _, group in groupby(ordered, key=lambda text: text.bank)]
    rounds = zip_longest(*banks)
    return [text for texts in rounds for text in texts if text is not None][:width]


def _check(search: Search, words: _Words) -> None:
    if search.beam.groups > 1:
        raise ConfigError("C004", f"groups = {search.beam.groups} does not go with words that must appear: use 1")
    need = sum(words.shortest) + (search.beam.first is not None) + (search.beam.last is not None)
    if need > search.longest:
        raise DataError(
            "D001", f"the words take {need} tokens, and {search.longest} may be written", "raise max_tokens"
        )
