"""ClassificationTraining: losses, figures, evaluation and prediction, on small made-up data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from headway.api import load
from headway.config.model import ModelConfig
from headway.config.recipe import DataConfig, ShapeConfig, TrainConfig
from headway.config.shape import decoder_config, encoder_config
from headway.data.datasets.labeled import LabeledText
from headway.errors import ConfigError, DataError
from headway.hub.folder import load_model, save_model
from headway.model.model import Model, Transformer
from headway.tasks.classification.evaluate import ClassificationResults, evaluation, intervals
from headway.tasks.classification.predict import classify, kind_of
from headway.tasks.classification.task import Settings as ClassificationConfig
from headway.tasks.classification.training import ClassificationTraining
from headway.tasks.metrics.bootstrap import interval
from headway.tasks.recipe import Recipe, load_recipe
from headway.tasks.registry import fitting
from headway.tasks.training import TaskContext
from headway.train.distributed import World
from headway.train.run import start, train

ALONE = World(0, 1, torch.device("cpu"))
WORDS = ["good", "bad", "film", "plot", "it", "was", "not", "so", "very", "long", "a", "the", "end", "of", "story"]
SINGLE = [(f"{WORDS[i % 7]} {' '.join(WORDS[: i % 11])} end", f"{i % 3}") for i in range(30)]


def put(folder: Path, name: str, rows: list[tuple[str, Any]]) -> str:
    path = folder / name
    path.write_text("\n".join(json.dumps({"text": t, "label": v}) for t, v in rows), encoding="utf-8")
    return str(path)


def make(folder: Path, rows: list[tuple[str, Any]], **parts: Any) -> ClassificationTraining:
    spec = put(folder, "train.jsonl", rows)
    data = DataConfig(**({"train": spec, "length": 16, "tokenizer": "wordpiece", "vocab": 100} | parts.pop("data", {})))
    shape = ShapeConfig(depth=2, width=16, heads=2, norm_at="post", activation="gelu")
    recipe = Recipe(task="classify", data=data, model=shape, **parts)
    return ClassificationTraining.prepare(TaskContext(recipe, folder / "tokenizer"))


def model_of(task: ClassificationTraining, base: ModelConfig | None = None) -> Model:
    torch.manual_seed(0)
    return Transformer(task.config(base)).eval().requires_grad_(False)


def test_a_batch_and_its_loss(tmp_path: Path) -> None:
    task = make(tmp_path, SINGLE)
    assert (
        task.labels == ("0", "1", "2")
        and task.kind == "single"
        and task.primary_metric == "accuracy"
        and task.higher_is_better
    )
    assert len(task.train.rows) == 27 and len(task.valid.rows) == 3
    batch = task.batch(np.arange(8))
    assert batch.count == 8 and batch.tokens == int(batch.tensors[1].sum())  # type: ignore[union-attr]
    model = model_of(task)
    total = task.loss(model, *batch.tensors)
    rows = task.train.examples.rows(np.arange(8))
    apart = 0.0
    for row in rows:
        ids, attention_mask, token_type_ids = task.train.examples.read([int(row)])
        output = model(ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        target = torch.tensor([int(task.train.rows[row].label)])
        apart += float(F.cross_entropy(model.classify(output.hidden, output.attention_mask), target))
    assert float(total) == pytest.approx(apart, rel=1e-5)


def test_weights_of_classes(tmp_path: Path) -> None:
    rows = [(t, "rare" if i % 10 == 0 else "usual") for i, (t, _) in enumerate(SINGLE)]
    plain = make(tmp_path, rows, data={"valid": put(tmp_path, "v.jsonl", rows[:4])})
    task = replace(plain, recipe=replace(plain.recipe, settings=ClassificationConfig(class_weights="balanced")))
    assert task.weights is not None and task.weights.tolist() == pytest.approx([1 / (2 * 0.1), 1 / (2 * 0.9)])
    some = task.batch(np.arange(7))
    assert some.tensors[3] is not None  # the mean over a batch is a weighted one, as torch's is
    assert some.count == pytest.approx(task.weights[some.tensors[3].numpy()].sum())
    model, batch = model_of(task), task.batch(np.arange(30))
    each = [plain._batch(plain.train, [i]) for i in range(30)]
    losses = [float(plain.loss(model, *one.tensors)) for one in each]
    expected = sum(x * (5 if row.label == "rare" else 1 / 1.8) for x, row in zip(losses, plain.train.rows, strict=True))
    assert float(task.loss(model, *batch.tensors)) == pytest.approx(expected, rel=1e-4)
    with pytest.raises(ConfigError, match="the labels are numbers"):
        make(tmp_path, [("a", 0.5), ("b", 1.5)], settings=ClassificationConfig(class_weights="balanced"))


def test_several_labels(tmp_path: Path) -> None:
    rows = [(t, [n for k, n in enumerate("abc") if i % (k + 2) == 0]) for i, (t, _) in enumerate(SINGLE)]
    task = make(tmp_path, rows, settings=ClassificationConfig(class_weights="balanced"))
    assert task.kind == "multi" and task.labels == ("a", "b", "c") and task.primary_metric == "micro_f1"
    model, (ids, attention_mask, token_type_ids, targets, weights) = model_of(task), task.batch(np.arange(5)).tensors
    assert model.config.classify is not None and model.config.classify.several
    assert targets is not None and targets.shape == (5, 3) and ids is not None
    assert weights is not None
    there = task.train.truth.sum(0)
    assert weights.tolist() == pytest.approx(((27 - there) / there).tolist())
    scores = model.classify(
        model(ids, attention_mask=attention_mask, token_type_ids=token_type_ids).hidden, attention_mask
    )
    p = torch.sigmoid(scores)
    expected = -(weights * targets * p.log() + (1 - targets) * (1 - p).log()).mean(1).sum()
    assert float(task.loss(model, *task.batch(np.arange(5)).tensors)) == pytest.approx(float(expected), rel=1e-4)
    metrics = task.evaluate(model, ALONE)
    assert set(metrics) == {"valid", "micro_f1", "macro_f1", "exact"}
    (guess,) = classify(model, task.tokenizer, ["a good film"])
    assert guess.label == [n for n in "abc" if guess.probabilities[n] > 0.5]
    assert guess.probability == pytest.approx(min(max(p, 1 - p) for p in guess.probabilities.values()))


def test_numbers(tmp_path: Path) -> None:
    task = make(tmp_path, [(t, i / 7) for i, (t, _) in enumerate(SINGLE)])
    assert task.kind == "regression" and task.labels == ("value",) and task.primary_metric == "spearman"
    model = model_of(task)
    metrics = task.evaluate(model, ALONE)
    guesses = classify(model, task.tokenizer, [r.text for r in task.valid.rows], length=16)
    gaps = [(g.label - r.label) ** 2 for g, r in zip(guesses, task.valid.rows, strict=True)]
    assert metrics["valid"] == pytest.approx(np.mean(gaps), rel=1e-4)
    assert metrics["mse"] == pytest.approx(np.mean(gaps), rel=1e-4)
    assert guesses[0].probability is None and guesses[0].probabilities == {}
    batch = task.batch(np.arange(4))
    targets = [task.train.rows[i].label for i in task.train.examples.rows(np.arange(4))]
    assert batch.tensors[3].tolist() == pytest.approx(targets)  # type: ignore[union-attr]


def test_pairs_have_segments_and_lose_their_longer_half(tmp_path: Path) -> None:
    lines = [{"premise": "good film", "hypothesis": "bad " * 30, "label": i % 2} for i in range(12)]
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    data = DataConfig(train=str(path), length=12, tokenizer="wordpiece", vocab=60)
    task = ClassificationTraining.prepare(TaskContext(Recipe(task="classify", data=data), tmp_path / "t"))
    ids, _, token_type_ids, _, _ = task.batch(np.arange(1)).tensors
    assert ids is not None and token_type_ids is not None
    pieces = task.tokenizer.pieces(ids[0].tolist())
    assert "".join(pieces[1:]).startswith(("good", "g##o"))
    assert token_type_ids[0, :12].tolist()[-1] == 1 and token_type_ids[0, 0] == 0
    assert task.facts["cut"] == 12 and int(task.train.examples.lengths.max()) == 12


def test_one_by_one_is_the_same(tmp_path: Path) -> None:
    task = make(tmp_path, SINGLE)
    model = model_of(task)
    texts = [t for t, _ in SINGLE]
    together = classify(model, task.tokenizer, texts)
    for text, one in zip(texts, together, strict=True):
        (alone,) = classify(model, task.tokenizer, [text])
        assert alone.label == one.label
        assert list(alone.probabilities.values()) == pytest.approx(list(one.probabilities.values()), abs=1e-5)
        assert one.probability == max(one.probabilities.values())
        assert sum(one.probabilities.values()) == pytest.approx(1)
    assert classify(model, task.tokenizer, []) == []


def test_evaluation_shared_by_processes_is_that_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.tasks.classification import predict as module

    task = make(tmp_path, SINGLE)
    model = model_of(task)
    monkeypatch.setattr(module, "inference_batch_tokens", lambda device: 32)
    assert len(list(task.train.examples.batches(32))) % 2 == 1  # so that one process has nothing left to do
    alone = module.predict_logits(model, task.train.examples, 3)
    given: list[list[float]] = []

    class Half:
        device, size = torch.device("cpu"), 2

        def __init__(self, rank: int) -> None:
            self.rank = rank

        def sum(self, *values: float) -> list[float]:
            given.append(list(values))
            return list(values)

    for rank in range(2):
        module.predict_logits(model, task.train.examples, 3, Half(rank))
    assert np.allclose(np.sum(given, 0).reshape(-1, 3), alone)


def test_unknown_labels_in_other_files(tmp_path: Path) -> None:
    other = put(tmp_path, "valid.jsonl", [("good film", "0"), ("bad film", "7")])
    with pytest.raises(DataError, match=r"valid\.jsonl line 2: label '7' is unknown: training had 0, 1, 2"):
        make(tmp_path, SINGLE, data={"valid": other})
    task = make(tmp_path, SINGLE, data={"valid": other, "bad_rows": "skip"})
    assert len(task.valid.rows) == 1 and task.facts["bad_rows"] == 1
    with pytest.raises(DataError, match="nothing to tell apart"):
        make(tmp_path, [("a good film", "x"), ("a bad film", "x"), ("a film", "x")])


def test_labels_that_nothing_has_in_common(tmp_path: Path) -> None:
    numbers = [(f"film {i}", i / 2) for i in range(9)]
    with pytest.raises(DataError, match=r"each of the 9 texts has a label of its own, such as '0'") as caught:
        make(tmp_path, numbers, settings=ClassificationConfig(kind="single"))
    assert "classify.kind=regression" in caught.value.hint
    assert make(tmp_path, numbers).kind == "regression"
    assert make(tmp_path, [("a film", "x"), ("a plot", "y"), ("good", "z")]).labels == (
        "x",
        "y",
        "z",
    )  # too few to tell


def test_the_head_goes_on_an_encoder_of_the_family(tmp_path: Path) -> None:
    task = make(tmp_path, SINGLE, settings=ClassificationConfig(pool="first"))
    config = task.config(None)
    assert config.classify is not None and config.classify.dense == "tanh" and config.classify.pool == "first"
    again = task.config(replace(config, labels=("x",)))
    assert again.labels == ("0", "1", "2") and again.encoder == config.encoder
    with pytest.raises(ConfigError, match=r"data\.length = 16, but .* reads 8 tokens"):
        task.config(encoder_config(ShapeConfig(depth=1, width=16, heads=2), 30, 8))
    assert fitting(config)[0].name == "classify" and kind_of(config) == "single"
    assert fitting(replace(config, classify=replace(config.classify, labels=0)))[0].name == "embed"
    with pytest.raises(DataError, match="no labels"):
        kind_of(replace(config, classify=None))


def test_a_decoder_is_asked_at_its_last_token(tmp_path: Path) -> None:
    task = make(tmp_path, SINGLE)
    base = decoder_config(ShapeConfig(depth=2, width=16, heads=2), task.tokenizer.vocab_size, 32)
    model = model_of(task, base)
    assert model.config.lm is None and fitting(model.config)[0].name == "classify" and fitting(base)[0].name == "lm"
    (guess,) = classify(model, task.tokenizer, ["good film"])
    ids = torch.tensor([task.tokenizer.encode("good film").ids])
    scores = model.classify.output(model(ids).hidden[:, -1])  # type: ignore[misc]
    assert list(guess.probabilities.values()) == pytest.approx(scores.softmax(-1)[0].tolist(), abs=1e-5)


def results() -> tuple[ClassificationResults, list[LabeledText]]:
    scores = np.array([[2.0, 0], [0, 3], [4, 0], [0, 1], [0, 0.5]])
    truth = np.array([0.0, 1, 1, 1, 0])
    rows = [LabeledText(f"text {i}", None, "ab"[int(t)], "f.csv", i + 2) for i, t in enumerate(truth)]
    return ClassificationResults("single", ("a", "b"), truth, scores), rows


def test_an_evaluation_shows_what_went_wrong() -> None:
    found = evaluation(*results(), np.array([3, 4, 5, 9, 9]), {"cut": 0})
    assert found.metrics["accuracy"][0] == pytest.approx(3 / 5)
    value, low, high = found.metrics["accuracy"]
    assert low < value < high
    details = found.details
    assert details["confusion"] == {"labels": ["a", "b"], "counts": [[1, 1], [1, 2]]}
    assert details["mixed_up"][0] == {"label": "a", "taken_for": "b", "times": 1}
    assert [(w["line"], w["label"], w["predicted"]) for w in details["worst"]] == [(4, "b", "a"), (6, "a", "b")]
    assert details["worst"][0]["probability"] == pytest.approx(np.exp(4) / (1 + np.exp(4)))
    assert sum(row["examples"] for row in details["slices"]) == 5
    assert [(row["from"], row["to"]) for row in details["slices"]] == [(3, 4), (5, 5), (6, 9)]
    assert [row["score"] for row in found.each] == [1, 1, 0, 1, 0]
    assert [row["line"] for row in found.each] == [2, 3, 4, 5, 6]
    assert details["labels"][1] == {"label": "b", "examples": 3, "precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3}
    json.dumps(found.as_dict(), allow_nan=False)


def test_intervals_are_those_of_examples_drawn_again() -> None:
    dice = np.random.default_rng(0)
    truth = dice.integers(0, 3, 300)
    scores = np.eye(3)[np.where(dice.random(300) < 0.7, truth, dice.integers(0, 3, 300))]
    result = ClassificationResults("single", ("a", "b", "c"), truth.astype(float), scores)
    for name, (value, low, high) in intervals(result).items():
        slow = interval(lambda rows, name=name: result.metrics(rows)[name], 300, draws=300)  # type: ignore[misc]
        assert value == slow[0]
        assert (low, high) == pytest.approx(slow[1:], abs=0.02)
    flat = ClassificationResults("regression", ("value",), scores[:, 0], scores[:, 1:2])
    for name, (value, low, high) in intervals(flat).items():
        assert low <= value <= high, name


def test_one_length_is_one_slice() -> None:
    found = evaluation(*results(), np.full(5, 7), {})
    assert [(row["from"], row["to"], row["examples"]) for row in found.details["slices"]] == [(7, 7, 5)]


def quiet(kind: str, **facts: Any) -> None:
    pass


SMALL = ["train.batch=16", "train.eval_every=10", "train.sample_every=40", "train.lr=3e-3", "train.warmup=4"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    rows = [(f"{'good' if i % 2 else 'bad'} {' '.join(WORDS[: i % 9])}", "yes" if i % 2 else "no") for i in range(64)]
    data = [f"data.train={put(folder, 'train.jsonl', rows)}", f"data.test={put(folder, 'test.jsonl', rows[:20])}"]
    words = [*SMALL, *data, "train.steps=40", "model.width=32", "model.heads=2", "data.vocab=100", f"out={folder}"]
    return train(start(*load_recipe("classify", words)), quiet).folder


def test_a_run_leaves_a_model_that_transformers_opens(finished: Path) -> None:
    import transformers

    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(finished).eval()
    assert type(theirs).__name__ == "BertForSequenceClassification"
    assert theirs.config.id2label == {0: "no", 1: "yes"}
    ours = load(finished)
    assert ours.config.labels == ("no", "yes")
    text = "good film plot"
    encoded = transformers.AutoTokenizer.from_pretrained(finished)(text, return_tensors="pt")
    with torch.no_grad():
        expected = theirs(**encoded).logits.softmax(-1)[0].tolist()
    (guess,) = classify(ours.model, ours.require_tokenizer(), [text])
    assert list(guess.probabilities.values()) == pytest.approx(expected, abs=1e-5)


def test_a_run_learns_and_is_examined(finished: Path) -> None:
    stored = json.loads((finished / "run" / "evaluation.json").read_text(encoding="utf-8"))
    assert stored["data"] == "test" and stored["examples"] == 20 and stored["figures"]["accuracy"][0] == 1.0
    bundle = load(finished)
    recipe = load_recipe(str(finished / "run" / "recipe.toml"))[1]
    found = ClassificationTraining.evaluate_file(bundle.model, bundle.require_tokenizer(), recipe, "")
    assert found.as_dict()["figures"] == {k: tuple(v) for k, v in stored["figures"].items()}
    log = [json.loads(line) for line in (finished / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    (test,) = [event for event in log if event["event"] == "test"]
    assert test["accuracy"] == 1.0 and test["test"] < 0.6
    assert any("in truth" in event["text"] for event in log if event["event"] == "sample")


def test_what_another_run_held_out_may_have_labels_unknown_here(tmp_path: Path) -> None:
    task = of_file(tmp_path, LONE)
    model = model_of(task)
    other = replace(model.config, labels=tuple(f"other {name}" for name in model.config.labels))
    model.config = other
    with pytest.raises(DataError, match=r"train\.jsonl line \d+: label .* is unknown: training had other "):
        ClassificationTraining.evaluate_file(model, task.tokenizer, task.recipe, "")


def test_several_labels_are_remembered_by_the_folder(tmp_path: Path) -> None:
    import transformers

    rows = [(t, ["a"] if i % 2 else ["a", "b"]) for i, (t, _) in enumerate(SINGLE)]
    task = make(tmp_path, rows, settings=ClassificationConfig(pool="first"))
    from headway.hub.folder import load_model, save_model

    folder = save_model(model_of(task), tmp_path / "model", task.tokenizer)
    theirs = transformers.AutoConfig.from_pretrained(folder)
    assert theirs.problem_type == "multi_label_classification"
    assert kind_of(load_model(folder).config) == "multi"


@pytest.mark.parametrize("words", [["model.lora=2"], ["model.freeze=1"]])
def test_a_new_head_is_trained_on_a_base(finished: Path, tmp_path: Path, words: list[str]) -> None:
    rows = [(f"{WORDS[i % 4]} film", "abcd"[i % 4]) for i in range(24)]
    over = [
        f"data.train={put(tmp_path, 'other.jsonl', rows)}",
        "train.steps=4",
        "classify.pool=first",
        f"out={tmp_path}",
    ]
    run = start(*load_recipe("classify", [*SMALL, *over, f"model.from={finished}", *words]))
    names = {name for name, p in run.model.named_parameters() if p.requires_grad}
    assert {"classify.output.weight", "classify.output.bias", "classify.dense.weight"} <= names
    assert not any(name.startswith("source.") for name in names)
    before = {name: p.detach().clone() for name, p in run.model.named_parameters()}
    train(run, quiet)
    loaded = load(run.folder)
    assert loaded.config.labels == ("a", "b", "c", "d")
    after = dict(loaded.model.named_parameters())
    assert not torch.equal(after["classify.output.weight"], before["classify.output.weight"])
    qkv = "encoder.blocks.1.attention.qkv.weight"
    assert not torch.equal(after[qkv], before[qkv])
    assert torch.equal(after["source.table.weight"], before["source.table.weight"])
    (mine,) = classify(run.model, run.task.tokenizer, ["film"])
    (theirs,) = classify(loaded.model, loaded.require_tokenizer(), ["film"])
    assert list(mine.probabilities.values()) == pytest.approx(list(theirs.probabilities.values()), abs=1e-5)


def test_batches_by_tokens(tmp_path: Path) -> None:
    task = make(tmp_path, SINGLE, train=TrainConfig(steps=1, batch_tokens=32))
    plan = task.plan(1)
    seen = [row for step in range(int(plan.steps_per_epoch)) for row in plan.samples(step)]
    assert sorted(seen) == list(range(27))
    batch = task.batch(plan.samples(0))
    assert batch.tensors[0] is not None and batch.tensors[0].numel() <= 32


@pytest.mark.parametrize("pool", ["first", "mean", "max"])
def test_what_stands_for_a_text_is_saved(tmp_path: Path, pool: Any) -> None:
    """`transformers` has a word for the first token only: the other folders say that they are headway's own."""
    task = make(tmp_path, SINGLE, settings=ClassificationConfig(pool=pool))
    model = model_of(task)
    folder = save_model(model, tmp_path / "model", task.tokenizer)
    kind = json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"]
    assert kind == ("bert" if pool == "first" else "headway")
    loaded = load_model(folder)
    assert loaded.config.classify == model.config.classify and loaded.config.classify.pool == pool
    texts = [t for t, _ in SINGLE[:5]]
    assert classify(loaded, task.tokenizer, texts) == classify(model, task.tokenizer, texts)
    assert "dense" in dict(model.classify.named_children()) or pool != "first"


