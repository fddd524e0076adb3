"""The networks that came before the transformer, described. No torch here.

A config has the surface of a `ModelConfig` where tasks, trainer, decoding and files ask for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from headway.config.model import (
    MAX_LAYERS,
    MAX_WIDTH,
    LMHeadConfig,
    ModelConfig,
    SpecialTokens,
    StackConfig,
    TokensConfig,
    max_positions,
)
from headway.errors import ConfigError

Network = Literal["elman", "gru", "lstm", "conv"]


@dataclass(frozen=True, kw_only=True)
class BaselineConfig:
    """A recurrent or convolutional network that writes text: from nothing, or from a source that it reads first."""

    network: Network
    """elman: Elman 1990; gru: Cho et al. 2014; lstm: Hochreiter & Schmidhuber 1997; conv: Gehring et al. 2017."""
    width: int
    depth: int = 1
    source: TokensConfig | None = None
    """What is read first; None is a language model."""
    target: TokensConfig
    shared_embedding: bool = False
    """Source and target are read with the same table."""
    attention: Literal["none", "additive", "dot", "general"] = "none"
    """none: the source is the state after its last token, and nothing else (Sutskever et al. 2014); additive: Bahdanau
    et al. 2015; dot and general: Luong et al. 2015. conv has its own, in every layer."""
    context: bool = False
    """Without attention: the state that the source left is not only where the writer starts from, but is read beside
    every token and joined to what comes of it (Cho et al. 2014). It is still one vector, however long the source was,
    but one that is not overwritten."""
    bidirectional: bool = False
    """The source is read from both ends, each by half of the width (Schuster & Paliwal 1997)."""
    kernel: int = 3
    """conv: tokens that a convolution sees."""
    dropout: float = 0.0
    """Between layers, and before the scores."""
    lm: LMHeadConfig = field(default_factory=LMHeadConfig)
    special: SpecialTokens = field(default_factory=SpecialTokens)

    def __post_init__(self) -> None:
        ranges = (
            ("width", self.width, 1, MAX_WIDTH),
            ("depth", self.depth, 1, MAX_LAYERS),
            ("kernel", self.kernel, 1, 1 << 10),
            ("dropout", self.dropout, 0.0, 1.0),
        )
        for name, value, low, high in ranges:
            if not low <= value <= high:  # a NaN is outside any range
                raise ConfigError("C003", f"{name} = {value} is outside {low} … {high}")
        if self.network != "conv" and self.attention != "none" and self.source is None:
            raise _conflict("attention", self.attention, "a language model", "there is no source to look at")
        if self.context and (self.network == "conv" or self.source is None or self.attention != "none"):
            raise _conflict("context", True, f"attention = {self.attention}", "it is all that is known of a source")
        if self.bidirectional and (self.network == "conv" or self.source is None):
            raise _conflict("bidirectional", True, f"network = {self.network}", "it is how a recurrent encoder reads")
        if self.bidirectional and self.width % 2:
            raise _conflict("bidirectional", True, f"width = {self.width}", "each direction has half of it")
        if self.network == "conv" and self.source is not None and self.kernel % 2 == 0:
            raise _conflict("kernel", self.kernel, "network = conv", "an encoder's convolutions have a middle")
        if self.shared_embedding and (self.source is None or self.source.vocab != self.target.vocab):
            raise ConfigError("C004", "shared_embedding needs a source and a target of one vocabulary")

    @property
    def kind(self) -> Literal["decoder", "encoder-decoder"]:
        return "decoder" if self.source is None else "encoder-decoder"

    @property
    def max_length(self) -> int | None:
        """Longest text that can be written; None when nothing limits it."""
        return max_positions(self.target)

    @property
    def attention_layers(self) -> int:
        """Layers that look back at the source."""
        if self.source is None:
            return 0
        return self.depth if self.network == "conv" else int(self.attention != "none")

    @property
    def encoder(self) -> StackConfig | None:
        """What reads the source, as far as a stack of blocks can say it: layers and their width."""
        return None if self.source is None else self._stack(causal=False)

    @property
    def decoder(self) -> StackConfig:
        return self._stack(causal=True)

    def _stack(self, *, causal: bool) -> StackConfig:
        cross = causal and self.source is not None
        return StackConfig(
            d_model=self.width, n_layers=self.depth, n_heads=1, d_ff=self.width, causal=causal, cross=cross
        )

    @property
    def output_stack(self) -> StackConfig:
        return self.decoder

    @property
    def output_front(self) -> TokensConfig:
        return self.target

    # What no baseline has, for those who take any model.
    family: ClassVar[str] = "headway"
    quantization: ClassVar[str] = "none"
    labels: ClassVar[tuple[str, ...]] = ()
    nsp: ClassVar[None] = None
    classify: ClassVar[None] = None
    tag: ClassVar[None] = None
    span: ClassVar[None] = None


AnyConfig = ModelConfig | BaselineConfig
"""A config of any model. Code for all models uses what both have in common; mypy checks it."""


def _conflict(name: str, value: object, other: str, rule: str) -> ConfigError:
    return ConfigError("C004", f"{name} = {value} does not go with {other}: {rule}")
