"""A `Bundle`: a model with its tokenizer, that generates, predicts, checks and saves; `load` makes one by name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import torch
from torch import Tensor

from headway.api.inputs import Pieces, conversation, keyword_settings, one_text, several_texts
from headway.api.predictions import Predictions
from headway.api.tables import Results, one_or_all
from headway.config.networks.kinds import AnyConfig
from headway.config.presets import PRESETS, preset
from headway.config.toml import build
from headway.data.chat_template.template import Message
from headway.data.files.rows import BadRows
from headway.data.prompts import PromptEncoder
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError, DataError
from headway.generate.beam.rules import Beam
from headway.generate.decode import Sampling, decode
from headway.generate.prefix_cache import PrefixCache
from headway.generate.protocol import Decoder
from headway.generate.trace import Choice, Growth
from headway.hub.adapter import is_adapter
from headway.hub.download import local_model, resolve
from headway.hub.folder import (
    check_memory,
    load_folder_tokenizer,
    load_model,
    load_opened,
    open_folder,
    read_tokenizer,
    save_model,
)
from headway.hub.generation_config import GenerationSettings, read_generation
from headway.hub.restored import is_restorable, resize_images
from headway.hub.run_names import is_checkpoint, run_of
from headway.hub.weights import writing
from headway.jsonfile import read_json
from headway.model.model import Model, Transformer
from headway.tasks.recipe import Recipe, load_run_recipe
from headway.tasks.registry import fitting, get_task

if TYPE_CHECKING:  # the halves of tasks and checks are imported by the methods that need them
    from headway.api.evaluation import EvaluationResult
    from headway.api.verbs import Rows
    from headway.checks.choices import Accuracy, ChoicesConfig
    from headway.checks.equivalence.result import CheckResult
    from headway.generate.grammar.grammar import Mask, Patterns
    from headway.generate.score import Scored
    from headway.generate.speculative import SpeculativeDecoder
    from headway.inspect.changes import Change
    from headway.inspect.session import Session
    from headway.inspect.trace import Pass

NOTE = "headway.json"
"""What a saved folder says of a model beside the files that the ecosystem has."""


class Continuation(NamedTuple):
    """A text that a beam search found, and its score."""

    text: str
    score: float

    def to_dict(self) -> dict[str, Any]:
        return self._asdict()


@dataclass(frozen=True, repr=False)
class Bundle(Predictions):
    """A model with its tokenizer, if it has one, and the folder that it was loaded from.

    One text in, one result out; a list in, a list out: `model.generate("Once", temperature=0.7, max_tokens=50)`,
    `model.classify(["a dull film", "a fine one"]).to_frame()`.
    """

    name: str
    model: Model
    tokenizer: Tokenizer | None
    folder: Path | None
    step: int | None = None
    """The step of the checkpoint that the weights are of; None for those of a finished run, and of any other folder."""

    def __repr__(self) -> str:
        tasks = [self.named_task] if self.named_task else [task.name for task in fitting(self.config)[:1]]
        size, device = self.model.parameter_count() / 1e6, next(self.model.parameters()).device
        place = [] if self.folder is None or str(self.folder) == self.name else [str(self.folder)]
        return f"Bundle({', '.join([repr(self.name), *tasks, f'{size:.2f}M parameters', str(device), *place])})"

    @property
    def config(self) -> AnyConfig:
        """The config of the model: `model.config.output_stack.layers`."""
        return self.model.config

    def check(self, *, compiled: bool = True) -> Iterator[CheckResult]:
        """Check that every fast path equals its slow path: `all(check.passed for check in model.check())`."""
        from headway.checks.equivalence.suite import check_model

        return check_model(self.model, self.tokenizer, compiled=compiled)

    def save(self, folder: str | Path) -> Path:
        """Save a folder in the Hugging Face layout. headway.json names the task if the heads do not tell it."""
        saved = save_model(self.model, Path(folder), self.tokenizer, self.folder)
        told = [task.name for task in fitting(self.config)[:1]]
        if self.named_task and [self.named_task] != told:
            with writing(saved, 0):
                (saved / NOTE).write_text(json.dumps({"task": self.named_task}) + "\n", encoding="utf-8")
        return saved

    def save_vectors(self, path: str | Path, *, text: bool = False) -> Path:
        """Save word vectors in one file, in word2vec's binary or text format, which other programs read."""
        from headway.hub.vectors.file import new_vector_file, write_vectors
        from headway.tasks.word2vec.predict import WordVectorsPredictor

        target = new_vector_file(Path(path), text)
        words, vectors = WordVectorsPredictor(self).rows()
        write_vectors(target, words, vectors.numpy(), binary=not text)
        return target

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
            found = fitting(self.config)
            raise DataError(
                "D001", f"{self.name} does not generate text", f"it is for {found[0].title}" if found else ""
            )
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
        **settings: Any,
    ) -> Pieces:
        """Generate text after the prompt, piece by piece: `for piece in model.stream("Once", top_p=0.9): …`

        A piece never ends inside a character. At most `tokens` tokens, with `sampling` or keywords, else the settings
        of the folder. `by` decodes in the model's place: a `prefix_cache` or a `speculation`. The text satisfies
        `mask`, from `pattern`.
        """
        ids, sampling = self.prompts.text(one_text(prompt, "prompt")), self._sampling(sampling, settings, tokens)
        return Pieces(self._pieces(ids, sampling, trace, by or self.model, mask))

    def _sampling(self, sampling: Sampling | None, settings: Mapping[str, Any], tokens: int | None = None) -> Sampling:
        given = keyword_settings(sampling, settings)
        sampling = sampling or self.sampling(**given)
        return sampling if tokens is None else replace(sampling, max_tokens=tokens, max_length=0)

    def _pieces(
        self, ids: list[int], sampling: Sampling, trace: list[Choice] | None, by: Decoder[Any], mask: Mask | None
    ) -> Iterator[str]:
        for piece in decode(by, [ids], sampling, tokenizer=self._generation_tokenizer(), mask=mask, trace=trace):
            if piece.text:
                yield piece.text

    @overload
    def generate(self, prompts: str, sampling: Sampling | None = None, **settings: Any) -> str: ...
    @overload
    def generate(self, prompts: Iterable[str], sampling: Sampling | None = None, **settings: Any) -> list[str]: ...
    def generate(
        self, prompts: str | Iterable[str], sampling: Sampling | None = None, **settings: Any
    ) -> str | list[str]:
        """Generate text after a prompt, or each of a list: `model.generate("Once", temperature=0.7, max_tokens=50)`.

        With a seed, a list gives the same texts as its prompts one by one. Keywords are the fields of `Sampling`.
        """
        tokenizer, texts = self._generation_tokenizer(), several_texts(prompts, "prompts")
        ids, found = [self.prompts.text(text) for text in texts], [""] * len(texts)
        chosen = self._sampling(sampling, settings)
        for piece in decode(self.model, ids, chosen, tokenizer=tokenizer) if ids else ():
            found[piece.row] += piece.text
        return found[0] if isinstance(prompts, str) else found

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
        self, prompt: str, beam: Beam | None = None, trace: list[Growth] | None = None, **settings: Any
    ) -> Results[Continuation]:
        """The best continuations of a prompt by beam search: `model.beams("Once", width=4, n_best=4)[0].text`."""
        from headway.generate.beam.search import beam_search

        tokenizer, given = self._generation_tokenizer(), keyword_settings(beam, settings)
        ids = self.prompts.text(one_text(prompt, "prompt"))
        found = beam_search(self.model, beam or self.beam(**given), [ids], trace=trace)[0]
        return Results(Continuation(tokenizer.decode(each.tokens), each.score) for each in found)

    def chat(
        self,
        messages: str | Sequence[Message],
        tokens: int | None = None,
        sampling: Sampling | None = None,
        trace: list[Choice] | None = None,
        *,
        by: Decoder[Any] | None = None,
        mask: Mask | None = None,
        **settings: Any,
    ) -> Pieces:
        """Generate the next turn of a conversation, with the model's chat template: `print(model.chat("Hello"))`.

        Messages are a text, or dicts with role and content. The text comes piece by piece, or whole as `.text`. The
        KV cache of the last turn is kept: only new tokens are prefilled.
        """
        ids, sampling = self.prompts.chat(conversation(messages)), self._sampling(sampling, settings, tokens)
        return Pieces(self._pieces(ids, sampling, trace, by or self.prefix_cache, mask))

    @overload
    def score(self, texts: str) -> Scored: ...  # type: ignore[overload-overlap]
    @overload
    def score(self, texts: Iterable[str]) -> Results[Scored]: ...
    def score(self, texts: str | Iterable[str]) -> Scored | Results[Scored]:
        """The log-probability of each text: `model.score("It is late.").perplexity`.

        Without a beginning-of-sequence token, the first token is given.
        """
        from headway.tasks.lm.predict import score_texts

        return one_or_all(texts, score_texts(self.model, self._generation_tokenizer(), several_texts(texts)))

    def evaluate(
        self, data: str | os.PathLike[str] | Rows = "", *, task: str = "", against: str | Bundle = "", **settings: Any
    ) -> EvaluationResult:
        """How good the model is, with intervals: `model.evaluate("test.csv").metrics["accuracy"]`."""
        from headway.api.verbs import evaluate

        return evaluate(self, data, task=task, against=against, **settings)

    def choices(self, config: ChoicesConfig, bad: BadRows | None = None) -> Accuracy:
        """The accuracy on multiple-choice questions of a file: the model takes the most likely choice."""
        from headway.checks.choices import measure_choices

        return measure_choices(self.model, self._generation_tokenizer(), config, bad or BadRows(setting="bad_rows"))

    def attention(
        self, text: str, *, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None
    ) -> tuple[list[str], dict[str, Tensor]]:
        """The tokens of a text, and the attention weights (1, heads, queries, keys) by layer."""
        from headway.checks.attention_maps import attention_maps

        if self.config.kind == "encoder-decoder" or getattr(self.config.output_front, "kind", "") != "tokens":
            raise DataError("D001", f"{self.name} does not take a single text")
        tokenizer = self.require_tokenizer()
        ids = tokenizer.encode(text).ids
        device = next(self.model.parameters()).device
        maps = attention_maps(self.model, torch.tensor([ids], device=device), layers=layers, heads=heads)
        return tokenizer.pieces(ids), maps

    @cached_property
    def session(self) -> Session:
        """The model under inspection: `model.session.patching("The cat sat", "The dog sat")`."""
        from headway.inspect.session import Session

        return Session(self)

    def inspect(self, given: Any, *, target: str | None = None, changes: Sequence[Change] = ()) -> Pass:
        """What happens inside the model with an input: `model.inspect("To be or not").attention(layer=2, head=1)`.

        An input is a text, two texts, or what else the model reads; `changes` ablate, scale, patch or steer its parts.
        """
        return self.session.run(given, target=target, changes=changes)


