"""What `headway data` recommends works as pasted: training, evaluation and `run --file` read the columns it named."""

from __future__ import annotations

import csv
import io
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headway.api.dataset import next_of_pairs, next_step, profile
from headway.config.recipe import DataConfig
from headway.data.datasets.labeled import read_labeled
from headway.data.files.rows import BadRows, documents
from headway.data.profile.pairs import survey_pairs
from headway.data.profile.survey import survey
from headway.tasks.registry import get_task

WORDS = {
    "en": ["the", "plot", "was", "dull", "but", "music", "and", "light", "made", "our", "evening", "worth", "it"],
    "de": ["der", "Film", "war", "lang,", "aber", "die", "Musik;", "das", "Licht", "größer", "–", "schön"],
    "zh": ["这部电影很好看", "但是音乐不好", "我们喜欢灯光", "结尾太长了"],
    "ru": ["фильм", "был", "скучным", "но", "музыка", "и", "свет", "сделали", "вечер", "хорошим"],
}
TEXT_NAMES = ["text", "Bewertung", "评论", "отзыв", "comment", "What did you think?", "abstract", "Meinung der Gäste"]
LABEL_NAMES = ["label", "Kategorie", "class", "类别", "sentiment", "Note", "kind of review", "тип"]
OTHER_NAMES = ["id", "Nr.", "url", "date", "price", "用户", "title", "user_id", "länge"]
LABELS = [["good", "bad"], ["0", "1"], ["sehr gut", "gut", "schlecht"], ["好", "坏"], ["5", "4", "3", "2", "1"]]
ROWS = 60


@dataclass
class Made:
    """A file, and what stands in it."""

    name: str
    raw: bytes
    texts: list[str]
    text: str
    """The name of the column."""
    labels: list[str] | None


def cell(draw: random.Random, kind: str, i: int) -> str:
    return {
        "number": lambda: str(1000 + i),
        "uuid": lambda: f"{draw.randrange(16**12):012x}-{draw.randrange(16**20):020x}-{i}",
        "code": lambda: f"R-{i:05}",
        "url": lambda: f"https://example.org/{draw.randrange(10**9)}/page?number={i}&long=yes_and_longer_than_texts",
        "date": lambda: f"2024-01-{1 + i % 28:02}",
        "price": lambda: f"{draw.random() * 100:.2f}",
        "empty": lambda: "",
        "words": lambda: draw.choice(WORDS["en"]) + str(i),
    }[kind]()


def made(seed: int) -> Made:
    draw = random.Random(seed)
    words = WORDS[draw.choice(list(WORDS))]
    quoted = draw.random() < 0.5
    delimiter = draw.choice([",", ";", "\t"])
    join = "" if words is WORDS["zh"] else " "
    texts = [join.join(draw.choices(words, k=draw.randint(6, 16))) + f" {i}" for i in range(ROWS)]
    if quoted and delimiter != "\t":
        texts = [text.replace(" ", "\n", 1) if i % 5 == 0 else f'{text}, "so"' for i, text in enumerate(texts)]
    if delimiter == ";":
        texts = [text.replace(",", " ") for text in texts]
    columns = {draw.choice(TEXT_NAMES): texts}
    labels = None
    if draw.random() < 0.7:
        some = draw.choice(LABELS)
        labels = [draw.choice(some) for _ in range(ROWS - len(some))] + some
        columns[draw.choice(LABEL_NAMES)] = labels
    kinds = draw.sample(["number", "uuid", "code", "url", "date", "price", "empty", "words"], k=draw.randint(0, 3))
    for kind, name in zip(kinds, draw.sample(OTHER_NAMES, k=len(kinds)), strict=True):
        columns[name] = [cell(draw, kind, i) for i in range(ROWS)]
    order = draw.sample(list(columns), k=len(columns))
    header = draw.random() < 0.8 or (delimiter != "\t" and labels is None) or len(order) == 1
    out = io.StringIO()
    write = csv.writer(out, delimiter=delimiter, lineterminator=draw.choice(["\n", "\r\n"]))
    if delimiter == "\t":
        write = csv.writer(out, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_NONE, quotechar=None)
    if header:
        write.writerow(order)
    write.writerows(zip(*(columns[name] for name in order), strict=True))
    text = next(name for name in columns if columns[name] is texts)
    named = {name: name if header else f"column{i + 1}" for i, name in enumerate(order)}
    encoding = draw.choice(["utf-8", "utf-8-sig", "utf-16"])
    raw = out.getvalue().encode(encoding)
    return Made("x.tsv" if delimiter == "\t" else "x.csv", raw, texts, named[text], labels)


