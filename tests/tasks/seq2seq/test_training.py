"""The task of turning texts into others: batches, the loss, evaluations on their own cadence, and a run of it."""

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

from headway.config.model import SpecialTokens
from headway.config.recipe import DataConfig, ShapeConfig, TrainConfig
from headway.config.shape import seq2seq_config
from headway.data.batching.batch_sampler import TokenBatchSampler
from headway.data.batching.packing import IGNORE
from headway.data.datasets.parallel import Pair
from headway.data.files.rows import BadRows
from headway.errors import ConfigError, DataError
from headway.model.model import Model, Transformer
from headway.tasks.recipe import Recipe, load_recipe, with_settings
from headway.tasks.registry import fitting
from headway.tasks.seq2seq.task import Settings as Seq2SeqConfig
from headway.tasks.seq2seq.training import (
    Seq2SeqTraining,
    evaluate_in_full,
    make_part,
    metric_of,
    pair_batch,
    pair_loss,
    read_pairs,
)
from headway.tasks.seq2seq.translate import translate
from headway.tasks.training import TaskContext
from headway.train.distributed import World
from headway.train.run import start, train

ALONE = World(0, 1, torch.device("cpu"))
SHAPE = ShapeConfig(depth=1, width=32, heads=2, norm_at="post", positions="sinusoidal", activation="relu", dropout=0.1)
SMALL = ["model.depth=1", "model.width=16", "model.heads=2", "train.steps=4", "train.batch=8", "train.eval_every=2",
         "train.save_every=2", "train.sample_every=4", "seq2seq.eval_texts=3", "seq2seq.max_new_tokens=6"]  # fmt: skip


def recipe(**fields: Any) -> Recipe:
    data = fields.pop("data", DataConfig(tokenizer="bpe", vocab=300, length=64))
    plan = fields.pop("train", TrainConfig(steps=4, batch=4))
    return Recipe(task="seq2seq", seed=3, data=data, model=SHAPE, train=plan, settings=Seq2SeqConfig(**fields))


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Seq2SeqTraining:
    monkeypatch.setattr("headway.tasks.seq2seq.training.GENERATED", 60)
    return Seq2SeqTraining.prepare(TaskContext(recipe(eval_texts=4, max_new_tokens=6), tmp_path / "tokens"))


def model_of(task: Seq2SeqTraining) -> Model:
    torch.manual_seed(0)
    model = Transformer(task.config(None))
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def test_a_batch_says_what_is_read_and_what_is_predicted(task: Seq2SeqTraining) -> None:
    rows = np.array([0, 5, 2])
    source, attention_mask, inputs, targets = pair_batch(task.train, rows, task.start).tensors
    assert source is not None and attention_mask is not None and inputs is not None and targets is not None
    special, tokenizer = task.tokenizer.special, task.tokenizer
    for i, row in enumerate(rows):
        pair = task.train.pairs[row]
        read, written = (tokenizer.encode(t, special=False).ids for t in (pair.source, pair.targets[0]))
        assert source[i][attention_mask[i]].tolist() == [*read, special["eos"]]
        real = targets[i] != IGNORE
        assert targets[i][real].tolist() == [*written, special["eos"]]
        assert inputs[i][real].tolist() == [special["bos"], *written]
        assert real.tolist() == sorted(real.tolist(), reverse=True)
    batch = pair_batch(task.train, rows, task.start)
    assert batch.count == int((targets != IGNORE).sum()) and batch.tokens == batch.count + int(attention_mask.sum())
    assert source.shape[1] % 8 == 0 and inputs.shape == targets.shape


@torch.no_grad()
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_each_pair_alone(task: Seq2SeqTraining, smoothing: float) -> None:
    model, rows = model_of(task).eval(), np.arange(7)
    total = float(pair_loss(smoothing)(model, *pair_batch(task.train, rows, task.start).tensors))
    slow = 0.0
    for row in rows:
        read, written = task.train.source.ids[row], list(task.train.target.ids[row])
        hidden = model(torch.tensor([read]), torch.tensor([[task.start, *written[:-1]]])).hidden
        scores, truth = model.lm(hidden)[0], torch.tensor(written)
        slow += float(F.cross_entropy(scores, truth, reduction="sum", label_smoothing=smoothing))
    assert total == pytest.approx(slow, rel=1e-5)


