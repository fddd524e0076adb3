"""The state of a beam search: running beams, finished hypotheses, length penalty, and when to stop.

Scores and stopping are those of `transformers`; so is a forced token, which costs nothing.

Letters: B inputs, W beams, N best tokens of each beam, K candidates of an input, V vocabulary, T tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.config.generation import Beam as Beam
from headway.errors import DataError
from headway.generate.accel.cuda.topk import likeliest
from headway.generate.protocol import Decoder, S, Source, device_of
from headway.generate.sampling.logits import last_tokens, top
from headway.generate.sampling.rules import RuleContext, add_biases, apply_rules, penalise_repeats


@dataclass(frozen=True)
class Hypothesis:
    """A finished sequence."""

    tokens: list[int]
    """The tokens after the prompt, the end token included."""
    score: float
    """Its log-probability / length ** length_penalty."""


@dataclass
class Group:
    """Beams of one group for each input: running beams, and the best finished hypotheses."""

    tokens: Tensor
    """(B, W, T)"""
    scores: Tensor
    """(B, W) log-probabilities, -inf for a beam that does not exist (yet)."""
    ended: Tensor
    """(B, W, T), best first."""
    ended_scores: Tensor
    """(B, W), -inf for none."""
    lengths: Tensor
    """(B, W): tokens of each finished hypothesis."""
    open: Tensor
    """(B,): whether a better hypothesis may still be found."""

    @classmethod
    def empty(cls, inputs: int, width: int, length: int, device: torch.device) -> Group:
        scores = torch.full((inputs, width), -torch.inf, device=device)
        tokens = torch.zeros(inputs, width, length, dtype=torch.long, device=device)
        running = scores.clone()
        running[:, 0] = 0.0  # equal beams would find the same candidates
        open_ = torch.ones(inputs, dtype=torch.bool, device=device)
        return cls(tokens, running, tokens.clone(), scores, tokens[:, :, 0].clone(), open_)

    def take(self, rows: list[int]) -> Group:
        return Group(*(tensor[rows] for tensor in self.tensors()))

    def tensors(self) -> list[Tensor]:
        return [getattr(self, name) for name in self.__dataclass_fields__]


class Rules:
    """How beams grow and hypotheses end."""

    def __init__(self, beam: Beam, eos: Tensor, limits: Tensor) -> None:
        """`eos` are the tokens that end a hypothesis, `limits` (B, 1) the most new tokens of each input."""
        self.beam, self.eos, self.limits = beam, eos, limits

    def forced(self, own: Tensor, last: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities and tokens (B, W, N) of the best tokens; of the forced token alone where one is forced."""
        for token, now in ((self.beam.first, at == 0), (self.beam.last, self.limits == at + 1)):
            if token is None:
                continue
            here = now.view(-1, 1, 1)
            certain = torch.full_like(own, -torch.inf)
            certain[:, :, 0] = 0.0
            own, last = torch.where(here, certain, own), torch.where(here, token, last)
        return own, last

    def candidates(self, width: int) -> int:
        """Candidates per input: enough that `width` of them do not end."""
        return max(2, 1 + len(self.eos)) * width

    def settle(
        self, group: Group, last: Tensor, own: Tensor, at: Tensor, ranks: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Grow a group by one token. Returns the parents of the beams that go on (B, W), and parents, tokens and
        scores (B, K) of what ended.

        `last` are the best tokens of each beam and `own` their log-probabilities (B, W, N); `ranks` orders them, if not
        by log-probability; `at` (1,) is the position of the new token, which only the device may know.
        """
        width, each = last.shape[1:]
        count = min(self.candidates(width), width * each)
        total = (own + group.scores[:, :, None]).flatten(1)
        ranks, best = (total if ranks is None else (ranks + group.scores[:, :, None]).flatten(1)).topk(count)
        scores, parents, last = total.gather(1, best), best // each, last.flatten(1).gather(1, best)  # B K
        over = torch.isin(last, self.eos) | (self.limits == at + 1)
        tokens = group.tokens.gather(1, _wide(parents, group.tokens)).index_copy_(2, at, last[:, :, None])  # B K T
        long = ((at + 1).double() ** self.beam.length_penalty).to(scores.dtype)
        worth = self._collect(group, tokens, scores / long, over, at)
        going = ranks.masked_fill(over, -torch.inf).topk(width).indices
        group.tokens = tokens.gather(1, _wide(going, tokens))
        group.scores = scores.masked_fill(over, -torch.inf).gather(1, going)
        worst = group.ended_scores.amin(1)
        if self.beam.early == "never" and self.beam.length_penalty > 0:
            long = (self.limits[:, 0].double() ** self.beam.length_penalty).to(scores.dtype)
        ahead = group.scores.amax(1) / long > worst
        if self.beam.early is True:
            ahead = ahead & (worst == -torch.inf)
        group.open = group.open & ahead
        return parents.gather(1, going), (parents, last, worth)

    def _collect(self, group: Group, tokens: Tensor, worth: Tensor, over: Tensor, at: Tensor) -> Tensor:
        """Keep the best finished hypotheses. Returns each candidate's score (B, K), -inf if it does not count."""
        width = group.scores.shape[1]
        place = torch.arange(tokens.shape[1], device=tokens.device)
        counts = over & (place < width) & group.open[:, None]  # the other candidates are there to go on from
        worth = worth.masked_fill(~counts, -torch.inf)
        group.ended_scores, best = torch.cat([group.ended_scores, worth], 1).topk(width)
        group.ended = torch.cat([group.ended, tokens], 1).gather(1, _wide(best, tokens))
        group.lengths = torch.cat([group.lengths, (at + 1).expand_as(over)], 1).gather(1, best)
        return worth


class Search(Rules):
    """The search of one batch: the rules, and what differs from input to input."""

    def __init__(
        self,
        model: Decoder[S],
        beam: Beam,
        prompts: list[list[int]],
        source: Source | None = None,
        limits: Sequence[int] | None = None,
    ) -> None:
        device, max_length, eos = device_of(model), model.config.max_length, beam.eos
        longest = max(len(prompt) for prompt in prompts)
        if max_length is not None and longest > max_length:
            raise DataError("D001", f"a prompt has {longest} tokens, the model reads at most {max_length}")
        if eos is None:
            eos = model.config.special.eos_ids
        most = [beam.limit(len(p), beam.max_tokens) for p in prompts]
        if limits is not None:
            most = [min(pair) for pair in zip(most, limits, strict=True)]
        if max_length is not None:
            most = [min(n, max_length + 1 - len(p)) for n, p in zip(most, prompts, strict=True)]
        ends = torch.tensor(eos, dtype=torch.long, device=device)
        super().__init__(beam, ends, torch.tensor(most, device=device)[:, None])
        self.longest, self.capacity = max(most), longest + max(most)
        self.never = torch.tensor([b[0] for b in beam.banned if len(b) == 1], dtype=torch.long, device=device)
        self.banned = [b for b in beam.banned if len(b) > 1]
        self.before = last_tokens(prompts, longest if beam.lookback is None else beam.lookback).to(device)
        self.prompts = torch.tensor([len(prompt) for prompt in prompts], device=device)
        sources = (prompts if source is None else source.ids()) if beam.no_repeat_source else [[]] * len(prompts)
        self.source = last_tokens(sources, max(map(len, sources))).to(device)

    def groups(self) -> list[Group]:
        inputs, width = len(self.limits), self.beam.width // self.beam.groups
        return [Group.empty(inputs, width, self.longest, self.limits.device) for _ in range(self.beam.groups)]

    def take(self, rows: list[int]) -> None:
        self.limits, self.before = self.limits[rows], self.before[rows]
        self.prompts, self.source = self.prompts[rows], self.source[rows]

    @property
    def simple(self) -> bool:
        """Whether the best tokens of each row suffice: no rule needs all logits of a row."""
        beam = self.beam
        return beam.groups == 1 and not (self.banned or beam.renormalise or beam.has_rules("banned", "first", "last"))

    @property
    def greedy_by_rules(self) -> bool:
        """Whether there is one beam, scored under its rules, and each rule looks at no more than the new tokens."""
        beam, known = self.beam, ("banned", "first", "last", "first_banned", "timestamps")
        return beam.width == 1 and beam.renormalise and not (self.banned or beam.has_rules(*known))

    def possible(self, logits: Tensor) -> Tensor:
        """Log-probabilities (B, V) without tokens that are always banned."""
        return logits.float().log_softmax(-1).index_fill_(1, self.never, -torch.inf)

    def greedy(self, logits: Tensor, tokens: Tensor, step: int) -> Tensor:
        """Ranks (B, 1, V) of a search with one beam: there, rules change logits, not log-probabilities."""
        logits = logits.float().index_fill(1, self.never, -torch.inf)
        return self.rules(logits[:, None], tokens, step)

    def allowed(self, vocab: int) -> Tensor:
        """(V,): the tokens that are not always banned."""
        every = torch.ones(vocab, dtype=torch.bool, device=self.never.device)
        return every.index_fill_(0, self.never, False)

    def rules(self, logp: Tensor, tokens: Tensor, step: int) -> Tensor:
        """Apply all rules to log-probabilities (B, W, V); tokens (B, W, T) are the beams'."""
        width = tokens.shape[1]
        before = self.before[:, None].expand(-1, width, -1)
        place = RuleContext(
            history=torch.cat([before, tokens[:, :, :step]], 2).flatten(0, 1),
            source=self.source.repeat_interleave(width, 0),
            steps=torch.full((logp.shape[0] * width,), step, device=logp.device),
            prompts=self.prompts.repeat_interleave(width),
            limits=self.limits[:, 0].repeat_interleave(width),
            ends=self.eos,
        )
        flat = logp.flatten(0, 1)
        for rule in (add_biases, penalise_repeats, apply_rules):
            flat = rule(flat, self.beam, place)
        return (flat.log_softmax(-1) if self.beam.renormalise else flat).view_as(logp)

    def advance(self, groups: list[Group], logits: Tensor, step: int) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
        """One step of all groups. Returns the parents (B, W) of the beams that go on, and what ended in each group.

        Logits are (B W, V), or (B, V) in the first step, when all beams of an input are its prompt.
        """
        inputs, at = len(self.limits), torch.full((1,), step, device=logits.device)
        if self.simple:
            width = self.beam.width
            best = likeliest(logits, self.candidates(width), self.allowed(logits.shape[1]))
            own, last = (each.unflatten(0, (inputs, -1)).expand(-1, width, -1) for each in best)
            own, last = self.forced(own, last, at)
            parents, over = self.settle(groups[0], last, own, at)
            return parents, [over]
        logp = self.possible(logits).unflatten(0, (inputs, -1)).expand(-1, self.beam.width, -1)
        if self.beam.width == 1:
            ranks, last = top(self.greedy(logits, groups[0].tokens, step), 1)  # if it is an end token, the search ends
            own = ranks if self.beam.renormalise else logp.gather(2, last)
            own = own.masked_fill(own == -torch.inf, 0.0)  # a banned token that is forced all the same
            own = own.masked_fill(ranks == -torch.inf, -torch.inf)
            parents, over = self.settle(groups[0], last, own, at, ranks)
            return parents, [over]
        return self._advance(groups, logp, step, at)

    def _advance(
        self, groups: list[Group], logp: Tensor, step: int, at: Tensor
    ) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
        """The same from log-probabilities (B, W, V), one group after the other."""
        inputs, width = logp.shape[0], groups[0].scores.shape[1]
        taken = logp.new_zeros(inputs, logp.shape[2]) if self.beam.diversity else None
        parents, ended = [], []
        for g, group in enumerate(groups):
            here = self.rules(logp[:, g * width : (g + 1) * width], group.tokens, step)
            ranks = here if taken is None else here - self.beam.diversity * taken[:, None]
            ranks, last = top(ranks, min(self.candidates(width), here.shape[2]))
            chosen, over = self.settle(group, last, here.gather(2, last), at, ranks)
            parents.append(chosen + g * width)
            ended.append((over[0] + g * width, *over[1:]))
            if taken is not None:
                taken.scatter_add_(1, group.tokens[:, :, step], (group.scores > -torch.inf).to(taken.dtype))
        return torch.cat(parents, 1), ended


def _wide(index: Tensor, tokens: Tensor) -> Tensor:
    """An index of beams (B, N), expanded to their tokens (B, N, T)."""
    return index[:, :, None].expand(-1, -1, tokens.shape[2])


def hypotheses(groups: Sequence[Group], count: int) -> list[list[Hypothesis]]:
    """The best hypotheses of all groups for each input, without duplicates; those of one group are sorted."""
    found: list[list[Hypothesis]] = [[] for _ in groups[0].open]
    for group in groups:
        most = int(group.lengths.max())
        columns = group.ended[:, :count, :most], group.ended_scores[:, :count], group.lengths[:, :count]
        for row, *ended in zip(found, *(column.tolist() for column in columns), strict=True):
            row += [Hypothesis(tokens[:n], score) for tokens, score, n in zip(*ended, strict=True) if score > -math.inf]
    if not all(found):
        raise DataError("D001", "no text is possible: every token is banned, or the model's logits are not numbers")
    return found if len(groups) == 1 else [_once(row)[:count] for row in found]


def _once(found: list[Hypothesis]) -> list[Hypothesis]:
    """Sorted, best first, without the duplicates that groups may find."""
    texts = {tuple(one.tokens): one for one in sorted(found, key=lambda one: one.score)}
    return sorted(texts.values(), key=lambda one: -one.score)
