"""Training of speech recognisers: from scratch, from a Whisper folder, targets, batches, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headway.api import load
from headway.config import presets
from headway.data.sounds.wav import wav_bytes
from headway.data.synthetic.sounds import syllables
from headway.errors import ConfigError, DataError
from headway.hub.folder import own_layout
from headway.tasks.losses.tokens import IGNORE
from headway.tasks.recipe import Recipe, load_recipe
from headway.tasks.training import TaskContext, make_training
from headway.tasks.transcribe.predict import TranscribePredictor
from headway.tasks.transcribe.training import TranscribeTraining, check_base
from headway.train.run import start, train

Folders = Callable[..., Path]
SHAPE = ("model.depth=1", "model.width=16", "model.heads=2")
EVERY = (
    "train.batch=4",
    "train.steps=6",
    "train.warmup=1",
    "train.eval_every=6",
    "transcribe.eval_texts=4",
    "transcribe.max_new_tokens=6",
    "transcribe.fallback=0",
)


@pytest.fixture(scope="module")
def talks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty sounds of up to a second with their texts, in a folder with a table."""
    folder = tmp_path_factory.mktemp("talks")
    rows = []
    for number, spoken in enumerate(syllables(40, seed=5, words=(1, 2))):
        (folder / f"{number:02}.wav").write_bytes(wav_bytes(spoken.samples[:7900], spoken.rate))
        rows.append({"file_name": f"{number:02}.wav", "transcription": spoken.text})
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))


def recipe_of(tmp_path: Path, *settings: str) -> Recipe:
    shape = () if any(each.startswith("model.from=") for each in settings) else SHAPE
    return load_recipe("transcribe", [*shape, *EVERY, f"out={tmp_path}", *settings])[1]


def prepared(tmp_path: Path, *settings: str) -> TranscribeTraining:
    recipe = recipe_of(tmp_path, *settings)
    made = make_training(TaskContext(recipe, tmp_path / "context"))
    assert isinstance(made, TranscribeTraining)
    return made


def run(tmp_path: Path, *settings: str) -> tuple[Path, list[dict[str, Any]]]:
    log = list[dict[str, Any]]()
    recipe = recipe_of(tmp_path, *settings)
    done = train(start("run", recipe), lambda kind, **facts: log.append({"event": kind, **facts}))
    return done.folder, log


def test_a_model_from_scratch_is_a_whisper_folder(talks: Path, tmp_path: Path) -> None:
    """transformers opens it, makes the same spectrogram, and hears the same."""
    import transformers

    folder, log = run(tmp_path, f"data.train={talks}", "transcribe.seconds=1", "train.steps=40", "train.lr=1e-2")
    metrics = [event for event in log if event["event"] == "eval"][-1]
    assert {"valid", "wer", "cer"} <= metrics.keys() and not own_layout(folder)
    model = transformers.WhisperForConditionalGeneration.from_pretrained(folder).eval()
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(folder)
    bundle = load(folder)
    for spoken in syllables(3, seed=9, rate=16_000, words=(1, 2)):
        samples = spoken.samples[:16_000]
        features = extractor(samples, sampling_rate=16_000, return_tensors="pt").input_features
        assert features.shape == (1, 80, 100)
        found = model.generate(features, max_new_tokens=6, num_beams=1)[0].tolist()
        theirs = bundle.require_tokenizer().decode(found).strip()
        assert bundle.transcribe((samples, 16_000)).text == theirs


def test_a_whisper_folder_is_fine_tuned(whisper: Folders, talks: Path, tmp_path: Path) -> None:
    base = whisper(0)
    settings = (f"model.from={base}", f"data.train={talks}", "transcribe.language=de", "data.length=30")
    folder, log = run(tmp_path, *settings, "train.steps=60", "train.lr=3e-3", "train.eval_every=20")
    losses = [event["valid"] for event in log if event["event"] == "eval"]
    assert losses[-1] < losses[0] - 0.3
    bundle = load(folder)
    predictor = TranscribePredictor(bundle)
    assert predictor.speech == TranscribePredictor(load(base)).speech, "languages and timestamps stay known"
    found = bundle.transcribe(str(talks / "00.wav"))
    assert found.language == "de" and len(found.segments) == 1 and "<|" not in found.text


