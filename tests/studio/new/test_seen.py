"""What a model sees is shown as the batch has it, for every kind of input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.studio.new.seen import views
from headway.tasks.losses.tokens import IGNORE
from headway.tasks.recipe import load_recipe
from headway.tasks.training import TaskContext, Training, make_training

SMALL = ("model.depth=1", "model.width=32", "model.heads=2")


def training(tmp_path: Path, recipe: str, *words: str) -> Training:
    (tmp_path / "run").mkdir()
    return make_training(TaskContext(load_recipe(recipe, [*SMALL, *words])[1], tmp_path / "run" / "tokenizer"))


def shown(made: Training, count: int = 2) -> list[list[dict[str, Any]]]:
    return views(made, np.arange(count))


def test_of_a_chat_the_answers_count(tmp_path: Path) -> None:
    rows = [{"instruction": f"Say {i}.", "output": f"It is {i}!"} for i in range(40)]
    (tmp_path / "chats.jsonl").write_text("\n".join(map(json.dumps, rows)))
    made = training(tmp_path, "chat", f"data.train={tmp_path / 'chats.jsonl'}", "data.rows=pad", "data.length=64")
    (view,) = shown(made, 1)[0]
    text = "".join(token["text"] for token in view["tokens"] if token["counts"])
    whole = "".join(token["text"] for token in view["tokens"])
    assert text.startswith("It is ") and "Say" in whole and "Say" not in text
    assert view["next"] and view["counted"] == sum(token["counts"] for token in view["tokens"])


def test_a_writer_reads_one_text_and_learns_another(tmp_path: Path) -> None:
    rows = "\n".join(f"word{i} here\tda wort{i}" for i in range(40))
    (tmp_path / "pairs.tsv").write_text("source\ttarget\n" + rows)
    made = training(
        tmp_path, "translate", f"data.train={tmp_path / 'pairs.tsv'}", "data.tokenizer=bytes", "data.vocab=0"
    )
    reads, writes = shown(made)[0]
    assert (reads["name"], writes["name"]) == ("reads", "writes")
    assert not reads["asks"] and writes["asks"] and writes["next"]
    assert "here" in "".join(token["text"] for token in reads["tokens"])
    assert "da wort" in "".join(token["text"] for token in writes["tokens"] if token["counts"])


def test_each_side_has_its_own_vocabulary(tmp_path: Path) -> None:
    rows = "\n".join(f"left number {i}\trechts Nummer {i}" for i in range(40))
    (tmp_path / "pairs.tsv").write_text("source\ttarget\n" + rows)
    words = ("seq2seq.vocabulary=separate", "data.tokenizer=words", "data.vocab=0")
    made = training(tmp_path, "translate", f"data.train={tmp_path / 'pairs.tsv'}", *words)
    sides = [{token["text"].strip() for token in view["tokens"]} for view in shown(made)[0]]
    assert "left" in sides[0] and {"rechts", "Nummer"} <= sides[1] and "left" not in sides[1]


def test_hidden_words_are_shown_with_what_was_there(tmp_path: Path) -> None:
    made = training(tmp_path, "mlm", "data.length=32")
    (view,) = shown(made)[0]
    hidden = [token for token in view["tokens"] if token["counts"]]
    assert hidden and all(token["wanted"] for token in hidden)
    assert any(token["text"] == "[MASK]" for token in hidden)
    assert not any(token["wanted"].startswith("[") for token in hidden)


def test_labels_of_tokens_have_their_names(tmp_path: Path) -> None:
    made = training(tmp_path, "tag")
    (view,) = shown(made)[0]
    wanted = {token["wanted"] for token in view["tokens"] if token["counts"]}
    assert wanted <= {"O", *made.labels}  # type: ignore[attr-defined]
    assert not next(token for token in view["tokens"])["counts"]  # [CLS]


def test_a_picture_is_what_arrives_after_augmentation(tmp_path: Path) -> None:
    made = training(tmp_path, "images", "data.size=16")
    picture, label = shown(made)[0]
    assert picture["kind"] == "picture" and picture["name"] == "16 × 16 pixels, colour"
    assert picture["image"].startswith("data:image/png;base64,")
    assert label["text"] in made.labels  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("recipe", "kind"),
    [("audio_classification", "spectrogram"), ("forecast", "curves"), ("graph", "numbers"), ("word2vec", "numbers")],
)
def test_every_kind_of_input_has_a_view(recipe: str, kind: str, tmp_path: Path) -> None:
    assert kind in {view["kind"] for view in shown(training(tmp_path, recipe))[0]}


def test_an_n_gram_model_is_shown_its_tokens(tmp_path: Path) -> None:
    made = training(tmp_path, "ngram")
    view = shown(made)[0][0]
    assert view["kind"] == "tokens" and view["next"] and view["counted"] == made.recipe.data.length


def test_wanted_tokens_stand_where_the_loss_wants_them(tmp_path: Path) -> None:
    made = training(tmp_path, "lm")
    batch = made.batch(np.arange(2))
    wanted = made.wanted(batch)
    assert wanted is not None and batch.tensors[0] is not None
    assert (wanted[:, :-1] == batch.tensors[0][:, 1:]).all() and (wanted != IGNORE).all()
