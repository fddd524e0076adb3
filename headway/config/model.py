"""Model configs: frozen dataclasses, with a field for every variant. No torch here.

`toml.py` reads and writes them; `presets.py` has the well-known ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from headway.config.heads import ClassifyHeadConfig as ClassifyHeadConfig
from headway.config.heads import DenoiseHeadConfig as DenoiseHeadConfig
from headway.config.heads import LMHeadConfig as LMHeadConfig
from headway.config.heads import SpanHeadConfig as SpanHeadConfig
from headway.config.heads import TagHeadConfig as TagHeadConfig
from headway.config.networks.sounds import SamplesConfig, WavesConfig
from headway.config.ranges import MAX_LAYERS as MAX_LAYERS
from headway.config.ranges import MAX_LENGTH as MAX_LENGTH
from headway.config.ranges import MAX_VOCAB as MAX_VOCAB
from headway.config.ranges import MAX_WIDTH as MAX_WIDTH
from headway.config.ranges import Activation as Activation
from headway.config.ranges import conflict, in_range
from headway.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class RopeConfig:
    """Rotary positions (Su et al. 2021), with two kinds of scaling for longer contexts."""

    theta: float = 10_000.0
    scaling: Literal["none", "linear", "llama3"] = "none"
    factor: float = 1.0
    """linear: divides the positions; llama3: divides the low frequencies."""
    low_factor: float = 1.0
    high_factor: float = 4.0
    original_length: int = 8192
    """llama3: the context length before scaling."""
    partial: float = 1.0
    """Share of a head's width that is rotated (GPT-NeoX, Phi, Moonshine): its first pairs; other angles are 0."""

    def __post_init__(self) -> None:
        in_range(self, partial=(0.0, 1.0), theta=(1.0, 1e12), factor=(1e-6, 1e6), original_length=(1, MAX_LENGTH))
        in_range(self, low_factor=(0.0, 1e6), high_factor=(0.0, 1e6))
        if self.scaling == "llama3" and self.low_factor >= self.high_factor:
            first, second = f"low_factor = {self.low_factor}", f"high_factor = {self.high_factor}"
            raise conflict(first, second, "the first must be smaller")

    def rotated(self, width: int) -> int:
        """How many rows of a head of this width are rotated; if it is odd, so is one more, as in `transformers`."""
        return int(width * self.partial)


@dataclass(frozen=True, kw_only=True)
class RelativeConfig:
    """T5's learned bias per head and bucket of distance (Raffel et al. 2020)."""

    buckets: int = 32
    max_distance: int = 128

    def __post_init__(self) -> None:
        in_range(self, buckets=(4, MAX_WIDTH), max_distance=(1, MAX_LENGTH))


@dataclass(frozen=True, kw_only=True)
class DistancesConfig:
    """DeBERTa's vectors of distances (He et al. 2021): tokens attend to them, and they to tokens, in every block."""

    buckets: int = 256
    """Rows of the table in each direction: half for near distances, half for all others. 0: a row for each distance."""
    max_distance: int = 512
    norm: bool = True
    """Whether the table is normalised."""

    def __post_init__(self) -> None:
        in_range(self, buckets=(0, MAX_LENGTH), max_distance=(2, MAX_LENGTH))
        if self.buckets == 1 or self.max_distance - 1 <= self.buckets // 2:
            first, second = f"distances.buckets = {self.buckets}", f"distances.max_distance = {self.max_distance}"
            raise conflict(first, second, "half of the buckets, one at least, are for near distances")

    @property
    def rows(self) -> int:
        return 2 * (self.buckets or self.max_distance)


@dataclass(frozen=True, kw_only=True)
class SparseConfig:
    """BigBird's attention pattern (Zaheer et al. 2020): two global blocks, a window of three blocks, random blocks.

    A causal stack has its window to the left, random blocks of the past, and the first block as its only global one.
    """

    block: int = 64
    random: int = 3
    """Random key blocks per query block."""
    seed: int | None = None
    """None: every random block is block 0, which then counts several times, as in evaluation by `transformers`."""

    def __post_init__(self) -> None:
        in_range(self, block=(1, MAX_LENGTH), random=(0, MAX_LAYERS))

    def whole(self, causal: bool) -> int:
        """The longest sequence of which every token sees all, or all before it.

        Short sequences are seen whole as in the paper's code, which needs room for all kinds of blocks.
        """
        return ((4 if causal else 5 + self.random) + self.random) * self.block