@pytest.mark.parametrize("seed", range(150))
def test_the_recommended_settings_read_the_file(tmp_path: Path, seed: int) -> None:
    file = made(seed)
    path = tmp_path / file.name
    path.write_bytes(file.raw)
    found = profile(str(path), column="", valid="", tokenizer=None, keep=20)
    survey, task = found.survey, found.task
    assert (survey.rows, survey.bad, survey.column) == (ROWS, 0, file.text)
    assert task is not None
    given: dict[str, Any] = dict(word.removeprefix("data.").split("=", 1) for word in found.settings)
    data = DataConfig(**given)
    if task.name == "classify":
        rows = read_labeled(str(path), data, BadRows())
        assert [row.text for row in rows] == file.texts
        assert file.labels is None or [row.label for row in rows] == file.labels
    else:
        assert task.name == "lm" and file.labels is None
        assert [document.text for document in documents(str(path), data.text)] == file.texts
    inputs = get_task("classify").inputs(str(path), data, BadRows())
    assert [item.example.text for item in inputs] == file.texts


@pytest.mark.parametrize("seed", range(0, 150, 3))
def test_without_settings_training_reads_what_the_survey_read_or_asks(tmp_path: Path, seed: int) -> None:
    """Where the survey is sure of the column, no setting is needed."""
    file = made(seed)
    path = tmp_path / file.name
    path.write_bytes(file.raw)
    if survey(str(path)).sure:
        assert [document.text for document in documents(str(path))] == file.texts


ARTICLE = (
    "The council of Halmar met on Monday to talk about the old bridge over the river. Several members said that the "
    "bridge is too narrow for buses, and one of them showed pictures of cars that wait for an hour. After a long "
    "debate the council decided to build a new bridge next year, and to keep the old one for people on foot."
)
GERMAN = "Der Rat von Halmar beschloss am Montag nach langer Debatte, im nächsten Jahr eine neue Brücke zu bauen."
CHINESE = (
    "哈尔马市议会周一开会讨论河上的旧桥。几位议员说桥太窄,公交车过不去,有人还展示了汽车等候一小时的照片。"
    "经过长时间辩论,议会决定明年建一座新桥,旧桥留给行人使用。"
)
PAIRS = {
    "English": (ARTICLE, "Halmar's council decided on Monday to build a new bridge for buses next year.", "summarize"),
    "Chinese": (CHINESE, "议会决定明年建一座新桥,旧桥留给行人。", "summarize"),
    "German": (ARTICLE, GERMAN, "translate"),
    "English to Chinese": (ARTICLE, CHINESE, "translate"),
    "of the same length": (ARTICLE, ARTICLE.replace("Monday", "Tuesday"), "translate"),
}


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("ending", ["jsonl", "files"])
def test_short_texts_of_long_ones_in_their_language_are_summaries(kind: str, ending: str, tmp_path: Path) -> None:
    source, target, recipe = PAIRS[kind]
    if ending == "files":
        for name, text in (("a.src", source), ("a.tgt", target)):
            (tmp_path / name).write_text(f"{text}\n" * 5, encoding="utf-8")
        step = next_of_pairs(survey_pairs(str(tmp_path / "a.src"), str(tmp_path / "a.tgt")), "utf-8")
    else:
        file = tmp_path / "rows.jsonl"
        file.write_text((json.dumps({"id": 1, "source": source, "target": [target]}) + "\n") * 5, encoding="utf-8")
        step = next_step(profile(str(file)), all_shown=True)
    assert step.split()[1:4] == ["headway", "train", recipe]
