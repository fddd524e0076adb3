"""Sentences beside their neighbours: what is read of them, that it is never labelled, and that documents stay apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from headway.data.batching.strides import Subwords, document_context, fit_context
from headway.data.datasets.conll import Sentence, sentences
from headway.data.datasets.tags import labels_for
from headway.data.synthetic.texts.stories import make_sentences
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.data.tokenizers.train import train_tokenizer
from headway.model.model import Model, Transformer
from headway.tasks.losses.tokens import IGNORE
from headway.tasks.recipe import load_recipe
from headway.tasks.tagging.evaluate import TaggingResults
from headway.tasks.tagging.predict import results, word_log_probs
from headway.tasks.tagging.rows import Part, lay_out, read_part
from headway.tasks.tagging.training import TaggingTraining
from headway.train.distributed import World

ALONE = World(0, 1, torch.device("cpu"))
ROWS = [replace(row, file="news", document=i // 4) for i, row in enumerate(make_sentences(24, seed=3))]
READER = train_tokenizer("wordpiece", [" ".join(row.words) for row in ROWS], 150)
SMALL = ["model.depth=1", "model.width=16", "model.heads=2", "data.vocab=150", "train.batch=8", "train.steps=4"]


def task(*more: str) -> TaggingTraining:
    recipe = load_recipe("tag", [*SMALL, *more])[1]
    return TaggingTraining(recipe, READER, labels_for(["DATE", "LOC", "ORG", "PER"]), ROWS[:16], ROWS[16:])


def model(of: TaggingTraining) -> Model:
    torch.manual_seed(0)
    built = Transformer(of.config(None)).eval().requires_grad_(False)
    torch.nn.init.normal_(built.tag.output.weight, std=1.0)  # so that labels differ
    return built


@given(
    lengths=st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=8),
    size=st.integers(1, 7),
)
def test_neighbours_are_those_of_the_same_document(lengths: list[tuple[int, bool]], size: int) -> None:
    """The slow way: walk away from a sentence, token by token, until the document ends."""
    token, texts, documents, document = 0, [], [], 0
    for length, begins in lengths:
        document += begins
        texts.append(Subwords(list(range(token, token + length)), [0, length]))
        documents.append(document)
        token += length
    for i, (before, after) in enumerate(document_context(texts, documents, size)):
        same = [k for k in range(len(texts)) if documents[k] == documents[i]]
        assert before == [t for k in same if k < i for t in texts[k].ids][-size:]
        assert after == [t for k in same if k > i for t in texts[k].ids][:size]


@given(before=st.integers(0, 9), after=st.integers(0, 9), spare=st.integers(0, 20))
def test_both_sides_have_the_room_that_there_is(before: int, after: int, spare: int) -> None:
    left, right = fit_context((list(range(before)), list(range(after))), spare)
    assert left == list(range(before - len(left), before)) and right == list(range(len(right)))  # the nearest
    assert len(left) + len(right) == min(spare, before + after)
    if len(left) < before and len(right) < after:
        assert abs(len(left) - len(right)) <= 1
    assert fit_context(([1] * before, [2] * after), None) == ([1] * before, [2] * after)


def test_the_context_is_read_and_not_labelled() -> None:
    alone, beside = task("data.length=128"), task("data.length=128", "tag.context=6")
    order = np.arange(16)
    first, second = alone.batch(order), beside.batch(order)
    assert second.count == first.count == sum(len(row.words) for row in ROWS[:16])
    assert second.tokens > first.tokens + 16
    ids, attention_mask, targets = second.tensors
    assert ids is not None and attention_mask is not None and targets is not None
    for i, row in enumerate(beside.rows.examples.rows(order)):
        number = beside.rows.windows[row].sentence
        spelled = READER.pieces(ids[i][attention_mask[i]].tolist())
        at = (targets[i] != IGNORE).nonzero()[:, 0].tolist()
        assert [beside.labels[int(targets[i, j])] for j in at] == list(ROWS[number].tags)
        own = READER.pieces(READER.encode(" ".join(ROWS[number].words), special=False).ids)
        assert spelled[0] == "[CLS]" and spelled[-1] == "[SEP]" and spelled[at[0] : at[0] + len(own)] == own
        inside = [row for row in ROWS[:16] if row.document == ROWS[number].document]
        around = [READER.pieces(READER.encode(" ".join(r.words), special=False).ids) for r in inside]
        flat, place = [p for one in around for p in one], sum(map(len, around[: number % 4]))
        assert spelled[1 : at[0]] == flat[max(0, place - 6) : place]
        assert spelled[at[0] + len(own) : -1] == flat[place + len(own) : place + len(own) + 6]


@pytest.mark.parametrize("limit", [14, 24, 40])
def test_a_sentence_comes_before_its_context(limit: int) -> None:
    part = read_part(ROWS, READER, 50)
    rows = lay_out(part.pieces, READER, limit, context=part.context)
    words = [len(row.words) for row in ROWS]
    found = [[word for w, here in zip(rows.windows, rows.places, strict=True) if w.sentence == i for word, _ in here]
             for i in range(len(ROWS))]  # fmt: skip
    assert found == [list(range(count)) for count in words]  # each word once, whatever stands around it
    assert int(rows.examples.lengths.max()) <= limit
    whole = [len(part.pieces[w.sentence].ids) <= limit - 2 for w in rows.windows]
    for window, row, one in zip(rows.windows, rows.examples.ids, whole, strict=True):
        if not one:  # what stands beside a part of a long sentence is the rest of it
            text = part.pieces[window.sentence]
            assert list(row[1:-1]) == text.ids[text.word_starts[window.begin] : text.word_starts[window.end]]
    assert any(whole) and all(
        length == limit for length, one in zip(rows.examples.lengths.tolist(), whole, strict=True) if one
    )


def test_scores_are_those_of_the_model_that_reads_the_neighbours() -> None:
    net = model(task())
    part = read_part(ROWS[:4], READER, 5)
    found = word_log_probs(net, READER, part.pieces, part.context)
    flat = [token for text in part.pieces for token in text.ids]
    at = sum(len(text.ids) for text in part.pieces[:2])
    own = part.pieces[2]
    end = at + len(own.ids)
    cls, sep = READER.encode("a").ids[0], READER.encode("a").ids[-1]
    ids = torch.tensor([[cls, *flat[at - 5 : end + 5], sep]])
    scores = F.log_softmax(net.logits(net(ids))["tag"][0].double(), -1)
    assert np.allclose(found[2], scores[[6 + i for i in own.word_starts[:-1]]].numpy(), atol=1e-5)
    alone = word_log_probs(net, READER, part.pieces)
    assert not np.allclose(found[2], alone[2], atol=1e-3)


def test_the_recipe_says_how_much_is_read_wherever_a_model_is_scored(tmp_path: Path) -> None:
    blocks = []
    for i, row in enumerate(ROWS):
        blocks += ["-DOCSTART- O"] if i % 4 == 0 else []
        blocks += ["\n".join(f"{w} {t}" for w, t in zip(row.words, row.tags, strict=True))]
    path = tmp_path / "news.conll"
    path.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    assert [row.document for row in sentences(str(path))] == [1 + i // 4 for i in range(len(ROWS))]
    beside = task("tag.context=8", f"data.test={path}")
    net = model(beside)
    slow = results(net, READER, read_part(ROWS, READER, 8))
    other = results(net, READER, read_part(ROWS, READER, 0))
    metrics = slow.metrics()
    assert slow.loss() != other.loss() and metrics != other.metrics()
    tested = beside.test(net, ALONE)
    assert tested is not None and {k: tested[k] for k in metrics} == pytest.approx(metrics)
    assert tested["test"] == pytest.approx(slow.loss()[0] / slow.loss()[1])
    examined = TaggingTraining.evaluate_file(net, READER, beside.recipe, str(path))
    assert {name: value[0] for name, value in examined.metrics.items()} == pytest.approx(metrics)
    details = beside.details(net)
    assert details is not None and details["data"] == "test" and details["source"] == str(path)
    assert details["figures"]["f1"][0] == pytest.approx(metrics["f1"])


def test_a_sample_stands_where_it_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences that are shown keep the neighbours they had, not each other."""
    beside = task("tag.context=8")
    part = beside.valid_part
    some = part.some([5, 1])
    assert some.context is not None and part.context is not None
    assert some.context == [part.context[5], part.context[1]]
    assert list(some.sentences) == [ROWS[21], ROWS[17]] and some.pieces == [part.pieces[5], part.pieces[1]]
    assert task().valid_part.some([2]).context is None
    seen: list[Part] = []

    def spy(net: Transformer, reader: Tokenizer, part: Part, how: Any) -> TaggingResults:
        seen.append(part)
        return results(net, reader, part, how)

    monkeypatch.setattr("headway.tasks.tagging.training.results", spy)
    dull = replace(ROWS[17], tags=("O",) * len(ROWS[17].words))  # is not shown, and still stands beside the others
    assert replace(beside, valid=[ROWS[16], dull, *ROWS[18:]]).sample(model(beside)).count("→") == 4
    assert seen[0].context == [part.context[i] for i in (0, 2, 3, 4)]


