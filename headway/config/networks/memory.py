"""The config of models that answer questions about stories: a memory network, or a transformer. No torch here."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal, Protocol

from headway.config.model import (
    MAX_LAYERS,
    MAX_LENGTH,
    MAX_WIDTH,
    ClassifyHeadConfig,
    InitConfig,
    SpecialTokens,
    StackConfig,
)
from headway.config.networks.without import WithoutDecoder
from headway.config.ranges import conflict, in_range
from headway.errors import ConfigError

Tying = Literal["adjacent", "layerwise"]


class MemoryShape(Protocol):
    """What a recipe says of a new model that answers questions about stories."""

    @property
    def network(self) -> Literal["memory", "transformer"]: ...
    @property
    def hops(self) -> int: ...
    @property
    def tying(self) -> Tying: ...
    @property
    def position_encoding(self) -> bool: ...
    @property
    def temporal_encoding(self) -> bool: ...
    @property
    def relu(self) -> float: ...
    @property
    def linear_start(self) -> float: ...


@dataclass(frozen=True, kw_only=True)
class StoryConfig:
    """Front end for a story and a question: sentences of words."""

    kind: Literal["story"] = "story"
    words: tuple[str, ...]
    """In lower case; an embedding's row 0 is padding, so a word has the row after its place."""
    memories: int
    """The last so many sentences of a story are read."""
    longest: int
    """Words of the longest sentence or question in training."""

    def __post_init__(self) -> None:
        in_range(self, memories=(1, MAX_LENGTH), longest=(1, MAX_LENGTH))
        if not self.words:
            raise ConfigError("C004", "source.words is empty: a story has words")

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each word in an embedding."""
        return {word: row for row, word in enumerate(self.words, start=1)}


@dataclass(frozen=True, kw_only=True)
class MemoryConfig(WithoutDecoder):
    """A model that answers a question about a story with one of the answers that it was trained on."""

    source: StoryConfig
    labels: tuple[str, ...]
    """The answers. One of several words, such as "north,west", is an answer of its own."""
    width: int
    n_hops: int = 3
    """Reads of the memory, one after another (Sukhbaatar et al. 2015)."""
    tying: Tying = "adjacent"
    """adjacent: what a hop reads is what the next one looks for; layerwise: all hops share their embeddings."""
    position_encoding: bool = True
    """Words of a sentence are weighted by their places; if not, a sentence is a bag of words."""
    temporal_encoding: bool = True
    """A sentence has a vector for how long ago it was."""
    relu: float = 0.0
    """Share of the units that are rectified after a hop."""
    linear_start: bool = False
    """Training begins without a softmax over memories; the weight `linear` says whether it is still so."""
    encoder: StackConfig | None = None
    """Of a transformer over the words of story and question; None: a memory network."""
    classify: ClassifyHeadConfig | None = None
    """Of a transformer."""
    init: InitConfig = field(default_factory=InitConfig)
    special: SpecialTokens = field(default_factory=SpecialTokens)
    dropout: float = 0.0
    """Of a transformer, on its embeddings."""
    family: ClassVar[str] = "headway"
    tag: ClassVar[None] = None
    max_length: ClassVar[None] = None

    def __post_init__(self) -> None:
        in_range(self, width=(1, MAX_WIDTH), n_hops=(1, MAX_LAYERS), relu=(0.0, 1.0), dropout=(0.0, 1.0))
        if not self.labels:
            raise ConfigError("C004", "labels is empty: a question has answers")
        if (self.encoder is None) != (self.classify is None):
            raise conflict("encoder", "classify", "a transformer has both, a memory network neither")
        if self.encoder is not None and self.encoder.d_model != self.width:
            raise conflict(f"width = {self.width}", f"encoder.d_model = {self.encoder.d_model}", "they are the same")

    @property
    def tables(self) -> int:
        """Embeddings of a memory network: of hops and the answer, or of memory, output and question."""
        return self.n_hops + 1 if self.tying == "adjacent" else 3

    @cached_property
    def answer_rows(self) -> tuple[int, ...]:
        """The row of each answer in an embedding. An answer that is no word has a row after those of words."""
        found, more = [], len(self.source.words)
        for label in self.labels:
            row = self.source.rows.get(label.lower(), 0)
            if not row:
                more += 1
            found.append(row or more)
        return tuple(found)

    @property
    def n_rows(self) -> int:
        """Rows of an embedding: padding, words, and answers that are no words."""
        return 1 + max(len(self.source.words), *self.answer_rows)

    @property
    def output_stack(self) -> StackConfig:
        """Of a memory network only the width is meaningful: there are no blocks."""
        return self.encoder or StackConfig(d_model=self.width, n_layers=0, n_heads=1, d_ff=1)

    @property
    def output_front(self) -> StoryConfig:
        return self.source
