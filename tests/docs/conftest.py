"""The commands and Python blocks of README.md and docs/, and a folder of small models and files in which they run."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from headway.cli import main
from headway.data.images.png import png
from headway.data.sounds.wav import wav_bytes
from headway.data.synthetic.pictures import make_pictures
from headway.data.synthetic.series import make_table
from headway.data.synthetic.sounds import syllables, tones
from headway.data.synthetic.systems import SYSTEMS, simulate
from headway.data.synthetic.texts.errands import make_errands
from headway.hub.vectors.file import write_vectors
from headway.tasks import registry
from tests.tasks.transcribe.conftest import make_folder as make_whisper
from tests.tasks.transcribe.conftest import make_moonshine

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")))
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:[A-Z_]+=\S+ )*(?:headway|python3?|pip|make|curl|docker|git|cd|\.) ")
SHELL = ("", "sh", "console")
INLINE = re.compile(r"(?<!`)`(headway [^`]+)`(?!`)")

TASKS = {
    "lm": "lm", "chat": "chat", "mlm": "mlm", "classify": "classify", "tag": "tag", "answer": "answer",
    "embed": "embed", "images": "images", "dino": "dino", "diffusion": "diffusion", "contrastive": "contrastive",
    "caption": "caption", "seq2seq": "translate", "task": "parity", "audio_classification": "audio_classification",
    "transcribe": "transcribe", "fusion": "fusion", "forecast": "forecast", "dynamics": "dynamics", "graph": "graph",
    "word2vec": "word2vec", "memory": "memory",
}  # fmt: skip
"""Page → the recipe whose run is `last` there; `lm` on other pages."""
NAMED = "classify", "tag", "answer", "translate", "images", "diffusion", "transcribe", "forecast", "graph"
"""Recipes whose runs pages name."""


@dataclass(frozen=True)
class Block:
    """A Python block or a shell command, as a page has it."""

    page: str
    line: int
    text: str

    @property
    def id(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def words(self) -> list[str]:
        """The words of a command, without assignments before it and without a redirection after it."""
        words = shlex.split(self.text)
        while re.match(r"[A-Z_]+=", words[0]):
            words = words[1:]
        return words[: words.index(">")] if ">" in words else words

    @property
    def recipe(self) -> str:
        """The recipe whose run is `last` for it: one that it names as NAME-0001 or by a file, or that of its page."""
        named = re.search(
            r"\b(classify|tag|answer|translate|images|diffusion|transcribe|forecast|graph)-0001|\b(more)\.csv",
            self.text,
        )
        if named:
            return named[1] or "classify"
        return TASKS.get(Path(self.page).stem, "lm")


def _without_remark(line: str) -> str:
    """A command without the explanation that follows it: after two spaces or ` #`, outside of quotes."""
    quote = ""
    for place, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif line.startswith("  ", place) or line.startswith(" #", place):
            return line[:place]
    return line


def _lines(code: str, language: str) -> Iterator[tuple[int, str]]:
    """Commands of a block with their lines. Where some lines begin with `$ `, the others are what they print.

    In a block that is marked as shell every line is a command; in one without a mark, those that begin like one.
    """
    lines = code.split("\n")
    prompted = any(line.startswith("$ ") for line in lines)
    number = 0
    while number < len(lines):
        first, line = number, lines[number]
        while line.endswith("\\"):
            number += 1
            line = line[:-1].rstrip() + " " + lines[number].strip()
        number += 1
        if not prompted or line.startswith("$ "):
            line = _without_remark(line.removeprefix("$ "))
            if COMMAND.match(line + " ") or (language and line.strip() and not line.startswith("#")):
                yield first, line


@cache
def blocks(kind: str) -> list[Block]:
    """All commands (`shell`), Python blocks (`python`) or commands within sentences (`inline`)."""
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        if kind == "inline":
            prose = FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
            spans = [(match.start(), " ".join(match[1].split())) for match in INLINE.finditer(prose)]
            found += [Block(page, prose.count("\n", 0, start) + 1, span) for start, span in spans]
            continue
        for match in FENCE.finditer(text):
            first = text.count("\n", 0, match.start()) + 2
            if kind == "shell" and match[1] in SHELL:
                found += [Block(page, first + number, line) for number, line in _lines(match[2], match[1])]
            elif kind == match[1] and "--8<--" not in match[2]:
                found.append(Block(page, first, match[2]))
    return found


# --- the folder

SMALL = ("model.depth=1", "model.width=16", "model.heads=2")
QUICK = (
    "train.steps=2",
    "train.batch=4",
    "train.warmup=1",
    "train.eval_every=2",
    "train.save_every=2",
    "data.length=48",
)
GENERATED = ("seq2seq.eval_texts=2", "seq2seq.max_new_tokens=6", "seq2seq.beam=2")
STANDS_FOR = {
    "smollm2": "chat", "org/name": "lm", "./my-model": "lm", "./large": "lm", "./small": "lm",
    "sentence-transformers/all-MiniLM-L6-v2": "mlm", "bert-base-uncased": "mlm", "./encoder": "mlm", "M": "mlm",
    "runs/mlm-0001": "mlm", "google-t5/t5-small": "translate", "google/vit-base-patch16-224": "images",
    "runs/dino-0001": "dino", "openai/clip-vit-base-patch32": "contrastive",
}  # fmt: skip
"""A model that the pages name → the recipe whose small run takes its place."""

SPEECH = {"openai/whisper-tiny": make_whisper, "UsefulSensors/moonshine-tiny": make_moonshine}
"""Models that the pages name, for which folders with random weights stand."""
DATA = {
    "lm": "book.txt", "mlm": "book.txt", "chat": "talks.jsonl", "classify": "reviews.csv", "tag": "train.conll",
    "answer": "questions.jsonl", "embed": "pairs.csv data.text=question data.pair=answer", "translate": "a.en,a.de",
    "images": "photos", "dino": "photos", "contrastive": "captioned", "caption": "captioned",
    "audio_classification": "clips", "transcribe": "talks", "fusion": "pairs_of_both.csv",
}  # fmt: skip
"""Recipe → what its small run is trained on; parity makes up its data."""

REVIEWS = [("a dull film", "negative"), ("a moving film", "positive"), ("a thin plot", "negative")]
PAIRS = [("who cooks rice", "the cook boils rice"), ("where is the dog", "the dog is in the garden")]
CONLL = "Anna B-PER\nmet O\nBoris B-PER\nin O\nOslo B-LOC\n\nit O\nrained O\n\n"
STORY = "anna lives in oslo . boris lives in bergen ."


def write_files(folder: Path) -> None:
    """The files that the pages name, small."""
    book = (
        "The import statement finds a module. It binds a name. The small dogs did not see a bird in the garden.\n" * 40
    )
    for name in ("book.txt", "other.txt", "notes.txt"):
        (folder / name).write_text(book)
    (folder / "prompts.txt").write_text("The import\ndef\n")
    (folder / "story.txt").write_text(STORY)
    rows = [f"{text},{label}\n" for text, label in REVIEWS * 10]
    for name, head in (("reviews.csv", "body,label"), ("more.csv", "body,label"), ("mail.csv", "body,folder")):
        (folder / name).write_text("".join([f"{head}\n", *rows]))
    asked = [f"{a},{b},{number % 2}\n" for number, (a, b) in enumerate(PAIRS * 10)]
    (folder / "pairs.csv").write_text("".join(["question,answer,right\n", *asked]))
    for name in ("train.conll", "dev.conll", "test.conll"):
        (folder / name).write_text(CONLL * 10)
    question = {"question": "where does anna live ?", "answers": {"text": ["oslo"], "answer_start": [14]}}
    talk = {"messages": [{"role": "user", "content": "spell cat"}, {"role": "assistant", "content": "c a t"}]}
    quiz = {"question": "Which is a river?", "choices": ["Rhine", "Oslo"], "answer": 0}
    paper = {"article": "the small dogs did not see a bird in the garden .", "highlights": "dogs saw no bird ."}
    for name, row in (("questions", question), ("talks", talk), ("quiz", quiz), ("papers", paper)):
        rows = [row | ({"context": STORY + str(number)} if name == "questions" else {}) for number in range(20)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    for name, line in (("a.en", "a small dog runs .\n"), ("a.de", "ein kleiner hund rennt .\n")):
        (folder / name).write_text(line * 20)
    write_photos(folder)
    write_clips(folder)
    write_talks(folder)
    write_tables(folder)
    write_graphs(folder)
    write_words(folder)
    write_stories(folder)
    (folder / "recording.raw").write_bytes(bytes(range(256)) * 20)
    for name in ("zeros", "counts"):
        (folder / "files" / name).mkdir(parents=True)
        (folder / "files" / name / "1.bin").write_bytes(bytes(2000) if name == "zeros" else bytes(range(256)) * 8)
    (folder / "logs").mkdir()
    with gzip.open(folder / "logs" / "one.jsonl.gz", "wt") as file:
        file.write("".join(json.dumps({"message": line}) + "\n" for line in book.splitlines()))


def write_photos(folder: Path) -> None:
    """Photos in a folder for each class, and a table of them."""
    lines, told = ["path,animal"], ["file_name,caption"]
    (folder / "captioned").mkdir()
    for number, picture in enumerate(make_pictures(12, kinds=("circle", "ring"))):
        path = folder / "photos" / ("dog" if number % 2 else "cat") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(picture.pixels.transpose(1, 2, 0)))
        lines.append(f"{path.relative_to(folder)},{path.parent.name}")
        shutil.copyfile(path, folder / "captioned" / path.name)
        told.append(f"{path.name},{picture.caption}")
    (folder / "photo.png").write_bytes(png(picture.pixels.transpose(1, 2, 0)))
    (folder / "photos.csv").write_text("\n".join([*lines, ""]))
    (folder / "captioned" / "metadata.csv").write_text("\n".join([*told, ""]))


def write_clips(folder: Path) -> None:
    """Sounds in a folder for each class, and a table of them."""
    lines = ["file,bird"]
    for number, tone in enumerate(tones(12, kinds=("rising", "noise"), seconds=0.4)):
        path = folder / "clips" / ("dog" if number % 2 else "cat") / f"{number}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wav_bytes(tone.samples, tone.rate))
        lines.append(f"{path.relative_to(folder)},{path.parent.name}")
    (folder / "clip.wav").write_bytes(path.read_bytes())
    (folder / "clips.csv").write_text("\n".join([*lines, ""]))
    both = [f"photos/{kind}/{i}.png,clips/{kind}/{i}.wav,{kind}" for i in range(12) for kind in [("cat", "dog")[i % 2]]]
    (folder / "pairs_of_both.csv").write_text("\n".join(["image,sound,label", *both, ""]))


def write_talks(folder: Path) -> None:
    """Sounds with their texts in a folder, and a table of them."""
    lines, told = ["path,sentence"], ["file_name,transcription"]
    (folder / "talks").mkdir()
    for number, spoken in enumerate(syllables(12, words=(1, 1))):
        raw = wav_bytes(spoken.samples, spoken.rate)
        (folder / "talks" / f"{number}.wav").write_bytes(raw)
        lines.append(f"talks/{number}.wav,{spoken.text}")
        told.append(f"{number}.wav,{spoken.text}")
    for name in ("talk.wav", "interview.wav"):
        (folder / name).write_bytes(raw)
    (folder / "talks.csv").write_text("\n".join([*lines, ""]))
    (folder / "talks" / "metadata.csv").write_text("\n".join([*told, ""]))


def write_tables(folder: Path) -> None:
    """Tables of numbers over time, and states of a system."""
    hours, states = make_table(600), simulate(SYSTEMS["lorenz"], 1, 80, 0)[0]
    for name in ("history", "recent", "later"):
        rows = zip(hours.clock.shown(hours.times), hours.values.tolist(), strict=True)
        lines = [",".join(map(str, [when, *row])) for when, row in rows]
        (folder / f"{name}.csv").write_text("\n".join([",".join(["date", *hours.columns]), *lines, ""]))
    lines = [f"{at / 20},{x},{y},{z}" for at, (x, y, z) in enumerate(states.tolist())]
    (folder / "states.csv").write_text("\n".join(["t,x,y,z", *lines, ""]))


def write_graphs(folder: Path) -> None:
    """Tables of one graph and of several, a collection, and rows with a graph in each."""
    ring = "source,target\n" + "".join(f"{i},{(i + 1) % 20}\n" for i in range(20))
    nodes = "id,tag,label\n" + "".join(f"{i},{'ab'[i % 2]},{'xy'[i % 2]}\n" for i in range(20))
    for place in (folder, folder / "papers"):
        place.mkdir(exist_ok=True)
        (place / "nodes.csv").write_text(nodes)
        (place / "edges.csv").write_text(ring)
    (folder / "molecules").mkdir()
    atoms = [f"{g},{g}-{i},C\n" for g in range(20) for i in range(3)]
    (folder / "molecules" / "nodes.csv").write_text("".join(["graph,id,tag\n", *atoms]))
    bonds = [f"{g}-0,{g}-{1 + g % 2}\n" for g in range(20)]
    (folder / "molecules" / "edges.csv").write_text("".join(["source,target\n", *bonds]))
    (folder / "molecules" / "graphs.csv").write_text("".join(["id,label\n", *(f"{g},{g % 2}\n" for g in range(20))]))
    (folder / "MUTAG").mkdir()
    parts = {
        "A": "".join(f"{2 * g + 1}, {2 * g + 2}\n" for g in range(20)),
        "graph_indicator": "".join(f"{1 + i // 2}\n" for i in range(40)),
        "graph_labels": "1\n-1\n" * 10,
    }
    for name, text in parts.items():
        (folder / "MUTAG" / f"MUTAG_{name}.txt").write_text(text)
    rows = ({"graph": f"a:marked b:marked{' a-b' * (i % 2)}", "label": ["no path", "1 step"][i % 2]} for i in range(20))
    (folder / "graphs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_words(folder: Path) -> None:
    """Words, a corpus, analogies, and vectors."""
    (folder / "words.txt").write_text("function\nclass\n")
    (folder / "corpus.txt.gz").write_bytes(gzip.compress(b"the dog saw a cat and the cat saw a dog .\n" * 100))
    (folder / "questions-words.txt").write_text(": plural\nfunction functions class classes\n")
    vectors = np.eye(3, 100, dtype=np.float32)
    write_vectors(folder / "vectors.bin", ["the", "paris", "dog"], vectors, binary=True)


def write_stories(folder: Path) -> None:
    """Stories with questions: bAbI's files, and rows."""
    stories = make_errands(20)
    rows = [{"story": story.told, "question": story.question, "answer": story.label} for story in stories]
    for name in ("stories", "asked"):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = "".join(
        f"1 {name} went to the garden.\n2 Boris left.\n3 Where is {name}?\tgarden\t1\n4 Who left?\tBoris\t2\n"
        for name in ("Anna", "Clara", "David", "Emma")
    )
    for name in ("qa1_one", "qa2_two"):
        for part in ("train", "test"):
            path = folder / "babi" / "en" / f"{name}_{part}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(told)


