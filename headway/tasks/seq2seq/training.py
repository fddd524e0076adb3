"""One text out of another: translation, summaries. Letters: N pairs, S tokens read, T tokens written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from itertools import count as counted
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from headway.config.model import SpecialTokens
from headway.config.networks.kinds import AnyConfig
from headway.config.shape import seq2seq_config
from headway.data.batching.batch_sampler import BatchSampler, FixedBatchSampler, TokenBatchSampler
from headway.data.batching.padding import Examples
from headway.data.batching.permutation import Index, shuffle_samples
from headway.data.datasets.next_sentence import p99_sentence_count
from headway.data.datasets.parallel import Pair, fingerprint_pairs, read_parallel
from headway.data.datasets.text import HELD_OUT
from headway.data.files.rows import BadRows
from headway.data.synthetic.texts.reports import make_reports
from headway.data.synthetic.texts.translation import make_translations
from headway.data.tokenizers.bpe_dropout import BpeDropout
from headway.data.tokenizers.tokenizer import Tokenizer, load_tokenizer
from headway.errors import ConfigError, DataError, HeadwayError
from headway.hub.download import resolve
from headway.hub.folder import open_folder
from headway.model.model import Model
from headway.tasks.backbone import check_context
from headway.tasks.batch import Batch
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.metrics.translation import metrics, signature
from headway.tasks.recipe import Recipe
from headway.tasks.seq2seq.translate import check_model, check_vocabularies, read_sources, source_limit, translate
from headway.tasks.seq2seq.writing import (
    WritingTraining,
    assessed,
    decoder_tensors,
    pair_loss,
    read_targets,
    start_token,
    text_tokenizer,
    train_ending_tokenizer,
)
from headway.tasks.training import TaskContext, short_text

GENERATED = 8000
"""Pairs that are made up where no file is given."""
SUMMARY = 3
"""Sources that are so many times as long as their targets are summarised, not translated."""


@dataclass(frozen=True)
class Part:
    """Pairs as a model reads and writes them."""

    pairs: list[Pair]
    source: Examples
    target: Examples
    """What is to be predicted, the end included where nothing was cut off."""

    @property
    def cut(self) -> int:
        """Pairs of which a side was longer than the model reads."""
        return int((self.source.truncated | self.target.truncated).sum())

    @cached_property
    def lengths(self) -> Index:
        """The longer of both sides: a batch is as wide as that."""
        return np.maximum(self.source.lengths, self.target.lengths)

    @property
    def tokens(self) -> int:
        return int(self.source.lengths.sum() + self.target.lengths.sum())

    def some(self, count: int) -> Part:
        """The first pairs."""
        return Part(self.pairs[:count], *(Examples(e.ids[:count], e.token_type_ids[:count]) for e in self.sides))

    @property
    def sides(self) -> tuple[Examples, Examples]:
        return self.source, self.target

    def batches(self, tokens: int) -> Iterable[list[int]]:
        """Pairs with sources of similar length."""
        return Examples(self.source.ids, self.source.token_type_ids).batches(tokens)


@dataclass(frozen=True)
class Seq2SeqTraining(WritingTraining[Part]):
    """Texts and what they become."""

    recipe: Recipe
    tokenizer: Tokenizer
    train: Part
    valid: Part
    start: int
    """What the decoder reads first."""
    about: dict[str, Any] = field(default_factory=dict)
    """Where the texts came from."""
    _evaluations: Any = field(default_factory=counted)

    @classmethod
    def prepare(cls, context: TaskContext) -> Seq2SeqTraining:
        recipe, data, bad = context.recipe, context.recipe.data, BadRows(context.recipe.data.bad_rows)
        train = read_pairs(data.train, recipe, bad)
        train, valid = (train, read_pairs(data.valid, recipe, bad)) if data.valid else _hold_out(train)
        known = recipe.settings.sentences or p99_sentence_count(pair.source for pair in train)
        recipe = replace(recipe, settings=replace(recipe.settings, sentences=known))
        tokenizer = context.base or context.rank_zero_first(lambda: pair_tokenizer(context.folder, recipe, train))
        digest = fingerprint_pairs(data.train) if data.train else f"{made_up(recipe)[1]} {GENERATED}"
        if recipe.settings.bpe_dropout and context.base is not None:
            raise ConfigError("C004", "seq2seq.bpe_dropout is for a tokenizer of the run's own, not one of model.from")
        if recipe.settings.vocabulary == "separate" and tokenizer.target is tokenizer:
            raise ConfigError("C004", f"seq2seq.vocabulary = separate, but {recipe.model.from_} has one for both sides")
        parts = [make_part(pairs, tokenizer, data.length, recipe) for pairs in (train, valid)]
        return cls(recipe, tokenizer, parts[0], parts[1], start_token(recipe, tokenizer), context.about(digest, bad))

    @cached_property
    def metric(self) -> str:
        return metric_of(self.recipe, self.valid.pairs)

    @property
    def facts(self) -> dict[str, Any]:
        facts = {
            **self.about,
            "documents": len(self.train.pairs),
            "samples": len(self.train.pairs),
            "tokens": self.train.tokens,
            "valid_samples": len(self.valid.pairs),
            "valid_tokens": self.valid.tokens,
            "vocab": self.tokenizer.target.vocab_size,
            "cut": self.train.cut + self.valid.cut,
            "length_99": max(self.train.source.length_99, self.train.target.length_99),
        }
        return {**facts, "signature": signature(self.metric)} if self.recipe.settings.eval_texts else facts

    def config(self, base: AnyConfig | None) -> AnyConfig:
        length, what = self.recipe.data.length, self.recipe.model.from_
        if base is None:
            return self._fresh(length)
        if base.kind != "encoder-decoder" or base.lm is None or getattr(base.source, "kind", "") != "tokens":
            raise ConfigError("C004", f"task seq2seq trains encoder–decoders for text, model.from = {what} is none")
        check_context(base, length, what)
        check_vocabularies(base, self.tokenizer)
        return base

    def _fresh(self, length: int) -> AnyConfig:
        """By the recipe's shape; with a table for each side where each has a vocabulary."""
        writes = self.tokenizer.target
        roles = {role: writes.special.get(role) for role in ("pad", "bos", "eos")}
        made = seq2seq_config(self.recipe.model, self.tokenizer.vocab_size, length)
        made = replace(made, special=SpecialTokens(**roles, start=self.start))
        if writes is self.tokenizer or made.source is None or made.target is None:
            return made
        return replace(made, target=replace(made.target, vocab=writes.vocab_size), shared_embedding=False)

    def plan(self, batch: int) -> BatchSampler:
        tokens = self.recipe.train.batch_tokens
        if tokens:
            return TokenBatchSampler(self.train.lengths, tokens, self.recipe.seed)
        return FixedBatchSampler(len(self.train.pairs), batch)

    def batch(self, samples: Index) -> Batch:
        size = len(self.train.pairs)
        by_length = bool(self.recipe.train.batch_tokens)
        rows = samples % size if by_length else shuffle_samples(samples, size, self.recipe.seed)
        if not self.dropouts:
            return pair_batch(self.train, rows, self.start)
        return pair_batch(self._pieces(rows, samples), np.arange(len(rows)), self.start)

    def wanted(self, batch: Batch) -> Tensor | None:
        return batch.tensors[3]

    @cached_property
    def dropouts(self) -> tuple[BpeDropout, ...]:
        """Of what is read and of what is written; none where no merge is left out."""
        share, sides = self.recipe.settings.bpe_dropout, (self.tokenizer, self.tokenizer.target)
        return tuple(BpeDropout(side, share, self.recipe.seed) for side in sides) if share else ()

    @cached_property
    def _words(self) -> list[tuple[list[str], list[str]]]:
        (reads, writes), prefix = self.dropouts, self.recipe.settings.prefix
        return [(reads.words(prefix + pair.source), writes.words(pair.targets[0])) for pair in self.train.pairs]

    def _pieces(self, rows: Index, samples: Index) -> Part:
        """Pairs in the pieces of these samples; an end of their own, and room for it."""
        ends = [side.special["eos"] for side in (self.tokenizer, self.tokenizer.target)]
        limit = self.recipe.data.length
        sides: tuple[list[list[int]], list[list[int]]] = ([], [])
        for row, sample in zip(rows.tolist(), samples.tolist(), strict=True):
            for side, words in enumerate(self._words[row]):
                ids, end = self.dropouts[side].ids(words, sample, side), ends[side]
                sides[side].append([*ids[: limit - 1], end] if side == 0 else [*ids, end][:limit])
        source, target = (Examples(ids, [[0] * len(row) for row in ids]) for ids in sides)
        return Part([], source, target)

    @property
    def loss(self) -> Callable[..., Tensor]:
        return pair_loss(self.recipe.settings.label_smoothing, self.recipe.settings.r_drop)

    def plain_batch(self, part: Part, rows: Index) -> Batch:
        return pair_batch(part, rows, self.start)

    def write(self, model: Model, part: Part) -> list[str]:
        return [best[0].text for best in translate(model, self.tokenizer, [p.source for p in part.pairs], self.recipe)]

    def assess(self, model: Model, part: Part) -> Evaluation:
        return evaluate_in_full(model, self.tokenizer, self.recipe, part.pairs, self.metric)

    def read_test(self, spec: str) -> Part:
        data = self.recipe.data
        return make_part(read_pairs(spec, self.recipe, self.bad_tests), self.tokenizer, data.length, self.recipe)

    @property
    def tries(self) -> list[str]:
        return [short_text(pair.source for pair in self.valid.pairs)]

    @classmethod
    def evaluate_file(cls, model: Model, tokenizer: Tokenizer, recipe: Recipe, spec: str) -> Evaluation:
        """On data of the user's; without a spec, on what the run has not learned from."""
        check_model(model, tokenizer)
        if not _same_tokens(model.config, recipe.model.from_):  # a recipe of the model that this one is compared with
            recipe = replace(recipe, model=replace(recipe.model, from_=""))
        data, bad = recipe.data, BadRows(recipe.data.bad_rows)
        spec = spec or data.test or data.valid
        pairs = read_pairs(spec, recipe, bad) if spec else _hold_out(read_pairs(data.train, recipe, bad))[1]
        return evaluate_in_full(model, tokenizer, recipe, pairs, metric_of(recipe, pairs), bad.count)


