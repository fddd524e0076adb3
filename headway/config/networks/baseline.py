"""The config of recurrent and convolutional networks, the baselines of the transformer. No torch here.

It has the attributes of a `ModelConfig` that tasks, trainer, decoding and files use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from headway.config.model import (
    MAX_LAYERS,
    MAX_WIDTH,
    LMHeadConfig,
    SpecialTokens,
    StackConfig,
    TokensConfig,
    max_positions,
)
from headway.config.networks.without import WithoutHeads
from headway.config.ranges import conflict, in_range
from headway.errors import ConfigError

Network = Literal["elman", "gru", "lstm", "conv"]


@dataclass(frozen=True, kw_only=True)
class BaselineConfig(WithoutHeads):
    """A recurrent or convolutional network that generates text: a language model, or an encoder–decoder."""

    network: Network
    """elman: Elman 1990; gru: Cho et al. 2014; lstm: Hochreiter & Schmidhuber 1997; conv: Gehring et al. 2017."""
    width: int
    depth: int = 1
    source: TokensConfig | None = None
    """Front end of the encoder; None is a language model."""
    target: TokensConfig
    shared_embedding: bool = False
    """Encoder and decoder share one token table."""
    attention: Literal["none", "additive", "dot", "general"] = "none"
    """none: the decoder sees only the encoder's last state (Sutskever et al. 2014); additive: Bahdanau et al. 2015; dot
    and general: Luong et al. 2015. conv has its own attention in every layer."""
    context: bool = False
    """Without attention: the decoder reads the encoder's last state at every step, not only as its first state (Cho et
    al. 2014). It is one vector, however long the source is, but decoding does not overwrite it."""
    bidirectional: bool = False
    """The encoder reads in both directions, each with half of the width (Schuster & Paliwal 1997)."""
    kernel: int = 3
    """conv: width of a convolution in tokens."""
    dropout: float = 0.0
    """Between layers, and before the logits."""
    embedding: int | None = None
    """Language model: width of the word vectors and of what the logits are computed of, if it is not `width`."""
    cell_norm: bool = False
    """Language model: layer norm inside the cells (Ba et al. 2016)."""
    locked_dropout: bool = False
    """Language model: one dropout mask for all tokens of a row (Gal & Ghahramani 2016). Then `target.dropout` is 0."""
    input_dropout: float = 0.0
    """Dropout of the word vectors, if the masks are locked."""
    layer_dropout: float | None = None
    """Dropout between layers; None: `dropout`."""
    word_dropout: float = 0.0
    """Share of the vocabulary whose vectors are zero in a batch (Gal & Ghahramani 2016)."""
    weight_dropout: float = 0.0
    """Share of the weights from state to state that are zero in a batch (Merity et al. 2018)."""
    ar: float = 0.0
    """Activation regularisation: weight of the mean square of the outputs (Merity et al. 2018)."""
    tar: float = 0.0
    """Temporal activation regularisation: weight of the mean square of their change from token to token."""
    lm: LMHeadConfig = field(default_factory=LMHeadConfig)
    special: SpecialTokens = field(default_factory=SpecialTokens)
    family: ClassVar[str] = "headway"

    def __post_init__(self) -> None:
        in_range(self, width=(1, MAX_WIDTH), depth=(1, MAX_LAYERS), kernel=(1, 1 << 10), dropout=(0.0, 1.0))
        in_range(self, embedding=(1, MAX_WIDTH), ar=(0.0, 1e6), tar=(0.0, 1e6), weight_dropout=(0.0, 1.0))
        in_range(self, input_dropout=(0.0, 1.0), layer_dropout=(0.0, 1.0), word_dropout=(0.0, 1.0))
        recurrent, attention, network = (
            self.network != "conv",
            f"attention = {self.attention}",
            f"network = {self.network}",
        )
        if recurrent and self.attention != "none" and self.source is None:
            raise conflict(attention, "a language model", "there is no encoder to attend to")
        if self.context and not (recurrent and self.source and self.attention == "none"):
            raise conflict("context = true", attention, "it is for recurrent encoder–decoders without attention")
        if self.bidirectional and not (recurrent and self.source):
            raise conflict("bidirectional = true", network, "it is for recurrent encoders")
        if self.bidirectional and self.width % 2:
            raise conflict("bidirectional = true", f"width = {self.width}", "each direction has half of the width")
        if not recurrent and self.source is not None and self.kernel % 2 == 0:
            raise conflict(f"kernel = {self.kernel}", network, "the encoder's convolutions need an odd width")
        own = (self.embedding, self.cell_norm, self.locked_dropout, self.word_dropout, self.weight_dropout)
        if (any(own) or self.ar or self.tar) and not (recurrent and self.source is None):
            what = "embedding, cell_norm, locked_dropout, word_dropout, weight_dropout, ar or tar"
            raise conflict(what, network if not recurrent else "an encoder", "they are for recurrent language models")
        if self.shared_embedding and (self.source is None or self.source.vocab != self.target.vocab):
            raise ConfigError("C004", "shared_embedding needs a source and a target with the same vocabulary size")

    @property
    def kind(self) -> Literal["decoder", "encoder-decoder"]:
        return "decoder" if self.source is None else "encoder-decoder"

    @property
    def max_length(self) -> int | None:
        """The most tokens that can be generated; None if nothing limits them."""
        return max_positions(self.target)

    @property
    def word_width(self) -> int:
        """Width of the word vectors, and of what the logits are computed of."""
        return self.embedding or self.width

    @property
    def between(self) -> float:
        """Dropout between layers."""
        return self.dropout if self.layer_dropout is None else self.layer_dropout

    @property
    def attention_layers(self) -> int:
        """The number of layers with attention to the encoder."""
        if self.source is None:
            return 0
        return self.depth if self.network == "conv" else int(self.attention != "none")

    @property
    def encoder(self) -> StackConfig | None:
        """The encoder as a `StackConfig`: only its layers and their width are meaningful."""
        return None if self.source is None else self._stack(causal=False)

    @property
    def decoder(self) -> StackConfig:
        return self._stack(causal=True)

    def _stack(self, *, causal: bool) -> StackConfig:
        cross = causal and self.source is not None
        return StackConfig(
            d_model=self.word_width, n_layers=self.depth, n_heads=1, d_ff=self.width, causal=causal, cross=cross
        )

    @property
    def output_stack(self) -> StackConfig:
        return self.decoder

    @property
    def output_front(self) -> TokensConfig:
        return self.target
