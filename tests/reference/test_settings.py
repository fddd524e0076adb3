"""The reference of settings: read from the dataclasses, complete, and true."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from headway.config.ranges import Range
from headway.errors import ConfigError
from headway.reference.recipes import recipes
from headway.reference.settings import GENERATION, Setting, attribute_docs, recipe_settings, section, settings
from headway.tasks.defaults import choose
from headway.tasks.recipe import SECTIONS, load_recipe, recipe_values
from headway.tasks.registry import get_task, task_names, tasks

ALL = list(settings())


def setting(key: str) -> Setting:
    return next(each for each in ALL if each.key == key)


def test_every_field_of_a_recipe_is_a_setting() -> None:
    for name in task_names():
        keys = {each.key for each in ALL if each.section == name}
        assert keys == {f"{name}.{field.name}" for field in fields(get_task(name).Settings)}
    for name, cls in SECTIONS.items():
        assert len(section(name).settings) == len(fields(cls)) > 10
    assert {"task", "seed", "out", "gpus"} == {each.key for each in ALL if not each.section}


def test_every_setting_says_what_it_means() -> None:
    silent = [each.key for each in ALL if len(each.doc) < 10 or "None" in each.doc]
    assert silent == [] or silent == ["parity.label_smoothing"]  # the toy package of the tests has no docstrings


def test_no_key_stands_twice() -> None:
    assert len({each.key for each in ALL if each.section not in GENERATION}) == len(recipe_settings())
    run = [each.key for each in ALL if each.section in GENERATION]
    assert len(set(run)) == len(run)
    assert {"temperature", "top_k", "n_best", "length_penalty"} <= set(run)


def test_a_setting_has_type_default_range_and_papers() -> None:
    rate, kind, betas = setting("train.lr"), setting("model.positions"), setting("train.betas")
    assert (rate.type, rate.default, rate.range, rate.section, rate.name) == ("a number", None, Range(0), "train", "lr")
    assert "rope" in kind.choices and kind.default == "learned"
    assert kind.papers == ("Vaswani et al. 2017", "Raffel et al. 2020", "Su et al. 2021", "Press et al. 2022")
    assert (betas.default, betas.type) == ([0.9, 0.99], "a list of numbers")
    assert setting("data.lower").choices == (True, False)
    assert setting("model.from").default == ""
    assert setting("train.steps").default is None


def test_tasks_and_verbs_of_a_setting() -> None:
    assert setting("tag.scheme").tasks == ("tag",)
    assert set(setting("train.lr").tasks) == set(task_names())
    assert "seq2seq" in setting("model.kind").tasks and "classify" not in setting("model.kind").tasks
    assert setting("temperature").verbs == ("run",)
    assert "seq2seq" in setting("n_best").tasks and "classify" not in setting("temperature").tasks


def test_settings_that_are_chosen() -> None:
    """They are those that the modules of headway/tasks/defaults return, and those that fit only made-up data."""
    folder = Path(choose.__file__).parent
    nodes = [node for name in ("finetuning", "scratch") for node in ast.walk(parse(folder / f"{name}.py"))]
    keys = {
        key.value for node in nodes if isinstance(node, ast.Dict) for key in node.keys if isinstance(key, ast.Constant)
    }
    keys |= {key for task in tasks() for key in task.made_up_sizes}
    found = {key for key in keys if str(key).startswith(("data.", "model.", "train."))}
    assert {each.key for each in ALL if each.chosen} == found


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_a_resumed_run_may_change_what_its_setting_says() -> None:
    assert setting("train.lr").resumable and not setting("train.batch").resumable
    assert setting("model.from").resumable and setting("out").resumable and not setting("seed").resumable


RANGED = [each for each in recipe_settings().values() if each.range is not None and not each.choices]


@pytest.mark.parametrize("each", RANGED, ids=lambda each: each.key)
def test_the_range_that_is_told_is_the_range_that_is_checked(each: Setting) -> None:
    """A value just outside is refused as being outside, and the bound itself as the range has it."""
    recipe = "tag" if each.section == "tag" else "tiny"
    task = [f"task={each.section}"] if each.section in task_names() else []
    allowed, step = each.range, 1 if "whole" in each.type else 1e-3
    assert allowed is not None
    for value in (allowed.low - step, *([allowed.low] if allowed.above else [])):
        with pytest.raises(ConfigError) as caught:
            load_recipe(recipe, [*task, f"{each.key}={value if step < 1 else int(value)}"])
        assert caught.value.code == "C003" and each.key in caught.value.message


def test_a_recipe_takes_only_its_own_task() -> None:
    keys = recipe_settings("tag")
    assert {"tag.scheme", "train.lr", "seed"} <= keys.keys()
    assert not any(key.startswith("classify.") for key in keys)
    for facts in recipes():
        values = recipe_values(load_recipe(facts.name)[1])
        flat = {f"{a}.{b}" for a, inside in values.items() if isinstance(inside, dict) for b in inside}
        assert flat <= recipe_settings(facts.task).keys()


def test_docs_of_fields_are_the_strings_below_them() -> None:
    assert attribute_docs(_Base) == {"a": "First."}
    assert attribute_docs(_Child) == {"a": "First.", "b": "Second, on two lines."}


def test_the_reference_needs_no_torch() -> None:
    code = (
        "import sys, headway.reference.schema as s, headway.reference.recipes as r, headway.reference.codes as c\n"
        "s.recipe_schema(), r.recipes(), c.error_codes()\n"
        "print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


@dataclass
class _Base:
    a: int = 1
    """First."""
    c: int = 1


@dataclass
class _Child(_Base):
    b: int = 1
    """Second,
    on two lines."""
