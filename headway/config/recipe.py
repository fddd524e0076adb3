"""A training run, described: recipe files, their settings, and the one size dial. No torch here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from headway.config.aliases import current_keys
from headway.config.model import Activation
from headway.config.ranges import above_zero, at_least, shares
from headway.config.tasks import (
    ClassificationConfig,
    EmbeddingConfig,
    MaskedLMConfig,
    QuestionAnsweringConfig,
    Seq2SeqConfig,
    TaggingConfig,
)
from headway.config.toml import build, merge, parse_overrides, read_toml, to_dict
from headway.errors import ConfigError, NotFoundError, nearest

RECIPES = Path(__file__).parent.parent / "recipes"
RUNS = "runs"
"""Where runs are kept, and where `last` is looked for."""
LISTS = (("model", "lora_targets"), ("train", "sinks"))
"""Settings that are lists of names."""
CHOSEN, TOKENS = ("from", "lora", "lora_targets", "freeze"), ("tokenizer", "vocab", "lower")
"""Settings of a model that is not made anew; settings of a vocabulary that is."""
WRITERS = ("lm", "seq2seq")
"""Tasks that networks older than the transformer can be trained for."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What is read, and how it becomes tokens."""

    train: str = ""
    """A file (text, csv, tsv, jsonl, parquet, .gz of these), a glob, a folder or a hub dataset; two text files with a
    comma between them, SOURCE,TARGET, for tasks that turn one into the other; empty is the corpus that comes with
    Python, the text of its own reference."""
    valid: str = ""
    """The same; empty takes the last tenth of `train`."""
    test: str = ""
    """The same; scored once, when the run is done."""
    text: str = ""
    """Column that holds the text; empty guesses."""
    pair: str = ""
    """Column that holds a second text, for tasks that read two; empty guesses."""
    label: str = ""
    """Column that holds what is to be predicted; empty guesses."""
    bad_rows: Literal["stop", "skip"] = "stop"
    """What to do with a row that cannot be used."""
    tokenizer: Literal["bytes", "chars", "words", "bpe", "wordpiece", "unigram"] = "bytes"
    vocab: int = 0
    """Size of a trained vocabulary; 0 is all there is for bytes, chars and words, and 4096 for the others."""
    lower: bool = False
    """A tokenizer that is trained makes text lower case first."""
    length: int = 128
    """Tokens in a training sequence."""
    rows: Literal["stream", "pack", "pad"] = "stream"
    """How documents fill sequences: end to end; several whole ones side by side, blind to each other; one each."""
    lines: bool = False
    """Every line of a text file is a document of its own."""
    overlap: int = 0
    """Tokens that evaluation reads again, as context, at the start of each sequence."""
    noise: float = 0.0
    """Share of input tokens replaced by others of the text, against overfitting (Xie et al. 2017)."""
    workers: int = 1
    """Threads that prepare batches ahead; any number gives the same run."""

    def __post_init__(self) -> None:
        if self.length < 1 or not 0 <= self.overlap < self.length:
            raise ConfigError("C003", f"data.overlap = {self.overlap} should be less than data.length = {self.length}")
        shares("data", self, "noise")
        at_least("data", self, vocab=0, workers=0)


