"""Vectors of texts: the loss and the figures against slow ones, search, and pairs in files."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.config.recipe import DataConfig, ShapeConfig, TrainConfig
from headway.data.datasets.pairs import TextPairs, read_pairs
from headway.data.files.rows import BadRows
from headway.data.synthetic.texts.paraphrases import make_paraphrases
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError, DataError
from headway.hub.folder import save_model
from headway.model.model import Model, Transformer
from headway.tasks.embedding.task import Settings as EmbeddingConfig
from headway.tasks.embedding.training import EmbeddingTraining, pair_batch
from headway.tasks.embedding.vectors import embed, found_at, nearest
from headway.tasks.recipe import Recipe, load_recipe
from headway.tasks.training import TaskContext
from headway.train.distributed import World
from headway.train.run import start, train

ALONE = World(0, 1, torch.device("cpu"))
PAIRS = make_paraphrases(60)
TOKENIZER = train_tokenizer("wordpiece", [text for pair in PAIRS for text in pair], 200)
SHAPE = ShapeConfig(depth=1, width=32, heads=2, norm_at="post", activation="gelu", dropout=0.1)


def task(pairs: TextPairs | None = None, valid: TextPairs | None = None, **settings: Any) -> EmbeddingTraining:
    pairs = pairs or TextPairs([a for a, _ in PAIRS], [b for _, b in PAIRS])
    recipe = Recipe(task="embed", seed=3, data=DataConfig(length=40), model=SHAPE, settings=EmbeddingConfig(**settings))
    return EmbeddingTraining(recipe, TOKENIZER, pairs, valid or pairs)


def model_of(task: EmbeddingTraining) -> Model:
    torch.manual_seed(0)
    model = Transformer(task.config(None)).eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def slow_vector(model: Transformer, text: str, pool: str) -> list[float]:
    hidden = model(torch.tensor([TOKENIZER.encode(text).ids])).hidden[0].double()
    vector = hidden[0] if pool == "first" else hidden.mean(0)
    found: list[float] = (vector / vector.norm()).tolist()
    return found


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


@torch.no_grad()
@pytest.mark.parametrize("pool", ["mean", "first"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_loss_is_the_plain_formula(pool: str, symmetric: bool) -> None:
    first = ["a b", "the small dog", "a b", "the doctor", "kid"]
    texts = TextPairs(first, ["x", "the road", "y z", "the road", "woods"])
    made = task(texts, pool=pool, symmetric=symmetric, temperature=0.3)
    model, batch = model_of(made), pair_batch(made._train, np.arange(5))
    u, v = ([slow_vector(model, text, pool) for text in side] for side in (texts.first, texts.second))
    total = 0.0
    for i in range(5):
        # pairs 0 and 2 share their first text, 1 and 3 their second: none is the other's negative
        others = [j for j in range(5) if j == i or {i, j} not in ({0, 2}, {1, 3})]
        forth = math.log(sum(math.exp((cosine(u[i], v[j]) - cosine(u[i], v[i])) / 0.3) for j in others))
        back = math.log(sum(math.exp((cosine(u[j], v[i]) - cosine(u[i], v[i])) / 0.3) for j in others))
        total += (forth + back) / 2 if symmetric else forth
    assert batch.count == 5 and batch.tokens == sum(len(TOKENIZER.encode(t).ids) for t in texts.first + texts.second)
    assert float(made.loss(model, *batch.tensors)) == pytest.approx(total, rel=1e-4)


@torch.no_grad()
def test_scores_are_what_the_cosine_learns() -> None:
    texts = TextPairs(["a b", "the small dog", "kid"], ["x", "the road", "woods"], [1.0, 5.0, 2.0])
    made = task(texts)
    model, batch = model_of(made), pair_batch(made._train, np.arange(3))
    pairs = zip(texts.first, texts.second, strict=True)
    cosines = [cosine(*(slow_vector(model, t, "mean") for t in pair)) for pair in pairs]
    wanted = sum((c - g) ** 2 for c, g in zip(cosines, (0.0, 1.0, 0.25), strict=True))
    assert float(made.loss(model, *batch.tensors)) == pytest.approx(wanted, rel=1e-4)
    metrics = made.evaluate(model, ALONE)
    order = np.argsort(np.argsort(cosines)).tolist()
    agreement = 1 - 6 * sum((a - b) ** 2 for a, b in zip(order, (0, 2, 1), strict=True)) / 24
    assert metrics == {"valid": pytest.approx(wanted / 3, rel=1e-4), "spearman": pytest.approx(agreement)}


def test_samples_are_pairs_in_the_order_of_an_epoch() -> None:
    made = task()
    ids, attention_mask, other, other_attention_mask, names, _ = made.batch(np.arange(7)).tensors
    assert (
        ids is not None
        and attention_mask is not None
        and other is not None
        and other_attention_mask is not None
        and names is not None
    )
    by_id = {tuple(TOKENIZER.encode(a).ids): TOKENIZER.encode(b).ids for a, b in PAIRS}
    for i in range(7):
        assert other[i][other_attention_mask[i]].tolist() == by_id[tuple(ids[i][attention_mask[i]].tolist())]
    assert len({tuple(row) for row in names.tolist()}) == 7
    again = made.batch(np.arange(3, 5)).tensors[4]
    assert again is not None and torch.equal(again, names[3:5])


@given(st.integers(1, 30), st.integers(1, 7), st.integers(0, 99))
@settings(max_examples=40)
def test_ranks_are_counted_one_by_one(size: int, chunk: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    u, v = (torch.from_numpy(generator.integers(-2, 3, (size, 2)).astype(np.float32)) for _ in range(2))
    names = generator.integers(0, 10, size)
    for i, rank in enumerate(found_at(u, v, names, chunk).tolist()):
        own = float(u[i] @ v[i])
        assert rank == 1 + sum(float(u[i] @ v[j]) >= own and names[j] != names[i] for j in range(size))


def test_figures_of_a_model_that_knows_and_one_that_does_not() -> None:
    same = TextPairs([a for a, _ in PAIRS], [a for a, _ in PAIRS])
    made = task(same)
    model = model_of(made)
    assert made.evaluate(model.train(), ALONE)["recall_1"] == 1.0 and model.training
    for parameter in model.parameters():
        parameter.data.zero_()
    model.encoder.blocks[-1].residual2.norm.bias.data[0] = 1.0  # every text has one vector
    metrics = made.evaluate(model, ALONE)
    assert metrics["recall_10"] == 0.0 and metrics["mrr"] == pytest.approx(1 / 60)


def test_an_evaluation_has_intervals(tmp_path: Path) -> None:
    made = task()
    model, path = model_of(made), tmp_path / "pairs.csv"
    path.write_text("anchor,positive\n" + "".join(f'"{a}","{b}"\n' for a, b in PAIRS))
    found = EmbeddingTraining.evaluate_file(model, TOKENIZER, made.recipe, str(path))
    metrics = made.evaluate(model, ALONE)
    assert list(found.metrics) == ["mrr", "recall_1", "recall_5", "recall_10"] and found.examples == 60
    for name, (value, low, high) in found.metrics.items():
        assert value == pytest.approx(metrics[name]) and low <= value <= high and low < high
    assert found.primary_metric is not None and found.primary_metric.value == pytest.approx(found.metrics["mrr"][0])
    assert found.each[7] == pytest.approx(cosine(*(slow_vector(model, t, "mean") for t in PAIRS[7])), abs=1e-5)


def test_without_a_file_it_is_what_was_held_out(tmp_path: Path) -> None:
    path, few = tmp_path / "pairs.csv", tmp_path / "few.csv"
    lines = [f'"{a}","{b}"\n' for a, b in PAIRS]
    path.write_text("anchor,positive\n" + "".join(lines))
    few.write_text("anchor,positive\n" + "".join(lines[:9]))
    made = task()
    model, held = model_of(made), task(TextPairs(*map(list, zip(*PAIRS[54:], strict=True))))
    for data, wanted in (
        ({"train": str(path)}, held.evaluate(model, ALONE)["mrr"]),
        ({"train": str(path), "valid": str(few)}, None),
        ({"train": str(path), "valid": str(path), "test": str(few)}, None),
    ):
        recipe = replace(made.recipe, data=replace(made.recipe.data, **data))
        found = EmbeddingTraining.evaluate_file(model, TOKENIZER, recipe, "")
        assert found.examples == (9 if wanted is None else 6)
        assert found.metrics["mrr"][0] == pytest.approx(
            wanted or EmbeddingTraining.evaluate_file(model, TOKENIZER, made.recipe, str(few)).metrics["mrr"][0]
        )


@torch.no_grad()
@pytest.mark.parametrize("pool", ["mean", "first"])
def test_many_texts_are_as_one_by_one(pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.tasks.embedding.vectors.inference_batch_tokens", lambda device: 64)
    model = model_of(task())
    texts = [PAIRS[0][0], "", "dog", PAIRS[1][0] + " and the road", "a"]
    together = embed(model, TOKENIZER, texts, pool)
    assert together.shape == (5, 32) and together.norm(dim=1).tolist() == pytest.approx([1.0] * 5)
    for text, vector in zip(texts, together, strict=True):
        assert vector.tolist() == pytest.approx(slow_vector(model, text, pool), abs=1e-5)
    long = embed(model, TOKENIZER, ["the " * 99])[0]
    assert torch.equal(long, embed(model, TOKENIZER, ["the " * 38])[0])  # cut to 40 with what is put around it
    assert embed(model, TOKENIZER, []).shape == (0, 32)


def test_the_nearest_come_first() -> None:
    model = model_of(task())
    texts = [b for _, b in PAIRS[:9]] + ["the dog", "the dog"]
    found = nearest(model, TOKENIZER, "the dog", texts, k=4)
    assert [near.place for near in found[:2]] == [9, 10] and found[0].cosine == pytest.approx(1.0, abs=1e-5)
    query = slow_vector(model, "the dog", "mean")
    cosines = sorted((cosine(query, slow_vector(model, text, "mean")) for text in texts), reverse=True)
    assert [near.cosine for near in found] == pytest.approx(cosines[:4], abs=1e-5)
    assert all(near.text == texts[near.place] for near in found)


def test_a_model_without_an_encoder_is_refused() -> None:
    from headway.config.presets import gpt2

    with pytest.raises(DataError, match="no text encoder"):
        embed(Transformer(gpt2(1, 16, 1, vocab=9, length=8)), TOKENIZER, ["a"])


@torch.no_grad()
def test_folders_open_in_transformers(tmp_path: Path) -> None:
    import transformers

    made = task()
    model = model_of(made)
    folder = save_model(model, tmp_path / "model", TOKENIZER)
    theirs = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    ids, attention_mask, *_ = made.batch(np.arange(3)).tensors
    assert ids is not None and attention_mask is not None
    output = theirs(ids, attention_mask=attention_mask.long()).last_hidden_state
    assert (output - model(ids, attention_mask=attention_mask).hidden)[attention_mask].abs().max() < 1e-4


def test_runs_learn_to_find(tmp_path: Path) -> None:
    small = [
        *("train.steps=40", "train.batch=24", "train.eval_every=40", "train.sample_every=40", "train.save_every=40"),
        *("model.width=32", "model.depth=1", "model.heads=2", "train.warmup=5", "train.lr=5e-3", f"out={tmp_path}"),
    ]
    rows = "".join(json.dumps({"text": a, "pair": b}) + "\n" for a, b in make_paraphrases(400))
    (tmp_path / "pairs.jsonl").write_text(rows)
    name, recipe = load_recipe("embed", [*small, f"data.train={tmp_path / 'pairs.jsonl'}"])
    told: list[tuple[str, dict[str, Any]]] = []
    run = start(name, recipe)
    before = run.task.evaluate(run.model, ALONE)
    train(run, lambda kind, **facts: told.append((kind, facts)))
    after = next(facts for kind, facts in told if kind == "eval")
    assert after["valid"] < 0.6 * before["valid"] and after["mrr"] > 2 * before["mrr"]
    assert len(next(facts["text"] for kind, facts in told if kind == "sample").splitlines()) == 4
    assert next(facts for kind, facts in told if kind == "data")["samples"] == 360


def test_made_up_pairs_differ_in_words_and_not_in_meaning() -> None:
    made = make_paraphrases(300, seed=1)
    assert made == make_paraphrases(300, seed=1) and made != make_paraphrases(300, seed=2)
    assert len({pair for pair in made}) == 300
    for first, second in made:
        common = {"the", "was", "by", "in", "at", "on", "near"}
        words = [set(text.lower().replace(",", "").rstrip(".").split()) - common for text in (first, second)]
        assert not words[0] & words[1] and len(words[0]) in (5, 6)


# --- pairs in files -----------------------------------------------------------------------------


def read(tmp_path: Path, content: str, name: str = "pairs.csv", bad: BadRows | None = None, **data: Any) -> TextPairs:
    (tmp_path / name).write_text(content)
    return read_pairs(str(tmp_path / name), DataConfig(**data), bad or BadRows())


def test_columns_are_guessed_or_named(tmp_path: Path) -> None:
    plain = TextPairs(["a b", "c d"], ["e f", "g h"])
    assert read(tmp_path, "id,query,document\n1,a b,e f\n2,c d,g h\n") == plain
    assert read(tmp_path, "left,right\na b,e f\nc d,g h\n") == plain  # the only two
    assert read(tmp_path, "x,left,right\nq q,a b,e f\nq q,c d,g h\n", text="left", pair="right") == plain
    assert read(tmp_path, "left,right\na b,e f\nc d,g h\n", pair="left") == TextPairs(plain.second, plain.first)
    scored = read(tmp_path, "sentence1,sentence2,score\na b,e f,3.5\nc d,g h,1\n")
    assert scored == TextPairs(plain.first, plain.second, [3.5, 1.0])
    jsonl = '{"text": "a b", "pair": "e f", "gold": 2}\n{"text": "c d", "pair": "g h", "gold": 0.5}\n'
    assert read(tmp_path, jsonl, "pairs.jsonl") == plain
    assert read(tmp_path, jsonl, "pairs.jsonl", label="gold") == TextPairs(plain.first, plain.second, [2.0, 0.5])


def test_bad_rows_are_named_or_left_out(tmp_path: Path) -> None:
    text = "text,pair,score\na b,c d,1\ne f,,2\ng h,i j,many\nk l,m n,3\n"
    with pytest.raises(DataError, match=r'pairs\.csv line 3, column "pair": empty') as caught:
        read(tmp_path, text)
    assert caught.value.code == "D007"
    bad = BadRows("skip")
    assert read(tmp_path, text, bad=bad) == TextPairs(["a b", "k l"], ["c d", "m n"], [1.0, 3.0])
    assert bad.count == 2 and "pairs.csv:4" in bad.first[1] and "expected a number" in bad.first[1]


def test_a_file_without_pairs(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, "text,pair\n")
    assert caught.value.code == "D002"


def test_what_does_not_go_together_is_said(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("text,pair\na b,c d\n")
    (tmp_path / "scored.csv").write_text("text,pair,score\na b,c d,1\ne f,g h,2\n")

    def prepare(first: str, valid: str = "", **more: Any) -> EmbeddingTraining:
        data = DataConfig(
            train=str(tmp_path / first), valid=valid and str(tmp_path / valid), tokenizer="wordpiece", vocab=60
        )
        return EmbeddingTraining.prepare(TaskContext(Recipe(task="embed", data=data, **more), tmp_path / "tokenizer"))

    with pytest.raises(DataError, match="0 pairs to train on, 1 to validate on"):
        prepare("one.csv")
    with pytest.raises(DataError, match="give both, scored alike"):
        prepare("one.csv", "scored.csv")
    with pytest.raises(ConfigError, match="compares as many pairs in every step"):
        prepare("scored.csv", train=TrainConfig(steps=1, batch_tokens=9))
    assert prepare("scored.csv").valid == TextPairs(["e f"], ["g h"], [2.0])
    with pytest.raises(ConfigError, match=r"embed\.temperature = 0"):
        EmbeddingConfig(temperature=0)
    with pytest.raises(DataError, match="some files have a column of scores"):
        read_pairs(str(tmp_path / "*.csv"), DataConfig(), BadRows())
