"""Checks of decoding: on every path, each generated token is the one that the model's logits and the sampler choose.

All paths are judged by one rule: the distance of the chosen token from the best one, or from the one that the random
number selects, by logits recomputed from the first token in float64. A tie that rounding decides is not an error.
Letters: T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headway.checks.equivalence.reference import NEW, Reference, with_kernels
from headway.checks.equivalence.result import Outcome, max_difference, skip
from headway.generate.accel import dispatch as fast
from headway.generate.accel.abilities import CPU_STACK, CUDA_STACK, first_refused
from headway.generate.decode import decode
from headway.generate.engine.engine import Engine, Request
from headway.generate.prefix_cache import PrefixCache
from headway.generate.protocol import Decoder, Source, device_of
from headway.generate.sampling.sampler import Sampling, uniform
from headway.generate.score import score
from headway.generate.speculative import SpeculativeDecoder
from headway.generate.trace import Choice
from headway.model.model import Model, Transformer

GREEDY = Sampling(temperature=0.0, max_tokens=NEW)
SETTINGS = (
    GREEDY,
    Sampling(temperature=0.9, seed=3, max_tokens=NEW),
    replace(GREEDY, repetition=1.5),
    Sampling(temperature=1.3, seed=4, repetition=1.2, max_tokens=NEW - 3),
)
"""Different sampling settings for the sequences of one batch."""
OUTGROWN = 256
"""The largest context, in tokens, that a check fills up."""


def fast_decoder(reference: Reference) -> Outcome:
    """Logits of the accelerated decoder, for one sequence and for several, with prompts prefilled in parts."""
    model = reference.model
    with with_kernels():
        if not fast.accelerates(model, len(reference.prompts)):
            return skip(f"not used: {why_not(model)}")
        worst = max(_fast_gap(reference, reference.prompts[:1]), _fast_gap(reference, reference.prompts))
    small = "" if fast.accelerates(model, 1) else "not used for a model this small, but checked"
    return Outcome(worst, reference.limit, reference.note or small)


def _fast_gap(reference: Reference, prompts: Sequence[Sequence[int]]) -> float:
    """Prefill all but two tokens of each prompt, then the rest, then decode a few tokens one at a time."""
    model, rows = reference.model, range(len(prompts))
    assert isinstance(model, Transformer)
    memory = model.start(batch=len(prompts), capacity=max(map(len, prompts)) + NEW + 1)
    decoder = fast.make_decoder(model, memory.keys, memory.values)
    generator = torch.Generator().manual_seed(5)
    more = torch.randint(reference.vocab, (len(prompts), NEW - 1), generator=generator)
    wanted = [reference.logits([*p, *m]) for p, m in zip(prompts, more.tolist(), strict=True)]
    first = [max(1, len(p) - 2) for p in prompts]
    found = decoder.prefill({i: (0, prompts[i][: first[i]]) for i in rows})
    worst = max(max_difference(found[i], wanted[i][first[i] - 1]) for i in rows)
    rest = {i: (first[i], prompts[i][first[i] :]) for i in rows if len(prompts[i]) > first[i]}
    if rest:
        found = decoder.prefill(rest)
        worst = max(
            worst, *(max_difference(found[place], wanted[i][len(prompts[i]) - 1]) for place, i in enumerate(rest))
        )
    decoder.end.copy_(torch.tensor([len(p) for p in prompts]))
    for step in range(more.shape[1]):
        decoder.ids.copy_(more[:, step])
        found = decoder.step(rows)
        right = [wanted[i][len(prompts[i]) + step] for i in rows]
        worst = max(worst, *(max_difference(found[i], right[i]) for i in rows))
        worst = max(worst, *(float(right[i].max() - right[i][int(decoder.argmax[i])]) for i in rows))
    return worst


def why_not(model: Model) -> str:
    """Why a model has no accelerated decoder, as far as its config shows."""
    stack, dtype = model.config.decoder, next(model.parameters()).dtype
    if not isinstance(model, Transformer):
        return "the kernels are for transformers"
    if model.config.encoder is not None:
        return "only for models without an encoder"
    assert stack is not None
    on_cpu = device_of(model).type == "cpu"
    if (field := first_refused(stack, CPU_STACK if on_cpu else CUDA_STACK)) is not None:
        return f"the kernels do not support {field}"
    wanted = (torch.float32,) if on_cpu else (torch.bfloat16, torch.float16)
    if dtype not in wanted:
        return f"the kernels are for {' and '.join(str(d).removeprefix('torch.') for d in wanted)}"
    return "no kernels for this architecture, or on this machine"


@dataclass(frozen=True)
class Generated:
    """New tokens, and their log-probabilities if the path returns them."""

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
    """Generate with `decode`; without a trace it may take faster paths, and returns no probabilities."""
    trace: list[Choice] | None = [] if traced else None
    found = [Generated([], []) for _ in prompts]
    for piece in decode(model, prompts, settings, source=source, trace=trace):
        found[piece.row].tokens.extend([] if piece.token is None else [piece.token])
    for choice in trace or ():
        found[choice.row].logp.append(math.log(choice.chosen.probability or 1e-45))
    return found


def error_of(
    reference: Reference,
    prompt: Sequence[int],
    new: Generated,
    sampling: Sampling,
    place: int = 0,
    eos: int | None = None,
) -> float:
    """The largest distance of a token from the one that logits and settings choose, or of its log-probability from the
    true one; infinite if the sequence ends at the wrong place."""
    tokens = new.tokens
    stopped = bool(tokens) and tokens[-1] == eos
    if eos in tokens[:-1] or not (stopped or len(tokens) == sampling.max_tokens) or max(tokens) >= reference.vocab:
        return math.inf
    logits = reference.logits([*prompt, *tokens[:-1]], place)[len(prompt) - 1 :]
    worst = 0.0
    for n, token in enumerate(tokens):
        worst = max(worst, token_error(logits[n], [*prompt, *tokens[:n]], token, sampling, n))
    right = logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[: len(new.logp), 0]
    return max(
        worst, max_difference(torch.tensor(new.logp), right) / 2
    )  # a log-probability has the error of two logits


def token_error(logits: Tensor, text: Sequence[int], token: int, sampling: Sampling, place: int) -> float:
    """The distance of a token from the right one: below the best logit, or beside the random number drawn for it."""
    logits = logits.clone()
    for seen in set(text) if sampling.repetition != 1 else ():
        logits[seen] = logits[seen] * sampling.repetition if logits[seen] < 0 else logits[seen] / sampling.repetition
    if sampling.greedy:
        return float(logits.max() - logits[token])
    assert sampling.seed is not None
    share, drawn = (logits / sampling.temperature).softmax(-1), uniform(sampling.seed, place)
    before = float(share[:token].sum())
    return max(0.0, before - drawn, drawn - before - float(share[token]))


class DecodingChecks:
    """Sequences generated on each path, compared with the reference."""

    def __init__(self, reference: Reference) -> None:
        self.reference, self.prompts = reference, reference.prompts
        self.eos = self._ends()
        self.model = reference.stops_at([self.eos])

    def _ends(self) -> int:
        """A token that greedy decoding reaches late. As end-of-sequence token it ends some sequences and not others."""
        new: list[int] = []
        for _ in range(NEW - 2):
            new.append(int(self.reference.logits([*self.prompts[0], *new])[-1].argmax()))
        return max(new, key=new.index)

    def ways(self) -> list[bool]:
        """Values of `use_kernels` to try: kernels are also forced on a model that is only too small for them."""
        usual = fast.accelerates(self.model, len(self.prompts))
        with with_kernels():
            return [False, True] if fast.accelerates(self.model, len(self.prompts)) and not usual else [False]

    def error_of(self, prompt: Sequence[int], new: Generated, sampling: Sampling, place: int = 0) -> float:
        return error_of(self.reference, prompt, new, sampling, place, self.eos)

    def outcome(self, worst: float) -> Outcome:
        return Outcome(worst, self.reference.limit, self.reference.note)

    def skipped(self) -> Outcome | None:
        if not isinstance(self.model, Transformer):
            return skip("only for transformers")
        return None if self.model.config.encoder is None else skip("only without an encoder")

    def decoded(self) -> Outcome:
        """A batch with different settings, and an all-greedy batch; with a trace, and without."""
        worst, source = 0.0, self.reference.source(range(len(self.prompts)))
        for use_kernels in self.ways():
            for settings, traced in ((SETTINGS, True), (SETTINGS, False), ((GREEDY,) * 4, False)):
                with with_kernels(use_kernels):
                    found = generated(self.model, self.prompts, settings, source, traced=traced)
                for i, each in enumerate(zip(self.prompts, found, settings, strict=True)):
                    worst = max(worst, self.error_of(*each, i))
        return self.outcome(worst)

    def engine(self) -> Outcome:
        """Requests with different settings, and all greedy; with log-probabilities, and without."""
        if skipped := self.skipped():
            return skipped
        worst = 0.0
        for use_kernels in self.ways():
            for settings, likely in ((SETTINGS, True), ((GREEDY,) * 4, False)):
                with with_kernels(use_kernels):
                    served = self._served(settings, likely)
                for request in served:
                    events = [event for event in request if event.token is not None]
                    logp = [event.log_probability for event in events if event.log_probability is not None]
                    new = Generated([event.token for event in events if event.token is not None], logp)
                    worst = max(worst, self.error_of(request.prompt, new, request.sampling))
        return self.outcome(worst)

    def _served(self, settings: Sequence[Sampling], likely: bool) -> list[Request]:
        """Requests that arrive during others, wait for a slot, are cancelled, or share a prefix with others."""
        engine = Engine(self.model, _NullTokenizer(), slots=3, capacity=max(map(len, self.prompts)) + NEW, chunk=5)
        requests = []
        for n, i in enumerate((0, 1, 3, 2, 1, 0)):
            requests.append(engine.submit(Request(tuple(self.prompts[i]), settings[(i + n) % 4], likely=likely)))
            engine.step()
            if n == 2:
                engine.submit(Request(tuple(self.prompts[2]), GREEDY, likely=likely)).cancel()
        while engine.step():
            pass
        return requests

    def prefix(self) -> Outcome:
        """Sequences that share a prefix with the one before, shorten it, or share nothing."""
        if skipped := self.skipped():
            return skipped
        worst, (a, b, _, like_b) = 0.0, self.prompts
        for use_kernels in self.ways():
            held = PrefixCache(self.model)
            for text in (b, like_b, b[:-1], [*a, 1], [*a, 2], b[:3]):
                with with_kernels(use_kernels):
                    (new,) = generated(held, [text], [GREEDY])
                worst = max(worst, self.error_of(text, new, GREEDY))
        return self.outcome(worst)

    def speculative(self) -> Outcome:
        """With a draft that is always right (the model itself), and with one that is always wrong."""
        if skipped := self.skipped():
            return skipped
        worst, prompt = 0.0, self.prompts[1]
        for draft in (self.model, _WorstDraft(self.model)):
            for sampling in SETTINGS[:2]:
                use_kernels = SpeculativeDecoder(PrefixCache(self.model), PrefixCache(draft), sampling, ahead=3)
                worst = max(worst, self.error_of(prompt, generated(use_kernels, [prompt], [sampling])[0], sampling))
        return self.outcome(worst)

    def outgrown(self) -> Outcome:
        """A sequence longer than the model's context continues from its last half."""
        room = self.model.config.max_length
        if room is None or room > OUTGROWN:
            return skip("no limit" if room is None else f"checked up to {OUTGROWN} tokens")
        generator, sampling = torch.Generator().manual_seed(6), replace(GREEDY, stop=())
        text = torch.randint(self.reference.vocab, (room - 3,), generator=generator).tolist()
        worst = 0.0
        for use_kernels in self.ways():
            with with_kernels(use_kernels):
                (new,) = generated(self.model, [text], [sampling], self.reference.source([0]))
            begin, seen = 0, list(text)
            for n in range(len(new.tokens)):  # the visible context changes, so each token is judged alone
                if len(seen) - begin > room:
                    begin = len(seen) - max(1, room // 2)
                one = Generated(new.tokens[n : n + 1], new.logp[n : n + 1])
                worst = max(worst, error_of(self.reference, seen[begin:], one, replace(sampling, max_tokens=1)))
                seen += one.tokens
        return self.outcome(worst if len(new.tokens) == NEW else math.inf)


def scored(reference: Reference) -> Outcome:
    """Log-probabilities of given sequences; a long common prefix is computed once."""
    worst, every = 0.0, list(range(len(reference.prompts)))
    for some in (every, [1, 3]) if not reference.sources else (every,):
        rows = [reference.prompts[i] for i in some]
        found = score(reference.model, rows, [1] * len(rows), source=reference.source(some))
        for i, row, values in zip(some, rows, found, strict=True):
            logp = reference.logits(row, i)[:-1].log_softmax(-1)
            worst = max(worst, max_difference(values, logp.gather(1, torch.tensor(row[1:])[:, None])[:, 0]) / 2)
    return Outcome(worst, reference.limit, reference.note)


class _NullTokenizer:
    """A tokenizer for checks that look at tokens only."""

    def decode(self, ids: Sequence[int]) -> str:
        return "." * len(ids)


class _WorstDraft:
    """A draft model that always proposes the least likely token."""

    def __init__(self, model: Model) -> None:
        self.model, self.config, self.parameters = model, model.config, model.parameters
        self.start, self.step, self.extend, self.reorder = model.start, model.step, model.extend, model.reorder
        self.lm: Callable[[Tensor], Tensor] = lambda x: -model.lm(x)
