"""Checks of beam search: the logits on each path, and the search against a plain implementation.

The plain search below keeps one beam after the other, without KV cache and batch, and is written to be read. Its rules
are those of `transformers`.
Letters: V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from headway.checks.equivalence.reference import NEW, Reference, with_kernels
from headway.checks.equivalence.result import Outcome, max_difference, skip
from headway.generate.accel.dispatch import beam_decoder
from headway.generate.beam.search import Beam, Hypothesis, beam_search
from headway.generate.protocol import Decoder, prefill
from headway.model.model import Model

Tokens = tuple[int, ...]
WIDTH = 3
MANY = 12
"""Inputs with more beams than the kernels for a CPU take."""
_SEARCH = Beam(width=WIDTH, n_best=WIDTH, max_tokens=NEW, length_penalty=0.0)
SEARCHES = (
    replace(_SEARCH, length_penalty=0.6),
    replace(_SEARCH, length_penalty=2.0),
    replace(_SEARCH, length_penalty=1.0, early=True),
    replace(_SEARCH, min_tokens=3),
)
"""Each has a rule that changes the result; otherwise it would check nothing."""
TRIES = 6
"""Prompts to try until each rule has changed a result that rounding cannot change."""


def readers(reference: Reference) -> Outcome:
    """Logits on each path of a beam search, with beams that are reordered and inputs that finish."""
    worst, tried = 0.0, set[type]([type(reference.model)])
    for inputs in (1, len(reference.prompts), MANY):
        for use_kernels in (False, True):
            with with_kernels(use_kernels):
                reader = beam_decoder(reference.model, inputs, WIDTH)
            if type(reader) not in tried:
                tried.add(type(reader))
                with with_kernels(use_kernels):
                    worst = max(worst, _reader_gap(reference, reader, inputs))
    if len(tried) == 1:
        return skip("not used: beam search runs the model itself")
    return Outcome(worst, reference.limit, reference.note)


def _reader_gap(reference: Reference, reader: Decoder[Any], inputs: int) -> float:
    """Prefill prompts of one length, then reorder the beams and decode a token of each, several times."""
    places = [i % len(reference.prompts) for i in range(inputs)]
    texts = [list(reference.prompts[i][:3]) for i in places]
    generator = torch.Generator().manual_seed(7)
    state, found = prefill(reader, texts, reference.source(places), 3 + NEW)
    worst, width = _compare(reference, found, texts, places), 1
    for step in range(4):
        count = len(texts) // width
        if step == 2 and count > 1:
            count -= 1  # the last input has finished
        parents = torch.randint(width, (count, WIDTH), generator=generator) + torch.arange(count)[:, None] * width
        rows = parents.flatten()
        more = torch.randint(reference.vocab, (len(rows), 1), generator=generator)
        state = reader.reorder(state, rows.to(reference.device))
        found = reader.step(state, more.to(reference.device))
        pairs = list(zip(rows.tolist(), more[:, 0].tolist(), strict=True))
        texts, places, width = [[*texts[r], t] for r, t in pairs], [places[r] for r, _ in pairs], WIDTH
    return max(worst, _compare(reference, found, texts, places))


def _compare(reference: Reference, found: Tensor, texts: Sequence[Sequence[int]], places: Sequence[int]) -> float:
    """Compare up to six rows with the reference."""
    rows = range(0, len(texts), max(1, len(texts) // 6))
    return max(max_difference(found[i], reference.logits(texts[i], places[i])[-1]) for i in rows)


def searches(reference: Reference) -> Outcome:
    """The best sequences and their scores, with several length penalties, when sequences end at different lengths."""
    if reference.low_precision:  # rounding would decide between beams; in float32 it does not
        reference = Reference(reference.exact, note="in float32")
    worst, limit, left = 0.0, NEW * reference.limit, list(SEARCHES)
    for number in range(TRIES if reference.exact is not reference.model else 3):
        plain = ReferenceSearch(reference, number)
        for beam in list(left):
            wanted = plain.search(beam)
            if wanted.margin > 2 * reference.limit and plain.is_informative(beam, wanted):
                worst = max(worst, *(_difference(found, wanted.hypotheses) for found in plain.found(beam)))
                left.remove(beam)
        if not left:
            break
    note = f"{len(left)} of {len(SEARCHES)} searches are too close to call" if left else reference.note
    return Outcome(worst if len(left) < len(SEARCHES) else None, limit, note)


def _difference(found: Sequence[Hypothesis], wanted: Sequence[Hypothesis]) -> float:
    """The largest difference of scores; infinite if the sequences differ."""
    if [h.tokens for h in found] != [h.tokens for h in wanted]:
        return math.inf
    return max(abs(a.score - b.score) for a, b in zip(found, wanted, strict=True))


@dataclass(frozen=True)
class ReferenceResult:
    """The result of the plain search, and the smallest margin of its decisions."""

    hypotheses: list[Hypothesis]
    margin: float


class ReferenceSearch:
    """A plain beam search for one prompt."""

    def __init__(self, reference: Reference, number: int) -> None:
        self.reference, self.place = reference, number % len(reference.prompts)
        generator = torch.Generator().manual_seed(number)
        self.prompts = torch.randint(reference.vocab, (2, 3), generator=generator).tolist()
        """The prompt, and a second one for the same batch."""
        self.known: dict[Tokens, Tensor] = {}
        self.eos: tuple[int, ...] = ()
        self.eos = self._ends()
        self.model: Model = reference.stops_at(self.eos)

    def _ends(self) -> tuple[int, ...]:
        """The second best tokens of the first steps, to end sequences with: some end early, some do not."""
        best: Tokens = ()
        found: list[int] = []
        for _ in range(3):
            first, second = self.logp(best).topk(2).indices.tolist()
            best = (*best, first)
            found.append(second)
        return tuple(sorted({*found} - {*best}))

    def is_informative(self, beam: Beam, wanted: ReferenceResult) -> bool:
        """Whether a rule changes the sequences; a length penalty also if it changes only the scores."""
        tokens = [h.tokens for h in wanted.hypotheses]
        without = replace(beam, early=False, min_tokens=0)
        if without == beam:
            return max(map(len, tokens)) > 1
        return tokens != [h.tokens for h in self.search(without).hypotheses]

    def found(self, beam: Beam) -> Iterator[list[Hypothesis]]:
        """Results of `beam_search`: with the model itself, and with kernels if those are another path."""
        source = self.reference.source([self.place, (self.place + 1) % len(self.reference.prompts)])
        yield beam_search(self.model, beam, self.prompts, source=source)[0]
        with with_kernels():
            other = type(beam_decoder(self.model, 2, beam.width))
        if other is not type(beam_decoder(self.model, 2, beam.width)):
            with with_kernels():
                yield beam_search(self.model, beam, self.prompts, source=source)[0]

    def logp(self, tokens: Tokens) -> Tensor:
        """(V,): log-probabilities of the next token."""
        if tokens not in self.known:
            self.known[tokens] = self.reference.logits([*self.prompts[0], *tokens], self.place)[-1].log_softmax(-1)
        return self.known[tokens]

    def search(self, beam: Beam) -> ReferenceResult:
        """Of the best candidates, finished ones are kept if they are among the first `width`; the first `width` of the
        others continue. The search ends when `width` have finished and no running one beats the worst of them."""
        running: list[tuple[float, Tokens]] = [(0.0, ())]
        ended: list[tuple[float, Tokens]] = []
        margin = math.inf
        for length in range(1, beam.max_tokens + 1):
            candidates, penalty = self._candidates(running, beam, length), length**beam.length_penalty
            over = [tokens[-1] in self.eos or length == beam.max_tokens for _, tokens in candidates]
            running = [each for each, end in zip(candidates, over, strict=True) if not end][: beam.width]
            first = list(zip(candidates, over, strict=True))[: beam.width]
            ended = sorted([*ended, *((s / penalty, t) for (s, t), end in first if end)], reverse=True)
            margin = min(margin, _closest(candidates), _closest(ended))
            ended = ended[: beam.width]
            if not running or (beam.early and len(ended) == beam.width):
                break
            if len(ended) == beam.width:
                ahead = running[0][0] / penalty - ended[-1][0]
                margin = min(margin, abs(ahead))
                if ahead <= 0:
                    break
        best = [Hypothesis(list(tokens), score) for score, tokens in ended[: beam.n_best]]
        return ReferenceResult(best, margin)

    def _candidates(self, running: list[tuple[float, Tokens]], beam: Beam, length: int) -> list[tuple[float, Tokens]]:
        """The best sequences one token longer, best first; enough that `width` of them continue."""
        count, found = max(2, 1 + len(self.eos)) * beam.width, []
        for score, tokens in running:
            logp = self.logp(tokens).clone()
            if length <= beam.min_tokens:
                logp[list(self.eos)] = -torch.inf
            best = logp.topk(min(count + 1, len(logp)))
            found += [(score + p, (*tokens, t)) for p, t in zip(*map(Tensor.tolist, best), strict=True)]
        return sorted(found, reverse=True)[:count]


def _closest(scored: Sequence[tuple[float, Tokens]]) -> float:
    """The smallest difference between neighbouring scores."""
    scores = [score for score, _ in scored if score > -math.inf]
    return min((a - b for a, b in pairwise(scores)), default=math.inf)
