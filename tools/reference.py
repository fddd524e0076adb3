"""Write the generated pages of docs/: settings, errors, recipes, and the end of each task's page.

    python tools/reference.py        # after a change of a setting, an error code, a recipe's head comment or a task

All of it comes from headway/reference and the registry of tasks; packages of others are left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from headway.cli.serve import SAMPLES
from headway.reference.codes import ErrorCode, error_codes, exit_codes
from headway.reference.recipes import RecipeFacts, recipes
from headway.reference.settings import GENERATION, Section, Setting, sections, shown
from headway.tasks.base import Task
from headway.tasks.registry import BUILT_IN, get_task

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
MARK = "<!-- from here on written by tools/reference.py -->\n"
TITLES = {
    "": "The run",
    "data": "Data",
    "model": "Model",
    "train": "Training",
    "sampling": "Sampling",
    "beam": "Beam search",
}
CURL = "curl http://127.0.0.1:8000{path} -H 'Content-Type: application/json' \\\n  -d '{body}'"


def cell(text: str) -> str:
    """Text inside a table."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """A value as it is typed."""
    return f"`{text}`" if text else ""


def own_recipes() -> list[RecipeFacts]:
    return [each for each in recipes() if each.task in BUILT_IN]


# --- settings


def settings_table(section: Section) -> Iterator[str]:
    yield from ("| setting | default | values | meaning |", "|---|---|---|---|")
    for each in section.settings:
        values = ", ".join(BUILT_IN) if each.key == "task" else each.values
        cells = (code(each.key), code(shown(each.default)), cell(values), cell(each.doc) + remark(each))
        yield f"| {' | '.join(cells)} |"


def remark(setting: Setting) -> str:
    """What else there is to say: the tasks that have it, where not all do; whether a resumed run may change it."""
    some = [] if set(BUILT_IN) <= set(setting.tasks) or setting.section in BUILT_IN else setting.tasks
    if setting.section in GENERATION:
        some = ()
    text = f" For {', '.join(some)}." if some else ""
    return text + (" *May change on resume.*" if setting.resumable else "")


def settings_page() -> str:
    lines = [
        "# Settings",
        "",
        "A setting is a word `key=value` after the recipe, or a line in a recipe's TOML file. `headway explain KEY`",
        "prints the same as this page. The last two sections are for `headway run`, where a key stands alone:",
        "`temperature=0.7`.",
    ]
    for name, section in sections().items():
        if (name in TITLES or name in BUILT_IN) and section.settings:
            title = TITLES.get(name) or f"Task {name}"
            lines += ["", f"## {title}", "", *([section.doc, ""] if section.doc else []), *settings_table(section)]
    return "\n".join(lines) + "\n"


# --- errors


def errors_page() -> str:
    lines = [
        "# Errors and exit codes",
        "",
        "Every error has a code that stays the same, says what is wrong and where, and what to do now.",
        "`headway explain CODE` prints the same as this page. In Python an error is a `headway.HeadwayError` with",
        "`code`, `message` and `hint`.",
        "",
        "## Exit codes",
        "",
        "| exit code | meaning |",
        "|---|---|",
        *(f"| {number} | {cell(text)} |" for number, text in sorted(exit_codes().items())),
    ]
    by_exit: dict[int, list[ErrorCode]] = {}
    for each in error_codes().values():
        by_exit.setdefault(each.exit_code, []).append(each)
    for number, codes in sorted(by_exit.items()):
        lines += ["", f"## Exit code {number}: {codes[0].error}", "", exit_codes()[number], ""]
        lines += ["| code | meaning | cause | what to do |", "|---|---|---|---|"]
        lines += [f"| {e.code} | {cell(e.meaning)} | {cell(e.cause)} | {cell(e.remedy)} |" for e in codes]
    return "\n".join(lines) + "\n"


# --- recipes


def recipes_page() -> str:
    lines = [
        "# Recipes",
        "",
        "`headway train NAME` runs a recipe; `headway recipes` lists them. Scores and times are those of each recipe's",
        "head comment. Recipes whose command names no data learn from text that comes with Python or is made up.",
        "",
        "| recipe | task | learns | time | score |",
        "|---|---|---|---|---|",
        *(
            f"| [{r.name}](#{r.name}) | {r.task} | {cell(r.title)} | {cell(r.time)} | {cell(r.score)} |"
            for r in own_recipes()
        ),
    ]
    for each in own_recipes():
        facts = [f"- **{name}**: {cell(text)}" for name, text in each.facts.items()]
        lines += ["", f"## {each.name}", "", each.title, "", "```sh", *each.commands, "```", "", *facts]
    return "\n".join(lines) + "\n"


# --- tasks


def request(task: Task) -> tuple[str, Mapping[str, object]]:
    """A path of the server and a body that the task's models answer."""
    if task.generates or task.name in SAMPLES:
        return SAMPLES[task.name if task.name in SAMPLES else "complete"]
    fields = task.tries.request or {"input": "a short text"}
    body = {name: text.replace("{mask}", "[MASK]") if isinstance(text, str) else text for name, text in fields.items()}
    return "/v1/run", body


def task_block(task: Task) -> str:
    """The end of a task's page: server, recipes, settings."""
    path, body = request(task)
    section = sections()[task.name]
    mine = [each for each in own_recipes() if each.task == task.name]
    asked = json.dumps({"model": "mine", **body})
    lines = [
        "## Serve",
        "",
        "```sh",
        "headway serve last --name mine",
        CURL.format(path=path, body=asked.replace("'", "\\u0027")),
        "```",
        "",
        "## Recipes",
        "",
        "| recipe | learns | time | score |",
        "|---|---|---|---|",
        *(
            f"| [{r.name}](../reference/recipes.md#{r.name}) | {cell(r.title)} | {cell(r.time)} | {cell(r.score)} |"
            for r in mine
        ),
    ]
    if section.settings:
        lines += ["", "## Settings", "", *settings_table(section)]
    lines += ["", "Settings that all tasks share are in the [reference](../reference/settings.md)."]
    return MARK + "\n" + "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    """Every generated page with its text."""
    found = {
        DOCS / "reference" / "settings.md": settings_page(),
        DOCS / "reference" / "errors.md": errors_page(),
        DOCS / "reference" / "recipes.md": recipes_page(),
    }
    for name in BUILT_IN:
        page = DOCS / "tasks" / f"{name}.md"
        written = page.read_text(encoding="utf-8").partition(MARK)[0].rstrip()
        found[page] = f"{written}\n\n{task_block(get_task(name))}"
    return found


def main() -> None:
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{page.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
