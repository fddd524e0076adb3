"""Language modelling: the next token, for every token."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.config.model import SpecialTokens
from headway.config.networks.kinds import AnyConfig
from headway.config.networks.ngram import NGramConfig
from headway.config.recipe import RECURRENT, DataConfig
from headway.config.shape import decoder_config
from headway.data.batching.batch_sampler import BatchSampler, FixedBatchSampler, TokenBatchSampler
from headway.data.batching.packing import PackedRows, PaddedRows
from headway.data.batching.permutation import Index, splitmix64
from headway.data.batching.stripes import Stripes, evaluation_stripes
from headway.data.batching.token_store import TokenStore
from headway.data.batching.windows import Ids, Tokens, Windows, evaluation_windows
from headway.data.datasets.raw import printable
from headway.data.datasets.text import hold_out, read_corpus, tokenize_corpus
from headway.data.files.rows import BadRows
from headway.data.prompts import PromptEncoder
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError
from headway.generate.decode import Sampling, generate
from headway.model.model import Model, evaluating
from headway.progress import track
from headway.tasks.backbone import check_context
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.lm.gradient_reach import gradient_details
from headway.tasks.losses.tokens import IGNORE, token_loss
from headway.tasks.metrics.chance import unigram_loss
from headway.tasks.recipe import Recipe, batch_size, no_state
from headway.tasks.training import TaskContext, Training, short_text

EVAL_TOKENS = 1 << 14
"""Tokens that are evaluated at a time."""
EVAL_STRIPES = 16
"""Parts of a text that are evaluated side by side, where state is carried through it."""


SAMPLE_TOKENS, SAMPLE_TEMPERATURE = 160, 0.7
PROMPT_TOKENS, PROMPT_LETTERS = 1000, 20
"""Tokens of the validation text in which a prompt is looked for, and the letters that make a line one."""


@dataclass(frozen=True)
class LanguageModelTraining(Training):
    """Text of one kind or another, token by token."""

    recipe: Recipe
    tokenizer: Tokenizer
    train: TokenStore
    valid: TokenStore
    about: dict[str, Any] = field(default_factory=dict)
    """Where the text came from."""

    @classmethod
    def prepare(cls, context: TaskContext) -> LanguageModelTraining:
        """Read, cut off what is held out, and tokenize; each of these once, and kept."""
        data, bad = context.recipe.data, BadRows(context.recipe.data.bad_rows)
        train = read_corpus(data.train, data, bad)
        train, valid = (train, read_corpus(data.valid, data)) if data.valid else hold_out(train)
        tokenizer = context.tokenizer(train, causal=True)
        first, second = context.rank_zero_first(lambda: [tokenize_corpus(texts, tokenizer) for texts in (train, valid)])
        made = cls
        if context.recipe.model.kind == "ngram":
            from headway.tasks.lm.ngram import NGramTraining  # which extends this class

            made = NGramTraining
        return made(context.recipe, tokenizer, first, second, context.about(train.key, bad))

    @property
    def data(self) -> DataConfig:
        return self.recipe.data

    @property
    def static_shapes(self) -> bool:
        return self.recipe.data.rows != "pad"

    @property
    def facts(self) -> dict[str, Any]:
        return {
            **self.about,
            "documents": len(self.train.starts) - 1,
            "tokens": len(self.train.ids),
            "bytes": self.train.byte_count,
            "vocab": self.tokenizer.vocab_size,
            "samples": len(self.rows),
            "valid_tokens": len(self.valid.ids),
            "valid_bytes": self.valid.byte_count,
        }

    @cached_property
    def chance(self) -> dict[str, float]:
        return {"valid": unigram_loss(self.train.ids, self.valid.ids, self.tokenizer.vocab_size)}

    def config(self, base: AnyConfig | None) -> AnyConfig:
        return writer_config(self.recipe, self.tokenizer, base)

    @cached_property
    def rows(self) -> Windows | Stripes | PackedRows | PaddedRows:
        """The samples of an epoch."""
        data, store, seed = self.data, self.train, self.recipe.seed
        if data.rows == "carry":
            return Stripes(store.ids, data.length, batch_size(self.recipe), seed)
        if data.rows == "stream":
            return Windows(store.ids, data.length, seed)
        if data.rows == "pack":
            return PackedRows(store.ids, store.starts, data.length, seed)
        return PaddedRows(store.ids, store.starts, data.length, seed, shuffle=not self.recipe.train.batch_tokens)

    def plan(self, batch: int) -> BatchSampler:
        return plan_rows(self.recipe, self.rows, batch)

    def batch(self, samples: Index) -> Batch:
        inputs, targets, segment_ids = self.rows.read(samples)
        if self.data.noise:
            inputs = with_noise(inputs, samples, self.train.ids, self.data.noise, self.recipe.seed)
        return row_batch(inputs, targets, segment_ids)

    def wanted(self, batch: Batch) -> Tensor | None:
        return batch.tensors[1]

    @staticmethod
    def loss(model: Model, inputs: Tensor, targets: Tensor, segment_ids: Tensor | None, *carry: Tensor) -> Any:
        total, after = summed_loss(model, inputs, targets, segment_ids, carry)
        return (total, after) if carry else total

    def carry(self, model: Model) -> tuple[Tensor, ...]:
        return model.first_carry(self.rows.rows) if isinstance(self.rows, Stripes) else ()

    def evaluate(self, model: Model, world: ProcessGroup) -> dict[str, float]:
        return self.evaluate_examples(model, self.valid, world)

    def read_test(self, spec: str) -> TokenStore:
        return tokenize_corpus(read_corpus(spec, self.data, self.bad_tests), self.tokenizer)

    def evaluate_examples(self, model: Model, part: TokenStore, world: ProcessGroup) -> dict[str, float]:
        return evaluate(model, part, self.data, world)

    def details(self, model: Model) -> dict[str, Any] | None:
        """How far gradients reach; only of models that gradients train."""
        name, part = ("valid", self.valid) if self.test_part is None else ("test", self.test_part)
        found = gradient_details(model, part.ids, self.data.length) if self.by_gradient else None
        return found and {"data": name, "source": getattr(self.data, name), **found}

    @property
    def tries(self) -> list[str]:
        return [] if self.data.raw else [self.prompt]

    @cached_property
    def prompt(self) -> str:
        """The first words of the validation text's first line that is more than a word or two; empty without words."""
        text = self.tokenizer.decode([int(i) for i in self.valid.ids[:PROMPT_TOKENS]])
        if not self.data.valid and len(self.valid.starts) == 2:  # held out of one text: it may begin inside a word
            text = text.partition(" ")[2] or text
        lines = [words for line in text.splitlines() if (words := short_text([line]))]
        return next((line for line in lines if len(line) >= PROMPT_LETTERS), lines[0] if lines else "")

    def sample(self, model: Model) -> str:
        """The prompt, and under it a continuation across the ends of documents, the same draw each time."""
        prompt = "" if self.data.raw else self.prompt
        prompt = prompt or self.tokenizer.decode([int(i) for i in self.valid.ids[:PROMPT_LETTERS]]).strip()
        ids = PromptEncoder(self.tokenizer, model.config.special).text(prompt)
        how = Sampling(temperature=SAMPLE_TEMPERATURE, seed=0, stop=())
        text = self.tokenizer.decode(list(generate(model, ids, SAMPLE_TOKENS, how)))
        if self.data.raw:
            return f"{printable(prompt)}\n→ {printable(text)}"
        return f"{prompt}\n→ " + "\n  ".join(text.strip().splitlines())


