"""Scores on a text: equal to the trainer's own, with intervals that mean something."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from headway.checks.perplexity import Losses, bits_saved, evaluation_text, measure, score
from headway.config.recipe import DataConfig, ShapeConfig
from headway.config.shape import decoder_config
from headway.data.batching.token_store import TokenStore
from headway.errors import NotFoundError
from headway.model.model import Transformer
from headway.tasks.lm.training import evaluate
from headway.train.distributed import World


@pytest.mark.parametrize("rows", ["stream", "pack"])
def test_the_score_is_that_of_the_trainer(rows: str) -> None:
    ids = np.random.default_rng(0).integers(0, 30, 300)
    store = TokenStore(ids, np.array([0, 40, 41, 170, 300]), 500, None)
    model = Transformer(decoder_config(ShapeConfig(depth=1, width=16, heads=2), 30, 16)).eval()
    data = DataConfig(length=16, rows=rows, overlap=4 if rows == "stream" else 0)  # type: ignore[arg-type]
    ours = score(measure(model, store, data))
    theirs = evaluate(model, store, data, World(0, 1, torch.device("cpu")))
    assert ours.loss[0] == pytest.approx(theirs["valid"], rel=1e-6)
    assert ours.perplexity[0] == pytest.approx(theirs["perplexity"], rel=1e-6)
    assert ours.bits_per_byte[0] == pytest.approx(theirs["bits_per_byte"], rel=1e-6)
    assert ours.loss[1] < ours.loss[0] < ours.loss[2]


def rows(mean: float, spread: float, size: int = 400, seed: int = 0) -> Losses:
    sums = np.random.default_rng(seed).normal(mean * 10, spread * 10, size)
    return Losses(sums, np.full(size, 10.0), 10 * size)


def test_an_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    held = [low < 2.0 < high for _, low, high in (score(rows(2.0, 0.5, 100, seed)).loss for seed in range(200))]
    assert 0.88 <= np.mean(held) <= 0.99
    narrow, wide = score(rows(2.0, 0.5, 1600)).loss, score(rows(2.0, 0.5, 100)).loss
    assert (wide[2] - wide[1]) / (narrow[2] - narrow[1]) == pytest.approx(4, rel=0.25)


def test_a_small_but_steady_gain_is_told() -> None:
    base = rows(2.0, 0.5)
    ahead = Losses(base.sums - 0.1 + np.random.default_rng(1).normal(0, 0.1, 400), base.counts, base.bytes)
    gain, low, high = bits_saved(ahead, base)
    assert gain == pytest.approx(0.01 / math.log(2), rel=0.1) and 0 < low < gain < high
    assert bits_saved(base, ahead)[2] < 0
    _, low, high = bits_saved(rows(2.0, 0.5, seed=1), rows(2.0, 0.5, seed=2))
    assert low < 0 < high


def test_other_tokens_give_no_pairs() -> None:
    gain, low, high = bits_saved(rows(1.0, 0.1, 100), rows(2.0, 0.1, 50))
    assert gain == pytest.approx(1 / math.log(2), rel=0.1) and (low, high) == (-math.inf, math.inf)


def test_a_stranger_needs_a_text(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="F001"):
        evaluation_text(tmp_path, "")
    assert evaluation_text(tmp_path, "book.txt")[0] == "book.txt"
