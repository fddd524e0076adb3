"""Answering: windows of a context, targets in them, the best spans over all of them; batched, long, saved."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.data.datasets.squad import Question
from headway.data.synthetic.texts.stories import make_stories
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError, DataError
from headway.hub.folder import load_model
from headway.model.model import Model, Transformer
from headway.tasks.qa.predict import _top_spans, answer, answer_all, best_spans, lay_out
from headway.tasks.qa.task import Settings as QuestionAnsweringConfig
from headway.tasks.qa.training import QuestionAnsweringTraining, hold_out, none_allowed
from headway.tasks.recipe import Recipe, load_recipe
from headway.tasks.training import TaskContext, make_training
from headway.train.distributed import World
from headway.train.run import start, train

ALONE = World(0, 1, torch.device("cpu"))
ASKED = make_stories(40, seed=5)
READER = train_tokenizer("wordpiece", [f"{q.question} {q.context}" for q in ASKED], 300)
SMALL = ["model.depth=1", "model.width=16", "model.heads=2", "data.vocab=300", "train.batch=8", "train.steps=4"]
SETTINGS = QuestionAnsweringConfig(stride=8, max_answer_length=6, n_best=5)


def recipe(*more: str) -> Recipe:
    return load_recipe("answer", [*SMALL, *more])[1]


def task(*more: str) -> QuestionAnsweringTraining:
    return QuestionAnsweringTraining(recipe(*more), READER, *hold_out(ASKED))


def model(of: QuestionAnsweringTraining) -> Model:
    torch.manual_seed(0)
    built = Transformer(of.config(None)).eval()
    torch.nn.init.normal_(built.span.output.weight, std=1.0)
    return built


def write(path: Path, asked: list[Question]) -> str:
    rows = [{"id": q.id, "question": q.question, "context": q.context, "answers": _listed(q)} for q in asked]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


def _listed(asked: Question) -> list[dict[str, Any]]:
    return [{"text": text, "answer_start": start} for text, start in asked.answers]


def byte_level() -> Tokenizer:
    """RoBERTa's template over byte-level pieces, which begin with the space before a word."""
    from tokenizers import processors

    made = train_tokenizer("bpe", [q.context for q in ASKED], 400, special=("<s>", "</s>"))
    cls, sep = (("<s>", 0), ("</s>", 1))
    made.backend.post_processor = processors.RobertaProcessing(sep, cls, trim_offsets=False, add_prefix_space=False)
    return Tokenizer(made.backend)


@pytest.mark.parametrize("reader", [READER, byte_level()], ids=["wordpiece", "bytes"])
@pytest.mark.parametrize("limit", [24, 40, None])
def test_targets_point_at_the_answer(reader: Tokenizer, limit: int | None) -> None:
    rows = lay_out(ASKED, reader, limit, SETTINGS, None)
    seen = set()
    for i, (first, last) in enumerate(rows.targets):
        asked, ids = ASKED[rows.question[i]], rows.examples.ids[i]
        assert limit is None or len(ids) <= limit
        if (first, last) == (0, 0):
            continue
        start, end = (rows.offsets[i][t - rows.place[i]] for t in (first, last))
        assert asked.context[start[0] : end[1]].strip() == asked.answers[0][0]
        seen.add(rows.question[i])
    assert seen == {i for i, asked in enumerate(ASKED) if asked.answers}
    assert rows.examples.ids[0][0] == reader.encode("a", "b").ids[0]


@pytest.mark.parametrize("text", ["50", "$50", "1999", "2001"])
def test_an_answer_may_touch_what_is_around_it(text: str) -> None:
    context = "the fee ($50) was paid in 1999-2001."
    rows = lay_out([Question("x", "what?", context, ((text, context.index(text)),))], READER, None, SETTINGS, None)
    start, end = (rows.offsets[0][t - rows.place[0]] for t in rows.targets[0])
    assert context[start[0] : end[1]] == text


@settings(max_examples=20)
@given(st.integers(20, 60), st.integers(0, 9))
def test_windows_cover_the_context(limit: int, stride: int) -> None:
    rows = lay_out(ASKED[:5], READER, limit, replace(SETTINGS, stride=stride), None)
    for number, asked in enumerate(ASKED[:5]):
        mine = [i for i, q in enumerate(rows.question) if q == number]
        offsets = [spot for i in mine for spot in rows.offsets[i]]
        whole = READER.encode(asked.context, special=False)
        assert set(offsets) == set(whole.offsets)
        for i in mine:  # question, separator and context are where the place says
            head = READER.encode(asked.question, special=False).ids
            at = rows.place[i]
            assert rows.examples.ids[i][1 : 1 + len(head)] == head and at == 2 + len(head)
            assert set(rows.examples.token_type_ids[i][:at]) == {0} and set(rows.examples.token_type_ids[i][at:]) == {1}


