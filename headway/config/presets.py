"""Presets: functions that return the ModelConfig of a known model, with its paper. No torch here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headway.config.model import (
    ClassifyHeadConfig,
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
    TokensConfig,
)
from headway.errors import NotFoundError, nearest


def gpt2(layers: int = 12, width: int = 768, heads: int = 12, vocab: int = 50257, length: int = 1024) -> ModelConfig:
    """Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"."""
    stack = StackConfig(
        d_model=width, n_layers=layers, n_heads=heads, d_ff=4 * width, causal=True, activation="gelu_tanh",
        dropout=0.1, attention_dropout=0.1,
    )  # fmt: skip
    end = vocab - 1
    return ModelConfig(
        decoder=stack,
        target=TokensConfig(vocab=vocab, positions=PositionConfig(length=length), dropout=0.1),
        lm=LMHeadConfig(),
        special=SpecialTokens(bos=end, eos=end),
        init=InitConfig(kind="residual"),
        family="gpt2",
    )


def llama(
    layers: int, width: int, heads: int, kv_heads: int, ff: int, vocab: int = 128256, *, tied: bool = False
) -> ModelConfig:
    """Touvron et al. 2023, "LLaMA"; sizes of Llama 3 (Grattafiori et al. 2024)."""
    rope = RopeConfig(theta=500_000.0)
    stack = StackConfig(
        d_model=width, n_layers=layers, n_heads=heads, n_kv_heads=kv_heads, d_head=width // heads, d_ff=ff,
        causal=True, norm="rmsnorm", activation="silu", gated=True, qkv_bias=False, out_bias=False,
        ffn_bias=False, rope=rope,
    )  # fmt: skip
    front = TokensConfig(vocab=vocab, positions=PositionConfig(kind="none", length=8192))
    return ModelConfig(decoder=stack, target=front, lm=LMHeadConfig(tied=tied), family="llama")


def bert(layers: int = 12, width: int = 768, heads: int = 12, vocab: int = 30522, length: int = 512) -> ModelConfig:
    """Devlin et al. 2019, "BERT": with both pretraining heads."""
    stack = StackConfig(
        d_model=width, n_layers=layers, n_heads=heads, d_ff=4 * width, norm_at="post", norm_eps=1e-12,
        final_norm=False, dropout=0.1, attention_dropout=0.1,
    )  # fmt: skip
    front = TokensConfig(
        vocab=vocab,
        positions=PositionConfig(length=length),
        segments=2,
        norm=True,
        norm_eps=1e-12,
        dropout=0.1,
    )
    return ModelConfig(
        encoder=stack,
        source=front,
        lm=LMHeadConfig(transform="gelu", bias="trained"),
        nsp=ClassifyHeadConfig(labels=2, dense="tanh"),
        special=SpecialTokens(pad=0),
        family="bert",
    )


def bigbird(layers: int = 12, width: int = 768, heads: int = 12, block: int = 64) -> ModelConfig:
    """Zaheer et al. 2020, "Big Bird: Transformers for Longer Sequences"."""
    base = bert(layers, width, heads, vocab=50358, length=4096)
    assert base.encoder is not None
    stack = replace(base.encoder, sparse=SparseConfig(block=block), activation="gelu_tanh")
    head = LMHeadConfig(transform="gelu_tanh", bias="trained")
    return replace(base, encoder=stack, lm=head, family="big_bird")


def transformer(layers: int = 6, width: int = 512, heads: int = 8, ff: int = 2048, dropout: float = 0.1) -> ModelConfig:
    """Vaswani et al. 2017, "Attention Is All You Need"; vocabulary of the English–German task."""
    stack = StackConfig(
        d_model=width, n_layers=layers, n_heads=heads, d_ff=ff, norm_at="post", final_norm=False,
        activation="relu", dropout=dropout,
    )  # fmt: skip
    front = TokensConfig(
        vocab=37000, positions=PositionConfig(kind="sinusoidal"), scale=float(width) ** 0.5, dropout=dropout
    )
    return ModelConfig(
        encoder=stack,
        decoder=replace(stack, causal=True, cross=True),
        source=front,
        target=front,
        shared_embedding=True,
        lm=LMHeadConfig(),
        special=SpecialTokens(pad=0, bos=1, eos=2, start=1),
        init=InitConfig(kind="xavier"),
    )


