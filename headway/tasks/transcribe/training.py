"""TranscribeTraining: sounds in, a text out; the encoder–decoder of translation with another front end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count as counted
from typing import Any

from torch import Tensor

from headway.config.model import SpecialTokens
from headway.config.networks.kinds import AnyConfig
from headway.config.shape import speech_config
from headway.data.batching.batch_sampler import BatchSampler, FixedBatchSampler
from headway.data.batching.permutation import Index, shuffle_samples
from headway.data.files.rows import BadRows
from headway.data.sounds.augment import draw, mask, perturb
from headway.data.sounds.decode import RATE
from headway.data.sounds.store import FULL
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError
from headway.hub.download import resolve
from headway.hub.folder import open_folder
from headway.hub.generation_config import read_generation
from headway.model.model import Model
from headway.progress import track
from headway.tasks.audio.data import file_to_try, read_store
from headway.tasks.backbone import check_context
from headway.tasks.batch import Batch
from headway.tasks.metrics.bootstrap import Evaluation, Metric
from headway.tasks.metrics.chance import unigram_loss
from headway.tasks.metrics.error_rate import error_rate
from headway.tasks.recipe import Recipe
from headway.tasks.seq2seq.writing import WritingTraining, assessed, decoder_tensors, pair_loss, text_tokenizer
from headway.tasks.training import TaskContext
from headway.tasks.transcribe.data import Clips, SpokenData, frames_of, load_spoken, make_clips, spoken
from headway.tasks.transcribe.features import HOP, SoundFeatures, features_of
from headway.tasks.transcribe.prompt import SpeechTokens, read_speech_tokens
from headway.tasks.transcribe.task import Settings, Transcribe
from headway.tasks.transcribe.windows import Recording, Transcriber

PREPROCESSOR = "preprocessor_config.json"
SAMPLES = {
    "feature_extractor_type": "Wav2Vec2FeatureExtractor",
    "feature_size": 1,
    "do_normalize": False,
    "padding_side": "right",
    "padding_value": 0.0,
    "return_attention_mask": True,
}
"""Moonshine's preprocessor_config.json."""
AT_ONCE = 256
"""Sounds that are evaluated in one go."""


