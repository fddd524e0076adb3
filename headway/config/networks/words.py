"""The config of word vectors: a row for each word of a vocabulary, and rows for n-grams of letters. No torch here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from headway.config.model import MAX_VOCAB, MAX_WIDTH, SpecialTokens, StackConfig
from headway.config.networks.without import WithoutDecoder, WithoutHeads
from headway.config.ranges import conflict, in_range

LONGEST_NGRAM = 20
"""Letters; longer n-grams would be whole words."""


@dataclass(frozen=True, kw_only=True)
class WordsConfig:
    """Front end for single words."""

    kind: Literal["tokens"] = "tokens"
    vocab: int

    def __post_init__(self) -> None:
        in_range(self, vocab=(1, MAX_VOCAB))


@dataclass(frozen=True, kw_only=True)
class WordVectorsConfig(WithoutHeads, WithoutDecoder):
    """Vectors of words (Mikolov et al. 2013), with those of their n-grams (Bojanowski et al. 2017)."""

    source: WordsConfig
    width: int
    ngram_rows: int = 0
    """Rows that n-grams share by their hash; 0: words have no n-grams."""
    shortest: int = 3
    longest: int = 6
    """Letters of an n-gram, with a mark for the beginning and the end of the word."""
    trains: bool = True
    """Whether there are output vectors, which only training needs; files of other programs have none."""
    lower: bool = False
    """Words were learned in lower case, so they are looked up so."""
    special: SpecialTokens = field(default_factory=SpecialTokens)

    def __post_init__(self) -> None:
        in_range(self, width=(1, MAX_WIDTH), ngram_rows=(0, MAX_VOCAB), shortest=(1, LONGEST_NGRAM))
        in_range(self, longest=(1, LONGEST_NGRAM))
        if self.shortest > self.longest:
            raise conflict(
                f"shortest = {self.shortest}", f"longest = {self.longest}", "n-grams grow from one to the other"
            )

    encoder: ClassVar[None] = None
    max_length: ClassVar[None] = None
    classify: ClassVar[None] = None
    tag: ClassVar[None] = None
    family: ClassVar[str] = "headway"

    @property
    def output_stack(self) -> StackConfig:
        """Only its width is meaningful: there are no blocks."""
        return StackConfig(d_model=self.width, n_layers=0, n_heads=1, d_ff=1)

    @property
    def output_front(self) -> WordsConfig:
        return self.source
