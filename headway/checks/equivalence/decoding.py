"""Proofs about generated sequences: whichever path wrote them, each token is the one that the model's logits choose.

Every path is judged by the same rule: how far the chosen token is from the best one, or from the one that was drawn,
by logits that are recomputed from the first token in float64. A tie that rounding decides is no mistake.
Letters: T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headway.checks.equivalence.rows import Row, gap
from headway.checks.equivalence.subject import NEW, Subject, kernels
from headway.generate.accel import dispatch as fast
from headway.generate.decode import decode
from headway.generate.engine.engine import Engine, Request
from headway.generate.engine.request import Ticket
from headway.generate.prefix_cache import Prefix
from headway.generate.protocol import Decoder, Source, device_of
from headway.generate.sampling.sampler import Sampling, uniform
from headway.generate.score import score
from headway.generate.speculative import Speculation
from headway.generate.trace import Choice
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


def fast_decoder(subject: Subject) -> Row:
    """Logits of the fast decoder, for one sequence and for several, prompts read whole and in parts."""
    name, model = "fast decoder = step", subject.model
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


@dataclass(frozen=True)
class Generated:
    """New tokens, and their log-probabilities where a path tells them."""

    tokens: list[int]
    logp: list[float]


def generated(
    model: Decoder[Any],
    prompts: Sequence[Sequence[int]],
    settings: Sequence[Sampling],
    source: Source | None = None,
    *,
    traced: bool = True,
) -> list[Generated]:
    """What `decode` generates; without a trace it may take shorter ways, and tells no probabilities."""
    trace: list[Choice] | None = [] if traced else None
    found = [Generated([], []) for _ in prompts]
    for piece in decode(model, prompts, settings, source=source, trace=trace):
        found[piece.row].tokens.extend([] if piece.token is None else [piece.token])
    for choice in trace or ():
        found[choice.row].logp.append(math.log(choice.chosen.probability or 1e-45))
    return found


def wrong(
    subject: Subject, prompt: Sequence[int], new: Generated, how: Sampling, place: int = 0, eos: int | None = None
) -> float:
    """How far tokens are from those that logits and settings choose, or their log-probabilities from the true ones;
    infinite where a sequence ends wrongly."""
    tokens = new.tokens
    stopped = bool(tokens) and tokens[-1] == eos
    if eos in tokens[:-1] or not (stopped or len(tokens) == how.max_tokens) or max(tokens) >= subject.vocab:
        return math.inf
    logits = subject.logits([*prompt, *tokens[:-1]], place)[len(prompt) - 1 :]
    worst = 0.0
    for n, token in enumerate(tokens):
        worst = max(worst, missed(logits[n], [*prompt, *tokens[:n]], token, how, n))
    right = logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[: len(new.logp), 0]
    return max(worst, gap(torch.tensor(new.logp), right) / 2)  # two logits make a log-probability


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


class Judge:
    """Sequences generated by one path or another, and how wrong they are."""

    def __init__(self, subject: Subject) -> None:
        self.subject, self.prompts = subject, subject.prompts
        self.eos = self._ends()
        self.model = subject.stops_at([self.eos])

    def _ends(self) -> int:
        """A token that a sequence comes to, as late as may be: it will end some sequences and not others."""
        new: list[int] = []
        for _ in range(NEW - 2):
            new.append(int(self.subject.logits([*self.prompts[0], *new])[-1].argmax()))
        return max(new, key=new.index)

    def ways(self) -> list[bool]:
        """Whether to use kernels at any size: no, and yes where size alone keeps the model from them."""
        usual = fast.fits(self.model, len(self.prompts))
        with kernels():
            return [False, True] if fast.fits(self.model, len(self.prompts)) and not usual else [False]

    def wrong(self, prompt: Sequence[int], new: Generated, how: Sampling, place: int = 0) -> float:
        return wrong(self.subject, prompt, new, how, place, self.eos)

    def row(self, name: str, worst: float) -> Row:
        return Row(name, worst, self.subject.limit, self.subject.note)

    def skipped(self, name: str) -> Row | None:
        if not isinstance(self.model, Model):
            return Row(name, None, note="it is for transformers")
        return None if self.model.config.encoder is None else Row(name, None, note="it is for decoders alone")

    def decoded(self) -> Row:
        """Many sequences at once, with settings of their own and all greedy; with a trace, and without."""
        worst, source = 0.0, self.subject.source(range(len(self.prompts)))
        for quick in self.ways():
            for settings, traced in ((SETTINGS, True), (SETTINGS, False), ((GREEDY,) * 4, False)):
                with kernels(quick):
                    found = generated(self.model, self.prompts, settings, source, traced=traced)
                for i, each in enumerate(zip(self.prompts, found, settings, strict=True)):
                    worst = max(worst, self.wrong(*each, i))
        return self.row("decoded = recomputed", worst)

    def engine(self) -> Row:
        """Requests with settings of their own and all greedy; with their probabilities, and without."""
        if skipped := self.skipped("engine = alone"):
            return skipped
        worst = 0.0
        for quick in self.ways():
            for settings, likely in ((SETTINGS, True), ((GREEDY,) * 4, False)):
                with kernels(quick):
                    served = self._served(settings, likely)
                for ticket in served:
                    events = [event for event in ticket if event.token is not None]
                    logp = [event.log_probability for event in events if event.log_probability is not None]
                    new = Generated([event.token for event in events if event.token is not None], logp)
                    worst = max(worst, self.wrong(ticket.request.prompt, new, ticket.request.sampling))
        return self.row("engine = alone", worst)

    def _served(self, settings: Sequence[Sampling], likely: bool) -> list[Ticket]:
        """Requests that come while others are answered, wait for a slot, are called off, and begin like others."""
        engine = Engine(self.model, _Mute(), slots=3, capacity=max(map(len, self.prompts)) + NEW, chunk=5)
        tickets = []
        for n, i in enumerate((0, 1, 3, 2, 1, 0)):
            tickets.append(engine.submit(Request(tuple(self.prompts[i]), settings[(i + n) % 4], likely=likely)))
            engine.step()
            if n == 2:
                engine.submit(Request(tuple(self.prompts[2]), GREEDY, likely=likely)).cancel()
        while engine.step():
            pass
        return tickets

    def prefix(self) -> Row:
        """Sequences that begin like the one before, that go back, and that begin anew."""
        if skipped := self.skipped("prefix cache = fresh"):
            return skipped
        worst, (a, b, _, like_b) = 0.0, self.prompts
        for quick in self.ways():
            held = Prefix(self.model)
            for text in (b, like_b, b[:-1], [*a, 1], [*a, 2], b[:3]):
                with kernels(quick):
                    (new,) = generated(held, [text], [GREEDY])
                worst = max(worst, self.wrong(text, new, GREEDY))
        return self.row("prefix cache = fresh", worst)

    def speculative(self) -> Row:
        """With guesses of the model itself, which are right, and with guesses that are all wrong."""
        if skipped := self.skipped("speculative = plain"):
            return skipped
        worst, prompt = 0.0, self.prompts[1]
        for draft in (self.model, _Contrary(self.model)):
            for how in SETTINGS[:2]:
                quick = Speculation(Prefix(self.model), Prefix(draft), how, ahead=3)
                worst = max(worst, self.wrong(prompt, generated(quick, [prompt], [how])[0], how))
        return self.row("speculative = plain", worst)

    def outgrown(self) -> Row:
        """A sequence that outgrows the model goes on from its last half."""
        name, room = "outgrown = last half", self.model.config.max_length
        if room is None or room > OUTGROWN:
            return Row(name, None, note="nothing limits it" if room is None else f"tried up to {OUTGROWN} tokens")
        dice, how = torch.Generator().manual_seed(6), replace(GREEDY, stop=())
        text = torch.randint(self.subject.vocab, (room - 3,), generator=dice).tolist()
        worst = 0.0
        for quick in self.ways():
            with kernels(quick):
                (new,) = generated(self.model, [text], [how], self.subject.source([0]))
            begin, seen = 0, list(text)
            for n in range(len(new.tokens)):  # what is seen changes: each token is judged alone
                if len(seen) - begin > room:
                    begin = len(seen) - max(1, room // 2)
                one = Generated(new.tokens[n : n + 1], new.logp[n : n + 1])
                worst = max(worst, wrong(self.subject, seen[begin:], one, replace(how, max_tokens=1)))
                seen += one.tokens
        return self.row(name, worst if len(new.tokens) == NEW else math.inf)


def scored(subject: Subject) -> Row:
    """Log-probabilities of given sequences; where two begin alike for long, that is read once."""
    worst, every = 0.0, list(range(len(subject.prompts)))
    for some in (every, [1, 3]) if not subject.sources else (every,):
        rows = [subject.prompts[i] for i in some]
        found = score(subject.model, rows, [1] * len(rows), source=subject.source(some))
        for i, row, values in zip(some, rows, found, strict=True):
            logp = subject.logits(row, i)[:-1].log_softmax(-1)
            worst = max(worst, gap(values, logp.gather(1, torch.tensor(row[1:])[:, None])[:, 0]) / 2)
    return Row("scored = recomputed", worst, subject.limit, subject.note)


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


CHECKS: dict[str, Callable[[Judge], Row]] = {
    "fast decoder = step": lambda judge: fast_decoder(judge.subject),
    "decoded = recomputed": Judge.decoded,
    "engine = alone": Judge.engine,
    "prefix cache = fresh": Judge.prefix,
    "speculative = plain": Judge.speculative,
    "scored = recomputed": lambda judge: scored(judge.subject),
    "outgrown = last half": Judge.outgrown,
}
"""All of them, by the names of their rows."""