def test_settings_for_one_label_a_text(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"classify\.label_smoothing = 0\.1 is for one label a text: the labels are num"
    ):
        make(tmp_path, [("a", 0.5), ("b", 1.5)], settings=ClassificationConfig(label_smoothing=0.1))
    with pytest.raises(ConfigError, match=r"classify\.r_drop = 1\.0 is for one label a text: there are several"):
        make(tmp_path, [("a", ["x"]), ("b", ["y"])], settings=ClassificationConfig(r_drop=1.0))


def test_the_recipe_smooths_the_loss_but_not_what_is_reported(tmp_path: Path) -> None:
    plain = make(tmp_path, SINGLE)
    smooth = replace(plain, recipe=replace(plain.recipe, settings=ClassificationConfig(label_smoothing=0.3)))
    model, tensors = model_of(plain), plain.batch(np.arange(8)).tensors
    assert float(smooth.loss(model, *tensors)) != pytest.approx(float(plain.loss(model, *tensors)), rel=1e-6)
    assert smooth.evaluate(model, ALONE) == plain.evaluate(model, ALONE)


PAIRS = [{"premise": f"good film {i}", "hypothesis": "bad film", "label": i % 2} for i in range(12)]
LONE = [{"sentence": "good film", "label": i % 2} for i in range(12)]


