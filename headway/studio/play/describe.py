"""What a model is, and what one can do with it: facts, and a form for each task that the registry finds for it."""

from __future__ import annotations

import shlex
from dataclasses import asdict, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from headway.config.model import max_positions
from headway.errors import HeadwayError
from headway.reference.settings import Setting, attribute_docs, section
from headway.serve.limits import Limits
from headway.serve.predict import Tasks
from headway.tasks.predictor import RunOptions

if TYPE_CHECKING:
    from headway.api.bundle import Bundle
    from headway.tasks.base import Task

Json = dict[str, Any]
KINDS = {"image": "image", "sound": "sound", "table": "table", "graph": "graph", "class": "choice"} | dict.fromkeys(
    ("text", "story"), "text"
)
"""What a task takes → the kind of field for it."""
NUMBERS = {"top": (1, 50), "n_best": (1, 16), "beam": (0, 16), "horizon": (1, 100_000), "count": (1, 16)}
"""Options that are whole numbers, with their bounds; what is left empty is as the task has it."""
SWITCHES = ("align", "score", "words")
TEXTS = {"labels": "labels, with commas between them", "language": "language, such as de"}
LABELS = {"n_best": "how many results", "top": "how many to show", "beam": "beam width", "horizon": "time steps"} | {
    "align": "word alignment", "score": "score the text instead", "words": "times of words"
}  # fmt: skip
NO_CLASS = "none"
SLIDES = {"temperature": 2.0, "repetition": 2.0, "length_penalty": 2.0}
"""Where a slider ends, for settings that may be larger; those from 0 to 1 slide too."""
BEAM_TOKENS = 16
"""Tokens of a beam search, where nobody says otherwise: a longer tree is hard to read."""
LIMITS = Limits()


def tasks_of(bundle: Bundle) -> Tasks:
    """The tasks that the model can do, beside generation; their inputs are checked as the server checks them."""
    front = getattr(bundle.config, "source", None) or getattr(bundle.config, "target", None)
    return Tasks(bundle, LIMITS, None if front is None else max_positions(front))


def generates(bundle: Bundle) -> bool:
    """Whether the model continues texts."""
    return bundle.config.kind == "decoder" and bundle.config.lm is not None and bundle.tokenizer is not None


def describe(name: str, bundle: Bundle) -> Json:
    """All that the page needs to know of a model."""
    run = bundle.recipe is not None and bundle.folder is not None and bundle.folder.name == name
    return {"name": name, "noun": _noun(bundle), "run": run, "facts": _facts(bundle), "modes": _modes(bundle)}


def _noun(bundle: Bundle) -> str:
    from headway.tasks.registry import get_task

    try:
        return get_task(bundle.task).noun
    except HeadwayError:
        return "model"


def _facts(bundle: Bundle) -> list[tuple[str, Any]]:
    """Names and values, for people."""
    config, weights = bundle.config, next(bundle.model.parameters(), None)
    stack = getattr(config, "output_stack", None)
    facts = [
        ("kind", config.kind),
        ("family", getattr(config, "family", "") or getattr(config, "network", "")),
        ("parameters", bundle.model.parameter_count()),
        ("layers", getattr(stack, "n_layers", None)),
        ("heads", getattr(stack, "n_heads", None)),
        ("width", getattr(stack, "d_model", None)),
        ("vocabulary", None if bundle.tokenizer is None else bundle.tokenizer.vocab_size),
        ("context", getattr(config, "max_length", None)),
        ("labels", len(getattr(config, "labels", ())) or None),
        ("dtype", None if weights is None else str(weights.dtype).removeprefix("torch.")),
        ("step", bundle.step),
    ]
    return [(name, value) for name, value in facts if value not in (None, "")]


def _modes(bundle: Bundle) -> list[Json]:
    """What the page offers for a model, the likeliest first."""
    found: list[Json] = []
    if generates(bundle):
        own = asdict(bundle.sampling())
        found += [{"kind": "generate", "title": "Continue", "settings": own}]
        if bundle.prompts.template is not None:
            found.insert(0, {"kind": "chat", "title": "Chat", "settings": own})
        search = bundle.beam(max_tokens=BEAM_TOKENS)
        search = replace(search, n_best=min(search.width, 4))
        found += [{"kind": "beams", "title": "Beam search", "settings": asdict(search)}]
        found += [{"kind": "score", "title": "Score a text"}]
    tasks = tasks_of(bundle)
    for verb, task in tasks.tasks.items():
        fields = [*_inputs(task, bundle, {**tasks.sample(verb), **_made_up(task, bundle)}), *_options(task, bundle)]
        found.append({"kind": "task", "task": task.name, "title": task.title.capitalize(), "fields": fields})
    return found


