"""`Session`: a model under inspection. It runs inputs, with or without changes, and keeps what they show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.errors import DataError
from headway.inspect.attribution import Attribution, Method, attribute
from headway.inspect.capture import capture
from headway.inspect.changes import Change, changed, head_name
from headway.inspect.heads import Maps
from headway.inspect.parts import chosen_part, parts_of
from headway.inspect.patching import Metric, Patching, patch_maps
from headway.inspect.reading.base import Reading
from headway.inspect.reading.inputs import read_input
from headway.inspect.readout import Readout, readout_of
from headway.inspect.trace import DIGITS, Pass, array
from headway.inspect.weights.embeddings import EmbeddingMap, Projection, embedding_map, neighbours, positions
from headway.inspect.weights.overview import front_of, overview
from headway.model.attention import Hook
from headway.model.feed_forward import FeedForward
from headway.model.model import Output, evaluating
from headway.tasks.predictor import Loaded
from headway.tasks.word2vec.search import Neighbour


class Session:
    """A model under inspection: `headway.load("last").session`."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded, self.model = loaded, loaded.model
        self.parts = parts_of(loaded.model)

    @cached_property
    def readout(self) -> Readout | None:
        """The head whose answers are shown; None for a model that gives vectors."""
        return readout_of(self.loaded)

    def overview(self) -> dict[str, Any]:
        """The parts of the model in the order in which an input goes through them, with their sizes."""
        return overview(self.model)

    def read(self, given: Any, target: str | None = None) -> Reading:
        """An input as the model reads it: a text, two texts, or the path of an image, a sound, a series or a graph.

        `target` is what the decoder of an encoder–decoder reads; by default what the model itself generates.
        """
        return given if isinstance(given, Reading) else read_input(self.loaded, given, target)

    def run(self, given: Any, *, target: str | None = None, changes: Sequence[Change] = ()) -> Pass:
        """One forward pass, with changes of the model: `session.run("To be", changes=[Ablate(layer=2, head=1)])`."""
        if not self.parts:
            hint = "headway inspect without an input looks at its weights"
            raise DataError("D001", f"{self.loaded.name} has no attention: it is no transformer", hint)
        reading, own = self.read(given, target), dict[str, Callable[..., Tensor]]()

        def hook(name: str, make: Callable[..., Tensor]) -> None:
            own[name] = make

        reached = {kind: part for kind, part in self.parts.items() if reading.reaches(part.stack_kind)}
        with (
            evaluating(self.model),
            changed(reached, changes),
            capture(self.model, self._names()) as seen,
        ):
            output = self.forward(reading, hook)
        return Pass(
            reading=reading,
            parts=reached,
            output=output,
            activations=seen,
            own=own,
            readout=self.readout,
            changes=tuple(changes),
        )

    def patching(
        self,
        first: Any,
        second: Any,
        metric: Metric | None = None,
        *,
        kind: str = "",
        position: int | None = None,
        target: str = "",
    ) -> Patching:
        """Which activations of the second input, put into the pass of the first, make the model answer as there.

        The inputs need equally many tokens. `metric` turns logits (R, V) at the position into a number for each run;
        `target` is what the decoder of an encoder–decoder reads in both.
        """
        self.require_readout()
        inputs = self.read(first, target), self.read(second, target)
        return patch_maps(self, *inputs, kind=kind, position=position, metric=metric)

    def attribution(
        self,
        given: Any,
        method: Method = "integrated",
        *,
        answer: str | int | None = None,
        position: int | None = None,
        target: str = "",
    ) -> Attribution:
        """How much each token, patch or frame of the input speaks for an answer, by default the likeliest one.

        `method` is integrated, or gradient_x_input; `position` is where the answer is read, by default the last one.
        """
        self.require_readout()
        return attribute(self, self.read(given, target), method, answer, position)

    def direction(self, texts: Sequence[str], others: Sequence[str], layer: int, *, kind: str = "") -> Maps:
        """The mean difference of two sets of texts after a layer: a direction to steer by."""
        means = []
        for some in (texts, others):
            if isinstance(some, str) or not some:
                raise DataError("D001", "a direction needs two lists of texts, none of them empty")
            means.append(torch.stack([self._mean(text, layer, kind) for text in some]).mean(0))
        return array(means[0] - means[1])

    def _mean(self, text: str, layer: int, kind: str) -> Tensor:
        """(M,): the mean of the residual stream after a layer over the tokens of a text, without separators."""
        seen = self.run(text)
        seen.part(kind).block(layer)
        real = [i for i, token in enumerate(seen.tokens_of(kind)) if not token.special]
        return seen.residual(kind)[layer + 1][real].mean(0)

    def word_in_contexts(self, word: str, first: str, second: str, *, kind: str = "") -> list[float]:
        """The cosine distance between a word in one text and in another: at the embeddings, and after each layer."""
        vectors = [self._word(word, text, kind) for text in (first, second)]
        cosines = F.cosine_similarity(vectors[0].float(), vectors[1].float(), dim=-1)
        return [round(1 - cosine, DIGITS) for cosine in cosines.tolist()]

    def _word(self, word: str, text: str, kind: str) -> Tensor:
        """(L + 1, M): the mean over the tokens of a word."""
        start = text.lower().find(word.lower())
        if start < 0 or not word:
            raise DataError("D001", f"the word {word!r} is not in {text[:60]!r}")
        seen = self.run(text)
        kind = kind or next(iter(seen.kinds))  # of an encoder–decoder, the stack that reads the text
        spans = [token.span for token in seen.tokens_of(kind)]
        places = [i for i, span in enumerate(spans) if span[0] < start + len(word) and span[1] > start]
        if not places:
            raise DataError("D001", f"no token of {text[:60]!r} stands for the word {word!r}")
        return seen.residual(kind)[:, places].mean(1)

    def neighbours(self, word: str, k: int = 10) -> list[Neighbour]:
        """The tokens whose vectors are nearest to that of a word."""
        return neighbours(self.loaded, word, k)

    def embedding_map(self, words: Sequence[str] = (), by: Projection = "pca") -> EmbeddingMap:
        """Words, by default the first of the vocabulary, in the two dimensions in which their vectors differ most."""
        return embedding_map(self.loaded, words, by)

    def positions(self, kind: str = "") -> dict[str, Any]:
        """How a stack knows of positions: cosines of their vectors, wavelengths, slopes, or a learned bias."""
        if not self.parts:
            return {"kind": "none"}
        part = chosen_part(self.parts, kind)
        return positions(part, front_of(self.model, part))

    def require_readout(self) -> Readout:
        """The head whose answers can be shown."""
        if self.readout is None:
            raise DataError("D001", f"{self.loaded.name} gives vectors: it has no head whose answers could be shown")
        return self.readout

    def forward(self, reading: Reading, hook: Hook | None = None) -> Output:
        """The model on an input."""
        found: Output = self.model(*reading.args, **reading.more, hook=hook)
        return found

    def _names(self) -> list[str]:
        """What a pass keeps: the residual stream, and what each branch and each head adds to it."""
        names: list[str] = []
        for part in self.parts.values():
            if part.stack is None:
                continue
            for layer in range(part.layers):
                names += [part.name(layer), part.name(layer, "ffn"), part.name(layer, "attention.out")]
                names.append(head_name(part, layer))
                if isinstance(part.block(layer).ffn, FeedForward):
                    names.append(f"{part.name(layer, 'ffn.down')}.input")
            names.append(f"{part.name(0)}.input")
        return names