def t5(layers: int = 6, width: int = 512, heads: int = 8, ff: int = 2048) -> ModelConfig:
    """Raffel et al. 2020, "Exploring the Limits of Transfer Learning" (version 1.0)."""
    stack = StackConfig(
        d_model=width, n_layers=layers, n_heads=heads, d_head=64, d_ff=ff, norm="rmsnorm", norm_eps=1e-6,
        activation="relu", qkv_bias=False, out_bias=False, ffn_bias=False, scale=1.0, relative=RelativeConfig(),
        dropout=0.1, attention_dropout=0.1, activation_dropout=0.1,
    )  # fmt: skip
    front = TokensConfig(vocab=32128, positions=PositionConfig(kind="none"), dropout=0.1)
    return ModelConfig(
        encoder=stack,
        decoder=replace(stack, causal=True, cross=True),
        source=front,
        target=front,
        shared_embedding=True,
        lm=LMHeadConfig(scale=float(width) ** -0.5),
        special=SpecialTokens(pad=0, eos=1, start=0),
        init=InitConfig(kind="t5"),
        family="t5",
    )


def vit(
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    *,
    image: int = 224,
    patch: int = 16,
    labels: int = 1000,
) -> ModelConfig:
    """Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words"."""
    stack = StackConfig(d_model=width, n_layers=layers, n_heads=heads, d_ff=4 * width, norm_eps=1e-12)
    return ModelConfig(
        encoder=stack,
        source=PatchesConfig(image=image, patch=patch),
        classify=ClassifyHeadConfig(labels=labels),
        labels=tuple(f"LABEL_{i}" for i in range(labels)),
        family="vit",
    )


def whisper(layers: int = 4, width: int = 384, heads: int = 6, vocab: int = 51865) -> ModelConfig:
    """Radford et al. 2022, "Robust Speech Recognition via Large-Scale Weak Supervision"."""
    stack = StackConfig(d_model=width, n_layers=layers, n_heads=heads, d_ff=4 * width, key_bias=False)
    return ModelConfig(
        encoder=stack,
        decoder=replace(stack, causal=True, cross=True),
        source=FramesConfig(),
        target=TokensConfig(vocab=vocab, positions=PositionConfig(length=448)),
        lm=LMHeadConfig(),
        special=SpecialTokens(pad=50257, bos=50257, eos=50257, start=50258),
        family="whisper",
    )


PRESETS: dict[str, Callable[[], ModelConfig]] = {
    "gpt2-tiny": lambda: gpt2(4, 128, 4, vocab=512, length=256),
    "gpt2": gpt2,
    "gpt2-medium": lambda: gpt2(24, 1024, 16),
    "gpt2-large": lambda: gpt2(36, 1280, 20),
    "gpt2-xl": lambda: gpt2(48, 1600, 25),
    "gpt3": lambda: gpt2(96, 12288, 96, length=2048),  # Brown et al. 2020
    "llama-tiny": lambda: llama(4, 128, 4, 2, 352, vocab=512),
    "llama-1b": lambda: llama(16, 2048, 32, 8, 8192, tied=True),
    "llama-8b": lambda: llama(32, 4096, 32, 8, 14336),
    "bert-tiny": lambda: bert(2, 128, 2, length=128),
    "bert-base": bert,
    "bert-large": lambda: bert(24, 1024, 16),
    "bigbird-base": bigbird,
    "transformer-base": transformer,
    "transformer-big": lambda: transformer(6, 1024, 16, 4096, dropout=0.3),
    "t5-small": t5,
    "t5-base": lambda: t5(12, 768, 12, 3072),
    "vit-tiny": lambda: vit(4, 128, 4, image=32, patch=4, labels=10),
    "vit-b16": vit,
    "vit-l16": lambda: vit(24, 1024, 16),
    "whisper-tiny": whisper,
    "whisper-base": lambda: whisper(6, 512, 8),
}
"""The names of the presets on the command line."""


def preset(name: str) -> ModelConfig:
    """The config of a preset."""
    if name not in PRESETS:
        raise NotFoundError("F001", f'no preset "{name}"{nearest(name, PRESETS)}', f"there are {', '.join(PRESETS)}")
    return PRESETS[name]()
