"""What a model makes of texts, as plain values: the same from the command line, in a file of results, from a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from headway.config.recipe import Recipe
from headway.data.files.readers import Flaw
from headway.data.files.rows import BadRows
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError
from headway.generate.beam.search import Beam
from headway.model.model import Model
from headway.tasks.backbone import limit_of
from headway.tasks.classification.task import classify
from headway.tasks.embedding.vectors import embed
from headway.tasks.inputs import TaskInput, reject
from headway.tasks.masked_lm.fill import fill_all, pseudo_perplexity
from headway.tasks.qa.evaluate import Answer
from headway.tasks.qa.task import answer_all
from headway.tasks.seq2seq.translate import Translation, align, translate
from headway.tasks.tagging.task import tag

Json = dict[str, Any]
TOP = 5
"""Words for a blank, and answers to a question, that are shown."""
DIGITS = 6
"""Of probabilities; what comes after depends on which texts were read together."""

Predict = Callable[[Sequence[TaskInput]], list[Json]]


def predictor(task: str, model: Model, tokenizer: Tokenizer, recipe: Recipe, top: int = TOP) -> Predict:
    """What answers some inputs by a task, each with the same values as if it were alone."""

    def predict(inputs: Sequence[TaskInput]) -> list[Json]:
        return PREDICTIONS[task](model, tokenizer, inputs, recipe, top)

    return predict


def writer(
    model: Model, tokenizer: Tokenizer, recipe: Recipe, beam: Beam | None = None, *, aligned: bool = False
) -> Predict:
    """What turns texts into others; `aligned` says which word came from which."""

    def predict(inputs: Sequence[TaskInput]) -> list[Json]:
        found = translate(model, tokenizer, [item.text for item in inputs], recipe, beam)
        return [{**_best(each), **(_alignment(each[0]) if aligned else {})} for each in found]

    def _alignment(written: Translation) -> Json:
        words = align(model, tokenizer, written, recipe)
        links = [{"new": i, "text": j, "share": share} for i, j, share in words.links]
        return {"alignment": {"text": words.source, "new": words.target, "links": links}}

    return predict


def _best(found: Sequence[Translation]) -> Json:
    rows = [{"new": each.text, "score": round(each.score, DIGITS)} for each in found]
    return {**rows[0], **({"best": rows} if len(rows) > 1 else {})}


def _write(model: Model, tokenizer: Tokenizer, inputs: Sequence[TaskInput], recipe: Recipe, top: int) -> list[Json]:
    return writer(model, tokenizer, recipe)(inputs)


def _classify(model: Model, tokenizer: Tokenizer, inputs: Sequence[TaskInput], recipe: Recipe, top: int) -> list[Json]:
    pairs = [item.pair or "" for item in inputs] if any(item.pair is not None for item in inputs) else None
    found = classify(model, tokenizer, [item.text for item in inputs], pairs, length=recipe.data.length)
    return [
        {"label": round(each.label, DIGITS) if isinstance(each.label, float) else each.label}
        if each.probability is None
        else {
            "label": each.label,
            "probability": round(each.probability, DIGITS),
            "probabilities": {name: round(p, DIGITS) for name, p in each.probabilities.items()},
        }
        for each in found
    ]


def _tag(model: Model, tokenizer: Tokenizer, inputs: Sequence[TaskInput], recipe: Recipe, top: int) -> list[Json]:
    found = tag(model, tokenizer, [item.words or item.text for item in inputs], how=recipe.tag.decode)
    return [{"entities": [{**e._asdict(), "score": round(e.score, DIGITS)} for e in row]} for row in found]


def _answer(model: Model, tokenizer: Tokenizer, inputs: Sequence[TaskInput], recipe: Recipe, top: int) -> list[Json]:
    found = answer_all(model, tokenizer, [(item.text, item.pair or "") for item in inputs], recipe.answer)
    return [{**_said(row[0]), "best": [_said(each) for each in row[:top]]} for row in found]


def _said(answer: Answer) -> Json:
    """An answer; None is that there is none."""
    return {
        "answer": answer.text if answer.start is not None else None,
        "start": answer.start,
        "end": answer.end,
        "score": round(answer.score, DIGITS),
    }


def _fill(model: Model, tokenizer: Tokenizer, inputs: Sequence[TaskInput], recipe: Recipe, top: int) -> list[Json]:
    return [
        {
            "best": row.best,
            "blanks": [
                {
                    "start": blank.span[0],
                    "end": blank.span[1],
                    "choices": [{"text": text, "probability": round(p, DIGITS)} for text, p in blank.choices],
                }
                for blank in row.blanks
            ],
        }
        for row in fill_all(model, tokenizer, [item.text for item in inputs], top)
    ]


def _score(model: Model, tokenizer: Tokenizer, inputs: Sequence[TaskInput], recipe: Recipe, top: int) -> list[Json]:
    found = pseudo_perplexity(model, tokenizer, [item.text for item in inputs])
    return [
        {"log_probability": round(s.log_probability, DIGITS), "tokens": s.tokens, "perplexity": s.perplexity}
        for s in found
    ]


def _embed(model: Model, tokenizer: Tokenizer, inputs: Sequence[TaskInput], recipe: Recipe, top: int) -> list[Json]:
    found = embed(model, tokenizer, [item.text for item in inputs], recipe.embed.pool)
    return [{"embedding": row} for row in found.tolist()]


PREDICTIONS: Mapping[str, Callable[[Model, Tokenizer, Sequence[TaskInput], Recipe, int], list[Json]]] = {
    "classify": _classify,
    "tag": _tag,
    "answer": _answer,
    "mlm": _fill,
    "score": _score,
    "embed": _embed,
    "seq2seq": _write,
}
"""By task; `score` is how likely a model of masked words finds a text."""


def predict_good(
    predict: Predict, inputs: Sequence[TaskInput], bad: BadRows
) -> Iterator[tuple[list[TaskInput], list[Json]]]:
    """Items that the model can use, and what it says of them; where one cannot be used, they are tried one by one."""
    try:
        found = predict(inputs)
    except DataError as error:
        if len(inputs) == 1:
            reject(Flaw(inputs[0].file, inputs[0].line, error.message, code=error.code), bad)
            return
    else:
        yield list(inputs), found
        return
    for item in inputs:
        yield from predict_good(predict, [item], bad)


def count_cut(
    task: str, model: Model, tokenizer: Tokenizer, inputs: Sequence[TaskInput], recipe: Recipe
) -> tuple[int, int]:
    """How many of the texts are only read in part, and how many tokens are; other tasks have windows, or refuse."""
    limit = limit_of(model, recipe.data.length if task == "classify" else None)
    if task not in ("classify", "embed") or limit is None:
        return 0, 0
    pairs = [item.pair or "" for item in inputs] if any(item.pair is not None for item in inputs) else None
    read = tokenizer.encode_batch([item.text for item in inputs], pairs)
    return sum(len(text.ids) > limit for text in read), limit