@dataclass(frozen=True)
class TranscribeTraining(WritingTraining[Clips]):
    """Sounds and their texts."""

    recipe: Recipe
    data: SpokenData
    tokenizer: Tokenizer
    speech: SpeechTokens
    features: SoundFeatures
    bad: BadRows
    _evaluations: Any = field(default_factory=counted)

    @classmethod
    def prepare(cls, context: TaskContext) -> TranscribeTraining:
        recipe, what = context.recipe, context.recipe.model.from_
        features = SoundFeatures(2 * round(recipe.settings.seconds * 50), recipe.settings.mels)
        folder = resolve(what) if what else None
        base = None if folder is None else open_folder(folder).config
        if base is not None:
            check_base(base, what)
            features = features_of(base, recipe.settings.seconds)
        bad = BadRows(recipe.data.bad_rows)
        data = load_spoken(recipe, features.window, bad)
        texts = [row.text for row in data.train[1]]
        made = context.base or context.rank_zero_first(lambda: text_tokenizer(context.folder, recipe.data, texts))
        speech = speech_tokens(made, folder, None if base is None else base.special, recipe)
        return cls(recipe, data, made, speech, features, bad)

    @cached_property
    def train(self) -> Clips:  # type: ignore[override]
        return self._clips(*self.data.train)

    @cached_property
    def valid(self) -> Clips:  # type: ignore[override]
        return self._clips(*self.data.valid)

    def _clips(self, store: Any, rows: Any) -> Clips:
        return make_clips(store, rows, self.tokenizer, self.speech, self.recipe, self.features)

    @property
    def metric(self) -> str:
        return str(self.recipe.settings.metric)

    @property
    def primary_metric(self) -> str:  # type: ignore[override]
        return self.metric if self.writes else "valid"

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]
        return False

    @cached_property
    def chance(self) -> dict[str, float]:
        """An empty text has every word wrong."""
        learned, held_out = (
            [token for ids in part.target.ids for token in ids[part.prompt :]] for part in (self.train, self.valid)
        )
        loss = unigram_loss(learned, held_out, self.tokenizer.vocab_size)
        return {"valid": loss, **({self.metric: 1.0} if self.writes else {})}

    @property
    def static_shapes(self) -> bool:
        return not self.features.raw

    @property
    def facts(self) -> dict[str, Any]:
        train, valid = self.train, self.valid
        return {
            **self.data.about,
            "samples": len(train),
            "tokens": train.positions(range(len(train))) + int(train.target.lengths.sum()),
            "valid_samples": len(valid),
            "valid_tokens": valid.positions(range(len(valid))) + int(valid.target.lengths.sum()),
            "vocab": self.tokenizer.vocab_size,
            "seconds": round(sum(frames_of(train.store, row) for row in train.rows) / 100, 1),
            "cut": int(train.target.truncated.sum() + valid.target.truncated.sum()),
            "length_99": train.target.length_99,
        }

    def config(self, base: AnyConfig | None) -> AnyConfig:
        length, what = self.recipe.data.length, self.recipe.model.from_
        if base is None:
            if self.recipe.settings.timestamps:
                raise ConfigError("C004", "transcribe.timestamps = true needs model.from: a model that has timestamps")
            roles = {role: self.tokenizer.special.get(role) for role in ("pad", "bos", "eos")}
            special = SpecialTokens(**roles, start=self.speech.start)
            window, mels = self.features.window, self.features.mels
            return speech_config(self.recipe.model, window, mels, self.tokenizer.vocab_size, length, special)
        check_base(base, what)
        check_context(base, length, what)
        return base

    @property
    def model_files(self) -> dict[str, Any]:
        """What `transformers` needs to read sounds in the same way."""
        if self.features.raw:
            return {PREPROCESSOR: {**SAMPLES, "sampling_rate": RATE}}
        window = self.features.window
        seconds = window / 100
        return {
            PREPROCESSOR: {
                "feature_extractor_type": "WhisperFeatureExtractor",
                "feature_size": self.features.mels,
                "sampling_rate": RATE,
                "hop_length": RATE // 100,
                "n_fft": RATE // 40,
                "chunk_length": int(seconds) if seconds == int(seconds) else seconds,
                "n_samples": window * RATE // 100,
                "nb_max_frames": window,
                "padding_side": "right",
                "padding_value": 0.0,
                "return_attention_mask": False,
            }
        }

    def plan(self, batch: int) -> BatchSampler:
        return FixedBatchSampler(len(self.train), batch)

    def batch(self, samples: Index) -> Batch:
        """Sounds are changed here, where the spectrograms are made, by threads that run ahead."""
        settings, part = self.recipe.settings, self.train
        rows = shuffle_samples(samples, len(part), self.recipe.seed)
        draws, place = draw(settings, self.recipe.seed, samples)
        pcm, real = part.samples(rows, settings.shift * (place + 1) / 2)
        changed = self.features.compute(perturb(settings, pcm, draws, real))
        if real is None:
            frames = mask(settings, changed, draws)
        else:  # samples have no bands to hide
            share = (real.sum(1) / real.shape[1])[:, None, None]
            frames = mask(replace(settings, mel_masks=0), changed[:, None], draws._replace(times=draws.times * share))
            frames = frames[:, 0]
        inputs, targets, counts = self._read(part, rows)
        return Batch((frames, real, inputs, targets), *counts)

    def wanted(self, batch: Batch) -> Tensor | None:
        return batch.tensors[3]

    def plain_batch(self, part: Clips, rows: Index) -> Batch:
        inputs, targets, counts = self._read(part, rows)
        pcm, real = part.samples(rows)
        return Batch((self.features.compute(pcm.float() / FULL), real, inputs, targets), *counts)

    def _read(self, part: Clips, rows: Index) -> tuple[Tensor, Tensor, tuple[int, int]]:
        """What the decoder reads and what it is to predict; how many targets, and positions of both stacks."""
        labels, said = part.targets(rows, part.longest)
        inputs, targets = decoder_tensors(labels, said, self.speech.start)
        count = int(said.sum())
        return inputs, targets, (count, part.positions(rows) + count)

    @property
    def loss(self) -> Callable[..., Tensor]:
        settings = self.recipe.settings
        return pair_loss(settings.label_smoothing, settings.r_drop)

    def write(self, model: Model, part: Clips) -> list[str]:
        return written(model, self.tokenizer, self.speech, part, self.recipe)

    def quick_metrics(self, texts: Sequence[str], part: Clips) -> list[Metric]:
        return rates(self.recipe.settings, texts, part)

    metrics = quick_metrics

    def assess(self, model: Model, part: Clips) -> Evaluation:
        return evaluate_clips(model, self.tokenizer, self.speech, part, self.recipe, self.bad_tests.count)

    def read_test(self, source: str) -> Clips:
        store = read_store(source, self.recipe.data, RATE, self.bad_tests)
        return self._clips(store, spoken(store, self.features.window, self.bad_tests))

    @cached_property
    def test_part(self) -> Clips | None:
        """Those of data.test, or of the test folder beside the training sounds."""
        return self.read_test(self.data.test) if self.data.test else None

    @property
    def tries(self) -> list[str]:
        return [file_to_try(self.data.valid[1][0], self.recipe.data)]


