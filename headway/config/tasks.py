"""What each task adds to a recipe, in a section of its own name. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headway.config.ranges import above_zero, at_least, shares
from headway.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class MaskedLMConfig:
    """Masked words (Devlin et al. 2019), section `mlm`."""

    probability: float = 0.15
    """Of the tokens, those to be predicted."""
    mask_replace_prob: float = 0.8
    """Of these, replaced by the mask token …"""
    random_replace_prob: float = 0.1
    """… and by any token; the rest stays as it is."""
    whole_word_mask: bool = False
    """Whole words are chosen, not pieces."""
    next_sentence: bool = False
    """Two sentences a sample, half of them neighbours, and the model says which: next-sentence prediction."""

    def __post_init__(self) -> None:
        if not 0 < self.probability < 1:
            raise ConfigError("C003", f"mlm.probability = {self.probability} should be between 0 and 1")
        if (
            min(self.mask_replace_prob, self.random_replace_prob) < 0
            or self.mask_replace_prob + self.random_replace_prob > 1
        ):
            mask, random = self.mask_replace_prob, self.random_replace_prob
            both = f"mlm.mask_replace_prob = {mask}, mlm.random_replace_prob = {random}"
            raise ConfigError("C004", f"{both}: they are shares of a whole")


@dataclass(frozen=True, kw_only=True)
class ClassificationConfig:
    """One label, several, or a number for a text or a pair of texts, section `classify`."""

    kind: Literal["auto", "single", "multi", "regression"] = "auto"
    """auto goes by the label column: a list is several (in the cell of a table: a|b, or ["a", "b"]), a number with a
    fraction is a number, the rest is one."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: a class counts in inverse proportion to its share of the examples."""
    pool: Literal["first", "mean", "max"] = "mean"
    """What stands for a text: the vector of its first token, through the family's dense layer, as BERT's own classifier
    has it; or the mean or the largest values of all, for which `transformers` has no word."""
    dropout: float = 0.1
    """Before the labels."""
    label_smoothing: float = 0.0
    """Share of each label spread evenly over all (Szegedy et al. 2016)."""
    r_drop: float = 0.0
    """Weight of the disagreement of two passes with different dropout, for twice the time (Liang et al. 2021)."""

    def __post_init__(self) -> None:
        shares("classify", self, "dropout", "label_smoothing")
        at_least("classify", self, r_drop=0)


@dataclass(frozen=True, kw_only=True)
class TaggingConfig:
    """A label for every word, section `tag`."""

    scheme: Literal["auto", "bio", "iobes", "plain"] = "auto"
    """Of the labels that are learned; files may have any. plain labels stand for themselves, as parts of speech do;
    auto is plain where no tag of the data has a mark such as B- before it, and else bio."""
    decode: Literal["legal", "argmax"] = "legal"
    """legal: of all rows of labels that the scheme allows, the likeliest; argmax: word by word."""
    dropout: float = 0.1
    """Before the labels."""
    label_smoothing: float = 0.0
    """Share of each label spread evenly over all (Szegedy et al. 2016)."""
    context: int = 0
    """Tokens of the sentences before and after, in the same document, that are read beside a sentence and not labelled
    (Schweter & Akbik 2020). A document ends with its file, or at a -DOCSTART- line."""

    def __post_init__(self) -> None:
        shares("tag", self, "dropout", "label_smoothing")
        at_least("tag", self, context=0)


@dataclass(frozen=True, kw_only=True)
class QuestionAnsweringConfig:
    """The span of a context that answers a question, section `answer`."""

    stride: int = 128
    """Tokens by which the windows of a long context overlap; half a window at most."""
    max_answer_length: int = 30
    """Tokens of an answer."""
    n_best: int = 20
    """Answers that are kept of each question, to be compared with each other."""
    no_answer: Literal["auto", "yes", "no"] = "auto"
    """Whether saying that there is no answer is allowed; auto: where the questions have some that have none."""
    threshold: float = 0.0
    """How much better no answer must score than the best span to be given."""

    def __post_init__(self) -> None:
        at_least("answer", self, stride=0, max_answer_length=1, n_best=1)


@dataclass(frozen=True, kw_only=True)
class EmbeddingConfig:
    """One vector a text, section `embed`."""

    pool: Literal["first", "mean"] = "mean"
    temperature: float = 0.05
    """Divides the cosines of a batch before they are compared."""
    symmetric: bool = True
    """Each of a pair has to find the other, not only the first the second."""

    def __post_init__(self) -> None:
        above_zero("embed", self, "temperature")


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig:
    """One text out of another, section `seq2seq`: translation, summaries."""

    label_smoothing: float = 0.1
    """Share of each target spread evenly over the vocabulary (Szegedy et al. 2016)."""
    r_drop: float = 0.0
    """Weight of the disagreement of two passes with different dropout, for twice the time (Liang et al. 2021)."""
    beam: int = 4
    """Hypotheses that are followed at one time."""
    length_penalty: float = 1.0
    """Log-probabilities are divided by length ** this: more of it favours longer texts."""
    max_new_tokens: int = 0
    """Tokens of what is written; 0 is data.length."""
    min_new_tokens: int = 0
    """Tokens before a text may end."""
    no_repeat_ngram_size: int = 0
    """So many tokens in a row are never written twice, as summaries want it (Paulus et al. 2018); 0 lets them."""
    vocabulary: Literal["shared", "separate"] = "shared"
    """shared: both sides in the pieces of one tokenizer; separate: one for what is read and one for what is written,
    each with data.vocab pieces. A model of model.from has what it was trained with."""
    prefix: str = ""
    """Put before every source, for models that are told what to do: "translate English to German: "."""
    bpe_dropout: float = 0.0
    """Share of a tokenizer's merges left out when a training text is read, other ones each time (Provilkov et al.
    2020)."""
    metric: Literal["auto", "bleu", "rouge"] = "auto"
    """auto is rouge where sources are much longer than targets."""
    eval_texts: int = 200
    """Validation texts that are written out in training, to be scored; 0 is none."""
    generate_every: int = 1
    """Evaluations from one writing to the next; where it is not each, the loss tells the best model."""
    split: Literal["long", "always", "never"] = "long"
    """Whether a text is taken apart into sentences, each turned on its own: those that the model could not read, and
    those with more sentences than it has learned from."""
    sentences: int = 0
    """So many have the sources that were learned from, all but a hundredth of them: a run finds it in its data and
    keeps it here. 0: nobody knows."""

    def __post_init__(self) -> None:
        shares("seq2seq", self, "label_smoothing", "bpe_dropout")
        at_least("seq2seq", self, r_drop=0, beam=1, max_new_tokens=0, min_new_tokens=0, no_repeat_ngram_size=0)
        at_least("seq2seq", self, eval_texts=0, generate_every=1, sentences=0)
