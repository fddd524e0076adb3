"""BLEU and its kin as sacreBLEU has them, ROUGE as the package has it, and intervals from resampled statistics."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import NotFoundError
from headway.tasks.metrics.bootstrap import Evaluation, Metric, paired_gain, resampled
from headway.tasks.metrics.rouge import rouge
from headway.tasks.metrics.translation import metrics, primary_metric, signature

sacrebleu: Any = pytest.importorskip("sacrebleu")
WORDS = ["The", "the", "dog", "Dog", "runs", "ran", "fast", ",", ".", "a", "cat-like", "É", "12", "x_y", "don't"]
TEXT = st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)


def some(count: int, seed: int = 0, references: int = 1) -> tuple[list[str], list[list[str]]]:
    dice = random.Random(seed)
    truth = [[dice.choice(WORDS) for _ in range(dice.randrange(3, 15))] for _ in range(count)]
    texts = [" ".join(word for word in row if dice.random() < 0.85) for row in truth]
    others = [
        [" ".join(row if n == 0 else row[::-1]) for n in range(1 + i % references)] for i, row in enumerate(truth)
    ]
    return texts, others


@pytest.mark.parametrize("references", [1, 3])
def test_figures_are_those_of_sacrebleu(references: int) -> None:
    texts, truth = some(40, references=references)
    streams = [[row[i] if i < len(row) else None for row in truth] for i in range(references)]
    kinds = sacrebleu.metrics
    expected = {
        "bleu": kinds.BLEU(), "bleu_lower": kinds.BLEU(lowercase=True), "chrf": kinds.CHRF(),
        "chrf_lower": kinds.CHRF(lowercase=True), "ter": kinds.TER(case_sensitive=True), "ter_lower": kinds.TER(),
    }  # fmt: skip
    found = metrics("bleu", texts, truth)
    assert found[0].name == "bleu" and {m.name for m in found} == set(expected)
    for each in found:
        score = expected[each.name].corpus_score(texts, streams)
        assert each.value == pytest.approx(score.score)
        assert each.signature == str(expected[each.name].get_signature())
        part = np.array([3, 4, 4, 9])
        again = expected[each.name].corpus_score([texts[i] for i in part], [[row[i] for i in part] for row in streams])
        assert each.some(part) == pytest.approx(again.score)
    assert primary_metric("bleu", texts, truth).value == found[0].value
    assert "tok:13a" in signature("bleu") and "stemming" in signature("rouge")


@settings(max_examples=150, deadline=None)
@given(TEXT, st.lists(TEXT, min_size=1, max_size=3))
def test_rouge_is_that_of_the_package(text: str, references: list[str]) -> None:
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(["rouge1", "rouge2", "rougeL"])
    expected = scorer.score_multi(references, text)
    for value, name in zip(rouge(text, references), ("rouge1", "rouge2", "rougeL"), strict=True):
        assert value == pytest.approx(expected[name].fmeasure)


def test_rouge_by_hand() -> None:
    assert rouge("the cat sat", ["the dog sat down"]) == pytest.approx((2 * 2 / 7, 0.0, 2 * 2 / 7))
    assert rouge("", ["a"]) == (0, 0, 0) and rouge("A-b", ["a b"]) == (1, 1, 1)
    found = {m.name: m.value for m in metrics("rouge", ["a b", "c"], [["a b"], ["d"]])}
    assert found == {"rouge_1": 50.0, "rouge_2": 50.0, "rouge_l": 50.0}
    assert primary_metric("rouge", ["a b"], [["b a"]]).name == "rouge_l"


def test_resampling_draws_whole_texts() -> None:
    statistics = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])
    totals = resampled(statistics, seed=3, draws=200)
    assert (totals[:, 1] == 10 * totals[:, 0]).all() and (resampled(statistics, 3, 200) == totals).all()
    assert set(totals[:, 0]) <= {a + b + c for a in (1, 2, 4) for b in (1, 2, 4) for c in (1, 2, 4)}
    assert len(set(totals[:, 0])) == 9 and abs(totals[:, 0].mean() - 7) < 0.4


def test_an_interval_holds_its_figure() -> None:
    texts, truth = some(60)
    each = metrics("bleu", texts, truth)[0]
    value, low, high = each.interval(draws=200)
    assert low < value < high and high - low > 1
    scores = [sacrebleu.corpus_bleu([texts[i] for i in rows], [[truth[i][0] for i in rows]]).score
              for rows in np.random.default_rng(5).integers(0, 60, (200, 60))]  # fmt: skip
    assert (low, high) == pytest.approx(np.quantile(scores, [0.025, 0.975]), abs=3)


def test_two_systems_are_compared_in_pairs() -> None:
    texts, truth = some(80)
    worse = [text.replace("dog", "cow") for text in texts]
    good, bad = (metrics("bleu", t, truth)[0] for t in (texts, worse))
    gain, low, high = paired_gain(good, bad, draws=200)
    assert gain == pytest.approx(good.value - bad.value) and 0 < low < gain < high
    assert high - low < good.interval(draws=200)[2] - good.interval(draws=200)[1]  # what both find hard, cancels
    assert paired_gain(bad, good, draws=200) == pytest.approx((-gain, -high, -low))
    assert paired_gain(good, good, draws=50) == (0, 0, 0)


def test_the_command_line_compares_by_statistics() -> None:
    from headway.api.evaluation import gain

    def evaluation(values: list[float]) -> Evaluation:
        statistics = np.array([[v, 1.0] for v in values])
        made = Metric("x", statistics, lambda total: float(total[0] ** 2 / total[1]))
        return Evaluation(len(values), {"x": (0, 0, 0)}, {}, [{"score": 0.0} for _ in values], made)

    assert gain(evaluation([1, 2, 3]), evaluation([1, 1, 1]))[0] == pytest.approx(12 - 3)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sacrebleu", None)
    with pytest.raises(NotFoundError, match="sacrebleu"):
        metrics("bleu", ["a"], [["a"]])
    assert metrics("rouge", ["a"], [["a"]])[0].value == 100
