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
    ("errors", "jsonfile", "version", "resources", "progress"),
    ("config",),
    ("data",),
    ("kernels",),
    ("model", "front", "baselines", "joint"),
    ("hub", "generate"),
    ("tasks",),
    ("train",),
    ("runs",),
    ("checks", "report", "inspect", "reference"),
    ("serve",),
    ("__init__", "api"),
    ("studio",),
    ("cli", "__main__"),
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
STARTED = ("__main__", "headway.data.chat_template.worker", "headway.tasks.examples")
"""Modules that no module imports: they are started as programs."""

REGISTERED = ("command", "callback", "get", "post", "exception_handler")
"""Decorators that hand a function to typer or FastAPI, which call it."""
CALLED_FROM_OUTSIDE = {
    # methods that the standard library, uvicorn, jinja2, typer or torch call on an object of ours
    *("readable", "readinto", "connection_made", "data_received", "handle_events", "connection_lost"),
    *("on_response_complete", "eof_received", "send_400_response", "startup", "capture_signals", "on_tick"),
    *("list_commands",),
    *("parse", "forward"),
    # what the functions of headway return to people, and what people call on a model
    *("to_frame", "ask"),
    # for tasks of other packages (tests/toy), for users who write weights through numpy, for readers of the lectures
    *("ExamplePredictor", "read_examples", "forget", "parameter_free_attention"),
    # lists that tests hold the code to: stages of a save, each of them killed; configs whose fields are walked over
    *("STAGES", "KNOWN_CONFIGS"),
}

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


def imported_names(tree: ast.AST) -> dict[str, str]:
    """Name in a file → qualified name that an import gave it."""
    alias: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            alias |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            alias |= {each.asname: each.name for each in node.names if each.asname}
    return alias


def names_used(path: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, qualified name) of every name, attribute and string that may refer to something of headway/."""
    here, alias = module_name(path), imported_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and not isinstance(node.ctx, ast.Store) and dotted(node):
            first, *rest = dotted(node).split(".")
            yield node.lineno, ".".join([alias.get(first, first if first == "headway" else f"{here}.{first}"), *rest])
        if isinstance(node, ast.Attribute):
            yield node.lineno, f".{node.attr}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.lineno, f".{node.value}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value.replace(":", ".")


def public_names(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Functions, classes and constants of a module by name, and methods as `.name`, with their definitions."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        if isinstance(node, ast.ClassDef):
            methods = (inner for inner in node.body if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef))
            yield from ((f".{inner.name}", inner) for inner in methods)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            named = (inner for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name))
            yield from ((inner.id, node) for inner in named if isinstance(inner.ctx, ast.Store))


def is_registered(node: ast.stmt) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any(isinstance(each, ast.Call) and dotted(each.func).split(".")[-1] in REGISTERED for each in decorators)


def dead_code(files: Files) -> list[str]:
    """Public functions, classes, constants and methods of headway/ that only tests use.

    A name that is used in its own definition only is not used. Methods are counted by name: two of the same name pass
    together. headway's public names are used by people, what CALLED_FROM_OUTSIDE lists by other programs.
    """
    uses: dict[str, list[tuple[str, int]]] = {}
    packages = [(path, source) for path, source in files if path.endswith("__init__.py")]
    again = {
        f"{module_name(path)}.{k}": v for path, source in packages for k, v in imported_names(parse(source)).items()
    }
    for path, source in files:
        for line, name in names_used(path, parse(source)):
            uses.setdefault(again.get(name, name), []).append((path, line))
    wrong = []
    for path, source in files:
        for name, node in public_names(parse(source)) if path.startswith("headway/") else ():
            if name.lstrip(".").startswith("_") or name.lstrip(".") in CALLED_FROM_OUTSIDE or is_registered(node):
                continue
            found = uses.get(name if name.startswith(".") else f"{module_name(path)}.{name}", [])
            inside = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            if all(where == path and line in inside for where, line in found):
                wrong.append(f"{path}:{node.lineno}: nothing but tests uses {name}")
    return wrong


def sources(folder: str) -> list[tuple[str, str]]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found, f"no Python files in {folder}/"
    return [(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in found]


@pytest.mark.parametrize("rule", [crowded_folders, unimported_modules, dead_code])
def test_rule_of_the_tree_holds(rule: TreeRule) -> None:
    files = [*sources("headway"), *(sources("benchmarks") if rule is not crowded_folders else [])]
    wrong = rule(files)
    assert not wrong, "\n".join(wrong)


FROM_B = ("headway/__main__.py", "from headway.b import f\nf()")
USE = "import headway.a as x\nx.A().m()"
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
        (dead_code, [("headway/a.py", "def f(): ...\nf()")], 0),
        (dead_code, [("headway/a.py", "def f(): ...\nX = 1"), ("headway/b.py", "from headway import a\na.f(a.X)")], 0),
        (dead_code, [("headway/a.py", "class A:\n    def m(self): ..."), ("benchmarks/b.py", USE)], 0),
        (dead_code, [("headway/a.py", "class A: ..."), ("headway/__init__.py", "_HOME = {'A': 'headway.a:A'}")], 0),
        (
            dead_code,
            [("headway/b/a.py", "def f(): ..."), ("headway/b/__init__.py", "from headway.b.a import f"), FROM_B],
            0,
        ),
        (dead_code, [("headway/a.py", "@app.command(epilog='')\ndef verb(): ...\n_X = 1")], 0),
        (dead_code, [("headway/a.py", "def f(): ...\nX = f")], 1),
        (dead_code, [("headway/a.py", "def f():\n    return f()")], 1),
        (dead_code, [("headway/a.py", "def f(): ..."), ("headway/b.py", "from headway.a import f")], 1),
        (dead_code, [("headway/a.py", "def f(): ..."), ("headway/b.py", "from headway.c import f\nf()")], 1),
        (dead_code, [("headway/a.py", "class A:\n    def m(self): ...\n_X = A")], 1),
        (dead_code, [("headway/a.py", "@cache\ndef f(): ...")], 1),
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
        (upward_imports, "headway/api/run.py", "from headway.cli import main"),
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
