"""Beam search of an encoder–decoder on an NVIDIA GPU, one CUDA graph per step.

The graph chooses the next token of every beam and runs the decoder on it, so the device never waits for the CPU. Beams
that move do not copy keys and values: a table says which row holds each column of a beam. Finished inputs stay in the
batch. Letters: B inputs, W beams, V vocabulary, T and S columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from headway.generate.accel.cuda.graphs import capture_graph
from headway.generate.accel.cuda.ops import power_of_two, through
from headway.generate.accel.cuda.topk import MAX_TOKENS, likeliest
from headway.generate.accel.snapshot import Snapshot
from headway.generate.accel.transfer import copy_to_cpu
from headway.generate.beam.rules import Beam, Group, Hypothesis, Rules, Search, hypotheses
from headway.generate.protocol import Source
from headway.generate.sampling.timestamps import NewTokens, order_timestamps
from headway.model.masks import Layout
from headway.model.model import Transformer

ROUND = 32
"""Columns are rounded up to a multiple of this, and inputs from 64 on to one of 64: fewer shapes to capture."""
LOOK = 4
"""Steps between two checks whether all inputs are done."""
KEPT = 2
"""Captured shapes that are kept per model: each has a KV cache of its own …"""
SHARE = 32
"""… that takes about 1/SHARE of the GPU's memory."""


def suits(search: Search) -> bool:
    """Whether the rules of a search are simple and the beams few enough for the kernels."""
    return (search.simple or search.greedy_by_rules) and search.candidates(search.beam.width) <= MAX_TOKENS


