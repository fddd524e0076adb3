"""The ModelConfig for a recipe's `model` section. No torch here."""

from __future__ import annotations

from dataclasses import replace

from headway.config.model import (
    ClassifyHeadConfig,
    ConditionConfig,
    DenoiseHeadConfig,
    FramesConfig,
    InitConfig,
    LMHeadConfig,
    ModelConfig,
    PatchesConfig,
    PositionConfig,
    RelativeConfig,
    RopeConfig,
    SparseConfig,
    SpecialTokens,
    StackConfig,
    TagHeadConfig,
    TokensConfig,
)
from headway.config.networks.baseline import BaselineConfig
from headway.config.networks.fusion import FusionConfig, FusionMode
from headway.config.networks.graph import GraphConfig, GraphShape, Level, NodesConfig, Problem
from headway.config.networks.kinds import AnyConfig
from headway.config.networks.memory import MemoryConfig, MemoryShape, StoryConfig
from headway.config.networks.series import Cell, SeriesConfig
from headway.config.networks.towers import TwoTowersConfig
from headway.config.recipe import ShapeConfig
from headway.errors import ConfigError

MARIAN_POSITIONS = 512
"""Sinusoidal positions have no limit, but Marian in `transformers` has a table of them."""


def decoder_config(shape: ShapeConfig, vocab: int, length: int) -> AnyConfig:
    """A language model: Llama's layout if the shape is Llama's, Mistral's with a window, else GPT-2's."""
    if shape.kind != "transformer":
        return baseline_config(shape, vocab, length)
    stack = _stack(shape, causal=True, tokens=length)
    llama = shape.positions == "rope" and shape.norm == "rmsnorm" and shape.activation == "silu" and not shape.bias
    if llama and shape.gated:
        stack = replace(stack, n_kv_heads=stack.kv_heads)  # Llama's files always state it
    front = TokensConfig(
        vocab=vocab, positions=_positions(shape, length), scale=_embedding_scale(shape, stack), dropout=shape.dropout
    )
    return ModelConfig(
        decoder=stack,
        target=front,
        lm=LMHeadConfig(tied=shape.tied),
        init=InitConfig(kind="residual"),
        family=("llama" if shape.window is None else "mistral") if llama and shape.gated else "gpt2",
    )


def _embedding_scale(shape: ShapeConfig, stack: StackConfig) -> float:
    """√width beside sines, which are of size 1 (2017): smaller word vectors would drown in them for long."""
    return float(stack.d_model) ** 0.5 if shape.positions == "sinusoidal" else 1.0


def encoder_config(shape: ShapeConfig, vocab: int, length: int) -> ModelConfig:
    """An encoder. norm_at = "post" is BERT's layout: norms after each branch and after the embeddings, none at the end.

    The task adds its heads.
    """
    front = TokensConfig(
        vocab=vocab,
        positions=_positions(shape, length),
        segments=2,
        norm=shape.norm_at == "post",
        norm_eps=1e-12,
        dropout=shape.dropout,
    )
    return ModelConfig(encoder=_stack(shape, eps=1e-12, tokens=length), source=front, family="bert")


def vision_config(shape: ShapeConfig, size: int, channels: int) -> ModelConfig:
    """An encoder of images in ViT's layout; the task adds its heads. Positions are learned, as the family has them."""
    front = PatchesConfig(image=size, patch=_patch(shape, size), channels=channels, dropout=shape.dropout)
    tokens = front.count + front.leading
    return ModelConfig(encoder=_stack(shape, eps=1e-12, tokens=tokens), source=front, family="vit")


def sound_config(shape: ShapeConfig, mels: int, frames: int, patch_frames: int = 0) -> ModelConfig:
    """An encoder of log-mel spectrograms in ViT's layout, as AST (Gong et al. 2021); the task adds its heads.

    `patch_frames` is the width of a patch in frames; 0: as many as it has bands.
    """
    patch = _patch(replace(shape, patch=shape.patch or min(16, mels)), mels)
    if max(patch_frames, 1) > frames or (not patch_frames and patch > frames):
        raise ConfigError("C004", f"a patch of {patch_frames or patch} frames is longer than a clip of {frames} frames")
    wide = 0 if patch_frames == patch else patch_frames
    front = PatchesConfig(
        holds="log_mel",
        image=mels,
        columns=frames,
        patch=patch,
        patch_columns=wide,
        channels=1,
        dropout=shape.dropout,
    )
    return ModelConfig(encoder=_stack(shape, eps=1e-12), source=front)


