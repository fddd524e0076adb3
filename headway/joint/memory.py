"""Models that answer questions about stories; and the transformer among them, the peer of the memory network.

Letters: B questions, S distinct sentences, L words of a sentence, N memories, T tokens, M width, A answers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.networks.memory import MemoryConfig
from headway.joint.encoding import EncodingModel
from headway.model.attention import Backend, Hook, scoped
from headway.model.heads import ClassifyHead
from headway.model.init import initialise
from headway.model.masks import Layout
from headway.model.model import Output
from headway.model.positions import make_embedding
from headway.model.stack import Stack


class StoryTensors(NamedTuple):
    """Stories beside the sentences that they are made of: most sentences of a batch occur in it many times."""

    sentences: Tensor
    """(S, L) rows of words, padded with 0; the first sentence has no words."""
    memories: Tensor
    """(B, N) numbers of sentences, the last sentence of a story first; 0 is no memory."""
    tokens: Tensor | None = None
    """(B, T) for a transformer: which of the (1 + N) · L words of question and memories are tokens; -1 is padding."""


class MemoryModel(EncodingModel):
    """What all models that answer questions about stories share."""

    gives = "a model of stories answers with what it was trained on"

    config: MemoryConfig

    def __init__(self, config: MemoryConfig) -> None:
        super().__init__()
        self.config = config

    def label_logits(self, output: Output) -> Tensor:
        """(B, A)"""
        raise NotImplementedError


class StoryTransformer(MemoryModel):
    """An encoder over the words of question and story, with embeddings of place and age, and a vector to read out."""

    def __init__(self, config: MemoryConfig) -> None:
        super().__init__(config)
        assert config.encoder is not None and config.classify is not None
        front, width = config.source, config.width
        self.words = make_embedding(1 + len(front.words), width)
        self.places = make_embedding(front.longest, width)
        self.ages = make_embedding(front.memories + 1, width)
        """Row 0 is of the question."""
        self.first = nn.Parameter(torch.empty(width))
        self.encoder = Stack(config.encoder)
        self.classify = ClassifyHead(config.classify, config.encoder)
        initialise(self, config)
        if not self.first.is_meta:
            nn.init.normal_(self.first, std=config.init.std)

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
        assert stories is not None and stories.tokens is not None
        tokens, length = stories.tokens.clamp(min=0), stories.sentences.shape[1]
        all_words = stories.sentences[torch.cat([inputs[:, None], stories.memories], 1)].flatten(1)  # (B, (1 + N) · L)
        x = self.words(all_words.gather(1, tokens)) + self.places(tokens % length) + self.ages(tokens // length)
        x = torch.cat([self.first.to(x.dtype).expand(len(x), 1, -1), x], 1)
        x = F.dropout(x, self.config.dropout, self.training)
        mask = F.pad(stories.tokens >= 0, (1, 0), value=True)
        layout = Layout.of(x.shape[1], mask, x.device)
        return Output(self.encoder(x, layout, backend=backend, hook=scoped(hook, "encoder")), mask)

    def label_logits(self, output: Output) -> Tensor:
        logits: Tensor = self.classify(output.hidden, output.attention_mask)
        return logits
