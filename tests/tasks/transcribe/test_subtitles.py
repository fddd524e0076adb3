"""Formats of a transcript: SubRip, WebVTT, JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headway.tasks.transcribe.subtitles import FORMATS, clock

PART: dict[str, Any] = {
    "seek": 0, "tokens": [1], "temperature": 0.0, "mean_log_probability": -0.5, "compression_ratio": 1.0,
    "no_speech": 0.1,
}  # fmt: skip
FOUND: dict[str, Any] = {
    "text": "Hello. a --> b",
    "duration": 3725.5,
    "language": "de",
    "segments": [
        {**PART, "start": 0.0, "end": 1.5, "text": " Hello."},
        {**PART, "start": 1.5, "end": 2.0, "text": "  "},
        {**PART, "start": 3661.25, "end": 3725.4996, "text": " a -->\n\n b"},
    ],
}


def test_subtitles() -> None:
    assert FORMATS["srt"](FOUND) == (
        "1\n00:00:00,000 --> 00:00:01,500\nHello.\n\n2\n01:01:01,250 --> 01:02:05,500\na -> b\n"
    )
    assert FORMATS["vtt"](FOUND) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello.\n\n01:01:01.250 --> 01:02:05.500\na -> b\n"
    )
    assert FORMATS["txt"](FOUND) == FOUND["text"] and json.loads(FORMATS["json"](FOUND)) == FOUND
    assert FORMATS["vtt"]({**FOUND, "segments": []}) == "WEBVTT\n" and FORMATS["srt"]({**FOUND, "segments": []}) == ""


def test_the_names_of_openai() -> None:
    found = json.loads(FORMATS["verbose_json"](FOUND))
    assert found["language"] == "german" and [part["id"] for part in found["segments"]] == [0, 1, 2]
    assert found["segments"][0]["avg_logprob"] == -0.5 and found["segments"][0]["no_speech_prob"] == 0.1
    assert "words" not in found
    timed = {**FOUND["segments"][0], "words": [{"word": "Hello.", "start": 0.0, "end": 1.0, "probability": 0.9}]}
    words = json.loads(FORMATS["verbose_json"]({**FOUND, "segments": [timed]}))["words"]
    assert words == [{"word": "Hello.", "start": 0.0, "end": 1.0}]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0005, "00:00:00.000"), (59.9996, "00:01:00.000"), (-1e-9, "00:00:00.000")]
)
def test_clocks_round_to_thousandths(seconds: float, text: str) -> None:
    assert clock(seconds, ".") == text
