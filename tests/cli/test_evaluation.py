"""`headway eval` on models that are for a task: what it is, what is printed, and which of two is better."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headway.api.evaluation import gain
from headway.cli.evaluation import verdict
from headway.config.model import ClassifyHeadConfig, SpanHeadConfig, TagHeadConfig
from headway.config.recipe import ShapeConfig
from headway.config.shape import encoder_config
from headway.data.datasets.tags import labels_for
from headway.data.synthetic.texts.stories import make_sentences, make_stories
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import DataError
from headway.hub.folder import save_model
from headway.model.model import Transformer
from headway.tasks.metrics.bootstrap import Evaluation, mean_metric
from tests.cli.conftest import Run

TEXTS = ["a good film", "a bad film", "good", "bad plot , bad end", "the film was good", "bad"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A classifier that says what it sees, and one that says the opposite."""
    place = tmp_path_factory.mktemp("models")
    tokenizer = train_tokenizer("words", TEXTS)
    base = encoder_config(ShapeConfig(depth=1, width=16, heads=2, positions="none"), tokenizer.vocab_size, 32)
    head = ClassifyHeadConfig(labels=2, pool="mean")
    model = Transformer(replace(base, classify=head, labels=("no", "yes"), family="headway")).requires_grad_(False)
    weights = dict(model.named_parameters())
    for name, weight in weights.items():
        if name.endswith(("attention.out.weight", "ffn.down.weight", "segments.weight", "table.weight", "output.bias")):
            weight.zero_()  # what goes in comes out
    for word, sign in (("good", 1), ("bad", -1)):
        weights["source.table.weight"][tokenizer.encode(word).ids[0]] = sign * torch.arange(16.0)
    weights["classify.output.weight"].copy_(torch.stack([-torch.arange(16.0), torch.arange(16.0)]))
    first = save_model(model, place / "right", tokenizer)
    weights["classify.output.weight"].neg_()
    return first, save_model(model, place / "wrong", tokenizer)


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    path = tmp_path / "reviews.csv"
    rows = [f'"{text}",{"yes" if "good" in text else "no"}' for text in TEXTS]
    path.write_text("\n".join(["body,label", *rows[:5], "bad,yes"]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def run(run: Run) -> Run:
    return partial(run, "eval", "--device", "cpu")


def test_what_is_printed(folders: tuple[Path, Path], reviews: Path, run: Run) -> None:
    code, out, err = run(folders[0], reviews, "data.text=body")
    assert code == 0, err
    assert out.startswith(f"6 examples of {reviews}\naccuracy       0.8333   [")
    assert all(
        line in out for line in ("  label      no     yes\n", "  no          2       0\n", "  yes         1       3\n")
    )
    assert "most confident mistakes\n  line 7: predicted no (" in out
    assert "calibration" in out and "by length" in out


def test_json_and_predictions(folders: tuple[Path, Path], reviews: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "out.jsonl"
    code, text, err = run(folders[0], reviews, f"out={out}", "--json")
    result = json.loads(text)
    assert (code, result["task"], result["examples"]) == (0, "classify", 6), err
    assert result["figures"]["accuracy"][0] == pytest.approx(5 / 6)
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [(row["line"], row["predicted"]) for row in rows][::5] == [(2, "yes"), (7, "no")]
    assert "6 predictions in" in err


def test_which_is_better(folders: tuple[Path, Path], reviews: Path, run: Run) -> None:
    code, out, err = run(folders[0], reviews, "--against", str(folders[1]))
    assert code == 0, err
    assert f"{folders[1]}: 0.1667" in out
    assert "difference     +0.6667" in out
    words = [verdict(*bounds, "than x") for bounds in ((0.1, 0.2), (-0.2, -0.1), (-0.1, 0.1))]
    assert words == ["better than x", "worse than x", "no significant difference"]
    code, out, _ = run(folders[0], reviews, "--against", str(folders[0]))
    assert "+0.0000   [+0.0000, +0.0000]: no significant difference" in out


def test_the_other_one_has_other_labels(folders: tuple[Path, Path], reviews: Path, tmp_path: Path, run: Run) -> None:
    other = save_encoder(tmp_path / "m", TEXTS, classify=ClassifyHeadConfig(labels=2, pool="mean"), labels=("a", "b"))
    code, _, err = run(folders[0], reviews, "--against", other)
    assert code == 4 and f"{other}: {reviews} line 2: label 'yes' is unknown: training had a, b" in err
    bare = save_encoder(tmp_path / "bare", TEXTS)
    code, _, err = run(folders[0], reviews, "--against", bare)
    assert code == 4 and f"{bare}: this model has no labels to give a text" in err
    several = ClassifyHeadConfig(labels=2, pool="mean", several=True)
    many = save_encoder(tmp_path / "many", TEXTS, classify=several, labels=("no", "yes"))
    code, _, err = run(folders[0], reviews, "--against", many)
    assert code == 4 and f"{folders[0]} is measured by accuracy, " in err and f"{many} by " in err


def test_what_is_no_run_needs_data(folders: tuple[Path, Path], tmp_path: Path, run: Run) -> None:
    for folder in (folders[0], save_encoder(tmp_path / "bare", TEXTS)):
        code, _, err = run(folder)
        assert code == 5 and f"which data? {folder} is no run of headway's" in err
        assert "give some: headway eval MODEL FILE" in err


def test_answers_to_other_questions_are_not_compared() -> None:
    one = Evaluation(2, {}, {}, [{"score": 1.0}, {"score": 0.0}])
    assert gain(one, Evaluation(2, {}, {}, [{"score": 0.0}, {"score": 0.0}]))[0] == 0.5
    for other in ([{"score": 1.0}], [{"score": 1.0}, {}], [0.5, 0.7], []):
        with pytest.raises(DataError, match="cannot be compared in pairs"):
            gain(one, Evaluation(len(other), {}, {}, list(other)))


def test_a_figure_that_is_no_mean_is_compared_by_its_own_rule() -> None:
    ours = Evaluation(2, {}, {}, [{"score": 0.1}] * 2, mean_metric("f1", np.array([1.0, 1.0])))
    theirs = Evaluation(2, {}, {}, [{"score": 0.9}] * 2, mean_metric("f1", np.array([0.5, 0.5])))
    assert gain(ours, theirs) == (0.5, 0.5, 0.5)  # not by how sure they are of it


def save_encoder(folder: Path, texts: list[str], **heads: Any) -> Path:
    tokenizer = train_tokenizer("wordpiece", texts, 200)
    base = encoder_config(ShapeConfig(depth=1, width=16, heads=2), tokenizer.vocab_size, 64)
    torch.manual_seed(0)
    return save_model(Transformer(replace(base, lm=None, family="headway", **heads)), folder, tokenizer)


def test_a_tagger_is_taken_apart(tmp_path: Path, run: Run) -> None:
    rows = make_sentences(12, seed=1)
    labels = labels_for(["DATE", "LOC", "ORG", "PER"])
    texts = [" ".join(row.words) for row in rows]
    folder = save_encoder(tmp_path / "m", texts, tag=TagHeadConfig(labels=len(labels)), labels=labels)
    data = tmp_path / "a.conll"
    blocks = ("\n".join(f"{w} {t}" for w, t in zip(row.words, row.tags, strict=True)) for row in rows)
    data.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    code, out, err = run(folder, data, "--against", folder)
    assert code == 0, err
    assert out.startswith(f"12 examples of {data}\nf1   ") and "difference     +0.0000" in out
    assert re.search(r"^  label +DATE +LOC +ORG +PER +\(none\)", out, re.M)
    assert re.search(r"^  label  examples  precision  recall +f1\n  DATE +\d+ +0", out, re.M)
    assert re.search(r"^by length\n  words +examples +f1 +precision.*\n  \d+ … \d+ +\d+ +0", out, re.M)
    code, other, err = run(folder, data, "tag.decode=argmax")
    assert code == 0 and other != out, err
    assert re.search(
        r"^most confident mistakes\n  (line \d+: )?predicted (none|.* = \w+), labelled \w.* = \w+\n    \w+ ", out, re.M
    )


def test_answers_are_taken_apart(tmp_path: Path, run: Run) -> None:
    asked = make_stories(12, seed=1)
    texts = [text for row in asked for text in (row.question, row.context)]
    folder = save_encoder(tmp_path / "m", texts, span=SpanHeadConfig())
    data = tmp_path / "a.jsonl"
    lines = [{"question": q.question, "context": q.context, "answers": [t for t, _ in q.answers]} for q in asked]
    data.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    code, out, err = run(folder, data, "--against", folder)
    assert code == 0, err
    assert "difference     +0.0000   [+0.0000, +0.0000]: no significant difference" in out
    assert re.search(r"^ +examples +f1 +em\n  answer +\d+ +\d", out, re.M)
    assert re.search(r"^  (where|who|what|when) +\d+ +\d", out, re.M)
    assert re.search(r"^by length\n  words", out, re.M)
    assert re.search(r"^most confident mistakes\n  .*predicted .+ \(\d(\.\d+)?\), labelled .+\n    .+ \?$", out, re.M)
    assert "None" not in out


def test_mistakes_are_named(folders: tuple[Path, Path], reviews: Path, run: Run) -> None:
    code, _, err = run(folders[0], reviews, "data.text=bdy")
    assert code == 4 and "no column 'bdy'" in err
    code, _, err = run(folders[0], reviews, "colour=red", "task=classify")
    assert code == 3 and "unknown setting colour" in err
    code, _, err = run(folders[0], reviews, "task=clasify")
    assert code == 3 and 'did you mean "classify"' in err
    with reviews.open("a", encoding="utf-8") as file:
        file.write("a film,maybe\n")
    code, _, err = run(folders[0], reviews)
    assert code == 4 and f"{reviews} line 8: label 'maybe' is unknown" in err
    code, out, _ = run(folders[0], reviews, "data.bad_rows=skip")
    assert code == 0 and "; 1 left out" in out
