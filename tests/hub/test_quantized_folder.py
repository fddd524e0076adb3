"""Quantized folders: written, read back to the bit, refused where they are not what they say; `export quant=int8`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import headway
from headway.checks.quantization import quantize_and_compare
from headway.cli.app import app, main
from headway.config import presets
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError, DamagedError, HeadwayError
from headway.generate.sampling.sampler import Sampling
from headway.hub.adapter import CONFIG_FILE, WEIGHTS_FILE, write_adapter
from headway.hub.folder import load_model, open_folder, save_model
from headway.hub.weights import open_weights, write_weights
from headway.kernels.lora import add_adapters
from headway.kernels.quantized import Int8Linear
from headway.model.model import Transformer
from headway.model.quantize import quantize_
from headway.tasks.recipe import load_recipe
from headway.train.build import build_model

VOCAB = 50


def make(vocab: int = VOCAB) -> Transformer:
    torch.manual_seed(0)
    return Transformer(presets.gpt2(2, 32, 2, vocab=vocab, length=64)).eval()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quantized folder, not to be changed."""
    return save_model(quantize_(make()), tmp_path_factory.mktemp("int8") / "model")


def test_what_the_folder_says(good: Path) -> None:
    config = json.loads((good / "config.json").read_text())
    assert config["model_type"] == "headway" and config["headway"]["quantization"] == "int8"
    weights = open_weights(good)
    assert weights.dtype("target.table.matrix.weight") == "int8"
    assert weights.shape("target.table.matrix.weight") == (VOCAB, 32)  # without the rows that round it up
    assert weights.shape("target.table.matrix.scale") == (VOCAB,)
    assert "lm.output.matrix.weight" not in weights  # the same matrix
    assert open_folder(good).config.quantization == "int8"


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.bfloat16])
def test_read_back_it_is_the_same_model(good: Path, dtype: torch.dtype | None) -> None:
    again, model = load_model(good, dtype), quantize_(make()).to(dtype)
    assert isinstance(again.lm.output, Int8Linear) and again.lm.output.matrix is again.target.table.matrix
    assert next(again.parameters()).dtype == (dtype or torch.float32)
    ids = torch.randint(VOCAB, (2, 9))
    assert torch.equal(again.lm(again(ids).hidden), model.lm(model(ids).hidden))
    assert again.parameter_count() == make().parameter_count()


def test_transformers_does_not_read_it(good: Path) -> None:
    transformers = pytest.importorskip("transformers")
    with pytest.raises(ValueError, match="headway"):
        transformers.AutoModelForCausalLM.from_pretrained(good)


def damaged(good: Path, folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> Path:
    weights = open_weights(good)
    tensors = {name: weights.read(name).clone() for name in weights.names}
    change(tensors)
    shutil.copytree(good, folder)
    (folder / "model.safetensors").unlink()
    write_weights(folder, tensors)
    return folder


UP = "decoder.blocks.0.ffn.up.matrix"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda t: t.pop(f"{UP}.scale"), "X002"),
        (lambda t: t.update({f"{UP}.scale": torch.ones(3)}), "X003"),
        (lambda t: t.update({f"{UP}.weight": t[f"{UP}.weight"].float()}), "X001"),
        (lambda t: t.update({f"{UP}.scale": t[f"{UP}.scale"].to(torch.int8)}), "X001"),
        (lambda t: t.update({"lm.output.matrix.scale": torch.ones(VOCAB)}), "X004"),
    ],
    ids=["no scale", "short scale", "float weights", "int8 scale", "one too many"],
)
def test_what_is_not_as_it_says_is_refused(good: Path, tmp_path: Path, change: Any, code: str) -> None:
    with pytest.raises(DamagedError) as caught:
        load_model(damaged(good, tmp_path / "bad", change))
    assert caught.value.code == code


def test_the_order_of_tensors_in_the_file_does_not_matter(good: Path, tmp_path: Path) -> None:
    def scales_first(tensors: dict[str, torch.Tensor]) -> None:
        ordered = sorted(tensors.items(), key=lambda pair: not pair[0].endswith("scale"))
        tensors.clear()
        tensors.update(ordered)

    model = load_model(damaged(good, tmp_path / "other", scales_first))
    assert next(model.parameters()).dtype == torch.float32


