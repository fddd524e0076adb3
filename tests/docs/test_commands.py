"""Every command and every Python block of README.md and docs/ runs; what does not is in `NOT_RUN`, with the reason.

Small runs stand for the models that the pages name, small files for theirs, and two steps for their budgets. Commands
that are not run are parsed: their options, and their settings against the recipe.
"""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer.main

from headway.cli.app import app
from headway.runs.shipped import command_words, read_shipped, shipped_names
from headway.tasks.recipe import load_recipe
from tests.docs.conftest import COMMAND, GENERATED, PAGES, QUICK, ROOT, SMALL, Block, Workspace, blocks, call

NOT_RUN = {
    r"^(git|cd|\. |python3 -m venv|pip|make|docker) ?": "installs or builds: `make package` and .ci/run do it",
    r"gpus=2": "starts two processes: tests/train covers it",
    r"^headway get ": "fetches from the hub",
}
"""Pattern of a command → why it is only parsed."""
PARSED_PAGES = {
    "docs/reference/recipes.md": "published data sets, minutes on a GPU",
    "docs/log.md": "a record of the past",
}
MADE_UP = r"^headway train (?!tiny)(?!.*(data\.train|--resume))"
SLOW = rf"^headway (check|doctor|compare|export .*quant)|--regex|--draft|{MADE_UP}"
"""Commands that take more than a second or two; those on made-up data also run in tests/tasks/test_contract.py."""
BUDGET = ("train.steps=", "train.minutes=", "train.epochs=", "train.batch=")

OWN_WORDS = r"(seeds|equal|against|lengths)="
"""Words of a comparison that are no settings."""

COMMANDS = [each for each in blocks("shell") if each.page not in PARSED_PAGES]
RUN = [each for each in COMMANDS if not any(re.search(pattern, each.text) for pattern in NOT_RUN)]
SERVERS = [each for each in RUN if re.search(r"headway (serve (?!--print)|studio)", each.text)]
REQUESTS = [each for each in RUN if each.words[0] == "curl"]
VERBS = [each for each in RUN if each not in SERVERS and each not in REQUESTS]
PARSED = [
    each for each in (*blocks("shell"), *blocks("inline")) if each.words[0] == "headway" and each.page != "docs/log.md"
]


def named(block: Block) -> str:
    return block.id


# --- parsing


def parse(words: list[str]) -> None:
    """Raise what the command line would raise before it does anything. Capitals stand for what the reader fills in."""
    verbs = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    verb, *rest = words
    if verb.isupper() or verb.startswith("--"):
        return
    assert verb in verbs, f"headway has no verb {verb}"
    if not rest or {"-h", "--help"} & set(rest):
        return
    given = verbs[verb].make_context(verb, list(rest)).params
    settings = [word for word in given.get("settings") or [] if not re.match(rf"{OWN_WORDS}|[^=]*=…$", word)]
    recipe = given.get("recipe") or ""
    if verb == "compare":
        recipe, settings = compared(recipe, settings)
    nothing = given.get("resume") or given.get("list_") or recipe.isupper()
    if verb in ("train", "compare") and not nothing:
        load_recipe(recipe, one_of_each(settings) if verb == "compare" else settings)


def compared(recipe: str, settings: list[str]) -> tuple[str, list[str]]:
    """The recipe and the settings of a comparison: of a shipped one, or of the first of several recipes."""
    if recipe in shipped_names():
        words = [] if read_shipped(recipe).needs else command_words(recipe, settings)
        return read_shipped(recipe).recipe, [word for word in words if not re.match(OWN_WORDS, word)]
    return re.sub(r"^recipe=([^,]+),.*", r"\1", recipe), settings


def one_of_each(settings: list[str]) -> list[str]:
    """The first variant of `headway compare`."""
    return [re.sub(r"^([^=]+=[^,]*),.*", r"\1", word) for word in settings]


@pytest.mark.parametrize("block", PARSED, ids=named)
def test_a_command_is_one_that_the_command_line_knows(block: Block, toy: None) -> None:
    parse(block.words[1:])


def test_targets_and_extras_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    makes = [each for each in COMMANDS if each.words[0] == "make"]
    pips = [match for each in COMMANDS for match in re.findall(r"(?:headway|\.)\[([a-z,]+)\]", each.text)]
    assert makes and {each.words[1] for each in makes} <= targets
    assert pips and {extra for match in pips for extra in match.split(",")} <= extras.keys()


