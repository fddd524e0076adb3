"""Training of an n-gram language model: the text is counted, and no gradient changes anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from headway.baselines.ngram import NGram
from headway.config.networks.kinds import AnyConfig
from headway.config.networks.ngram import NGramConfig
from headway.data.batching.permutation import Index
from headway.model.model import Model, evaluating
from headway.tasks.batch import Batch
from headway.tasks.lm.kneser_ney import NGrams, estimate
from headway.tasks.lm.training import LanguageModelTraining, special_tokens


@dataclass(frozen=True)
class NGramTraining(LanguageModelTraining):
    """A run is one step, which finds the tables of the text already in the model."""

    by_gradient = False

    @cached_property
    def ngrams(self) -> NGrams:
        """With data.rows = "stream" the text is read end to end, else no context reaches into another document."""
        ids, starts = np.asarray(self.train.ids), np.asarray(self.train.starts)
        ends = starts[[0, -1]] if self.data.rows == "stream" else starts
        return estimate(ids, ends, self.tokenizer.vocab_size, self.recipe.model.order)

    def config(self, base: AnyConfig | None) -> AnyConfig:
        assert base is None, "Recipe refuses model.from"
        counts = tuple(len(keys) for keys in self.ngrams.keys)
        return NGramConfig(vocab=self.tokenizer.vocab_size, ngrams=counts, special=special_tokens(self.tokenizer))

    def initialise(self, model: Model) -> None:
        assert isinstance(model, NGram)
        found = self.ngrams
        model.fill(*([torch.from_numpy(t) for t in tables] for tables in (found.log_probs, found.backoffs, found.keys)))

    def batch(self, samples: Index) -> Batch:
        """Rows whose loss the log shows; the step has read all of the text."""
        return replace(super().batch(samples), read=len(self.train.ids))

    def update(self, model: Model, tensors: Sequence[Tensor | None], lr: float) -> float:
        with evaluating(model):
            return float(self.loss(model, *tensors))  # type: ignore[arg-type]