class Workspace:
    """Folders with the files of the pages, each with one small run, trained when it is first asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, recipe: str) -> Path:
        folder = self.root / recipe
        if not folder.exists():
            folder.mkdir()
            write_files(folder)
            data = f"data.train={DATA[recipe]}".split() if recipe in DATA else []
            with chdir(folder):
                words = [*data, *SMALL, *QUICK, *(GENERATED if recipe == "translate" else ())]
                assert call(["train", recipe, *words, "-q"]) == 0
        return folder

    def model(self, name: str) -> str:
        """The path of the small run that stands for a model of the pages; other words as they are."""
        if name in SPEECH:
            folder = self.root / name.partition("/")[2]
            return str(folder if folder.exists() else SPEECH[name](folder, 1))
        if name not in STANDS_FOR:
            return name
        recipe = STANDS_FOR[name]
        return str(self.folder(recipe) / "runs" / f"{recipe}-0001")

    def copy(self, recipe: str, place: Path) -> Path:
        """A copy that a command may change."""
        return shutil.copytree(self.folder(recipe), place / "work")


def call(words: list[str]) -> int:
    """The exit code of `headway` with these words, in this process."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    return int(caught.value.code or 0)


@pytest.fixture(scope="session")
def toy() -> Iterator[None]:
    """The package of tests/toy, installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tests" / "toy"))
        registry._found.cache_clear()
        yield
    registry._found.cache_clear()
    registry.get_task.cache_clear()


@pytest.fixture(scope="session")
def workspace(toy: None, own_cache: None, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("pages"))