def rows_in(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


def of_file(folder: Path, rows: list[dict[str, Any]], **data: Any) -> ClassificationTraining:
    config = DataConfig(train=rows_in(folder / "train.jsonl", rows), length=16, tokenizer="wordpiece", vocab=60, **data)
    shape = ShapeConfig(depth=1, width=16, heads=2, norm_at="post", activation="gelu")
    recipe = Recipe(task="classify", data=config, model=shape, settings=ClassificationConfig(pool="first"))
    return ClassificationTraining.prepare(TaskContext(recipe, folder / "tokenizer"))


@pytest.mark.parametrize(("rows", "pairs"), [(PAIRS, True), (LONE, False)])
def test_pairs_and_single_texts_are_not_taken_for_each_other(
    tmp_path: Path, rows: list[dict[str, Any]], pairs: bool
) -> None:
    task = of_file(tmp_path, rows)
    model = model_of(task)
    folder = save_model(model, tmp_path / "model", task.tokenizer)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == "bert" and config["text_pairs"] is pairs
    loaded = load_model(folder)
    seconds = ["bad film"]
    message = "trained on pairs of texts, here is one" if pairs else "trained on single texts, here are two"
    assert classify(loaded, task.tokenizer, ["good film"], seconds if pairs else None)
    with pytest.raises(DataError, match=message):
        classify(loaded, task.tokenizer, ["good film"], None if pairs else seconds)
    other = rows_in(tmp_path / "other.jsonl", LONE if pairs else PAIRS)
    with pytest.raises(DataError, match=message):
        ClassificationTraining.evaluate_file(loaded, task.tokenizer, task.recipe, other)
    assert (
        ClassificationTraining.evaluate_file(loaded, task.tokenizer, task.recipe, task.recipe.data.train).examples == 12
    )
    unknown = replace(model.config, classify=replace(model.config.classify, pairs=None))  # type: ignore[type-var]
    model.config = unknown  # one from elsewhere
    for second in (None, seconds):
        assert classify(model, task.tokenizer, ["good film"], second)


def test_files_of_pairs_and_of_single_texts_do_not_mix(tmp_path: Path) -> None:
    lone = rows_in(tmp_path / "lone.jsonl", LONE)
    for part in ("valid", "test"):
        with pytest.raises(DataError, match=r"lone\.jsonl has one, .*train\.jsonl has two texts a row") as caught:
            of_file(tmp_path, PAIRS, **{part: lone}).test_part  # noqa: B018
        assert "data.text=NAME" in caught.value.hint
    with pytest.raises(DataError, match=r"valid\.jsonl has two texts a row, .*train\.jsonl has one"):
        of_file(tmp_path, LONE, valid=rows_in(tmp_path / "valid.jsonl", PAIRS))
