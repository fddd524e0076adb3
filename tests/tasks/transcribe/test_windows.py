"""Windows of long sounds, and what happens to texts that look wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from headway.api import Bundle, load
from headway.errors import ConfigError
from headway.generate.protocol import Source
from headway.tasks.transcribe import fallback, windows
from headway.tasks.transcribe.fallback import Decoded, compression_ratio, decode_windows, temperatures
from headway.tasks.transcribe.predict import TranscribePredictor
from headway.tasks.transcribe.task import Settings
from headway.tasks.transcribe.windows import Recording, Transcriber

Folders = Callable[..., Path]
PLAIN = Settings(fallback=0, compression_ratio=0, log_probability=-1e9, no_speech=1, previous_text=False)


@pytest.fixture(scope="module")
def bundle(whisper: Folders) -> Bundle:
    return load(whisper(2))


def transcriber(bundle: Bundle, **changes: Any) -> Transcriber:
    speech = TranscribePredictor(bundle).speech
    return Transcriber(bundle.model, speech, replace(PLAIN, **changes), bundle.generation.rules)


def noise(seed: int, frames: int) -> torch.Tensor:
    return torch.randn(8, frames, generator=torch.Generator().manual_seed(seed))


def test_transcription_ends_where_the_sound_does(bundle: Bundle) -> None:
    """A short sound is padded to a window; what would be heard in the padding is not asked for."""
    made = transcriber(bundle, timestamps=True)
    short, whole = Recording(noise(3, 100), 30), Recording(noise(3, 100), 100)
    made.transcribe([short])
    made.transcribe([whole])
    assert short.seek == 30 or short.seek >= 30
    assert {segment.seek for segment in short.segments} == {0} < {segment.seek for segment in whole.segments}
    assert max(segment.end for segment in short.segments) <= 0.3


def test_fixed_windows_are_each_as_if_alone(bundle: Bundle) -> None:
    made = transcriber(bundle, timestamps=True, windows="fixed", language="en")
    mel = noise(4, 250)
    whole = Recording(mel, 250)
    made.transcribe([whole])
    parts = [Recording(mel[:, at : at + 100], min(100, 250 - at)) for at in (0, 100, 200)]
    for part in parts:
        made.transcribe([part])
    assert [s.tokens for s in whole.segments] == [s.tokens for part in parts for s in part.segments]
    decoded = decode_windows(
        bundle.model, Source(mel[None, :, :100]), [made.speech.begin("en", translate=False, timestamps=True)],
        made.speech, made.settings, made.rules, [made.longest],
    )  # fmt: skip
    assert [token for s in parts[0].segments for token in s.tokens] == decoded[0].tokens, "nothing is cut off"
    first = parts[1].segments[0]
    moved = next(s for s in whole.segments if s.seek == 100)
    assert moved.start == pytest.approx(first.start + 1.0)


def test_several_recordings_are_each_as_if_alone(bundle: Bundle) -> None:
    made = transcriber(bundle, timestamps=True, previous_text=True)
    mels = [noise(seed, 100 + 60 * seed) for seed in range(3)]
    together = [Recording(mel, mel.shape[1]) for mel in mels]
    made.transcribe(together)
    for mel, found in zip(mels, together, strict=True):
        alone = Recording(mel, mel.shape[1])
        made.transcribe([alone])
        assert [s.tokens for s in alone.segments] == [s.tokens for s in found.segments]


def test_timestamps_need_a_model_that_has_them(bundle: Bundle) -> None:
    speech = replace(TranscribePredictor(bundle).speech, no_timestamps=None)
    with pytest.raises(ConfigError, match="timestamps"):
        Transcriber(bundle.model, speech, replace(PLAIN, timestamps=True), {})


def test_temperatures_rise_to_one() -> None:
    assert temperatures(Settings()) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert temperatures(Settings(temperature=0.5, fallback=0.3)) == [0.5, 0.8]
    assert temperatures(Settings(fallback=0)) == [0.0] and temperatures(Settings(temperature=1.0)) == [1.0]


def test_only_texts_that_look_wrong_are_tried_again(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 0 is fine, row 1 is unlikely until 0.4, row 2 repeats itself to the end, row 3 is silent."""
    tried = list[tuple[float, int]]()

    def decoded(model: Any, source: Source, prompts: Sequence[Any], *rest: Any) -> list[Decoded]:
        temperature, found = rest[-1], []
        for row in source.inputs[:, 0, 0].int().tolist():
            tried.append((temperature, row))
            mean = -2.0 if (row == 1 and temperature < 0.4) or row == 3 else -0.1
            ratio = 3.0 if row == 2 else 1.0
            found.append(Decoded([row], temperature, mean, ratio, silent=row == 3))
        return found

    monkeypatch.setattr(fallback, "_decoded", decoded)
    frames = torch.arange(4.0)[:, None, None].expand(4, 8, 100)
    speech = TranscribePredictor(bundle).speech
    found = decode_windows(bundle.model, Source(frames), [[1]] * 4, speech, Settings(), {}, [9] * 4)
    assert [each.tokens for each in found] == [[0], [1], [2], [3]]
    assert [each.temperature for each in found] == [0.0, 0.4, 1.0, 0.0]
    assert tried[:4] == [(0.0, row) for row in range(4)] and tried[4:6] == [(0.2, 1), (0.2, 2)]
    assert (0.6, 1) not in tried and len(tried) == 4 + 2 + 2 + 3


