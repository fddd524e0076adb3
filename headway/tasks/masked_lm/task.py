"""Masked language modeling: the task, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from headway.config.networks.kinds import AnyConfig
from headway.config.ranges import Range, within
from headway.config.recipe import DataConfig
from headway.data.files.rows import BadRows
from headway.errors import ConfigError
from headway.tasks.base import FineTuning, Json, Tries
from headway.tasks.text import TextExample, TextTask, score_line


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Section `mlm` of a recipe (Devlin et al. 2019)."""

    probability: float = 0.15
    """Share of the tokens that are predicted."""
    mask_replace_prob: float = 0.8
    """Share of the predicted tokens that the mask token replaces."""
    random_replace_prob: float = 0.1
    """Share of the predicted tokens that a random token replaces; the rest stay as they are."""
    whole_word_mask: bool = False
    """Choose whole words, not subwords."""
    next_sentence: bool = False
    """Each sample is two sentences, half of them neighbors, and the model predicts which (next-sentence prediction)."""

    def __post_init__(self) -> None:
        within("mlm", self, Range(0, 1, above=True, below=True), "probability")
        mask, random = self.mask_replace_prob, self.random_replace_prob
        if min(mask, random) < 0 or mask + random > 1:
            why = f"mlm.mask_replace_prob = {mask} and mlm.random_replace_prob = {random} should sum to at most 1"
            raise ConfigError("C004", why)


class MaskedLM(TextTask):
    """Predict masked tokens from both sides."""

    name, title, noun = "mlm", "masked language modeling", "masked language model"
    pipeline_tag, verb = "fill-mask", "fill"
    Settings = Settings
    tries = Tries('"The [MASK] statement"', '"… [MASK] …"', {"input": "The sky is {mask}."})
    made_up = "the text of Python's own reference"
    options = frozenset({"top", "score"})
    renamed: ClassVar[Mapping[str, str]] = {
        "share": "probability",
        "mask": "mask_replace_prob",
        "random": "random_replace_prob",
        "words": "whole_word_mask",
        "pairs": "next_sentence",
    }
    predicts_tokens = fills_rows = True
    fine_tuning = FineTuning(epochs=(1, 10), longest=128, keep_best=True)
    training = "headway.tasks.masked_lm.training:MaskedLMTraining"
    predictor = "headway.tasks.masked_lm.predict:MaskedLMPredictor"

    def texts(self, data: DataConfig, bad: BadRows) -> Iterator[tuple[str, ...]]:
        from headway.data.datasets.text import read_corpus  # numpy

        return ((text,) for text in read_corpus(data.train, data, bad).read())

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        return config.kind == "encoder" and config.lm is not None and (special is None or "mask" in special)

    def render(self, found: Sequence[tuple[TextExample, Json]], *, colours: bool) -> Iterator[str]:
        for example, result in found:
            if "perplexity" in result:
                yield score_line(example.text, result)
                continue
            yield result["best"]
            for number, blank in enumerate(result["blanks"], start=1):
                words = "  ".join(f"{each['text']} {each['probability']:.1%}" for each in blank["choices"])
                yield f"  {number}  {words}"
