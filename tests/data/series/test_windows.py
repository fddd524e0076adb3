"""Windows and splits: nothing that is read or measured comes from a later part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headway.data.series.scaling import FILE, Scaling, filled, read_scaling
from headway.data.series.times import DAY, SECOND, Clock
from headway.data.series.windows import check_split, make_windows, split_rows
from headway.errors import ConfigError

HOUR = Clock("date", 3600.0 * SECOND)


def test_the_protocol_of_ett() -> None:
    """Months of 30 days; rows after the last part are left out (Zhou et al. 2021)."""
    assert split_rows("12/4/4 months", 17420, HOUR) == (8640, 11520, 14400)


def test_shares_give_the_rest_to_validation() -> None:
    assert split_rows("0.7/0.1/0.2", 101, HOUR) == (70, 81, 101)
    assert split_rows("0.8/0.2", 101, HOUR) == (80, 101, 101)
    assert split_rows("10/5/2 rows", 101, Clock()) == (10, 15, 17)
    assert split_rows("2/1/1 days", 101, HOUR) == (48, 72, 96)


@pytest.mark.parametrize("text", ["", "0.7", "0.7/0.7", "a/b", "0.7/0.3/0", "1/1/1 weeks", "0.2/0.2/0.2/0.4"])
def test_splits_that_cannot_be(text: str) -> None:
    with pytest.raises(ConfigError, match=r"forecast.split = .* is no split"):
        check_split("forecast.split", text)


def test_splits_that_do_not_fit_the_table() -> None:
    with pytest.raises(ConfigError, match="14,400 steps of 1 hour, and there are 100"):
        split_rows("12/4/4 months", 100, HOUR)
    with pytest.raises(ConfigError, match="needs a column of dates; one step is 1 row"):
        split_rows("12/4/4 months", 17420, Clock())


def test_targets_stay_in_their_part_and_inputs_may_be_older() -> None:
    series = np.arange(20.0)[:, None]
    train = make_windows([(series, 0, 12)], 4, 2)
    valid = make_windows([(series, 12, 20)], 4, 2)
    assert train.read()[0][..., 0].tolist() == [list(range(at, at + 6)) for at in range(7)]
    assert valid.read()[0][..., 0].tolist() == [list(range(at, at + 6)) for at in range(8, 15)]


def test_windows_do_not_cross_from_one_series_into_the_next() -> None:
    windows = make_windows([(np.zeros((5, 1)), 0, 5), (np.ones((6, 1)), 0, 6)], 3, 1)
    found, known = windows.read()
    assert known is None and len(windows) == 2 + 3 and {row.sum() for row in found} == {0.0, 4.0}


def test_missing_values_take_the_last_known_one_and_never_a_later_one() -> None:
    values = np.array([[np.nan, 1.0], [np.nan, np.nan], [3.0, np.nan], [np.nan, 4.0]])
    assert filled(values).tolist() == [[0, 1], [0, 1], [3, 1], [3, 4]]
    later = values.copy()
    later[2:] = 9.0
    assert (filled(later)[:2] == filled(values)[:2]).all()
    windows = make_windows([(values, 0, 4)], 2, 1)
    found, known = windows.read()
    assert known is not None and known[0].tolist() == [[False, True], [False, False], [True, False]]
    assert found[1].tolist() == [[0, 1], [3, 1], [3, 4]]


def test_scaling_is_by_known_values_and_comes_back(tmp_path: Path) -> None:
    values = np.array([[1.0, 5.0], [3.0, 5.0], [np.nan, 5.0]])
    scaling = Scaling.measured(("a", "b"), values, Clock("date", float(DAY)), "when")
    assert scaling.mean == (2.0, 5.0) and scaling.scale == (1.0, 1.0)  # a constant column keeps its scale
    assert np.allclose(scaling.restore(scaling.apply(values[:2])), values[:2])
    (tmp_path / FILE).write_text(__import__("json").dumps(scaling.to_dict()))
    assert read_scaling(tmp_path / FILE) == scaling
    (tmp_path / FILE).write_text('{"series": {"columns": ["a"], "mean": [], "scale": [1]}}')
    with pytest.raises(ConfigError, match="no columns, means and scales"):
        read_scaling(tmp_path / FILE)


def test_a_column_that_training_did_not_have_is_scaled_by_itself() -> None:
    scaling = Scaling(("a",), (10.0,), (2.0,))
    own = scaling.of(("b", "a"), np.array([[1.0, 1.0], [3.0, 1.0]]))
    assert own.mean == (2.0, 10.0) and own.scale == (1.0, 2.0)
