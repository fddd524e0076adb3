"""Progress messages of a training run."""

from __future__ import annotations

import pytest

from headway.progress import Display


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ([line for i in range(3) for line in (f"text {i}", "  → nothing", f"  in truth {i}")], 6),
        ([f"line {i}" for i in range(9)], 6),
        (["a", *["  more"] * 9], 6),
        (["a", "b"], 2),
    ],
)
def test_examples_are_shown_whole(lines: list[str], shown: int, capfd: pytest.CaptureFixture[str]) -> None:
    Display(False).report("sample", text="\n".join(lines))
    assert capfd.readouterr().err.splitlines() == [f"  {line}" for line in lines[:shown]]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"step": 9, "best": 9, "early": 0}, []),
        ({"step": 30, "best": 20, "early": 0}, ["step 20"]),
        ({"step": 30, "best": 20, "early": 2}, ["2 evaluations", "step 30", "step 20"]),
    ],
)
def test_which_weights_are_kept(facts: dict[str, int], words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    Display(False).report("kept", **facts)
    said = capfd.readouterr().err
    assert all(word in said for word in words) and bool(said) == bool(words)


def test_rows_that_were_lost_are_counted(capfd: pytest.CaptureFixture[str]) -> None:
    show = Display(False).report
    show("data", tokens=1000, valid_tokens=10, bad_rows=0, shortened=0, cut=0, left_out=0)
    assert capfd.readouterr().err == "1,000 training tokens, 10 validation tokens\n"
    show("data", tokens=1000, valid_tokens=10, vocab=9, bad_rows=1, shortened=2000, cut=3, left_out=4)
    said = capfd.readouterr().err
    assert all(part in said for part in ("vocabulary 9", ", 1 bad row ", ", 2,000 short", ", 3 trunc", ", 4 too long"))
