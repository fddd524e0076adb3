"""A `Bundle`: a model with its tokenizer, that generates, predicts, checks and saves; `load` makes one by name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headway.config.baselines import AnyConfig
from headway.config.presets import PRESETS, preset
from headway.config.recipe import RUNS
from headway.config.toml import build
from headway.data.chat_template.template import Message
from headway.data.files.lines import read_as
from headway.data.files.rows import BadRows
from headway.data.prompts import PromptEncoder
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError, DataError, NotFoundError, nearest
from headway.generate.beam.rules import Beam
from headway.generate.decode import Sampling, decode
from headway.generate.prefix_cache import PrefixCache
from headway.generate.protocol import Decoder
from headway.generate.trace import Choice, Growth
from headway.hub.download import resolve
from headway.hub.folder import (
    check_memory,
    load_folder_tokenizer,
    load_model,
    read_tokenizer,
    resize_images,
    save_model,
)
from headway.hub.generation_config import GenerationSettings, read_generation
from headway.jsonfile import read_json
from headway.model.model import Model, Transformer
from headway.runs.history import resolve_run
from headway.tasks.recipe import Recipe, load_run_recipe
from headway.tasks.registry import fitting, get_task

if TYPE_CHECKING:  # the halves of tasks and checks are imported by the methods that need them
    from headway.checks.choices import Accuracy, ChoicesConfig
    from headway.checks.equivalence.result import CheckResult
    from headway.generate.grammar.grammar import Mask, Patterns
    from headway.generate.score import Scored
    from headway.generate.speculative import SpeculativeDecoder
    from headway.tasks.classification.predict import Prediction
    from headway.tasks.embedding.index import SearchIndex
    from headway.tasks.embedding.predict import EmbeddingPredictor
    from headway.tasks.embedding.vectors import Near
    from headway.tasks.masked_lm.fill import Filled
    from headway.tasks.qa.evaluate import Answer
    from headway.tasks.qa.task import Settings as QuestionAnsweringConfig
    from headway.tasks.seq2seq.translate import Translation
    from headway.tasks.tagging.predict import Entity

NOTE = "headway.json"
"""What a saved folder says of a model beside the files that the ecosystem has."""


@dataclass(frozen=True)
class Bundle:
    """A model with its tokenizer, if it has one, and the folder that it was loaded from."""

    name: str
    model: Model
    tokenizer: Tokenizer | None
    folder: Path | None

    @property
    def config(self) -> AnyConfig:
        return self.model.config

    def check(self, *, compiled: bool = True) -> Iterator[CheckResult]:
        """Check that every fast path equals its slow path."""
        from headway.checks.equivalence.suite import check_model

        return check_model(self.model, self.tokenizer, compiled=compiled)

    def save(self, folder: str | Path) -> Path:
        """Save a folder in the Hugging Face layout. headway.json names the task if the heads do not tell it."""
        saved = save_model(self.model, Path(folder), self.tokenizer, self.folder)
        told = [task.name for task in fitting(self.config)[:1]]
        if self.named_task and [self.named_task] != told:
            (saved / NOTE).write_text(json.dumps({"task": self.named_task}) + "\n", encoding="utf-8")
        return saved

    @cached_property
    def recipe(self) -> Recipe | None:
        """The recipe of the run, if the folder is a run of headway."""
        if self.folder is None or not (self.folder / "run" / "recipe.toml").exists():
            return None
        return load_run_recipe(self.folder)

    @cached_property
    def named_task(self) -> str:
        """The task that the folder names: its recipe, or headway.json; empty if it names none."""
        if self.recipe is not None:
            return self.recipe.task
        path = None if self.folder is None else self.folder / NOTE
        return str(read_json(path).get("task", "")) if path is not None and path.exists() else ""

    @property
    def task(self) -> str:
        """What the model is for: the task of its run, or the task that its heads fit."""
        if self.named_task:
            return self.named_task
        if not (found := fitting(self.config)):
            raise DataError("D001", f"{self.name} has no head that a task uses; its input is no text")
        return found[0].name

    def require_tokenizer(self) -> Tokenizer:
        """The tokenizer; an error says why there is none."""
        if self.tokenizer is not None:
            return self.tokenizer
        if self.folder is None:
            raise DataError("D001", f"{self.name} has no tokenizer", "load the folder of a trained model")
        return read_tokenizer(self.folder)

    def _generation_tokenizer(self) -> Tokenizer:
        if self.config.kind != "decoder" or self.config.lm is None:
            raise DataError("D001", f"{self.name} does not generate text")
        return self.require_tokenizer()

    @cached_property
    def prompts(self) -> PromptEncoder:
        """The encoder of texts and conversations into prompts."""
        return PromptEncoder(self._generation_tokenizer(), self.config.special, self.name)

    @cached_property
    def generation(self) -> GenerationSettings:
        """The generation settings of the model's folder."""
        found = read_generation(self.folder)
        vocab = self.model.lm.vocab if self.config.lm is not None else 0
        if vocab and (strange := [token for token in found.tokens if not 0 <= token < vocab]):
            message = f"generation_config.json names token {strange[0]}; the vocabulary has {vocab} tokens"
            raise ConfigError("C003", message, "remove the token from the file")
        return found

    @property
    def notes(self) -> tuple[str, ...]:
        """Generation settings of the folder that headway does not follow."""
        writes = self.config.lm is not None and self.config.kind != "encoder"
        return self.generation.notes(encodes=self.config.kind == "encoder-decoder") if writes else ()

    def sampling(self, /, **given: Any) -> Sampling:
        """Sampling settings: `given`, then those of the model's folder, then the defaults."""
        return build(Sampling, self.generation.fields(given))

    def beam(self, /, **given: Any) -> Beam:
        """Settings of a beam search, in the same order."""
        return build(Beam, {"max_tokens": Sampling().max_tokens, **self.generation.fields(given, beam=True)})

    @cached_property
    def prefix_cache(self) -> PrefixCache:
        """The model with the KV cache of its last sequence, so that a conversation is not prefilled again."""
        return PrefixCache(self.model)

    def stream(
        self,
        prompt: str,
        tokens: int | None = None,
        sampling: Sampling | None = None,
        trace: list[Choice] | None = None,
        *,
        by: Decoder[Any] | None = None,
        mask: Mask | None = None,
    ) -> Iterator[str]:
        """Generate text after the prompt, and yield it piece by piece; a piece never ends inside a character.

        At most `tokens` tokens, with `sampling` or the settings of the folder. `by` decodes in the model's place: a
        `prefix_cache` or a `speculation`. The text satisfies `mask`, from `pattern`.
        """
        return self._pieces(self.prompts.text(prompt), self._limited(sampling, tokens), trace, by or self.model, mask)

    def _limited(self, sampling: Sampling | None, tokens: int | None) -> Sampling:
        sampling = sampling or self.sampling()
        return sampling if tokens is None else replace(sampling, max_tokens=tokens, max_length=0)

    def _pieces(
        self, ids: list[int], sampling: Sampling, trace: list[Choice] | None, by: Decoder[Any], mask: Mask | None
    ) -> Iterator[str]:
        for piece in decode(by, [ids], sampling, tokenizer=self._generation_tokenizer(), mask=mask, trace=trace):
            if piece.text:
                yield piece.text

    def generate(self, prompts: Sequence[str], sampling: Sampling | None = None) -> list[str]:
        """Generate text after each prompt, in one batch; with a seed, the same text as one by one."""
        tokenizer, found = self._generation_tokenizer(), [""] * len(prompts)
        ids = [self.prompts.text(prompt) for prompt in prompts]
        for piece in decode(self.model, ids, sampling or self.sampling(), tokenizer=tokenizer) if ids else ():
            found[piece.row] += piece.text
        return found

    def speculation(self, draft: Bundle, sampling: Sampling, ahead: int = 4) -> SpeculativeDecoder:
        """A speculative decoder for one text: the draft proposes tokens, the text stays the same."""
        from headway.generate.speculative import SpeculativeDecoder

        if self._generation_tokenizer().backend.get_vocab() != draft._generation_tokenizer().backend.get_vocab():
            message = f"{draft.name} cannot be the draft of {self.name}: their tokenizers differ"
            raise DataError("D001", message, "use a smaller model of the same family")
        return SpeculativeDecoder(self.prefix_cache, draft.prefix_cache, sampling, ahead)

    @cached_property
    def _patterns(self) -> Patterns:
        from headway.generate.grammar.grammar import Patterns

        return Patterns(self._generation_tokenizer(), self.model.lm.vocab, self.config.special.eos_ids)

    def pattern(self, regex: str = "", schema: Mapping[str, Any] | None = None) -> Mask:
        """A mask that restricts one new text to a regular expression or a JSON schema."""
        return self._patterns.regular(regex) if schema is None else self._patterns.schema(schema)

    def beams(
        self, prompt: str, beam: Beam | None = None, trace: list[Growth] | None = None
    ) -> list[tuple[str, float]]:
        """The best continuations of a prompt by beam search, with their scores."""
        from headway.generate.beam.search import beam_search

        tokenizer = self._generation_tokenizer()
        found = beam_search(self.model, beam or self.beam(), [self.prompts.text(prompt)], trace=trace)[0]
        return [(tokenizer.decode(hypothesis.tokens), hypothesis.score) for hypothesis in found]

    def chat(
        self,
        messages: Sequence[Message],
        tokens: int | None = None,
        sampling: Sampling | None = None,
        trace: list[Choice] | None = None,
        *,
        by: Decoder[Any] | None = None,
        mask: Mask | None = None,
    ) -> Iterator[str]:
        """Generate the next turn of a conversation piece by piece, with the model's chat template.

        The KV cache of the last turn is kept: only new tokens are prefilled.
        """
        limited = self._limited(sampling, tokens)
        return self._pieces(self.prompts.chat(messages), limited, trace, by or self.prefix_cache, mask)

    def score(self, texts: Sequence[str]) -> list[Scored]:
        """The log-probability of each text. Without a beginning-of-sequence token, the first token is given."""
        from headway.tasks.lm.predict import score_texts

        return score_texts(self.model, self._generation_tokenizer(), texts)

    def choices(self, config: ChoicesConfig, bad: BadRows | None = None) -> Accuracy:
        """The accuracy on multiple-choice questions of a file: the model takes the most likely choice."""
        from headway.checks.choices import measure_choices

        return measure_choices(self.model, self._generation_tokenizer(), config, bad or BadRows(setting="bad_rows"))

    def attention(
        self, text: str, *, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None
    ) -> tuple[list[str], dict[str, Tensor]]:
        """The tokens of a text, and the attention weights (1, heads, queries, keys) by layer."""
        from headway.checks.attention_maps import attention_maps

        if self.config.kind == "encoder-decoder" or self.config.output_front.kind != "tokens":
            raise DataError("D001", f"{self.name} does not take a single text")
        tokenizer = self.require_tokenizer()
        ids = tokenizer.encode(text).ids
        device = next(self.model.parameters()).device
        maps = attention_maps(self.model, torch.tensor([ids], device=device), layers=layers, heads=heads)
        return tokenizer.pieces(ids), maps

    # --- predictions of models for a task

    def classify(self, texts: str | Sequence[str], pairs: str | Sequence[str] | None = None) -> list[Prediction]:
        """The label of each text, or of each pair of texts."""
        from headway.tasks.classification.predict import classify

        return classify(
            self.model, self.require_tokenizer(), _several(texts), None if pairs is None else _several(pairs)
        )

    def tag(self, texts: str | Sequence[str | Sequence[str]]) -> list[list[Entity]]:
        """The entities of each text; a text may be given as words."""
        from headway.tasks.tagging.predict import tag

        return tag(self.model, self.require_tokenizer(), [texts] if isinstance(texts, str) else texts)

    def answer(self, question: str, context: str, settings: QuestionAnsweringConfig | None = None) -> list[Answer]:
        """The best answers to a question in a context; an empty text means that there is no answer."""
        from headway.tasks.qa.predict import answer

        return answer(self.model, self.require_tokenizer(), question, context, settings)

    def fill(self, texts: str | Sequence[str], top: int = 5) -> list[Filled]:
        """The most likely words for each [MASK] of each text."""
        from headway.tasks.masked_lm.fill import fill_all

        return fill_all(self.model, self.require_tokenizer(), _several(texts), top)

    def embed(self, texts: str | Sequence[str], pool: str = "") -> Tensor:
        """A unit vector for each text; `pool` is mean or first, by default as in training."""
        from headway.tasks.embedding.vectors import embed

        return embed(self.model, self.require_tokenizer(), _several(texts), self._pool(pool))

    def nearest(self, query: str, texts: Sequence[str], k: int = 5, pool: str = "") -> list[Near]:
        """The k texts nearest in meaning to the query, best first."""
        from headway.tasks.embedding.vectors import nearest as nearest_texts

        return nearest_texts(self.model, self.require_tokenizer(), query, texts, k, self._pool(pool))

    def search_index(
        self,
        corpus: str | Sequence[str],
        path: str = "",
        say: Callable[..., None] = lambda text: None,
        predictor: EmbeddingPredictor | None = None,
        **reading: Any,
    ) -> SearchIndex:
        """An index with `.search(query)`, of texts or of a file of texts; for a file it can be kept in `path`.

        `predictor` and `reading` say how the file is read, where that is not as the model's run read its data.
        """
        from headway.tasks.embedding.index import build_index, corpus_index
        from headway.tasks.embedding.predict import EmbeddingPredictor

        if not isinstance(corpus, str):
            if path:
                raise ConfigError("C004", "an index in a file is for texts in a file", "give the name of that file")
            return build_index(self.embed, ((text, number) for number, text in enumerate(corpus, start=1)))
        predictor = predictor or EmbeddingPredictor(self)
        with read_as(predictor.recipe.data.encoding):
            return corpus_index(predictor, corpus, path, say, **reading)

    def hypotheses(self, texts: str | Sequence[str], beam: Beam | None = None) -> list[list[Translation]]:
        """The best outputs of an encoder–decoder for each text, with scores; by default as in training."""
        from headway.tasks.seq2seq.translate import beam_for, recipe_of, translate

        recipe = recipe_of(self.model, self.folder, self.recipe)
        beam = beam or replace(beam_for(recipe), **self.generation.rules)
        return translate(self.model, self.require_tokenizer(), _several(texts), recipe, beam)

    def translate(self, texts: str | Sequence[str], beam: Beam | None = None) -> list[str]:
        """The translation or summary of each text."""
        return [best[0].text for best in self.hypotheses(texts, beam)]

    def _pool(self, asked: str) -> str:
        from headway.tasks.embedding.predict import EmbeddingPredictor

        return asked or str(EmbeddingPredictor.default_recipe(self).settings.pool)


