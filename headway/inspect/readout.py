"""What a model would say from the hidden states of any layer: the logit lens, and its predictions at the end.

Letters: B batch, T positions, M width of the model, V answers: tokens of a vocabulary, or labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from headway.errors import DataError, nearest
from headway.inspect.reading.text import label_of
from headway.joint.memory import MemoryModel
from headway.model.model import Model, Output
from headway.tasks.predictor import Loaded

HEADS = ("lm", "classify", "tag", "span")
"""The heads that can be read at any layer; of several, the first."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One of the likeliest answers at a position."""

    label: str
    probability: float
    """Between 0 and 1; for a model that predicts a number, that number."""
    id: int

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class Readout:
    """A head of the model, which turns hidden states into answers."""

    head: str
    logits: Callable[[Tensor, Tensor | None], Tensor]
    """Hidden states (B, T, M) and attention mask to (B, T, V); to (B, 1, V) if the whole input has one answer, to
    (B, 2, T) for the start and the end of a span."""
    name: Callable[[int], str]
    """The name of an answer."""
    count: int = 0
    """Of labels; 0 for tokens."""
    several: bool = False
    """Whether each answer is a yes or no of its own."""
    number: bool = False
    """Whether the answer is a number."""

    @property
    def each(self) -> bool:
        """Whether each position has answers of its own, which depend on its hidden state alone."""
        return self.head in ("lm", "tag")

    def top(self, hidden: Tensor, mask: Tensor | None, k: int) -> list[list[Answer]]:
        """The k likeliest answers at each position of the first row."""
        logits = self.logits(hidden, mask)[0].float()
        if self.number or self.several:
            best, ids = self.chances(logits).topk(min(k, logits.shape[-1]))
        else:  # the softmax of a few: of a large vocabulary, all would take longer than the model
            best, ids = logits.topk(min(k, logits.shape[-1]))
            best = (best - logits.logsumexp(-1, keepdim=True)).exp()
        return [
            [Answer(label=self.name(i), probability=p, id=i) for p, i in zip(some, numbers, strict=True)]
            for some, numbers in zip(best.tolist(), ids.tolist(), strict=True)
        ]

    def chances(self, logits: Tensor) -> Tensor:
        """Logits to probabilities."""
        if self.number:
            return logits
        return logits.sigmoid() if self.several else logits.softmax(-1)

    def answer(self, wanted: str | int) -> int:
        """The number of an answer by its name."""
        if isinstance(wanted, int):
            return wanted
        names = [self.name(i) for i in range(self.count)] if self.count else []
        if wanted not in names:
            raise DataError("D001", f"no answer {wanted!r}{nearest(wanted, names)}", f"there are: {', '.join(names)}")
        return names.index(wanted)


def readout_of(loaded: Loaded) -> Readout | None:
    """The head that is read; None for a model that gives vectors only."""
    model, config = loaded.model, loaded.model.config
    if isinstance(model, MemoryModel):
        return Readout(
            head="classify",
            logits=lambda hidden, mask: model.label_logits(Output(hidden, mask))[:, None],
            name=_label_names(config.labels),
            count=len(config.labels),
        )
    head = next((name for name in HEADS if getattr(config, name) is not None), "")
    if head == "lm":
        tokenizer = loaded.require_tokenizer().target
        return Readout(
            head=head,
            logits=lambda hidden, mask: model.lm(hidden),
            name=lambda i: label_of(tokenizer.decode, i, tokenizer.pieces([i])[0]),
        )
    if head == "span":  # two answers, where the span starts and where it ends; each is one of the positions
        return Readout(head=head, logits=lambda hidden, mask: model.span(hidden).transpose(1, 2), name=str)
    labels = getattr(getattr(config, head, None), "labels", 0)
    if not labels:
        return None
    return Readout(
        head=head,
        logits=_labels(model, head),
        name=_label_names(config.labels),
        several=bool(getattr(getattr(config, head), "several", False)),
        number=head == "classify" and labels == 1,
        count=labels,
    )


def _labels(model: Model, head: str) -> Callable[[Tensor, Tensor | None], Tensor]:
    def logits(hidden: Tensor, mask: Tensor | None) -> Tensor:
        if head == "tag":
            found: Tensor = model.tag(hidden)
        else:
            found = model.classify(hidden, mask)[:, None]
        return found

    return logits


def _label_names(labels: tuple[str, ...]) -> Callable[[int], str]:
    return lambda i: labels[i] if i < len(labels) else str(i)
