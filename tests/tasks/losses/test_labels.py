"""Losses of labels: smoothed, weighted, and of two passes that should agree, each against the sum written out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from headway.config.model import ClassifyHeadConfig
from headway.config.recipe import ShapeConfig
from headway.config.shape import encoder_config
from headway.errors import ConfigError
from headway.model.heads import pool
from headway.model.model import Transformer
from headway.tasks.classification.task import Settings as ClassificationConfig
from headway.tasks.losses.labels import label_logits, label_loss, loss_count, loss_from_logits
from headway.tasks.losses.tokens import symmetric_kl
from headway.tasks.tagging.task import Settings as TaggingConfig

TARGETS = torch.tensor([0, 2, 1, 2])
WEIGHTS = torch.tensor([2.0, 1.0, 0.5])


def batch() -> tuple[torch.Tensor, ...]:
    ids = torch.randint(1, 30, (4, 8))
    attention_mask = torch.arange(8)[None] < torch.tensor([8, 5, 3, 8])[:, None]
    return ids, attention_mask, torch.zeros_like(ids)


def model(dropout: float = 0.0, **head: Any) -> Transformer:
    config = encoder_config(ShapeConfig(depth=2, width=16, heads=2, dropout=dropout), 30, 8)
    labels = ("a", "b", "c")
    built = Transformer(replace(config, lm=None, classify=ClassifyHeadConfig(labels=3, **head), labels=labels))
    return built.eval().requires_grad_(False)


def test_smoothing_spreads_a_share_of_each_label_evenly() -> None:
    scores = torch.randn(4, 3)
    share = torch.full((4, 3), 0.2 / 3)
    share[torch.arange(4), TARGETS] += 0.8
    each = -(share * scores.log_softmax(-1)).sum(1)
    assert float(loss_from_logits("single", scores, TARGETS, None, 0.2)) == pytest.approx(float(each.sum()), rel=1e-5)
    net, tensors = model(), batch()
    total = label_loss("single", ClassificationConfig(label_smoothing=0.2))(net, *tensors, TARGETS, WEIGHTS)
    expected = loss_from_logits("single", label_logits(net, *tensors), TARGETS, WEIGHTS, 0.2)
    assert float(total) == pytest.approx(float(expected), rel=1e-5)


@given(
    st.integers(2, 6), st.integers(1, 12), st.sampled_from([0.0, 0.1, 0.7]), st.booleans(), st.integers(1, 3), st.data()
)
def test_weighted_and_smoothed_is_torch_on_the_whole_batch(
    labels: int, texts: int, smoothing: float, weighted: bool, parts: int, data: st.DataObject
) -> None:
    """However the batch is parted: sums and counts add up to torch's mean."""
    scores = torch.randn(texts, labels, dtype=torch.float64)
    targets = torch.tensor(data.draw(st.lists(st.integers(0, labels - 1), min_size=texts, max_size=texts)))
    weights = torch.rand(labels, dtype=torch.float64) + 0.05 if weighted else None
    expected = F.cross_entropy(scores, targets, weight=weights, label_smoothing=smoothing)
    pieces = list(zip(scores.chunk(parts), targets.chunk(parts), strict=True))
    total = sum(float(loss_from_logits("single", s, t, weights, smoothing)) for s, t in pieces)
    count = sum(loss_count("single", t, weights) for _, t in pieces)
    assert total / count == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_several_labels_are_torch_on_the_whole_batch(weighted: bool) -> None:
    scores, targets = torch.randn(7, 3), (torch.rand(7, 3) < 0.4).float()
    weights = WEIGHTS if weighted else None
    expected = F.binary_cross_entropy_with_logits(scores, targets, pos_weight=weights)
    total = sum(
        float(loss_from_logits("multi", s, t, weights))
        for s, t in ((scores[:3], targets[:3]), (scores[3:], targets[3:]))
    )
    count = loss_count("multi", targets[:3], weights) + loss_count("multi", targets[3:], weights)
    assert total / count == pytest.approx(float(expected), rel=1e-5)


def test_numbers_are_torch_on_the_whole_batch() -> None:
    scores, targets = torch.randn(7, 1), torch.randn(7)
    total = float(loss_from_logits("regression", scores, targets)) / loss_count("regression", targets, None)
    assert total == pytest.approx(float(F.mse_loss(scores[:, 0], targets)), rel=1e-5)


