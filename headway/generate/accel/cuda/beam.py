"""Beam search of an encoder–decoder on an NVIDIA GPU: to choose the next token of every beam and to read it is one
recorded graph, so the device never waits for the host.

Beams that move take no keys and values along: a table says in which row each column of a text is. Inputs that are done
stay where they are, and cost nothing but their place. Letters: B inputs, W beams, V vocabulary, T and S columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from headway.generate.accel.cuda.graphs import capture_graph, copy_to_cpu
from headway.generate.accel.cuda.ops import power_of_two, through
from headway.generate.accel.cuda.topk import MAX_TOKENS, likeliest
from headway.generate.accel.snapshot import Snapshot
from headway.generate.beam.rules import Beam, Group, Hypothesis, Rules, Search, hypotheses
from headway.generate.protocol import Source
from headway.model.masks import Layout
from headway.model.model import Model

ROUND = 32
"""Columns are rounded up to a multiple of so many, and inputs from 64 on to one of 64: fewer shapes to record."""
LOOK = 4
"""Steps between two looks at whether anything is still to be found."""
KEPT = 2
"""Shapes that a model's recordings are kept of: each has keys and values of its own …"""
SHARE = 32
"""… which take one part in so many of the GPU's memory, or a little more."""


def suits(search: Search) -> bool:
    """Whether the rules of a search are simple, and beams few enough."""
    return search.simple and search.candidates(search.beam.width) <= MAX_TOKENS


class CudaBeamSearch:
    """A search of one shape: so many inputs, and so many columns for what is written and for what is read."""

    def __init__(self, model: Model, beam: Beam, eos: Tensor, inputs: int, columns: int, source: int) -> None:
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
        """(B W, T): the row that has each column of a text."""
        self.ids = torch.zeros(rows, dtype=torch.long, device=like.device)
        self.end = torch.zeros(1, dtype=torch.long, device=like.device)
        """The column of the tokens that are read next …"""
        self.at = torch.zeros_like(self.end)
        """… and the place of those that are chosen next."""
        self.rules = Rules(beam, eos, torch.ones(inputs, 1, dtype=torch.long, device=like.device))
        self.group = Group.empty(inputs, beam.width, columns, like.device)
        self.allowed = torch.ones(self.lm.vocab, dtype=torch.bool, device=like.device)
        self.wide = like.new_zeros(rows, self.lm.output.out_features)
        self.logits = self.wide[:, : self.lm.vocab]
        self._reading, _ = capture_graph(self._read)
        self._choosing, self._open = capture_graph(self._choose)

    def start(self, search: Search, prompts: Sequence[Sequence[int]], memory: Memory) -> None:
        """Begin a search; inputs beyond those that there are end at once."""
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
        self._keep(fresh)
        self.end.zero_()
        self.at.zero_()
        columns = torch.zeros(len(self.seen), len(prompts[0]), dtype=torch.long)
        columns[:inputs] = torch.tensor([list(prompt) for prompt in prompts])
        for column in columns.repeat_interleave(width, 0).unbind(1):
            self.ids.copy_(column)
            self._reading.replay()

    def run(self, steps: int) -> None:
        """Up to so many tokens; who has ended before does not change any more."""
        before = None
        for step in range(steps):
            self._choosing.replay()
            if step % LOOK == LOOK - 1:
                if before is not None and not any(before()):
                    return
                before = copy_to_cpu(self._open)

    def _choose(self) -> Tensor:
        """The next token of every beam, and what follows from it; whether each input is still open (B,)."""
        rules, group = self.rules, self.group
        inputs, width = group.scores.shape
        own, last = likeliest(self.logits, rules.candidates(width), self.allowed)
        own, last = rules.forced(own.view(inputs, width, -1), last.view(inputs, width, -1), self.at)
        grown = Group(*group.tensors())
        parents, _ = rules.settle(grown, last, own, self.at)
        self._keep(grown)
        first = torch.arange(inputs, device=parents.device)[:, None] * width
        self.held.copy_(self.held[(first + parents).flatten()])
        self.ids.copy_(group.tokens.index_select(2, self.at).flatten())
        self.at += 1
        self._read()
        return group.open.clone()

    def _keep(self, group: Group) -> None:
        for place, tensor in zip(self.group.tensors(), group.tensors(), strict=True):
            place.copy_(tensor)

    def _read(self) -> Tensor:
        """Scores (B W, V) after `ids`, which are in their columns then."""
        self.end.clamp_(max=self.held.shape[1] - 1)  # what is only recorded goes on and on
        x = self.front(self.ids[:, None], layout=Layout(self.end[:, None], None, 0)).x[:, 0]
        x = through(self.blocks, self.norm, x, self._look, self._across)
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

    def _look(self, layer: int, qkv: Tensor) -> Tensor:
        from headway.generate.accel.cuda import beam_kernels as beamkernels

        stack, keys, width = self.stack, self.keys[layer], self.stack.head_width
        rows, groups, columns, _ = keys.shape
        out = torch.empty(rows, stack.n_heads * width, device=qkv.device, dtype=qkv.dtype)
        beamkernels.look_back[(rows, stack.n_heads)](
            qkv, keys, self.values[layer], self.held, self.end, out, columns, stack.scale or width**-0.5,
            G=groups, R=stack.n_heads // groups, D=width, WIDE_D=power_of_two(width), BLOCK=16, num_warps=1,
        )  # fmt: skip
        return out

    def _across(self, layer: int, queries: Tensor) -> Tensor:
        from headway.generate.accel.cuda import beam_kernels as beamkernels

        stack, (keys, values) = self.stack, self.memory[layer]
        sources, groups, columns, width = keys.shape
        group, beams = stack.n_heads // groups, len(queries) // sources
        out = torch.empty_like(queries)
        beamkernels.across[(sources, groups)](
            queries, keys, values, self.seen, out, columns, stack.scale or width**-0.5,
            W=beams, G=groups, R=group, D=width, WIDE_D=max(16, power_of_two(width)),
            WIDE=max(16, power_of_two(beams * group)), BLOCK=32, num_warps=1,
        )  # fmt: skip
        return out


