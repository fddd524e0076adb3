"""Word timestamps: warping, smoothing and token times as in transformers; words and punctuation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models
from transformers.models.whisper import generation_whisper as reference

from headway.api import load
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.tasks.transcribe.alignment import _words, align_words, cross_attention, smoothed, starts, token_times, warp
from headway.tasks.transcribe.features import SoundFeatures
from headway.tasks.transcribe.predict import TranscribePredictor
from headway.tasks.transcribe.timestamps import Segment
from headway.tasks.transcribe.windows import Recording

Folders = Callable[..., Path]


@pytest.mark.parametrize("seed", range(8))
def test_warping_is_that_of_transformers(seed: int) -> None:
    draw = np.random.default_rng(seed)
    cost = draw.normal(size=(int(draw.integers(1, 12)), int(draw.integers(1, 30))))
    if seed % 2:
        cost = cost.round()  # ties
    wanted = reference._dynamic_time_warping(cost)
    found = warp(cost)
    assert [path.tolist() for path in found] == [path.tolist() for path in wanted]


@pytest.mark.parametrize("seed", range(3))
def test_token_times_are_those_of_transformers(whisper: Folders, seed: int) -> None:
    """From the same rows of attention: theirs are those of the positions that read the tokens."""
    import transformers

    folder = whisper(seed)
    model = transformers.WhisperForConditionalGeneration.from_pretrained(folder, attn_implementation="eager").eval()
    mel = torch.randn(1, 8, 100, generator=torch.Generator().manual_seed(seed))
    whole = model.generate(
        mel, task="transcribe", return_token_timestamps=True, return_dict_in_generate=True,
        attention_mask=torch.ones(1, 100, dtype=torch.long), max_new_tokens=12,
    )  # fmt: skip
    tokens = whole["sequences"][0].tolist()
    loaded = load(folder)
    predictor = TranscribePredictor(loaded)
    wanted = whole["token_timestamps"][0]
    begin = len(tokens) - 12
    with torch.no_grad():
        maps, _ = cross_attention(loaded.model, mel, torch.tensor([tokens]), predictor.speech)
    times = starts(warp(-smoothed(maps[:, begin:-1]))) * 0.02
    assert times.tolist() == pytest.approx(wanted[begin:-1].tolist(), abs=1e-6) and len({*times}) > 1
    shifted = starts(warp(-smoothed(maps[:, begin - 1 : -2]))) * 0.02
    assert times.tolist() != shifted.tolist(), "other rows give other times"


def test_times_follow_attention_that_is_known(whisper: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each token's prediction looks at its own five positions: it begins where they do."""
    from headway.tasks.transcribe import alignment

    loaded = load(whisper(0))
    predictor = TranscribePredictor(loaded)
    tokens, begin = [65, 66, 67, 68], [257, 258, 261, 266]
    weights = torch.full((2, 8, 50), 1e-3)
    for row in range(3, 8):  # the rows that predict the four tokens and the end
        weights[:, row, 10 * (row - 3) : 10 * (row - 3) + 10] = 1.0
    hidden = loaded.model(torch.zeros(1, 8, 100), torch.tensor([[*begin, *tokens]])).hidden
    monkeypatch.setattr(alignment, "cross_attention", lambda *args: (weights, hidden))
    times, chances = token_times(loaded.model, torch.zeros(1, 8, 100), begin, tokens, predictor.speech, 50)
    assert times.tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8]) and len(chances) == 4
    segments = [Segment(1.0, 2.0, [267, 65, 66, 300], seek=100), Segment(1.5, 2.0, [300, 67, 68], seek=100)]
    recording = Recording(torch.zeros(8, 200), 200, language="en", segments=segments)
    align_words(loaded.model, loaded.require_tokenizer(), predictor.speech, SoundFeatures(100, 8), recording)
    (first,), (second,) = (segment.words for segment in segments)
    assert (first.start, first.end) == pytest.approx((1.0, 1.4)) and second.start == pytest.approx(1.4)


def letters() -> Tokenizer:
    backend = Backend(models.WordLevel({letter: i for i, letter in enumerate("abc ,.?¿日本")}, "?"))
    backend.decoder = decoders.Fuse()
    return Tokenizer(backend)


@pytest.mark.parametrize(
    ("text", "language", "words"),
    [
        ("ab c", "en", [("ab", 0, 3), ("c", 3, 4)]),
        ("ab, c.", "en", [("ab,", 0, 4), ("c.", 4, 6)]),
        ("ab , c", "en", [("ab ,", 0, 5), ("c", 5, 6)]),
        ("¿ ab?", "es", [("¿ ab?", 0, 5)]),
        ("日本", "ja", [("日", 0, 1), ("本", 1, 2)]),
    ],
)
def test_words_and_their_punctuation(text: str, language: str, words: list[tuple[str, int, int]]) -> None:
    ids = ["abc ,.?¿日本".index(letter) for letter in text]
    times = np.arange(len(ids) + 1, dtype=np.float64)
    found = _words(letters(), ids, times, np.full(len(ids), 0.5), language)
    assert [(each.text, each.start, each.end) for each in found] == words
    assert all(each.probability == 0.5 for each in found)