def test_windows_are_those_of_transformers() -> None:
    import transformers

    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=READER.backend)  # type: ignore[no-untyped-call]
    rows = lay_out(ASKED[:6], READER, 32, SETTINGS, None)
    encoded = theirs(
        [q.question for q in ASKED[:6]],
        [q.context for q in ASKED[:6]],
        truncation="only_second",
        max_length=32,
        stride=8,
        return_overflowing_tokens=True,
        return_token_type_ids=True,
    )
    assert [list(ids) for ids in rows.examples.ids] == encoded["input_ids"]
    assert [list(kinds) for kinds in rows.examples.token_type_ids] == encoded["token_type_ids"]
    READER.backend.no_truncation()


def test_a_question_of_any_length_leaves_room_for_the_context() -> None:
    long = Question("x", "where " * 50, ASKED[0].context, ())
    rows = lay_out([long], READER, 24, SETTINGS, None)
    assert int(rows.examples.lengths.max()) <= 24
    whole = READER.encode(long.context, special=False).offsets
    assert {spot for spots in rows.offsets for spot in spots} == set(whole)


def test_the_loss_is_the_mean_of_two_summed_over_windows() -> None:
    some = task()
    net, batch = model(some), some.batch(np.arange(6))
    ids, attention_mask, token_type_ids, targets = batch.tensors
    assert ids is not None and attention_mask is not None and token_type_ids is not None and targets is not None
    slow = torch.zeros(())
    for i in range(6):  # one at a time, without padding
        size = int(attention_mask[i].sum())
        scores = net.logits(net(ids[i : i + 1, :size], token_type_ids=token_type_ids[i : i + 1, :size]))["span"][0]
        slow = slow + sum(F.cross_entropy(scores[:, side], targets[i, side]) for side in (0, 1)) / 2
    assert some.loss(net, ids, attention_mask, token_type_ids, targets).item() == pytest.approx(slow.item(), rel=1e-5)
    assert batch.count == 6 and batch.tokens == int(attention_mask.sum())


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 12))
def test_the_best_spans_are_the_best_of_all(seed: int, longest: int, best: int) -> None:
    """Against all pairs of tokens, one by one."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(2, 2, 9, generator=generator)
    bounds = torch.tensor([[3, 7], [2, 9]])
    values, first, last = _top_spans(scores, bounds, QuestionAnsweringConfig(max_answer_length=longest, n_best=best))
    for i, (low, high) in enumerate(bounds.tolist()):
        pairs = [(a, b) for a in range(low, high) for b in range(a, min(high, a + longest))]
        slow = sorted(((float(scores[i, 0, a] + scores[i, 1, b]), a, b) for a, b in pairs), reverse=True)[:best]
        fast = [x for x in zip(values[i], first[i], last[i], strict=True) if x[0] > -np.inf]
        assert [x[1:] for x in fast] == [x[1:] for x in slow]
        assert [x[0] for x in fast] == pytest.approx([x[0] for x in slow])


@pytest.mark.parametrize("reader", [READER, byte_level()], ids=["wordpiece", "bytes"])
def test_batches_say_what_one_by_one_says(reader: Tokenizer) -> None:
    net = model(QuestionAnsweringTraining(recipe(), reader, *hold_out(ASKED)))
    pairs = [(q.question, q.context) for q in ASKED[:10]] + [("who ?", "anna")]
    together = answer_all(net, reader, pairs, SETTINGS)
    for pair, found in zip(pairs, together, strict=True):
        alone = answer(net, reader, *pair, SETTINGS)
        assert [a[:3] for a in alone] == [a[:3] for a in found]
        assert [a.score for a in alone] == pytest.approx([a.score for a in found], abs=1e-5)
        for text, begin, end, _ in found:
            assert (begin is None) == (text == "")
            assert begin is None or (pair[1][begin:end] == text and text.strip() == text)
    assert any(found[0].text for found in together)


def test_contexts_longer_than_the_model() -> None:
    net = model(task("data.length=32"))
    context = " ".join(q.context for q in ASKED[:12])
    found = answer(net, READER, "where does anna live ?", context, replace(SETTINGS, no_answer="no"))
    assert len(found) == SETTINGS.n_best and all(context[a.start : a.end] == a.text for a in found)
    rows = lay_out([Question("x", "where ?", context, ())], READER, 32, SETTINGS, None)
    ranked, _ = best_spans(net, [Question("x", "where ?", context, ())], rows, replace(SETTINGS, n_best=1))
    singles = []
    for i in range(len(rows.question)):  # each window on its own
        ids, attention_mask, token_type_ids = rows.examples.read([i])
        scores = net.logits(net(ids, attention_mask=attention_mask, token_type_ids=token_type_ids))["span"][0]
        singles.append(scores[0].sum().item())
    assert ranked[0].null == pytest.approx(min(singles), abs=1e-4)


def test_no_answer_by_setting_or_by_the_data() -> None:
    some = [Question("a", "?", "x", (("x", 0),))]
    none = [*some, Question("b", "?", "x", ())]
    each = [QuestionAnsweringConfig(no_answer=n) for n in ("auto", "yes", "no")]
    assert [none_allowed(q, settings) for q in (some, none) for settings in each] == [
        False, True, False, True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize("pair", [("", "text"), ("who ?", " \n")])
def test_empty_texts_are_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(DataError, match="pair 2: a question and a context are needed"):
        answer_all(model(task()), READER, [("who ?", "anna"), pair])


def test_a_tokenizer_without_marks_is_refused(tmp_path: Path) -> None:
    data = write(tmp_path / "a.jsonl", ASKED)
    some = make_training(TaskContext(recipe("data.tokenizer=bytes", "data.vocab=0", f"data.train={data}"), tmp_path))
    with pytest.raises(ConfigError, match="a token before a pair of texts"):
        some.plan(4)


def test_no_context_is_on_both_sides() -> None:
    same = [Question(str(i), "?", str(i // 15), ()) for i in range(31)]
    first, second = hold_out(same)
    assert (len(first), len(second)) == (30, 1)
    few = [Question(str(i), "?", str(i // 10), ()) for i in range(20)]
    assert [len(part) for part in hold_out(few)] == [10, 10]  # a tenth would be within the last context
    with pytest.raises(ConfigError, match="9 questions on one context: none of them can be held out"):
        hold_out([Question(str(i), "?", "same", ()) for i in range(9)])


def nothing(kind: str, **facts: Any) -> None:
    pass


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    changes = [
        f"data.train={write(out / 'a.jsonl', make_stories(200, seed=1))}",
        "train.steps=40",
        "train.eval_every=20",
        "train.lr=3e-3",
        "model.width=32",
        "train.warmup=5",
    ]
    return train(start("answer", recipe(f"out={out}", *changes)), nothing).folder


def test_a_run_leaves_a_folder_that_transformers_opens(finished: Path) -> None:
    import transformers

    net = load_model(finished)
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(finished).eval()
    assert type(theirs).__name__ == "BertForQuestionAnswering"
    ids, token_type_ids = torch.tensor([[2, 20, 3, 40, 41, 3]]), torch.tensor([[0, 0, 0, 1, 1, 1]])
    ours = net.logits(net(ids, token_type_ids=token_type_ids))["span"]
    result = theirs(input_ids=ids, token_type_ids=token_type_ids)
    assert torch.allclose(torch.stack([result.start_logits, result.end_logits], -1), ours, atol=1e-5)


def test_a_run_learns_and_says_what(finished: Path) -> None:
    from headway.runs.events import read_events

    log = list(read_events(finished / "run" / "log.jsonl"))
    losses = [event["loss"] for event in log if event["event"] == "step"]
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])
    last = [event for event in log if event["event"] == "eval"][-1]
    assert set(last) >= {"valid", "f1", "em"} and 0 <= last["em"] <= last["f1"] <= 1
    assert any(event["event"] == "sample" and "→" in event["text"] for event in log)


def test_examine_takes_a_model_apart(tmp_path: Path) -> None:
    some = task()
    net = model(some)
    result = QuestionAnsweringTraining.evaluate_file(net, READER, some.recipe, write(tmp_path / "a.jsonl", ASKED))
    assert result.examples == len(ASKED) == len(result.each)
    assert all(low <= value <= high for value, low, high in result.metrics.values())
    assert result.details["none_allowed"] and result.details["windows"] >= len(ASKED)
    assert {row["kind"] for row in result.details["by_question"]} <= {"who", "what", "when", "where"}
    json.dumps(result.as_dict())
    said = answer_all(net, READER, [(q.question, q.context) for q in ASKED], some.recipe.settings)
    assert [row["found"] for row in result.each] == [found[0].text for found in said]


def test_a_model_without_the_head_is_refused() -> None:
    bare = Transformer(replace(task().config(None), span=None))
    with pytest.raises(DataError, match="does not answer questions"):
        answer(bare, READER, "who ?", "anna")
