"""Predictions of a loaded model, one method per task: one text in, one result out; a list in, a list out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from headway.api.inputs import (
    keyword_settings,
    one_series,
    one_text,
    several_graphs,
    several_images,
    several_sounds,
    several_texts,
    several_things,
)
from headway.api.tables import Results, one_or_all
from headway.config.toml import build
from headway.errors import ConfigError, DataError

if TYPE_CHECKING:  # the halves of tasks are imported by the methods that need them
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from headway.data.images.decode import Pixels
    from headway.generate.beam.rules import Beam
    from headway.tasks.classification.predict import Prediction
    from headway.tasks.contrastive.predict import ContrastivePredictor
    from headway.tasks.embedding.index import Encoder, SearchIndex
    from headway.tasks.embedding.vectors import Near
    from headway.tasks.masked_lm.fill import Filled
    from headway.tasks.memory.predict import Answered
    from headway.tasks.predictor import Loaded as _Base
    from headway.tasks.predictor import RunOptions
    from headway.tasks.qa.evaluate import Answer
    from headway.tasks.qa.task import Settings as QuestionAnsweringConfig
    from headway.tasks.recipe import Recipe
    from headway.tasks.seq2seq.translate import Translation
    from headway.tasks.series.predict import Forecast
    from headway.tasks.tagging.predict import Entity
    from headway.tasks.transcribe.predict import Transcript
    from headway.tasks.word2vec.predict import WordVectorsPredictor
    from headway.tasks.word2vec.search import Neighbour
else:
    _Base = object  # a Protocol's properties would stand in the way of the fields of a Bundle


def run_options(**given: Any) -> RunOptions:
    """Options of `headway run` as keywords; `labels` may be one text with commas between them."""
    from headway.tasks.contrastive.task import parse_labels
    from headway.tasks.predictor import RunOptions

    if "labels" in given:
        given["labels"] = parse_labels(given["labels"])
    return build(RunOptions, given)


class Predictions(_Base):
    """What a `Bundle` predicts with the head of its model; a model without that head says so."""

    def predict(self, inputs: Any, task: str = "", **options: Any) -> Any:
        """What the model says of an input, as plain values, whatever its task: `model.predict("a dull film")`.

        An input is what `headway run` takes as an argument, or a dict with the fields of a row, such as
        {"input": "Who?", "context": "…"}; a list of inputs gives a list. `task` names one of several that the model
        can do. Options are those of `headway run`: top=3, beam=4, words=True.
        """
        from headway.tasks.registry import fitting, known_task

        named = known_task(self.named_task)
        known = {each.name: each for each in ([named] if named else []) + fitting(self.model.config)}
        asked = {**known, **{each.verb: each for each in known.values() if each.verb}}
        if not known or (task and task not in asked):
            raise DataError("D001", f"{self.name} cannot do {task or 'any task'}", f"it can do {', '.join(known)}")
        chosen = asked[task] if task else next(iter(known.values()))
        raws = inputs if isinstance(inputs, list) else [inputs]
        examples = [chosen.parse(raw if isinstance(raw, Mapping) else {"input": raw}) for raw in raws]
        predictor = chosen.load_predictor()(self, None, run_options(**options))
        found = [each.to_dict() for each in predictor.predict(examples)]
        return Results(found) if isinstance(inputs, list) else found[0]

    @overload
    def classify(self, texts: str, pairs: str | None = None, labels: Iterable[str] | None = None) -> Prediction: ...
    @overload
    def classify(
        self, texts: Iterable[Any], pairs: Iterable[str] | None = None, labels: Iterable[str] | None = None
    ) -> Results[Prediction]: ...
    @overload
    def classify(self, texts: Any, pairs: None = None, labels: Iterable[str] | None = None) -> Prediction: ...
    def classify(
        self, texts: Any, pairs: str | Iterable[str] | None = None, labels: Iterable[str] | None = None
    ) -> Prediction | Results[Prediction]:
        """The label of each text, or of each pair of texts: `model.classify("a dull film").label`.

        A model that reads images takes those: a path, the bytes of a file, an array, or an image of Pillow. One that
        reads sounds takes a path, the bytes of a file, samples, or samples and their rate. One that reads both takes
        images and, as `pairs`, their sounds. A model of images and texts chooses among `labels`, which are texts. A
        model of graphs takes the names of their files, or {"nodes": [{"tag": "C"}, {"tag": "O"}], "edges": [[0, 1]]}.
        """
        from headway.config.networks.fusion import FusionConfig
        from headway.config.networks.graph import GraphConfig
        from headway.tasks.audio.task import reads_sounds
        from headway.tasks.classification.predict import classify
        from headway.tasks.image import reads_images

        if (towers := self._towers()) is not None:
            images, many = several_images(texts)
            chosen = towers.classify(images, several_texts(labels or [], "labels"))
            return Results(chosen) if many else chosen[0]
        if isinstance(self.model.config, FusionConfig):
            return self._of_both(texts, pairs)
        if labels is not None:
            raise ConfigError("C004", "labels are for models of images and texts; this model has its own labels")
        if isinstance(self.model.config, GraphConfig):
            from headway.tasks.graph.predict import GraphPredictor

            predictor = GraphPredictor(self)
            graphs, many = several_graphs(texts)
            results = predictor.predict([predictor.task.parse(graph) for graph in graphs])
            return Results(results) if many else results[0]
        if reads_images(self.model.config):
            from headway.tasks.image_classification.predict import ImageClassificationPredictor

            images, many = several_images(texts)
            found = ImageClassificationPredictor(self).predict(images)
            return Results(found) if many else found[0]
        if reads_sounds(self.model.config):
            from headway.tasks.audio_classification.predict import AudioClassificationPredictor

            sounds, many = several_sounds(texts)
            found = AudioClassificationPredictor(self).predict(sounds)
            return Results(found) if many else found[0]
        second = None if pairs is None else several_texts(pairs, "pairs")
        return one_or_all(texts, classify(self.model, self.require_tokenizer(), several_texts(texts), second))

    @overload
    def tag(self, texts: str) -> Results[Entity]: ...  # type: ignore[overload-overlap]
    @overload
    def tag(self, texts: Sequence[str | Sequence[str]]) -> Results[list[Entity]]: ...
    def tag(self, texts: str | Sequence[str | Sequence[str]]) -> Results[Entity] | Results[list[Entity]]:
        """The entities of each text: `model.tag("Anna lives in Oslo")[0].label`. In a list, a text may be its words."""
        from headway.tasks.tagging.predict import tag

        if isinstance(texts, str):
            return Results(tag(self.model, self.require_tokenizer(), [texts])[0])
        given = [one if isinstance(one, str) else several_texts(one, "words") for one in texts]
        return Results(tag(self.model, self.require_tokenizer(), given))

    def answer(self, question: str, context: str, settings: QuestionAnsweringConfig | None = None) -> Results[Answer]:
        """The best answers to a question in a context; an empty text means that there is no answer.

        model.answer("Where does Anna live?", "Anna lives in Oslo.")[0].text
        """
        from headway.tasks.qa.predict import answer

        asked, read = one_text(question, "question"), one_text(context, "context")
        return Results(answer(self.model, self.require_tokenizer(), asked, read, settings))

    @overload
    def ask(self, questions: str, story: str | Iterable[str]) -> Answered: ...  # type: ignore[overload-overlap]
    @overload
    def ask(self, questions: Iterable[str], story: str | Iterable[str]) -> Results[Answered]: ...
    def ask(self, questions: str | Iterable[str], story: str | Iterable[str]) -> Answered | Results[Answered]:
        """The answer to a question about a story: `model.ask("Where is Anna?", "Anna went home.").answer`.

        A story is a text or its sentences. `sentences` of an answer has where each hop of the model looked.
        """
        from headway.tasks.memory.predict import MemoryPredictor

        told = story if isinstance(story, str) else several_texts(story, "story")
        predictor = MemoryPredictor(self)
        raws = [{"story": told, "question": question} for question in several_texts(questions, "questions")]
        return one_or_all(questions, predictor.predict([predictor.task.parse(raw) for raw in raws]))

    @overload
    def fill(self, texts: str, top: int = 5) -> Filled: ...  # type: ignore[overload-overlap]
    @overload
    def fill(self, texts: Iterable[str], top: int = 5) -> Results[Filled]: ...
    def fill(self, texts: str | Iterable[str], top: int = 5) -> Filled | Results[Filled]:
        """The most likely words for each [MASK] of each text: `model.fill("Paris is in [MASK].").best`."""
        from headway.tasks.masked_lm.fill import fill_all

        return one_or_all(texts, fill_all(self.model, self.require_tokenizer(), several_texts(texts), top))

    def embed(self, texts: Any, pool: str = "") -> Tensor:
        """A unit vector for each text: `model.embed(["a cat", "a dog"]) @ model.embed("cats")`.

        `pool` is mean or first, by default as in training. A model of images and texts takes both.
        """
        from headway.tasks.embedding.vectors import embed

        if (words := self._words()) is not None:
            vectors = words.encode(several_texts(texts))
            return vectors[0] if isinstance(texts, str) else vectors
        if (towers := self._towers()) is not None:
            things, many = several_things(texts)
            vectors = towers.encode(things)
            return vectors if many else vectors[0]
        found = embed(self.model, self.require_tokenizer(), several_texts(texts), self._pool(pool))
        return found[0] if isinstance(texts, str) else found

    @overload
    def nearest(self, query: Any, texts: Iterable[Any], k: int = 5, pool: str = "") -> Results[Near]: ...
    @overload
    def nearest(self, query: str, texts: None = None, k: int = 5) -> Results[Neighbour]: ...
    def nearest(
        self, query: Any, texts: Iterable[Any] | None = None, k: int = 5, pool: str = ""
    ) -> Results[Near] | Results[Neighbour]:
        """The k texts nearest in meaning to the query: `model.nearest("cats", ["a cat", "a car"])[0].text`.

        With a model of images and texts, query and texts may be images. Word vectors have words of their own to search:
        `model.nearest("paris - france + italy")[0].word`.
        """
        from headway.tasks.embedding.vectors import nearest as nearest_texts

        if (words := self._words()) is not None:
            if texts is not None:
                raise ConfigError("C004", "word vectors search their own words: give no texts")
            return Results(words.search.nearest(words.search.query(one_text(query, "query")), k))
        if texts is None:
            raise DataError("D001", "nearest needs texts to search", 'model.nearest("cats", ["a cat", "a car"])')
        if (towers := self._towers()) is not None:
            return Results(towers.nearest(query, several_things(texts)[0], k))
        among = several_texts(texts)
        return Results(
            nearest_texts(self.model, self.require_tokenizer(), one_text(query, "query"), among, k, self._pool(pool))
        )

    def search_index(
        self,
        corpus: str | Iterable[str],
        path: str = "",
        say: Callable[..., None] = lambda text: None,
        predictor: Encoder | None = None,
        **reading: Any,
    ) -> SearchIndex:
        """Texts, or a file of texts, to search: `model.search_index("notes.txt", "notes.index").search("cats")`.

        The vectors of a file are kept in `path`. `predictor` and `reading` say how the file is read, where that is not
        as the model's run read its data.
        """
        from headway.data.files.lines import read_as
        from headway.tasks.embedding.index import build_index, corpus_index
        from headway.tasks.embedding.predict import EmbeddingPredictor

        if not isinstance(corpus, str):
            if path:
                raise ConfigError("C004", "an index in a file is for texts in a file", "give the name of that file")
            shown = str if (towers := self._towers()) is None else lambda thing: towers.shown(towers.example(thing))
            return build_index(self.embed, ((each, shown(each), i) for i, each in enumerate(corpus, start=1)))
        predictor = predictor or self._towers() or EmbeddingPredictor(self)
        with read_as(predictor.recipe.data.encoding):
            return corpus_index(predictor, corpus, path, say, **reading)

    @overload
    def hypotheses(self, texts: str, beam: Beam | None = None, **settings: Any) -> Results[Translation]: ...
    @overload
    def hypotheses(
        self, texts: Iterable[str], beam: Beam | None = None, **settings: Any
    ) -> Results[list[Translation]]: ...
    def hypotheses(
        self, texts: str | Iterable[str], beam: Beam | None = None, **settings: Any
    ) -> Results[Translation] | Results[list[Translation]]:
        """The best outputs of an encoder–decoder for each text, with scores: `model.hypotheses("Hello", n_best=3)`."""
        from headway.tasks.seq2seq.translate import recipe_of, translate

        recipe = recipe_of(self.model, self.folder, self.recipe)
        beam = self._beam(recipe, beam, settings)
        found = translate(self.model, self.require_tokenizer(), several_texts(texts), recipe, beam)
        return Results(found[0]) if isinstance(texts, str) else Results(found)

    @overload
    def translate(self, texts: str, beam: Beam | None = None, **settings: Any) -> str: ...
    @overload
    def translate(self, texts: Iterable[str], beam: Beam | None = None, **settings: Any) -> list[str]: ...
    def translate(self, texts: str | Iterable[str], beam: Beam | None = None, **settings: Any) -> str | list[str]:
        """The translation or summary of a text, or of each of a list: `model.translate("Good day", width=4)`."""
        found = [best[0].text for best in self.hypotheses(several_texts(texts), beam, **settings)]
        return found[0] if isinstance(texts, str) else found

    def draw(
        self,
        classes: str | int | Iterable[str | int],
        *,
        steps: int | None = None,
        guidance: float | None = None,
        seed: int = 0,
    ) -> Pixels:
        """Images of classes by a diffusion model: `model.draw(["circle", "ring"], steps=30, guidance=3.0, seed=1)`.

        Bytes of shape (images, height, width, 3), or (images, height, width) if they are grey; one class gives one
        image. A class that is asked for again gives another image. Without steps and guidance: as in training.
        """
        import numpy as np

        from headway.tasks.diffusion.predict import DiffusionPredictor, as_picture

        predictor, one = DiffusionPredictor(self), isinstance(classes, str | int)
        names, seen = [classes] if isinstance(classes, str | int) else list(classes), Counter[str]()
        examples = []
        for name in names:
            given = {"class": name, "number": seen[str(name)], "seed": seed, "steps": steps, "guidance": guidance}
            examples.append(predictor.task.parse(given))
            seen[str(name)] += 1
        found = [as_picture(each.image) for each in predictor.predict(examples)]
        return found[0] if one else np.stack(found) if found else np.zeros((0, 0, 0), np.uint8)

    def forecast(self, series: Any, horizon: int | None = None) -> Forecast:
        """What comes after a series: `model.forecast("recent.csv", horizon=96).rows` has a dict for each time step.

        A series is the path of a table, a DataFrame, rows as dicts, or numbers; `drawn:7` is a made-up one.
        """
        from headway.tasks.dynamics.predict import DynamicsPredictor
        from headway.tasks.forecast.predict import ForecastPredictor

        kinds = (DynamicsPredictor, ForecastPredictor)
        kind = next((each for each in kinds if each.task.fits(self.model.config)), ForecastPredictor)
        predictor = kind(self)
        return predictor.predict([one_series(series, horizon, predictor.recipe.data, kind.task)])[0]

    def rollout(self, images: Any, *, gradient: bool = False) -> NDArray[np.float32]:
        """Where a vision model looked, patch by patch: `model.rollout("photo.jpg")` is an array (rows, columns).

        A list of images gives (images, rows, columns). `gradient` weights attention by how much the predicted label
        depends on it.
        """
        from headway.tasks.vision.attention import gradient_rollout, rollout

        _, x, many = self._images(images)
        found: NDArray[np.float32] = (gradient_rollout if gradient else rollout)(self.model, x).cpu().numpy()
        return found if many else found[0]

    def class_attention(self, images: Any, layer: int | None = None) -> NDArray[np.float32]:
        """How much each head of a layer looks from the class token at each patch: an array (heads, rows, columns).

        A list of images gives one more axis in front. `layer` counts from 0; by default the last one.
        """
        from headway.tasks.vision.attention import class_attention

        _, x, many = self._images(images)
        found: NDArray[np.float32] = class_attention(self.model, x, layer).cpu().numpy()
        return found if many else found[0]

    def shown_pixels(self, images: Sequence[Any]) -> NDArray[np.uint8]:
        """What of the images the patches cover: bytes (images, channels, side, side)."""
        side = self.model.config.source.image // self.model.config.source.patch * self.model.config.source.patch  # type: ignore[union-attr]
        shown: NDArray[np.uint8] = self._images(images)[0].numpy()[..., :side, :side]
        return shown

    def _images(self, images: Any) -> tuple[Tensor, Tensor, bool]:
        """Bytes, the model's input, and whether there may be several."""
        from headway.tasks.vision.inputs import read_images

        examples, many = several_images(images)
        return (*read_images(self, examples), many)

    @overload
    def caption(self, images: str, beam: Beam | None = None, **settings: Any) -> str: ...
    @overload
    def caption(self, images: Iterable[Any], beam: Beam | None = None, **settings: Any) -> list[str]: ...
    @overload
    def caption(self, images: Any, beam: Beam | None = None, **settings: Any) -> str: ...
    def caption(self, images: Any, beam: Beam | None = None, **settings: Any) -> str | list[str]:
        """What an image shows, or each of a list: `model.caption("photo.png", width=4)`.

        An image is a path, the bytes of a file, an array, or an image of Pillow.
        """
        from headway.tasks.caption.predict import CaptionPredictor

        examples, many = several_images(images)
        predictor = CaptionPredictor(self)
        found = predictor.search(examples, self._beam(predictor.recipe, beam, settings))
        texts = [best[0].text for best in found]
        return texts if many else texts[0]

    @overload
    def transcribe(
        self, sounds: str, *, language: str | None = None, words: bool = False, **settings: Any
    ) -> Transcript: ...
    @overload
    def transcribe(
        self, sounds: Iterable[Any], *, language: str | None = None, words: bool = False, **settings: Any
    ) -> list[Transcript]: ...
    @overload
    def transcribe(
        self, sounds: Any, *, language: str | None = None, words: bool = False, **settings: Any
    ) -> Transcript | list[Transcript]: ...
    def transcribe(
        self, sounds: Any, *, language: str | None = None, words: bool = False, **settings: Any
    ) -> Transcript | list[Transcript]:
        """What is said in a sound, or in each of a list: `model.transcribe("talk.wav").text`.

        A sound is a path, the bytes of a file, samples at 16 kHz, or a pair of samples and their rate. Without a
        language the model detects it. `words` adds when each word was said. Settings are those of the section
        `transcribe`, such as prompt="…" or windows="fixed".
        """
        from headway.tasks.predictor import RunOptions
        from headway.tasks.transcribe.predict import TranscribePredictor

        recipe = TranscribePredictor.default_recipe(self)
        checked = replace(recipe.settings, **keyword_settings(None, settings))
        options = RunOptions(language=language or "", words=words)
        examples, many = several_sounds(sounds)
        found = TranscribePredictor(self, replace(recipe, settings=checked), options).predict(examples)
        return found if many else found[0]

    def _beam(self, recipe: Recipe, beam: Beam | None, settings: dict[str, Any]) -> Beam:
        """The search that a caller asks for, by default as in training."""
        from headway.generate.beam.rules import Beam
        from headway.tasks.seq2seq.translate import beam_for

        given = keyword_settings(beam, settings)
        if beam is not None:
            return beam
        checked = build(Beam, given)
        return replace(beam_for(recipe), **self.generation.rules, **{name: getattr(checked, name) for name in given})

    def _of_both(self, images: Any, sounds: Any) -> Prediction | Results[Prediction]:
        """The labels of images with their sounds."""
        from headway.tasks.fusion.predict import FusionPredictor
        from headway.tasks.fusion.task import FusionExample

        if sounds is None:
            raise DataError("D001", "this model reads images with sounds", 'model.classify("photo.png", "clip.wav")')
        seen, many = several_images(images)
        heard, _ = several_sounds(sounds)
        if len(seen) != len(heard):
            raise DataError("D001", f"{len(seen)} images and {len(heard)} sounds: each image needs its sound")
        both = [FusionExample(a.image, b.sound, f"{a.name},{b.name}") for a, b in zip(seen, heard, strict=True)]
        found = FusionPredictor(self).predict(both)
        return Results(found) if many else found[0]

    def _towers(self) -> ContrastivePredictor | None:
        """The predictor of a model of images and texts; None for other models."""
        from headway.config.networks.towers import TwoTowersConfig
        from headway.tasks.contrastive.predict import ContrastivePredictor

        return ContrastivePredictor(self) if isinstance(self.model.config, TwoTowersConfig) else None

    def _words(self) -> WordVectorsPredictor | None:
        """The predictor of word vectors; None for other models."""
        from headway.config.networks.words import WordVectorsConfig
        from headway.tasks.word2vec.predict import WordVectorsPredictor

        return WordVectorsPredictor(self) if isinstance(self.model.config, WordVectorsConfig) else None

    def _pool(self, asked: str) -> str:
        from headway.tasks.embedding.predict import EmbeddingPredictor

        return asked or str(EmbeddingPredictor.default_recipe(self).settings.pool)
