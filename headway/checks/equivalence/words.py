"""Checks of word vectors: kernels and batches against the plain definition, and files of vectors; on random text."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from headway.checks.equivalence.result import TOLERANCE, Outcome, max_difference, skip
from headway.hub.vectors.file import read_vectors, write_vectors
from headway.joint.words import WordVectors
from headway.tasks.word2vec.draws import Predictions, Sampling, make_sampling, predictions
from headway.tasks.word2vec.ngrams import all_rows
from headway.tasks.word2vec.task import Settings
from headway.tasks.word2vec.update import Stepper, has_kernels, plainly

SPANS, LENGTH, LR = 4, 40, 0.05


@dataclass
class WordChecks:
    """A step on random text; every way to compute it must give what the definition gives."""

    model: WordVectors
    seed: int

    def table(self, compiled: bool) -> Iterator[tuple[str, Callable[[], Outcome]]]:
        """Name and check, in the order of the output."""
        for name in ("skipgram", "cbow"):
            yield f"{name}: kernels = plain", lambda name=name: self.kernels(name)  # type: ignore[misc]
            yield f"{name}: batches = plain", lambda name=name: self.batches(name)  # type: ignore[misc]
        yield "exported = loaded", self.exported

    @cached_property
    def spans(self) -> Tensor:
        words = self.model.config.source.vocab
        return torch.from_numpy(np.random.default_rng(self.seed).integers(-1, words, (SPANS, LENGTH)).astype(np.int32))

    @property
    def places(self) -> Tensor:
        return torch.arange(SPANS) * LENGTH

    def stepper(self, name: str) -> Stepper:
        config = self.model.config
        counts = np.arange(config.source.vocab, 0, -1)
        settings = Settings(model="cbow" if name == "cbow" else "skipgram", subsample=0.1)
        rows = all_rows([f"word{number}" for number in range(config.source.vocab)], config)
        return Stepper(make_sampling(counts, settings, self.seed), rows)

    def copied(self) -> WordVectors:
        return deepcopy(self.model).cpu().float()

    def plain(self, stepper: Stepper, drawn: Predictions) -> tuple[Tensor, float]:
        """The weights after the step, side by side, and its loss."""
        one = self.copied()
        assert one.outputs is not None
        loss = plainly(one.inputs, one.outputs, drawn, stepper.rows, LR)
        return torch.cat([one.inputs, one.outputs]), loss

    def kernels(self, name: str) -> Outcome:
        """One thread of kernels, and one prediction after the other."""
        if not self.model.config.trains:
            return skip("these vectors are not trained")
        if not has_kernels():
            return skip("Numba is not installed: pip install headway[cpu]")
        stepper, one = self.stepper(name), self.copied()
        assert one.outputs is not None
        expected, loss = self.plain(stepper, self.drawn(stepper.sampling))
        found, _ = stepper.by_kernels(one, self.spans, self.places, LR)
        worst = max(max_difference(torch.cat([one.inputs, one.outputs]), expected), abs(found - loss) / max(1.0, loss))
        return Outcome(worst, self.limit(expected))

    def batches(self, name: str) -> Outcome:
        """The losses of a step before anything is learned."""
        if not self.model.config.trains:
            return skip("these vectors are not trained")
        stepper, one = self.stepper(name), self.copied()
        assert one.outputs is not None
        found, pairs = stepper.losses(one, self.spans, self.places)
        loss = plainly(one.inputs, one.outputs, self.drawn(stepper.sampling), stepper.rows, 0.0)
        return Outcome(abs(found - loss) / max(1, pairs), TOLERANCE[torch.float32] * max(1.0, loss / max(1, pairs)))

    def drawn(self, sampling: Sampling) -> Predictions:
        return predictions(self.spans, self.places, sampling)

    def limit(self, expected: Tensor) -> float:
        return TOLERANCE[torch.float32] * max(1.0, float(expected.abs().max()))

    def exported(self) -> Outcome:
        """Files in word2vec's formats hold the same numbers."""
        vectors = self.model.inputs[: self.model.config.source.vocab].detach().float().cpu().numpy()
        words, worst = [f"wört{number}" for number in range(len(vectors))], 0.0
        with tempfile.TemporaryDirectory(prefix="headway-check-") as folder:
            for binary in (True, False):
                path = Path(folder) / ("vectors.bin" if binary else "vectors.vec")
                write_vectors(path, words, vectors, binary=binary)
                found = read_vectors(path)
                same = torch.from_numpy(found.vectors), torch.from_numpy(vectors)
                worst = max(worst, max_difference(*same) if found.words == words else float("inf"))
        return Outcome(worst, 0.0)
