"""A transcript as text, subtitles (SubRip, WebVTT) or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any


def plain_text(found: Mapping[str, Any]) -> str:
    return str(found["text"])


def srt(found: Mapping[str, Any]) -> str:
    """SubRip: numbered, with a comma before the milliseconds."""
    parts = [
        f"{number}\n{clock(part['start'], ',')} --> {clock(part['end'], ',')}\n{_line(part['text'])}\n"
        for number, part in enumerate(_parts(found), start=1)
    ]
    return "\n".join(parts)


def vtt(found: Mapping[str, Any]) -> str:
    """WebVTT."""
    parts = [
        f"{clock(part['start'], '.')} --> {clock(part['end'], '.')}\n{_line(part['text'])}\n" for part in _parts(found)
    ]
    return "\n".join(["WEBVTT\n", *parts])


def as_json(found: Mapping[str, Any]) -> str:
    return json.dumps(found, ensure_ascii=False, indent=2)


FORMATS: dict[str, Callable[[Mapping[str, Any]], str]] = {"txt": plain_text, "srt": srt, "vtt": vtt, "json": as_json}


def clock(seconds: float, point: str) -> str:
    """01:02:03.450, with a comma or a point."""
    thousandths = max(0, round(seconds * 1000))
    minutes, rest = divmod(thousandths, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{rest // 1000:02}{point}{rest % 1000:03}"


def _parts(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Segments that have text."""
    return [part for part in found["segments"] if part["text"].strip()]


def _line(text: str) -> str:
    """A text that cannot end its own subtitle: no blank lines, and no arrow of a time."""
    return " ".join(text.split()).replace("-->", "->")