def test_unknown_kinds_are_refused(good: Path, tmp_path: Path) -> None:
    shutil.copytree(good, tmp_path / "odd")
    path = tmp_path / "odd" / "config.json"
    config = json.loads(path.read_text())
    config["headway"]["quantization"] = "int3"
    path.write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="int3") as caught:
        load_model(tmp_path / "odd")
    assert caught.value.code == "C003"


def test_it_is_not_trained_from(good: Path) -> None:
    _, recipe = load_recipe("tiny", [f"model.from={good}"])
    with pytest.raises(ConfigError, match=r"C004.*int8") as caught:
        build_model(recipe, None, torch.device("cpu"))  # type: ignore[arg-type]
    assert caught.value.code == "C004"


def test_an_adapter_is_not_merged_into_it(good: Path, tmp_path: Path) -> None:
    model = make()
    add_adapters(model, 2, ["qkv"])
    write_adapter(model, tmp_path, str(good), 2, ["qkv"])
    assert (tmp_path / CONFIG_FILE).exists() and (tmp_path / WEIGHTS_FILE).exists()
    with pytest.raises(ConfigError, match="quantized") as caught:
        load_model(tmp_path)
    assert caught.value.code == "C004"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a tokenizer."""
    tokenizer = train_tokenizer("bytes", [])
    return save_model(make(tokenizer.vocab_size), tmp_path_factory.mktemp("whole") / "model", tokenizer)


def test_export_says_what_it_did(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as ended:
        main(["export", str(whole), str(out), "quant=int8"])
    said = capsys.readouterr()
    assert ended.value.code == 0 and said.out == f"{out}\n"
    assert " MB → " in said.err and "perplexity " in said.err and "headway check" in said.err
    card = (out / "README.md").read_text()
    facts = [line.removeprefix("- ") for line in card.splitlines() if line.startswith(("- weights", "- perplexity"))]
    assert len(facts) == 2 and all(f"{fact}\n" in said.err for fact in facts)
    assert "`transformers` cannot read it" in card and "cannot be trained" in card
    assert load_model(out).config.quantization == "int8"
    assert (out / "tokenizer.json").exists()
    smaller = (out / "model.safetensors").stat().st_size / (whole / "model.safetensors").stat().st_size
    assert smaller < 0.4


def test_the_loss_is_that_of_the_model(whole: Path) -> None:
    bundle = headway.load(whole)
    shrunk = quantize_and_compare(bundle.model, bundle.tokenizer)
    assert shrunk.perplexity is not None and shrunk.tokens > 1000
    before, after = shrunk.perplexity
    assert before != after and abs(after / before - 1) < 0.02
    assert shrunk.bytes[1] < 0.4 * shrunk.bytes[0]
    with pytest.raises(ConfigError, match="already"):
        quantize_and_compare(bundle.model, bundle.tokenizer)


def test_a_model_without_text_is_not_measured() -> None:
    shrunk = quantize_and_compare(make(), None)
    assert shrunk.perplexity is None and "not measured" in shrunk.lines()[1]


def test_run_and_check_take_it(whole: Path, tmp_path: Path) -> None:
    bundle = headway.load(whole)
    quantize_(bundle.model)
    folder = bundle.save(tmp_path / "q")
    again = headway.load(folder)
    greedy = Sampling(temperature=0)
    assert "".join(again.stream("The import", 8, greedy)) == "".join(bundle.stream("The import", 8, greedy))
    assert all(row.ok for row in again.check(compiled=False))
    assert again.score(["the import statement"]) == bundle.score(["the import statement"])


@pytest.mark.parametrize(("word", "code"), [("quant=int4", "C003"), ("qunt=int8", "C014"), ("int8", "C001")])
def test_what_export_does_not_understand(word: str, code: str) -> None:
    result = CliRunner().invoke(app, ["export", "gpt2-tiny", "nowhere", word])
    assert isinstance(result.exception, HeadwayError) and result.exception.code == code
