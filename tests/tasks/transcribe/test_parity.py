"""Tokens of transcription are those of `transformers` on small Whisper folders with random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.api import load
from headway.tasks.transcribe import windows
from headway.tasks.transcribe.predict import TranscribePredictor
from headway.tasks.transcribe.task import Settings
from headway.tasks.transcribe.windows import Recording, Transcriber

Folders = Callable[..., Path]
WINDOW, MELS = 100, 8
PLAIN = Settings(fallback=0, compression_ratio=0, log_probability=-1e9, no_speech=1, previous_text=False)
CASES = [(seed, True) for seed in range(4)] + [(5, False), (6, False)]


def oracle(folder: Path) -> Any:
    import transformers

    return transformers.WhisperForConditionalGeneration.from_pretrained(folder).eval()


def sound(seed: int, frames: int = WINDOW, count: int = 1) -> Tensor:
    return torch.randn(count, MELS, frames, generator=torch.Generator().manual_seed(seed))


def ours(folder: Path, mel: Tensor, prompt: list[int] | None = None, **changes: Any) -> list[Recording]:
    loaded = load(folder)
    predictor = TranscribePredictor(loaded)
    settings = replace(PLAIN, **changes)
    made = Transcriber(loaded.model, predictor.speech, settings, loaded.generation.rules, prompt or [])
    found = [Recording(each, each.shape[1]) for each in mel]
    made.transcribe(found)
    return found


def tokens_of(recording: Recording) -> list[int]:
    return [token for segment in recording.segments for token in segment.tokens]


def theirs(folder: Path, mel: Tensor, **asked: Any) -> list[list[int]]:
    """Without padding and without an end token."""
    model = oracle(folder)
    if model.generation_config.is_multilingual:
        asked.setdefault(
            "task", "transcribe"
        )  # without a language they leave the token of the task out: not as trained
    if not asked.get("return_timestamps"):  # they would let such a text have times, and cut it there
        times = range(model.generation_config.no_timestamps_token_id + 1, model.config.vocab_size)
        asked["suppress_tokens"] = [*model.generation_config.suppress_tokens, *times]
    found = model.generate(mel, **asked)
    end = model.generation_config.eos_token_id
    return [strip(row.tolist(), end) for row in found]


def strip(row: list[int], end: int) -> list[int]:
    while row and row[-1] == end:
        row.pop()
    return row


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(("seed", "multilingual"), CASES)
def test_one_window_without_timestamps(whisper: Folders, seed: int, multilingual: bool, beam: int) -> None:
    folder, mel = whisper(seed, multilingual=multilingual), sound(seed, count=3)
    found = [tokens_of(each) for each in ours(folder, mel, beam=beam)]
    assert found == theirs(folder, mel, num_beams=beam) and all(found)


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(("seed", "multilingual"), CASES)
def test_one_window_with_timestamps(whisper: Folders, seed: int, multilingual: bool, beam: int) -> None:
    folder, mel = whisper(seed, multilingual=multilingual), sound(seed)
    found = [tokens_of(each) for each in ours(folder, mel, beam=beam, timestamps=True)]
    assert found == theirs(folder, mel, num_beams=beam, return_timestamps=True)
    first = TranscribePredictor(load(folder)).speech.first_timestamp
    assert first is not None and any(token >= first for token in found[0])


@pytest.mark.parametrize(
    ("language", "task"), [("de", "transcribe"), ("German", "translate"), ("<|zh|>", "transcribe")]
)
def test_languages_and_tasks_are_forced(whisper: Folders, language: str, task: str) -> None:
    from headway.tasks.transcribe.languages import code_of

    folder, mel = whisper(1), sound(1, count=2)
    found = [tokens_of(e) for e in ours(folder, mel, language=code_of(language), translate=task == "translate")]
    assert found == theirs(folder, mel, language=language, task=task)
    assert found != theirs(folder, mel, language="en", task=task), "another language should change the text"


def test_languages_are_detected(whisper: Folders) -> None:
    seen = set()
    for seed in range(6):
        folder, mel = whisper(seed % 4), sound(seed, count=4)
        model = oracle(folder)
        names = {token: name[2:-2] for name, token in model.generation_config.lang_to_id.items()}
        wanted = [names[token] for token in model.detect_language(mel).tolist()]
        assert [each.language for each in ours(folder, mel)] == wanted
        seen.update(wanted)
    assert len(seen) > 1


def long_form(folder: Path, mel: Tensor, **asked: Any) -> Any:
    model = oracle(folder)
    if model.generation_config.is_multilingual:
        asked.setdefault("task", "transcribe")
    return model.generate(mel, return_timestamps=True, return_segments=True, **asked)["segments"]


def same_segments(found: Recording, wanted: Any) -> None:
    assert [segment.tokens for segment in found.segments] == [segment["tokens"].tolist() for segment in wanted]
    for segment, other in zip(found.segments, wanted, strict=True):
        assert segment.start == pytest.approx(float(other["start"]), abs=1e-6)
        assert segment.end == pytest.approx(float(other["end"]), abs=1e-6) or segment is found.segments[-1]


@pytest.mark.parametrize("previous", [False, True])
@pytest.mark.parametrize(("seed", "multilingual"), CASES)
def test_long_sounds(whisper: Folders, seed: int, multilingual: bool, previous: bool) -> None:
    folder, mel = whisper(seed, multilingual=multilingual), sound(10 + seed, 437)
    (found,) = ours(folder, mel, timestamps=True, previous_text=previous)
    (wanted,) = long_form(folder, mel, condition_on_prev_tokens=previous)
    same_segments(found, wanted)
    assert len({segment.seek for segment in found.segments}) > 2


def test_the_text_before_changes_what_follows(whisper: Folders) -> None:
    """The control of the test above."""
    folder, mel = whisper(1), sound(11, 437)
    both = [ours(folder, mel, timestamps=True, previous_text=previous)[0] for previous in (False, True)]
    assert tokens_of(both[0]) != tokens_of(both[1])


@pytest.mark.parametrize("seed", range(4))
def test_long_sounds_under_thresholds(whisper: Folders, seed: int) -> None:
    """One temperature, so that nothing is random: silent windows are dropped, unlikely ones are kept."""
    folder, mel = whisper(seed), sound(20 + seed, 437)
    checks = {"logprob_threshold": -0.9, "no_speech_threshold": 0.004, "compression_ratio_threshold": 1.2}
    (wanted,) = long_form(folder, mel, temperature=0.0, condition_on_prev_tokens=False, **checks)
    ratios = {"log_probability": -0.9, "no_speech": 0.004, "compression_ratio": 1.2}
    (found,) = ours(folder, mel, timestamps=True, **ratios)
    same_segments(found, wanted)


def test_several_long_sounds_are_read_together(whisper: Folders) -> None:
    folder = whisper(2)
    long, short = sound(31, 437), sound(32, 250)
    mask = torch.zeros(2, 437, dtype=torch.long)
    mask[0], mask[1, :250] = 1, 1
    both = torch.cat([long, torch.nn.functional.pad(short, (0, 187))])
    wanted = long_form(folder, both, attention_mask=mask, condition_on_prev_tokens=False)
    loaded = load(folder)
    made = Transcriber(
        loaded.model, TranscribePredictor(loaded).speech, replace(PLAIN, timestamps=True), loaded.generation.rules
    )
    found = [Recording(long[0], 437), Recording(short[0], 250)]
    made.transcribe(found)
    for ours_, theirs_ in zip(found, wanted, strict=True):
        same_segments(ours_, theirs_)


def test_a_prompt_is_read_first(whisper: Folders) -> None:
    folder, mel = whisper(0), sound(0)
    speech = TranscribePredictor(load(folder)).speech
    prompt = [10, 20, 30]
    wanted = theirs(folder, mel, prompt_ids=torch.tensor([speech.previous, *prompt]))
    begin = [speech.previous, *prompt]
    (row,) = wanted
    row = row[len(begin) :] if row[: len(begin)] == begin else row
    assert tokens_of(ours(folder, mel, prompt)[0]) == row != tokens_of(ours(folder, mel)[0])


@pytest.mark.parametrize("name", ["timestamps", "pairs"])
def test_controls_fail(whisper: Folders, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """With one rule left out the tokens are others: the tests above would see it."""
    from headway.generate.sampling import rules

    folder, mel = whisper(0), sound(10, 437)
    (wanted,) = long_form(folder, mel, condition_on_prev_tokens=False)
    if name == "timestamps":
        monkeypatch.setattr(rules, "order_timestamps", lambda logits, new, rule: logits)
    else:
        cut = windows.cut_segments
        monkeypatch.setattr(windows, "cut_segments", lambda *args: (cut(*args)[0], WINDOW))
    (found,) = ours(folder, mel, timestamps=True)
    with pytest.raises(AssertionError):
        same_segments(found, wanted)