def _several(texts: str | Sequence[str]) -> list[str]:
    """A single text as a list of one."""
    return [texts] if isinstance(texts, str) else list(texts)


def load(
    what: str | Path,
    *,
    dtype: torch.dtype | None = None,
    device: str | torch.device = "cpu",
    image: int | None = None,
    seed: int = 0,
) -> Bundle:
    """Load a model by folder, run (`last` or its name), hub id (`org/name[@revision]`) or preset (random weights).

    `image` resamples the positions of a vision model for square images of that size.
    """
    name = str(what)
    if name == "last" or (name not in PRESETS and os.path.isdir(os.path.join(RUNS, name, "run"))):
        name = str(resolve_run(name, Path(RUNS)))
    if name in PRESETS and not os.path.isdir(name):
        with torch.device("meta"):
            check_memory(4 * Transformer(preset(name)).parameter_count())  # weights are initialized in float32
        torch.manual_seed(seed)
        model: Model = Transformer(preset(name)).to(device=device, dtype=dtype).eval()
        return Bundle(name, model, None, None)
    if "/" not in name and not os.path.isdir(name) and (close := nearest(name, PRESETS)):
        raise NotFoundError(
            "F001", f"no such model: {name}{close}", "give a run, a folder, org/name[@revision] or a preset"
        )
    folder = resolve(name)
    model = load_model(folder, dtype, device)
    if image is not None:
        resize_images(model, image)
    bundle = Bundle(name, model, load_folder_tokenizer(folder, model.config), folder)
    if bundle.tokenizer and bundle.recipe and not bundle.recipe.model.from_ and get_task(bundle.task).generates:
        bundle.tokenizer.backend.post_processor = (
            None  # trained without special tokens, whatever the tokenizer.json of an older run says
        )
    return bundle
