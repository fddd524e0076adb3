"""Intervals, paired differences and verdicts: against hand-computed cases, printed tables and simulation."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.runs.statistics import (
    Kind,
    Paired,
    confidence_interval,
    holm,
    kind_of,
    paired,
    plus_minus,
    t_quantile,
    two_sided_p,
    verdict,
)


@settings(max_examples=40)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40))
def test_spread(values: list[float]) -> None:
    found = confidence_interval(values)
    mean, sd, low, high = (found[key] for key in ("mean", "sd", "low", "high"))
    assert mean is not None and sd is not None and low is not None and high is not None
    assert sd == pytest.approx(statistics.stdev(values), abs=1e-6)
    assert mean - low == pytest.approx(high - mean, abs=1e-6)
    assert high - mean == pytest.approx(t_quantile(len(values) - 1) * sd / math.sqrt(len(values)), abs=1e-6)


def test_one_value_has_no_spread() -> None:
    assert confidence_interval([2.0]) == {"mean": 2.0, "sd": None, "low": None, "high": None}


def test_student_is_the_table() -> None:
    """From printed tables, on both sides of where the expansion takes over."""
    known = {1: 12.706, 2: 4.303, 5: 2.571, 10: 2.228, 11: 2.201, 15: 2.131, 30: 2.042, 120: 1.980}
    for freedom, value in known.items():
        assert t_quantile(freedom) == pytest.approx(value, abs=6e-4)


@settings(max_examples=60)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=8))
def test_an_interval_of_a_share_stays_in_its_range(values: list[float]) -> None:
    found = confidence_interval(values, Kind(0.0, 1.0))
    mean, low, high = found["mean"], found["low"], found["high"]
    assert mean is not None and low is not None and high is not None
    assert -1e-12 <= low <= mean + 1e-12 and mean - 1e-12 <= high <= 1 + 1e-12


@settings(max_examples=60)
@given(st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=8))
def test_an_interval_of_a_perplexity_is_above_zero(values: list[float]) -> None:
    found = confidence_interval(values, Kind(0.0))
    assert found["low"] is not None and found["high"] is not None and found["mean"] is not None
    assert 0 <= found["low"] <= found["mean"] * (1 + 1e-9) and found["high"] < math.inf


def test_intervals_by_hand() -> None:
    """1 and 2: the t interval is 1.5 ± 12.706 · √½ / √2; its logarithm moves by half/mean, a logit by half/(m(1-m))."""
    half = 12.706 * math.sqrt(0.5) / math.sqrt(2)
    plain, log = confidence_interval([1.0, 2.0]), confidence_interval([1.0, 2.0], Kind(0.0))
    assert plain["low"] == pytest.approx(1.5 - half)
    assert log["low"] == pytest.approx(1.5 * math.exp(-half / 1.5))
    assert log["high"] == pytest.approx(1.5 * math.exp(half / 1.5))
    shares = confidence_interval([0.6, 0.8], Kind(0.0, 1.0))
    step = 12.706 * 0.1 / (0.7 * 0.3)
    assert shares["low"] == pytest.approx(1 / (1 + math.exp(-(math.log(0.7 / 0.3) - step))))
    assert confidence_interval([1.0, 1.0, 1.0], Kind(0.0, 1.0)) == {"mean": 1.0, "sd": 0.0, "low": 1.0, "high": 1.0}
    percent = confidence_interval([60.0, 80.0], Kind(0.0, 100.0))
    assert percent["low"] == pytest.approx(100 * shares["low"])  # type: ignore[operator]


@pytest.mark.parametrize(("kind", "draw"), [
    (Kind(), lambda r: r.gauss(3, 1)),
    (Kind(0.0, 1.0), lambda r: r.betavariate(16, 4)),
    (Kind(0.0), lambda r: r.lognormvariate(1, 0.2)),
])  # fmt: skip
def test_intervals_hold_the_mean_as_often_as_they_say(kind: Kind, draw: object) -> None:
    """95 % of 2,000 simulated comparisons of four seeds, within the error of the simulation."""
    source = random.Random(5)
    true = {math.inf: 3.0, 1.0: 0.8}[kind.high] if kind.low != 0 or kind.high == 1 else math.exp(1 + 0.02)
    inside = 0
    for _ in range(2000):
        found = confidence_interval([draw(source) for _ in range(4)], kind)  # type: ignore[operator]
        inside += found["low"] <= true <= found["high"]  # type: ignore[operator]
    assert 0.93 < inside / 2000 < 0.97


def test_p_values_are_those_of_printed_tables() -> None:
    """At the tabulated quantile p is 0.05; for other levels see any table of Student's t."""
    for freedom in (1, 2, 3, 4, 9, 10):
        assert two_sided_p(t_quantile(freedom), freedom) == pytest.approx(0.05, abs=1e-4)
    assert two_sided_p(6.314, 1) == pytest.approx(0.1, abs=1e-4) and two_sided_p(-9.925, 2) == pytest.approx(
        0.01, abs=1e-4
    )
    assert two_sided_p(2.764, 10) == pytest.approx(0.02, abs=1e-4) and two_sided_p(0.0, 7) == 1.0


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0] and holm([]) == [] and holm([0.02]) == [0.02]


