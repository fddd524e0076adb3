"""TaggingTraining, from files to entities with places in the text: who gets which label, and that no word is lost."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from headway.data.batching.strides import subwords
from headway.data.datasets.conll import Sentence
from headway.data.datasets.tags import labels_for, spans, to_tags
from headway.data.synthetic.texts.stories import make_sentences
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError, DataError
from headway.hub.folder import load_model, save_model
from headway.model.model import Model, Transformer
from headway.tasks.losses.tokens import IGNORE
from headway.tasks.recipe import Recipe, load_recipe
from headway.tasks.tagging.evaluate import hold_out
from headway.tasks.tagging.predict import results, tag, word_log_probs, word_places
from headway.tasks.tagging.rows import lay_out, read_part
from headway.tasks.tagging.training import TaggingTraining
from headway.tasks.training import TaskContext, make_training
from headway.train.distributed import World
from headway.train.run import start, train

ALONE = World(0, 1, torch.device("cpu"))
ROWS = make_sentences(60, seed=3)
READER = train_tokenizer("wordpiece", [" ".join(row.words) for row in ROWS], 150)
SMALL = ["model.depth=1", "model.width=16", "model.heads=2", "data.vocab=150", "train.batch=8", "train.steps=4"]


def recipe(*more: str) -> Recipe:
    based = any(word.startswith("model.from=") for word in more)  # such a model has a shape, and tokens
    made_new = ("model.", "data.vocab", "data.tokenizer")
    return load_recipe("tag", [*(word for word in SMALL if not (based and word.startswith(made_new))), *more])[1]


def task(*more: str, rows: list[Sentence] = ROWS) -> TaggingTraining:
    first, second = hold_out(rows)
    return TaggingTraining(recipe(*more), READER, labels_for(["DATE", "LOC", "ORG", "PER"]), first, second)


def model(of: TaggingTraining, seed: int = 0) -> Model:
    torch.manual_seed(seed)
    built = Transformer(of.config(None)).eval()
    torch.nn.init.normal_(built.tag.output.weight, std=1.0)  # so that labels differ
    return built


def write(path: Path, rows: list[Sentence]) -> str:
    blocks = ("\n".join(f"{w} x {t}" for w, t in zip(row.words, row.tags, strict=True)) for row in rows)
    path.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return str(path)


def prepared(folder: Path, *more: str) -> TaggingTraining:
    made = make_training(TaskContext(recipe(*more), folder / "tokenizer"))
    assert isinstance(made, TaggingTraining)
    return made


def test_the_label_is_at_the_first_piece_of_each_word() -> None:
    some = task()
    batch = some.batch(np.arange(len(some.train)))
    ids, attention_mask, targets = batch.tensors
    assert ids is not None and attention_mask is not None and targets is not None
    assert batch.count == sum(len(row.words) for row in some.train) == int((targets != IGNORE).sum())
    assert batch.tokens == int(attention_mask.sum())
    order = some.rows.examples.rows(np.arange(len(some.train)))
    for i, row in enumerate(order):
        sentence = some.train[some.rows.windows[row].sentence]
        spelled = [p for p in READER.pieces(ids[i].tolist()) if p != "[PAD]"]
        first = [j for j, piece in enumerate(spelled) if targets[i, j] != IGNORE]
        assert [some.labels[int(targets[i, j])] for j in first] == list(sentence.tags)
        starts = [j for j, p in enumerate(spelled) if not p.startswith("##") and p not in ("[CLS]", "[SEP]")]
        assert first == starts  # no word of these is split but into ##pieces


def test_the_loss_is_a_sum_over_words() -> None:
    some = task()
    net = model(some)
    batch = some.batch(np.arange(5))
    ids, attention_mask, targets = batch.tensors
    assert ids is not None and attention_mask is not None and targets is not None
    scores = net.logits(net(ids, attention_mask=attention_mask))["tag"]
    each = [-F.log_softmax(scores[i, j], -1)[targets[i, j]] for i, j in (targets != IGNORE).nonzero().tolist()]
    assert some.loss(net, ids, attention_mask, targets).item() == pytest.approx(
        torch.stack(each).sum().item(), rel=1e-5
    )


@pytest.mark.parametrize("room", [6, 9, 17])
def test_words_of_long_sentences_keep_their_labels(room: int) -> None:
    """Every word is a target once, whatever the windows."""
    words = [word for row in ROWS[:8] for word in row.words]
    rows = lay_out(subwords(READER, [words]), READER, room)
    assert len(rows.windows) > 3 and int(rows.examples.lengths.max()) <= room
    targets = rows.targets(range(len(rows.windows)), 24, [list(range(len(words)))])
    assert sorted(targets[targets != IGNORE].tolist()) == list(range(len(words)))


def test_batches_say_what_one_by_one_says() -> None:
    some = task()
    net = model(some)
    texts = [" ".join(row.words) for row in ROWS[:12]] + ["", "Mr Tolbra said"]
    together = tag(net, READER, texts)
    for text, found in zip(texts, together, strict=True):
        (alone,) = tag(net, READER, [text])
        assert [e[:4] for e in alone] == [e[:4] for e in found]
        assert [e.score for e in alone] == pytest.approx([e.score for e in found], abs=1e-5)
    assert any(together)


def test_scores_are_those_of_the_model() -> None:
    """The slow way: one sentence, the model's scores at the first pieces."""
    some = task()
    net = model(some)
    words = list(ROWS[0].words)
    (found,) = word_log_probs(net, READER, subwords(READER, [words]))
    ids = torch.tensor([READER.encode(" ".join(words)).ids])
    scores = F.log_softmax(net.logits(net(ids))["tag"][0].double(), -1)
    first = [1 + i for i in subwords(READER, [words])[0].word_starts[:-1]]
    assert np.allclose(found, scores[first].detach().numpy(), atol=1e-5)


