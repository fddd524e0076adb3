"""Times: parsed, put on a grid, continued."""

from __future__ import annotations

from datetime import date, datetime

import numpy as np
import pytest

from headway.data.series.times import DAY, SECOND, Clock, find_clock, parse_time


def microseconds(text: str) -> float:
    return float(np.datetime64(text, "us").astype(np.int64))


@pytest.mark.parametrize(
    ("value", "iso"),
    [
        ("2016-07-01 02:00:00", "2016-07-01T02:00"),
        ("2016-07-01T02:00Z", "2016-07-01T02:00"),
        ("2016-07-01 02:00+02:00", "2016-07-01T00:00"),
        ("1.7.2016 02:00", "2016-07-01T02:00"),
        ("2016/7/1", "2016-07-01"),
        ("1949-03", "1949-03-01"),
        (datetime(2016, 7, 1, 2), "2016-07-01T02:00"),
        (date(2016, 7, 1), "2016-07-01"),
    ],
)
def test_dates(value: object, iso: str) -> None:
    assert parse_time(value) == ("date", microseconds(iso))


@pytest.mark.parametrize("value", ["hello", "", None, True, float("nan"), "inf", "3/4/2016", "2016-13-01", [1]])
def test_what_is_no_time(value: object) -> None:
    """3/4/2016 is the third of April or the fourth of March: nobody knows."""
    assert parse_time(value) is None


def test_numbers_are_times_too() -> None:
    assert parse_time("0.25") == ("number", 0.25) and parse_time(7) == ("number", 7.0)


def times(*texts: str) -> np.ndarray:
    return np.array([microseconds(text) for text in texts])


def test_the_most_common_step_is_the_step() -> None:
    """A gap does not count for more than the steps around it."""
    found = times("2020-01-01T00", "2020-01-01T01", "2020-01-01T02", "2020-01-03T00")
    clock = find_clock("date", found)
    assert clock == Clock("date", 3600.0 * SECOND) and str(clock) == "1 hour"
    assert clock.positions(found).tolist() == [0, 1, 2, 48]


def test_months_have_unequal_lengths_and_one_step() -> None:
    found = times("2020-01-31", "2020-02-29", "2020-04-01")
    assert not find_clock("date", found).monthly  # not the same day of each month
    found = times("2020-01-01", "2020-02-01", "2020-03-01", "2020-05-01")
    clock = find_clock("date", found)
    assert clock.monthly and clock.positions(found).tolist() == [0, 1, 2, 4] and clock.season == 12
    assert clock.shown(clock.after(found[-1], 9))[-2:] == ["2021-01-01", "2021-02-01"]


def test_decimals_that_are_not_quite_equal() -> None:
    found = np.array([0.1, 0.2, 0.1 + 0.2, 0.4])
    clock = find_clock("number", found)
    assert clock.step == pytest.approx(0.1) and clock.shown(clock.after(found[-1], 2)) == [0.5, 0.6]


@pytest.mark.parametrize(
    ("step", "season"), [(3600 * SECOND, 24), (900 * SECOND, 96), (DAY, 7), (7 * DAY, 52), (SECOND, 60), (5 * DAY, 0)]
)
def test_the_usual_season_of_a_step(step: float, season: int) -> None:
    assert Clock("date", float(step)).season == season
    assert Clock("number", float(step)).season == 0


def test_days_are_shown_without_hours_and_hours_with_them() -> None:
    day = Clock("date", float(DAY))
    assert day.shown(day.after(microseconds("2020-02-28"), 2)) == ["2020-02-29", "2020-03-01"]
    hour = Clock("date", 3600.0 * SECOND)
    assert hour.shown(hour.after(microseconds("2020-02-28T23"), 1)) == ["2020-02-29 00:00:00"]