@dataclass(frozen=True, kw_only=True)
class ShapeConfig:
    """A model by one dial, `depth`, and every part of the block beside it; or a trained one, `from`."""

    kind: Literal["transformer", "elman", "gru", "lstm", "conv"] = "transformer"
    """What came before the transformer has depth, width, tied and dropout, and what is said of it below."""
    attention: Literal["none", "additive", "dot", "general"] = "none"
    """How a recurrent decoder looks back at its source; none: it has the encoder's last state, and that is all."""
    bidirectional: bool = False
    """A recurrent encoder reads from both ends."""
    kernel: int = 3
    """Tokens that a convolution sees."""
    from_: str = ""
    """A model folder, run or hub id to start from; its shape and tokenizer are taken with it."""
    lora: int = 0
    """Rank of low-rank adapters, the only weights that then train (Hu et al. 2022); 0 trains all."""
    lora_targets: tuple[str, ...] = ("qkv", "out", "up", "down")
    """Matrices that get an adapter."""
    freeze: int = 0
    """Embeddings and this many blocks, counted from the input, stay as they are."""
    depth: int = 4
    encoder_depth: int | None = None
    """Blocks of the encoder beside a decoder of `depth` blocks; None is as many."""
    width: int | None = None
    """None is 64 · depth."""
    ff: int | None = None
    """Width inside the feed-forward layers; None is 4 · width."""
    heads: int | None = None
    """None is one per 64 of width."""
    kv_heads: int | None = None
    norm: Literal["layernorm", "rmsnorm", "dyt"] = "layernorm"
    norm_at: Literal["pre", "post"] = "pre"
    residual: bool = True
    positions: Literal["learned", "sinusoidal", "rope", "alibi", "relative", "none"] = "learned"
    activation: Activation = "gelu_tanh"
    gated: bool = False
    bias: bool = True
    window: int | None = None
    tied: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        at_least("model", self, depth=1, encoder_depth=1, width=1, ff=1, heads=1, kv_heads=1, kernel=1, window=1)
        at_least("model", self, lora=0, freeze=0)
        shares("model", self, "dropout")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How long, how fast, how often. Of steps, minutes and epochs one is the budget."""

    steps: int | None = None
    minutes: float | None = None
    epochs: float | None = None
    batch: int = 0
    """Sequences in a step; 0 goes by the depth of the model."""
    batch_tokens: int = 0
    """With data.rows = "pad": tokens in a step instead, sequences of like length together."""
    accumulate: int = 1
    """Parts a step's batch is computed in; the result is the same."""
    lr: float | None = None
    """Peak learning rate; None goes by the width of the model."""
    optimizer: Literal["adamw", "muon", "sgd"] = "adamw"
    """muon orthogonalises the updates of the blocks' matrices (Jordan et al. 2024); the rest stays with AdamW."""
    schedule: Literal["cosine", "linear", "constant", "wsd", "rsqrt"] = "cosine"
    warmup: int = 100
    """Steps from zero to the peak; the schedule begins where they end."""
    final_lr: float = 0.1
    """Share of the peak left at the end."""
    weight_decay: float = 0.1
    betas: tuple[float, ...] = (0.9, 0.99)
    layer_decay: float = 1.0
    """Share of the learning rate that each block leaves to the one below; heads have all of it, embeddings the least
    (Clark et al. 2020)."""
    unfreeze: int = 0
    """Steps until the next block begins to learn, the top one first, heads from the start, embeddings last (Howard &
    Ruder 2018); 0: all learn at once."""
    clip: float = 1.0
    """Largest norm of the gradient; 0 leaves it alone."""
    ema: float = 0.0
    """Decay of a running mean of the weights, which is then evaluated and kept; 0 is none."""
    average: int = 0
    """The result is the mean of so many last checkpoints (Vaswani et al. 2017); 0 is the last weights alone."""
    patience: int = 0
    """Stop after so many evaluations without a better one, and keep the best; 0 goes on to the end."""
    keep_best: bool = False
    """The result is the weights of the best evaluation, not the last."""
    on_nan: Literal["stop", "skip", "rewind"] = "stop"
    """When a loss or gradient is not finite: end, leave the step out, or go back to a checkpoint and halve the rate."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of products; auto is bfloat16 on an accelerator. Weights and moments stay in float32."""
    compile: bool | None = None
    """torch.compile; unset means on an accelerator, where all batches have one shape."""
    record: bool = True
    """On an NVIDIA GPU, steps whose shape came before are replayed as CUDA graphs."""
    checkpointing: bool = False
    """Compute activations again in the backward pass instead of keeping them: less memory, a third more time."""
    sinks: tuple[str, ...] = ()
    """Where the log also goes: tensorboard, wandb, trackio."""
    eval_every: int = 250
    sample_every: int = 250
    save_every: int = 500
    keep: int = 2
    """Checkpoints that stay."""

    def __post_init__(self) -> None:
        given = [name for name in ("steps", "minutes", "epochs") if getattr(self, name) is not None]
        if len(given) != 1:
            what = " and ".join(given) or "none of them"
            raise ConfigError("C004", f"train.steps, train.minutes, train.epochs: give one, not {what}")
        at_least("train", self, steps=1, accumulate=1, eval_every=1, sample_every=1, save_every=1, keep=1)
        at_least("train", self, batch=0, batch_tokens=0, lr=0, warmup=0, final_lr=0, weight_decay=0)
        at_least("train", self, unfreeze=0, clip=0, average=0, patience=0)
        above_zero("train", self, "minutes", "epochs")
        shares("train", self, "ema")
        if self.batch % self.accumulate:
            raise ConfigError(
                "C004", f"train.batch = {self.batch} is not divided by train.accumulate = {self.accumulate}"
            )
        if not 0 < self.layer_decay <= 1:
            raise ConfigError("C003", f"train.layer_decay = {self.layer_decay} should be above 0 and at most 1")
        if self.average and (self.ema or self.keep_best or self.patience):
            raise ConfigError("C004", "train.average does not go with train.ema, keep_best or patience: choose one")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All of a run."""

    task: Literal["lm", "chat", "mlm", "classify", "tag", "answer", "embed", "seq2seq"] = "lm"
    seed: int = 1337
    out: str = RUNS
    gpus: int = 1
    """Processes, one a GPU; more than one starts them with torchrun."""
    data: DataConfig = field(default_factory=DataConfig)
    model: ShapeConfig = field(default_factory=ShapeConfig)
    train: TrainConfig = field(default_factory=lambda: TrainConfig(steps=1000))
    mlm: MaskedLMConfig = field(default_factory=MaskedLMConfig)
    classify: ClassificationConfig = field(default_factory=ClassificationConfig)
    tag: TaggingConfig = field(default_factory=TaggingConfig)
    answer: QuestionAnsweringConfig = field(default_factory=QuestionAnsweringConfig)
    embed: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    seq2seq: Seq2SeqConfig = field(default_factory=Seq2SeqConfig)

    def __post_init__(self) -> None:
        kind, looks = self.model.kind, self.model.attention
        if kind in ("transformer", "conv") and (looks != "none" or self.model.bidirectional):
            what = f"model.attention = {looks}" if looks != "none" else "model.bidirectional = true"
            raise ConfigError("C004", f"{what} is for recurrent networks, not for model.kind = {kind}")
        if kind == "transformer":
            return
        if self.task not in WRITERS:
            raise ConfigError("C004", f"model.kind = {kind} is for the tasks {' and '.join(WRITERS)}, not {self.task}")
        if self.task == "lm" and self.data.rows != "stream":
            why = f'model.kind = {kind} reads one text a row: data.rows = "stream", not "{self.data.rows}"'
            raise ConfigError("C004", why)
        if self.gpus > 1:
            raise ConfigError("C004", f"model.kind = {kind} trains in one process, not gpus = {self.gpus}")


def read_recipe(values: Mapping[str, Any], source: str = "") -> Recipe:
    """The recipe that a run has recorded; settings may have the names of an older version."""
    return build(Recipe, current_keys(values, note=False), source=source)


def load_recipe(what: str, overrides: Sequence[str] = ()) -> tuple[str, Recipe]:
    """A recipe by name or path, with `key=value` words on top; also the name its runs take."""
    path = Path(what) if what.endswith(".toml") else RECIPES / f"{what}.toml"
    if not path.exists():
        names = sorted(p.stem for p in RECIPES.glob("*.toml"))
        raise NotFoundError("F001", f"no recipe {what}{nearest(what, names)}", f"there are: {', '.join(names)}")
    data, text = read_toml(path)
    data = current_keys(data)
    over = current_keys(_listed(parse_overrides(overrides)))
    _check_base(over, merge(data, over))
    return path.stem, build(Recipe, _with(data, over), source=text if not over or _wrong(data) else "")


def _listed(over: dict[str, Any]) -> dict[str, Any]:
    """Names with commas between them as lists: a shell has other plans for brackets and quotes."""
    for section, name in LISTS:
        inside = over.get(section)
        if isinstance(inside, dict) and isinstance(inside.get(name), str):
            inside[name] = inside[name].split(",")
    return over


def _check_base(over: Mapping[str, Any], merged: Mapping[str, Any]) -> None:
    """Refuse words that say what model.from decides; a file may have them, for where there is no such model."""
    model, data = (over[name] if isinstance(over.get(name), Mapping) else {} for name in ("model", "data"))
    base = merged["model"].get("from") if isinstance(merged.get("model"), Mapping) else ""
    if not base:
        if type(model.get("freeze")) is int and model["freeze"] > 0:
            raise ConfigError("C004", f"model.freeze = {model['freeze']} keeps what was learned: model.from says where")
        return
    decided = [f"model.{name}" for name in model if name not in CHOSEN] + [f"data.{n}" for n in TOKENS if n in data]
    if decided:
        whose = "vocabulary" if decided[0].startswith("data.") else "shape"
        raise ConfigError("C004", f"{decided[0]} is for a new model: {base} has a {whose} of its own (model.from)")


def _wrong(data: Mapping[str, Any]) -> bool:
    """Whether a file needs no words on top to be wrong: only then has a mistake a line in it."""
    try:
        build(Recipe, data)
    except ConfigError:
        return True
    return False


def with_overrides(recipe: Recipe, words: Sequence[str]) -> Recipe:
    """A recipe with `key=value` words on top."""
    return with_settings(recipe, _listed(parse_overrides(words)))


def with_settings(recipe: Recipe, over: Mapping[str, Any]) -> Recipe:
    """A recipe with nested values on top."""
    return build(Recipe, _with(to_dict(recipe), current_keys(over))) if over else recipe


def _with(data: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Overrides last; a budget of one kind replaces a budget of another."""
    merged = merge(data, over)
    budget = {"steps", "minutes", "epochs"}
    asked = over.get("train", {})
    if isinstance(asked, Mapping) and budget & asked.keys() and isinstance(merged.get("train"), dict):
        for name in budget - asked.keys():
            merged["train"].pop(name, None)
    return merged


def same_recipe(kept: Recipe, asked: Recipe) -> bool:
    """Whether a run's recipe is the one asked for; what the run found in its data was not asked for."""
    if not asked.seq2seq.sentences:
        kept = replace(kept, seq2seq=replace(kept.seq2seq, sentences=0))
    return kept == asked


def batch_size(recipe: Recipe) -> int:
    """As given, or by the dial: 256 · depth² tokens a step, since better models profit from larger batches."""
    given, parts = recipe.train.batch, recipe.train.accumulate
    by_depth = max(1, round(256 * recipe.model.depth**2 / recipe.data.length / parts)) * parts
    return given or by_depth