@dataclass(frozen=True, kw_only=True)
class ExpertsConfig:
    """Mixture of experts (Shazeer et al. 2017): many feed-forward networks, of which each token takes a few."""

    count: int = 8
    top_k: int = 2
    """Experts of each token: those of the largest probabilities, which weight their outputs."""
    d_ff: int = 256
    """Hidden width of an expert."""
    normalised: bool = True
    """Whether the weights of a token's experts are scaled to sum to 1."""
    shared: int = 0
    """Hidden width of an expert that every token takes besides (Dai et al. 2024); 0: none."""
    shared_gate: bool = False
    """Qwen2-MoE: the shared expert is weighted by a sigmoid of its own."""
    balance: float = 0.001
    """Weight of the loss that keeps experts equally busy (Fedus et al. 2022)."""

    def __post_init__(self) -> None:
        in_range(self, count=(1, MAX_LENGTH), top_k=(1, self.count), d_ff=(1, MAX_WIDTH * 8))
        in_range(self, shared=(0, MAX_WIDTH * 8), balance=(0.0, 1e6))
        if self.shared_gate and not self.shared:
            raise conflict("shared_gate = true", "shared = 0", "the gate is that of the shared expert")


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """What a block has in place of its stack's `window`, `rope` and `experts`, where blocks differ."""

    window: int | None = None
    rope: RopeConfig | None = None
    dense: bool = False
    """A plain feed-forward network in a stack of experts."""


