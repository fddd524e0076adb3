"""The model card of a run: README.md with the metadata that the hub reads, made from the run's folder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headway.config.toml import to_toml
from headway.errors import HeadwayError
from headway.jsonfile import read_json
from headway.progress import printable
from headway.report import format as w
from headway.report.diagnostics import data_name, describe_data, summary, verdict
from headway.report.report import COMMAND, HELD_BACK, gather, write_text
from headway.report.sections import versions
from headway.runs.events import as_count, as_float
from headway.runs.history import History, read_run
from headway.tasks.registry import known_task

GENERATED_MARK = (
    "<!-- Written by headway, and again after more training: delete this line to keep changes of your own. -->"
)
RESERVED = {"yes", "no", "on", "off", "true", "false", "null"}
"""Words that YAML does not read as text."""


def write_card(run: Path, folder: Path | None = None, step: int | None = None) -> Path:
    """Write README.md of a run, or of its export to `folder` (of the checkpoint of `step`), unless it was edited."""
    folder = folder or run
    path = folder / "README.md"
    if path.exists() and GENERATED_MARK not in path.read_text(encoding="utf-8", errors="replace"):
        return path
    write_text(path, card(read_run(run), folder, step))
    return path


def card(run: History, folder: Path | None = None, step: int | None = None) -> str:
    """The text of the card; the model is in `folder`, if not in the run's own."""
    folder = folder or run.folder
    kind, facts = _model_type(folder), gather(run)
    data = code_span(_short(data_name(run))) if data_name(run) else describe_data(run)
    parts = (
        _header(run, kind),
        GENERATED_MARK,
        f"# {escape_markdown(run.name)}",
        escape_markdown(summary(run, "\0")).replace("\0", data),
        _checkpoint(run, step),
        _numbers(facts),
        _use(run, folder, kind),
        _training(run, facts),
        _data(run, facts["data"], data),
        _limits(run),
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _model_type(folder: Path) -> str:
    """model_type of config.json; empty if it cannot be read."""
    try:
        return str(read_json(folder / "config.json").get("model_type") or "")
    except HeadwayError:
        return ""


def _header(run: History, kind: str) -> str:
    tags = [tag for tag in dict.fromkeys(("headway", run.task, kind)) if _plain_word(tag)]
    task = known_task(run.task)
    pipeline = [f"pipeline_tag: {task.pipeline_tag}"] if task is not None and task.pipeline_tag else []
    return "\n".join(["---", "library_name: headway", *pipeline, "tags:", *(f"- {tag}" for tag in tags), "---"])


def _plain_word(text: str) -> bool:
    return bool(re.fullmatch(r"[a-z][a-z0-9_-]{1,40}", text)) and text not in RESERVED


def _numbers(facts: Mapping[str, Any]) -> str:
    numbers = facts["numbers"]
    best = f" (best, step {w.count(numbers['best_step'])})" if numbers["best_step"] is not None else ""
    goal = escape_markdown(w.metric_title(numbers["goal"]))
    rows = (
        (f"{goal}{best}", w.fixed(numbers["best"])),
        ("validation loss at that step", "" if numbers["goal"] == "valid" else w.fixed(numbers["best_valid"])),
        ("validation bits per byte", w.fixed(numbers["bits_per_byte"])),
        (f"test {goal}", w.fixed(numbers["test_best"])),
        ("test loss", w.fixed(numbers["test_loss"])),
        ("test bits per byte", w.fixed(numbers["test_bits_per_byte"])),
        ("training loss, at the end", w.fixed(numbers["train_loss"])),
        ("loss of a uniform guess", w.fixed(numbers["uniform_guess"])),
        ("parameters", w.count(numbers["parameters"])),
        (
            "trained parameters",
            "" if numbers["trained"] in (None, numbers["parameters"]) else w.count(numbers["trained"]),
        ),
    )
    return _table("Numbers", rows)


def _checkpoint(run: History, step: int | None) -> str:
    """Which weights these are, if they are not those of the end."""
    if step is None:
        return ""
    state = "finished" if run.status == "finished" else f"did not finish (it {_ENDED.get(run.status, 'stopped')})"
    these = f"**These are the weights of a checkpoint, of step {step:,}.**"
    return f"{these} Its run {state}; the numbers below are of the run."


_ENDED = {"running": "was still training", "diverged": "diverged"}
"""Status of a run → how its card says it."""


def _use(run: History, folder: Path, kind: str) -> str:
    if run.status == "broken" or not any(folder.glob("*.safetensors")):
        return ""
    task = known_task(run.task)
    writes = task is not None and task.generates
    most = min(50, max(8, (as_count(run.setting("data.length")) or 64) // 2))  # learned positions end at data.length
    words = '"Once upon a time"' if writes or task is None else task.tries.own.split("   ")[0]
    lines = ["## Use", "In this folder:", f"```\nheadway run . {words}\n```"]
    then = '\nprint(model.generate("Once upon a time"))' if writes else ""
    lines.append(f'```python\nimport headway\n\nmodel = headway.load("."){then}\n```')
    if kind == "headway":
        lines.append("`transformers` has no model like this one: `model_type` in config.json is `headway`.")
    elif kind and task is not None and task.pipeline_tag:
        text = f'model("Once upon a time", max_new_tokens={most})[0]["generated_text"]'
        call = f"print({text if writes else 'model'})"
        made = f'model = transformers.pipeline("{task.pipeline_tag}", model=".")'
        lines.append(f"With `transformers`:\n\n```python\nimport transformers\n\n{made}\n{call}\n```")
    return "\n\n".join(lines)


def _training(run: History, facts: Mapping[str, Any]) -> str:
    cost, known = facts["cost"], facts["reproduce"]
    base = run.setting("model.from")
    rows = (
        ("started from", code_span(_short(base)) if base else ""),
        ("steps", w.count(facts["numbers"]["steps"])),
        ("tokens", w.count(cost["tokens"])),
        ("time", w.duration(cost["wall_seconds"])),
        ("training FLOPs", w.number(cost["flops"])),
        ("device", escape_markdown(known["device"]) if known["device"] else ""),
        ("processes", escape_markdown(known["world"]) if known["world"] else ""),
        ("versions", escape_markdown(versions(known))),
        ("seed", escape_markdown(known["seed"]) if known["seed"] is not None else ""),
    )
    recipe = (
        f"`{COMMAND}` repeats the training with this recipe:\n\n{_fenced(to_toml(_without_paths(run.recipe)), 'toml')}"
    )
    how = escape_markdown(verdict(run)[1])
    return "\n\n".join([_table("Training", rows), how, *([recipe] if run.recipe else [])])


def _data(run: History, data: Mapping[str, Any], name: str) -> str:
    valid = data_name(run, "valid")
    rows = (
        ("trained on", name),
        ("documents", w.count(data["documents"])),
        ("tokens", w.count(data["tokens"])),
        ("bytes", w.count(data["bytes"])),
        ("epochs", w.brief(data["epochs"])),
        ("validated on", code_span(_short(valid)) if valid else HELD_BACK),
        ("fingerprint", code_span(data["fingerprint"]) if data["fingerprint"] else ""),
    )
    return _table("Data", rows)


def _limits(run: History) -> str:
    length, bad = as_count(run.setting("data.length")), as_float(run.last_event("data").get("bad_rows"))
    only = "" if run.setting("model.from") else " It was trained on the data above only."
    lines = [
        f"- Only the numbers above were measured.{only}",
        f"- It was trained on sequences of {w.count(length)} tokens." if length else "",
        "- Nothing prevents it from generating wrong or harmful text."
        if (task := known_task(run.task)) is not None and task.generates
        else "",
        "- Its training did not finish." if run.status in ("stopped", "diverged", "running") else "",
        f"- {w.count(bad)} rows of the data could not be used."
        if (bad := as_float(run.last_event("data").get("bad_rows")))
        else "",
        "- This card states no licence: check the licence of the data before you publish the model.",
    ]
    return "## Limits\n\n" + "\n".join(line for line in lines if line)


def _table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    body = [f"| {name} | {value.replace('|', chr(92) + '|')} |" for name, value in rows if value not in ("", w.ABSENT)]
    return "\n".join([f"## {title}\n", "| | |", "|---|---|", *body]) if body else ""


def _short(name: Any) -> str:
    """A file by its name alone: a card does not show paths of a machine."""
    return Path(str(name)).name if str(name).startswith(("/", "~")) else str(name)


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_paths(inner) for key, inner in value.items()}
    return _short(value) if isinstance(value, str) and value else value


def escape_markdown(text: Any) -> str:
    """Text with the special characters of Markdown and HTML escaped."""
    safe = re.sub(r"([\\`*_\[\]~#|])", r"\\\1", re.sub(r"[^\S ]+|[\x01-\x1f\x7f-\x9f]", " ", str(text)))
    return safe.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def code_span(text: Any) -> str:
    """Text in a code span of one line."""
    line = printable(text)
    ticks = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") or not line.strip() else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def _fenced(text: str, language: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