def test_the_loss_compiles_and_takes_no_notice_of_padding(task: Seq2SeqTraining) -> None:
    model = model_of(task).eval()
    source, attention_mask, inputs, targets = pair_batch(task.train, np.arange(3), task.start).tensors
    assert attention_mask is not None and source is not None and inputs is not None and targets is not None
    plain = pair_loss(0.1)(model, source, attention_mask, inputs, targets)
    noise = torch.where(attention_mask, source, 7)
    after = torch.where(targets == IGNORE, 9, inputs)
    assert torch.allclose(pair_loss(0.1)(model, noise, attention_mask, after, targets), plain)
    compiled = torch.compile(pair_loss(0.1), backend="eager", fullgraph=True)
    assert torch.allclose(compiled(model, source, attention_mask, inputs, targets), plain)


def test_two_passes_agree_without_dropout_and_are_held_together_with_it(task: Seq2SeqTraining) -> None:
    model = model_of(replace(task, recipe=replace(task.recipe, model=replace(SHAPE, dropout=0.3))))
    tensors = pair_batch(task.train, np.arange(3), task.start).tensors
    plain, twice = pair_loss(0.1), replace(task, recipe=recipe(r_drop=2.0)).loss
    with torch.no_grad():
        assert torch.allclose(twice(model.eval(), *tensors), plain(model, *tensors))
        torch.manual_seed(4)
        loose = pair_loss(0.1, 1e-9)(model.train(), *tensors)
        torch.manual_seed(4)
        held = twice(model, *tensors)
        torch.manual_seed(4)
        tighter = pair_loss(0.1, 4.0)(model, *tensors)
    assert float(held) > float(loose) + 1e-3 and float(tighter - loose) == pytest.approx(
        2 * float(held - loose), rel=1e-3
    )
    with pytest.raises(ConfigError, match=r"seq2seq\.r_drop = -1\.0 should be at least 0"):
        recipe(r_drop=-1.0)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60), st.integers(8, 200))
