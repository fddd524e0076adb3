"""The sections of a recipe that all tasks share: data, model, train. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from headway.config.model import Activation
from headway.config.networks.ngram import MAX_ORDER
from headway.config.ranges import Range, above_zero, at_least, check_encoding, conflict, shares, within
from headway.errors import ConfigError

RUNS = "runs"
"""Where runs are kept, and where `last` is looked for."""
UTF_8 = "utf-8"
RECURRENT = ("elman", "gru", "lstm")
"""Kinds of networks whose state is all that they know of the past."""
RUNNING = ("stream", "carry")
"""Values of data.rows for which documents stand end to end."""
RECURRENT_SHARES = ("input_dropout", "layer_dropout", "word_dropout", "weight_dropout")
RECURRENT_SETTINGS = ("embedding", "cell_norm", "locked_dropout", *RECURRENT_SHARES, "ar", "tar")
"""Settings of the section model that only recurrent language models have."""
LARGEST_SIDE = 4096
"""Pixels of an image's side; a number with a nought too many would fill the memory with one image."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The data, and how they become tokens."""

    train: str = ""
    """A file (text, csv, tsv, jsonl, parquet, .gz of these, or book.xlsx#Sheet), a glob, a folder or a hub dataset; for
    translation also two text files with a comma between them, SOURCE,TARGET; empty is the task's built-in data."""
    valid: str = ""
    """Validation data, in the same form as `train`; empty holds out a tenth of `train`."""
    test: str = ""
    """Test data, in the same form as `train`; scored once, at the end of the run."""
    text: str = ""
    """Column of the text; empty guesses."""
    pair: str = ""
    """Column of the second text, for tasks with two; empty guesses."""
    label: str = ""
    """Column of the label; empty guesses."""
    image: str = ""
    """Column of the image in a table: paths beside the table, or the bytes of files; empty guesses."""
    sound: str = ""
    """Column of the sound in a table: paths beside the table, or the bytes of files; columns start and end, in seconds,
    make it a segment of the file; empty guesses."""
    size: int = 0
    """Side of the square that images become, in pixels; 0: as model.from, or by the data, at most 128."""
    channels: Literal[0, 1, 3] = 0
    """Channels of images: 1 is grey, 3 is RGB; 0: as model.from, or by the data."""
    time: str = ""
    """Column of the time in a table of series; empty guesses."""
    bad_rows: Literal["stop", "skip"] = "stop"
    """What to do about a row that cannot be used."""
    encoding: str = UTF_8
    """Encoding of text files: cp1252, latin-1, utf-16 …; a byte order mark in a file comes first."""
    raw: bool = False
    """Files are bytes of anything, not text: sound, programs, pictures. The tokenizer `bytes` then has a token for each
    byte, and a classifier reads a folder for each label."""
    tokenizer: Literal["bytes", "chars", "words", "bpe", "wordpiece", "unigram"] = "bytes"
    """The tokenizer of a new model. chars and words are those of `train`; bpe (Sennrich et al. 2016), wordpiece
    (Schuster & Nakajima 2012) and unigram (Kudo 2018) learn subwords from it."""
    vocab: int = 0
    """Vocabulary size of a trained tokenizer; 0 is all tokens for bytes, chars and words, and 4096 for the others."""
    lower: bool = False
    """A trained tokenizer lowercases its text."""
    length: int = 128
    """Sequence length in tokens."""
    rows: Literal["stream", "carry", "pack", "pad"] = "stream"
    """How documents fill sequences. stream: end to end; carry: the same, and each batch goes on where the last one
    ended, with the state of a recurrent network; pack: several per sequence, without attention between them; pad: one
    per sequence."""
    lines: bool = False
    """Every line of a text file is a document."""
    overlap: int = 0
    """Tokens of the previous sequence that evaluation reads again as context."""
    noise: float = 0.0
    """Share of input tokens that are replaced by random ones, against overfitting (Xie et al. 2017)."""
    workers: int = 1
    """Threads that prefetch batches; any number gives the same run."""

    free_on_resume: ClassVar = frozenset({"train", "valid", "test", "workers"})
    """Settings that a resumed run may change. The paths are free because `train/provenance` compares the content."""

    def __post_init__(self) -> None:
        at_least("data", self, length=1, overlap=0)
        if self.overlap >= self.length:
            raise ConfigError("C003", f"data.overlap = {self.overlap} should be less than data.length = {self.length}")
        if self.overlap and self.rows == "carry":
            why = "the state that is carried is the context of a sequence"
            raise conflict(f"data.overlap = {self.overlap}", 'data.rows = "carry"', why)
        check_encoding("data.encoding", self.encoding)
        shares("data", self, "noise")
        at_least("data", self, vocab=0, workers=0)
        within("data", self, Range(0, LARGEST_SIDE), "size")


