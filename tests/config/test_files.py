"""Recipe files in TOML, YAML and JSON: the same values, read strictly; other files are refused by name."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from headway.config.files import read_settings
from headway.errors import ConfigError, HeadwayError, NotFoundError
from headway.tasks.recipe import load_recipe

TOML = """task = "answer"
[data]
length = 64
[answer]
no_answer = "no"
[model]
from = ""
dropout = .5
[train]
lr = 1e-3
steps = 5
betas = [0.9, 0.99]
keep_best = true
""".replace("= .5", "= 0.5")
YAML = """# a comment
task: answer
data: {length: 64}
answer:
  no_answer: no
model: {from: "", dropout: .5}
train:
  lr: 1e-3
  steps: 5
  betas: [0.9, 0.99]
  keep_best: true
  compile: null
"""


def written(folder: Path, name: str, text: str | bytes) -> str:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_three_formats_are_one_recipe(tmp_path: Path) -> None:
    toml = load_recipe(written(tmp_path, "a.toml", TOML))
    assert toml[0] == "a" and (toml[1].train.lr, toml[1].settings.no_answer) == (1e-3, "no")
    for name in ("a.yaml", "a.yml"):
        assert load_recipe(written(tmp_path, name, YAML)) == toml
    values = read_settings(tmp_path / "a.toml")[0]
    assert load_recipe(written(tmp_path, "a.json", json.dumps(values))) == toml
    assert load_recipe(str(tmp_path / "a.yaml"), ["train.lr=0.5"])[1].train.lr == 0.5


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("train:\n  lr: 1\n  lr: 2\n", "line 3: key 'lr' twice"),
        ("a: &x 1\nb: *x\n", "aliases"),
        ("a: &x [1]\nb: {<<: *x}\n", "aliases"),
        ("!!python/object/apply:os.system [ls]", "tag"),
        ("train: {lr: [}", "line 1"),
        ("1: 2", "key"),
        ("{[1]: 2}", "key"),
        ("- 1", "table"),
        ("", "table"),
        ("a: 1\n---\nb: 2\n", "document"),
        ("[" * 5000, "YAML"),
        (b"\xff\xfe", "YAML"),
        (b"a: \x00", "YAML"),
        ("x" * 1_100_000, "larger"),
    ],
)
def test_yaml_is_read_strictly(tmp_path: Path, text: str | bytes, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_recipe(written(tmp_path, "x.yaml", text))
    assert caught.value.code == "C001" and named in caught.value.message
    assert "\n" not in caught.value.message and len(caught.value.message) < 400


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("1e3", 1e3),
        ("-1", -1),
        ("017", "017"),
        ("0", 0),
        ("0.5", 0.5),
        ("2020-01-01", "2020-01-01"),
    ],
)
def test_yaml_values_are_those_of_yaml_1_2(tmp_path: Path, text: str, value: object) -> None:
    found = read_settings(Path(written(tmp_path, "x.yaml", f"a: {text}")))[0]["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("x.json", '{"train": {"steps": 1, "steps": 2}}', "C001"),
        ("x.json", "[1]", "C001"),
        ("x.json", '{"train": {"stepz": 1}}', "C014"),
        ("x.yaml", "train: {stepz: 1}", "C014"),
        ("x.yaml", "train: {steps: 1.5}", "C002"),
        ("x.ini", "[train]", "C001"),
        ("recipe", "", "C001"),
    ],
)
def test_mistakes_in_files(tmp_path: Path, name: str, text: str, code: str) -> None:
    with pytest.raises(HeadwayError) as caught:
        load_recipe(written(tmp_path, name, text))
    assert caught.value.code == code


@pytest.mark.parametrize("name", ["absent.toml", "absent.yaml", "absent.json"])
def test_a_file_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotFoundError, match=f"no such file: .*{name}"):
        load_recipe(str(tmp_path / name))


def test_yaml_without_its_package_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(NotFoundError, match="pyyaml") as caught:
        load_recipe(written(tmp_path, "x.yaml", YAML))
    assert caught.value.code == "F003"