def test_batches_by_tokens_hold_on_both_sides(lengths: list[tuple[int, int]], tokens: int) -> None:
    plan = TokenBatchSampler(np.array([max(both) for both in lengths]), tokens, 1)
    seen: list[int] = []
    for step in range(int(plan.steps_per_epoch)):
        rows = plan.samples(step)
        wide = max(max(lengths[i]) for i in rows)
        assert len(rows) == 1 or len(rows) * -(-wide // 8) * 8 <= tokens
        seen += rows.tolist()
    assert sorted(seen) == list(range(len(lengths)))


def test_the_plan_and_the_order(task: Seq2SeqTraining, tmp_path: Path) -> None:
    fixed = task.plan(4).samples(0)
    first = task.batch(fixed).tensors[0]
    assert first is not None and len(first) == 4
    assert (task.batch(fixed).tensors[0] == first).all()  # a pure function of the numbers
    other = Seq2SeqTraining(with_settings(task.recipe, {"train": {"batch_tokens": 100}}), *(
        getattr(task, name) for name in ("tokenizer", "train", "valid", "start")
    ))  # fmt: skip
    plan = other.plan(0)
    assert isinstance(plan, TokenBatchSampler)
    rows = plan.samples(0)
    expected = pair_batch(task.train, rows % len(task.train.pairs), task.start).tensors[0]
    assert torch.equal(other.batch(rows).tensors[0], expected)  # type: ignore[arg-type]
    widths = np.maximum(task.train.source.lengths, task.train.target.lengths)
    assert (plan.widths == -(-widths // 8) * 8).all()


def test_long_texts_are_cut(task: Seq2SeqTraining) -> None:
    pairs = [Pair("a dog " * 30, ("kova " * 30,), "", 1), Pair("a", ("b",), "", 2)]
    part = make_part(pairs, task.tokenizer, 10, task.recipe)
    end = task.tokenizer.special["eos"]
    assert (part.cut, part.source.lengths[0], part.target.lengths[0]) == (1, 10, 10)
    assert part.source.ids[0][-1] == end and end not in part.target.ids[0]  # a text that goes on has no end
    assert part.target.ids[1][-1] == end
    prefixed = make_part(pairs[1:], task.tokenizer, None, with_settings(task.recipe, {"seq2seq": {"prefix": "go: "}}))
    assert task.tokenizer.decode(prefixed.source.ids[0]) == "go: a"


def test_texts_are_written_on_their_own_cadence(task: Seq2SeqTraining) -> None:
    model = model_of(task)
    for every, due in ((1, [True] * 4), (3, [False, False, True, False])):
        settings = with_settings(task.recipe, {"seq2seq": {"generate_every": every}})
        made = replace(task, recipe=settings, _evaluations=iter(range(9)))
        found = [made.evaluate(model, ALONE) for _ in due]
        assert [("bleu" in each) for each in found] == due
        assert (made.primary_metric, made.higher_is_better) == (("bleu", True) if every == 1 else ("valid", False))
        assert model.training
    none = replace(task, recipe=with_settings(task.recipe, {"seq2seq": {"eval_texts": 0}}))
    assert "bleu" not in none.evaluate(model, ALONE) and none.primary_metric == "valid" and none.details(model) is None
    assert "signature" not in none.facts and "tok:13a" in task.facts["signature"]


def test_evaluation_is_the_mean_over_all_tokens(task: Seq2SeqTraining) -> None:
    model = model_of(task)
    found = task.evaluate(model, ALONE)
    model.eval()
    every = pair_batch(task.valid, np.arange(len(task.valid.pairs)), task.start)
    with torch.no_grad():
        expected = float(pair_loss(0.0)(model, *every.tensors)) / every.count
    assert found["valid"] == pytest.approx(expected, rel=1e-5)
    import sacrebleu

    first = task.valid.pairs[:4]
    texts = [best[0].text for best in translate(model, task.tokenizer, [p.source for p in first], task.recipe)]
    assert found["bleu"] == pytest.approx(sacrebleu.corpus_bleu(texts, [[p.targets[0] for p in first]]).score)


def test_many_texts_are_scored_in_more_parts(task: Seq2SeqTraining, monkeypatch: pytest.MonkeyPatch) -> None:
    """By length, so that the last part is of long texts only; each text is in one of them."""
    model, pairs, counts = model_of(task), task.train.pairs[:40], {}
    for part, most in ((50, 8), (5, 8), (5, 6)):
        monkeypatch.setattr("headway.tasks.seq2seq.writing.PART", part)
        monkeypatch.setattr("headway.tasks.seq2seq.writing.MOST_PARTS", most)
        slices = evaluate_in_full(model, task.tokenizer, task.recipe, pairs, "bleu").details["slices"]
        assert sum(row["examples"] for row in slices) == 40
        counts[part, most] = len(slices)
    assert counts[50, 8] == 4 < counts[5, 6] <= 6 < counts[5, 8] <= 8


def test_summaries_are_told_by_their_length() -> None:
    short, long = Pair("a b c", ("x y z",), "", 1), Pair("a b c " * 20, ("x y z",), "", 1)
    assert metric_of(recipe(), [short]) == "bleu" and metric_of(recipe(), [long]) == "rouge"
    assert metric_of(recipe(metric="bleu"), [long]) == "bleu" and metric_of(recipe(metric="rouge"), [short]) == "rouge"


@pytest.mark.parametrize(("fields", "layout"), [
    ({}, "MarianMTModel"), ({"positions": "learned"}, "BartForConditionalGeneration"),
    ({"norm_at": "pre"}, "HeadwayModel"), ({"positions": "rope"}, "HeadwayModel"),
    ({"activation": "gelu"}, "MarianMTModel"),
])  # fmt: skip
def test_the_layout_of_a_shape(fields: dict[str, Any], layout: str, tmp_path: Path) -> None:
    from headway.hub.folder import load_model, save_model

    shape = replace(SHAPE, encoder_depth=2, ff=48, **fields)
    config = replace(seq2seq_config(shape, 70, 32), special=SpecialTokens(pad=0, eos=1, start=0))
    assert config.encoder is not None and config.decoder is not None and config.source is not None
    assert (config.encoder.n_layers, config.decoder.n_layers, config.decoder.d_ff) == (2, 1, 48)
    assert config.source.scale == pytest.approx(32**0.5) and config.shared_embedding  # type: ignore[union-attr]
    assert fitting(config)[0].name == "seq2seq"
    model = Transformer(config).eval()
    assert model.source.table is model.target.table and model.lm.output.weight is model.source.table.weight
    folder = save_model(model, tmp_path / "model")
    assert json.loads((folder / "config.json").read_text())["architectures"] == [layout]
    source, inputs = torch.randint(0, 70, (2, 7)), torch.randint(0, 70, (2, 5))
    with torch.no_grad():
        ours = model(source, inputs).hidden
        assert torch.equal(load_model(folder)(source, inputs).hidden, ours)
        if layout != "HeadwayModel":
            import transformers

            oracle = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
            theirs = oracle(input_ids=source, decoder_input_ids=inputs).logits
            assert torch.allclose(theirs, model.lm(ours), atol=1e-4)


def test_a_run_of_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From files to a folder that translates, evaluated and compared; its paths are good from anywhere."""
    from headway.api import load

    pairs = read_pairs("", load_recipe("translate")[1], BadRows())[:40]
    for name, side in (("en", [p.source for p in pairs]), ("de", [p.targets[0] for p in pairs])):
        (tmp_path / f"train.{name}").write_text("\n".join(side) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    words = ["data.train=train.en,train.de", "data.test=train.en,train.de", "data.vocab=300", "train.average=2"]
    run = start(*load_recipe("translate", [*SMALL, *words, f"out={tmp_path / 'runs'}"]))
    assert run.recipe.data.train == f"{tmp_path / 'train.en'},{tmp_path / 'train.de'}"
    events: list[tuple[str, dict[str, Any]]] = []
    train(run, lambda kind, **facts: events.append((kind, facts)))
    evals = [facts for kind, facts in events if kind == "eval"]
    assert [facts["step"] for facts in evals] == [2, 4] and all({"valid", "bleu"} <= facts.keys() for facts in evals)
    (test,) = (facts for kind, facts in events if kind == "test")
    assert {"test", "bleu", "chrf", "ter", "bleu_lower", "chrf_lower", "ter_lower"} <= test.keys()
    (sample,) = (facts["text"] for kind, facts in events if kind == "sample")
    assert sample.splitlines()[0] == pairs[36].source and f"= {pairs[36].targets[0]}" in sample
    details = json.loads((run.folder / "run" / "evaluation.json").read_text())
    assert details["data"] == "test" and details["examples"] == 40 and "bleu" in details["details"]["slices"][0]
    bundle = load(run.folder)
    assert bundle.recipe is not None and len(bundle.translate(["A dog sees the king."])) == 1
    assert bundle.recipe.settings.sentences == 1
    assert len(bundle.hypotheses(["A dog. A king."])[0][0].parts) == 2  # nothing like it was learned
    found = Seq2SeqTraining.evaluate_file(bundle.model, bundle.require_tokenizer(), bundle.recipe, "train.en,train.de")
    assert found.metrics["bleu"][0] == pytest.approx(test["bleu"]) and len(found.each) == 40
    assert found.each[0].keys() == {"line", "source", "new", "targets", "score"}
    assert found.primary_metric is not None and json.dumps(found.as_dict())


@pytest.mark.parametrize("retained", [1, 4])
def test_the_mean_of_the_last_checkpoints(retained: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of the result are those of the last n checkpoints, added and divided."""
    from headway.hub.weights import open_file

    monkeypatch.setattr("headway.tasks.seq2seq.training.GENERATED", 40)
    more = [f"out={tmp_path}", "data.vocab=300", "seq2seq.eval_texts=0", "train.save_every=1", f"train.keep={retained}"]
    run = start(*load_recipe("translate", [*SMALL, *more, "train.average=3"]))
    train(run, lambda kind, **facts: None)
    folders = sorted((run.folder / "run" / "checkpoints").glob("step-*"))
    assert len(folders) == max(retained, 3) and folders[-1].name == "step-00000004"
    folders = folders[-3:]
    files = [open_file(path / "model.safetensors") for path in folders]
    last = dict(run.model.named_parameters())
    for name in files[0].names:
        rows = [file.read(name).double() for file in files]
        assert torch.allclose(last[name].double(), sum(rows[1:], rows[0]) / 3, atol=1e-7)  # type: ignore[arg-type]
    assert not torch.allclose(last["source.table.weight"], files[-1].read("source.table.weight"), atol=1e-7)


def test_settings_that_do_not_go_together() -> None:
    with pytest.raises(ConfigError, match=r"train\.average"):
        TrainConfig(steps=1, average=2, ema=0.9)
    with pytest.raises(ConfigError, match=r"train\.average"):
        TrainConfig(steps=1, average=-1)
    for wrong in (
        {"label_smoothing": 1.0},
        {"beam": 0},
        {"generate_every": 0},
        {"bpe_dropout": -0.1},
        {"eval_texts": -1},
    ):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            Seq2SeqConfig(**wrong)  # type: ignore[arg-type]


def test_a_base_is_taken_as_it_is(task: Seq2SeqTraining, tmp_path: Path) -> None:
    """With its own start token, its tokenizer and all of its weights."""
    from headway.hub.folder import load_model, save_model

    model = model_of(task).eval()
    model.config = replace(model.config, special=replace(model.config.special, start=0))
    folder = save_model(model, tmp_path / "base", task.tokenizer)
    words = [*SMALL[3:], f"out={tmp_path / 'runs'}", f"model.from={folder}"]
    run = start(*load_recipe("translate", words))
    assert isinstance(run.task, Seq2SeqTraining) and run.task.start == 0
    assert run.task.batch(np.arange(2)).tensors[2][:, 0].tolist() == [0, 0]  # type: ignore[index]
    assert torch.equal(run.model.source.table.weight, load_model(folder).source.table.weight)
    long = start  # a base with a table of positions cannot read more
    bart = Transformer(replace(seq2seq_config(replace(SHAPE, positions="learned"), task.tokenizer.vocab_size, 16),
                         special=model.config.special))  # fmt: skip
    other = save_model(bart, tmp_path / "bart", task.tokenizer)
    with pytest.raises(ConfigError, match="reads 16 tokens"):
        long(*load_recipe("translate", [*words[:-1], f"model.from={other}"]))


def test_too_few_pairs(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("source\ttarget\na b\tc d\n")
    with pytest.raises(DataError, match="held out"):
        Seq2SeqTraining.prepare(
            TaskContext(recipe(data=DataConfig(train=str(path), tokenizer="bpe", vocab=300)), tmp_path / "t")
        )


def test_pieces_change_from_epoch_to_epoch(task: Seq2SeqTraining) -> None:
    made = replace(task, recipe=with_settings(task.recipe, {"seq2seq": {"bpe_dropout": 0.3}}))
    size = len(task.train.pairs)
    plain = [task.batch(np.arange(3) + epoch * size) for epoch in range(2)]
    found = [made.batch(np.arange(3) + epoch * size) for epoch in range(2)]
    assert all(f.tokens > p.tokens for f, p in zip(found, plain, strict=True))
    for epoch, batch in enumerate(found):
        source, attention_mask, inputs, targets = batch.tensors
        again = made.batch(np.arange(3) + epoch * size).tensors
        assert all(torch.equal(a, b) for a, b in zip(batch.tensors, again, strict=True))  # type: ignore[arg-type]
        theirs = plain[epoch].tensors
        for i in range(3):  # the same texts, with an end each
            for ids, other in ((source[i][attention_mask[i]], theirs[0][i][theirs[1][i]]),  # type: ignore[index]
                               (targets[i][targets[i] != IGNORE], theirs[3][i][theirs[3][i] != IGNORE])):  # type: ignore[index]  # fmt: skip
                assert task.tokenizer.decode(ids.tolist()) == task.tokenizer.decode(other.tolist())
                assert ids[-1] == other[-1] == task.tokenizer.special["eos"]
        assert inputs is not None and targets is not None
        after = targets[:, 1:] != IGNORE
        assert inputs[:, 0].tolist() == [task.start] * 3 and torch.equal(inputs[:, 1:][after], targets[:, :-1][after])
    short = replace(made, recipe=with_settings(made.recipe, {"data": {"length": 9}}))
    assert all(t is not None and t.shape[1] <= 16 for t in short.batch(np.arange(3)).tensors)
    assert short.batch(np.arange(3)).tensors[1].sum(1).max() == 9  # type: ignore[union-attr]
