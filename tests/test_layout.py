"""The structure of the code: who may import whom, what is banned, how large files and folders get, what nobody uses.

A rule is a function of (path, source), or of all such pairs, that returns what is wrong: a test can show it bad code.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

from tools.layout import PAGE, page, purpose

ROOT = Path(__file__).resolve().parent.parent

LEVELS = (
    ("errors", "jsonfile", "version", "resources"),
    ("config",),
    ("data",),
    ("model", "baselines"),
    ("hub", "generate"),
    ("tasks",),
    ("train",),
    ("runs",),
    ("checks", "report"),
    ("serve",),
    ("__init__", "api"),
    ("cli", "progress", "__main__"),
)
"""The parts of headway/, lowest first: a part imports from its own level and from those before it."""

LEVEL = {part: height for height, parts in enumerate(LEVELS) for part in parts}

# transformers is an oracle for tests; the others run code that a file names.
BANNED_MODULES = {"transformers", "pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
BANNED_NAMES = {"eval", "exec", "torch.load", "yaml.load", "yaml.unsafe_load", "os.system", "os.popen"}
BANNED_FLAGS = {"shell", "allow_pickle"}

IMPORTERS = {"import_module", "__import__"}

FOLDER_MODULES = 12
ANY_NUMBER = ("headway/cli",)  # one file per verb
STARTED = ("__main__", "headway.data.chat_template.worker")
"""Modules that no module imports: they are started as programs."""

FILE_LINES = 600
MODEL_LINES = 1800


Files = Sequence[tuple[str, str]]
Rule = Callable[[str, str], list[str]]
TreeRule = Callable[[Files], list[str]]

parse = cache(ast.parse)


def modules(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything imported anywhere in a file; `from a import b` gives `a.b`."""
    package = PurePosixPath(path).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{stem}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and dotted(node.func).split(".")[-1] in IMPORTERS:
            yield from ((node.lineno, str(arg.value)) for arg in node.args[:1] if isinstance(arg, ast.Constant))


def dotted(node: ast.expr) -> str:
    """`a.b.c` for a chain of plain names, else an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (stem := dotted(node.value)):
        return f"{stem}.{node.attr}"
    return ""


def part_of(module: str) -> str:
    """The part of headway a dotted name belongs to; `headway.load`, which is no part, is the root's own."""
    name = f"{module}.".split(".")[1]
    return name if name in LEVEL else "__init__"


def upward_imports(path: str, source: str) -> list[str]:
    here = PurePosixPath(path).with_suffix("").parts[1]
    if here not in LEVEL:
        return [f"{path}: {here} has no place in LEVELS"]
    return [
        f"{path}:{line}: {here} imports {module}, which is above it"
        for line, module in modules(path, parse(source))
        if module.split(".")[0] == "headway" and LEVEL[part_of(module)] > LEVEL[here]
    ]


