"""Encoder–decoder models: the task, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from headway.config.networks.kinds import AnyConfig
from headway.config.ranges import at_least, shares
from headway.config.recipe import DataConfig
from headway.data.datasets import parallel
from headway.data.files.columns import SOURCE, TARGET, column_names, named_together
from headway.data.files.readers import Row
from headway.data.files.rows import BadRows
from headway.tasks.base import FineTuning, Json, Suitability, Tries
from headway.tasks.text import TextExample, TextTask, reads_text, shortened

if TYPE_CHECKING:
    from headway.data.profile.survey import Survey


@dataclass(frozen=True, kw_only=True)
class OutputSettings:
    """Settings of every task whose decoder writes a text for an input."""

    label_smoothing: float = 0.1
    """Share of each target that is spread over the vocabulary (Szegedy et al. 2016)."""
    r_drop: float = 0.0
    """Weight of the symmetric KL divergence between two passes with different dropout; takes twice the time (Liang et
    al. 2021)."""
    beam: int = 4
    """Beam width."""
    length_penalty: float = 1.0
    """Log-probabilities are divided by length ** this; a larger value favors longer texts."""
    max_new_tokens: int = 0
    """The most tokens of an output; 0 is data.length."""
    min_new_tokens: int = 0
    """Tokens of an output before it may end."""
    no_repeat_ngram_size: int = 0
    """No n-gram of this size is generated twice, as summaries want it (Paulus et al. 2018); 0: no limit."""
    eval_texts: int = 200
    """Validation texts that are generated and scored during training; 0: none."""
    generate_every: int = 1
    """Evaluations from one such generation to the next; above 1 the loss selects the best checkpoint."""

    def check_output(self, section: str) -> None:
        """Refuse values outside their ranges; subclasses call it."""
        shares(section, self, "label_smoothing")
        at_least(section, self, r_drop=0, beam=1, max_new_tokens=0, min_new_tokens=0, no_repeat_ngram_size=0)
        at_least(section, self, eval_texts=0, generate_every=1)


@dataclass(frozen=True, kw_only=True)
class Settings(OutputSettings):
    """Section `seq2seq` of a recipe: translation, summarization."""

    vocabulary: Literal["shared", "separate"] = "shared"
    """shared: one tokenizer for both sides; separate: one for the source and one for the target, each with data.vocab
    subwords. A model of model.from keeps what it was trained with."""
    prefix: str = ""
    """Text before every source, for models that are told what to do: "translate English to German: "."""
    bpe_dropout: float = 0.0
    """Share of a tokenizer's merges that are left out when a training text is encoded, drawn anew each time (Provilkov
    et al. 2020)."""
    metric: Literal["auto", "bleu", "rouge"] = "auto"
    """The metric of generated texts; auto is rouge where sources are much longer than targets."""
    split: Literal["long", "always", "never"] = "long"
    """Whether a text is split into sentences, each translated by itself: long splits texts that the model could not
    read, and texts with more sentences than it has learned from."""
    sentences: int = field(default=0, metadata={"from_data": True})
    """Sentences per source in the training data, at the 99th percentile. A run finds the number in its data and keeps
    it here; 0: unknown."""

    def __post_init__(self) -> None:
        self.check_output("seq2seq")
        shares("seq2seq", self, "bpe_dropout")
        at_least("seq2seq", self, sentences=0)


class Seq2Seq(TextTask):
    """One text from another: translation, summarization."""

    name, title, noun, pipeline_tag = "seq2seq", "sequence to sequence", "translator", "text2text-generation"
    verb, starter = "rewrite", "translate"
    Settings = Settings
    renamed: ClassVar[Mapping[str, str]] = {
        "rdrop": "r_drop",
        "longest": "max_new_tokens",
        "shortest": "min_new_tokens",
        "no_repeat": "no_repeat_ngram_size",
        "every": "generate_every",
    }
    tries = Tries('"The small dogs did not see a bird in the garden."')
    made_up = "made-up pairs of texts"
    options = frozenset({"n_best", "beam", "align"})
    together = (SOURCE, TARGET)
    predicts_tokens = networks = True
    one_sequence, minutes = False, 30.0
    fine_tuning = FineTuning(lr=8e-5, epochs=(2, 10), keep_best=True)
    training = "headway.tasks.seq2seq.training:Seq2SeqTraining"
    predictor = "headway.tasks.seq2seq.predict:Seq2SeqPredictor"

    def suits(self, survey: Survey, rows: Sequence[Row]) -> Suitability:
        names = column_names(row.values for row in rows)
        both = named_together(names, (SOURCE, TARGET))
        pairs = [pair for row in rows if both and isinstance(pair := parallel.parse_row(row, *both), parallel.Pair)]
        shortens = parallel.are_summaries((pair.source, pair.targets[0]) for pair in pairs)
        recipe = "summarize" if shortens else ""
        return Suitability(0.8 * bool(parallel.NESTED in names or both), recipe=recipe)

    def texts(self, data: DataConfig, bad: BadRows) -> Iterator[tuple[str, ...]]:
        pairs = parallel.read_parallel(data.train, data.text, data.pair, bad)
        return ((pair.source, pair.targets[0]) for pair in pairs)

    def bad_rows(self, source: str, data: DataConfig, bad: BadRows) -> None:
        parallel.read_parallel(source, data.text, data.pair, bad)

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        return config.kind == "encoder-decoder" and config.lm is not None and reads_text(config)

    def render(self, found: Sequence[tuple[TextExample, Json]], *, colours: bool) -> Iterator[str]:
        for example, result in found:
            if len(found) > 1 or "alignment" in result:
                yield shortened(example.text)
            for each in result.get("best", ()):
                yield f"{each['score']:9.4f}  {each['new']}"
            if "best" not in result:
                yield result["new"]
            if "alignment" in result:
                yield from _aligned(result["alignment"])


def _aligned(words: Mapping[str, Any]) -> Iterator[str]:
    """A line for each target word, with the source word it came from."""
    wide = max((len(word) for word in words["new"]), default=0)
    for link in words["links"]:
        yield f"  {words['new'][link['new']]:{wide}}  {link['share']:4.0%}  {words['text'][link['text']]}"