def test_long_texts_are_read_in_windows_that_agree_with_what_fits() -> None:
    some = task("data.length=16")
    net = model(some)
    words = [word for row in ROWS[:6] for word in row.words]
    (found,) = word_log_probs(net, READER, subwords(READER, [words]))
    assert found.shape[0] == len(words) and np.isfinite(found).all()
    for entity in tag(net, READER, [words])[0]:
        assert " ".join(words)[entity.start : entity.end] == entity.text


def test_a_word_without_pieces_is_outside() -> None:
    net = model(task())
    (found,) = word_log_probs(net, READER, subwords(READER, [["Mr", "\x07", "said"]]))
    assert found[1].argmax() == 0 and found[1, 0] == 0 and np.isinf(found[1, 1:]).all()
    assert tag(net, READER, [["\x07"], []]) == [[], []]
    row = Sentence(("Mr", "\x07"), ("O", "B-PER"))
    total, count = results(net, READER, read_part([row], READER)).loss()
    assert count == 1 and np.isfinite(total)


@given(st.text(max_size=60))
def test_words_cover_a_text(text: str) -> None:
    places = word_places(text)
    covered = {i for a, b in places for i in range(a, b)}
    assert covered == {i for i, char in enumerate(text) if not char.isspace()}
    assert all(a < b for a, b in places)
    assert all(left[1] <= right[0] for left, right in pairwise(places))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Mr. O'Brien's U.S. visit, on 1996-08-22.", "Mr|.|O'Brien|'s|U.S.|visit|,|on|1996-08-22|."),
        ("AT&T paid $3.5m (12:30).", "AT&T|paid|$|3.5|m|(|12:30|)|."),
        ("don't – “quoted” naïve", "don|'t|–|“|quoted|”|naïve"),
    ],
)
def test_words_of_running_text(text: str, words: str) -> None:
    assert [text[a:b] for a, b in word_places(text)] == words.split("|")


