"""`headway explain`: a setting, a section, a task, a recipe, an error code or the exit codes, in words."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from shlex import quote
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.app import Json, app, examples, print_rows, print_table
from headway.cli.complete import complete_explained
from headway.config.recipe import RECURRENT_SETTINGS
from headway.errors import CATALOGUE, UsageError
from headway.tasks.recipe import SECTIONS, recipe_names
from headway.tasks.registry import task_names

if TYPE_CHECKING:
    from headway.reference.codes import ErrorCode
    from headway.reference.recipes import RecipeFacts
    from headway.reference.settings import Section, Setting
    from headway.reference.tasks import TaskFacts

EXIT = "exit"
NETWORKS = {"model.attention": "gru", "model.bidirectional": "gru", "model.kernel": "conv"}
"""Settings that only some networks have."""


@app.command(
    epilog=examples(
        "headway explain train.lr",
        "headway explain lr",
        "headway explain temperature",
        "headway explain train",
        "headway explain tag",
        "headway explain tiny",
        "headway explain C014",
        "headway explain exit",
    )
)
def explain(
    what: Annotated[
        str,
        typer.Argument(
            help="a setting, a section, a task, a recipe, an error code, or exit",
            metavar="WHAT",
            autocompletion=complete_explained,
        ),
    ] = "",
    json_: Json = False,
) -> None:
    """Explain a setting, a section, a task, a recipe or an error code."""
    found = _overview() if not what else _find(what)
    if json_:
        print(json.dumps(found, default=lambda value: value.to_dict(), ensure_ascii=False))
        return
    show = SHOW[next(iter(found))]
    for value in found.values():
        show(value)


def _overview() -> dict[str, Any]:
    from headway.reference.settings import sections

    return {"settings": {name or "recipe": [s.name for s in each.settings] for name, each in sections().items()}}


def _find(what: str) -> dict[str, Any]:
    """{kind: what is known of it}; the kind says how it is shown."""
    from headway.reference.codes import error_codes, exit_codes
    from headway.reference.recipes import recipe
    from headway.reference.settings import GENERATION, section, settings
    from headway.reference.tasks import task_facts

    if what.upper() in CATALOGUE:
        return {"error": error_codes()[what.upper()]}
    if what == EXIT or (what.isdecimal() and int(what) in exit_codes()):
        return {"exit": {code: text for code, text in exit_codes().items() if what in (EXIT, str(code))}}
    if what in task_names():
        return {"task": task_facts(what)}
    if what in SECTIONS or what in GENERATION:
        return {"section": section(what)}
    if what in recipe_names():
        return {"recipe": recipe(what)}
    everything = list(settings())
    from headway.config.keys import did_you_mean, same_setting

    keys = same_setting(what, [each.key for each in everything])
    if chosen := [each for each in everything if each.key in keys]:
        return {"setting": chosen}
    known = [*(each.key for each in everything), *task_names(), *recipe_names(), *CATALOGUE, EXIT]
    hint = "headway explain lists all settings, headway recipes all recipes"
    raise UsageError("U001", f"nothing is called {what}{did_you_mean(what, known)}", hint)


# --- what is printed ----------------------------------------------------------------------------


def _say(text: str, indent: str = "  ") -> None:
    width = min(100, get_terminal_size().columns)
    print(textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False))


def _show_overview(found: dict[str, list[str]]) -> None:
    print("headway explain KEY, such as train.lr or lr. The settings, by section:\n")
    print_rows([(name, " ".join(keys) or "–") for name, keys in found.items()])
    print("\nAlso: a section, a task (tag), a recipe (tiny), an error code (C014), exit.")


def _show_settings(found: list[Setting]) -> None:
    for number, each in enumerate(found):
        print("\n" * bool(number) + each.key)
        _say(each.doc or "No explanation: the package of the task gives none.")
        print()
        print_rows([row for row in _setting_rows(each) if row[1]])


def _setting_rows(each: Setting) -> list[tuple[str, str]]:
    from headway.reference.recipes import recipes
    from headway.reference.settings import settings, shown

    train = each.verbs[0] == "train"
    insides = {r.name: r.values.get(each.section, {}) if each.section else r.values for r in recipes() if train}
    used = {name: shown(inside[each.name]) for name, inside in insides.items() if each.name in inside}
    return [
        ("values", each.values),
        ("default", shown(each.default) + "; chosen for a pretrained model or data of yours" * each.chosen),
        ("tasks", "all" if len(each.tasks) == len(task_names()) else ", ".join(each.tasks)),
        ("papers", "; ".join(each.papers)),
        ("recipes", ", ".join(f"{name} {value}" for name, value in used.items())),
        ("resumed run", ("may change it" if each.resumable else "keeps it") if train else ""),
        ("see also", ", ".join(s.key for s in settings() if s.name == each.name and s.key != each.key)),
        ("example", _example(each, used)),
    ]


def _example(each: Setting, used: Mapping[str, str]) -> str:
    """A command with the setting; `used` has the values of recipes, by recipe."""
    from headway.reference.settings import shown
    from headway.tasks.registry import get_task

    other = [value for value in each.choices if value != each.default]
    value = "VALUE" if not other and (each.default in (None, []) or isinstance(each.default, str)) else ""
    value = value or shown(other[0] if other else each.default)
    if each.verbs == ("run",):
        return f'headway run last "…"{" --beam 4" * (each.section == "beam")} {each.key}={value}'
    if network := NETWORKS.get(each.key):
        return f"headway train translate model.kind={network} {each.key}={value}"
    recurrent = each.section == "model" and each.name in RECURRENT_SETTINGS
    own = get_task(each.section).starter or each.section if each.section in task_names() else "tiny"
    own = "rnn" if recurrent else own
    recipe = own if own in used or not used else next(iter(used))
    value = value if other and recipe == own else used.get(recipe, value)
    return f"headway train {recipe} {quote(f'{each.key}={value}')}"


def _show_section(found: Section) -> None:
    from headway.reference.settings import shown

    _say(f"{found.name}: {found.doc}", indent="")
    print()
    defaults = ["" if each.default == "" else f" [{shown(each.default)}]" for each in found.settings]
    print_rows([(each.key, each.doc + default) for each, default in zip(found.settings, defaults, strict=True)])


def _show_task(found: TaskFacts) -> None:
    from headway.reference.recipes import recipe
    from headway.reference.settings import section

    print(f"{found.name}: {found.title}")
    _say(found.doc or f"Trains a {found.noun}.")
    print()
    print_rows([("trains", f"a {found.noun}"), ("without data", f"learns from {found.made_up}")])
    print("\n" + "\n".join(f"  {line}" for line in found.commands))
    if found.recipes:
        print("\nrecipes")
        print_rows([(name, recipe(name).title) for name in found.recipes])
    if found.settings:
        print("\nsettings")
        print_rows([(each.key, each.doc) for each in section(found.name).settings])


def _show_recipe(found: RecipeFacts) -> None:
    from headway.config.toml import to_toml

    print(f"{found.name}: a recipe for {found.task}")
    _say(found.title)
    print()
    print("\n".join(f"  {line}" for line in found.commands), end="\n\n")
    if found.facts:
        print_rows(list(found.facts.items()))
        print()
    if found.starter:
        _say("These settings are for its made-up data; for data of yours others are chosen, and printed:")
        print()
    print(textwrap.indent(to_toml(found.values), "  "), end="")


def _show_error(found: ErrorCode) -> None:
    print(f"{found.code}: {found.meaning}")
    rows = [("cause", found.cause), ("remedy", found.remedy), ("exit code", str(found.exit_code))]
    print_rows([*rows, ("in Python", found.error)])


def _show_exit(found: dict[int, str]) -> None:
    print_table((), [(str(code), text) for code, text in found.items()], left=(1,))


SHOW: dict[str, Any] = {
    "settings": _show_overview,
    "setting": _show_settings,
    "section": _show_section,
    "task": _show_task,
    "recipe": _show_recipe,
    "error": _show_error,
    "exit": _show_exit,
}
"""Kind → how it is shown."""
