"""Pictures of series."""

from __future__ import annotations

import numpy as np

from headway.data.series.plot import BAND, BEFORE, PREDICTED, TRUE, WIDTH, Curves, picture


def drawn(sheet: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    """Rows and columns of the pixels of a colour."""
    return np.argwhere((sheet == colour).all(2))


def test_what_was_read_stands_left_of_what_is_predicted() -> None:
    rising, falling = np.arange(20.0), np.arange(20.0, 10, -1)
    sheet = picture([Curves("a", rising, falling, falling + 1, (falling - 2, falling + 2))] * 2)
    assert sheet.shape[1] == WIDTH and sheet.dtype == np.uint8
    half = sheet[: len(sheet) // 2]
    before, after = drawn(half, BEFORE), drawn(half, PREDICTED)
    assert before[:, 1].max() < after[:, 1].min()
    assert before[before[:, 1].argmin(), 0] > before[before[:, 1].argmax(), 0], "a rising curve ends higher up"
    assert after[after[:, 1].argmin(), 0] < after[after[:, 1].argmax(), 0]
    assert len(drawn(half, TRUE)) and len(drawn(half, BAND))


def test_a_constant_or_missing_curve_is_drawn_or_left_out() -> None:
    sheet = picture([Curves("a", np.ones(5), np.full(5, np.nan))])
    assert len(drawn(sheet, BEFORE)) and not len(drawn(sheet, PREDICTED))