def check_base(base: AnyConfig, what: str) -> None:
    """Refuse a model.from that does not transcribe."""
    if not Transcribe().fits(base):
        raise ConfigError("C004", f"task transcribe trains models that read sounds, model.from = {what} is none")


def speech_tokens(tokenizer: Tokenizer, folder: Any, special: SpecialTokens | None, recipe: Recipe) -> SpeechTokens:
    """The tokens that are no text: of model.from, or of a new vocabulary."""
    if special is None:
        return SpeechTokens(
            start=tokenizer.special["bos"], end=tokenizer.special["eos"], special=frozenset(tokenizer.special.values())
        )
    if special.start is None:
        raise ConfigError("C004", f"model.from = {recipe.model.from_} does not say which token its decoder starts from")
    found = read_speech_tokens(folder, tokenizer, special.start, special.eos_ids)
    if recipe.settings.timestamps and found.first_timestamp is None:
        raise ConfigError(
            "C004", f"transcribe.timestamps = true, and model.from = {recipe.model.from_} has no timestamps"
        )
    if found.languages and not recipe.settings.language:
        hint = "transcribe.language=en, say: the language of the texts"
        raise ConfigError("C004", f"model.from = {recipe.model.from_} knows many languages: which one is spoken?", hint)
    return found


def evaluation_settings(settings: Settings) -> Settings:
    """One try at each sound, which the encoder reads at once: early in a training every text looks wrong."""
    return replace(
        settings, windows="fixed", temperature=0.0, fallback=0.0, no_speech=1.0, previous_text=False, prompt=""
    )


def written(model: Model, tokenizer: Tokenizer, speech: SpeechTokens, part: Clips, recipe: Recipe) -> list[str]:
    """What the model hears in each sound."""
    settings = evaluation_settings(recipe.settings)
    base = recipe.model.from_
    rules = read_generation(resolve(base)).rules if base else {}
    made = Transcriber(model, speech, settings, rules)
    found = []
    for at in track(range(0, len(part), AT_ONCE), "transcribing", unit="batches"):
        rows = list(range(at, min(at + AT_ONCE, len(part))))
        pcm, real = part.samples(rows)
        signals, window = part.features.compute(pcm.float() / FULL), part.features.window
        if real is None:
            heard = [Recording(each, window) for each in signals]
        else:
            lengths = real.sum(1).tolist()
            heard = [Recording(each[:n], -(-n // HOP)) for each, n in zip(signals, lengths, strict=True)]
        made.transcribe(heard)
        for each in heard:
            tokens = [token for segment in each.segments for token in segment.tokens if speech.is_text(token)]
            found.append(tokenizer.decode(tokens).strip())
    return found


def rates(settings: Settings, texts: Sequence[str], part: Clips) -> list[Metric]:
    """Both error rates, first the one to compare by."""
    names = ("wer", "cer") if settings.metric == "wer" else ("cer", "wer")
    references = [pair.targets[0] for pair in part.pairs]
    return [error_rate(name, texts, references, settings.normalization) for name in names]  # type: ignore[arg-type]


def evaluate_clips(
    model: Model, tokenizer: Tokenizer, speech: SpeechTokens, part: Clips, recipe: Recipe, bad: int = 0
) -> Evaluation:
    """What a model hears, against what is said."""
    texts = written(model, tokenizer, speech, part, recipe)
    found = rates(recipe.settings, texts, part)
    sizes = [len(ids) for ids in part.target.ids]
    return assessed(part.pairs, texts, found, sizes, int(part.target.truncated.sum()), bad)


def evaluate_source(
    model: Model, tokenizer: Tokenizer, speech: SpeechTokens, recipe: Recipe, source: str
) -> Evaluation:
    """On sounds of the user's; without a source, on what the run has not learned from."""
    features, bad = features_of(model.config, recipe.settings.seconds), BadRows(recipe.data.bad_rows)
    window = features.window
    source = source or recipe.data.test or recipe.data.valid
    if source:
        store = read_store(source, recipe.data, RATE, bad)
        held = store, spoken(store, window, bad)
    else:
        held = load_spoken(recipe, window, bad).valid
    part = make_clips(*held, tokenizer, speech, recipe, features)
    return evaluate_clips(model, tokenizer, speech, part, recipe, bad.count)
