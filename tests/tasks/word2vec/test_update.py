"""A step of word vectors: kernels, batches and the plain definition; and what is drawn for it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from headway.config.networks.words import WordsConfig, WordVectorsConfig
from headway.joint.words import WordVectors
from headway.tasks.word2vec import update
from headway.tasks.word2vec.draws import NONE, Sampling, alias_table, make_sampling, predictions
from headway.tasks.word2vec.ngrams import all_rows
from headway.tasks.word2vec.task import Settings
from headway.tasks.word2vec.update import Stepper, plainly

WORDS, SPANS, LENGTH = 40, 6, 30
COUNTS = np.arange(WORDS, 0, -1) ** 2
BOTH = pytest.mark.parametrize("name", ["skipgram", "cbow"])


def make(name: str, ngram_rows: int = 0, **settings: object) -> tuple[WordVectors, Stepper]:
    config = WordVectorsConfig(source=WordsConfig(vocab=WORDS), width=20, ngram_rows=ngram_rows)
    model = WordVectors(config)
    assert model.outputs is not None
    torch.nn.init.normal_(model.inputs)
    torch.nn.init.normal_(model.outputs)
    chosen = Settings(**{"model": name, "subsample": 0.02, "window": 3, "negatives": 4, **settings})  # type: ignore[arg-type]
    rows = all_rows([f"word{number}" for number in range(WORDS)], config)
    return model, Stepper(make_sampling(COUNTS, chosen, 7), rows)


def text(seed: int = 0) -> tuple[Tensor, Tensor]:
    spans = np.random.default_rng(seed).integers(-1, WORDS, (SPANS, LENGTH)).astype(np.int32)
    return torch.from_numpy(spans), torch.arange(SPANS) * LENGTH + 12345


def weights(model: WordVectors) -> Tensor:
    assert model.outputs is not None
    return torch.cat([model.inputs.detach(), model.outputs.detach()]).clone()


@BOTH
@pytest.mark.parametrize("ngram_rows", [0, 50])
def test_one_thread_of_kernels_is_the_plain_definition(name: str, ngram_rows: int) -> None:
    pytest.importorskip("numba")
    model, stepper = make(name, ngram_rows)
    inputs, outputs = weights(model).split([WORDS + ngram_rows, WORDS])
    before, drawn = weights(model), predictions(*text(), stepper.sampling)
    expected = plainly(inputs, outputs, drawn, stepper.rows, 0.05)
    loss, pairs = stepper.by_kernels(model, *text(), 0.05)
    assert loss == pytest.approx(expected, rel=1e-5) and pairs == len(drawn.centre) > 100
    assert torch.allclose(weights(model), torch.cat([inputs, outputs]), atol=2e-5)
    assert (weights(model) - before).abs().max() > 0.1


@BOTH
def test_more_threads_learn_the_same_predictions(name: str) -> None:
    pytest.importorskip("numba")
    model, stepper = make(name)
    one = stepper.losses(model, *text())
    several = Stepper(stepper.sampling, stepper.rows, threads=3)
    assert several.by_kernels(model, *text(), 0.0) == (pytest.approx(one[0], rel=1e-4), one[1])


@BOTH
@pytest.mark.parametrize("ngram_rows", [0, 50])
def test_a_batch_of_one_prediction_is_the_plain_definition(
    name: str, ngram_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a batch of one nothing is stale; only a word that stands twice among the targets is."""
    monkeypatch.setitem(update.PART, "cpu", 1)
    model, stepper = make(name, ngram_rows, negatives=1, window=1)
    inputs, outputs = weights(model).split([WORDS + ngram_rows, WORDS])
    drawn = predictions(*text(), stepper.sampling)
    expected = plainly(inputs, outputs, drawn, stepper.rows, 0.01)
    loss, pairs = stepper.in_batches(model, *text(), 0.01)
    assert loss == pytest.approx(expected, rel=1e-3) and pairs == len(drawn.centre)
    assert torch.allclose(weights(model), torch.cat([inputs, outputs]), atol=3e-3)


@BOTH
def test_without_numba_batches_learn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "has_kernels", lambda: False)
    model, stepper = make(name)
    before = stepper.losses(model, *text())[0]
    for _ in range(20):
        stepper.learn(model, *text(), 0.05)
    assert stepper.losses(model, *text())[0] < 0.8 * before


