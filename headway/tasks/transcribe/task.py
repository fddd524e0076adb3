"""Speech to text: the task, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from headway.config.networks.kinds import AnyConfig
from headway.config.ranges import Range, at_least, within
from headway.config.recipe import DataConfig
from headway.data.files.readers import Flaw
from headway.data.files.rows import BadRows
from headway.errors import DataError, NotFoundError, counted, nearest
from headway.tasks.base import FineTuning, Json, Task, Tries
from headway.tasks.inputs import INPUT, Item, parsed, raw_rows, reject
from headway.tasks.seq2seq.task import OutputSettings
from headway.tasks.transcribe.subtitles import FORMATS

SPOKEN = "spoken:"
"""`spoken:ma-ti-so` are syllables that headway speaks, to try a model with."""
MOST_SPOKEN = 100


@dataclass(frozen=True, kw_only=True)
class Settings(OutputSettings):
    """Section `transcribe` of a recipe."""

    beam: int = 1
    """Beam width; 1 takes the likeliest token each time."""
    seconds: float = 30.0
    """Seconds of sound that the encoder of a new model reads at once; shorter sounds are padded to it."""
    mels: Literal[80, 128] = 80
    """Bands of the spectrogram of a new model."""
    language: str = ""
    """The language that is spoken, by its code or name; empty: the model detects it."""
    translate: bool = False
    """Whether a model of many languages writes English, whatever is spoken."""
    timestamps: bool = False
    """Whether the model writes when each sentence begins and ends; models that headway trains do not."""
    windows: Literal["sequential", "fixed"] = "sequential"
    """How a long sound is read. sequential: each window begins where the last sentence ended, which needs timestamps;
    fixed: windows without gaps, many at once, which is faster and may cut a word."""
    previous_text: bool = True
    """Whether the decoder reads the text of the windows before."""
    prompt: str = ""
    """A text to read as if it had been said before, such as names that will occur."""
    temperature: float = 0.0
    """The first temperature to try; 0 takes the likeliest tokens."""
    fallback: float = 0.2
    """By how much the temperature rises, up to 1, while a text looks wrong; 0: there is one try."""
    compression_ratio: float = 1.35
    """A text looks wrong whose token ids zlib makes smaller by more than this factor: it repeats itself; 0 is off."""
    log_probability: float = -1.0
    """A text looks wrong whose tokens have a lower log-probability than this, on average."""
    no_speech: float = 0.6
    """An unlikely text is dropped where the probability that nobody speaks is above this; 1 is off."""
    seed: int = 0
    """Seed of texts that are sampled."""
    metric: Literal["wer", "cer"] = "wer"
    """The error rate that selects the best checkpoint: of words, or of letters."""
    normalization: Literal["words", "none"] = "words"
    """How texts are compared. words: in lower case, without punctuation; none: as they are."""

    def __post_init__(self) -> None:
        self.check_output("transcribe")
        within("transcribe", self, Range(0.1, 60), "seconds")
        within("transcribe", self, Range(0, 1), "temperature", "no_speech")
        at_least("transcribe", self, fallback=0, compression_ratio=0)


@dataclass(frozen=True, slots=True)
class SoundExample:
    """A sound to transcribe: it is decoded when it is used."""

    sound: Any
    """A path, the bytes of a file, samples, or samples and their rate."""
    name: str = ""
    start: float = 0.0
    end: float | None = None
    """Seconds; None: to the end."""


def example_of(sound: Any, number: int) -> SoundExample:
    """A sound that Python hands in: a path, bytes, samples, or a pair of samples and their rate."""
    if isinstance(sound, str | Path):
        if not Path(sound).is_file():
            raise NotFoundError("F001", f"no such file: {sound}")
        return SoundExample(str(sound), str(sound))
    if sound is None or isinstance(sound, bool | int | float):
        raise DataError("D001", f"sound {number}: expected a path, bytes, samples, or samples and their rate")
    return SoundExample(sound, f"sound {number}")


def spoken_sound(text: str) -> Any:
    """Syllables that headway speaks, written with hyphens between them."""
    from headway.data.sounds.decode import RATE
    from headway.data.synthetic.sounds import SYLLABLES, speak

    said = text.split("-")
    if wrong := [each for each in said if each not in SYLLABLES]:
        what = f"headway does not speak {wrong[0][:40]!r}{nearest(wrong[0], SYLLABLES)}"
        raise DataError("D001", what, f"it speaks {', '.join(SYLLABLES[:6])} … with hyphens between them")
    return speak(said[:MOST_SPOKEN], seed=1, rate=RATE).samples, RATE


class Transcribe(Task):
    """The words that are spoken in a sound."""

    name, title, noun = "transcribe", "speech recognition", "speech recogniser"
    pipeline_tag = "automatic-speech-recognition"
    takes = "sound"
    Settings = Settings
    tries = Tries("spoken:ma-ti-so", own="talk.wav", request={"input": "spoken:ma-ti-so"})
    made_up = "syllables that headway speaks, with their text"
    options = frozenset({"beam", "language", "words", "format"})
    formats = FORMATS
    predicts_tokens = True
    fine_tuning = FineTuning(lr=1e-5, epochs=(2, 10), keep_best=True)
    training = "headway.tasks.transcribe.training:TranscribeTraining"
    predictor = "headway.tasks.transcribe.predict:TranscribePredictor"

    def parse(self, raw: Mapping[str, Any]) -> SoundExample:
        """A path is one of this machine."""
        return self._parse(raw, Path())

    def parse_request(self, raw: Mapping[str, Any]) -> SoundExample:
        """Base64 only: a client must not read files of the server."""
        return self._parse(raw, None)

    def _parse(self, raw: Mapping[str, Any], folder: Path | None) -> SoundExample:
        from headway.data.sounds.rows import SOUND_COLUMNS, parse_sound

        value = next((raw[name] for name in (INPUT, *SOUND_COLUMNS) if raw.get(name) is not None), None)
        made_up = isinstance(value, str) and value.startswith(SPOKEN)
        sound = spoken_sound(str(value).removeprefix(SPOKEN)) if made_up else parse_sound(value, folder)
        named = isinstance(value, str) and not isinstance(sound, bytes)
        return SoundExample(sound, str(value) if named else "")

    def echo(self, example: SoundExample) -> Json:
        return {"sound": example.name} if example.name else {}

    def inputs(
        self, source: str | BinaryIO, data: DataConfig, bad: BadRows, *, firm: bool = False, context: str | None = None
    ) -> Iterator[Item]:
        """Sounds of a folder or a table, or a list of paths in a text file or a pipe."""
        from headway.data.files.locate import file_format
        from headway.data.sounds.rows import SUFFIXES, read_rows

        if not isinstance(source, str) or (
            Path(source).is_file()
            and file_format(source)[0] == "text"
            and Path(source).suffix.lower() not in SUFFIXES
        ):
            yield from parsed(raw_rows(source), self.parse, bad)
            return
        for row in read_rows(source, data):
            if isinstance(row, Flaw):
                reject(row, bad)
                continue
            name = row.sound if isinstance(row.sound, str) else row.shown
            more = {"text": row.text} if row.text else {}
            yield Item(SoundExample(row.sound, name, row.start, row.end), row.file, row.line, more)

    def files(self, spec: str) -> list[Path]:
        from headway.data.sounds.rows import sound_files

        return sound_files(spec)

    def left_out(self, spec: str) -> str:
        from headway.data.sounds.rows import other_files

        names = other_files(spec)
        return f"{counted(len(names), 'files')} left out, no sounds: {', '.join(names[:3])}" if names else ""

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        frames = getattr(config.source, "kind", "") == "frames"
        return config.kind == "encoder-decoder" and config.lm is not None and frames

    def render(self, found: Sequence[tuple[SoundExample, Json]], *, colours: bool) -> Iterator[str]:
        for example, result in found:
            yield f"{example.name}: {result['text']}" if len(found) > 1 else str(result["text"])