def _made_up(task: Task, bundle: Bundle) -> Json:
    """What to try with a model that was trained on the task's made-up data, by the fields of a form."""
    if bundle.named_task != task.name or bundle.recipe is None or bundle.recipe.data.train:
        return {}
    found: Json = {}
    words = iter(shlex.split(task.tries.made_up))
    for word in words:
        if word.startswith("--"):
            found[word[2:]] = next(words, "")
        elif "=" not in word:
            found["input"] = f"{found['input']} {word}" if "input" in found else word
    return found


def _inputs(task: Task, bundle: Bundle, sample: Json) -> list[Json]:
    """The fields that an input needs."""
    kind, value = KINDS[task.takes], sample.get("input", "")
    if kind == "text" and "nearest" in task.options:
        kind = "lines"
    if kind == "choice":
        labels = [*bundle.config.labels, NO_CLASS]
        return [{"name": "input", "label": "class", "kind": kind, "choices": labels, "value": labels[0]}]
    if isinstance(value, dict):
        value = value.get(kind) or " ".join(map(str, value.values()))
    found = [{"name": "input", "label": _label(task), "kind": kind, "value": value}]
    if task.joined:
        found.append({"name": task.joined, "label": task.joined, "kind": KINDS[task.joined], "value": ""})
    wanted = task.wants_second(bundle.config)
    if wanted is not False:
        given = sample.get(task.second, "") if wanted else ""
        found.append({"name": task.second, "label": _second(task), "kind": "text", "value": given, "needed": wanted})
    return found


def _label(task: Task) -> str:
    if "nearest" in task.options and task.takes == "text":
        return "texts, one in each line"
    return "question" if task.second == "context" else task.takes


def _second(task: Task) -> str:
    return "second text" if task.second == "pair" else task.second


def _options(task: Task, bundle: Bundle) -> list[Json]:
    """The options of `headway run` that the task takes, as fields with their explanations."""
    docs, found = attribute_docs(RunOptions), list[Json]()
    for name in sorted(task.options & {*NUMBERS, *SWITCHES, *TEXTS}):
        common = {"name": name, "label": LABELS.get(name, TEXTS.get(name, name)), "help": docs.get(name, "")}
        if name in NUMBERS:
            least, most = NUMBERS[name]
            found.append({**common, "kind": "integer", "value": "", "least": least, "most": most})
        else:
            value = _made_up(task, bundle).get(name, "")
            found.append({**common, "kind": "switch" if name in SWITCHES else "line", "value": value})
    if "class" in task.options:
        own = {each.name: each for each in section(task.name).settings}
        least, most = NUMBERS["count"]
        found.append({"name": "count", "label": "images", "kind": "integer", "value": 4, "least": least, "most": most})
        found.append({"name": "seed", "label": "seed", "kind": "integer", "value": 0, "least": 0, "most": 2**31 - 1})
        found += [{**as_field(own[name]), "value": ""} for name in ("steps", "guidance") if name in own]
    if "rollout" in task.options:
        choices = ["nothing", "rollout", "heads"] + ["gradient"] * bool(getattr(bundle.config, "labels", ()))
        text = "Where the model looked: attention rollout, the heads of the last layer, or what the label depends on."
        found.append({"name": "look", "label": "attention", "kind": "choice", "choices": choices, "value": "rollout"}
                     | {"help": text})  # fmt: skip
    return found


@cache
def generation_fields() -> dict[str, list[Json]]:
    """Every setting of sampling and of beam search, with its explanation and its range."""
    sampling, beam = (section(name).settings for name in ("sampling", "beam"))
    from headway.config.generation import LogitRules

    shared = [each for each in sampling if each.key in attribute_docs(LogitRules)]
    length = [each for each in sampling if each.key == "max_tokens"]
    return {
        "sampling": [as_field(each) for each in sampling],
        "beam": [as_field(each) for each in (*beam, *length, *shared)],
    }


def as_field(setting: Setting) -> Json:
    """A setting as a field of a form."""
    low, high = (None, None) if setting.range is None else (setting.range.low, setting.range.high)
    kind = {"a whole number": "integer", "a number": "number"}.get(setting.type, "line")
    kind = "choice" if setting.choices else "list" if setting.type.startswith("a list") else kind
    return {
        "name": setting.name,
        "label": setting.name.replace("_", " "),
        "kind": kind,
        "value": setting.default,
        "choices": list(setting.choices),
        "least": low,
        "most": high if high != float("inf") else None,
        "help": setting.doc,
        "slide": SLIDES.get(setting.name, high if high == 1 else None),
    }
