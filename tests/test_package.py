"""What `make package` would object to."""

from __future__ import annotations

from tools.package import closure, differences

WANTED = {"headway/__init__.py", "headway/py.typed", "headway/recipes/tiny.toml"}


def test_a_complete_distribution_has_no_differences() -> None:
    assert differences([*sorted(WANTED), "headway/", "pyproject.toml"], WANTED) == []


def test_missing_and_strange_files_are_named() -> None:
    names = [
        "headway/__init__.py",
        "headway/py.typed",
        "headway/old.py",
        "tests/test_x.py",
        "runs/tiny-0001/config.json",
    ]
    assert differences(names, WANTED) == [
        "missing: headway/recipes/tiny.toml",
        "should not be there: headway/old.py",
        "should not be there: runs/tiny-0001/config.json",
        "should not be there: tests/test_x.py",
    ]


def test_the_packages_of_an_extra_come_only_with_it() -> None:
    wanted = ["jinja2>=3", 'pytest>=9; extra == "dev"']
    plain, dev = closure(wanted, set()), closure(wanted, {"dev"})
    assert {"jinja2", "markupsafe"} <= plain.keys() and "pytest" not in plain
    assert {"jinja2", "markupsafe", "pytest", "pluggy"} <= dev.keys()