class Memory:
    """What the encoder has read: keys and values by layer, and which columns are real; anything in an empty source."""

    def __init__(self, model: Model, source: Source) -> None:
        read = model.encode(source.inputs, attention_mask=source.attention_mask)
        blocks = list(model.decoder.blocks)
        self.layers: list[tuple[Tensor, Tensor]] = [block.cross.project_kv(read.hidden) for block in blocks]  # type: ignore[union-attr, operator]
        real = torch.ones(read.hidden.shape[:2], dtype=torch.bool, device=read.hidden.device)
        if read.attention_mask is not None:
            real = read.attention_mask != 0
        self.seen = real | ~real.any(1, keepdim=True)


_CACHED: WeakKeyDictionary[Model, dict[tuple[object, ...], CudaBeamSearch]] = WeakKeyDictionary()


def forget(model: Model) -> None:
    """Give back the memory of a model's recordings."""
    _CACHED.pop(model, None)
    torch.cuda.empty_cache()


def find(model: Model, search: Search, prompts: Sequence[Sequence[int]], source: Source) -> list[list[Hypothesis]]:
    """The best hypotheses of each input; prompts are of one length."""
    stack, first = model.config.decoder, next(model.parameters())
    assert stack is not None
    widths = 2 * stack.n_layers * stack.kv_heads * stack.head_width * first.element_size()
    most = max(1, room(first.device) // (widths * search.beam.width * _columns(search.capacity)))
    found = []
    for begin in range(0, len(prompts), most):
        rows = [*range(begin, min(begin + most, len(prompts)))]
        some = copy(search)
        some.take(rows)
        found += _find(model, some, [prompts[i] for i in rows], source.take(rows))
    return found


def room(device: torch.device) -> int:
    """Bytes for the keys and values of a search, which stay taken when it is over: training may want the others."""
    return int(torch.cuda.get_device_properties(device).total_memory) // SHARE


def _columns(count: int) -> int:
    return -(-count // ROUND) * ROUND


def _find(model: Model, search: Search, prompts: Sequence[Sequence[int]], source: Source) -> list[list[Hypothesis]]:
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
    kept[key] = beams  # the last is the one used last
    beams.start(search, prompts, memory)
    beams.run(search.longest)
    return hypotheses([beams.group.take([*range(len(prompts))])], search.beam.n_best)
