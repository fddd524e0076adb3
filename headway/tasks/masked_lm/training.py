"""Masked words: a model that reads both ways learns to say what was hidden; beside it, which text follows which."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.config.model import ClassifyHeadConfig, LMHeadConfig
from headway.config.networks.kinds import AnyConfig
from headway.data.batching.batch_sampler import BatchSampler, FixedBatchSampler
from headway.data.batching.permutation import Index
from headway.data.batching.strides import special_layout
from headway.data.batching.token_store import open_store
from headway.data.batching.windows import Tokens
from headway.data.datasets.next_sentence import (
    EncoderRows,
    EvaluationRows,
    NextSentences,
    SpecialIds,
    TextRows,
    sentences,
)
from headway.data.datasets.text import Corpus, hold_out, read_corpus
from headway.data.files.rows import BadRows
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError
from headway.model.model import Model, evaluating
from headway.progress import track
from headway.tasks.backbone import encoder_backbone, run_backbone
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.losses.tokens import IGNORE, token_loss
from headway.tasks.masked_lm.fill import fill_rows
from headway.tasks.masked_lm.masking import Masking
from headway.tasks.metrics.bootstrap import Evaluation, interval, mean_metric
from headway.tasks.metrics.chance import unigram_loss
from headway.tasks.recipe import Recipe
from headway.tasks.training import TaskContext, Training, short_text

EVAL_TOKENS = 1 << 13
"""Tokens that are evaluated at a time."""
FIXED = 0
"""Seed of the masks that evaluation uses: the same for every run, so that runs compare."""
SAMPLE_TOKENS, SAMPLE_CHOICES = 24, 4

Rows = TextRows | EvaluationRows | NextSentences


@dataclass(frozen=True)
class MaskedLMTraining(Training):
    """Text of any kind, with words hidden, as rows of one shape."""

    recipe: Recipe
    tokenizer: Tokenizer
    train: TextRows | NextSentences
    valid: EvaluationRows | NextSentences
    about: dict[str, Any] = field(default_factory=dict)
    """Where the text came from."""

    @classmethod
    def prepare(cls, context: TaskContext) -> MaskedLMTraining:
        recipe, data = context.recipe, context.recipe.data
        if data.rows != "stream" or recipe.train.batch_tokens:
            raise ConfigError("C004", 'task mlm fills its rows: data.rows = "stream", without train.batch_tokens')
        bad = BadRows(data.bad_rows)
        train = read_corpus(data.train, data, bad)
        train, valid = (train, read_corpus(data.valid, data)) if data.valid else hold_out(train)
        whole = replace(train, multi_document=False)  # no token of its own ends a document: [SEP] does
        tokenizer = context.tokenizer(whole)
        Masking.of(tokenizer, recipe.settings)  # says what is missing
        first = context.rank_zero_first(lambda: training_rows(train, tokenizer, recipe))
        second = context.rank_zero_first(lambda: held_rows(valid, tokenizer, recipe))
        return cls(recipe, tokenizer, first, second, context.about(train.key, bad))

    @property
    def static_shapes(self) -> bool:
        return True

    @property
    def facts(self) -> dict[str, Any]:
        return {
            **self.about,
            "tokens": len(self.train.ids),
            "vocab": self.tokenizer.vocab_size,
            "samples": len(self.train),
            "valid_tokens": len(self.valid.ids),
        }

    @cached_property
    def chance(self) -> dict[str, float]:
        return {"valid": unigram_loss(self.train.ids, self.valid.ids, self.tokenizer.vocab_size)}

    @cached_property
    def masking(self) -> Masking:
        return Masking.of(self.tokenizer, self.recipe.settings)

    def config(self, base: AnyConfig | None) -> AnyConfig:
        """BERT's heads on an encoder of the recipe's shape, or on the body of the one it starts from."""
        body = encoder_backbone(self.recipe, self.tokenizer, base)
        assert body.encoder is not None
        had = base or body
        words = had.lm or LMHeadConfig(transform=body.encoder.activation, bias="trained")
        if not self.recipe.settings.next_sentence:
            return replace(body, lm=words)
        return replace(body, lm=words, nsp=had.nsp or ClassifyHeadConfig(labels=2, dense="tanh"))

    def plan(self, batch: int) -> BatchSampler:
        return FixedBatchSampler(len(self.train), batch)

    def batch(self, samples: Index) -> Batch:
        return masked_batch(self.train.read(samples), samples, self.masking, self.recipe.seed)

    def wanted(self, batch: Batch) -> Tensor:
        ids, _, _, places, targets, _ = batch.tensors
        assert ids is not None and places is not None and targets is not None
        counted = targets != IGNORE
        rows = torch.arange(len(ids))[:, None].expand_as(places)[counted]
        found = torch.full_like(ids, IGNORE)
        found[rows, places[counted]] = targets[counted]
        return found

    @staticmethod
    def loss(
        model: Model,
        ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        places: Tensor,
        targets: Tensor,
        follows: Tensor | None,
    ) -> Tensor:
        """Only what was hidden goes through the output layer, the largest matrix of a small model.

        Whether B follows A counts as much as a row's masked words: the mean over a batch is then the sum of two means,
        however the batch is divided.
        """
        output = run_backbone(model, ids, attention_mask, token_type_ids)
        total, _ = token_loss(model.lm, at(output.hidden, places), targets)
        if follows is None:
            return total
        wrong = F.cross_entropy(model.nsp(output.hidden, output.attention_mask).float(), follows, reduction="none")
        return total + (wrong * (targets != IGNORE).sum(1)).sum()

    def evaluate(self, model: Model, world: ProcessGroup) -> dict[str, float]:
        return self.evaluate_examples(model, self.valid, world)

    def read_test(self, spec: str) -> EvaluationRows | NextSentences:
        return held_rows(read_corpus(spec, self.recipe.data, self.bad_tests), self.tokenizer, self.recipe)

    def evaluate_examples(
        self, model: Model, part: EvaluationRows | NextSentences, world: ProcessGroup
    ) -> dict[str, float]:
        return evaluate(model, part, self.masking, world)

    @property
    def tries(self) -> list[str]:
        """The first words of the validation text, the last of them hidden."""
        words = short_text([self.tokenizer.decode([int(i) for i in self.valid.ids[: 4 * SAMPLE_TOKENS]])]).split()
        return [" ".join([*words[:-1], self.tokenizer.pieces([self.masking.mask])[0]])]

    def sample(self, model: Model) -> str:
        """The first words of the validation text, two of them hidden, and what the model puts there."""
        ids = [int(i) for i in self.valid.ids[: min(SAMPLE_TOKENS, self.valid.length - 2)]]
        cls, sep, *_ = marks_of(self.tokenizer)
        row, places = [cls, *ids, sep], sorted({1 + len(ids) // 3, 1 + 2 * len(ids) // 3})
        answers = self.tokenizer.pieces([row[place] for place in places])
        for place in places:
            row[place] = self.masking.mask
        found = fill_rows(model, [row], [places], SAMPLE_CHOICES)[0]
        lines = [self.tokenizer.decode(row[1:-1], skip_special=False)]
        for answer, choices in zip(answers, found, strict=True):
            shown = ", ".join(f"{self.tokenizer.pieces([i])[0]} {p:.2f}" for i, p in choices)
            lines.append(f"{answer}: {shown}")
        return "\n".join(lines)

    @classmethod
    def evaluate_file(cls, model: Model, tokenizer: Tokenizer, recipe: Recipe, spec: str) -> Evaluation:
        """Accuracy and loss of masked words on a text, masks as in every evaluation; by rows, with intervals.

        Without a spec, on what the run has not learned from.
        """
        data = recipe.data
        spec = spec or data.test or data.valid
        texts = read_corpus(spec, data) if spec else hold_out(read_corpus(data.train, data))[1]
        pairs = recipe.settings.next_sentence and model.config.nsp is not None
        recipe = replace(recipe, settings=replace(recipe.settings, next_sentence=pairs))
        rows = held_rows(texts, tokenizer, recipe)
        masking, device = Masking.of(tokenizer, recipe.settings), next(model.parameters()).device
        size = max(1, EVAL_TOKENS // recipe.data.length)
        parts = [_losses_and_hits(model, batch.to(device)) for batch in _batches(rows, masking, size)]
        loss, right, count, follows = torch.cat(parts, 1).double().cpu().numpy()

        def mean(values: Any) -> Any:
            return lambda chosen: values[chosen].sum() / count[chosen].sum()

        metrics = {"accuracy": interval(mean(right), len(count)), "loss": interval(mean(loss), len(count))}
        metrics["perplexity"] = tuple(math.exp(min(x, 700.0)) for x in metrics["loss"])  # type: ignore[assignment]
        if pairs:
            metrics["next_accuracy"] = interval(lambda chosen: follows[chosen].mean(), len(count))
        details = {"predictions": int(count.sum())}
        return Evaluation(len(count), metrics, details, primary_metric=mean_metric("accuracy", right, count))


def marks_of(tokenizer: Tokenizer) -> SpecialIds:
    special, between = tokenizer.special, tuple(special_layout(tokenizer, pair=True).between[0])
    return SpecialIds(special["cls"], special["sep"], special.get("pad", special["sep"]), between or (special["sep"],))


def training_rows(texts: Corpus, tokenizer: Tokenizer, recipe: Recipe) -> TextRows | NextSentences:
    """Pairs of stretches, or full rows of one text after another."""
    if recipe.settings.next_sentence:
        return _sentence_rows(texts, tokenizer, recipe.data.length, recipe.seed)
    return TextRows(_tokens(texts, tokenizer), recipe.data.length, recipe.seed, marks_of(tokenizer))


def held_rows(texts: Corpus, tokenizer: Tokenizer, recipe: Recipe) -> EvaluationRows | NextSentences:
    """The same for evaluation: the same rows, whatever the recipe's seed."""
    if recipe.settings.next_sentence:
        return _sentence_rows(texts, tokenizer, recipe.data.length, FIXED)
    return EvaluationRows(_tokens(texts, tokenizer), recipe.data.length, marks_of(tokenizer))


