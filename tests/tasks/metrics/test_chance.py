"""What a model scores that ignores its input, computed by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from headway.tasks.metrics.chance import constant_logits, unigram_loss
from headway.tasks.recipe import load_recipe
from headway.tasks.training import TaskContext, make_training


def test_the_loss_of_frequencies() -> None:
    """Token 0 was seen twice, 1 once, 2 never; each counts once more."""
    assert unigram_loss([0, 0, 1], [0, 1, 2, 2], 3) == pytest.approx(
        -(math.log(3 / 6) + math.log(2 / 6) + 2 * math.log(1 / 6)) / 4
    )
    many = np.random.default_rng(0).integers(0, 50, 20_000)
    assert unigram_loss(many[:10_000], many[10_000:], 50) == pytest.approx(math.log(50), abs=0.02)


def test_the_logits_of_frequencies() -> None:
    single = constant_logits("single", np.array([0.0, 0.0, 0.0, 1.0]), 2)
    assert np.exp(single) / np.exp(single).sum() == pytest.approx([4 / 6, 2 / 6])
    several = constant_logits("multi", np.array([[1.0, 0.0], [1.0, 0.0]]), 2)
    assert (several > 0).tolist() == [True, False]
    assert constant_logits("regression", np.array([1.0, 2.0]), 1).tolist() == [1.5]


@pytest.mark.parametrize(
    ("task", "rows", "metrics"),
    [
        ("classify", "text,label\n" + "a b,yes\nb c,no\nc d,no\n" * 20, {"accuracy": 2 / 3, "matthews": 0.0}),
        ("classify", "text,label\n" + "".join(f"a {i},{i / 7:.3f}\n" for i in range(60)), {"spearman": 0.0}),
        ("tag", "anna B-PER\nran O\nfar O\n\n" * 20, {"f1": 0.0, "accuracy": 2 / 3}),
        (
            "embed",
            "anchor,positive\n" + "".join(f"a {i},b {i}\n" for i in range(40)),
            {"recall_1": 1 / 40, "mrr": 0.107},
        ),
    ],
)
def test_chance_of_a_task(task: str, rows: str, metrics: dict[str, float], tmp_path: Path) -> None:
    path = tmp_path / ("rows.conll" if task == "tag" else "rows.csv")
    path.write_text(rows, encoding="utf-8")
    recipe = load_recipe(task, [f"data.train={path}", f"data.valid={path}"])[1]
    training = make_training(TaskContext(recipe, tmp_path / "tokenizer"))
    assert {name: training.chance[name] for name in metrics} == pytest.approx(metrics, abs=1e-3)