def test_a_paired_difference_by_hand() -> None:
    found = paired({1: 0.5, 2: 0.7, 3: 0.6, 9: 0.0}, {1: 0.4, 2: 0.5, 3: 0.5, 8: 1.0})
    assert found is not None and found.seeds == 3 and found.difference == pytest.approx(0.4 / 3)
    assert found.half == pytest.approx(4.303 * statistics.stdev([0.1, 0.2, 0.1]) / math.sqrt(3))
    assert found.p == pytest.approx(two_sided_p((0.4 / 3) / (statistics.stdev([0.1, 0.2, 0.1]) / math.sqrt(3)), 2))
    assert paired({1: 1.0}, {2: 1.0}) is None and paired({1: 3.0}, {1: 1.0}) == Paired(2.0, None, None, 1)
    same = paired({1: 2.0, 2: 3.0}, {1: 2.0, 2: 3.0})
    assert same == Paired(0.0, 0.0, 1.0, 2)


def test_verdicts_in_words() -> None:
    sure, wide = Paired(0.021, 0.008, 0.01, 5), Paired(0.02, 0.05, 0.4, 5)
    assert verdict(sure, 0.01, 1, True) == "better by 0.021 ± 0.008"
    assert verdict(sure, 0.01, 1, False) == "worse by 0.021 ± 0.008"
    assert verdict(sure, 0.01, 1, None) == "higher by 0.021 ± 0.008"
    assert verdict(sure, 0.06, 6, True).startswith("not decided: 0.021 ± 0.008 would do alone, not among 6")
    assert verdict(wide, 0.4, 1, True) == "no difference at this budget: 0.02 ± 0.05"
    assert verdict(Paired(-0.1, None, None, 1), None, 0, True) == "one seed: no interval (-0.1)"
    assert verdict(None, None, 0, True) == "no seed in common"
    assert plus_minus(12.3456, 1.2) == "12.3 ± 1.2" and plus_minus(5120.2, 130.0) == "5120 ± 130"
    assert plus_minus(0.0, 0.0) == "0 ± 0" and plus_minus(-0.94, 0.86) == "-0.94 ± 0.86"
    assert plus_minus(0.5, 0.0) == "0.5 ± 0"


def test_no_difference_is_rarely_called_one() -> None:
    """Three variants that are one and the same, beside a fourth: after Holm at most 5 % of comparisons name any."""
    source, named = random.Random(3), 0
    for _ in range(1000):
        base = {seed: source.gauss(0, 1) for seed in range(5)}
        found = [paired({seed: source.gauss(0, 1) for seed in range(5)}, base) for _ in range(3)]
        named += min(holm([each.p for each in found if each is not None and each.p is not None])) <= 0.05
    assert named / 1000 < 0.07


def test_bounds_by_name_only_if_the_values_keep_them() -> None:
    assert kind_of("accuracy", [0.5]) == Kind(0.0, 1.0, True) and kind_of("accuracy", [93.0]).high == math.inf
    assert kind_of("perplexity", [3.0]) == Kind(0.0, math.inf, False)
    assert kind_of("bits_per_byte", [3.0]).low == 0.0 and kind_of("word_error_rate", [2.0]).higher_is_better is False
    assert kind_of("bleu", [30.0]).high == 100.0 and kind_of("reward", [-3.0]) == Kind()
