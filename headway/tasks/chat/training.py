"""Conversations: a model learns to write the answers, and only those."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from headway.config.networks.kinds import AnyConfig
from headway.config.recipe import DataConfig
from headway.data.batching.batch_sampler import BatchSampler
from headway.data.batching.packing import PackedRows, PaddedRows, padded_width
from headway.data.batching.permutation import Index
from headway.data.batching.windows import Ids
from headway.data.chat_template.template import END_OF_TURN, TOKEN_TEMPLATE, TURN_TOKENS, ChatTemplate, ensure_template
from headway.data.datasets.chat import (
    Conversation,
    EncodedChats,
    encode_conversations,
    message_texts,
    read_conversations,
    train_valid_conversations,
)
from headway.data.datasets.text import DEFAULT_VOCAB_SIZE, without_special_tokens
from headway.data.files.rows import BadRows, fingerprint
from headway.data.tokenizers.tokenizer import Tokenizer, load_tokenizer
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError, DataError
from headway.generate.decode import Sampling, decode
from headway.model.model import Model, evaluating
from headway.progress import track
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.lm.training import EVAL_TOKENS, plan_rows, row_batch, writer_config
from headway.tasks.losses.tokens import IGNORE, token_loss
from headway.tasks.metrics.bootstrap import Evaluation, interval, mean_metric
from headway.tasks.metrics.chance import unigram_loss
from headway.tasks.recipe import Recipe
from headway.tasks.training import TaskContext, Training

SCORED = 1024
"""Tokens whose scores over the vocabulary are in memory at a time."""
SAMPLES, SAMPLE_TOKENS = 2, 64
"""Held-out questions that are answered for a person to look at, and how long an answer may be."""


@dataclass(frozen=True)
class ChatTraining(Training):
    """Questions are read, answers are learned; conversations that share a row do not see each other."""

    recipe: Recipe
    tokenizer: Tokenizer
    train: EncodedChats
    valid: EncodedChats
    about: dict[str, Any] = field(default_factory=dict)
    """Where the conversations came from."""

    @classmethod
    def prepare(cls, context: TaskContext) -> ChatTraining:
        """Read, hold some out, and tokenize through the chat template of model.from, or through ours."""
        recipe, data, bad = context.recipe, context.recipe.data, BadRows(context.recipe.data.bad_rows)
        if data.rows == "stream":
            raise ConfigError(
                "C004", 'data.rows = "stream" would tear conversations apart', 'set it to "pack" or "pad"'
            )
        train, valid = train_valid_conversations(data.train, data.valid, bad, recipe.seed, data)
        own = context.base or context.rank_zero_first(lambda: chat_tokenizer(context.folder, data, train))
        tokenizer, template = ensure_template(own)
        first = _encoded(data.train, train, tokenizer, template, bad, data.length)
        second = _encoded(data.valid or data.train, valid, tokenizer, template, BadRows(data.bad_rows), data.length)
        key = fingerprint(data.train) if data.train else ""
        return cls(recipe, tokenizer, first, second, context.about(key, bad))

    @property
    def static_shapes(self) -> bool:
        return self.recipe.data.rows != "pad"

    @property
    def facts(self) -> dict[str, Any]:
        return {
            **self.about,
            "documents": len(self.train),
            "tokens": len(self.train.ids),
            "answer_tokens": int(self.train.assistant_mask.sum()),
            "shortened": self.train.shortened,
            "cut": self.train.cut,
            "left_out": self.train.left_out,
            "length_99": self.train.length_99,
            "vocab": self.tokenizer.vocab_size,
            "samples": len(self.rows[0]),
            "valid_tokens": len(self.valid.ids),
        }

    @cached_property
    def chance(self) -> dict[str, float]:
        learned, held_out = (np.asarray(part.ids)[part.assistant_mask] for part in (self.train, self.valid))
        return {"valid": unigram_loss(learned, held_out, self.tokenizer.vocab_size), "answered": 0.0}

    def config(self, base: AnyConfig | None) -> AnyConfig:
        """What ends an answer ends a text, also where model.from has another token for that."""
        config = writer_config(self.recipe, self.tokenizer, base)
        special, end = (
            config.special,
            int(self.train.ids[np.flatnonzero(self.train.assistant_mask[: self.train.starts[1]])[-1]]),
        )
        if end in special.eos_ids or end not in self.tokenizer.backend.get_added_tokens_decoder():
            return config
        return replace(config, special=replace(special, eos=(*special.eos_ids, end) if special.eos_ids else end))

    @cached_property
    def rows(self) -> tuple[PackedRows | PaddedRows, PackedRows | PaddedRows]:
        """The samples of an epoch: ids, and laid out alike, whether each is of an answer."""
        data, chats, seed = self.recipe.data, self.train, self.recipe.seed
        alike = (chats.ids, chats.assistant_mask.astype(np.int64))
        if data.rows == "pack":
            ids, answer = (PackedRows(values, chats.starts, data.length, seed) for values in alike)
            return ids, answer
        shuffle = not self.recipe.train.batch_tokens
        one, other = (PaddedRows(values, chats.starts, data.length, seed, shuffle) for values in alike)
        return one, other

    def plan(self, batch: int) -> BatchSampler:
        return plan_rows(self.recipe, self.rows[0], batch)

    def batch(self, samples: Index) -> Batch:
        ids, answer = self.rows
        inputs, targets, segment_ids = ids.read(samples)
        batch = row_batch(inputs, _only(targets, answer.read(samples)[1]), segment_ids)
        return replace(batch, read=int((segment_ids > 0).sum()))

    def wanted(self, batch: Batch) -> Tensor | None:
        return batch.tensors[1]

    @staticmethod
    def loss(model: Model, inputs: Tensor, targets: Tensor, segment_ids: Tensor | None) -> Tensor:
        output = model(inputs, attention_mask=segment_ids)
        total, count = token_loss(model.lm, output.hidden, targets)
        return total if output.penalty is None else total + output.penalty * count

    def evaluate(self, model: Model, world: ProcessGroup) -> dict[str, float]:
        return self.evaluate_examples(model, self.valid, world)

    def read_test(self, spec: str) -> EncodedChats:
        tokenizer, template = ensure_template(self.tokenizer)
        found = read_conversations(spec, self.bad_tests, self.recipe.data)
        return _encoded(spec, found, tokenizer, template, self.bad_tests, self.recipe.data.length)

    def evaluate_examples(self, model: Model, part: EncodedChats, world: ProcessGroup) -> dict[str, float]:
        return _metrics(answer_losses(model, part, world), world)

    def sample(self, model: Model) -> str:
        """The likeliest answers to the first held-out questions, each under its question."""
        asked = [self.valid.prompt(number) for number in range(min(SAMPLES, len(self.valid)))]
        texts = [""] * len(asked)
        how = Sampling(temperature=0.0, max_tokens=SAMPLE_TOKENS)
        for piece in decode(model, [ids for _, ids in asked], how, tokenizer=self.tokenizer):
            texts[piece.row] += piece.text
        return "\n".join(f"{question}\n→ {text.strip()}" for (question, _), text in zip(asked, texts, strict=True))

    @classmethod
    def evaluate_file(cls, model: Model, tokenizer: Tokenizer, recipe: Recipe, spec: str) -> Evaluation:
        """Loss and perplexity of the answers in a file, and how many of them the model would give word for word."""
        data, bad = recipe.data, BadRows(recipe.data.bad_rows)
        tokenizer, template = ensure_template(tokenizer)
        found = (
            read_conversations(spec, bad, data)
            if spec
            else train_valid_conversations(data.train, data.valid, bad, recipe.seed, data)[1]
        )
        length = min(data.length, model.config.max_length or data.length)
        chats = _encoded(spec, found, tokenizer, template, bad, length)
        got = answer_losses(model, chats, _SingleProcess(next(model.parameters()).device))
        loss = interval(lambda rows: got.loss[rows].sum() / got.tokens[rows].sum(), len(chats))
        low, middle, high = (math.exp(min(value, 700.0)) for value in (loss[1], loss[0], loss[2]))
        return Evaluation(
            len(chats),
            {
                "loss": loss,
                "perplexity": (middle, low, high),
                "answered": interval(lambda rows: got.right[rows].sum() / got.answers[rows].sum(), len(chats)),
            },
            {"answers": int(got.answers.sum()), "answer_tokens": int(got.tokens.sum()), "bad_rows": bad.count},
            [
                {"loss": float(a / b), "tokens": int(b), "right": int(c), "answers": int(d)}
                for a, b, c, d in zip(got.loss, got.tokens, got.right, got.answers, strict=True)
            ],
            mean_metric("answered", got.right, got.answers),  # losses of other tokens do not compare
        )


def chat_tokenizer(folder: Path, data: DataConfig, conversations: list[Conversation]) -> Tokenizer:
    """Trained once per run and kept with it; roles and the end of a turn are tokens of their own."""
    if not (folder / "tokenizer.json").exists():
        lines = (line for text in message_texts(conversations) for line in text.splitlines(keepends=True))
        made = train_tokenizer(
            data.tokenizer, lines, data.vocab or DEFAULT_VOCAB_SIZE.get(data.tokenizer, 0), special=TURN_TOKENS
        )
        Tokenizer(
            without_special_tokens(made).backend, {"eos_token": END_OF_TURN, "chat_template": TOKEN_TEMPLATE}
        ).save(folder)
    return load_tokenizer(folder)


def _encoded(
    spec: str, found: list[Conversation], tokenizer: Tokenizer, template: ChatTemplate, bad: BadRows, length: int
) -> EncodedChats:
    chats = encode_conversations(found, tokenizer, template, bad, length)
    if not len(chats):
        first = f", the first: {bad.first[0]}" if bad.first else ""
        why = f"{bad.count:,} bad rows, {chats.left_out:,} without room for an answer in {length} tokens{first}"
        raise DataError("D002", f"{spec}: no conversation of {len(found):,} can be used: {why}"[:280])
    return chats


def _only(targets: Ids, answer: Ids) -> Ids:
    """Targets that are of an answer; the others count for nothing."""
    return np.where(answer == 1, targets, IGNORE)


@dataclass(frozen=True)
class AnswerLosses:
    """Of each conversation; zero for those that other processes have read."""

    loss: NDArray[np.float64]
    """Sum over the tokens of its answers."""
    tokens: NDArray[np.float64]
    right: NDArray[np.float64]
    """Answers that the model, given all before them, would write word for word."""
    answers: NDArray[np.float64]


@dataclass(frozen=True)
class _SingleProcess:
    """Nobody to share with."""

    device: torch.device
    rank: int = 0
    size: int = 1

    def sum(self, *values: float) -> list[float]:
        return list(values)


def answer_losses(model: Model, chats: EncodedChats, world: ProcessGroup) -> AnswerLosses:
    """How well a model answers, each conversation by itself, those of like length together.

    Whether greedy decoding would write an answer needs no decoding: it does if, reading the answer, each of its tokens
    is the likeliest next one.
    """
    with evaluating(model):
        result = np.zeros((4, len(chats)))
        for rows, inputs, targets, segment_ids in track(_evaluation(chats, world), "evaluating", unit="batches"):
            losses, hits = _scored(
                model, *(torch.from_numpy(a).to(world.device) for a in (inputs, targets, segment_ids))
            )
            counted = targets != IGNORE
            begins = counted & ~np.pad(counted, ((0, 0), (1, 0)))[:, :-1]
            wrong = counted & ~hits
            missed = [len(np.unique(number[w])) for number, w in zip(begins.cumsum(1), wrong, strict=True)]
            answers = begins.sum(1)
            result[:, rows] = losses.sum(1), counted.sum(1), answers - missed, answers
    return AnswerLosses(*result)


def _evaluation(chats: EncodedChats, world: ProcessGroup) -> Iterator[tuple[Index, Ids, Ids, Ids]]:
    """Conversations by number, and their rows, shared out; all processes make as many batches."""
    lengths = np.diff(chats.starts)
    longest = int(lengths.max())
    alike = (chats.ids, chats.assistant_mask.astype(np.int64))
    ids, answer = (PaddedRows(values, chats.starts, longest, seed=0, shuffle=False) for values in alike)
    order, at = np.argsort(-lengths, kind="stable"), 0
    while at < len(order):
        count = max(1, EVAL_TOKENS // int(padded_width(lengths[order[at]]))) * world.size
        share = order[at : at + count]
        mine = share[world.rank :: world.size]
        at += count
        some = mine if len(mine) else share[:1]  # too few: this process reads one that counts for nothing
        inputs, targets, segment_ids = ids.read(some)
        yield some, inputs, _only(targets, answer.read(some)[1] * bool(len(mine))), segment_ids


def _scored(
    model: Model, inputs: Tensor, targets: Tensor, segment_ids: Tensor
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The loss of each target, and whether it is the likeliest token; nothing where none counts."""
    counted = targets != IGNORE
    hidden, wanted = model(inputs, attention_mask=segment_ids).hidden[counted], targets[counted]
    losses = torch.zeros(targets.shape, dtype=torch.float64, device=targets.device)
    hits = torch.zeros(targets.shape, dtype=torch.bool, device=targets.device)
    parts = []
    for some, those in zip(hidden.split(SCORED), wanted.split(SCORED), strict=True):
        logits = model.lm.padded_logits(some).float()
        parts.append((F.cross_entropy(logits, those, reduction="none").double(), logits.argmax(-1) == those))
    losses[counted] = torch.cat([loss for loss, _ in parts])
    hits[counted] = torch.cat([hit for _, hit in parts])
    return losses.cpu().numpy(), hits.cpu().numpy()


def _metrics(got: AnswerLosses, world: ProcessGroup) -> dict[str, float]:
    """Mean loss a token of the answers, its exponential, and the share of answers that are right."""
    loss, tokens, right, answers = world.sum(
        *(float(part.sum()) for part in (got.loss, got.tokens, got.right, got.answers))
    )
    mean = loss / tokens
    return {"valid": mean, "perplexity": math.exp(min(mean, 700.0)), "answered": right / answers}
