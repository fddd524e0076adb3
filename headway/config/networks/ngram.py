"""The config of n-gram language models: tables of counts in place of a network. No torch here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from headway.config.model import MAX_VOCAB, LMHeadConfig, SpecialTokens, StackConfig, TokensConfig
from headway.config.networks.without import WithoutHeads
from headway.config.ranges import in_range
from headway.errors import ConfigError

MAX_ORDER = 20
"""The longest n-gram. In practice orders above 6 bring nothing for words, and above 12 nothing for bytes."""


@dataclass(frozen=True, kw_only=True)
class NGramConfig(WithoutHeads):
    """The next token depends on the last n - 1 tokens: interpolated modified Kneser–Ney (Chen & Goodman 1998)."""

    vocab: int
    ngrams: tuple[int, ...] = ()
    """The number of different n-grams of 2, 3, … n tokens in the training text; of one token there are `vocab`."""
    special: SpecialTokens = field(default_factory=SpecialTokens)

    kind: ClassVar[Literal["decoder"]] = "decoder"
    network: ClassVar[str] = "ngram"
    family: ClassVar[str] = "headway"
    max_length: ClassVar[None] = None
    source: ClassVar[None] = None
    encoder: ClassVar[None] = None
    shared_embedding: ClassVar[bool] = False
    lm: ClassVar[LMHeadConfig] = LMHeadConfig(tied=False)

    def __post_init__(self) -> None:
        in_range(self, vocab=(1, MAX_VOCAB), order=(1, MAX_ORDER))
        if any(count < 1 for count in self.ngrams):
            raise ConfigError("C003", f"ngrams = {list(self.ngrams)} should be at least 1 each")

    @property
    def order(self) -> int:
        """The n of n-gram."""
        return 1 + len(self.ngrams)

    @property
    def width(self) -> int:
        """Contexts that predict a token: of 1, 2, … n - 1 tokens. An order of 1 has one too, and does not use it."""
        return max(1, len(self.ngrams))

    @property
    def target(self) -> TokensConfig:
        return TokensConfig(vocab=self.vocab)

    @property
    def output_front(self) -> TokensConfig:
        return self.target

    @property
    def decoder(self) -> StackConfig:
        """The tables as a `StackConfig`, for code that asks every decoder: only the width is meaningful."""
        return StackConfig(d_model=self.width, n_layers=1, n_heads=1, d_ff=1, causal=True)

    @property
    def output_stack(self) -> StackConfig:
        return self.decoder