def test_no_command_is_passed_over() -> None:
    """A command that begins with another program would be neither run nor parsed."""
    assert [each.id for each in COMMANDS if not COMMAND.match(each.text + " ")] == []
    assert {each.words[0] for each in VERBS} == {"headway"}


def test_each_pattern_of_what_is_not_run_matches_a_command() -> None:
    for pattern in NOT_RUN:
        assert any(re.search(pattern, each.text) for each in COMMANDS), pattern
    assert set(PARSED_PAGES) <= set(PAGES)


# --- running


def shortened(words: list[str], workspace: Workspace) -> list[str]:
    """A command with small models in place of large ones, and two steps for its budget."""
    words = [workspace.model(word) for word in words]
    words = [re.sub(r"^(model\.from=)(.*)", lambda m: m[1] + workspace.model(m[2]), word) for word in words]
    training = words[0] in ("train", "compare") or "--training" in words
    if not training or "--resume" in words:
        return words
    words = [word for word in words if not word.startswith(BUDGET)]
    recipe = next((word for word in words[1:] if not word.startswith("-")), "")
    if words[0] == "compare":
        recipe = compared(recipe, [])[0]
    given = [word for word in words if "=" in word and not re.match(f"{OWN_WORDS}|recipe=", word)]
    task = load_recipe(recipe, one_of_each(given) if words[0] == "compare" else given)[1].task
    pretrained = any(word.startswith("model.from=") for word in words)
    taken = {word.partition("=")[0] for word in words}
    small = [*(() if pretrained or recipe == "instruct" else SMALL), *QUICK, *(GENERATED if task == "seq2seq" else ())]
    base = [f"model.from={workspace.model('smollm2')}"] if recipe == "instruct" and not pretrained else []
    return [*words, *base, *(word for word in small if word.partition("=")[0] not in taken)]


@pytest.mark.parametrize(
    "block",
    [pytest.param(each, marks=[pytest.mark.slow] if re.search(SLOW, each.text) else []) for each in VERBS],
    ids=named,
)
def test_a_command_runs(
    block: Block,
    workspace: Workspace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(workspace.copy(block.recipe, tmp_path))
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    words = shortened(block.words[1:], workspace)
    assert call(words) == 0, (words, capfd.readouterr().err)


@pytest.mark.parametrize(
    "block",
    [pytest.param(each, marks=[pytest.mark.slow] if ".check(" in each.text else []) for each in blocks("python")],
    ids=named,
)
def test_a_python_block_runs(
    block: Block, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace.copy(block.recipe, tmp_path))
    code = re.sub(r"train\.steps=\d+|steps=\d+", lambda m: m[0].partition("=")[0] + "=2", block.text)
    code = re.sub(r'load\("([^"]+)"\)', lambda m: f'load("{workspace.model(m[1])}")', code)
    exec(compile(code, block.id, "exec"), {"__name__": "page"})


@pytest.mark.slow
@pytest.mark.parametrize("block", SERVERS, ids=named)
def test_a_server_starts_and_answers_the_requests_of_its_page(
    block: Block, workspace: Workspace, tmp_path: Path
) -> None:
    words = shortened(block.words, workspace)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HEADWAY_API_KEY": "secret" if "API_KEY" in block.text else ""}
    place = workspace.copy(block.recipe, tmp_path)
    words = [word for word in words if word != "--open"]  # a browser
    server = subprocess.Popen(
        [sys.executable, "-m", *words, "--port", "0"],
        cwd=place, env=env | {"XDG_STATE_HOME": str(tmp_path)}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stderr is not None
        url = next(filter(None, (re.search(r"http://[\d.]+:\d+", line) for line in server.stderr)))[0]
        for request in (each for each in REQUESTS if each.page == block.page):
            asked = [word.replace("http://127.0.0.1:8000", url) for word in request.words]
            done = subprocess.run(
                [*asked, "-sS", "--fail-with-body"], capture_output=True, text=True, timeout=60, cwd=place
            )
            assert done.returncode == 0, (request.id, done.stdout, done.stderr)
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