def writer_config(recipe: Recipe, tokenizer: Tokenizer, base: AnyConfig | None) -> AnyConfig:
    """A model that writes text: a decoder of the recipe's shape, or the one it starts from."""
    length, what = recipe.data.length, recipe.model.from_
    if base is None:
        made = decoder_config(recipe.model, tokenizer.vocab_size, length)
        return replace(made, special=special_tokens(tokenizer))
    if base.kind != "decoder" or base.lm is None:
        raise ConfigError("C004", f"task {recipe.task} trains decoders, model.from = {what} is an {base.kind}")
    if isinstance(base, NGramConfig):
        why = f"model.from = {what} is an n-gram model, which no gradient trains"
        raise ConfigError("C004", why, "count a text anew: model.kind=ngram without model.from")
    check_context(base, length, what)
    if recipe.data.rows == "carry" and getattr(base, "network", "") not in RECURRENT:
        raise no_state(f"model.from = {what}")
    return base


def special_tokens(tokenizer: Tokenizer) -> SpecialTokens:
    """The special tokens of a new model."""
    return SpecialTokens(**{role: tokenizer.special.get(role) for role in ("pad", "bos", "eos")})


def plan_rows(recipe: Recipe, rows: Windows | Stripes | PackedRows | PaddedRows, batch: int) -> BatchSampler:
    """A fixed number of rows a step, or as many of like length as have train.batch_tokens tokens."""
    tokens = recipe.train.batch_tokens
    if not tokens:
        return FixedBatchSampler(len(rows), batch)
    if not isinstance(rows, PaddedRows):
        raise ConfigError("C004", f'train.batch_tokens needs data.rows = "pad", not "{recipe.data.rows}"')
    return TokenBatchSampler(rows.lengths, tokens, recipe.seed)


