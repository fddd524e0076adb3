"""The page of an inspection: complete, small, self-contained, and safe for any token."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from headway.api import Bundle
from headway.config.presets import gpt2
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import DataError
from headway.inspect.show import page as pages
from headway.inspect.show.page import packed, page, write_page
from headway.model.model import Transformer
from headway.report.page import script_text


def values_of(text: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="inspection">(.*?)</script>', text, re.DOTALL)
    assert found
    values: dict[str, object] = json.loads(found[1])
    return values


def page_of(bundle: Bundle, given: str) -> str:
    return page(bundle.name, bundle.session.overview(), bundle.inspect(given))


def test_every_model_has_a_page(any_bundle: Bundle) -> None:
    text = page_of(any_bundle, "To be or not")
    values = values_of(text)
    assert set(values["kinds"]) == set(any_bundle.inspect("To be or not").kinds)  # type: ignore[call-overload]
    assert "looks at" in text


def test_the_maps_of_a_page_are_those_of_the_pass(bundle: Bundle) -> None:
    kinds = values_of(page_of(bundle, "To be or not"))["kinds"]
    steps = np.frombuffer(base64.b64decode(kinds["decoder"]["maps"]), np.uint8)  # type: ignore[index]
    maps = bundle.inspect("To be or not").attention()
    np.testing.assert_allclose((steps / 255.0).reshape(maps.shape) ** 2, maps, atol=0.005)


def test_small_weights_keep_their_digits() -> None:
    steps = np.frombuffer(base64.b64decode(packed(np.array([0, 1e-4, 0.01, 1], np.float32))), np.uint8)
    assert ((steps / 255.0) ** 2).tolist() == pytest.approx([0, 1e-4, 0.01, 1], rel=0.4)


def test_a_page_of_the_size_of_gpt2_is_small() -> None:
    torch.manual_seed(0)
    model = Transformer(gpt2(12, 96, 12, vocab=256, length=64)).eval()
    text = page_of(Bundle("large", model, train_tokenizer("bytes", ["abc"]), None), "x" * 64)
    assert len(text.encode()) <= 2_000_000


def test_nothing_is_loaded_and_only_one_script_runs(bundle: Bundle) -> None:
    text = page_of(bundle, "To be")
    digest = base64.b64encode(hashlib.sha256(script_text("inspect.js").encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert "default-src 'none'" in text
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", text)


def test_names_cannot_become_markup(classifier: Bundle) -> None:
    hostile = "</script><img src=x onerror=alert(1)>"
    model = Transformer(replace(classifier.config, labels=(hostile, "b", "c"))).eval()  # type: ignore[arg-type,type-var]
    text = page_of(replace(classifier, name=hostile, model=model), hostile)
    assert text.count("</script>") == 2
    assert "<img src=x" not in text
    values = values_of(text)
    assert "".join(values["kinds"]["encoder"]["tokens"]) == hostile  # type: ignore[index]
    assert hostile in {label for label, _ in values["predictions"][0]}  # type: ignore[index]


def test_attribution_and_patching_stand_in_the_page(bundle: Bundle, tmp_path: Path) -> None:
    session = bundle.session
    why, patching = session.attribution("To be").to_dict(), session.patching("To be", "To me").to_dict()
    path = tmp_path / "inside.html"
    write_page(path, "tiny", session.overview(), session.run("To be"), why, patching)
    text = path.read_text()
    assert "What speaks for" in text and "Activation patching" in text and "b → m" in text


def test_a_page_that_no_browser_opens_is_refused(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "LARGEST", 100)
    with pytest.raises(DataError, match="a page of 200 attention weights is too large"):
        write_page(tmp_path / "x.html", "tiny", bundle.session.overview(), bundle.inspect("To be"))
    assert not (tmp_path / "x.html").exists()