class CudaBeamSearch:
    """Captured graphs and KV cache for one shape: number of inputs, new tokens and source tokens."""

    def __init__(self, model: Transformer, beam: Beam, eos: Tensor, inputs: int, columns: int, source: int) -> None:
        stack = model.config.decoder
        assert stack is not None
        self.stack, self.front, self.lm, self.norm = stack, model.target, model.lm, model.decoder.norm
        self.blocks, self.weights = list(model.decoder.blocks), Snapshot(model)
        like, width = next(model.parameters()), stack.head_width
        rows, layers, groups = inputs * beam.width, range(stack.n_layers), stack.kv_heads
        self.keys, self.values = ([like.new_zeros(rows, groups, columns, width) for _ in layers] for _ in range(2))
        self.memory = [[like.new_zeros(inputs, groups, source, width) for _ in range(2)] for _ in layers]
        self.seen = torch.ones(inputs, source, dtype=torch.bool, device=like.device)
        self.own = torch.arange(rows, dtype=torch.int32, device=like.device)
        self.held = torch.zeros(rows, columns, dtype=torch.int32, device=like.device)
        """(B W, T): the row that holds each column of a beam."""
        self.ids = torch.zeros(rows, dtype=torch.long, device=like.device)
        self.end = torch.zeros(1, dtype=torch.long, device=like.device)
        """The column of the decoder's next input …"""
        self.at = torch.zeros_like(self.end)
        """… and the position of the next new token."""
        self.rules = Rules(beam, eos, torch.ones(inputs, 1, dtype=torch.long, device=like.device))
        self.group = Group.empty(inputs, beam.width, columns, like.device)
        self.allowed = torch.ones(self.lm.vocab, dtype=torch.bool, device=like.device)
        self.begin = torch.tensor(beam.first_banned, dtype=torch.long, device=like.device)
        self.wide = like.new_zeros(rows, self.lm.output.out_features)
        self.logits = self.wide[:, : self.lm.vocab]
        self._forward_graph, _ = capture_graph(self._forward)
        self._step_graph, self._open = capture_graph(self._step)

    def start(self, search: Search, prompts: Sequence[Sequence[int]], memory: Memory) -> None:
        """Begin a search. Inputs beyond the prompts end at once."""
        inputs, width = len(prompts), self.rules.beam.width
        for own, found in zip(self.memory, memory.layers, strict=True):
            for place, tensor in zip(own, found, strict=True):
                place[:inputs, :, : tensor.shape[2]] = tensor
        self.seen[:] = False
        self.seen[:inputs, : memory.seen.shape[1]] = memory.seen
        self.seen[inputs:, 0] = True
        self.rules.limits.fill_(1)[:inputs] = search.limits
        self.allowed.copy_(search.allowed(len(self.allowed)))
        fresh = Group.empty(len(self.seen), width, self.held.shape[1], self.held.device)
        self._store(fresh)
        self.end.zero_()
        self.at.zero_()
        columns = torch.zeros(len(self.seen), len(prompts[0]), dtype=torch.long)
        columns[:inputs] = torch.tensor([list(prompt) for prompt in prompts])
        for column in columns.repeat_interleave(width, 0).unbind(1):
            self.ids.copy_(column)
            self._forward_graph.replay()

    def run(self, steps: int) -> None:
        """Run up to `steps` steps. Inputs that are done do not change any more."""
        before = None
        for step in range(steps):
            self._step_graph.replay()
            if step % LOOK == LOOK - 1:
                if before is not None and not any(before()):
                    return
                before = copy_to_cpu(self._open)

    def _step(self) -> Tensor:
        """Choose the next token of every beam and run the decoder. Returns whether each input is still open (B,)."""
        rules, group = self.rules, self.group
        inputs, width = group.scores.shape
        logits = self._ruled() if rules.beam.renormalise else self.logits
        own, last = likeliest(logits, rules.candidates(width), self.allowed)
        own, last = rules.forced(own.view(inputs, width, -1), last.view(inputs, width, -1), self.at)
        grown = Group(*group.tensors())
        parents, _ = rules.settle(grown, last, own, self.at)
        self._store(grown)
        first = torch.arange(inputs, device=parents.device)[:, None] * width
        self.held.copy_(self.held[(first + parents).flatten()])
        self.ids.copy_(group.tokens.index_select(2, self.at).flatten())
        self.at += 1
        self._forward()
        return group.open.clone()

    def _ruled(self) -> Tensor:
        """Logits (B, V) of a search with one beam, under the rules that may change from step to step."""
        beam, logits = self.rules.beam, self.logits.float().masked_fill(~self.allowed, -torch.inf)
        if len(self.begin):
            at_first = torch.where(self.at == 0, -torch.inf, 0.0).expand(len(logits), len(self.begin))
            logits = logits.index_add(1, self.begin, at_first)
        if beam.timestamps:
            logits = order_timestamps(logits, NewTokens.upto(self.group.tokens[:, 0], self.at), beam.timestamps)
        return logits

    def _store(self, group: Group) -> None:
        for place, tensor in zip(self.group.tensors(), group.tensors(), strict=True):
            place.copy_(tensor)

    def _forward(self) -> Tensor:
        """Run the decoder on `ids`. Returns logits (B W, V)."""
        self.end.clamp_(max=self.held.shape[1] - 1)  # capturing runs more steps than there are columns
        x = self.front(self.ids[:, None], layout=Layout(self.end[:, None], None, 0)).x[:, 0]
        x = through(self.blocks, self.norm, x, self._attend, self._cross_attend)
        self.held.index_copy_(1, self.end, self.own[:, None])
        self.end += 1
        output = self.lm.output
        if output.bias is None:
            torch.mm(x, output.weight.T, out=self.wide)
        else:
            torch.addmm(output.bias, x, output.weight.T, out=self.wide)
        if self.lm.config.scale != 1.0:
            self.wide *= self.lm.config.scale
        return self.logits

    def _attend(self, layer: int, qkv: Tensor) -> Tensor:
        from headway.generate.accel.cuda import beam_kernels

        stack, keys, width = self.stack, self.keys[layer], self.stack.head_width
        rows, groups, columns, _ = keys.shape
        out = torch.empty(rows, stack.n_heads * width, device=qkv.device, dtype=qkv.dtype)
        beam_kernels.attend_beams[(rows, stack.n_heads)](
            qkv, keys, self.values[layer], self.held, self.end, out, columns, stack.scale or width**-0.5,
            G=groups, R=stack.n_heads // groups, D=width, WIDE_D=power_of_two(width), BLOCK=16, num_warps=1,
        )  # fmt: skip
        return out

    def _cross_attend(self, layer: int, queries: Tensor) -> Tensor:
        from headway.generate.accel.cuda import beam_kernels

        stack, (keys, values) = self.stack, self.memory[layer]
        sources, groups, columns, width = keys.shape
        group, beams = stack.n_heads // groups, len(queries) // sources
        out = torch.empty_like(queries)
        beam_kernels.cross_attend[(sources, groups)](
            queries, keys, values, self.seen, out, columns, stack.scale or width**-0.5,
            W=beams, G=groups, R=group, D=width, WIDE_D=max(16, power_of_two(width)),
            WIDE=max(16, power_of_two(beams * group)), BLOCK=32, num_warps=1,
        )  # fmt: skip
        return out


