"""Language models that carry their state: losses as of one long row, resumed runs in the same bits, clear errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from headway.api import load
from headway.baselines.build import make_model
from headway.checks.perplexity import measure, score
from headway.checks.training import check_training, digest
from headway.config.recipe import DataConfig, ShapeConfig
from headway.config.shape import decoder_config
from headway.data.batching.token_store import TokenStore
from headway.errors import ConfigError, DataError
from headway.model.model import Model
from headway.report.report import write_report
from headway.tasks.lm.training import LanguageModelTraining, evaluate
from headway.tasks.recipe import load_recipe
from headway.train.distributed import World
from headway.train.run import Run, resume, start, train

VOCAB, HERE = 30, World(0, 1, torch.device("cpu"))
EVERYTHING = (
    *("model.locked_dropout=true", "model.dropout=0.3", "model.input_dropout=0.2", "model.word_dropout=0.1"),
    *("model.weight_dropout=0.4", "model.embedding=12", "model.ar=1", "model.tar=1"),
)
SMALL = (
    *("data.rows=carry", "data.length=8", "model.depth=2", "model.width=16", "train.batch=4", "train.steps=8"),
    *("train.eval_every=8", "train.sample_every=8", "train.save_every=4", "train.warmup=1"),
)


def quiet(kind: str, **facts: Any) -> None:
    pass


def store_of(size: int) -> TokenStore:
    ids = np.random.default_rng(0).integers(0, VOCAB, size)
    return TokenStore(ids, np.array([0, size]), 2 * size, None)


def small(kind: str = "lstm", seed: int = 0, **shape: Any) -> Model:
    torch.manual_seed(seed)
    model = make_model(decoder_config(ShapeConfig(kind=kind, depth=2, width=16, **shape), VOCAB, 16))  # type: ignore[arg-type]
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model.eval()


@torch.no_grad()
def long_row(model: Model, ids: Any) -> torch.Tensor:
    """The losses of a text that is read at once, as one row."""
    whole = torch.from_numpy(ids)[None]
    return F.cross_entropy(model.lm(model(whole[:, :-1]).hidden)[0], whole[0, 1:], reduction="none")


@pytest.mark.parametrize("kind", ["elman", "gru", "lstm"])
def test_evaluation_is_that_of_one_long_row(kind: str) -> None:
    """A short text has one row; the state is carried from its beginning to its end."""
    model, store = small(kind), store_of(90)
    found = evaluate(model, store, DataConfig(length=8, rows="carry"), HERE)
    assert found["valid"] == pytest.approx(float(long_row(model, store.ids).mean()), rel=1e-5)
    apart = evaluate(model, store, DataConfig(length=8, rows="stream"), HERE)["valid"]
    assert abs(apart - found["valid"]) > 1e-4


def test_rows_side_by_side_start_with_context() -> None:
    """A longer text has several rows: each is a long row that begins with a piece of the one before."""
    model, store, rows = small(), store_of(1500), 1499 // (8 * 16)
    found = evaluate(model, store, DataConfig(length=16, rows="carry"), HERE)["valid"]
    stripe = -(-1499 // rows)
    parts = [long_row(model, store.ids[: stripe + 1])]
    for row in range(1, rows):
        begin = row * stripe
        parts.append(long_row(model, store.ids[begin - 16 : begin + stripe + 1])[16:])
    whole = torch.cat(parts)
    assert len(whole) == 1499 and rows > 4
    assert found == pytest.approx(float(whole.mean()), rel=1e-5)


def test_the_score_is_that_of_the_trainer() -> None:
    """And another model beside it, which has no state, reads rows that do not depend on each other."""
    store, data = store_of(1500), DataConfig(length=16, rows="carry")
    ours = score(measure(small(), store, data))
    assert ours.loss[0] == pytest.approx(evaluate(small(), store, data, HERE)["valid"], rel=1e-6)
    assert ours.tokens == 1499 and ours.loss[1] < ours.loss[0] < ours.loss[2]
    other = score(measure(small("conv"), store, data))
    assert other.loss[0] == pytest.approx(
        evaluate(small("conv"), store, DataConfig(length=16), HERE)["valid"], rel=1e-6
    )


def make(place: Path, *words: str) -> Run:
    path = place / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog\n" * 40, encoding="utf-8")
    based = any(word.startswith("model.from") for word in words)  # it has a shape of its own
    shape = [word for word in SMALL if not (based and word.startswith("model."))]
    run = start(*load_recipe("tiny", [*shape, f"data.train={path}", f"out={place / 'runs'}", *words]))
    run.model.train()
    return run


def test_training_follows_the_text(tmp_path: Path) -> None:
    """Losses of the first steps without a change of the weights are those of long rows, in parts of a batch too."""
    run = make(tmp_path, "model.kind=gru", "train.lr=0", "train.accumulate=2")
    losses = [run.loop.step()["loss"] for _ in range(3)]
    task = run.task
    assert isinstance(task, LanguageModelTraining)
    pieces = [task.rows.read(np.arange(4 * step, 4 * step + 4)) for step in range(3)]
    inputs, targets = (torch.from_numpy(np.concatenate([piece[k] for piece in pieces], 1)) for k in (0, 1))
    with torch.no_grad():
        logits = run.model.lm(run.model(inputs).hidden)
        right = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none").view(4, 3, 8).mean((0, 2))
    assert losses == pytest.approx(right.tolist(), rel=1e-4)
    assert not run.loop.compute.carry[0].requires_grad
    run.loop.close()


def test_penalties_are_part_of_the_loss_in_training_alone() -> None:
    """Of each prediction as much, so that the mean over a batch has them once."""
    plain, other = small("gru"), small("gru", ar=2.0, tar=1.0)
    ids = torch.randint(VOCAB, (3, 6), generator=torch.Generator().manual_seed(1))
    batch = ids[:, :-1], ids[:, 1:], None
    with torch.no_grad():
        without, evaluated = (LanguageModelTraining.loss(model, *batch) for model in (plain, other))
        trained = LanguageModelTraining.loss(other.train(), *batch)
        penalty = other.read_on(ids[:, :-1])[0].penalty
    assert torch.equal(without, evaluated) and penalty is not None and penalty > 0.01
    torch.testing.assert_close(trained, without + 15 * penalty)


@pytest.mark.parametrize("words", [["model.kind=lstm", *EVERYTHING], ["model.kind=elman", "model.cell_norm=true"]])
def test_stopped_and_resumed_is_straight(tmp_path: Path, words: list[str]) -> None:
    """Weights, moments, random state and the carried state, bit by bit."""
    straight = train(make(tmp_path, *words), quiet)
    other = make(tmp_path, *words)

    def stop(kind: str, **facts: Any) -> None:
        if kind == "save" and facts["step"] == 4:
            other.loop.received_signal = 15

    train(other, stop)
    assert other.loop.progress.step < 8
    resumed = train(resume(other.folder, lambda path, why: None), quiet)
    assert digest(resumed) == digest(straight)
    assert all(part.any() for part in resumed.loop.compute.carry)


def test_a_run_keeps_its_curve_and_is_loaded_again(tmp_path: Path) -> None:
    run = train(make(tmp_path, "model.kind=lstm", *EVERYTHING), quiet)
    found = json.loads((run.folder / "run" / "evaluation.json").read_text(encoding="utf-8"))
    (line,) = found["details"]["charts"][0]["lines"]
    assert line["name"] == "lstm" and len(line["y"]) > 60 and len(found["details"]["recurrent_matrices"]) == 8
    page = write_report(run.folder).read_text(encoding="utf-8")
    assert "how far gradients reach" in page and "layer 2, forget" in page
    bundle = load(run.folder)
    assert bundle.config == run.model.config and bundle.config.embedding == 12  # type: ignore[union-attr]
    again = make(tmp_path, f"model.from={run.folder}")
    assert again.loop.compute.carry
    again.loop.close()


@pytest.mark.slow
def test_a_recipe_with_all_of_it_checks_out(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 40, encoding="utf-8")
    words = [*SMALL, f"data.train={tmp_path / 'text.txt'}", "model.kind=gru", *EVERYTHING]
    assert all(result.ok for result in check_training(*load_recipe("tiny", words)))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data.rows=carry"], "kind = transformer: it has no state"),
        (["data.rows=carry", "model.kind=conv"], "kind = conv: it has no state"),
        (["data.rows=carry", "model.kind=lstm", "data.overlap=4"], "overlap = 4"),
        (["data.rows=carry", "model.kind=lstm", "gpus=2"], "one process"),
        (["data.rows=carry", "task=mlm"], "task mlm"),
        (["data.rows=carry", "task=chat", "model.from=runs/some"], "task chat"),
        (["data.rows=carry", "task=seq2seq", "model.kind=lstm"], "task seq2seq"),
        (["data.rows=pack", "model.kind=lstm"], 'not "pack"'),
        (["model.weight_dropout=0.1"], "weight_dropout = 0.1 conflicts with model.kind = transformer"),
        (["model.kind=conv", "model.embedding=8"], "embedding = 8 conflicts with model.kind = conv"),
        (["task=seq2seq", "model.kind=gru", "model.cell_norm=true"], "cell_norm = true conflicts with task seq2seq"),
        (["model.kind=lstm", "model.word_dropout=1"], "word_dropout = 1"),
        (["model.kind=lstm", "model.tar=-1"], "tar = -1"),
        (["model.kind=lstm", "model.embedding=0"], "embedding = 0"),
    ],
)
def test_recipes_that_make_no_sense(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_recipe("tiny", words)


def test_what_only_the_data_or_the_model_tell(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"too few: 400 rows"):
        make(tmp_path, "model.kind=lstm", "train.batch=400")
    other = train(make(tmp_path, "data.rows=stream", "train.steps=1", "model.heads=2"), quiet)
    with pytest.raises(ConfigError, match="no state"):
        make(tmp_path, f"model.from={other.folder}")
