"""n-gram models in runs: counted, resumed, used from a checkpoint, compared; and what makes no sense with them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from headway import compare
from headway.api import load
from headway.baselines.ngram import NGram
from headway.checks.training import check_training, digest
from headway.errors import ConfigError, DataError
from headway.generate.decode import Sampling
from headway.report.model_card import write_card
from headway.report.report import write_report
from headway.tasks.recipe import load_recipe
from headway.train.footprint import memory_advice
from headway.train.run import Run, resume, start, train

SMALL = ["model.kind=ngram", "model.order=3", "data.tokenizer=chars", "data.length=16", "train.batch=4"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ngrams")
    lines = "the quick brown fox\njumps over\nthe lazy dog\nhe\n" * 20
    (folder / "text.txt").write_text(lines, encoding="utf-8")
    return folder


def quiet(kind: str, **facts: Any) -> None:
    pass


def make(place: Path, *words: str) -> Run:
    data = [f"data.train={place / 'text.txt'}", f"out={place / 'runs'}"]
    return start(*load_recipe("tiny", [*data, *SMALL, *words]))


def test_from_recipe_to_text(place: Path) -> None:
    """One step of a recipe that says 1,400, with settings that have no meaning here."""
    events: dict[str, dict[str, Any]] = {}
    run = train(make(place, "train.optimizer=sgd", "train.ema=0.9"), lambda kind, **facts: events.update({kind: facts}))
    assert events["step"]["step"] == events["end"]["step"] == 1
    assert events["chosen"]["line"] == "an n-gram model is counted: train.steps=1"
    assert events["start"]["trained"] == events["start"]["parameters"] == run.model.parameter_count()
    assert events["step"]["tokens"] == events["data"]["tokens"] and events["end"]["flops"] == 0
    assert 0 < events["eval"]["valid"] < math.log(5) and math.isfinite(events["step"]["loss"])
    theirs = json.loads((run.folder / "config.json").read_text(encoding="utf-8"))["headway"]
    assert theirs["ngrams"] == [len(keys) for keys in run.task.ngrams.keys]
    bundle = load(run.folder)
    assert isinstance(bundle.model, NGram) and bundle.config == run.model.config
    assert "".join(bundle.stream("the qu", 9, Sampling(temperature=0))) == "ick brown"
    assert bundle.score(["the quick"])[0].log_probability > bundle.score(["kciuq eht"])[0].log_probability
    write_card(run.folder)
    write_report(run.folder)


def test_a_checkpoint_is_a_model_and_a_run_resumes(place: Path) -> None:
    whole = train(make(place), quiet)
    (step,) = (whole.folder / "run" / "checkpoints").glob("step-*")
    (whole.folder / "config.json").unlink()
    restored = load(step).model
    assert isinstance(restored, NGram)
    assert all(torch.equal(a, b) for a, b in zip(restored.parameters(), whole.model.parameters(), strict=True))
    resumed = resume(whole.folder, lambda path, why: None)
    assert digest(resumed) == digest(whole) and resumed.loop.progress.step == 1


def test_the_checks_of_a_recipe(place: Path) -> None:
    name, recipe = load_recipe("tiny", [f"data.train={place / 'text.txt'}", *SMALL])
    found = {row.name: row for row in check_training(name, recipe)}
    assert all(row.ok for row in found.values()) and found["resumed = straight"].difference == 0


def test_documents_are_apart_unless_they_are_a_stream(place: Path) -> None:
    """A padded row is one line; no context of the model has a letter of another line."""
    sizes = {}
    for rows in ("stream", "pack", "pad"):
        run = make(place, "data.lines=true", f"data.rows={rows}")
        tokenizer = run.task.tokenizer
        first, second = tokenizer.ids(["g", "h"])
        end = run.model.config.special.eos_ids[0]
        ids = torch.tensor([[*first, end, *second]])
        sizes[rows] = run.model.config.ngrams, run.model(ids).hidden[0, -1].tolist()
        assert run.loop.step()["loss"] > 0
        run.loop.close()
    assert sizes["pack"] == sizes["pad"] and sizes["stream"][0][1] > sizes["pad"][0][1]
    assert sizes["stream"][1][1] >= 0 > sizes["pad"][1][1]


def test_beside_other_networks_in_one_table(place: Path) -> None:
    words = {"train.steps": 2, "model.depth": 1, "model.width": 8, "data.length": 16, "train.batch": 2}
    files = {"data.train": str(place / "text.txt"), "out": str(place / "compared")}
    found = compare("tiny", {"model.kind": ["ngram", "gru"]}, **words, **files, quiet=True)
    ngram, gru = found.to_dicts()
    assert ngram["valid"] < gru["valid"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model.order=0"], r"C003.*order = 0"),
        (["model.order=50"], r"C003.*at most 20"),
        (["model.from=x"], r"model\.kind"),
        (["model.lora=4"], r"lora = 4.*counted anew"),
        (["model.attention=dot"], "recurrent networks"),
        (["gpus=2"], "one process"),
        (["task=classify"], "is for the task lm, not classify"),
        (["task=seq2seq"], "is for the task lm, not seq2seq"),
    ],
)
def test_recipes_that_make_no_sense(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_recipe("tiny", ["model.kind=ngram", *words])


def test_a_recipe_of_counts_starts_from_no_model() -> None:
    with pytest.raises(ConfigError, match=r"model\.from = x.*counted anew"):
        load_recipe("ngram", ["model.from=x"])


def test_what_no_gradient_can_do(place: Path) -> None:
    run = train(make(place), quiet)
    with pytest.raises(ConfigError, match="no gradient trains"):
        start(*load_recipe("tiny", [f"data.train={place / 'text.txt'}", f"model.from={run.folder}"]))
    with pytest.raises(DataError, match="no attention"):
        load(run.folder).attention("the")
    assert memory_advice(run.recipe) == "in a new run model.order=2, or less text"


def test_the_server_says_what_it_cannot_do(place: Path) -> None:
    pytest.importorskip("fastapi")
    from headway.serve.context import ServedModel
    from headway.serve.limits import Limits

    with pytest.raises(DataError, match="of kind ngram"):
        ServedModel(load(train(make(place), quiet).folder), Limits())


def test_texts_shorter_than_the_order(place: Path) -> None:
    with pytest.raises(DataError, match="no text has 6 tokens"):
        make(place, "data.lines=true", "data.rows=pad", "model.order=9", "data.tokenizer=words")
