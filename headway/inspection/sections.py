"""The sections of a report as HTML, each from the facts `report.gather` found. Everything a log says is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from headway.inspection import wording as w
from headway.inspection.tape import real

Facts = Mapping[str, Any]

TEXT_LETTERS, RECIPE_LETTERS = 300, 50_000
"""Of a text of the log, and of the recipe, that the page shows."""
EVAL_COLUMNS = 8


def head(facts: Facts) -> str:
    """Name, status, the verdict, and the numbers that people look for first."""
    device = facts["reproduce"]["device"]
    meta = [f"task {facts['task']}", w.moment(facts["started"]), f"on {device}" if device else ""]
    words = " · ".join(escape(cut(m)) for m in meta if m and m != w.ABSENT)
    sentences = " ".join(escape(cut(sentence, 1000)) for sentence in facts["verdict"])
    return (
        f"<header><h1>{escape(cut(facts['name']))}</h1>"
        f'<p class="meta"><span class="status {facts["status"]}">{facts["status"]}</span>{words}</p>'
        f'<p class="verdict">{sentences}</p>{_tiles(facts["numbers"], facts["cost"])}</header>'
    )


def _tiles(numbers: Facts, cost: Facts) -> str:
    step, goal, by_loss = numbers["best_step"], w.goal_name(numbers["goal"]), numbers["goal"] == "valid"
    tiles = (
        (f"Best {goal}", w.fixed(numbers["best"]), "" if step is None else f"at step {w.count(step)}"),
        ("Validation loss", w.ABSENT if by_loss else w.fixed(numbers["best_valid"]), "at the same step"),
        ("Bits per byte", w.fixed(numbers["bits_per_byte"]), "at the same step"),
        (f"Test {goal}", w.fixed(numbers["test_best"]), ""),
        ("Test loss", w.fixed(numbers["test_loss"]), _bits(numbers["test_bits_per_byte"])),
        ("Training loss", w.fixed(numbers["train_loss"]), "smoothed, at the end"),
        ("Parameters", w.brief(numbers["parameters"]), _trained(numbers)),
        ("Steps", w.count(numbers["steps"]), ""),
        ("Tokens", w.brief(cost["tokens"]), ""),
        ("Time", w.duration(cost["wall_seconds"]), ""),
        ("Tokens a second", w.count(cost["tokens_per_second"]), "inside steps"),
        ("Peak memory", w.size(cost["peak_memory"]), ""),
        ("Model FLOPs used", w.percent(cost["mfu"]), "of what the device can do"),
    )
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}{f'<small>{escape(note)}</small>' if note else ''}</dd></div>"
        for name, value, note in tiles
        if value != w.ABSENT
    )
    return f'<dl class="tiles">{cells}</dl>'


def _trained(numbers: Mapping[str, Any]) -> str:
    part, whole = numbers.get("trained"), numbers["parameters"]
    return f"{w.brief(part)} of them trained" if part is not None and whole is not None and part < whole else ""


def _bits(value: float | None) -> str:
    return "" if value is None else f"{w.fixed(value)} bits per byte"


def samples(facts: Facts) -> str:
    """What the model wrote on its way."""
    figures, end = [], max(facts["numbers"]["steps"], 1)
    for sample in facts["samples"]:
        step = sample["step"]
        when = "Sample" if step is None else f"Step {w.count(step)} ({w.percent(step / end)})"
        text = sample["text"].strip("\n").rstrip() or "(nothing)"
        figures.append(f"<figure><figcaption>{when}</figcaption><pre>{escape(text)}</pre></figure>")
    inside = "".join(figures)
    return f'<section><h2>Samples over time</h2><div class="samples">{inside}</div></section>' if figures else ""


def evaluations(facts: Facts) -> str:
    """Every number of every evaluation, or of as many as fit."""
    rows: Sequence[Facts] = facts["evaluations"]
    if not rows:
        return ""
    first = [k for k in ("valid", "bits_per_byte", "perplexity", "accuracy") if any(k in row for row in rows)]
    others = [k for k in dict.fromkeys(k for row in rows for k in row) if k not in (*first, "step")]
    names = [*first, *others][:EVAL_COLUMNS]
    titles = {"valid": "validation loss", "bits_per_byte": "bits per byte"}
    top = "".join(f'<th scope="col">{escape(cut(titles.get(k, k.replace("_", " "))))}</th>' for k in names)
    best, body = facts["numbers"]["best_step"], []
    for row in rows:
        is_best = best is not None and row.get("step") == best
        cells = "".join(f"<td>{escape(w.fixed(real(row.get(k))))}</td>" for k in names)
        body.append(
            f'<tr class="{"best" if is_best else ""}"><th scope="row">{w.count(real(row.get("step")))}</th>{cells}'
            f'<td class="note">{"★ best" if is_best else ""}</td></tr>'
        )
    left_out, of = facts["numbers"]["evaluations"] - len(rows), facts["numbers"]["evaluations"]
    note = f'<p class="meta">{w.count(left_out)} of {w.count(of)} rows are left out.</p>' if left_out > 0 else ""
    return (
        f'<section><h2>Evaluation</h2><div class="wide"><table><thead><tr><th scope="col">step</th>{top}<td></td></tr>'
        f"</thead><tbody>{''.join(body)}</tbody></table></div>{note}</section>"
    )


def data(facts: Facts) -> str:
    """What was read, for training and for validation."""
    known = facts["data"]
    left = (
        ("trained on", known["train"]),
        ("documents", w.count(known["documents"])),
        ("tokens", w.count(known["tokens"])),
        ("bytes", w.count(known["bytes"])),
        ("read", "" if known["epochs"] is None else f"{w.brief(known['epochs'])} times"),
        ("rows left out", w.count(known["bad_rows"])),
    )
    right = (
        ("validated on", known["valid"]),
        ("tokens", w.count(known["valid_tokens"])),
        ("bytes", w.count(known["valid_bytes"])),
        ("vocabulary", w.count(known["vocab"])),
        ("samples an epoch", w.count(known["samples"])),
        ("fingerprint", known["fingerprint"]),
    )
    return f'<section><h2>Data</h2><div class="columns">{_list(left)}{_list(right)}</div></section>'


def health_and_cost(facts: Facts) -> str:
    """What went wrong, and what it took."""
    found, cost = facts["health"], facts["cost"]
    nans = f"{found['nans']} ({found['skipped']} skipped, {found['rewinds']} rewound)" if found["nans"] else "0"
    well = (
        ("spikes", w.count(found["spikes"])),
        ("NaN", nans),
        ("clipped steps", w.percent(found["clipped"])),
        ("restarts", w.count(found["restarts"])),
        ("sinks dropped", ", ".join(found["sinks"])),
    )
    spent = (
        ("time in steps", w.duration(cost["train_seconds"])),
        ("time in all", w.duration(cost["wall_seconds"])),
        ("tokens", w.count(cost["tokens"])),
        ("training FLOPs", w.number(cost["flops"])),
        ("model FLOPs used", w.percent(cost["mfu"])),
        ("peak memory", w.size(cost["peak_memory"])),
        ("on disk", w.size(facts["numbers"]["bytes_on_disk"])),
    )
    return (
        f'<div class="columns"><section><h2>Health</h2>{_list(well)}</section>'
        f"<section><h2>Cost</h2>{_list(spent)}</section></div>"
    )


def advice(facts: Facts) -> str:
    """What to try next, and why."""
    items = [f"<li>{escape(s['advice'])}<p>{escape(s['reason'])}</p></li>" for s in facts["suggestions"]]
    inside = "".join(items) or "<li>Nothing in the numbers asks for a change.</li>"
    return f'<section><h2>What to try next</h2><ol class="advice">{inside}</ol></section>'


def reproduce(facts: Facts, recipe: str) -> str:
    """The command, what it ran on, and the recipe it was given."""
    known = facts["reproduce"]
    names = (("version", "headway"), ("torch", "torch"), ("python", "Python"))
    versions = ", ".join(f"{name} {known[key]}" for key, name in names if known[key])
    rows = (
        ("seed", known["seed"]),
        ("versions", versions or "not recorded"),
        ("device", known["device"] or "not recorded"),
        ("processes", known["world"]),
        ("determinism", known["determinism"]),
    )
    inside = escape(cut(recipe, RECIPE_LETTERS))
    text = f'<details open><summary>run/recipe.toml</summary><div class="box"><pre>{inside}</pre></div></details>'
    return (
        f"<section><h2>Reproduce</h2><p>In the folder of this run: <code>{escape(known['command'])}</code></p>"
        f"{_list(rows)}{text if recipe else ''}</section>"
    )


def _list(pairs: Iterable[tuple[str, Any]]) -> str:
    """Facts by name; those that are not known are left out."""
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(cut(value))}</dd>"
        for name, value in pairs
        if value is not None and value not in ("", w.ABSENT)
    )
    return f'<dl class="facts">{rows}</dl>'


def cut(text: Any, letters: int = TEXT_LETTERS) -> str:
    """The beginning of a text that may be long."""
    whole = str(text)
    return whole if len(whole) <= letters else whole[:letters] + "…"
