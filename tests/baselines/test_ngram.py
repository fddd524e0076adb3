"""The n-gram model: the tables as a model with logits, padding, packing, a decoding state, and files."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from headway.baselines.build import make_model
from headway.baselines.ngram import NGram
from headway.checks.equivalence.suite import check_model
from headway.checks.quantization import quantize_and_compare
from headway.config.model import SpecialTokens
from headway.config.networks.ngram import NGramConfig
from headway.errors import ConfigError, DamagedError
from headway.generate.decode import Sampling, decode
from headway.generate.score import score
from headway.hub.folder import load_model, save_model
from headway.tasks.lm.kneser_ney import NGrams, estimate
from headway.tasks.losses.tokens import token_loss
from headway.train.log.cost import flops_per_token

VOCAB = 7


@cache
def counted(order: int) -> NGrams:
    """A text in which each token depends on the two before it, most of the time."""
    rng, ids = np.random.default_rng(0), [0, 1]
    for noise in rng.random(400):
        ids.append((2 * ids[-1] + ids[-2] + 1) % (VOCAB - 1) if noise < 0.7 else int(noise * 1000) % (VOCAB - 1))
    return estimate(np.array(ids), np.array([0, len(ids)]), VOCAB, order)


def small(order: int = 4) -> NGram:
    found = counted(order)
    counts = tuple(map(len, found.keys))
    model = make_model(NGramConfig(vocab=VOCAB, ngrams=counts, special=SpecialTokens(eos=2, pad=0))).double()
    assert isinstance(model, NGram)
    model.fill(*([torch.from_numpy(t) for t in tables] for tables in (found.log_probs, found.backoffs, found.keys)))
    return model.eval()


def slow(found: NGrams, text: list[int]) -> list[float]:
    """log-probabilities of all tokens of the vocabulary after a text, by walking through dictionaries."""
    levels, names = [{(w,): value for w, value in enumerate(found.log_probs[0])}], [[(w,) for w in range(VOCAB)]]
    for keys, values in zip(found.keys, found.log_probs[1:], strict=True):
        names.append([(*names[-1][key // VOCAB], key % VOCAB) for key in keys.tolist()])
        levels.append(dict(zip(names[-1], values, strict=True)))
    weights = [dict(zip(some, values, strict=True)) for some, values in zip(names, found.backoffs, strict=False)]

    def prob(gram: tuple[int, ...]) -> float:
        if gram in levels[len(gram) - 1]:
            return levels[len(gram) - 1][gram]
        return weights[len(gram) - 2].get(gram[:-1], 0.0) + prob(gram[1:])

    return [prob((*text[max(0, len(text) - len(found.keys)) :], w)) for w in range(VOCAB)]


@pytest.mark.parametrize("order", [1, 2, 4])
def test_logits_are_log_probabilities(order: int) -> None:
    model, found = small(order), counted(order)
    texts = torch.randint(VOCAB, (5, 12), generator=torch.Generator().manual_seed(1))
    logits = model.lm(model(texts).hidden)
    for row, text in enumerate(texts.tolist()):
        for t in range(12):
            text_so_far = text[: t + 1] if order > 1 else []
            wanted = torch.tensor(slow(found, text_so_far), dtype=torch.double)
            torch.testing.assert_close(logits[row, t], wanted, rtol=0, atol=1e-9)
    torch.testing.assert_close(logits.logsumexp(-1), torch.zeros(5, 12, dtype=torch.double), rtol=0, atol=1e-12)
    assert logits.isfinite().all()


@pytest.mark.parametrize("order", [1, 2, 4])
def test_every_path_is_the_same(order: int) -> None:
    found = {row.name: row for row in check_model(small(order), compiled=False)}
    assert all(row.ok for row in found.values()), found
    compared = ("right padding = none", "left padding = none", "batch = single", "packed = separate")
    for name in (*compared, "cached = uncached", "reordered = fresh", "probabilities sum to 1", "saved = loaded"):
        assert found[name].difference is not None, name
    beams = ["beams = reference"] if order == 4 else []  # with a short memory many texts are equally likely
    for name in ("decoded = recomputed", "scored = recomputed", *beams):
        assert found[name].difference is not None, name
    assert found["spare rows closed"].difference is None and found["maps = eager weights"].difference is None


@pytest.mark.slow
def test_compiled_is_eager() -> None:
    (row,) = (row for row in check_model(small(), compiled=True) if row.name == "compiled = eager")
    assert row.difference is None or row.ok


def test_the_checks_notice_a_wrong_table() -> None:
    model = small()
    with torch.no_grad():
        model.lm.log_probs[2] += 0.1
    found = {row.name: row for row in check_model(model, compiled=False)}
    assert not found["probabilities sum to 1"].ok


def test_packed_texts_do_not_see_each_other() -> None:
    model, text = small(), torch.tensor([[0, 1, 3, 5, 0, 1, 3, 5]])
    packed = model(text, attention_mask=torch.tensor([[1, 1, 1, 1, 2, 2, 2, 2]])).hidden
    assert torch.equal(packed[:, 4:], packed[:, :4])
    assert not torch.equal(model(text).hidden[:, 4:], packed[:, 4:])


def test_loss_score_and_decoding() -> None:
    model = small()
    text = [0, 1, 3, 5, 0, 1]
    logits = model.lm(model(torch.tensor([text])).hidden)[0]
    wanted = -sum(float(logits[t, text[t + 1]]) for t in range(5))
    total, count = token_loss(model.lm, model(torch.tensor([text[:-1]])).hidden, torch.tensor([text[1:]]))
    assert float(total) == pytest.approx(wanted, abs=1e-9) and int(count) == 5
    assert float(score(model, [text], [1])[0].sum()) == pytest.approx(-wanted, abs=1e-5)
    new = [
        p.token for p in decode(model, [[0, 1]], Sampling(temperature=0, max_tokens=5, stop=())) if p.token is not None
    ]
    told = [0, 1]
    while len(told) < 7:
        told.append(int(np.argmax(slow(counted(4), told))))
    assert new == told[2 : 2 + len(new)] and (len(new) == 5 or new[-1] == 2)


def test_saved_and_loaded(tmp_path: Path) -> None:
    model = small().float()
    again = load_model(save_model(model, tmp_path / "m"))
    assert isinstance(again, NGram) and again.config == model.config and again.config.order == 4
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    assert again.lm.keys[0].dtype == torch.int64 and again.lm.log_probs[0].dtype == torch.float32


def test_a_file_with_keys_of_another_type_is_damaged(tmp_path: Path) -> None:
    model = small().float()
    model.lm.keys[0] = torch.nn.Parameter(model.lm.keys[0].float(), requires_grad=False)
    with pytest.raises(DamagedError):
        load_model(save_model(model, tmp_path / "m"))


def test_a_model_of_no_text_knows_nothing() -> None:
    model = make_model(NGramConfig(vocab=VOCAB, ngrams=(3, 2)))
    logits = model.lm(model(torch.arange(5)[None]).hidden)
    torch.testing.assert_close(logits, torch.full_like(logits, -math.log(VOCAB)))


def test_what_is_counted_and_what_is_not() -> None:
    model, found = small(3), counted(3)
    assert model.parameter_count() == 2 * VOCAB + 2 * len(found.keys[0]) + len(found.keys[1])
    assert flops_per_token(model.config, model.parameter_count(), 64) == 0
    with pytest.raises(ConfigError, match="of kind ngram"):
        quantize_and_compare(model, None)
    with pytest.raises(ConfigError, match=r"order = 21"):
        NGramConfig(vocab=5, ngrams=(1,) * 20)
    with pytest.raises(ConfigError, match="ngrams"):
        NGramConfig(vocab=5, ngrams=(3, 0))