@dataclass(frozen=True, kw_only=True)
class ShapeConfig:
    """A new model, with one size setting (`depth`) and every part of the block; or a pretrained one (`from`)."""

    kind: Literal["transformer", "elman", "gru", "lstm", "conv", "ngram"] = "transformer"
    """The network. elman: Elman 1990; gru: Cho et al. 2014; lstm: Hochreiter & Schmidhuber 1997; conv: Gehring et al.
    2017. Those have depth, width, tied, dropout, and attention, bidirectional or kernel. ngram: Chen & Goodman 1998; it
    has order. The rest is the transformer's."""
    attention: Literal["none", "additive", "dot", "general"] = "none"
    """Attention of a recurrent decoder to its encoder; none: it has only the encoder's last state."""
    bidirectional: bool = False
    """A recurrent encoder reads in both directions."""
    kernel: int = 3
    """Width of a convolution in tokens."""
    order: int = 5
    """Of an n-gram model the n: a token depends on the order - 1 tokens before it (modified Kneser–Ney smoothing)."""
    from_: str = ""
    """A pretrained model: a folder, a run or a hub id. Its shape and tokenizer come with it."""
    embeddings: str = ""
    """Word vectors that the token embeddings of a new model start from: a file in word2vec's formats, or .vec, as wide
    as the model. Tokens that it does not have start at random."""
    lora: int = 0
    """Rank of LoRA adapters, which are then the only weights that train (Hu et al. 2022); 0 trains all."""
    lora_targets: tuple[str, ...] = ("qkv", "out", "up", "down")
    """The matrices that get an adapter."""
    freeze: int = 0
    """Freeze the embeddings and this many blocks, counted from the input."""
    depth: int = 4
    """Number of blocks: the size of the model, as width, heads and batch size follow from it."""
    encoder_depth: int | None = None
    """Blocks of the encoder, if the decoder has `depth` blocks; unset is the same number."""
    width: int | None = None
    """Width of the hidden states; unset is 64 · depth."""
    ff: int | None = None
    """Hidden width of the feed-forward layers; unset is 4 · width."""
    heads: int | None = None
    """Attention heads; unset is one per 64 of width."""
    kv_heads: int | None = None
    """Heads of keys and values: grouped-query attention (Ainslie et al. 2023); 1 is multi-query (Shazeer 2019); unset
    is `heads`."""
    patch: int = 0
    """Side of the patches of an image, in pixels (Dosovitskiy et al. 2021); 0: by the size of the images."""
    norm: Literal["layernorm", "rmsnorm", "dyt"] = "layernorm"
    """layernorm: Ba et al. 2016; rmsnorm: Zhang & Sennrich 2019; dyt: Dynamic Tanh, no norm at all (Zhu et al.
    2025)."""
    norm_at: Literal["pre", "post"] = "pre"
    """pre: before each branch, as GPT-2; post: after the addition, as in the transformer of 2017 and BERT."""
    residual: bool = True
    """Residual connections (He et al. 2016); false only to see what they are for."""
    positions: Literal["learned", "sinusoidal", "rope", "alibi", "relative", "none"] = "learned"
    """How a model knows the order of tokens. sinusoidal: Vaswani et al. 2017; relative: Raffel et al. 2020; rope: Su et
    al. 2021; alibi: Press et al. 2022."""
    scaled: bool = True
    """Attention logits are divided by the root of a head's width (Vaswani et al. 2017); false only to see what it is
    for."""
    activation: Activation = "gelu_tanh"
    """The activation of the feed-forward layers."""
    gated: bool = False
    """Gated feed-forward layers: activation(gate) * up (Shazeer 2020)."""
    bias: bool = True
    """Linear layers have a bias."""
    window: int | None = None
    """Sliding window: how many tokens a token attends to in each direction, itself included; unset: all."""
    sparse: int | None = None
    """Sparse attention: the side of the blocks of BigBird's pattern in tokens, such as 64 (Zaheer et al. 2020). A token
    attends to three blocks around its own, to global blocks, and to `random_blocks`; in a decoder, to those of the past
    and to the first block. Time and memory grow with the length, not with its square; unset: all tokens."""
    random_blocks: int = 3
    """Random blocks that each block of a sparse pattern attends to."""
    tied: bool = True
    """Token embeddings and output layer share one matrix (Press & Wolf 2017)."""
    dropout: float = 0.0
    """Share of activations that are set to zero in training, in embeddings, branches and attention (Srivastava et al.
    2014)."""

    drop_path: float = 0.0
    """Stochastic depth: share of branches that are left out in training, growing from 0 in the first block to this
    share in the last (Huang et al. 2016)."""
    embedding: int | None = None
    """Recurrent language model: width of the word vectors, with a linear map from the states to the output (Melis et
    al. 2018); unset is `width`, without the map."""
    cell_norm: bool = False
    """Recurrent language model: layer norm inside the cells (Ba et al. 2016), without torch's fast kernels."""
    locked_dropout: bool = False
    """Recurrent language model: variational dropout, one mask for all tokens of a row (Gal & Ghahramani 2016)."""
    input_dropout: float | None = None
    """Recurrent language model: dropout of the word vectors; unset is `dropout`."""
    layer_dropout: float | None = None
    """Recurrent language model: dropout between layers; unset is `dropout`."""
    word_dropout: float = 0.0
    """Recurrent language model: share of the vocabulary whose vectors are zero in a batch (Gal & Ghahramani 2016)."""
    weight_dropout: float = 0.0
    """Recurrent language model: share of the weights from state to state that are zero in a batch (Merity et al.
    2018)."""
    ar: float = 0.0
    """Recurrent language model: activation regularisation, the weight of the mean square of the outputs in the loss
    (Merity et al. 2018)."""
    tar: float = 0.0
    """Recurrent language model: temporal activation regularisation, the weight of the mean square of the outputs'
    change from token to token."""

    free_on_resume: ClassVar = frozenset({"from", "embeddings"})

    def __post_init__(self) -> None:
        at_least("model", self, depth=1, encoder_depth=1, width=1, ff=1, heads=1, kv_heads=1, kernel=1, window=1)
        at_least("model", self, lora=0, freeze=0, patch=0, embedding=1, ar=0, tar=0, sparse=1, random_blocks=0)
        within("model", self, Range(1, MAX_ORDER), "order")
        shares("model", self, "dropout", "drop_path", *RECURRENT_SHARES)
        if self.sparse is not None and self.window is not None:
            both = f"model.sparse = {self.sparse}", f"model.window = {self.window}"
            raise conflict(*both, "BigBird's pattern has a window of its own")
        if self.sparse is None and self.random_blocks != 3:
            what = f"model.random_blocks = {self.random_blocks} is for a sparse pattern"
            raise ConfigError("C004", f"{what}, and model.sparse is not set", "such as model.sparse=64")

    @property
    def recurrent_settings(self) -> list[str]:
        """The settings that somebody gave and that only recurrent language models have, as `name = value`."""
        found = {name: value for name in RECURRENT_SETTINGS if (value := getattr(self, name))}
        return [f"model.{name} = {str(value).lower()}" for name, value in found.items()]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train. The budget is one of steps, minutes and epochs."""

    steps: int | None = None
    """The budget in steps; each step is one batch."""
    minutes: float | None = None
    """The budget in minutes of training."""
    epochs: float | None = None
    """The budget in passes over the training data."""
    batch: int = 0
    """Batch size in sequences; 0 chooses it by the model's depth."""
    batch_tokens: int = 0
    """With data.rows = "pad": batch size in tokens instead, with sequences of similar length together."""
    accumulate: int = 1
    """Gradient accumulation: the number of micro-batches per step; the result is the same."""
    lr: float | None = None
    """Peak learning rate; unset chooses it by the model's width."""
    optimizer: Literal["adamw", "muon", "sgd"] = "adamw"
    """adamw: Loshchilov & Hutter 2019; sgd: with momentum; muon: orthogonalised updates for the blocks' matrices
    (Jordan et al. 2024), AdamW for the rest."""
    schedule: Literal["cosine", "linear", "constant", "wsd", "rsqrt"] = "cosine"
    """How the learning rate falls after the warm-up. cosine: Loshchilov & Hutter 2017; wsd: constant, then a short
    decay (Hu et al. 2024); rsqrt: with one over the root of the step (Vaswani et al. 2017)."""
    warmup: int = 100
    """Warm-up steps from zero to the peak; then the schedule begins."""
    final_lr: float = 0.1
    """Learning rate at the end, as a share of the peak."""
    weight_decay: float = 0.1
    """Decoupled weight decay of matrices (Loshchilov & Hutter 2019); biases and norms have none."""
    betas: tuple[float, ...] = (0.9, 0.99)
    """Decay rates of AdamW's two moments (Kingma & Ba 2015)."""
    layer_decay: float = 1.0
    """Layer-wise decay: each block's learning rate as a share of the block above it; the heads have the full rate
    (Clark et al. 2020)."""
    unfreeze: int = 0
    """Gradual unfreezing: every so many steps one more block trains, from the top down; heads train from the start and
    embeddings last (Howard & Ruder 2018); 0: all train at once."""
    clip: float = 1.0
    """Gradient clipping: the largest norm; 0 does not clip."""
    ema: float = 0.0
    """Decay of an exponential moving average of the weights, which is evaluated and saved; 0 is off."""
    average: int = 0
    """Save the average of this many last checkpoints (Vaswani et al. 2017); 0 saves the last weights."""
    patience: int = 0
    """Early stopping: stop after this many evaluations without a better one, and save the best; 0 is off."""
    keep_best: bool = False
    """Save the weights of the best evaluation, not the last ones."""
    on_nan: Literal["stop", "skip", "rewind"] = "stop"
    """If a loss or gradient is not finite: stop, skip the step, or rewind to a checkpoint and halve the rate."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of matrix products; auto is bfloat16 on an accelerator. Weights and moments are float32."""
    compile: bool | None = None
    """torch.compile; unset: only on an accelerator, and only if all batches have one shape."""
    cuda_graphs: bool = True
    """On an NVIDIA GPU, capture steps as CUDA graphs as soon as their shapes repeat."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass: less memory, a third more time."""
    sinks: tuple[str, ...] = ()
    """Trackers that also get the log: tensorboard, wandb, trackio."""
    eval_every: int = 250
    """Steps from one evaluation on the validation data to the next."""
    sample_every: int = 250
    """Steps from one sample of what the model says to the next."""
    save_every: int = 500
    """Steps from one checkpoint to the next."""
    keep: int = 2
    """Checkpoint retention: how many of the last checkpoints stay on disk."""

    free_on_resume: ClassVar = frozenset(
        {
            *("steps", "minutes", "epochs", "accumulate", "lr", "schedule", "warmup", "final_lr", "weight_decay"),
            *("betas", "layer_decay", "unfreeze", "clip", "average", "on_nan", "dtype", "compile", "cuda_graphs"),
            *("gradient_checkpointing", "sinks", "eval_every", "sample_every", "save_every", "keep"),
        }
    )
    """All but the batch size, the optimizer, and what needs copies of the weights in the checkpoint."""

    def __post_init__(self) -> None:
        given = [name for name in ("steps", "minutes", "epochs") if getattr(self, name) is not None]
        if len(given) != 1:
            what = " and ".join(given) or "none of them"
            raise ConfigError("C004", f"train.steps, train.minutes, train.epochs: give one of them, not {what}")
        at_least("train", self, steps=1, accumulate=1, eval_every=1, sample_every=1, save_every=1, keep=1)
        at_least("train", self, batch=0, batch_tokens=0, lr=0, warmup=0, final_lr=0, weight_decay=0)
        at_least("train", self, unfreeze=0, clip=0, average=0, patience=0)
        above_zero("train", self, "minutes", "epochs")
        shares("train", self, "ema")
        if self.batch % self.accumulate:
            what = f"train.batch = {self.batch} is not divisible by train.accumulate = {self.accumulate}"
            raise ConfigError("C004", what)
        within("train", self, Range(0, 1, above=True), "layer_decay")
        if self.average and (self.ema or self.keep_best or self.patience):
            raise ConfigError("C004", "train.average conflicts with train.ema, keep_best and patience: choose one")