def _same_tokens(config: AnyConfig, folder: str) -> bool:
    """Whether tokens are to a model what they are in a folder, whose rules of writing then apply to it."""
    try:
        other = open_folder(resolve(folder, local=True)).config
    except HeadwayError:
        return False
    ours, theirs = ((c.special, getattr(c.source, "vocab", 0), c.target and c.target.vocab) for c in (config, other))
    return ours == theirs


def read_pairs(spec: str, recipe: Recipe, bad: BadRows) -> list[Pair]:
    """All pairs of a spec; made-up ones where it is empty."""
    if spec:
        return read_parallel(spec, recipe.data.text, recipe.data.pair, bad)
    make, _ = made_up(recipe)
    return [Pair(text, (other,), "", i) for i, (text, other) in enumerate(make(GENERATED), start=1)]


def made_up(recipe: Recipe) -> tuple[Callable[[int], list[tuple[str, str]]], str]:
    """What makes up pairs, and what they are: reports and summaries for a summarizer, else translations."""
    return (make_reports, "reports") if recipe.settings.metric == "rouge" else (make_translations, "phrasebook")


def _hold_out(pairs: list[Pair]) -> tuple[list[Pair], list[Pair]]:
    if len(pairs) < 2:
        raise DataError(
            "D002", f"{len(pairs)} of 2 pairs or more: none can be held out", "data.valid names a file to validate on"
        )
    kept = min(len(pairs) - 1, round(len(pairs) * (1 - HELD_OUT)))
    return pairs[:kept], pairs[kept:]


