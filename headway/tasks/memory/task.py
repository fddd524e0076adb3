"""Questions about stories: the task, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from headway.config.networks.kinds import AnyConfig
from headway.config.networks.memory import MemoryConfig
from headway.config.ranges import Range, at_least, conflict, shares, within
from headway.config.recipe import DataConfig
from headway.data.datasets.stories import (
    ANSWER,
    KIND,
    QUESTION,
    STORY,
    Story,
    is_numbered,
    parse_story,
    read_stories,
    sentences_of,
    stories_of,
    story_files,
)
from headway.data.files.locate import find_files
from headway.data.files.readers import Flaw, Row
from headway.data.files.rows import BadRows
from headway.errors import DataError, HeadwayError
from headway.jsonfile import show
from headway.tasks.base import Json, Suitability, Task, Tries
from headway.tasks.inputs import INPUT, Item, parsed, raw_rows, reject

if TYPE_CHECKING:
    from headway.data.profile.survey import Survey

MOST_LETTERS = 200_000
"""Characters of a story in a request."""
BAR = 6
"""Letters of a bar as wide as 100 %."""
SENTENCE = 56


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Section `memory` of a recipe."""

    network: Literal["memory", "transformer"] = "memory"
    """memory: an end-to-end memory network (Sukhbaatar et al. 2015), with model.width; transformer: an encoder over the
    words of story and question, with all settings of `model`."""
    hops: int = 3
    """Reads of the memory, one after another."""
    memories: int = 50
    """The last so many sentences of a story are read."""
    tying: Literal["adjacent", "layerwise"] = "adjacent"
    """adjacent: what a hop reads is what the next one looks for; layerwise: all hops share their embeddings, with a
    linear map between them."""
    position_encoding: bool = True
    """Words of a sentence are weighted by their places; false: a sentence is a bag of words."""
    temporal_encoding: bool = True
    """A sentence has a vector for how long ago it was."""
    noise: float = 0.1
    """Training puts from none to this share of empty memories, rounded up, among those of a story, so that ages are not
    learned by heart."""
    linear_start: float = 0.0
    """Hops have no softmax until the validation loss stops falling, or this share of the budget is spent; 0: they have
    one from the start."""
    relu: float = 0.0
    """Share of the units that are rectified after each hop."""

    def __post_init__(self) -> None:
        at_least("memory", self, hops=1, memories=1)
        shares("memory", self, "noise")
        within("memory", self, Range(0, 1), "linear_start", "relu")
        if self.network == "transformer":
            if self.linear_start:
                why = "a transformer has its softmax from the start"
                raise conflict(f"memory.linear_start = {self.linear_start}", "memory.network = transformer", why)
            if self.relu:
                why = "a transformer's feed-forward layers have model.activation"
                raise conflict(f"memory.relu = {self.relu}", "memory.network = transformer", why)


class Memory(Task):
    """Answers to questions about stories, and which sentences were looked at."""

    name, title, noun = "memory", "questions about stories", "memory model"
    takes = "story"
    Settings = Settings
    tries = Tries(
        '"Anna took the milk. Anna went to the garden. Where is the milk?"',
        own='--story FILE "…"',
        request={"input": {STORY: "Anna took the milk. Anna went to the garden.", QUESTION: "Where is the milk?"}},
    )
    made_up = "made-up stories of who carries what where"
    options = frozenset({"top", "story"})
    training = "headway.tasks.memory.training:MemoryTraining"
    predictor = "headway.tasks.memory.predict:MemoryPredictor"

    def parse(self, raw: Mapping[str, Any]) -> Story:
        """A row has `story` and `question`; in an `input` alone, the last sentence is the question."""
        given = raw.get(INPUT)
        if isinstance(given, Mapping):
            return self.parse(given)
        values = {QUESTION: given, **raw}
        if STORY not in raw and isinstance(given, str):
            *told, asked = sentences_of(given) or ("",)
            if not told:
                where = "before the question, or with --story FILE"
                raise DataError("D001", f"{show(given)[:60]}: a question without a story", f"tell the story {where}")
            values = {STORY: told, QUESTION: asked}
        found = parse_story(Row(values, "", 0))
        if isinstance(found, Flaw):
            raise DataError("D001", f"{found.column}: {found.reason}")
        return found

    def parse_request(self, raw: Mapping[str, Any]) -> Story:
        story = self.parse(raw)
        if (letters := len(story.shown)) > MOST_LETTERS:
            raise DataError("D001", f"a story of {letters:,} characters; the limit is {MOST_LETTERS:,}")
        return story

    def echo(self, example: Story) -> Json:
        return {QUESTION: example.question}

    def inputs(
        self, source: str | BinaryIO, data: DataConfig, bad: BadRows, *, firm: bool = False, context: str | None = None
    ) -> Iterator[Item]:
        """bAbI's numbered lines, rows with story and question, or lines that hold both."""
        if not isinstance(source, str):
            yield from parsed(raw_rows(source), self.parse, bad)
            return
        for path in find_files(source):
            if not is_numbered(path):
                yield from parsed(raw_rows(str(path)), self.parse, bad)
                continue
            for found in stories_of(path):
                if isinstance(found, Flaw):
                    reject(found, bad)
                else:
                    yield Item(found, found.file, found.line, {ANSWER: found.label, KIND: found.kind})

    def files(self, spec: str) -> list[Path]:
        return find_files(spec)

    def count(self, data: DataConfig) -> int | None:
        try:
            return len(read_stories(story_files(data.train, "train"), data.train, BadRows("skip")))
        except HeadwayError:  # training will say why
            return None

    def bad_rows(self, source: str, data: DataConfig, bad: BadRows) -> None:
        read_stories(story_files(source), source, bad)

    def suits(self, survey: Survey, rows: Sequence[Row]) -> Suitability:
        if is_numbered(find_files(survey.spec)[0]):
            return Suitability(0.97)
        told = rows and all({STORY, QUESTION, ANSWER} <= row.values.keys() for row in rows)
        return Suitability(0.96 if told else 0.0)

    def reads(self, rows: Sequence[Row]) -> bool:
        return False

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        return isinstance(config, MemoryConfig)

    def render(self, found: Sequence[tuple[Story, Json]], *, colours: bool) -> Iterator[str]:
        for story, result in found:
            if len(found) > 1:
                yield story.question
            for each in result["best"]:
                yield f"{each['probability']:6.1%}  {each['answer']}"
            sentences = result["sentences"]
            if not sentences or not sentences[0]["hops"]:
                continue
            wide = min(SENTENCE, max(len(each["text"]) for each in sentences))
            hops = range(1, len(sentences[0]["hops"]) + 1)
            yield (" " * wide + "".join(f"  {f'hop {hop}':<{BAR + 5}}" for hop in hops)).rstrip()
            for each in sentences:
                text = each["text"] if len(each["text"]) <= wide else each["text"][: wide - 1] + "…"
                yield f"{text:<{wide}}" + "".join(f"  {bar(share)}" for share in each["hops"])


def bar(share: float) -> str:
    """A share as a bar and in percent; where training ended without a softmax, weights are no shares."""
    filled = round(BAR * min(max(share, 0.0), 1.0))
    return f"{'█' * filled:<{BAR}}{share:5.0%}"
