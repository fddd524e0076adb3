"""Checks of a model of stories: batches, padding, sums over words, hops; on random stories of its own words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.checks.equivalence.result import TOLERANCE, Outcome, max_difference, skip
from headway.data.datasets.stories import Story
from headway.joint.memory import MemoryModel, StoryTensors
from headway.model.attention import Hook
from headway.tasks.memory.data import Part, collate, make_part

SIZES = (3, 11, 1, 7)
"""Sentences of the stories: different, so that a batch has padding."""
PADDING = 5


@dataclass
class MemoryChecks:
    """A few random stories; every way to read them must give what each gives alone."""

    model: MemoryModel
    seed: int

    def table(self, compiled: bool) -> Iterator[tuple[str, Callable[[], Outcome]]]:
        """Name and check, in the order of the output."""
        yield "batch = single", self.batching
        yield "padded = unpadded", self.padding
        yield "sentences = words", self.sentences
        yield "hops sum to 1", self.hops

    @cached_property
    def part(self) -> Part:
        generator, source = np.random.default_rng(self.seed), self.model.config.source
        words = np.array(source.words)

        def sentence() -> str:
            return " ".join(generator.choice(words, int(generator.integers(1, source.longest + 1))))

        stories = [Story(tuple(sentence() for _ in range(size)), sentence()) for size in SIZES]
        return make_part(stories, self.model.config)

    def inputs(self, rows: Sequence[int]) -> tuple[Tensor, StoryTensors]:
        device = next(self.model.parameters()).device
        inputs, stories = collate(self.part, np.array(rows), transformer=self.model.config.encoder is not None)
        moved = (None if each is None else each.to(device) for each in stories)
        return inputs.to(device), StoryTensors(*moved)  # type: ignore[arg-type]

    def logits(self, inputs: Tensor, stories: StoryTensors, hook: Hook | None = None) -> Tensor:
        return self.model.label_logits(self.model(inputs, stories=stories, hook=hook))

    @cached_property
    def alone(self) -> list[Tensor]:
        return [self.logits(*self.inputs([row])) for row in range(len(self.part))]

    def outcome(self, worst: float) -> Outcome:
        largest = max(1.0, *(float(each.abs().max()) for each in self.alone))
        return Outcome(worst, TOLERANCE[self.alone[0].dtype] * largest)

    def batching(self) -> Outcome:
        return self.outcome(max_difference(self.logits(*self.inputs(range(len(self.part)))), torch.cat(self.alone)))

    def padding(self) -> Outcome:
        """Memories, words and tokens that are padding change nothing."""
        inputs, stories = self.inputs([0])
        room = min(PADDING, self.model.config.source.memories - stories.memories.shape[1])
        tokens, length = stories.tokens, stories.sentences.shape[1]
        if tokens is not None:  # places in a table that is one word wider
            wider = tokens // length * (length + 1) + tokens % length
            tokens = F.pad(torch.where(tokens < 0, tokens, wider), (0, PADDING), value=-1)
        padded = StoryTensors(F.pad(stories.sentences, (0, 1)), F.pad(stories.memories, (0, room)), tokens)
        if tokens is not None and length == self.model.config.source.longest:
            padded = padded._replace(sentences=stories.sentences, tokens=F.pad(stories.tokens, (0, PADDING), value=-1))  # type: ignore[arg-type]
        return self.outcome(max_difference(self.logits(inputs, padded), self.alone[0]))

    def sentences(self) -> Outcome:
        """The fused sums of words against the definition, word by word."""
        vectors = getattr(self.model, "sentence_vectors", None)
        if vectors is None:
            return skip("a transformer reads words")
        config, table = self.model.config, self.model.words.detach().unflatten(1, (self.model.config.tables, -1))  # type: ignore[operator]
        found = vectors(torch.from_numpy(self.part.sentences).to(table.device))
        expected = torch.zeros_like(found).unflatten(1, (config.tables, -1))
        k = torch.arange(1, config.width + 1, device=table.device, dtype=table.dtype) / config.width
        for place, (rows, count) in enumerate(zip(self.part.sentences, self.part.lengths, strict=True)):
            for j in range(1, count + 1):
                share = (1 - j / count) - k * (1 - 2 * j / count) if config.position_encoding else torch.ones_like(k)
                expected[place] += share * table[rows[j - 1]]
        return self.outcome(max_difference(found, expected.flatten(1)))

    def hops(self) -> Outcome:
        seen: list[Tensor] = []

        def hook(name: str, make: Callable[[], Tensor]) -> None:
            if name.startswith("hops."):
                seen.append(make())

        inputs, stories = self.inputs(range(len(self.part)))
        hooked = self.logits(inputs, stories, hook)
        if not seen:
            return skip("a transformer has no hops")
        linear = getattr(self.model, "linear", None)
        if linear is not None and linear.item() > 0:
            return skip("training ended before hops had a softmax")
        absent = stories.memories == 0
        sums = max(float((weights.sum(1) - 1).abs().max()) for weights in seen)
        outside = max(float(weights[absent].abs().max()) if absent.any() else 0.0 for weights in seen)
        return self.outcome(max(sums, outside, max_difference(hooked, torch.cat(self.alone))))