def metric_of(recipe: Recipe, pairs: Sequence[Pair]) -> str:
    """bleu or rouge, by the lengths of the texts where the recipe leaves it open."""
    if recipe.settings.metric != "auto":
        return str(recipe.settings.metric)
    read, written = sum(len(p.source) for p in pairs), sum(len(p.targets[0]) for p in pairs)
    return "rouge" if read > SUMMARY * written else "bleu"


def pair_tokenizer(folder: Path, recipe: Recipe, pairs: Sequence[Pair]) -> Tokenizer:
    """One vocabulary for both sides, or one for each; trained once per run and kept with it."""
    sides = [pair.source for pair in pairs], [pair.targets[0] for pair in pairs]
    if recipe.settings.vocabulary == "shared":
        return text_tokenizer(folder, recipe.data, chain.from_iterable(zip(*sides, strict=True)))
    if not (folder / "tokenizer.json").exists():
        made, target = (train_ending_tokenizer(recipe.data, side) for side in sides)
        made.target = target
        made.save(folder)
    return load_tokenizer(folder)


def make_part(pairs: Sequence[Pair], tokenizer: Tokenizer, limit: int | None, recipe: Recipe) -> Part:
    """Both sides as ids, at most `limit` of each; a target that is cut has no end."""
    source = read_sources(tokenizer, [recipe.settings.prefix + pair.source for pair in pairs], limit)
    return Part(list(pairs), source, read_targets(tokenizer, [pair.targets[0] for pair in pairs], limit))


def pair_batch(part: Part, rows: Index, start: int) -> Batch:
    """What the encoder reads (N, S), which of it is real, what the decoder reads (N, T) and what it is to predict."""
    source, attention_mask, _ = part.source.read(rows)
    labels, real, _ = part.target.read(rows)
    count = int(real.sum())
    tensors = (source, attention_mask, *decoder_tensors(labels, real, start))
    return Batch(tensors, count, int(attention_mask.sum()) + count)


def evaluate_in_full(
    model: Model, tokenizer: Tokenizer, recipe: Recipe, pairs: Sequence[Pair], metric: str, bad: int = 0
) -> Evaluation:
    """What a model writes, against what it should have, with intervals; the statistics go with each text."""
    texts = [pair.source for pair in pairs]
    written = [best[0] for best in translate(model, tokenizer, texts, recipe)]
    found = metrics(metric, [each.text for each in written], [pair.targets for pair in pairs])
    limit, prefix = source_limit(model, recipe.data.length), recipe.settings.prefix
    sizes = [len(text.ids) for text in tokenizer.encode_batch([prefix + text for text in texts])]
    cut = sum(limit is not None and size > limit for size in sizes) if recipe.settings.split == "never" else 0
    return assessed(pairs, [each.text for each in written], found, sizes, cut, bad)
