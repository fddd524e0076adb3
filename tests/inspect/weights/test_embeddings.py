"""Embeddings: neighbours, maps, and what positions look like, on vectors whose geometry is known."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from headway.api import Bundle
from headway.errors import DataError, NotFoundError
from headway.model.model import Transformer
from headway.model.positions import alibi_slopes, sinusoidal


def test_neighbours_are_by_cosine_without_the_word_itself(bundle: Bundle) -> None:
    table = bundle.model.target.table.weight
    with torch.no_grad():
        table[ord("b")] = 2 * table[ord("a")]
        table[ord("c")] = table[ord("a")] + 0.01 * table[ord("d")]
    found = bundle.session.neighbours("a", 2)
    assert [each.word for each in found] == ["b", "c"]
    assert found[0].cosine == pytest.approx(1, abs=1e-5)


def test_a_word_of_several_tokens_is_their_mean(bundle: Bundle) -> None:
    table = bundle.model.target.table.weight
    with torch.no_grad():
        table[ord("z")] = (table[ord("a")] + table[ord("b")]) / 2
    assert bundle.session.neighbours("ab", 1)[0].word == "z"
    with pytest.raises(DataError, match="no token for ''"):
        bundle.session.neighbours("")


def test_a_map_keeps_what_lies_in_a_plane(bundle: Bundle) -> None:
    table, corners = bundle.model.target.table.weight, torch.tensor([[0.0, 0], [3, 0], [0, 1], [3, 1]])
    plane = torch.linalg.qr(torch.randn(32, 2))[0].T
    with torch.no_grad():
        for letter, corner in zip("abcd", corners, strict=True):
            table[ord(letter)] = corner @ plane
    found = bundle.session.embedding_map(["a", "b", "c", "d"])
    assert found.share == pytest.approx(1, abs=1e-5)
    apart = torch.cdist(found.points, found.points)
    torch.testing.assert_close(apart.float(), torch.cdist(corners, corners), atol=1e-4, rtol=0)
    assert found.to_dict()["words"] == ["a", "b", "c", "d"]


def test_words_of_the_vocabulary(bundle: Bundle) -> None:
    assert len(bundle.session.embedding_map().words) == 150
    with pytest.raises(DataError, match="two words or more"):
        bundle.session.embedding_map(["a"])


def test_a_map_by_umap_keeps_neighbours(bundle: Bundle) -> None:
    pytest.importorskip("umap", reason="pip install 'headway[umap]'")
    table = bundle.model.target.table.weight
    letters = "abcdefghijklmnop"
    with torch.no_grad():
        for i, letter in enumerate(letters):
            table[ord(letter)] = 0.05 * torch.randn(32) + (1 if i < 8 else -1) * torch.ones(32)
    found = bundle.session.embedding_map(list(letters), by="umap")
    apart = torch.cdist(found.points.float(), found.points.float())
    assert found.share is None and apart[:8, :8].max() < apart[:8, 8:].min()
    assert torch.equal(found.points, bundle.session.embedding_map(list(letters), by="umap").points)
    with pytest.raises(DataError, match="8 words or more, and there are 3"):
        bundle.session.embedding_map(["a", "b", "c"], by="umap")


def test_a_map_without_its_package(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(NotFoundError, match=r"headway\[umap\]"):
        bundle.session.embedding_map(list("abcdefgh"), by="umap")


def test_cosines_of_learned_and_sinusoidal_positions(bundle: Bundle) -> None:
    found = bundle.session.positions()
    vectors = bundle.model.target.positions.table.weight.detach()  # type: ignore[union-attr]
    unit = vectors / vectors.norm(dim=1, keepdim=True)
    np.testing.assert_allclose(found["cosines"], (unit @ unit.T).numpy(), atol=1e-4)
    target = bundle.config.target  # type: ignore[union-attr]
    waves = replace(target, positions=replace(target.positions, kind="sinusoidal"))  # type: ignore[arg-type,union-attr,type-var]
    other = replace(bundle, model=Transformer(replace(bundle.config, target=waves)).eval())  # type: ignore[arg-type,type-var]
    vectors = sinusoidal(torch.arange(64), 32)
    assert other.session.positions()["norms"] == pytest.approx(vectors.norm(dim=1).tolist(), abs=1e-4)


@pytest.mark.parametrize("name", ["llama", "t5", "alibi"])
def test_positions_inside_the_attention(name: str, request: pytest.FixtureRequest) -> None:
    from tests.inspect.conftest import config_of, made

    config = config_of("llama" if name == "alibi" else name)
    if name == "alibi":
        config = replace(config, decoder=replace(config.decoder, rope=None, alibi=True))  # type: ignore[type-var]
    session = made(config, name).session
    found = session.positions()
    if name == "llama":
        assert found["wavelengths"] == pytest.approx([2 * np.pi * 500_000 ** (i / 8) for i in range(0, 8, 2)], rel=1e-4)
    elif name == "alibi":
        assert found == {"kind": "alibi", "slopes": alibi_slopes(4)}
    else:
        bias = session.model.decoder.relative.table.weight  # type: ignore[union-attr]
        assert found["distances"][-1] == 0  # a causal stack looks back only
        assert np.array(found["bias"])[:, -1] == pytest.approx(bias[0].tolist(), abs=1e-4)
        assert session.positions("encoder")["distances"][-1] == 128