def _tokens(texts: Corpus, tokenizer: Tokenizer) -> Tokens:
    end = tokenizer.special["sep"] if texts.multi_document else None  # between documents, as in a pair
    return open_store(texts.read, tokenizer, key=texts.key, end=end).ids


def _sentence_rows(texts: Corpus, tokenizer: Tokenizer, length: int, seed: int) -> NextSentences:
    counts = [sum(1 for _ in sentences(text)) for text in texts.read()]

    def parted() -> Iterator[str]:
        return chain.from_iterable(map(sentences, texts.read()))

    store = open_store(parted, tokenizer, key=f"{texts.key} sentences", end=None)
    documents = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return NextSentences(store.ids, store.starts, documents, length, seed, marks_of(tokenizer))


def masked_batch(drawn: EncoderRows, samples: Index, masking: Masking, seed: int) -> Batch:
    """Rows with words hidden, the places of these and what was there: of one shape, whatever the rows hold."""
    most = int(masking.number(drawn.ids.shape[1] - 2))
    inputs, places, targets = masking.hide(drawn.ids, samples, seed, most)
    attention_mask = None if drawn.attention_mask is None else torch.from_numpy(drawn.attention_mask).bool()
    rest = (
        None if part is None else torch.from_numpy(part) for part in (drawn.token_type_ids, drawn.next_sentence_label)
    )
    token_type_ids, follows = rest
    tensors = (
        torch.from_numpy(inputs),
        attention_mask,
        token_type_ids,
        torch.from_numpy(places),
        torch.from_numpy(targets),
        follows,
    )
    read = drawn.ids.size if drawn.attention_mask is None else int(drawn.attention_mask.sum())
    return Batch(tensors, max(1, int((targets != IGNORE).sum())), read)  # 1: text of unknown words only


