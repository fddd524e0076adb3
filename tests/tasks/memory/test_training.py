"""Training on stories: parts, empty memories, linear start, unseen words and answers, hops; `headway run --story`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import headway
from headway.baselines.build import make_model
from headway.baselines.memory import LOWEST, MemoryNetwork
from headway.cli import main
from headway.config.networks.memory import MemoryConfig, StoryConfig
from headway.data.datasets.stories import Story
from headway.data.synthetic.texts.errands import make_errands
from headway.errors import ConfigError, DataError
from headway.tasks.batch import Batch
from headway.tasks.memory.data import collate, hold_out, make_part
from headway.tasks.memory.evaluate import metrics_of
from headway.tasks.memory.predict import memory_model, read_part
from headway.tasks.memory.training import MemoryTraining
from headway.tasks.recipe import Recipe, load_recipe
from headway.tasks.training import TaskContext
from headway.train.run import resume, start, train

SHAPE = ("model.depth=1", "model.width=8", "model.heads=2")
SMALL = ("train.steps=4", "train.batch=4", "train.eval_every=4")
FILE = "1 Ann took the {0}.\n2 Bob ran.\n3 What did Ann take?\t{0}\t1\n4 Cy left.\n5 Who ran?\tBob\t2\n"
SOURCE = StoryConfig(words=("ann", "bob", "ran", "who"), memories=10, longest=3)
CONFIG = MemoryConfig(source=SOURCE, labels=("Ann", "Bob"), width=4)


def recipe(*words: str, shape: Sequence[str] = SHAPE) -> Recipe:
    return load_recipe("memory", [*shape, *SMALL, *words])[1]


def training(*words: str) -> MemoryTraining:
    return MemoryTraining.prepare(TaskContext(recipe(*words), Path()))


def babi(folder: Path, things: str = "abcdefghij", **files: str) -> str:
    texts = {"qa1_take_train": "".join(FILE.format(f"x{thing}") for thing in things), **files}
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
    return f"data.train={folder}"


def run(folder: Path, *words: str, shape: Sequence[str] = SHAPE) -> tuple[Any, list[dict[str, Any]]]:
    log: list[dict[str, Any]] = []
    done = train(
        start("run", recipe(*words, f"out={folder}", shape=shape)),
        lambda kind, **facts: log.append({"event": kind, **facts}),
    )
    return done, log


def test_questions_about_one_story_are_held_out_together() -> None:
    stories = make_errands(300)
    train_on, valid = hold_out(stories)
    firsts = [{story.told[:2] for story in part} for part in (train_on, valid)]
    whole = {id(story) for story in (*train_on, *valid)}
    assert len(whole) == len(stories) and 15 < len(valid) < 45
    together = [(a in valid) == (b in valid) for a, b in pairwise(stories) if b.told[: len(a.told)] == a.told]
    assert len(together) > 100 and all(together) and all(firsts)


def test_parts_of_a_folder_and_answers_that_training_does_not_have(tmp_path: Path) -> None:
    other = FILE.format("xa") + "1 Bob ran.\n2 Who ran?\tCy\t1\n"
    spec = babi(tmp_path, qa1_take_test=other, qa2_more_test=FILE.format("zz"))
    made = training(spec)
    assert made.facts["tasks"] == 1 and made.test_part is not None and len(made.test_part) == 3
    assert {story.kind for story in made.test_part.stories} == {"qa1_take"}, "no task that training does not have"
    assert made.test_part.truth.tolist()[2] == -1
    done, log = run(tmp_path / "out", spec)
    (tested,) = (event for event in log if event["event"] == "test")
    assert tested["error"] >= 1 / 3 and np.isfinite(tested["test"])
    details = json.loads((done.folder / "run" / "evaluation.json").read_text())["details"]
    assert details["unseen_answers"] == 1 and [row["kind"] for row in details["by_task"]] == ["qa1_take"]
    assert len(details["pictures"]) <= 1


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("1 Ann took the yyy.\n2 Who ran?\tBob\t1\n", "line 2: the word 'yyy' was not in training"),
        ("1 Ann took the Ann took the Ann.\n2 Who ran?\tBob\t1\n", "line 2: 7 words, and the longest sentence"),
    ],
)
def test_what_a_model_cannot_read_is_named_before_training(tmp_path: Path, test: str, reason: str) -> None:
    spec = babi(tmp_path, qa1_take_test=test + FILE.format("xa"))
    with pytest.raises(DataError, match=reason):
        assert training(spec).test_part
    made = training(spec, "data.bad_rows=skip")
    assert made.test_part is not None and len(made.test_part) == 2 and made.data.bad.count == 1


def test_only_the_last_sentences_are_remembered_the_last_one_first() -> None:
    told = tuple(f"{a} {b}" for a in ("ann", "bob", "ran", "who") for b in ("ann", "bob", "ran"))
    part = make_part([Story(told, "who ran")], CONFIG)
    inputs, stories = collate(part, np.array([0]), transformer=False)
    found = [part.sentences[part.memories[0, i]].tolist() for i in (0, 9)]
    assert found == [[4, 3], [1, 3]] and stories.memories.shape == (1, 10)
    assert stories.sentences[inputs[0]].tolist() == [4, 3] and not stories.sentences[0].any()


def test_tokens_of_a_transformer_are_the_words_that_are_there() -> None:
    stories = [Story(("ann ran", "bob"), "who"), Story(("bob ran who",), "who ran")]
    part = make_part(stories, CONFIG)
    inputs, made = collate(part, np.array([0, 1]), transformer=True)
    assert made.tokens is not None
    words = made.sentences[torch.cat([inputs[:, None], made.memories], 1)].flatten(1)
    read = [[int(words[row, place]) for place in own if place >= 0] for row, own in enumerate(made.tokens)]
    assert read == [[4, 2, 1, 3], [4, 3, 2, 3, 4]]


def test_empty_memories_make_others_older_and_depend_on_the_sample_alone() -> None:
    stories = [Story(("ann", "bob", "ran", "who ann")[:size], "who") for size in (4, 2, 1) * 200]
    part = make_part(stories, CONFIG)
    keys = np.arange(600, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    whole = collate(part, np.arange(600), transformer=False, noise=0.5, keys=keys)[1]
    alone = collate(part, np.array([7]), transformer=False, noise=0.5, keys=keys[7:8])[1]
    words = [made.sentences[made.memories[row]] for made, row in ((whole, 7), (alone, 0))]
    assert torch.equal(words[0][: len(words[1])].flatten(1)[:, 0], words[1][:, 0])
    empty, moved = [0, 0, 0], 0
    for row in range(600):
        own = whole.memories[row]
        last = int(own.nonzero().max()) + 1
        plain = [part.sentences[s].tolist() for s in part.memories[row] if s]
        assert [whole.sentences[s].tolist() for s in own if s] == plain, "none is lost, and the order stays"
        gaps = last - len(plain)
        assert gaps <= [2, 1, 1][row % 3]
        empty[row % 3] += gaps
        moved += int(own[0] == 0)
    assert 20 < sum(whole.memories[row][0] == 0 for row in range(2, 600, 3)) < 180, (
        "of one sentence every second time one"
    )
    assert 80 < empty[0] < 250 and 30 < empty[1] < 120 and moved > 50, "a gap after the oldest changes nothing"


def test_batches_are_pure_functions_of_their_samples() -> None:
    made = training("train.batch=8")

    def words(batch: Batch, row: int) -> list[list[int]]:
        inputs, sentences, memories = batch.tensors[:3]
        assert inputs is not None and sentences is not None and memories is not None
        numbers = [int(inputs[row]), *memories[row].tolist()]
        while not numbers[-1]:
            numbers.pop()
        return [[word for word in sentences[n].tolist() if word] for n in numbers]

    together, alone = made.batch(np.arange(5, 13)), made.batch(np.array([9]))
    assert words(together, 4) == words(alone, 0)


def test_the_softmax_comes_back_when_the_loss_stops_falling_or_its_share_is_spent() -> None:
    made = training("memory.linear_start=0.5")
    model = make_model(made.config(None))
    assert isinstance(model, MemoryNetwork) and model.linear is not None
    made.after_step(model, 0.49, None)  # type: ignore[arg-type]
    assert model.linear.item() == LOWEST
    for loss, expected in ((2.0, 2.0), (1.5, 1.5), (1.6, 0.0), (1.0, 0.0)):
        made.after_evaluation(model, {"valid": loss})
        assert model.linear.item() == expected
    model.linear.data.fill_(1.0)
    made.after_step(model, 0.5, None)  # type: ignore[arg-type]
    assert model.linear.item() == 0


def test_a_run_that_is_resumed_remembers_that_its_start_was_linear(tmp_path: Path) -> None:
    """The softmax comes back at an evaluation before the checkpoint."""
    words = ("train.steps=8", "train.save_every=4", "train.eval_every=1", "memory.linear_start=1", "train.lr=30")
    done, _ = run(tmp_path, *words)
    folder = shutil.copytree(done.folder, tmp_path / "again")
    for path in (*folder.glob("*.safetensors"), folder / "run" / "log.jsonl"):
        path.unlink()
    middle, last = sorted(path for path in (folder / "run" / "checkpoints").iterdir() if path.is_dir())
    shutil.rmtree(last)
    assert load_file(middle / "model.safetensors")["linear"].item() == 0, "half of its share is left"
    train(resume(folder, lambda path, why: pytest.fail(why)), lambda kind, **facts: None)
    ours, theirs = (headway.load(each).model.state_dict() for each in (folder, done.folder))
    assert theirs["linear"].item() == 0 and all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_averages_of_weights_do_not_go_with_a_linear_start() -> None:
    with pytest.raises(ConfigError, match=r"memory.linear_start = 0.5 conflicts with train.ema"):
        training("memory.linear_start=0.5", "train.ema=0.9")


def test_a_trained_model_goes_on_with_other_stories_of_its_words(tmp_path: Path) -> None:
    done, _ = run(tmp_path / "first", babi(tmp_path))
    (tmp_path / "more_train.txt").write_text(FILE.format("xb") * 5)
    more, _ = run(
        tmp_path / "second", f"data.train={tmp_path / 'more_train.txt'}", f"model.from={done.folder}", shape=()
    )
    assert more.model.config.labels == done.model.config.labels and "linear" not in more.model.state_dict()
    (tmp_path / "new_train.txt").write_text(FILE.format("ball") * 5)
    with pytest.raises(ConfigError, match="does not know the answer 'ball'"):
        run(tmp_path / "third", f"data.train={tmp_path / 'new_train.txt'}", f"model.from={done.folder}", shape=())


def test_errors_are_means_of_tasks() -> None:
    good = np.array([1.0, 1, 0, 1, 1, 1])
    found = metrics_of(good, ["b", "b", "b", "a", "a", "a"])
    assert found == pytest.approx({"error": 1 / 6, "failed": 1, "accuracy": 5 / 6})


def test_hops_of_a_batch_are_those_of_each_story_the_first_sentence_first() -> None:
    model = make_model(CONFIG)
    part = make_part([Story(("ann", "bob ran"), "who"), Story(("bob",), "who ran")], CONFIG)
    read, alone = read_part(memory_model(model), part), read_part(memory_model(model), part, np.array([1]))
    assert [each.shape for each in read.hops] == [(3, 2), (3, 1)] and np.allclose(alone.hops[0], read.hops[1])
    assert all(np.allclose(each.sum(1), 1) for each in read.hops)
    seen: list[torch.Tensor] = []
    inputs, stories = collate(part, np.array([0]), transformer=False)
    model(inputs, stories=stories, hook=lambda name, make: seen.append(make()))
    for own, hop in zip(read.hops[0], seen, strict=True):
        assert own[::-1] == pytest.approx(hop[0].tolist(), rel=1e-6) and own[0] != pytest.approx(own[1], rel=1e-6)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    done, _ = run(tmp_path_factory.mktemp("run"), "train.steps=2")
    return done.folder


@pytest.fixture
def said(model: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            main(["run", str(model), *words, "-q", "--device", "cpu"])
        return (int(caught.value.code or 0), *capfd.readouterr())

    return call


def test_a_story_in_a_file_is_that_before_the_question(
    said: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    story = "Anna took the milk. Anna went to the garden."
    (tmp_path / "story.txt").write_text("1 Anna took the milk.\n2 Anna went to the garden.\n")
    asked = "Where is the milk?"
    ways = [(f"{story} {asked}",), ("--story", story, asked), ("--story", str(tmp_path / "story.txt"), asked)]
    found = [said(*words, "--json") for words in ways]
    assert all(code == 0 for code, _, _ in found) and found[0][1] == found[1][1] == found[2][1]
    result = json.loads(found[0][1])
    assert result["question"] == asked and " ".join(each["text"] for each in result["sentences"]) == story
    assert [len(each["hops"]) for each in result["sentences"]] == [3, 3]
    lines = said(*ways[2], "top=2")[1].splitlines()
    assert len(lines) == 5 and "hop 3" in lines[2] and lines[3].startswith("Anna took the milk.") and "%" in lines[4]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("Where is the milk?",), "a question without a story"),
        (("--story", "Anna went to the garden.", "Where is the mlik?"), 'did you mean "milk"?'),
        (("--story", "no-such-file.txt", "Where is the milk?"), "no such file"),
        (("--story", "Anna took it.", "--file", "x.txt"), "--story does not go with --file"),
    ],
)
def test_questions_that_cannot_be_answered(
    said: Callable[..., tuple[int, str, str]], words: tuple[str, ...], reason: str
) -> None:
    code, _, error = said(*words)
    assert code != 0 and reason in error


@pytest.mark.slow
def test_the_recipe_learns_all_kinds_of_questions(tmp_path: Path) -> None:
    log: list[dict[str, Any]] = []
    words = (f"out={tmp_path}", "train.sample_every=100000")
    train(start("run", load_recipe("memory", words)[1]), lambda kind, **facts: log.append({"event": kind, **facts}))
    last = [event for event in log if event["event"] == "eval"][-1]
    assert last["error"] < 0.03 and last["failed"] == 0