def summed_loss(
    model: Model, inputs: Tensor, targets: Tensor, segment_ids: Tensor | None, carry: tuple[Tensor, ...] = ()
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The summed loss of a batch that follows `carry`, and the carry after it."""
    output, after = model.read_on(inputs, segment_ids, carry)
    total, count = token_loss(model.lm, output.hidden, targets)
    return total if output.penalty is None else total + output.penalty * count, after


def evaluate(model: Model, store: TokenStore, data: DataConfig, world: ProcessGroup) -> dict[str, float]:
    """Mean loss a token over a whole text, its exponential, and bits per byte, which compare across tokenizers."""
    with evaluating(model):
        total, count = 0.0, 0.0
        carry: tuple[Tensor, ...] = ()
        for batch in _evaluation(store, data, world):
            inputs, targets, segment_ids = batch.to(world.device)
            assert inputs is not None and targets is not None
            part, after = summed_loss(model, inputs, targets, segment_ids, carry)
            carry = after if data.rows == "carry" else ()
            total, count = total + float(part), count + batch.count
    total, count = world.sum(total, count)
    mean = total / count
    bits = total / math.log(2) / store.byte_count
    return {"valid": mean, "perplexity": math.exp(min(mean, 700.0)), "bits_per_byte": bits}


def _evaluation(store: TokenStore, data: DataConfig, world: ProcessGroup) -> Iterator[Batch]:
    """Every prediction once, the rows of each batch shared out; all processes make as many batches."""
    for inputs, targets, segment_ids in evaluation_rows(store, data, max(1, EVAL_TOKENS // data.length) * world.size):
        mine = slice(world.rank, None, world.size)
        if len(inputs) <= world.rank:  # too few rows: this process reads one that counts for nothing
            mine, targets = slice(0, 1), np.full_like(targets, IGNORE)
        yield row_batch(inputs[mine], targets[mine], None if segment_ids is None else segment_ids[mine])


def evaluation_rows(store: TokenStore, data: DataConfig, size: int) -> Iterator[tuple[Ids, Ids, Ids | None]]:
    """All of a text, some rows at a time; where state is carried, each batch goes on where the last one ended."""
    if data.rows == "carry":
        yield from evaluation_stripes(store.ids, data.length, EVAL_STRIPES, IGNORE)
        return
    if data.rows == "stream":
        inputs, targets = evaluation_windows(store.ids, data.length, IGNORE, data.overlap)
        for at in track(range(0, len(inputs), size), "evaluating", unit="batches"):
            yield inputs[at : at + size], targets[at : at + size], None
        return
    rows = PackedRows(store.ids, store.starts, data.length, seed=0)  # none of a long document is left out
    for at in track(range(0, len(rows), size), "evaluating", unit="batches"):
        yield rows.read(np.arange(at, min(at + size, len(rows))))


def row_batch(inputs: Ids, targets: Ids, segment_ids: Ids | None) -> Batch:
    """Arrays as tensors, and how many targets count."""
    arrays = (inputs, targets, segment_ids)
    tensors = tuple(None if a is None else torch.from_numpy(np.ascontiguousarray(a)) for a in arrays)
    return Batch(tensors, int((targets != IGNORE).sum()))


def with_noise(inputs: Ids, samples: Index, ids: Tokens, share: float, seed: int) -> Ids:
    """Inputs with some tokens drawn anew from the text: a pure function of the sample, as its order is."""
    place = np.arange(inputs.shape[1], dtype=np.uint64)
    cell = (samples[:, None].astype(np.uint64) << np.uint64(24)) | place
    dice = splitmix64(cell ^ splitmix64(np.uint64(seed)))
    chance = (dice >> np.uint64(11)).astype(np.float64) / 2**53
    other = ids[(splitmix64(dice) % np.uint64(len(ids))).astype(np.int64)]
    return np.where(chance < share, other, inputs).astype(np.int64)