def at(hidden: Tensor, places: Tensor) -> Tensor:
    """(B, T, M) at places (B, k): (B, k, M)."""
    rows = torch.arange(len(places), device=places.device)[:, None] * hidden.shape[1]
    return hidden.flatten(0, 1)[rows + places]


def evaluate(
    model: Model, rows: EvaluationRows | NextSentences, masking: Masking, world: ProcessGroup
) -> dict[str, float]:
    """Mean loss and accuracy over the hidden words, and over pairs where there are any; the masks never change."""
    with evaluating(model):
        sums = np.zeros(4)
        size = max(1, EVAL_TOKENS // rows.length) * world.size
        for batch in _batches(rows, masking, size, world):
            sums += _losses_and_hits(model, batch.to(world.device)).sum(1).double().cpu().numpy()
    loss, right, count, follows = world.sum(*sums.tolist())
    metrics = {"valid": loss / count, "perplexity": math.exp(min(loss / count, 700.0)), "accuracy": right / count}
    return {**metrics, "next_accuracy": follows / len(rows)} if isinstance(rows, NextSentences) else metrics


def _batches(rows: Rows, masking: Masking, size: int, world: ProcessGroup | None = None) -> Iterator[Batch]:
    """Every row once, those of each batch shared out; all processes make as many batches."""
    for at_ in track(range(0, len(rows), size), "evaluating", unit="batches"):
        samples = np.arange(at_, min(at_ + size, len(rows)))
        mine = samples if world is None else samples[world.rank :: world.size]
        if len(mine):
            yield masked_batch(rows.read(mine), mine, masking, FIXED)
            continue
        batch = masked_batch(rows.read(samples[:1]), samples[:1], masking, FIXED)  # counts for nothing
        *others, targets, follows = batch.tensors
        assert targets is not None
        gone = None if follows is None else torch.full_like(follows, IGNORE)
        yield Batch((*others, torch.full_like(targets, IGNORE), gone), 0)


@torch.no_grad()
def _losses_and_hits(model: Model, tensors: tuple[Tensor | None, ...]) -> Tensor:
    """By row (4, B): sum of the losses, words found, words to find, 1 where the second text was told right."""
    ids, attention_mask, token_type_ids, places, targets, follows = tensors
    assert ids is not None and places is not None and targets is not None
    output = run_backbone(model, ids, attention_mask, token_type_ids)
    logits = model.lm(at(output.hidden, places)).float()
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="none")
    right, count = (logits.argmax(-1) == targets).sum(1), (targets != IGNORE).sum(1)
    told = torch.zeros_like(right)
    if follows is not None:
        told = (model.nsp(output.hidden, output.attention_mask).argmax(-1) == follows).to(right.dtype)
    return torch.stack([losses.view_as(targets).sum(1), right, count, told])
