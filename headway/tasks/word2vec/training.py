"""WordVectorsTraining: word vectors from running text, without gradients of torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from headway.config.networks.kinds import AnyConfig
from headway.config.networks.words import WordsConfig, WordVectorsConfig
from headway.data.batching.batch_sampler import BatchSampler, FixedBatchSampler
from headway.data.batching.permutation import Index, shuffle_samples
from headway.data.datasets.text import hold_out, read_corpus
from headway.data.files.rows import BadRows
from headway.data.tokenizers.tokenizer import Tokenizer, load_tokenizer
from headway.errors import ConfigError
from headway.hub.vectors.model import words_tokenizer
from headway.joint.words import WordVectors
from headway.model.model import Model
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.metrics.bootstrap import Evaluation, Metric
from headway.tasks.recipe import Recipe
from headway.tasks.training import ScoredTraining, TaskContext
from headway.tasks.word2vec.analogies import Questions, answer, evaluation, is_questions, read_questions
from headway.tasks.word2vec.corpus import (
    END,
    Spans,
    Vocabulary,
    Words,
    check_size,
    count_words,
    frequent,
    known,
    make_spans,
    words_in,
)
from headway.tasks.word2vec.draws import make_sampling
from headway.tasks.word2vec.map import word_map
from headway.tasks.word2vec.ngrams import all_rows
from headway.tasks.word2vec.search import Search, word_vectors
from headway.tasks.word2vec.task import Settings
from headway.tasks.word2vec.update import Stepper

WIDTH = 100
"""Of the vectors, where nobody says."""
HELD_WORDS = 100_000
"""Words of an evaluation, at most."""
HELD_SEED = 1 << 20
"""Added to the seed: the draws of evaluations are not those of training."""
SAMPLES, NEIGHBOURS, COMMON = 5, 5, 50
"""Words of a sample, their neighbours, and how many more frequent words are passed over: those are in every text."""


class Held(NamedTuple):
    """Held-out text."""

    spans: Spans


Part = Held | Questions


@dataclass(frozen=True)
class WordVectorsTraining(ScoredTraining[Part]):
    """Spans of running text; words predict their neighbours, or neighbours the word, among words drawn at random."""

    recipe: Recipe
    tokenizer: Tokenizer
    vocabulary: Vocabulary
    spans: Spans
    valid: Held
    base: WordVectorsConfig | None = None
    about: dict[str, Any] = field(default_factory=dict)
    by_gradient = False
    guesser = "vectors before training"

    @classmethod
    def prepare(cls, context: TaskContext) -> WordVectorsTraining:
        recipe, data, settings = context.recipe, context.recipe.data, context.recipe.settings
        bad, words = BadRows(data.bad_rows), Words(settings.split, data.lower)
        corpus = read_corpus(data.train, data, bad)
        train, valid = (corpus, read_corpus(data.valid, data, bad)) if data.valid else hold_out(corpus)
        counts = count_words(train, words)
        saved = (context.folder / "tokenizer.json").exists()  # of a resumed run
        tokenizer = context.base or (load_tokenizer(context.folder) if saved else None)
        if tokenizer is None:
            vocabulary = frequent(counts, settings, data.vocab)
            tokenizer = words_tokenizer(vocabulary.words, settings.split, data.lower)
        else:
            vocabulary = known(words_in(tokenizer, tokenizer.vocab_size - 1), counts)
        index = vocabulary.index
        spans = make_spans(train, words, index, data.length)
        check_size(spans, settings, "the training text")
        held = make_spans(valid, words, index, data.length)
        check_size(held, settings, "the validation text")
        held = held[: max(1, HELD_WORDS // data.length)]
        about = {**context.about(corpus.key, bad), "words": int(counts.total())}
        return cls(recipe, tokenizer, vocabulary, spans, Held(held), None, about)

    @property
    def settings(self) -> Settings:
        settings: Settings = self.recipe.settings
        return settings

    @property
    def static_shapes(self) -> bool:
        return True

    @property
    def facts(self) -> dict[str, Any]:
        return {
            **self.about,
            "samples": len(self.spans),
            "tokens": int((self.spans != END).sum()),
            "vocab": len(self.vocabulary.words),
            "valid_samples": len(self.valid.spans),
            "valid_tokens": int((self.valid.spans != END).sum()),
        }

    @property
    def chance(self) -> dict[str, float]:
        """All output vectors are zero before training: every word is as likely as not."""
        return {"valid": math.log(2) * (1 + self.settings.negatives)}

    def config(self, base: AnyConfig | None) -> AnyConfig:
        settings, words = self.settings, len(self.vocabulary.words)
        if base is not None:
            if not isinstance(base, WordVectorsConfig) or base.source.vocab != words:
                raise ConfigError("C004", f"model.from = {self.recipe.model.from_} is no model of word vectors")
            return replace(base, trains=True)
        return WordVectorsConfig(
            source=WordsConfig(vocab=words),
            width=self.recipe.model.width or WIDTH,
            ngram_rows=settings.subwords,
            shortest=settings.shortest,
            longest=settings.longest,
            lower=self.recipe.data.lower,
        )

    def plan(self, batch: int) -> BatchSampler:
        return FixedBatchSampler(len(self.spans), batch)

    def batch(self, samples: Index) -> Batch:
        spans = self.spans[shuffle_samples(samples, len(self.spans), self.recipe.seed)]
        places = samples * spans.shape[1]
        return Batch((torch.from_numpy(spans), torch.from_numpy(places)), float((spans != END).sum()))

    # --- steps

    @property
    def loss(self) -> Callable[..., Any]:
        raise NotImplementedError("steps change the weights without gradients: see update")

    @cached_property
    def _steppers(self) -> dict[int, Stepper]:
        return {}

    def stepper(self, model: WordVectors, seed: int) -> Stepper:
        """What draws and learns, made once for each seed."""
        if seed not in self._steppers:
            sampling = make_sampling(self.vocabulary.counts, self.settings, seed)
            rows, threads = all_rows(self.vocabulary.words, model.config), self.settings.threads
            self._steppers[seed] = Stepper(sampling, rows, threads or torch.get_num_threads(), model.inputs.device)
        return self._steppers[seed]

    def update(self, model: Model, tensors: Sequence[Tensor | None], lr: float) -> float:
        """Learn from a batch; the loss of a prediction, times the words of the batch."""
        assert isinstance(model, WordVectors)
        spans, places = tensors
        assert spans is not None and places is not None
        loss, pairs = self.stepper(model, self.recipe.seed).learn(model, spans, places, lr)
        return loss / max(1, pairs) * float((spans != END).sum())

    # --- evaluation

    @property
    def valid_part(self) -> Held:
        return self.valid

    def read_test(self, source: str) -> Part:
        if is_questions(source):
            return read_questions(source, self.bad_tests)
        data = self.recipe.data
        words, index = Words(self.settings.split, data.lower), self.vocabulary.index
        spans = make_spans(read_corpus(source, data, self.bad_tests), words, index, data.length)
        check_size(spans, self.settings, source)
        return Held(spans[: max(1, HELD_WORDS // data.length)])

    def loss_and_metrics(self, model: Model, part: Part, world: ProcessGroup) -> tuple[float, dict[str, float]]:
        """The loss of a prediction; of analogies, the share of wrong answers."""
        assert isinstance(model, WordVectors)
        if isinstance(part, Questions):
            accuracy = answer(self._search(model).vectors, self.vocabulary.words, part).accuracy
            return 1 - accuracy, {"accuracy": accuracy}
        losses, pairs = self._losses(model, part)
        return float(losses.sum() / max(1, pairs.sum())), {}

    def _losses(self, model: WordVectors, part: Held) -> tuple[np.ndarray, np.ndarray]:
        """The summed loss and the number of predictions of each span."""
        stepper, device = self.stepper(model, self.recipe.seed + HELD_SEED), model.inputs.device
        spans = torch.from_numpy(part.spans).to(device)
        places = torch.arange(len(spans), device=device) * spans.shape[1]
        found = [stepper.losses(model, spans[i : i + 1], places[i : i + 1]) for i in range(len(spans))]
        losses, pairs = zip(*found, strict=True)
        return np.array(losses), np.array(pairs)

    def evaluate_in_full(self, model: Model, part: Part) -> Evaluation:
        assert isinstance(model, WordVectors)
        search = self._search(model)
        pictures = {
            "pictures": [word_map(search)],
            "pictures_title": "the most frequent words, by their two principal components",
        }
        if isinstance(part, Questions):
            found = evaluation(answer(search.vectors, self.vocabulary.words, part))
            return replace(found, details={**found.details, **pictures})
        losses, pairs = self._losses(model, part)
        statistics = np.stack([losses, pairs], 1).astype(np.float64)  # spans of frequent words may have no pairs
        loss = Metric("loss", statistics, lambda total: float(total[0] / max(1.0, total[1])))
        return Evaluation(int(pairs.sum()), {"loss": loss.interval()}, pictures, [], loss)

    def _search(self, model: WordVectors) -> Search:
        return word_vectors(model, self.vocabulary.words)

    @property
    def tries(self) -> list[str]:
        return self._samples()[:1]

    def _samples(self) -> list[str]:
        """Frequent words that are not the most frequent ones."""
        words = self.vocabulary.words
        return words[min(COMMON, len(words) // 2) :: max(1, len(words) // 50)][:SAMPLES]

    def sample(self, model: Model) -> str:
        """Some words, and those nearest to them."""
        assert isinstance(model, WordVectors)
        search = self._search(model)
        lines = []
        for word in self._samples():
            near = search.nearest(search.query(word), NEIGHBOURS)
            lines.append(f"{word}: " + ", ".join(f"{each.word} {each.cosine:.2f}" for each in near))
        return "\n".join(lines)

    @classmethod
    def evaluate_file(cls, model: Model, tokenizer: Tokenizer, recipe: Recipe, source: str) -> Evaluation:
        """Analogies, or the loss on a text; without a source, on what the run held out."""
        assert isinstance(model, WordVectors)
        source = source or recipe.data.test
        if source and is_questions(source):
            bad = BadRows(recipe.data.bad_rows)
            words = words_in(tokenizer, model.config.source.vocab)
            found = evaluation(answer(word_vectors(model, words).vectors, words, read_questions(source, bad)))
            return replace(found, details={**found.details, "bad_rows": bad.count})
        if not model.config.trains:
            why = "these vectors have no output vectors, so there is no loss"
            raise ConfigError("C004", why, "evaluate them on analogies: headway eval M questions-words.txt")
        training = cls.prepare(TaskContext(recipe, Path(), tokenizer))
        return training.evaluate_in_full(model, training.read_test(source) if source else training.valid)
