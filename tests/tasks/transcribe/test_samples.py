"""Models that read samples (Moonshine): windows cut at pauses, texts, training, and what they cannot do."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from headway.api import Bundle, load
from headway.data.sounds.wav import wav_bytes
from headway.data.synthetic.sounds import syllables
from headway.errors import ConfigError, DataError
from headway.hub.folder import open_folder
from headway.tasks.metrics.error_rate import edits, normalized
from headway.tasks.recipe import load_recipe
from headway.tasks.training import TaskContext, make_training
from headway.tasks.transcribe.features import HOP, WIDTH, SoundFeatures, padded_samples, pauses
from headway.tasks.transcribe.predict import TranscribePredictor
from headway.tasks.transcribe.timestamps import Segment
from headway.tasks.transcribe.training import TranscribeTraining
from headway.tasks.transcribe.windows import Recording
from headway.train.run import start, train

READ_ALOUD = {
    "beckett.wav": "ever tried ever failed no matter try again fail again fail better",
    "two_cities.wav": "it was the best of times it was the worst of times it was the age of wisdom it was the age of "
    "foolishness it was the epoch of belief it was the epoch of incredulity it was the season of light it was the "
    "season of darkness it was the spring of hope it was the winter of despair we had everything before us we had "
    "nothing before us we were all going direct to heaven we were all going direct the other way in short the period "
    "was so far like the present period that some of its noisiest authorities insisted on its being received for good "
    "or for evil in the superlative degree of comparison only",
}
"""Recordings in the package moonshine-voice, and what is read in them."""
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def bundle(moonshine: Path) -> Bundle:
    return load(moonshine)


@pytest.fixture
def talks(tmp_path: Path) -> Path:
    """Twelve sounds of up to a second with their texts."""
    rows = []
    for number, spoken in enumerate(syllables(12, seed=5, rate=16_000, words=(1, 3))):
        (tmp_path / f"{number:02}.wav").write_bytes(wav_bytes(spoken.samples, spoken.rate))
        rows.append({"file_name": f"{number:02}.wav", "transcription": spoken.text})
    (tmp_path / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def noise(seed: int, count: int) -> Any:
    return np.random.default_rng(seed).normal(size=count).astype(np.float32) / 4


def tokens_of(found: Any) -> list[int]:
    return [token for segment in found.segments for token in segment.tokens]


def most_tokens(sound: Any) -> int:
    """Six and a half tokens a second."""
    return int(np.ceil(np.ceil(len(sound) / 160) / 100 * 6.5))


# --- windows ----------------------------------------------------------------------------------------


def test_long_sounds_are_cut_where_they_are_quiet() -> None:
    sound = noise(0, 250 * HOP)
    for quiet in (70, 165):
        sound[(quiet - 12) * HOP : (quiet + 12) * HOP] *= 0.01
    assert pauses(sound, 100) == pytest.approx((70, 165, 250), abs=2)
    assert pauses(sound[: 100 * HOP], 100) == (100,) and pauses(sound[:5], 100) == (1,)
    edges = pauses(noise(1, 1000 * HOP + 7), 100)
    sizes = np.diff([0, *edges])
    assert edges[-1] == 1001 and sizes.max() <= 100 and sizes[:-1].min() >= 60


def test_short_sounds_are_filled_up_with_silence() -> None:
    padded, real = padded_samples([torch.ones(5), torch.ones(WIDTH + 3)])
    assert padded.shape == (2, WIDTH + 3) and real.sum(1).tolist() == [WIDTH, WIDTH + 3]
    assert padded[0].sum() == 5


def test_features_count_what_the_encoder_reads(bundle: Bundle) -> None:
    features = SoundFeatures(3000)
    assert features.positions == 1250 and features.positions_of(24) == 10
    assert features.most_tokens(100) == 7 and SoundFeatures(3000, 80).most_tokens(100) == 0
    assert features.seconds_per_position == pytest.approx(0.024)
    part = features.batch([torch.ones(2000), torch.ones(2000)], torch.empty(0))
    assert part.attention_mask is None


# --- texts --------------------------------------------------------------------------------------------


def test_texts_are_those_of_transformers(moonshine: Path, bundle: Bundle) -> None:
    import transformers

    oracle = transformers.MoonshineForConditionalGeneration.from_pretrained(moonshine).eval()
    sounds = [noise(seed, count) for seed, count in enumerate((16_000, 5_000, 30_000, 24_321))]
    found = bundle.transcribe(sounds, fallback=0)
    for sound, mine in zip(sounds, found, strict=True):
        theirs = oracle.generate(torch.from_numpy(sound)[None], max_new_tokens=most_tokens(sound))[0].tolist()[1:]
        assert tokens_of(mine) == [token for token in theirs if token != 2]
        assert mine.language == "" and mine.segments[0].end == pytest.approx(len(sound) / 16_000, abs=0.01)
    whole = [len(tokens_of(mine)) == most_tokens(sound) for mine, sound in zip(found, sounds, strict=True)]
    assert any(whole) and not all(whole), "some texts end by themselves, some where nobody could have said more"


@pytest.mark.parametrize("beam", [1, 3])
def test_a_sound_does_not_depend_on_those_beside_it(bundle: Bundle, beam: int) -> None:
    sounds = [noise(seed, 3_000 + 7_000 * seed) for seed in range(4)]
    together = bundle.transcribe(sounds, fallback=0, beam=beam)
    alone = [bundle.transcribe(sound, fallback=0, beam=beam) for sound in sounds]
    assert [tokens_of(each) for each in together] == [tokens_of(each) for each in alone]


def test_windows_of_a_long_sound_are_each_as_if_alone(bundle: Bundle) -> None:
    sound = noise(7, 5 * 16_000)
    sound[30_000:34_000] = 0
    found = bundle.transcribe(sound, fallback=0, seconds=2.5)
    edges = pauses(sound, 250)
    assert len(found.segments) == len(edges) >= 2
    begin = 0
    for segment, end in zip(found.segments, edges, strict=True):
        part = bundle.transcribe(sound[begin * HOP : end * HOP], fallback=0, seconds=2.5)
        assert (segment.start, segment.end) == pytest.approx((begin / 100, end / 100))
        assert segment.tokens == tokens_of(part)
        begin = end


def test_words_have_times(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions are 24 milliseconds apart; here each token looks at five of its own, and a space ends a word."""
    from headway.tasks.transcribe import alignment

    def cross_attention(model: Any, samples: Tensor, ids: Tensor, speech: Any) -> tuple[Tensor, Tensor]:
        rows = ids.shape[1]
        weights = torch.full((1, rows, model.source(samples).x.shape[1]), 1e-3)
        for row in range(rows):
            weights[:, row, 5 * row : 5 * row + 5] = 1.0
        return weights, model(samples, ids).hidden

    monkeypatch.setattr(alignment, "cross_attention", cross_attention)
    predictor = TranscribePredictor(bundle)
    samples = noise(2, 40_000)
    recording = Recording(torch.from_numpy(samples), 250, (250,))
    recording.segments = [Segment(0.0, 2.5, predictor.tokenizer.ids(["ab cd"])[0])]
    predictor.align(recording)
    words = recording.segments[0].words
    assert [word.text for word in words] == ["ab", "cd"]
    step = 5 * 0.024
    assert (words[0].start, words[0].end) == pytest.approx((0, 3 * step), abs=0.03)
    assert (words[1].start, words[1].end) == pytest.approx((3 * step, 5 * step), abs=0.03)