class Memory:
    """Cross-attention's keys and values by layer, and which columns are real. In an empty source all count as real."""

    def __init__(self, model: Transformer, source: Source) -> None:
        read = model.encode(source.inputs, attention_mask=source.attention_mask)
        blocks = list(model.decoder.blocks)
        self.layers: list[tuple[Tensor, Tensor]] = [block.cross.project_kv(read.hidden) for block in blocks]  # type: ignore[union-attr, operator]
        real = torch.ones(read.hidden.shape[:2], dtype=torch.bool, device=read.hidden.device)
        if read.attention_mask is not None:
            real = read.attention_mask != 0
        self.seen = real | ~real.any(1, keepdim=True)


_CACHED: WeakKeyDictionary[Transformer, dict[tuple[object, ...], CudaBeamSearch]] = WeakKeyDictionary()


def forget(model: Transformer) -> None:
    """Free the memory of a model's captured graphs."""
    _CACHED.pop(model, None)
    torch.cuda.empty_cache()


def find(
    model: Transformer, search: Search, prompts: Sequence[Sequence[int]], source: Source
) -> list[list[Hypothesis]]:
    """The best hypotheses of each input. All prompts have the same length."""
    stack, first = model.config.decoder, next(model.parameters())
    assert stack is not None
    widths = 2 * stack.n_layers * stack.kv_heads * stack.head_width * first.element_size()
    most = max(1, cache_budget(first.device) // (widths * search.beam.width * _columns(search.capacity)))
    found = []
    for begin in range(0, len(prompts), most):
        rows = [*range(begin, min(begin + most, len(prompts)))]
        some = copy(search)
        some.take(rows)
        found += _find(model, some, [prompts[i] for i in rows], source.take(rows))
    return found


def cache_budget(device: torch.device) -> int:
    """Bytes for the KV cache of a search. It stays allocated after the search, so it must leave memory for training."""
    return int(torch.cuda.get_device_properties(device).total_memory) // SHARE


def _columns(count: int) -> int:
    return -(-count // ROUND) * ROUND


def _find(
    model: Transformer, search: Search, prompts: Sequence[Sequence[int]], source: Source
) -> list[list[Hypothesis]]:
    memory = Memory(model, source)
    inputs = power_of_two(len(prompts)) if len(prompts) < 64 else -(-len(prompts) // 64) * 64
    columns, read = _columns(search.capacity), _columns(memory.seen.shape[1])
    beam = replace(search.beam, max_tokens=1, n_best=1, banned=())
    key = (beam, inputs, columns, read)
    kept = _CACHED.setdefault(model, {})
    beams = kept.pop(key, None)
    if beams is None or not beams.weights.placed(model):
        while len(kept) >= KEPT:
            del kept[next(iter(kept))]
        beams = CudaBeamSearch(model, beam, search.eos, inputs, columns, read)
    kept[key] = beams  # most recently used last
    beams.start(search, prompts, memory)
    beams.run(search.longest)
    return hypotheses([beams.group.take([*range(len(prompts))])], search.beam.n_best)