def test_entities_have_places_in_the_text_as_it_was() -> None:
    net = model(task())
    text = "  Mr   Tolbra,\tof “Riul”:  left\n on 3 May 1987.  "
    found = tag(net, READER, [text])[0]
    assert found and all(text[e.start : e.end] == e.text and 0 < e.score <= 1 for e in found)


def test_files_of_every_scheme_are_the_same_task(tmp_path: Path) -> None:
    rows = [Sentence(row.words, tuple(to_tags(spans(row.tags), len(row.words), "iobes"))) for row in ROWS]
    plain, other = (
        prepared(tmp_path / name, f"data.train={write(tmp_path / f'{name}.conll', data)}")
        for name, data in (("a", ROWS), ("b", rows))
    )
    assert (plain.facts["tags"], other.facts["tags"]) == ("BIO", "IOBES")
    assert [row.tags for row in plain.train] == [row.tags for row in other.train]
    assert plain.labels == other.labels == labels_for(["DATE", "LOC", "ORG", "PER"])
    learned = prepared(tmp_path / "c", f"data.train={tmp_path / 'a.conll'}", "tag.scheme=iobes")
    assert [row.tags for row in learned.train] == [row.tags for row in rows[: len(learned.train)]]


def test_plain_labels_are_scored_word_by_word(tmp_path: Path) -> None:
    rows = [Sentence(row.words, tuple("N" if word.istitle() else "V" for word in row.words)) for row in ROWS]
    some = prepared(tmp_path, f"data.train={write(tmp_path / 'a.conll', rows)}")
    assert some.labels == ("N", "V")
    metrics = some.evaluate(model(some), ALONE)
    assert metrics["f1"] == pytest.approx(metrics["accuracy"])


def test_labels_that_were_not_learned_are_named(tmp_path: Path) -> None:
    strange = [Sentence(("in", "Riul"), ("O", "B-LOCC"))]
    settings = [f"data.train={write(tmp_path / 'a.conll', ROWS)}", f"data.valid={write(tmp_path / 'b.conll', strange)}"]
    with pytest.raises(DataError, match=r'b\.conll line 2: the label "B-LOCC" is none.*did you mean "LOC"'):
        prepared(tmp_path, *settings)
    with pytest.raises(DataError, match="no sentence can be used"):
        prepared(tmp_path, *settings, "data.bad_rows=skip")


def test_tags_that_are_none_are_named(tmp_path: Path) -> None:
    rows = [*ROWS, Sentence(("in", "Riul"), ("O", "B_LOC"))]
    path = write(tmp_path / "a.conll", rows)
    line = len(Path(path).read_text().splitlines())
    with pytest.raises(DataError, match=rf'a\.conll line {line}: the tag "B_LOC" is neither O nor'):
        prepared(tmp_path, f"data.train={path}")
    some = prepared(tmp_path, f"data.train={path}", "data.bad_rows=skip")
    assert some.facts["bad_rows"] == 1 and len(some.train) + len(some.valid) == len(ROWS)
    assert "B_LOC" in prepared(tmp_path / "p", f"data.train={path}", "tag.scheme=plain").labels


def test_nothing_to_learn_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="all words have the tag O"):
        prepared(tmp_path, f"data.train={write(tmp_path / 'a.conll', [Sentence(('a',), ('O',))] * 3)}")
    with pytest.raises(ConfigError, match="one sentence"):
        hold_out(ROWS[:1])


def test_a_model_without_the_head_is_refused() -> None:
    with pytest.raises(DataError, match="no labels to give a word"):
        tag(Transformer(replace(task().config(None), tag=None, labels=())), READER, ["a"])