@dataclass(frozen=True, kw_only=True)
class StackConfig:
    """A stack of blocks, with every difference between the families' blocks."""

    d_model: int
    n_layers: int
    n_heads: int
    d_ff: int
    n_kv_heads: int | None = None
    """Grouped-query attention (Ainslie et al. 2023); 1 is multi-query (Shazeer 2019); None is n_heads."""
    d_head: int | None = None
    """Width of one head; None is d_model / n_heads."""
    causal: bool = False
    cross: bool = False
    """Each block has cross-attention to the encoder's output."""
    norm: Literal["layernorm", "rmsnorm", "dyt"] = "layernorm"
    """dyt: Dynamic Tanh (Zhu et al. 2025)."""
    norm_at: Literal["pre", "post", "sandwich", "branch"] = "pre"
    """post: LN(x + f(x)) (2017); pre: x + f(LN(x)) (2019); sandwich: x + LN(f(LN(x))) (Gemma 2); branch: x + LN(f(x))
    (OLMo 2)."""
    first_norm: bool = True
    """Off: the first block's attention reads its input without a norm (ModernBERT)."""
    norm_bias: bool = True
    """Whether a layernorm has a bias."""
    norm_eps: float = 1e-5
    norm_offset: float = 0.0
    """Gemma stores its RMSNorm weights minus one."""
    final_norm: bool = True
    residual: bool = True
    """Off only for experiments without residual connections."""
    residual_scale: float = 1.0
    """Factor on the output of each branch (Granite)."""
    parallel: Literal["none", "one", "two"] = "none"
    """Both branches read the block's input: x + f(LN(x)) + g(LN(x)) (Wang & Komatsuzaki 2021), with one norm or two."""
    layer_scale: float | None = None
    """DINOv2: initial value of a learned factor per channel on each branch (Touvron et al. 2021)."""
    activation: Activation = "gelu"
    gated: bool = False
    """GLU variants (Shazeer 2020): activation(gate) * up."""
    qkv_bias: bool = True
    key_bias: bool = True
    """Whisper has a bias on queries and values but not on keys."""
    out_bias: bool = True
    ffn_bias: bool = True
    scale: float | None = None
    """Factor on q·k; None is 1/√d_head; T5 has 1."""
    softcap: float | None = None
    """Attention scores are cap · tanh(score / cap) (Gemma 2)."""
    qk_norm: Literal["none", "head", "whole"] = "none"
    """A norm on queries and keys of self-attention (Henry et al. 2020): of each head, or of all heads together."""
    window: int | None = None
    """Sliding window: how many tokens a token attends to in each direction, itself included."""
    rope: RopeConfig | None = None
    pattern: tuple[LayerConfig, ...] = ()
    """Where blocks differ: they take these in turn, again and again; `window` and `rope` are then None."""
    shared: bool = False
    """All blocks share the weights of one (Lan et al. 2020)."""
    experts: ExpertsConfig | None = None
    """In place of the feed-forward network."""
    relative: RelativeConfig | None = None
    distances: DistancesConfig | None = None
    alibi: bool = False
    """Linear penalty by distance, one slope per head (Press et al. 2022)."""
    sparse: SparseConfig | None = None
    dropout: float = 0.0
    """On the output of each branch, before the residual addition."""
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    drop_path: float = 0.0
    """Stochastic depth (Huang et al. 2016): the rate of the last block; a branch is left out for a whole sequence."""
    modulation: bool = False
    """adaLN-Zero (Peebles & Xie 2023): shift, scale and gate of each branch follow from the model's `condition`."""

    def __post_init__(self) -> None:
        share, factor = (0.0, 1.0), (-1e6, 1e6)
        in_range(self, d_model=(1, MAX_WIDTH), n_layers=(0, MAX_LAYERS), n_heads=(1, self.d_model))
        in_range(self, d_ff=(1, MAX_WIDTH * 8), n_kv_heads=(1, self.n_heads), d_head=(1, MAX_WIDTH))
        in_range(self, window=(1, MAX_LENGTH), norm_eps=share, norm_offset=factor, layer_scale=factor, scale=factor)
        in_range(self, residual_scale=factor, softcap=(1e-6, 1e6))
        in_range(self, dropout=share, attention_dropout=share, activation_dropout=share, drop_path=share)
        heads = f"n_heads = {self.n_heads}"
        if self.d_head is None and self.d_model % self.n_heads:
            raise conflict(f"d_model = {self.d_model}", heads, "the heads must divide the width")
        if self.n_heads % self.kv_heads:
            raise conflict(heads, f"n_kv_heads = {self.kv_heads}", "the groups must divide the heads")
        if self.rope and self.head_width % 2:
            raise conflict(f"d_head = {self.head_width}", f"rope = {self.rope.theta}", "rope needs an even width")
        if self.distances and (self.kv_heads != self.n_heads or self.sparse):
            rule = "each head has its own keys of distances, for all pairs"
            raise conflict("distances", f"n_kv_heads = {self.kv_heads}, sparse = {self.sparse}", rule)
        if self.sparse and self.window is not None:
            raise conflict("sparse", f"window = {self.window}", "BigBird's pattern has a window of its own")
        if self.modulation and self.norm_at != "pre":
            raise conflict("modulation = true", f"norm_at = {self.norm_at}", "what is modulated is a branch's input")
        self._check_blocks()
        if self.relative and self.relative.max_distance <= self.relative.buckets // (2 if self.causal else 4):
            far, count = f"relative.max_distance = {self.relative.max_distance}", self.relative.buckets
            raise conflict(
                far, f"relative.buckets = {count}", "near distances have a bucket each: set a larger distance"
            )

    def _check_blocks(self) -> None:
        if self.parallel != "none" and (self.norm_at != "pre" or self.cross or not self.first_norm):
            rule = "parallel branches have a norm before them, in every block, and no cross-attention"
            raise conflict(f"parallel = {self.parallel}", f"norm_at = {self.norm_at}", rule)
        if self.parallel != "none" and not self.residual:
            raise conflict(f"parallel = {self.parallel}", "residual = false", "the branches meet where they are added")
        if self.shared and (self.drop_path or not self.first_norm or any(layer.dense for layer in self.pattern)):
            rule = "blocks that share all weights have no drop_path, no first_norm = false and no dense layers"
            raise conflict("shared = true", "blocks that differ", rule)
        if self.pattern and (self.window is not None or self.rope is not None):
            raise conflict("pattern", "window, rope", "the pattern has those of each block")
        if len(self.pattern) > MAX_LAYERS:
            raise ConfigError("C003", f"pattern of {len(self.pattern)} layers is longer than {MAX_LAYERS}")
        for each in range(len(self.pattern)):
            self.layer(each)

    def layer(self, number: int) -> StackConfig:
        """The config of one block, as if all blocks were like it."""
        if not self.pattern:
            return self
        own = self.pattern[number % len(self.pattern)]
        experts = None if own.dense else self.experts
        return replace(self, pattern=(), window=own.window, rope=own.rope, experts=experts)

    @property
    def head_width(self) -> int:
        return self.d_model // self.n_heads if self.d_head is None else self.d_head

    @property
    def kv_heads(self) -> int:
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads


