"""What else a family has to do, beside giving the outputs of `transformers`: every check, generation, int8."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from headway.checks.equivalence.suite import check_model
from headway.config.generation import Beam
from headway.generate.beam.search import beam_search
from headway.generate.protocol import Source
from headway.hub.folder import load_model, save_model
from headway.hub.generation_config import read_generation
from headway.model.model import Transformer
from headway.model.quantize import quantize_
from tests.parity.conftest import PAD, VOCAB, Case
from tests.parity.encoder_cases import ENCODER_DECODERS, ENCODERS

MakeCase = Callable[[str], Case]
WRITERS = [name for name in ENCODER_DECODERS if name.endswith("-lm")]
USED = [*(name for name in ENCODERS if name.endswith("-mlm")), "electra-discriminator", *WRITERS]
"""One of each family, with the head that it was pretrained with."""
INT8_ERROR = 0.05
"""Of the norm of the outputs: 127 steps for the largest weight of a row are 0.4 %, and there are a dozen matrices."""


@pytest.mark.parametrize("name", USED)
def test_every_check_passes(name: str, case: MakeCase) -> None:
    results = list(check_model(load_model(case(name).folder), compiled=False))
    assert [result for result in results if not result.ok] == []
    meant = {result.name for result in results if result.means}
    assert {"right padding = none", "left padding = none", "LoRA merged = beside", "saved = loaded"} <= meant
    if name in WRITERS:
        assert {"cached = uncached", "decoded = recomputed", "beams = reference", "int8 alone = together"} <= meant


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("name", WRITERS)
def test_texts_are_those_of_transformers(name: str, width: int, case: MakeCase) -> None:
    this = case(name)
    ids = torch.randint(4, VOCAB, (4, 9), generator=torch.Generator().manual_seed(5))
    mask = torch.ones(4, 9, dtype=torch.bool)
    mask[1, 6:] = mask[3, 3:] = False
    ids[~mask] = PAD
    model = load_model(this.folder)
    found = beam_search(model, Beam(width=width, max_tokens=14), source=Source(ids, mask))
    made = this.oracle.generate(
        ids, attention_mask=mask.long(), num_beams=width, max_new_tokens=14, do_sample=False, early_stopping=False
    )
    for row, (best, *_) in zip(made.tolist(), found, strict=True):
        tokens = row[1:]
        end = tokens.index(2) if 2 in tokens else len(tokens) - 1
        assert best.tokens == tokens[: end + 1]


@pytest.mark.parametrize("name", ["m2m-100-lm", "mbart-lm"])
def test_a_translation_begins_with_the_language_that_the_folder_names(
    name: str, case: MakeCase, tmp_path: Path
) -> None:
    this = case(name)
    shutil.copytree(this.folder, tmp_path / "model")
    said = json.loads((tmp_path / "model" / "generation_config.json").read_text()) | {"forced_bos_token_id": 7}
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(said))
    rules = read_generation(tmp_path / "model").rules
    ids = torch.randint(8, VOCAB, (3, 9), generator=torch.Generator().manual_seed(5))
    made = this.oracle.generate(ids, num_beams=4, max_new_tokens=9, do_sample=False, forced_bos_token_id=7)
    found = beam_search(load_model(tmp_path / "model"), Beam(width=4, max_tokens=9, **rules), source=Source(ids))
    for row, (best, *_) in zip(made.tolist(), found, strict=True):
        assert best.tokens[0] == 7 and best.tokens == row[1 : 1 + len(best.tokens)]


@pytest.mark.parametrize("name", USED)
def test_int8_is_close_and_read_back_to_the_bit(name: str, case: MakeCase, tmp_path: Path) -> None:
    whole, small = load_model(case(name).folder), load_model(case(name).folder)
    assert isinstance(small, Transformer)
    again = load_model(save_model(quantize_(small), tmp_path / "int8"))
    ids = torch.randint(4, VOCAB, (2, 12), generator=torch.Generator().manual_seed(5))
    targets = ids[:, :7] if "-lm" in name else None
    with torch.no_grad():
        right, close, same = (next(iter(m.logits(m(ids, targets)).values())) for m in (whole, small, again))
    assert torch.equal(close, same)
    assert 0 < float((close - right).norm()) < INT8_ERROR * float(right.norm())
