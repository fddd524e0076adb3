"""Proofs about generated sequences: whichever path wrote them, each token is the one that the model's logits choose.

Every path is judged by the same rule: how far the chosen token is from the best one, or from the one that was drawn,
by logits that are recomputed from the first token in float64. A tie that rounding decides is no mistake.
Letters: T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headway.generate import fast
from headway.generate.decode import decode
from headway.generate.engine import Engine, Request
from headway.generate.prefix import Prefix
from headway.generate.protocol import Decoder, device_of
from headway.generate.sampling import Sampling, uniform
from headway.generate.score import score
from headway.generate.speculative import speculate
from headway.inspection.checkrows import Row, gap
from headway.inspection.checksubject import NEW, Subject, kernels
from headway.model.model import Model

GREEDY = Sampling(temperature=0.0, max_tokens=NEW)
SETTINGS = (
    GREEDY,
    Sampling(temperature=0.9, seed=3, max_tokens=NEW),
    replace(GREEDY, repetition=1.5),
    Sampling(temperature=1.3, seed=4, repetition=1.2, max_tokens=NEW - 3),
)
"""How the sequences of a batch are chosen, each in its own way."""
OUTGROWN = 256
"""Tokens of the largest context that is filled up for a proof."""


def decoding_rows(subject: Subject) -> Iterator[Row]:
    """Each proof in turn."""
    judge = _Judge(subject)
    yield fast_decoder(subject)
    yield judge.decoded()
    yield judge.engine()
    yield judge.prefix()
    yield judge.speculative()
    yield scored(subject)
    yield judge.outgrown()


NAMES = (
    *("fast decoder = step", "decoded = recomputed", "engine = alone", "prefix cache = fresh", "speculative = plain"),
    *("scored = recomputed", "outgrown = last half"),
)


def fast_decoder(subject: Subject) -> Row:
    """Logits of the fast decoder, for one sequence and for several, prompts read whole and in parts."""
    name, model = NAMES[0], subject.model
    with kernels():
        if not fast.fits(model, len(subject.prompts)):
            return Row(name, None, note=f"not used: {why_not(model)}")
        worst = max(_fast_gap(subject, subject.prompts[:1]), _fast_gap(subject, subject.prompts))
    small = "" if fast.fits(model, 1) else "not used: the model is small, its kernels are tried all the same"
    return Row(name, worst, subject.limit, subject.note or small)


def _fast_gap(subject: Subject, prompts: Sequence[Sequence[int]]) -> float:
    """Read all but two tokens of each prompt, then the rest, then a few tokens one at a time."""
    model, rows = subject.model, range(len(prompts))
    memory = model.start(batch=len(prompts), capacity=max(map(len, prompts)) + NEW + 1)
    decoder = fast.make(model, memory.keys, memory.values)
    dice = torch.Generator().manual_seed(5)
    more = torch.randint(subject.vocab, (len(prompts), NEW - 1), generator=dice)
    wanted = [subject.logits([*p, *m]) for p, m in zip(prompts, more.tolist(), strict=True)]
    first = [max(1, len(p) - 2) for p in prompts]
    found = decoder.read({i: (0, prompts[i][: first[i]]) for i in rows})
    worst = max(gap(found[i], wanted[i][first[i] - 1]) for i in rows)
    rest = {i: (first[i], prompts[i][first[i] :]) for i in rows if len(prompts[i]) > first[i]}
    if rest:
        found = decoder.read(rest)
        worst = max(worst, *(gap(found[place], wanted[i][len(prompts[i]) - 1]) for place, i in enumerate(rest)))
    decoder.end.copy_(torch.tensor([len(p) for p in prompts]))
    for step in range(more.shape[1]):
        decoder.ids.copy_(more[:, step])
        found = decoder.step(rows)
        right = [wanted[i][len(prompts[i]) + step] for i in rows]
        worst = max(worst, *(gap(found[i], right[i]) for i in rows))
        worst = max(worst, *(float(right[i].max() - right[i][int(decoder.best[i])]) for i in rows))
    return worst


def why_not(model: Model) -> str:
    """Why a model has no fast decoder, as far as its config says it."""
    stack, dtype = model.config.decoder, next(model.parameters()).dtype
    if not isinstance(model, Model):
        return "the kernels are for transformers"
    if model.config.encoder is not None:
        return "it is for decoders alone"
    assert stack is not None
    odd = ("relative", "alibi", "sparse", "window", "layer_scale")
    if found := [field for field in odd if getattr(stack, field)]:
        return f"the kernels know no {found[0]}"
    wanted = (torch.float32,) if device_of(model).type == "cpu" else (torch.bfloat16, torch.float16)
    if dtype not in wanted:
        return f"the kernels are for {' and '.join(str(d).removeprefix('torch.') for d in wanted)}"
    return "no kernels for this build, or on this machine"


class _Judge:
    """Sequences written by one path or another, and how wrong they are."""

    def __init__(self, subject: Subject) -> None:
        self.subject, self.prompts = subject, subject.prompts
        self.eos = self._ends()
        self.model = subject.stops_at([self.eos])

    def _ends(self) -> int:
        """A token that some sequences come to, but not at once: one that ends them shows that it does."""
        text, seen = list(self.prompts[0]), []
        for _ in range(NEW - 2):
            token = int(self.subject.logits(text, 0)[-1].argmax())
            text.append(token)
            seen.append(token)
        return max(seen, key=seen.index)

    def ways(self) -> Iterator[Any]:
        """The path that the model takes; and the one through kernels, where size alone keeps it from that."""
        yield nullcontext()
        with kernels():
            quick = fast.fits(self.model, len(self.prompts))
        if quick and not fast.fits(self.model, len(self.prompts)):
            yield kernels()

    def row(self, name: str, worst: float) -> Row:
        return Row(name, worst, self.subject.limit, self.subject.note)

    def skipped(self, name: str) -> Row | None:
        if isinstance(self.model, Model) and self.model.config.encoder is None:
            return None
        return Row(
            name, None, note="it is for decoders alone" if self.model.config.encoder else "it is for transformers"
        )

    def wrong(self, prompt: Sequence[int], new: Sequence[int], how: Sampling, place: int = 0) -> float:
        """How far the tokens are from those that logits and settings choose; infinite where they end wrongly."""
        ended = bool(new) and new[-1] == self.eos
        if (
            self.eos in new[:-1]
            or (not ended and len(new) != how.max_tokens)
            or not all(0 <= t < self.subject.vocab for t in new)
        ):
            return math.inf
        logits = self.subject.logits([*prompt, *new[:-1]], place)[len(prompt) - 1 :]
        texts = ([*prompt, *new[:n]] for n in range(len(new)))
        return max(missed(*each, how, n) for n, each in enumerate(zip(logits, texts, new, strict=True)))

    def decoded(self) -> Row:
        """Many sequences at once, with settings of their own."""
        worst, rows = 0.0, range(len(self.prompts))
        for way in self.ways():
            with way:
                found: list[list[int]] = [[] for _ in rows]
                for piece in decode(self.model, self.prompts, SETTINGS, source=self.subject.source(rows)):
                    found[piece.row] += [] if piece.token is None else [piece.token]
            worst = max(worst, *(self.wrong(self.prompts[i], found[i], SETTINGS[i], i) for i in rows))
        return self.row(NAMES[1], worst)

    def engine(self) -> Row:
        """Requests that come while others are written, wait for a slot, are called off, and begin like others."""
        if skipped := self.skipped(NAMES[2]):
            return skipped
        worst, orders = 0.0, (0, 1, 3, 2, 1, 0)
        for way in self.ways():
            with way:
                capacity = max(map(len, self.prompts)) + NEW
                engine = Engine(self.model, _Mute(), slots=3, capacity=capacity, chunk=5)
                tickets = []
                for n, i in enumerate(orders):
                    tickets.append(engine.submit(Request(tuple(self.prompts[i]), SETTINGS[(i + n) % 4])))
                    engine.step()
                    if n == 2:
                        engine.submit(Request(tuple(self.prompts[2]), GREEDY)).cancel()
                while engine.step():
                    pass
            for n, (i, ticket) in enumerate(zip(orders, tickets, strict=True)):
                new = [event.token for event in ticket if event.token is not None]
                worst = max(worst, self.wrong(self.prompts[i], new, SETTINGS[(i + n) % 4]))
        return self.row(NAMES[2], worst)

    def prefix(self) -> Row:
        """Sequences that begin like the one before, that go back, and that begin anew."""
        if skipped := self.skipped(NAMES[3]):
            return skipped
        worst, (a, b, _, like_b) = 0.0, self.prompts
        held = Prefix(self.subject.model)
        for text in (b, like_b, b[:3], a, [*a, *b[:4]], b):
            worst = max(worst, gap(held.lm(held.read(text)[0, -1]), self.subject.logits(text)[-1]))
        for way in self.ways():
            with way:
                held = Prefix(self.model)
                for text in (b, like_b, b[:-1], [*a, 1], [*a, 2]):
                    worst = max(worst, self.wrong(text, tokens_of(held, text, GREEDY), GREEDY))
        return self.row(NAMES[3], worst)

    def speculative(self) -> Row:
        """Guesses of the model itself, which are right, and of one that knows other tokens best."""
        if skipped := self.skipped(NAMES[4]):
            return skipped
        worst, other = 0.0, _Contrary(self.model)
        for draft in (self.model, other):
            for how in (GREEDY, SETTINGS[1]):
                new = list(speculate(self.model, draft, self.prompts[1], NEW, how, ahead=3))
                new += [self.eos] if len(new) < NEW else []  # which is not among them
                worst = max(worst, self.wrong(self.prompts[1], new, how))
        return self.row(NAMES[4], worst)

    def outgrown(self) -> Row:
        """A sequence that outgrows the model goes on from its last half."""
        name, room = NAMES[6], self.model.config.max_length
        if room is None or room > OUTGROWN:
            return Row(name, None, note="nothing limits it" if room is None else f"tried up to {OUTGROWN} tokens")
        dice, how = torch.Generator().manual_seed(6), replace(GREEDY, stop=())
        text = torch.randint(self.subject.vocab, (room - 3,), generator=dice).tolist()
        worst = 0.0
        for way in self.ways():
            with way:
                new = tokens_of(self.model, text, how, self.subject.source([0]))
            seen, begin = list(text), 0
            for n, token in enumerate(new):
                if len(seen) - begin > room:
                    begin = len(seen) - max(1, room // 2)
                worst = max(worst, missed(self.subject.logits(seen[begin:], 0)[-1], seen, token, how, n))
                seen.append(token)
        return self.row(name, worst if len(new) == NEW else math.inf)


def scored(subject: Subject) -> Row:
    """Log-probabilities of given sequences, some of which begin alike for so long that this is read once."""
    a, b, c, like_b = subject.prompts
    worst = 0.0
    for some in ([0, 1, 2, 3], [1, 3]):
        rows = [subject.prompts[i] for i in some]
        if subject.sources and len(some) == 2:
            continue
        found = score(subject.model, rows, [1] * len(rows), source=subject.source(some))
        for i, row, values in zip(some, rows, found, strict=True):
            logp = subject.logits(row, i)[:-1].log_softmax(-1)
            worst = max(worst, gap(values, logp.gather(1, torch.tensor(row[1:])[:, None])[:, 0]))
    return Row(NAMES[5], worst, 2 * subject.limit, subject.note)


def tokens_of(model: Decoder[Any], prompt: Sequence[int], how: Sampling, source: Any = None) -> list[int]:
    pieces = decode(model, [prompt], how, source=source)
    return [piece.token for piece in pieces if piece.token is not None]


def missed(logits: Tensor, text: Sequence[int], token: int, how: Sampling, place: int) -> float:
    """How far a token is from the choice: below the best logit, or beside the number that was drawn for it."""
    logits = logits.clone()
    for seen in set(text) if how.repetition != 1 else ():
        logits[seen] = logits[seen] * how.repetition if logits[seen] < 0 else logits[seen] / how.repetition
    if how.greedy:
        return float(logits.max() - logits[token])
    assert how.seed is not None
    share, drawn = (logits / how.temperature).softmax(-1), uniform(how.seed, place)
    before = float(share[:token].sum())
    return max(0.0, before - drawn, drawn - before - float(share[token]))


class _Mute:
    """A tokenizer for those who look at tokens only."""

    def decode(self, ids: Sequence[int]) -> str:
        return "." * len(ids)


class _Contrary:
    """A draft whose every guess is the least likely token of the model."""

    def __init__(self, model: Model) -> None:
        self.model, self.config, self.parameters = model, model.config, model.parameters
        self.start, self.step, self.extend, self.reorder = model.start, model.step, model.extend, model.reorder
        self.lm: Callable[[Tensor], Tensor] = lambda x: -model.lm(x)