@dataclass(frozen=True, kw_only=True)
class PositionConfig:
    """Position embeddings of the input; rotary positions, ALiBi and T5's bias belong to the stack."""

    kind: Literal["none", "learned", "sinusoidal"] = "learned"
    length: int = 512
    """Rows of the learned table; a sinusoidal table grows as needed."""
    offset: int = 0
    """The first position: BART and RoBERTa leave the first rows of the table unused, M2M-100 the first sines."""
    layout: Literal["interleaved", "halves", "fairseq"] = "interleaved"
    """sinusoidal: sine and cosine alternate (2017), or all sines come first (Marian); fairseq: these too, and the last
    frequency is exactly 1/10,000 (M2M-100)."""
    every_layer: bool = False
    """Add the positions before every block, not only to the input."""

    def __post_init__(self) -> None:
        in_range(self, length=(1, MAX_LENGTH), offset=(0, MAX_LENGTH))


@dataclass(frozen=True, kw_only=True)
class TokensConfig:
    """Front end for token ids: embeddings and positions."""

    kind: Literal["tokens"] = "tokens"
    vocab: int
    positions: PositionConfig = field(default_factory=PositionConfig)
    width: int | None = None
    """Width of the tables, if a linear map makes the model's own width of it (Lan et al. 2020)."""
    project: Literal["last", "first"] = "last"
    """last: the map, with a bias, follows positions, token types and norm; first: the map, without one, is of the token
    vectors alone (OPT)."""
    segments: int = 0
    """Rows of the segment table (BERT): sentence A and sentence B."""
    scale: float = 1.0
    """Factor on the embeddings: √d_model in the 2017 paper."""
    norm: bool = False
    norm_bias: bool = True
    norm_eps: float = 1e-5
    dropout: float = 0.0

    def __post_init__(self) -> None:
        in_range(self, vocab=(1, MAX_VOCAB), width=(1, MAX_WIDTH), segments=(0, MAX_VOCAB), scale=(-1e6, 1e6))
        in_range(self, norm_eps=(0.0, 1.0), dropout=(0.0, 1.0))
        if self.width is not None and self.project == "last" and self.positions.every_layer:
            rule = "positions that blocks add are as wide as the model"
            raise conflict(f"width = {self.width}", "positions.every_layer = true", rule)