def banned_code(path: str, source: str) -> list[str]:
    tree = parse(source)
    wrong = [
        f"{path}:{line}: imports {module}"
        for line, module in modules(path, tree)
        if module.split(".")[0] in BANNED_MODULES
    ]
    aliases = {
        alias.asname or alias.name: alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            first, *rest = dotted(node).split(".")
            name = ".".join([aliases.get(first, first), *rest]).removeprefix("builtins.")
            if name in BANNED_NAMES:
                wrong.append(f"{path}:{node.lineno}: uses {name}")
        elif isinstance(node, ast.keyword) and node.arg in BANNED_FLAGS and ast.unparse(node.value) != "False":
            wrong.append(f"{path}:{node.value.lineno}: sets {node.arg}")
    return wrong


def long_file(path: str, source: str) -> list[str]:
    lines = len(source.splitlines())
    return [f"{path}: {lines} lines, the limit is {FILE_LINES}"] if lines > FILE_LINES else []


def imported_tests(path: str, source: str) -> list[str]:
    """Helpers shared by tests live in a conftest: a test can then be read, moved and run alone."""
    return [
        f"{path}:{line}: imports {module}"
        for line, module in modules(path, parse(source))
        if any(name.startswith("test_") for name in module.split("."))
    ]


def long_folder(folder: str, limit: int, files: Files) -> list[str]:
    lines = sum(len(source.splitlines()) for path, source in files if path.startswith(f"{folder}/"))
    return [f"{folder}: {lines} lines in all, the limit is {limit}"] if lines > limit else []


def module_name(path: str) -> str:
    return ".".join(PurePosixPath(path).with_suffix("").parts).removesuffix(".__init__")


def crowded_folders(files: Files) -> list[str]:
    """A folder with more modules than one can take in at a glance; `__init__` does not count."""
    folders = Counter(str(PurePosixPath(path).parent) for path, _ in files if not path.endswith("__init__.py"))
    return [
        f"{folder}: {count} modules, the limit is {FOLDER_MODULES}"
        for folder, count in folders.items()
        if count > FOLDER_MODULES and folder not in ANY_NUMBER
    ]


def unimported_modules(files: Files) -> list[str]:
    """Modules of headway/ that no other file imports, by a statement or by a string such as `headway.a.b:Class`."""
    wanted: set[str] = set()
    for path, source in files:
        tree = parse(source)
        named = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        names = {name for _, name in modules(path, tree)} | {name.partition(":")[0] for name in named}
        wanted |= {part for name in names for part in (name, name.rpartition(".")[0]) if part != module_name(path)}
    return [
        f"{path}: nothing imports it"
        for path, _ in files
        if path.startswith("headway/") and not path.endswith("__init__.py")
        if module_name(path) not in wanted and not module_name(path).endswith(STARTED)
    ]


def sources(folder: str) -> list[tuple[str, str]]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found, f"no Python files in {folder}/"
    return [(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in found]


@pytest.mark.parametrize("rule", [crowded_folders, unimported_modules])
def test_rule_of_the_tree_holds(rule: TreeRule) -> None:
    files = [*sources("headway"), *(sources("benchmarks") if rule is not crowded_folders else [])]
    wrong = rule(files)
    assert not wrong, "\n".join(wrong)


MANY = [(f"headway/model/{i}.py", "") for i in range(FOLDER_MODULES)]


@pytest.mark.parametrize(
    ("rule", "files", "wrong"),
    [
        (crowded_folders, [*MANY, ("headway/model/__init__.py", "")], 0),
        (crowded_folders, [*MANY, ("headway/cli/x.py", ""), ("headway/model/y/z.py", "")], 0),
        (crowded_folders, [(path.replace("model", "cli"), "") for path, _ in [*MANY, ("headway/model/z.py", "")]], 0),
        (crowded_folders, [*MANY, ("headway/model/z.py", "")], 1),
        (unimported_modules, [("headway/a.py", ""), ("headway/__main__.py", "import headway.a")], 0),
        (unimported_modules, [("headway/a.py", ""), ("headway/b/__init__.py", "from headway.a import x")], 0),
        (unimported_modules, [("headway/b/a.py", ""), ("headway/b/__init__.py", "from . import a")], 0),
        (unimported_modules, [("headway/a.py", ""), ("headway/__init__.py", "TASKS = {'a': 'headway.a:A'}")], 0),
        (unimported_modules, [("headway/a.py", "from headway.a import b")], 1),
        (unimported_modules, [("headway/a.py", "NAME = 'headway.a'"), ("headway/b.py", "import headway.a.c")], 1),
    ],
)
def test_rule_of_the_tree_sees_bad_trees(rule: TreeRule, files: list[tuple[str, str]], wrong: int) -> None:
    assert len(rule(files)) == wrong


@pytest.mark.parametrize(
    ("rule", "folder"),
    [
        (upward_imports, "headway"),
        (banned_code, "headway"),
        (long_file, "headway"),
        (imported_tests, "tests"),
    ],
)
def test_rule_holds(rule: Rule, folder: str) -> None:
    wrong = [problem for path, source in sources(folder) for problem in rule(path, source)]
    assert not wrong, "\n".join(wrong)


def test_the_page_shows_every_module() -> None:
    """docs/architecture.md holds the tree as it is; after a change: python tools/layout.py."""
    assert page() == PAGE.read_text(encoding="utf-8")
    assert not [path for path in (ROOT / "headway").rglob("*.py") if not purpose(path) and path.name != "__main__.py"]


def test_the_core_stays_small() -> None:
    assert not long_folder("headway/model", MODEL_LINES, sources("headway"))


@pytest.mark.parametrize(
    ("rule", "path", "source"),
    [
        (upward_imports, "headway/errors.py", "import headway.config.model"),
        (upward_imports, "headway/errors.py", "import headway"),
        (upward_imports, "headway/config/model.py", "from headway import __version__"),
        (upward_imports, "headway/config/model.py", "def f():\n    from headway.model.stack import Stack"),
        (upward_imports, "headway/model/stack.py", "from headway import hub"),
        (upward_imports, "headway/model/stack.py", "from ..hub import folder"),
        (upward_imports, "headway/model/stack.py", "from .. import hub"),
        (upward_imports, "headway/hub/tables/bert.py", "from ...tasks import lm"),
        (
            upward_imports,
            "headway/data/batch.py",
            "import importlib\nimportlib.import_module('headway.train')",
        ),
        (upward_imports, "headway/api.py", "from headway.cli import main"),
        (upward_imports, "headway/nowhere.py", ""),
        (banned_code, "headway/x.py", "import pickle"),
        (banned_code, "headway/x.py", "from transformers.models import bert"),
        (banned_code, "headway/x.py", "def f():\n    import dill as d"),
        (banned_code, "headway/x.py", "from importlib import import_module\nimport_module('marshal')"),
        (banned_code, "headway/x.py", "eval('1')"),
        (banned_code, "headway/x.py", "import builtins\nbuiltins.exec('1')"),
        (banned_code, "headway/x.py", "import torch\ntorch.load('x', weights_only=True)"),
        (banned_code, "headway/x.py", "import torch as t\nread = t.load"),
        (banned_code, "headway/x.py", "from torch import load as read\nread('x')"),
        (banned_code, "headway/x.py", "import yaml\nyaml.load('x')"),
        (banned_code, "headway/x.py", "import subprocess\nsubprocess.run('ls', shell=True)"),
        (banned_code, "headway/x.py", "import numpy\nnumpy.load('x', allow_pickle=True)"),
        (long_file, "headway/x.py", "x = 1\n" * (FILE_LINES + 1)),
        (imported_tests, "tests/test_x.py", "from tests.test_y import helper"),
        (imported_tests, "tests/test_x.py", "from test_y import helper"),
        (imported_tests, "tests/hub/test_x.py", "from . import test_y"),
    ],
)
def test_rule_sees_bad_code(rule: Rule, path: str, source: str) -> None:
    assert len(rule(path, source)) == 1


@pytest.mark.parametrize(
    ("rule", "path", "source"),
    [
        (
            upward_imports,
            "headway/model/stack.py",
            "from headway.model import cache\nfrom ..errors import DataError",
        ),
        (upward_imports, "headway/config/presets.py", "from headway.config.model import ModelConfig\nimport torch.nn"),
        (upward_imports, "headway/__init__.py", "from headway import api\nfrom .hub import folder"),
        (upward_imports, "headway/cli.py", "import headway\nfrom headway import load, errors"),
        (upward_imports, "headway/cli/__init__.py", "from headway.train import run"),
        (banned_code, "headway/x.py", "model.eval()\nfile.load()\nrun(shell=False)\nimport pickletools"),
        (long_file, "headway/x.py", "x = 1\n" * FILE_LINES),
        (
            imported_tests,
            "tests/test_x.py",
            "from tests.conftest import helper\nfrom torch.testing import assert_close",
        ),
    ],
)
def test_rule_lets_good_code_pass(rule: Rule, path: str, source: str) -> None:
    assert rule(path, source) == []


def test_long_folder_is_seen() -> None:
    halves = [(f"headway/model/{name}.py", "x = 1\n" * (MODEL_LINES // 2)) for name in "ab"]
    assert long_folder("headway/model", MODEL_LINES, halves) == []
    assert len(long_folder("headway/model", MODEL_LINES, [*halves, ("headway/model/c.py", "x = 1")])) == 1
