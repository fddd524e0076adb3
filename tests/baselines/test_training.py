"""Baselines in runs: trained, resumed, saved, loaded, proved; and what does not apply to them said clearly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from headway.api import load
from headway.baselines.convolutional import Convolutional
from headway.baselines.recurrent import Recurrent
from headway.checks.attention_maps import attention_maps
from headway.checks.equivalence.suite import check_model
from headway.checks.quantization import quantize_and_compare
from headway.checks.training import digest
from headway.config.networks.baseline import BaselineConfig
from headway.config.recipe import ShapeConfig
from headway.config.shape import baseline_config, decoder_config, seq2seq_config
from headway.config.toml import build, to_dict
from headway.errors import ConfigError, DamagedError, DataError
from headway.generate.decode import Sampling
from headway.hub.convert import dump_tensors
from headway.hub.folder import load_model, open_folder, save_model
from headway.report.model_card import write_card
from headway.report.report import write_report
from headway.tasks.recipe import Recipe, load_recipe
from headway.tasks.seq2seq.translate import translate
from headway.train.log.cost import flops_per_token
from headway.train.run import Run, resume, start, train
from tests.baselines.conftest import KINDS, named, small

SMALL = ["data.length=16", "train.batch=4", "train.steps=6", "train.eval_every=6", "train.sample_every=6"]
SHAPE = ["model.depth=2", "model.width=16", "train.save_every=3"]


def quiet(kind: str, **facts: Any) -> None:
    pass


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("baselines")
    (folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 30, encoding="utf-8")
    return folder


def make(place: Path, *words: str) -> Run:
    data = [f"data.train={place / 'text.txt'}", f"out={place / 'runs'}"]
    shape = SHAPE if not any(word.startswith("model.from=") for word in words) else SHAPE[2:]
    return start(*load_recipe("tiny", [*SMALL, *shape, *data, *words]))


@pytest.mark.parametrize(("kind", "cls"), [("gru", Recurrent), ("conv", Convolutional)])
def test_a_language_model_from_recipe_to_text(place: Path, kind: str, cls: type) -> None:
    run = train(make(place, f"model.kind={kind}"), quiet)
    theirs = json.loads((run.folder / "config.json").read_text(encoding="utf-8"))
    assert theirs["model_type"] == "headway" and theirs["headway"]["network"] == kind
    bundle = load(run.folder)
    assert isinstance(bundle.model, cls) and bundle.config == run.model.config
    assert "".join(bundle.stream("the ", 5, Sampling(temperature=0)))
    assert bundle.score(["the quick"])[0].log_probability < 0
    write_card(run.folder)
    write_report(run.folder)
    with pytest.raises(DataError, match="no attention"):
        bundle.attention("the")
    again = make(place, f"model.from={run.folder}")
    same = zip(again.model.parameters(), bundle.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in same)


@pytest.mark.parametrize("kind", [["gru"], ["lstm", "model.attention=additive", "model.bidirectional=true"], ["conv"]])
def test_a_translator_from_recipe_to_text(place: Path, kind: list[str]) -> None:
    """The task and the search of transformers, unchanged; the report has the score by length."""
    for name, text in (("de", "ein hund rennt\neine katze sitzt dort\n"), ("en", "a dog runs\na cat sits there\n")):
        (place / f"pairs.{name}").write_text(text * 20, encoding="utf-8")
    pairs = f"{place / 'pairs.de'},{place / 'pairs.en'}"
    words = [f"data.train={pairs}", f"data.valid={pairs}", f"out={place / 'runs'}", "data.vocab=300"]
    beam = ["seq2seq.beam=2", "seq2seq.eval_texts=2", f"model.kind={kind[0]}", *kind[1:]]
    run = train(start(*load_recipe("translate", [*SMALL, *SHAPE, *words, *beam])), quiet)
    model = load(run.folder).model
    assert model.config == run.model.config and model.config.kind == "encoder-decoder"
    found = translate(model, run.task.tokenizer, ["ein hund rennt", "eine katze"], run.recipe)
    alone = translate(model, run.task.tokenizer, ["eine katze"], run.recipe)
    assert len(found) == 2 and found[1][0].text == alone[0][0].text
    details = json.loads((run.folder / "run" / "evaluation.json").read_text(encoding="utf-8"))
    assert {"from", "to", "bleu"} <= details["details"]["slices"][0].keys()


def test_training_helps(place: Path) -> None:
    losses: list[float] = []

    def listen(kind: str, **facts: Any) -> None:
        losses.extend([facts["valid"]] if kind == "eval" else [])

    words = ("train.steps=60", "train.eval_every=30", "train.warmup=5", "train.lr=0.03", "model.depth=1")
    train(make(place, "model.kind=lstm", *words), listen)
    assert losses[1] < losses[0] - 0.1 and losses[0] < 4.0  # log 256 is 5.5


def test_stopped_and_resumed_is_straight(place: Path) -> None:
    straight = train(make(place, "model.kind=lstm", "model.dropout=0.3"), quiet)
    other = make(place, "model.kind=lstm", "model.dropout=0.3")

    def stop(kind: str, **facts: Any) -> None:
        if kind == "save" and facts["step"] == 3:
            other.loop.received_signal = 15

    train(other, stop)
    assert other.loop.progress.step < 6
    resumed = train(resume(other.folder, lambda path, why: None), quiet)
    assert digest(resumed) == digest(straight)


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_every_kind_proves_itself(kind: dict[str, Any]) -> None:
    found = {row.name: row for row in check_model(small(**kind), compiled=False)}
    assert all(row.ok for row in found.values()), found
    assert found["packed = separate"].difference is None
    looks = kind.get("source", True) and (kind["network"] == "conv" or "attention" in kind)
    assert (found["maps = eager weights"].difference is not None) is looks
    for name in ("right padding = none", "left padding = none", "batch = single", "cached = uncached"):
        assert found[name].difference is not None
    assert found["saved = loaded"].difference == 0.0 and found["reordered = fresh"].difference is not None


@pytest.mark.slow
@pytest.mark.parametrize("kind", [KINDS[2], KINDS[9], KINDS[11]], ids=named)
def test_compiled_is_eager(kind: dict[str, Any]) -> None:
    (row,) = (row for row in check_model(small(**kind), compiled=True) if row.name == "compiled = eager")
    assert row.difference is None or row.ok


@pytest.mark.parametrize("kind", KINDS[1::4], ids=named)
def test_saved_and_loaded(kind: dict[str, Any], tmp_path: Path) -> None:
    model = small(**kind).float()
    folder = save_model(model, tmp_path / "m")
    again = load_model(folder)
    assert again.config == model.config and type(again) is type(model)
    for (name, a), (other, b) in zip(dump_tensors(model, None, ""), dump_tensors(again, None, ""), strict=True):
        assert name == other and torch.equal(a, b)
    inputs, targets = torch.arange(4)[None], torch.arange(5)[None]
    if model.config.encoder:
        torch.testing.assert_close(model(inputs, targets).hidden, again(inputs, targets).hidden)


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    config = seq2seq_config(ShapeConfig(kind="gru", depth=1, width=8), 20, 16)
    from headway.baselines.build import make_model

    again = load_model(save_model(make_model(config), tmp_path / "m"))
    assert again.lm.output.weight is again.target.table.weight is again.source.table.weight


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    folder = save_model(small("lstm").float(), tmp_path / "m")
    path = folder / "config.json"
    theirs = json.loads(path.read_text(encoding="utf-8"))
    for change, error in (
        ({"network": "gru"}, DamagedError),
        ({"network": "rnn"}, ConfigError),
        ({"dept": 1}, ConfigError),
    ):
        path.write_text(json.dumps({**theirs, "headway": {**theirs["headway"], **change}}), encoding="utf-8")
        with pytest.raises(error):
            load_model(folder)
    path.write_text(json.dumps(theirs), encoding="utf-8")
    assert isinstance(open_folder(folder).config, BaselineConfig)


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_a_config_survives_its_file(kind: dict[str, Any]) -> None:
    config = small(**kind).config
    assert build(BaselineConfig, json.loads(json.dumps(to_dict(config)))) == config


def test_shapes() -> None:
    shape = ShapeConfig(kind="lstm", depth=2, attention="dot", bidirectional=True, dropout=0.2)
    config = baseline_config(shape, 50, 32, reads=True)
    assert (config.width, config.depth, config.attention, config.bidirectional) == (128, 2, "dot", True)
    assert config.shared_embedding and config.source == config.target and config.max_length is None
    assert seq2seq_config(shape, 50, 32) == config
    alone = decoder_config(ShapeConfig(kind="conv", depth=3, width=8, kernel=5), 50, 32)
    assert isinstance(alone, BaselineConfig) and alone.max_length == 32 and alone.kernel == 5 and alone.source is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["task=classify", "model.kind=lstm"], "not classify"),
        (["model.kind=lstm", "data.rows=pack"], "data.rows"),
        (["model.kind=conv", "gpus=2"], "one process"),
        (["model.attention=dot"], "attention = dot is for recurrent networks"),
        (["model.kind=conv", "model.bidirectional=true"], "bidirectional = true is for recurrent networks"),
    ],
)
def test_recipes_that_make_no_sense(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_recipe("tiny", words)


def test_attention_without_a_source(place: Path) -> None:
    with pytest.raises(ConfigError, match=r"C004.*attention = dot"):
        make(place, "model.kind=lstm", "model.attention=dot")


def test_blocks_that_are_not_there(place: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.freeze"):
        make(place, "model.kind=lstm", "model.freeze=1")
    with pytest.raises(ConfigError, match="int8"):
        quantize_and_compare(small("lstm", False), None)


def test_what_it_costs() -> None:
    """Six operations a weight, and attention's where there is any: none with a fixed state, one layer's, or all."""
    for kind, layers in (
        ({"network": "gru"}, 0),
        ({"network": "gru", "attention": "dot"}, 1),
        ({"network": "conv"}, 2),
    ):
        config = small(**kind).config  # type: ignore[arg-type]
        assert flops_per_token(config, 1000, 10) == 6000 + 12 * layers * 8 * 10


def test_maps_of_a_translation() -> None:
    maps = attention_maps(small("lstm", attention="additive"), torch.arange(4)[None], torch.arange(3)[None])
    assert {name: tuple(weights.shape) for name, weights in maps.items()} == {"decoder.blocks.1.cross": (1, 1, 3, 4)}


def test_compiling_is_left_out_for_recurrent_kernels(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on this machine's account: what an accelerator would do by default."""
    from headway.train import run as runs

    seen: list[bool | None] = []
    real = runs.Loop

    def loop(model: Any, task: Any, optimizer: Any, settings: Any, *rest: Any) -> Any:
        seen.append(settings.compile)
        return real(model, task, optimizer, settings, *rest)

    monkeypatch.setattr(runs, "Loop", loop)
    make(place, "model.kind=lstm")
    make(place, "model.kind=conv")
    make(place, "model.kind=lstm", "train.compile=true")
    assert seen == [False, None, True]


def test_a_recipe_by_name() -> None:
    name, recipe = load_recipe("rnn")
    assert name == "rnn" and recipe.model.kind == "lstm" and isinstance(recipe, Recipe)


def test_the_server_says_what_it_cannot_do(place: Path) -> None:
    pytest.importorskip("fastapi")
    from headway.serve.context import ServedModel
    from headway.serve.limits import Limits

    run = train(make(place, "model.kind=elman", "train.steps=1"), quiet)
    with pytest.raises(DataError, match="of kind elman"):
        ServedModel(load(run.folder), Limits())
