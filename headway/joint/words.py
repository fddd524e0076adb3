"""WordVectors: a vector for each word, and for n-grams of letters that words share.

Letters: V words, R rows of n-grams, D width, N words looked up.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headway.config.networks.words import WordVectorsConfig
from headway.joint.encoding import EncodingModel
from headway.model.attention import Backend, Hook
from headway.model.model import Output


class WordVectors(EncodingModel):
    """Input vectors of words and n-grams, and the output vectors that training tells words from negatives by."""

    gives = "word vectors are looked up"

    def __init__(self, config: WordVectorsConfig) -> None:
        super().__init__()
        self.config: WordVectorsConfig = config
        words, width = config.source.vocab, config.width
        self.inputs = nn.Parameter(torch.empty(words + config.ngram_rows, width))
        self.outputs = nn.Parameter(torch.zeros(words, width)) if config.trains else None
        if not self.inputs.is_meta:
            nn.init.uniform_(self.inputs, -0.5 / width, 0.5 / width)  # as word2vec begins

    def forward(
        self,
        inputs: Tensor,
        targets: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        target_attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        backend: Backend = "fused",
        hook: Hook | None = None,
    ) -> Output:
        """The vectors (…, D) of words (…), without those of their n-grams."""
        return Output(self.inputs[inputs], attention_mask)

    def composed(self, starts: Tensor, rows: Tensor) -> Tensor:
        """(N, D): the mean of the input rows of each of N words; word n has those from starts[n] to starts[n + 1]."""
        return nn.functional.embedding_bag(rows, self.inputs, starts[:-1], mode="mean")
