"""End-to-end memory network (Sukhbaatar et al. 2015): hops of attention over sentences, each of them one vector.

Letters: B questions, S distinct sentences, L words of a sentence, N memories, E embeddings, M width, A answers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.networks.memory import MemoryConfig
from headway.joint.memory import MemoryModel, StoryTensors
from headway.model.attention import Backend, Hook
from headway.model.model import Output

STD = 0.1
LOWEST = 1e9
"""Of `linear` before the first evaluation: no loss is as high."""


class MemoryNetwork(MemoryModel):
    """All embeddings are one matrix, so that one fused product embeds the sentences of a batch for all hops."""

    def __init__(self, config: MemoryConfig) -> None:
        super().__init__(config)
        tables, width = config.tables, config.width
        self.words = nn.Parameter(torch.empty(config.n_rows, tables * width))
        times = (config.source.memories, tables * width)
        self.times = nn.Parameter(torch.empty(times)) if config.temporal_encoding else None
        shared = config.tying == "layerwise"
        self.between = nn.Linear(width, width, bias=False) if shared else None
        """The linear map from hop to hop of layer-wise tying."""
        self.answers = nn.Parameter(torch.empty(len(config.labels), width)) if shared else None
        self.linear = nn.Parameter(torch.full((1,), LOWEST)) if config.linear_start else None
        """The lowest validation loss so far; 0 from when hops have a softmax. A parameter without a gradient, not a
        buffer: checkpoints hold what trains."""
        if not self.words.is_meta:
            for weight in (self.words, self.times, self.answers, None if self.between is None else self.between.weight):
                if weight is not None:
                    nn.init.normal_(weight, std=STD)
            with torch.no_grad():
                self.words[0] = 0

    def forward(
        self,
        inputs: Tensor,
        targets: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        target_attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        stories: StoryTensors | None = None,
        backend: Backend = "fused",
        hook: Hook | None = None,
    ) -> Output:
        """`inputs` (B,) are the numbers of the questions among the sentences of `stories`."""
        assert stories is not None
        config = self.config
        vectors = self.sentence_vectors(stories.sentences)  # (S, E · M)
        asked = 0 if config.tying == "adjacent" else 2
        state = vectors[inputs].unflatten(1, (config.tables, -1))[:, asked]  # (B, M)
        memory = F.embedding(stories.memories, vectors)
        if self.times is not None:
            memory = memory + self.times[: memory.shape[1]]
        memory = memory.unflatten(2, (config.tables, -1))  # (B, N, E, M)
        absent = stories.memories == 0
        for hop in range(config.n_hops):
            key, value = (hop, hop + 1) if config.tying == "adjacent" else (0, 1)
            scores = (memory[:, :, key] @ state[..., None]).squeeze(2)  # (B, N)
            weights = self.weights(scores, absent)
            if hook is not None:
                hook(f"hops.{hop}.weights", lambda weights=weights: weights)
            read = (weights[:, None] @ memory[:, :, value]).squeeze(1)
            state = read + (state if self.between is None else self.between(state))
            if rectified := round(config.relu * config.width):
                state = torch.cat([F.relu(state[:, :rectified]), state[:, rectified:]], 1)
        return Output(state[:, None], None)

    def sentence_vectors(self, sentences: Tensor) -> Tensor:
        """(S, L) to (S, E · M): sums of the vectors of words, weighted by their places.

        The weight of word j of J in dimension k of M is (1 - j/J) - (k/M)(1 - 2j/J): two sums, of which each dimension
        takes its share.
        """
        if not self.config.position_encoding:
            return F.embedding_bag(sentences, self.words, mode="sum", padding_idx=0)
        count, length = sentences.shape
        place = torch.arange(1, length + 1, device=sentences.device, dtype=self.words.dtype)
        share = place / (sentences > 0).sum(1, keepdim=True).clamp(min=1)  # (S, L)
        both = F.embedding_bag(
            sentences.repeat(2, 1),
            self.words,
            mode="sum",
            per_sample_weights=torch.cat([1 - share, 1 - 2 * share]),
            padding_idx=0,
        )
        width = self.config.width
        dimension = torch.arange(1, width + 1, device=sentences.device, dtype=self.words.dtype) / width
        return torch.addcmul(both[:count], both[count:], dimension.repeat(self.config.tables), value=-1)

    def weights(self, scores: Tensor, absent: Tensor) -> Tensor:
        """(B, N) scores to weights: of a softmax, or the scores themselves while training starts linear."""
        soft = torch.where(absent, torch.finfo(scores.dtype).min, scores).softmax(1)
        soft = torch.where(absent, 0.0, soft)  # a story without sentences has no weights
        if self.linear is None:
            return soft
        return torch.where(self.linear > 0, torch.where(absent, 0.0, scores), soft)

    def label_logits(self, output: Output) -> Tensor:
        state = output.hidden[:, 0]
        if self.answers is not None:
            return F.linear(state, self.answers)
        rows = torch.tensor(self.config.answer_rows, device=state.device)
        return F.linear(state, self.words[rows, -self.config.width :])