def test_a_hot_text_is_not_read_by_the_next_window(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[list[int]]()

    def decode(model: Any, source: Any, prompts: list[list[int]], *rest: Any) -> list[Decoded]:
        seen.extend(prompts)
        return [Decoded([10 + len(seen)], 0.6 if len(seen) == 2 else 0.0, -0.1, 1.0) for _ in prompts]

    monkeypatch.setattr(windows, "decode_windows", decode)
    made = transcriber(bundle, timestamps=True, previous_text=True, language="en")
    made.transcribe([Recording(noise(1, 400), 400)])
    previous = made.speech.previous
    assert seen[0] == seen[2] == made.speech.begin("en", translate=False, timestamps=True)
    assert seen[1] == [previous, 11, *seen[0]] and seen[3] == [previous, 11, 12, 13, *seen[0]]


def test_likelihoods_of_a_search_are_those_of_a_pass_over_its_tokens(bundle: Bundle) -> None:
    """The greedy search reports what its tokens have under the rules; the slow way computes it again."""
    made = transcriber(bundle, timestamps=True)
    source = Source(torch.stack([noise(seed, 100) for seed in range(3)]))
    prompts = [made.speech.begin("en", translate=False, timestamps=True)] * 3
    from headway.config.generation import Beam

    found = fallback._searched(bundle.model, source, prompts, made.settings, made.rules, [made.longest] * 3)
    slow = fallback.mean_log_probabilities(
        bundle.model, source, prompts, [tokens for tokens, _ in found], Beam(width=1, **made.rules)
    )
    banned = torch.tensor([token for (token,) in made.rules["banned"]])
    assert len(banned) and [mean for _, mean in found] == pytest.approx(slow, abs=1e-4)


def test_sampling_follows_the_rules_and_its_seed(bundle: Bundle) -> None:
    made = transcriber(bundle, timestamps=True, temperature=0.9)
    runs = []
    for seed in (0, 0, 1):
        made.settings = replace(made.settings, seed=seed)
        recording = Recording(noise(5, 300), 300)
        made.transcribe([recording])
        runs.append([segment.tokens for segment in recording.segments])
    assert runs[0] == runs[1] != runs[2]
    first = made.speech.first_timestamp
    assert first is not None
    for tokens in runs[0]:
        assert tokens[0] >= first and all(token not in (3, 7) for token in tokens)


def test_compression_is_that_of_transformers() -> None:
    from transformers import WhisperForConditionalGeneration

    for vocab, tokens in ((300, [5] * 40), (51865, [50000, 3, 50000, 3] * 9), (200, list(range(60)))):
        theirs = WhisperForConditionalGeneration._retrieve_compression_ratio(torch.tensor(tokens), vocab)
        assert compression_ratio(tokens, vocab) == pytest.approx(theirs)
    assert compression_ratio([], 300) == 0