def fusion_config(shape: ShapeConfig, mode: FusionMode, image: PatchesConfig, sound: PatchesConfig) -> FusionConfig:
    """Encoders of images and sounds; late fusion has half as many blocks with cross-attention on top of them."""
    stack = _stack(shape, eps=1e-12)
    joint = replace(stack, cross=True, n_layers=max(1, stack.n_layers // 2)) if mode == "late" else None
    return FusionConfig(fusion=mode, image=image, sound=sound, encoder=stack, joint=joint)


def diffusion_config(shape: ShapeConfig, size: int, channels: int, classes: int) -> ModelConfig:
    """DiT (Peebles & Xie 2023) on pixels: an encoder of noisy images with fixed positions, modulated by time and class.

    No family of `transformers` has it.
    """
    patch = _patch(shape, size)
    if size % patch:
        raise ConfigError("C004", f"model.patch = {patch} does not divide the images, which have {size} pixels a side")
    return ModelConfig(
        encoder=replace(_stack(shape, eps=1e-6), modulation=True),
        source=PatchesConfig(
            image=size, patch=patch, channels=channels, class_token=False, positions="sincos", dropout=shape.dropout
        ),
        condition=ConditionConfig(classes=classes),
        denoise=DenoiseHeadConfig(patch=patch, channels=channels),
        init=InitConfig(kind="xavier"),
    )


def _patch(shape: ShapeConfig, size: int) -> int:
    """The side of the patches of a new model for images."""
    if shape.positions != "learned":
        what = f"model.positions = {shape.positions}"
        raise ConfigError("C004", f"{what} is for text: the patches of an image have positions of their own")
    patch = shape.patch or default_patch(size)
    if patch > size:
        raise ConfigError("C004", f"model.patch = {patch} is larger than the images, which have {size} pixels a side")
    return patch


def caption_config(
    shape: ShapeConfig, images: PatchesConfig, vocab: int, length: int, special: SpecialTokens
) -> ModelConfig:
    """An encoder of images and a decoder of texts, both of one shape; in headway's own layout."""
    decoder = replace(_stack(shape, causal=True), cross=True)
    layers = shape.depth if shape.encoder_depth is None else shape.encoder_depth
    return ModelConfig(
        encoder=replace(_stack(shape), n_layers=layers, final_norm=True),
        decoder=decoder,
        source=images,
        target=TokensConfig(vocab=vocab, positions=_positions(shape, length), dropout=shape.dropout),
        lm=LMHeadConfig(tied=shape.tied),
        special=special,
    )


def speech_config(
    shape: ShapeConfig, frames: int, mels: int, vocab: int, length: int, special: SpecialTokens
) -> ModelConfig:
    """An encoder of mel frames and a decoder of texts, both of one shape; Whisper's layout where that can express it.

    The encoder's positions are learned, as in Whisper's files, unless model.positions is sinusoidal.
    """
    fixed = shape.positions == "sinusoidal"
    decoder = replace(_stack(shape, causal=True), cross=True, key_bias=not _whisper_like(shape))
    layers = shape.depth if shape.encoder_depth is None else shape.encoder_depth
    encoder = replace(decoder, n_layers=layers, causal=False, cross=False, final_norm=True)
    where = PositionConfig(kind="sinusoidal" if fixed else "learned", length=frames // 2)
    return ModelConfig(
        encoder=encoder,
        decoder=decoder,
        source=FramesConfig(channels=mels, positions=where, dropout=shape.dropout),
        target=TokensConfig(vocab=vocab, positions=_positions(shape, length), dropout=shape.dropout),
        lm=LMHeadConfig(tied=shape.tied),
        special=special,
        init=InitConfig(kind="xavier"),  # with smaller weights a small model listens to nothing for long
        family="whisper" if _whisper_like(shape) else "headway",
    )


def _whisper_like(shape: ShapeConfig) -> bool:
    """Whether a model of this shape is one that Whisper's layout can express."""
    block = shape.norm == "layernorm" and shape.norm_at == "pre" and shape.residual and shape.bias and shape.scaled
    return (
        block and shape.positions == "learned" and not shape.gated and shape.kv_heads is None and shape.window is None
    )


def towers_config(
    shape: ShapeConfig, images: PatchesConfig, vocab: int, length: int, special: SpecialTokens
) -> TwoTowersConfig:
    """A tower for images and a causal one for texts, of one shape, in CLIP's layout; the shared space is as wide."""
    stack = _stack(shape, causal=True)
    front = replace(images, bias=False, norm=True)
    tokens = TokensConfig(vocab=vocab, positions=_positions(shape, length), dropout=shape.dropout)
    image = ModelConfig(encoder=replace(stack, causal=False), source=front, family="clip_vision_model")
    return TwoTowersConfig(
        image=image,
        text=ModelConfig(encoder=stack, source=tokens, family="clip_text_model"),
        projection=stack.d_model,
        special=special,
    )


def series_config(
    shape: ShapeConfig, *, causal: bool, look_back: int, horizon: int, patch: int, stride: int, channels: int = 0
) -> SeriesConfig:
    """A model of series; the task adds what it predicts. A recurrent network is causal."""
    if shape.kind == "conv" or shape.positions == "sinusoidal":
        what = "kind = conv" if shape.kind == "conv" else "positions = sinusoidal"
        raise ConfigError("C004", f"model.{what} is for text: patches of time have learned positions, or the block's")
    assert shape.kind != "ngram"  # refused by the recipe
    cell: Cell = "" if shape.kind == "transformer" else shape.kind
    return SeriesConfig(
        stack=_stack(replace(shape, heads=1, kv_heads=None) if cell else shape, causal=causal or bool(cell)),
        look_back=look_back,
        horizon=horizon,
        patch=patch,
        stride=patch if causal or cell else stride,
        channels=channels,
        positions="learned" if shape.positions == "learned" and not cell else "none",
        cell=cell,
        dropout=shape.dropout,
    )


def graph_config(
    shape: ShapeConfig, graph: GraphShape, nodes: NodesConfig, level: Level, problem: Problem, labels: tuple[str, ...]
) -> GraphConfig:
    """A model of graphs: a transformer, or a network of the same width and depth that it is compared with."""
    if shape.positions not in ("learned", "none") or shape.window:
        raise ConfigError("C004", "model.positions and model.window are for text: nodes of a graph have no order")
    virtual = graph.pool == "virtual" and graph.network == "transformer"
    whole = ClassifyHeadConfig(
        labels=len(labels), pool="first" if virtual else "mean", dropout=graph.dropout, several=problem == "multi"
    )
    return GraphConfig(
        layer="attention" if graph.network == "transformer" else graph.network,
        level=level,
        problem=problem,
        encoder=_stack(shape),
        source=nodes,
        distance=graph.distance,
        hops=graph.hops,
        edge_dropout=graph.edge_dropout,
        classify=whole if level == "graph" else None,
        tag=TagHeadConfig(labels=len(labels), dropout=graph.dropout) if level == "node" else None,
        labels=labels,
    )


def memory_config(
    shape: ShapeConfig, memory: MemoryShape, stories: StoryConfig, labels: tuple[str, ...]
) -> MemoryConfig:
    """A model that answers questions about stories: a memory network as wide as model.width, or a transformer."""
    if shape.positions != "learned" or shape.window:
        raise ConfigError(
            "C004", "model.positions and model.window are for text: words of a story have ages and places"
        )
    transformer = memory.network == "transformer"
    stack = _stack(shape, eps=1e-12)
    return MemoryConfig(
        source=stories,
        labels=labels,
        width=stack.d_model,
        n_hops=memory.hops,
        tying=memory.tying,
        position_encoding=memory.position_encoding,
        temporal_encoding=memory.temporal_encoding,
        relu=memory.relu,
        linear_start=memory.linear_start > 0,
        encoder=stack if transformer else None,
        classify=ClassifyHeadConfig(labels=len(labels), dropout=shape.dropout) if transformer else None,
        dropout=shape.dropout,
    )


def default_patch(size: int) -> int:
    """The side of a patch: about eight along each side of an image, and never more than 16 pixels."""
    fits = [patch for patch in range(1, 17) if size % patch == 0 and size // patch >= 7]
    return max(fits, default=1)


def seq2seq_config(shape: ShapeConfig, vocab: int, length: int) -> AnyConfig:
    """The transformer of 2017: encoder, decoder and output share one token table, scaled by √width.

    Learned positions give BART's layout, others Marian's; headway's own layout takes what neither can express.
    """
    if shape.kind != "transformer":
        return baseline_config(shape, vocab, length, reads=True)
    decoder = replace(_stack(shape, causal=True, tokens=length), cross=True, final_norm=shape.norm_at == "pre")
    encoder = replace(
        _stack(shape, tokens=length), n_layers=shape.depth if shape.encoder_depth is None else shape.encoder_depth
    )
    learned = shape.positions == "learned"
    where = _positions(shape, length if learned else max(length, MARIAN_POSITIONS))
    front = TokensConfig(
        vocab=vocab,
        positions=replace(where, layout="interleaved" if learned else "halves", offset=2 * learned),
        scale=float(encoder.d_model) ** 0.5,
        norm=learned and shape.norm_at == "post",
        dropout=shape.dropout,
    )
    return ModelConfig(
        encoder=encoder,
        decoder=decoder,
        source=front,
        target=front,
        shared_embedding=True,
        lm=LMHeadConfig(tied=shape.tied, bias="fixed"),
        init=InitConfig(kind="xavier"),
        family="bart" if learned else "marian",
    )


def baseline_config(shape: ShapeConfig, vocab: int, length: int, *, reads: bool = False) -> BaselineConfig:
    """A recurrent or convolutional network; with `reads` an encoder–decoder that shares one token table."""
    assert shape.kind != "transformer" and shape.kind != "ngram"
    learned = shape.kind == "conv"  # a recurrent network needs no positions
    width, inputs = shape.width or 64 * shape.depth, shape.input_dropout
    inputs = shape.dropout if inputs is None else inputs
    front = TokensConfig(
        vocab=vocab,
        positions=PositionConfig(kind="learned" if learned else "none", length=length),
        dropout=0.0 if shape.locked_dropout else inputs,
    )
    return BaselineConfig(
        network=shape.kind,
        width=width,
        depth=shape.depth,
        source=front if reads else None,
        target=front,
        shared_embedding=reads,
        attention=shape.attention,
        # As published: the GRU's decoder reads the encoder's state at every step (Cho et al. 2014); those of LSTM and
        # Elman network only start from it (Sutskever et al. 2014).
        context=reads and shape.kind == "gru" and shape.attention == "none",
        bidirectional=shape.bidirectional,
        kernel=shape.kernel,
        dropout=shape.dropout,
        lm=LMHeadConfig(tied=shape.tied, bias="trained"),
        embedding=None if shape.embedding == width else shape.embedding,
        cell_norm=shape.cell_norm,
        locked_dropout=shape.locked_dropout,
        input_dropout=inputs if shape.locked_dropout else 0.0,
        layer_dropout=shape.layer_dropout,
        word_dropout=shape.word_dropout,
        weight_dropout=shape.weight_dropout,
        ar=shape.ar,
        tar=shape.tar,
    )


def _stack(shape: ShapeConfig, *, causal: bool = False, eps: float = 1e-5, tokens: int | None = None) -> StackConfig:
    """`tokens`: the longest sequence of a model that may have a sparse pattern."""
    width = shape.width or 64 * shape.depth
    where = shape.positions
    return StackConfig(
        d_model=width,
        n_layers=shape.depth,
        n_heads=shape.heads or max(1, width // 64),
        n_kv_heads=shape.kv_heads,
        d_ff=shape.ff or 4 * width,
        causal=causal,
        norm=shape.norm,
        norm_at=shape.norm_at,
        norm_eps=eps,
        final_norm=causal or shape.norm_at == "pre",
        residual=shape.residual,
        activation=shape.activation,
        gated=shape.gated,
        qkv_bias=shape.bias,
        out_bias=shape.bias,
        ffn_bias=shape.bias,
        scale=None if shape.scaled else 1.0,
        window=shape.window,
        sparse=None if shape.sparse is None else _sparse(shape, causal, tokens),
        rope=RopeConfig() if where == "rope" else None,
        relative=RelativeConfig() if where == "relative" else None,
        alibi=where == "alibi",
        dropout=shape.dropout,
        attention_dropout=shape.dropout,
        drop_path=shape.drop_path,
    )


def _sparse(shape: ShapeConfig, causal: bool, tokens: int | None) -> SparseConfig:
    """BigBird's pattern, if some token of so many sees fewer than all."""
    assert shape.sparse is not None
    if tokens is None:
        raise ConfigError("C004", "model.sparse is for text and for the patches of an image")
    pattern = SparseConfig(block=shape.sparse, random=shape.random_blocks, seed=0 if shape.random_blocks else None)
    if tokens <= (least := pattern.whole(causal)):
        what = f"model.sparse = {shape.sparse} with model.random_blocks = {shape.random_blocks} covers {least:,} tokens"
        hint = "take longer sequences, smaller blocks or fewer random ones, or leave model.sparse out"
        raise ConfigError("C004", f"{what}, and sequences have {tokens:,}: every token would see all", hint)
    return pattern


def _positions(shape: ShapeConfig, length: int) -> PositionConfig:
    if shape.positions == "learned" or shape.positions == "sinusoidal":
        return PositionConfig(kind=shape.positions, length=length)
    return PositionConfig(kind="none", length=length)
