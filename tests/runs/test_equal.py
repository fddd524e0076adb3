"""Variants on equal terms: widths, steps and minutes, before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from headway.errors import ConfigError, HeadwayError
from headway.runs.equal import Term, Variant, prepare, terms
from headway.tasks.recipe import load_recipe

BUDGET = "train.steps=40"
SMALL = ("data.length=16", "train.batch=4", "model.depth=2", "model.width=32", "model.heads=2")


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 30, encoding="utf-8")
    return "data.train=text.txt"


def variants(*each: Sequence[str]) -> list[Variant]:
    budgets = [[] if any("epochs" in word or "minutes" in word for word in words) else [BUDGET] for words in each]
    every = [[*SMALL, *budget, *words] for budget, words in zip(budgets, each, strict=True)]
    return prepare([(" ".join(words), load_recipe("tiny", words)[1]) for words in every])


def parameters(term: Term, words: Sequence[str]) -> int:
    """The parameters of the model that a variant's own words and those of its term give."""
    (variant,) = variants([*words, *term.words])
    assert variant.model is not None
    return variant.model.parameter_count()


def test_as_many_parameters(text: str) -> None:
    own = [[text], [text, "model.kind=gru"], [text, "model.kind=lstm"], [text, "model.kind=conv"]]
    own += [[text, "model.depth=4"], [text, "model.positions=rope"], [text, "model.tied=false"]]
    found = terms("params", variants(*own), ["model.kind"])
    assert found[0].words == ()
    target = parameters(found[0], own[0])
    for term, words in zip(found[1:], own[1:], strict=True):
        count = parameters(term, words)
        assert abs(count / target - 1) <= 0.05 and f"{count:,} parameters" in term.note
        width = int(term.words[-1].removeprefix("model.width="))
        assert width % 2 == 0 and (width % 4 == 0 or "rope" not in words[-1])


def test_heads_stay_as_they_are(text: str) -> None:
    """One head for each 64 of width would change with the width, so the number of heads is written down."""
    free = [word for word in SMALL if not word.startswith(("model.heads", "model.width"))]
    recipes = [
        ("small", load_recipe("tiny", [*free, text, "model.width=288", "model.heads=2"])[1]),
        ("deep", load_recipe("lm", [*free, text, "model.depth=6", "data.tokenizer=bytes", "data.vocab=0"])[1]),
    ]
    term = terms("params", prepare(recipes), [])[1]
    assert "model.heads=6" in term.words and any(word.startswith("model.width=") for word in term.words)


@pytest.mark.parametrize(("words", "said"), [
    (["model.heads=16", "model.width=96"], "equal=params: no width has"),
])  # fmt: skip
def test_no_width_fits(text: str, words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        terms("params", variants([text, "model.width=34"], [text, *words]), [])
    assert "variant" in caught.value.message and "has " in caught.value.message


def test_as_many_operations(text: str) -> None:
    own = [[text], [text, "model.kind=gru"], [text, "train.batch=8"], [text, "data.length=32"]]
    found = variants(*own)
    first, gru, batch, length = terms("flops", found, ["model.kind"])
    assert first.words == ("train.steps=40",) and batch.words == ("train.steps=20",)
    assert 15 <= int(length.words[0].removeprefix("train.steps=")) <= 20 and gru.words != first.words
    notes = {term.note.split(" FLOPs")[0] for term in (first, batch)}
    assert len(notes) == 1
    with pytest.raises(ConfigError, match=r"1 of its steps are \+\d+%"):
        terms("flops", variants([text, "train.steps=1"], [text, "train.batch=8"]), [])


def test_epochs_count_as_steps(text: str) -> None:
    found = terms("flops", variants([text, "train.epochs=2"], [text, "train.batch=2", "train.epochs=2"]), [])
    first, second = (int(term.words[0].removeprefix("train.steps=")) for term in found)
    assert second == pytest.approx(2 * first, abs=1)


def test_as_much_time(text: str) -> None:
    words = [text, "train.minutes=2"]
    found = terms("time", variants(words, [*words, "model.kind=gru"]), ["model.kind"])
    assert [term.note for term in found] == ["2 min in training steps"] * 2 and found[1].words == ()
    with pytest.raises(ConfigError, match=r"equal=time needs train.minutes=2, not train.minutes"):
        terms("time", variants(words, [text, "train.minutes=3"]), [])


def test_the_data_are_read_once(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import headway.runs.equal as equal

    made = []
    inner = equal.make_training
    monkeypatch.setattr(equal, "make_training", lambda context: made.append(context) or inner(context))
    found = variants([text], [text, "model.kind=gru", "train.lr=1e-2"], [text, "data.length=8"])
    assert len(made) == 2
    assert [each.training.recipe.model.kind for each in found] == ["transformer", "gru", "transformer"]
    assert found[1].training.recipe.train.lr == 1e-2


def test_mistakes_name_their_variant(text: str) -> None:
    with pytest.raises(HeadwayError, match=r"variant .*data.length=64000: "):
        variants([text], [text, "data.length=64000"])