def test_what_it_cannot_do_is_refused(bundle: Bundle) -> None:
    sound = noise(0, 9_000)
    with pytest.raises(DataError, match="does not know the language 'de'"):
        bundle.transcribe(sound, language="de")
    with pytest.raises(ConfigError, match="no timestamps"):
        bundle.transcribe(sound, timestamps=True)
    with pytest.raises(ConfigError, match="does not translate"):
        bundle.transcribe(sound, translate=True)
    with pytest.raises(DataError, match="reads no text before"):
        bundle.transcribe(sound, prompt="Dashwood")


# --- training -----------------------------------------------------------------------------------------


def prepared(talks: Path, base: Path, *settings: str) -> TranscribeTraining:
    words = [f"data.train={talks}", f"model.from={base}", "train.batch=4", f"out={talks / 'runs'}", *settings]
    recipe = load_recipe("transcribe", words)[1]
    made = make_training(TaskContext(recipe, talks / "runs", base=load(base).tokenizer))
    assert isinstance(made, TranscribeTraining)
    return made


def test_timestamps_are_refused_before_training(talks: Path, moonshine: Path) -> None:
    with pytest.raises(ConfigError, match="has no timestamps"):
        prepared(talks, moonshine, "transcribe.timestamps=true")


def test_batches_are_as_long_as_their_sounds(talks: Path, moonshine: Path) -> None:
    made = prepared(talks, moonshine)
    samples, real, inputs, targets = made.batch(np.arange(4)).tensors
    assert samples is not None and real is not None and inputs is not None and targets is not None
    assert not made.static_shapes and samples.shape == real.shape == (4, int(real.sum(1).max()))
    assert not samples[~real].any() and samples[real].any() and (inputs[:, 0] == 1).all()
    assert made.model_files["preprocessor_config.json"]["feature_size"] == 1
    count = made.batch(np.arange(4)).tokens
    assert count == sum(made.features.positions_of(-(-n // HOP)) for n in real.sum(1).tolist()) + int(
        (targets >= 0).sum()
    )


def test_changes_of_a_sound_do_not_depend_on_those_beside_it(talks: Path, moonshine: Path) -> None:
    every = ("shift=0.5", "noise=1", "gain=6", "time_masks=3", "mel_masks=2", "mel_mask=0.9")
    made = prepared(talks, moonshine, *(f"transcribe.{each}" for each in every))
    together, real, *_ = made.batch(np.arange(6)).tensors
    assert together is not None and real is not None
    for i in range(6):
        alone, own, *_ = made.batch(np.array([i])).tensors
        assert alone is not None and own is not None and own.all()
        here = together[i][real[i]]
        assert here.shape == alone[0].shape and (here - alone[0]).abs().max() <= 1e-5
    _, some, *_ = prepared(talks, moonshine).batch(np.arange(6)).tensors
    assert some is not None and (real.sum(1) > some.sum(1)).any(), "there is silence before some sounds"
    hidden = (together == 0) & real
    assert hidden.any() and (together != 0).any(1).all(), "stretches are hidden, bands are not"


def test_it_is_trained_further(
    talks: Path, moonshine: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path_factory.mktemp("runs")
    monkeypatch.setenv("HEADWAY_CACHE", str(out / "cache"))
    words = ["train.steps=3", "train.warmup=1", "train.eval_every=3", "transcribe.eval_texts=2", "train.lr=1e-3"]
    recipe = load_recipe("transcribe", [f"data.train={talks}", f"model.from={moonshine}", "train.batch=4",
                                        "transcribe.fallback=0", f"out={out}", *words])[1]  # fmt: skip
    folder = train(start("run", recipe), lambda kind, **facts: None).folder
    opened = open_folder(folder)
    assert opened.family is not None and opened.family.name == "moonshine"
    assert json.loads((folder / "preprocessor_config.json").read_text())["feature_extractor_type"].startswith(
        "Wav2Vec2"
    )
    before, after = load(moonshine), load(folder)
    sound = noise(3, 20_000)
    assert after.transcribe(sound, fallback=0).to_dict() != before.transcribe(sound, fallback=0).to_dict()
    found = TranscribePredictor(after).examine(str(talks))
    assert [*found.metrics] == ["wer", "cer"] and found.examples == 12


# --- real weights -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Moonshine tiny, from the package that carries it."""
    if importlib.util.find_spec("moonshine_voice") is None:
        pytest.skip("moonshine-voice is not installed: pip install --no-deps moonshine-voice==0.1.0")
    out = tmp_path_factory.mktemp("tiny") / "moonshine-tiny"
    subprocess.run([sys.executable, str(ROOT / "benchmarks" / "moonshine.py"), str(out)], check=True)
    return out


@pytest.mark.slow
def test_it_hears_what_people_read(tiny: Path) -> None:
    """The second recording is longer than a window: it is cut at a pause, and no word is lost there."""
    spec = importlib.util.find_spec("moonshine_voice")
    assert spec is not None and spec.origin is not None
    files = [Path(spec.origin).parent / "assets" / name for name in READ_ALOUD]
    found = load(tiny).transcribe(files)
    for each, said in zip(found, READ_ALOUD.values(), strict=True):
        assert edits(normalized(each.text, "words").split(), said.split()) <= 2
    assert len(found[0].segments) == 1 and len(found[1].segments) == 2
