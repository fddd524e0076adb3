"""Error codes: every code has a cause and a remedy, every exit code a meaning."""

from __future__ import annotations

import re

from headway import errors
from headway.errors import CATALOGUE, HeadwayError
from headway.reference.codes import CAUSES, LETTERS, error_codes, exit_codes


def test_every_code_has_a_cause_and_a_remedy() -> None:
    """tests/test_errors.py holds CATALOGUE to the codes that headway's source raises."""
    assert CAUSES.keys() == CATALOGUE.keys() == error_codes().keys()
    assert all(len(text) > 15 and text.endswith(".") for pair in CAUSES.values() for text in pair)


def test_a_code_knows_its_class_and_exit_code() -> None:
    found = error_codes()
    assert (found["C014"].error, found["C014"].exit_code) == ("ConfigError", 3)
    assert (found["B000"].error, found["B000"].exit_code) == ("HeadwayError", 1)
    for letter, cls in LETTERS.items():
        assert re.search(rf"{cls.__name__} +exit {cls.exit_code} +{letter}  ", errors.__doc__ or "")


def test_every_exit_code_has_a_meaning() -> None:
    found = exit_codes()
    assert set(found) == {0, 130, 143, *(cls.exit_code for cls in (HeadwayError, *HeadwayError.__subclasses__()))}
    assert all(meaning.endswith(".") for meaning in found.values())
    assert len(set(found.values())) == len(found)