def test_targets_of_a_whisper_folder(whisper: Folders, talks: Path, tmp_path: Path) -> None:
    """Language, task and no timestamps are given; the text and its end are to be predicted."""
    base = whisper(0)
    settings = (f"model.from={base}", f"data.train={talks}", "data.length=40")
    made = prepared(tmp_path, *settings, "transcribe.language=German")
    frames, none, inputs, targets = made.batch(np.arange(4)).tensors
    assert none is None
    speech, tokenizer = made.speech, made.tokenizer
    begin = speech.begin("de", translate=False, timestamps=False)
    assert frames.shape == (4, 8, 100) and inputs[:, : len(begin)].tolist() == [begin] * 4
    texts = {row.text for row in made.train.rows}
    for ids, wanted in zip(inputs, targets, strict=True):
        assert (wanted[: len(begin) - 1] == IGNORE).all()
        said = [token for token in wanted.tolist() if token != IGNORE]
        assert said[-1] == speech.end and tokenizer.decode(said[:-1])[1:] in texts and said[0] == ids[len(begin)]
    timed = prepared(tmp_path, *settings, "transcribe.language=de", "transcribe.timestamps=true")
    said = [token for token in timed.batch(np.arange(1)).tensors[3][0].tolist() if token != IGNORE]
    first = speech.first_timestamp
    assert first is not None and said[0] == first and first < said[-2] <= first + 50 and said[-1] == speech.end


def test_batches_follow_from_the_seed_and_the_sample(talks: Path, tmp_path: Path) -> None:
    augmented = ("transcribe.shift=0.9", "transcribe.noise=1", "transcribe.gain=6", "transcribe.time_masks=2")
    data = (f"data.train={talks}", "transcribe.seconds=1.5")
    made = prepared(tmp_path, *augmented, "transcribe.mel_masks=2", *data)
    together = made.batch(np.arange(6)).tensors[0]
    apart = torch.cat([made.batch(np.array([i])).tensors[0] for i in range(6)])
    assert torch.allclose(together, apart, atol=1e-5)
    later = made.batch(np.arange(6) + len(made.train)).tensors[0]
    assert not torch.equal(together, later)
    plain = prepared(tmp_path, *data).batch(np.arange(6)).tensors[0]
    assert not torch.allclose(plain, together, atol=1e-2)


def test_evaluation_is_not_augmented_and_is_that_of_predict(talks: Path, tmp_path: Path) -> None:
    folder, _ = run(tmp_path, f"data.train={talks}", "transcribe.seconds=1", "transcribe.noise=1")
    predictor = TranscribePredictor(load(folder))
    found = predictor.examine(str(talks))
    assert found.examples == 40 and [*found.metrics] == ["wer", "cer"]
    paths = sorted(talks.glob("*.wav"))[:5]
    examples = [predictor.task.parse({"input": str(path)}) for path in paths]
    assert [row["new"] for row in found.each[:5]] == [each.text for each in predictor.predict(examples)]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (("transcribe.timestamps=true",), ConfigError, "model.from"),
        (("transcribe.mixup=0.2",), ConfigError, "mixup"),
        (("transcribe.seconds=0.3",), DataError, "s of sound"),
        (("model.from={whisper}",), ConfigError, "which one is spoken"),
        (("data.text=nothing",), DataError, "nothing"),
    ],
)
def test_refused(
    whisper: Folders, talks: Path, tmp_path: Path, settings: tuple[str, ...], error: type[Exception], message: str
) -> None:
    given = [each.format(whisper=whisper(0)) for each in settings]
    with pytest.raises(error, match=message):
        made = prepared(tmp_path, f"data.train={talks}", "transcribe.seconds=1", *given)
        made.config(None)


def test_other_models_are_refused() -> None:
    with pytest.raises(ConfigError, match="read sounds"):
        check_base(presets.gpt2(1, 16, 2, vocab=20, length=8), "gpt2")


def test_sounds_that_are_too_long_are_skipped_and_counted(talks: Path, tmp_path: Path) -> None:
    made = prepared(tmp_path, f"data.train={talks}", "transcribe.seconds=0.5", "data.bad_rows=skip")
    whole = len(made.train) + len(made.valid)
    assert 0 < whole < 40 and made.facts["bad_rows"] == 40 - whole
