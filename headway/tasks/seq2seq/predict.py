"""Predicting with an encoder–decoder model: the best texts that a beam search finds, and word alignments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headway.generate.beam.search import Beam
from headway.tasks.base import Json
from headway.tasks.predictor import DIGITS, E, Loaded, Predictor
from headway.tasks.recipe import Recipe
from headway.tasks.seq2seq.task import Seq2Seq
from headway.tasks.seq2seq.translate import Alignment, Translation, align, beam_for, recipe_of, translate, with_best
from headway.tasks.text import TextExample


@dataclass(frozen=True)
class Translations:
    """What a text becomes, the best first."""

    best: list[Translation]
    alignment: Alignment | None = None
    field: str = "new"
    """The name of the text in results."""

    def to_dict(self) -> Json:
        rows = [{self.field: each.text, "score": round(each.score, DIGITS)} for each in self.best]
        found: Json = {**rows[0], **({"best": rows} if len(rows) > 1 else {})}
        if (words := self.alignment) is not None:
            links = [{"new": i, "text": j, "share": share} for i, j, share in words.links]
            found["alignment"] = {"text": words.source, "new": words.target, "links": links}
        return found


class SearchPredictor(Predictor[E, Translations]):
    """A model that writes a text for an input, found by beam search."""

    @property
    def beam(self) -> Beam:
        """The recipe's search with the rules of the model's folder, and what the caller asks for."""
        beam = replace(beam_for(self.recipe), **self.loaded.generation.rules)
        return with_best(replace(beam, width=self.options.beam or beam.width), self.options.n_best)


class Seq2SeqPredictor(SearchPredictor[TextExample]):
    """An encoder–decoder model in use."""

    task = Seq2Seq()

    @classmethod
    def default_recipe(cls, loaded: Loaded) -> Recipe:
        return recipe_of(loaded.model, loaded.folder, loaded.recipe)

    def predict(self, examples: Sequence[TextExample]) -> list[Translations]:
        texts = [example.text for example in examples]
        found = translate(self.model, self.tokenizer, texts, self.recipe, self.beam)
        return [Translations(list(each), self._alignment(each[0])) for each in found]

    def _alignment(self, best: Translation) -> Alignment | None:
        return align(self.model, self.tokenizer, best, self.recipe) if self.options.align else None