def load(
    what: str | os.PathLike[str],
    *,
    dtype: torch.dtype | None = None,
    device: str | torch.device = "cpu",
    image: int | None = None,
    seed: int = 0,
) -> Bundle:
    """Load a model by folder, run, hub id (`org/name[@revision]`) or preset (random weights).

    A run is `last`, a name or its beginning; `RUN@STEP` is one of its checkpoints, `RUN@best` its best weights. The
    last checkpoint stands in for a run that did not finish. `image` resamples the positions of a vision model for
    square images of that size.
    """
    name = os.fspath(what)
    place = local_model(name)
    if name in PRESETS and place is None:
        with torch.device("meta"):
            check_memory(4 * Transformer(preset(name)).parameter_count())  # weights are initialized in float32
        torch.manual_seed(seed)
        model: Model = Transformer(preset(name)).to(device=device, dtype=dtype).eval()
        return Bundle(name, model, None, None)
    folder = place or resolve(name)
    opened = None if is_adapter(folder) and not is_restorable(folder) else open_folder(folder)
    model = load_model(folder, dtype, device) if opened is None else load_opened(opened, dtype, device)
    step = None if opened is None else opened.step
    if image is not None:
        resize_images(model, image)
    run = run_of(folder)
    if is_checkpoint(folder):
        name = f"{run}@{step}"
    elif (run / "run").is_dir() and not os.path.exists(os.path.expanduser(name)):
        name = str(run)
    bundle = Bundle(name, model, load_folder_tokenizer(folder, model.config), run, step)
    if bundle.tokenizer and bundle.recipe and not bundle.recipe.model.from_ and get_task(bundle.task).generates:
        bundle.tokenizer.backend.post_processor = (
            None  # trained without special tokens, whatever the tokenizer.json of an older run says
        )
    return bundle
