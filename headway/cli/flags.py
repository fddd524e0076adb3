"""Settings typed as options: `--temperature 0.5` is read as `temperature=0.5` where only one setting can be meant."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from headway.config.keys import dotted_keys, meant, same_setting
from headway.errors import UsageError
from headway.tasks.registry import task_names

NUMBER = re.compile(r"-?(\d|\.\d)")
Keys = Mapping[str, bool]
"""Keys that a verb takes as key=value → whether the setting is true or false."""


def is_unknown_option(error: Exception) -> bool:
    """Whether the command-line parser met an option that the verb does not have."""
    return hasattr(error, "option_name") and hasattr(error, "possibilities") and getattr(error, "ctx", None) is not None


def as_setting(arguments: Sequence[str], error: Any) -> list[str]:
    """The arguments with the unknown option as key=value at their end; an error says what to type instead."""
    command, option = error.ctx.command, str(error.option_name)
    real = {name: param for param in command.params for name in (*param.opts, *param.secondary_opts)}
    verb = str(error.ctx.command_path).removeprefix("headway ")
    keys = VERBS[verb](arguments, option) if verb in VERBS else {}
    found = same_setting(option.removeprefix("--"), keys) if option.startswith("--") else []
    place = _place(arguments, option, real)
    if not found or place is None:
        raise _unknown(verb, option, keys, [name for name in real if name.startswith("--")])
    typed, value = _value(arguments, place, yes_or_no=keys[found[0]])
    if value is None or len(found) > 1:
        what = f"{option} needs a value" if value is None else f"{option} may be one of {len(found)} settings"
        raise UsageError("U001", what, "write " + " or ".join(f"{key}={value or 'VALUE'}" for key in found))
    if not {"-q", "--quiet"} & set(arguments):
        print(f"{' '.join(typed)} is read as {found[0]}={value}", file=sys.stderr)
    return [*arguments[:place], *arguments[place + len(typed) :], f"{found[0]}={value}"]


def _place(arguments: Sequence[str], option: str, real: Mapping[str, Any]) -> int | None:
    """Where the option stands; values of other options are passed over."""
    skip = False
    for i, word in enumerate(arguments):
        name, equals, _ = word.partition("=")
        if skip:
            skip = False
        elif word == "--":
            return None
        elif name == option:
            return i
        elif name in real and not equals:
            skip = name.startswith("-") and not getattr(real[name], "is_flag", False)
    return None


def _value(arguments: Sequence[str], place: int, *, yes_or_no: bool) -> tuple[list[str], str | None]:
    """The words of an option as typed, and its value."""
    word, *rest = arguments[place:]
    if "=" in word:
        return [word], word.partition("=")[2]
    follows = rest[0] if rest else "-"
    if yes_or_no and follows not in ("true", "false"):
        return [word], "true"
    if follows.startswith("-") and not NUMBER.match(follows):
        return [word], None
    return [word, follows], follows


def _unknown(verb: str, option: str, keys: Keys, real: list[str]) -> UsageError:
    """Names the nearest option, or the nearest setting in the form to type."""
    names = {key.rpartition(".")[2]: key for key in reversed(list(keys))}
    names |= {name.removeprefix("--").replace("-", "_"): name for name in real}
    name = option.lstrip("-").replace("-", "_")
    by_name = [] if "." in name else get_close_matches(name, list(names), n=1)
    close = [names[each] for each in by_name] or meant(name, keys)
    what, hint = f"headway {verb} has no option {option}", f"see: headway {verb} --help"
    if not close:
        return UsageError("U001", what, hint)
    hint = hint if close[0] in real else f"write {close[0]}=VALUE"
    return UsageError("U001", f'{what} — did you mean "{close[0]}"?', hint)


# --- what each verb takes -----------------------------------------------------------------------


def _recipe_keys(arguments: Sequence[str], option: str) -> Keys:
    """Settings of the recipe that is named; of all tasks if it is not known which one."""
    from headway.errors import HeadwayError
    from headway.reference.settings import recipe_settings
    from headway.tasks.recipe import load_recipe

    for word in arguments[1:]:
        try:
            tasks = [load_recipe(word)[1].task] if not word.startswith("-") and "=" not in word else []
        except HeadwayError:
            continue
        if tasks:
            return {key: each.choices == (True, False) for key, each in recipe_settings(*tasks).items()}
    return {key: each.choices == (True, False) for key, each in recipe_settings(*task_names()).items()}


def _run_keys(arguments: Sequence[str], option: str) -> Keys:
    """Settings of generation and of the data. Which task a model is for is not known yet: its section is typed out."""
    from headway.reference.settings import section

    names = ["sampling", *(["beam"] if "--beam" in arguments else []), "data"]
    names += [name for name in task_names() if option.startswith(f"--{name}.")]
    keys = {each.key: each.choices == (True, False) for name in names for each in section(name).settings}
    return keys | dict.fromkeys(("task", "pair", "top", "n_best"), False)


def _eval_keys(arguments: Sequence[str], option: str) -> Keys:
    from headway.checks.choices import ChoicesConfig

    recipe = {key: flag for key, flag in _run_keys([], option).items() if "." in key}
    return recipe | dict.fromkeys(("task", "out", *dotted_keys(ChoicesConfig)), False)


def _serve_keys(arguments: Sequence[str], option: str) -> Keys:
    from headway.serve.limits import Limits

    return dict.fromkeys(dotted_keys(Limits), False)


COMPARE_WORDS = ("seeds", "equal", "against", "lengths")
VERBS: dict[str, Callable[[Sequence[str], str], Keys]] = {
    "train": _recipe_keys,
    "compare": lambda arguments, option: {**_recipe_keys(arguments, option), **dict.fromkeys(COMPARE_WORDS, False)},
    "check": _recipe_keys,
    "run": _run_keys,
    "eval": _eval_keys,
    "serve": _serve_keys,
    "export": lambda arguments, option: {"quant": False},
}
"""Verbs that take settings as key=value."""
