"""A transcript as text, subtitles (SubRip, WebVTT) or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from headway.tasks.transcribe.languages import NAMES


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


def verbose_json(found: Mapping[str, Any]) -> str:
    """The names that OpenAI's API has for these values."""
    segments = [
        {
            **{"id": number, **{key: part[key] for key in ("seek", "start", "end", "text", "tokens", "temperature")}},
            "avg_logprob": part["mean_log_probability"],
            "compression_ratio": part["compression_ratio"],
            "no_speech_prob": part["no_speech"],
        }
        for number, part in enumerate(found["segments"])
    ]
    code = found.get("language", "")
    made: dict[str, Any] = {"task": "transcribe", "language": NAMES.get(code, code), "duration": found["duration"]}
    made |= {"text": found["text"], "segments": segments}
    if any("words" in part for part in found["segments"]):
        words = [word for part in found["segments"] for word in part.get("words", ())]
        made["words"] = [{key: word[key] for key in ("word", "start", "end")} for word in words]
    return json.dumps(made, ensure_ascii=False)


FORMATS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "txt": plain_text,
    "srt": srt,
    "vtt": vtt,
    "json": as_json,
    "verbose_json": verbose_json,
}


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