def test_examine_takes_a_model_apart(tmp_path: Path) -> None:
    some = task()
    net = model(some)
    path = write(tmp_path / "a.conll", ROWS)
    result = TaggingTraining.evaluate_file(net, READER, some.recipe, path)
    metrics = results(net, READER, read_part(ROWS, READER)).metrics()
    assert {name: value for name, (value, *_) in result.metrics.items()} == pytest.approx(metrics)
    assert all(low <= value <= high for value, low, high in result.metrics.values())
    assert next(iter(result.metrics)) == "f1" and result.examples == len(ROWS) == len(result.each)
    assert sum(part["examples"] for part in result.details["slices"]) == len(ROWS)
    assert sum(row["examples"] for row in result.details["labels"]) == result.details["entities"]
    assert result.primary_metric is not None and result.primary_metric.value == result.metrics["f1"][0]
    confusion = result.details["confusion"]
    wanted = [span for row in ROWS for span in spans(row.tags)]
    for kind, row in zip(confusion["labels"], confusion["counts"], strict=True):
        if kind in ("LOC", "PER", "ORG", "DATE"):
            assert sum(row) == sum(span[0] == kind for span in wanted)
    assert confusion["labels"][:4] == ["DATE", "LOC", "ORG", "PER"] and "(none)" in confusion["labels"][4:]
    worst = result.details["worst"][0]
    assert worst["label"] == [f"{span['text']} = {span['label']}" for span in worst["true"]]
    assert worst["predicted"] == [f"{span['text']} = {span['label']}" for span in worst["found"]]
    assert worst["line"] > 0 and worst["file"] == path and worst["true"] != worst["found"]
    json.dumps(result.as_dict())


def nothing(kind: str, **facts: Any) -> None:
    pass


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run on few sentences."""
    out = tmp_path_factory.mktemp("runs")
    data = write(out / "a.conll", make_sentences(200, seed=1))
    settings = [
        f"data.train={data}",
        "train.steps=30",
        "train.eval_every=15",
        "train.lr=3e-3",
        "model.width=32",
        "train.warmup=5",
    ]
    return train(start("tag", recipe(f"out={out}", *settings)), nothing).folder


def test_a_run_leaves_a_folder_that_transformers_opens(finished: Path) -> None:
    import transformers

    net = load_model(finished)
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(finished).eval()
    assert type(theirs).__name__ == "BertForTokenClassification"
    assert [theirs.config.id2label[i] for i in range(len(net.config.labels))] == list(net.config.labels)
    ids = torch.tensor([[2, 20, 30, 40, 3]])
    ours = net.logits(net(ids))["tag"]
    assert torch.allclose(theirs(input_ids=ids).logits, ours, atol=1e-5)


def test_a_run_learns_and_says_what(finished: Path) -> None:
    from headway.runs.events import read_events

    log = list(read_events(finished / "run" / "log.jsonl"))
    losses = [event["loss"] for event in log if event["event"] == "step"]
    assert np.mean(losses[-5:]) < 0.6 * np.mean(losses[:5])
    begun = next(event for event in log if event["event"] == "start")
    assert (begun["goal"], begun["rising"]) == ("f1", True)
    last = [event for event in log if event["event"] == "eval"][-1]
    assert set(last) >= {"valid", "f1", "precision", "recall", "accuracy"} and 0 <= last["f1"] <= 1
    assert any(event["event"] == "sample" and "→" in event["text"] for event in log)


def test_a_tagger_is_where_the_next_one_starts(finished: Path, tmp_path: Path) -> None:
    again = start("tag", recipe(f"out={tmp_path}", f"model.from={finished}"))
    before, after = load_model(finished).state_dict(), again.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    with pytest.raises(ConfigError, match=r"data\.length = 65, but .* reads 64 tokens at most"):
        start("tag", recipe(f"out={tmp_path}", f"model.from={finished}", "data.length=65"))


def test_saved_is_loaded(tmp_path: Path) -> None:
    some = task("tag.dropout=0.3")
    net = model(some)
    save_model(net, tmp_path / "m", READER)
    loaded = load_model(tmp_path / "m")
    assert loaded.config == net.config and loaded.config.tag is not None and loaded.config.tag.dropout == 0.3