def test_two_passes_count_as_much_as_their_class() -> None:
    """Equal weights change nothing, whatever they are."""
    net, (ids, attention_mask, token_type_ids) = model(0.3).train(), batch()
    means = []
    for weights in (None, torch.ones(3), torch.full((3,), 3.0)):
        torch.manual_seed(1)
        total = label_loss("single", ClassificationConfig(r_drop=0.7, label_smoothing=0.1))(
            net, ids, attention_mask, token_type_ids, TARGETS, weights
        )
        means.append(float(total) / loss_count("single", TARGETS, weights))
    assert means == pytest.approx([means[0]] * 3, rel=1e-5)


def test_two_passes_should_agree() -> None:
    first, second = torch.randn(4, 3), torch.randn(4, 3)
    p, q = first.log_softmax(-1), second.log_softmax(-1)
    both = [F.kl_div(a, b, log_target=True, reduction="sum") for a, b in ((p, q), (q, p))]
    assert float(symmetric_kl(p, q).sum()) == pytest.approx(float(sum(both)) / 2, rel=1e-4)
    assert float(symmetric_kl(p, p).sum()) == 0.0


def test_rdrop_is_the_mean_of_two_passes_and_their_disagreement() -> None:
    """The slow way: the texts beside themselves in one pass, its halves taken apart."""
    net, (ids, attention_mask, token_type_ids) = model(0.3).train(), batch()
    torch.manual_seed(1)
    scores = label_logits(net, *(torch.cat([t, t]) for t in (ids, attention_mask, token_type_ids)))
    assert not torch.allclose(scores[:4], scores[4:])  # dropout is not the same for both
    apart = sum(F.cross_entropy(s, TARGETS, reduction="sum", label_smoothing=0.1) for s in (scores[:4], scores[4:]))
    torch.manual_seed(1)
    settings = ClassificationConfig(r_drop=0.7, label_smoothing=0.1)
    total = label_loss("single", settings)(net, ids, attention_mask, token_type_ids, TARGETS, None)
    p, q = scores.log_softmax(-1).chunk(2)
    expected = float(apart) / 2 + 0.7 * float(symmetric_kl(p, q).sum())
    assert float(total) == pytest.approx(expected, rel=1e-5)
    plain = label_loss("single", ClassificationConfig())(net.eval(), ids, attention_mask, token_type_ids, TARGETS, None)
    still = label_loss("single", ClassificationConfig(r_drop=0.7))(
        net, ids, attention_mask, token_type_ids, TARGETS, None
    )
    assert float(still) == pytest.approx(float(plain), rel=1e-5)  # without dropout there is nothing to disagree on


def test_the_losses_can_be_compiled() -> None:
    net, tensors = model(), batch()
    for settings in (ClassificationConfig(label_smoothing=0.1), ClassificationConfig(r_drop=1.0)):
        loss = label_loss("single", settings)
        compiled = torch.compile(loss, backend="eager", fullgraph=True)
        assert float(compiled(net, *tensors, TARGETS, None)) == pytest.approx(
            float(loss(net, *tensors, TARGETS, None)), rel=1e-6
        )


@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), side=st.sampled_from(["left", "right"]))
def test_the_largest_values_are_those_of_real_tokens(lengths: list[int], side: str) -> None:
    x = torch.randn(len(lengths), 6, 4) - 5  # padding of zeros would be larger
    count = torch.tensor(lengths)[:, None]
    attention_mask = torch.arange(6)[None] < count if side == "right" else torch.arange(6)[None] >= 6 - count
    x[~attention_mask] = 9.0
    found = pool(x, attention_mask, "max")
    for row, (vectors, real) in enumerate(zip(x, attention_mask, strict=True)):
        assert torch.equal(found[row], vectors[real].max(0).values)
        assert torch.equal(pool(vectors[real][None], None, "max")[0], found[row])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ClassificationConfig(label_smoothing=1.0),
            r"classify\.label_smoothing = 1\.0 should be at least 0 and less than 1",
        ),
        (lambda: ClassificationConfig(dropout=-0.1), r"classify\.dropout = -0\.1 should be"),
        (lambda: ClassificationConfig(r_drop=-1.0), r"classify\.r_drop = -1\.0 should be at least 0"),
        (lambda: TaggingConfig(label_smoothing=-0.5), r"tag\.label_smoothing = -0\.5 should be"),
        (lambda: TaggingConfig(dropout=1.5), r"tag\.dropout = 1\.5 should be"),
        (lambda: TaggingConfig(context=-1), r"tag\.context = -1 should be at least 0"),
    ],
)
def test_settings_out_of_range(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