@dataclass(frozen=True, kw_only=True)
class PatchesConfig:
    """Front end for images: patches, a linear map, and what ViT has: a class token, learned positions."""

    kind: Literal["patches"] = "patches"
    holds: Literal["images", "log_mel"] = "images"
    """What is cut into patches: images, or the log-mel spectrograms of sounds (Gong et al. 2021)."""
    image: int = 224
    """Side of a square, or height of a rectangle: the bands of a spectrogram."""
    columns: int = 0
    """Width of a rectangle: the frames of a spectrogram; 0: a square."""
    patch: int = 16
    """Side of a square patch, or height of a rectangle."""
    patch_columns: int = 0
    """Width of a patch that is no square; 0: a square."""
    channels: int = 3
    mask_token: bool = False
    """DINOv2: a learned vector in place of masked patches."""
    class_token: bool = True
    positions: Literal["learned", "sincos"] = "learned"
    """sincos: DiT's fixed sines and cosines of column and row."""
    distillation: bool = False
    """DeiT: a second learned token after the class token, which learns from a teacher (Touvron et al. 2021)."""
    bias: bool = True
    """CLIP's map of patches has no bias."""
    norm: bool = False
    """CLIP: a norm between the positions and the first block."""
    norm_eps: float = 1e-5
    dropout: float = 0.0

    def __post_init__(self) -> None:
        in_range(self, image=(1, 1 << 14), patch=(1, self.image), channels=(1, 1 << 12), dropout=(0.0, 1.0))
        in_range(self, norm_eps=(0.0, 1.0), columns=(0, 1 << 14), patch_columns=(0, self.shape[2]))
        if self.positions == "sincos" and (self.columns or self.patch_columns):
            raise conflict('positions = "sincos"', "columns", "fixed positions are those of a square")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of what is cut into patches."""
        return self.channels, self.image, self.columns or self.image

    @property
    def patch_shape(self) -> tuple[int, int]:
        """Height and width of a patch."""
        return self.patch, self.patch_columns or self.patch

    @property
    def count(self) -> int:
        return (self.shape[1] // self.patch_shape[0]) * (self.shape[2] // self.patch_shape[1])

    @property
    def leading(self) -> int:
        """Learned tokens before the patches."""
        return self.class_token + self.distillation


@dataclass(frozen=True, kw_only=True)
class FramesConfig:
    """Front end for mel spectrograms: two convolutions, the second halving time (Whisper)."""

    kind: Literal["frames"] = "frames"
    channels: int = 80
    positions: PositionConfig = field(default_factory=lambda: PositionConfig(length=1500))
    dropout: float = 0.0

    def __post_init__(self) -> None:
        in_range(self, channels=(1, 1 << 12), dropout=(0.0, 1.0))


FrontConfig = TokensConfig | PatchesConfig | FramesConfig | SamplesConfig | WavesConfig


@dataclass(frozen=True, kw_only=True)
class ConditionConfig:
    """Front end for what a whole sequence is conditioned on: the time of a diffusion process, and a class (DiT)."""

    classes: int = 0
    """Rows of the class table, besides the last row, which stands for no class (Ho & Salimans 2022)."""
    frequencies: int = 256
    """Sines and cosines of the time."""

    def __post_init__(self) -> None:
        in_range(self, classes=(0, MAX_VOCAB), frequencies=(2, MAX_WIDTH))


@dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """Ids of special tokens, as in config.json."""

    pad: int | None = None
    bos: int | None = None
    eos: int | tuple[int, ...] | None = None
    start: int | None = None
    """The first token of an encoder–decoder's decoder (decoder_start_token_id)."""

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """All end-of-sequence ids: chat models have several."""
        return () if self.eos is None else (self.eos,) if isinstance(self.eos, int) else tuple(self.eos)


@dataclass(frozen=True, kw_only=True)
class DistillConfig:
    """Self-distillation (DINO, Caron et al. 2021): a teacher beside the model, and a projection head for both."""

    outputs: int
    hidden: int
    bottleneck: int

    def __post_init__(self) -> None:
        in_range(self, outputs=(2, MAX_VOCAB), hidden=(1, MAX_WIDTH), bottleneck=(1, MAX_WIDTH))