@pytest.mark.gpu
@BOTH
@pytest.mark.parametrize("ngram_rows", [0, 50])
def test_a_gpu_draws_and_learns_the_same(name: str, ngram_rows: int) -> None:
    torch.manual_seed(0)
    model, stepper = make(name, ngram_rows)
    there = WordVectors(model.config).cuda()
    there.load_state_dict(model.state_dict())
    on_gpu = Stepper(stepper.sampling, stepper.rows, 1, torch.device("cuda"))
    spans, places = (each.cuda() for each in text())
    here, gpu = stepper.in_batches(model, *text(), 0.05), on_gpu.in_batches(there, spans, places, 0.05)
    assert gpu == (pytest.approx(here[0], rel=1e-4), here[1])
    assert torch.allclose(weights(there).cpu(), weights(model), atol=1e-4)


def test_a_row_that_occurs_often_in_a_batch_moves_no_further_than_the_cap() -> None:
    weights_, rows = torch.zeros(2, 3), torch.tensor([0] * 100 + [1])
    update._move(weights_, rows, torch.full((101, 3), 0.1), 0.1)
    assert torch.allclose(weights_[0], torch.tensor(1.0)) and torch.allclose(weights_[1], torch.tensor(0.1))


def test_what_is_drawn_depends_on_the_place_alone() -> None:
    _, stepper = make("skipgram")
    spans, places = text()
    both = predictions(spans, places, stepper.sampling)
    alone = [predictions(spans[i : i + 1], places[i : i + 1], stepper.sampling) for i in range(SPANS)]
    for name in ("inputs", "targets"):
        assert torch.equal(getattr(both, name), torch.cat([getattr(one, name) for one in alone]))
    moved = predictions(spans, places + SPANS * LENGTH, stepper.sampling)
    assert len(moved.centre) != len(both.centre) or not torch.equal(moved.targets, both.targets)


def sampling(**settings: object) -> Sampling:
    return make_sampling(COUNTS, Settings(**settings), 3)  # type: ignore[arg-type]


def test_no_window_crosses_the_end_of_a_sentence() -> None:
    spans = torch.tensor([[0, 1, -1, 2, 3, -1, -1, 4]], dtype=torch.int32)
    drawn = predictions(spans, torch.zeros(1, dtype=torch.long), sampling(subsample=0, window=5))
    found = {(a, b) for a, b in zip(drawn.inputs[:, 0].tolist(), drawn.targets[:, 0].tolist(), strict=True)}
    assert found == {(0, 1), (1, 0), (2, 3), (3, 2)}


def test_the_reach_of_a_window_is_drawn_evenly() -> None:
    spans, places = torch.zeros(200, 100, dtype=torch.int32), torch.arange(200) * 100
    spans[:, ::2] = 1
    drawn = predictions(spans, places, sampling(subsample=0, window=4))
    sizes = torch.unique_consecutive(drawn.centre, return_counts=True)[1]
    shares = torch.bincount(sizes, minlength=9)[[2, 4, 6, 8]] / 20_000
    assert torch.allclose(shares, torch.tensor(0.25), atol=0.02)


def test_negatives_follow_the_counts_to_a_power() -> None:
    spans, places = torch.full((100, 100), WORDS - 1, dtype=torch.int32), torch.arange(100) * 100
    drawn = predictions(spans, places, sampling(subsample=0))
    negatives = drawn.targets[:, 1:]
    shares = torch.bincount(negatives[negatives != NONE], minlength=WORDS).double() / negatives.numel()
    wanted = COUNTS**0.75 / (COUNTS**0.75).sum()
    assert shares[-1] == 0 and np.allclose(shares[:-1].numpy(), wanted[:-1], atol=3e-3)


def test_frequent_words_are_left_out_by_their_share() -> None:
    made = sampling(subsample=0.01)
    share = COUNTS / COUNTS.sum()
    wanted = np.minimum(1, np.sqrt(0.01 / share) + 0.01 / share)
    assert np.allclose(made.keep.numpy() / 2**32, wanted, atol=1e-6) and wanted[0] < 0.6 and wanted[-1] == 1
    spans, places = torch.zeros(100, 100, dtype=torch.int32), torch.arange(100) * 100
    kept = predictions(spans, places, made).centre.max() + 1
    assert float(kept) / 10_000 == pytest.approx(wanted[0], abs=0.02)


def test_an_alias_table_has_the_shares_of_the_weights() -> None:
    weights_ = np.random.default_rng(0).pareto(1.0, 50) + 0.01
    share, other = alias_table(weights_.copy())
    total = share.copy()
    np.add.at(total, other, 1 - share)
    assert np.allclose(total / 50, weights_ / weights_.sum())