def test_files_and_rows_are_documents_of_their_own() -> None:
    rows = [Sentence(("Mr", "Bra"), ("O", "O"), "a"), Sentence(("Dr", "Do"), ("O", "O"), "b")]
    part = read_part(rows, READER, 4)
    assert part.context == [([], []), ([], [])]
    together = read_part([replace(row, file="a") for row in rows], READER, 4)
    assert together.context == [([], together.pieces[1].ids[:4]), (together.pieces[0].ids[-4:], [])]


def test_smoothing_is_that_of_counted_words_alone() -> None:
    plain, smooth = task("tag.context=4"), task("tag.context=4", "tag.label_smoothing=0.2")
    net = model(plain)
    ids, attention_mask, targets = smooth.batch(np.arange(6)).tensors
    assert ids is not None and attention_mask is not None and targets is not None
    logp = F.log_softmax(net.logits(net(ids, attention_mask=attention_mask))["tag"], -1)
    each = [
        -(0.8 * logp[i, j, targets[i, j]] + 0.2 * logp[i, j].mean()) for i, j in (targets != IGNORE).nonzero().tolist()
    ]
    total = float(smooth.loss(net, ids, attention_mask, targets))
    assert total == pytest.approx(float(torch.stack(each).sum()), rel=1e-5)
    compiled = torch.compile(smooth.loss, backend="eager", fullgraph=True)
    assert float(compiled(net, ids, attention_mask, targets)) == pytest.approx(total, rel=1e-6)
    assert float(plain.loss(net, ids, attention_mask, targets)) != pytest.approx(total, rel=1e-3)
