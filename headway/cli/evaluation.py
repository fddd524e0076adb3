"""Evaluations as `headway eval` prints them: metrics first, then what explains them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headway.errors import counted

if TYPE_CHECKING:
    from headway.report.evaluation import Block
    from headway.tasks.metrics.bootstrap import Interval

WORST, LETTERS, MOST_LABELS, MOST_COLUMNS, NAME = 5, 100, 16, 14, 16


def metric_line(name: str, interval: Interval, digits: int, theirs: Interval | None, against: str) -> str:
    """A metric with its interval, and the same metric of another model."""
    value, low, high = interval
    line = f"{name.replace('_', ' '):14} {value:.{digits}f}   [{low:.{digits}f}, {high:.{digits}f}]"
    return line if theirs is None else f"{line}   {against}: {theirs[0]:.{digits}f}"


def verdict(low: float, high: float, than: str) -> str:
    """What the interval of a difference says, where more is better."""
    return f"better {than}" if low > 0 else f"worse {than}" if high < 0 else "no significant difference"


def show(result: Mapping[str, Any]) -> None:
    """Print an evaluation of any kind."""
    kind = _show_task if "figures" in result else _show_choices if "shots" in result else _show_text
    kind(result)


def _show_task(result: Mapping[str, Any]) -> None:
    """Metrics first, then what explains them."""
    from headway.report.evaluation import blocks

    of = f" of {result['data']}" if result["data"] else ", held out in training"
    details = result["details"]
    notes = [f"{details[key]:,} {word}" for key, word in (("cut", "cut"), ("bad_rows", "left out")) if details.get(key)]
    print(f"{counted(result['examples'], 'examples')}{of}{'; ' if notes else ''}{', '.join(notes)}")
    theirs = result["theirs"]["figures"] if "theirs" in result else {}
    for name, interval in result["figures"].items():
        print(metric_line(name, interval, 4, theirs.get(name), result.get("against", "")))
    if "gain" in result:
        value, low, high = result["gain"]
        name = f"than {result['against']}"
        print(f"{'difference':14} {value:+.4f}   [{low:+.4f}, {high:+.4f}]: {verdict(low, high, name)}")
    for signature in dict.fromkeys(details.get("signatures", {}).values()):
        print(f"  {signature}")
    for block in blocks(details):
        _show_block(block)


def _show_text(result: Mapping[str, Any]) -> None:
    of = f" of {result['data']}" if result["data"] else ", held out in training"
    print(f"{counted(result['tokens'], 'predictions')} over {counted(result['bytes'], 'bytes')}{of}")
    theirs = result.get("theirs", {})
    for name, digits in (("loss", 4), ("perplexity", 2), ("bits_per_byte", 4)):
        print(metric_line(name, result[name], digits, theirs.get(name), result.get("against", "")))
    if "saves" in result:
        saved, low, high = result["saves"]
        words = verdict(low, high, f"than {result['against']}, which needs {'more' if saved > 0 else 'fewer'} bits")
        bounds = "" if high == float("inf") else f"   [{-high:+.4f}, {-low:+.4f}]: {words}"
        print(f"{'difference':14} {-saved:+.4f} bits/byte{bounds}")


def _show_choices(result: Mapping[str, Any]) -> None:
    shots, by = result["shots"], result["normalise"]
    how = f"{counted(shots, 'examples')} before each" if shots else "no examples"
    worth = "log-probability" if by == "none" else f"log-probability per {by[:-1]}"
    left = f", {result['skipped']} left out" if result["skipped"] else ""
    print(f"{counted(result['n'], 'questions')} of {result['data']}{left}; {how}; by {worth}")
    value, low, high = result["accuracy"]
    print(f"{'accuracy':14} {value:.4f}   [{low:.4f}, {high:.4f}]   {result['interval']}")
    print(f"{'chance':14} {result['chance']:.4f}")


def _show_block(block: Block) -> None:
    """A part of an evaluation in a terminal; the report shows the same blocks."""
    from headway.report.evaluation import Calibration, Chart, Mistakes, Pictures
    from headway.report.format import count

    if isinstance(block, Pictures | Chart):  # the report shows them
        return
    if isinstance(block, Mistakes):
        print("\nmost confident mistakes")
        for text, said in block.rows[:WORST]:
            print(f"  {said}\n    {text[:LETTERS]}")
    elif isinstance(block, Calibration):
        gap = "" if block.error is None else f": confidence and accuracy differ by {block.error:.3f} on average"
        print(f"\ncalibration{gap}\n  confidence  accuracy  examples")
        for sure, right, examples in block.bins:
            print(f"  {sure:10.2f}  {right:8.2f}  {count(examples):>8}")
    elif len(block.head) <= MOST_COLUMNS and len(block.rows) <= MOST_LABELS:
        lines = [[_truncate(cell) for cell in line] for line in (block.head, *block.rows)]
        wide = [max(len(line[i]) for line in lines) for i in range(len(block.head))]
        print(f"\n{block.title}")
        for first, *rest in lines:
            cells = (f"{cell:>{max(6, size)}}" for cell, size in zip(rest, wide[1:], strict=True))
            print(f"  {first:{wide[0]}}  {'  '.join(cells)}".rstrip())


def _truncate(name: str) -> str:
    return name if len(name) <= NAME else name[: NAME - 1] + "…"