@dataclass(frozen=True, kw_only=True)
class InitConfig:
    """Initialisation. normal: BERT, ViT; residual: GPT-2's 1/√(2·layers) on branch outputs; xavier: 2017; t5."""

    kind: Literal["normal", "residual", "xavier", "t5"] = "normal"
    std: float = 0.02

    def __post_init__(self) -> None:
        in_range(self, std=(0.0, 1e3))


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A model: one or two stacks, their front ends, and heads."""

    encoder: StackConfig | None = None
    decoder: StackConfig | None = None
    source: FrontConfig | None = None
    """Front end of the encoder."""
    target: TokensConfig | None = None
    """Front end of the decoder."""
    shared_embedding: bool = False
    """Encoder and decoder share one token table."""
    condition: ConditionConfig | None = None
    """What `encoder.modulation` follows from."""
    lm: LMHeadConfig | None = None
    nsp: ClassifyHeadConfig | None = None
    """Next-sentence prediction, beside `lm` in BERT's pretraining."""
    classify: ClassifyHeadConfig | None = None
    tag: TagHeadConfig | None = None
    span: SpanHeadConfig | None = None
    denoise: DenoiseHeadConfig | None = None
    distill: DistillConfig | None = None
    """Of a model in training only: its run saves the teacher alone."""
    special: SpecialTokens = field(default_factory=SpecialTokens)
    labels: tuple[str, ...] = ()
    init: InitConfig = field(default_factory=InitConfig)
    family: str = "headway"
    """Layout of the files: a model_type of `transformers`, or headway's own."""
    quantization: Literal["none", "int8"] = "none"
    """int8: large matrices as 8-bit integers. Such a model cannot be trained, nor read by `transformers`."""

    def __post_init__(self) -> None:
        if not (self.encoder or self.decoder):
            raise ConfigError("C004", "a model needs an encoder, a decoder or both")
        for stack, front in (("encoder", "source"), ("decoder", "target")):
            if bool(getattr(self, stack)) != bool(getattr(self, front)):
                raise ConfigError("C004", f"{stack} and {front}, its front end: give both or neither")
        cross = self.decoder is not None and self.decoder.cross
        if cross != (self.encoder is not None and self.decoder is not None):
            raise ConfigError("C004", "decoder.cross must be true with an encoder, and false without one")
        if self.encoder and self.decoder and self.encoder.d_model != self.decoder.d_model:
            first, second = f"encoder.d_model = {self.encoder.d_model}", f"decoder.d_model = {self.decoder.d_model}"
            raise conflict(first, second, "they must be equal")
        if self.shared_embedding and not (
            isinstance(self.source, TokensConfig)
            and self.target
            and (self.source.vocab, self.source.width) == (self.target.vocab, self.target.width)
        ):
            raise ConfigError("C004", "shared_embedding needs two token front ends of one vocabulary size and width")
        if self.lm and not isinstance(self.output_front, TokensConfig):
            raise ConfigError("C004", "an lm head needs a token front end on the stack whose output it reads")
        self._check_denoising()

    def _check_denoising(self) -> None:
        modulated = self.encoder is not None and self.encoder.modulation
        if modulated != (self.condition is not None) or (self.decoder is not None and self.decoder.modulation):
            raise ConfigError("C004", "encoder.modulation and condition: give both or neither; a decoder has neither")
        front = self.source
        if self.denoise and not (
            isinstance(front, PatchesConfig) and not front.class_token and front.patch == self.denoise.patch
        ):
            raise ConfigError("C004", "a denoise head needs a front end of patches of its size, without a class token")
        if isinstance(front, PatchesConfig) and front.positions == "sincos" and self.output_stack.d_model % 4:
            width = f"d_model = {self.output_stack.d_model}"
            raise conflict("source.positions = sincos", width, "the width must be a multiple of 4")

    @property
    def output_stack(self) -> StackConfig:
        """The stack whose output the heads read."""
        stack = self.decoder or self.encoder
        assert stack is not None
        return stack

    @property
    def output_front(self) -> FrontConfig:
        front = self.target or self.source
        assert front is not None
        return front

    @property
    def kind(self) -> Literal["encoder", "decoder", "encoder-decoder"]:
        if self.encoder and self.decoder:
            return "encoder-decoder"
        return "decoder" if self.decoder else "encoder"

    @property
    def max_length(self) -> int | None:
        """The longest sequence of the output stack; None if nothing limits it."""
        return max_positions(self.output_front)


def max_positions(front: object) -> int | None:
    """The number of positions of a front end; None if nothing limits them."""
    if isinstance(front, PatchesConfig):
        return front.count + front.leading
    if not isinstance(front, TokensConfig | FramesConfig):
        return None
    return front.positions.length if front.positions.kind == "learned" else None
