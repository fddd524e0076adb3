"""The loss is a sum and a count, the same by either path."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from headway.config import LMHeadConfig, StackConfig
from headway.model.heads import LMHead
from headway.tasks.loss import IGNORE, token_loss


def head(vocab: int, **fields: object) -> LMHead:
    torch.manual_seed(0)
    stack = StackConfig(d_model=32, n_layers=1, n_heads=4, d_ff=64)
    table = torch.nn.Embedding(-(-vocab // 64) * 64, 32)
    made = LMHead(LMHeadConfig(**fields), stack, vocab, table)  # type: ignore[arg-type]
    if made.output.bias is not None:
        made.output.bias.data.normal_()
    return made


def batch(vocab: int, rows: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    targets = torch.randint(0, vocab, (rows,))
    targets[::3] = IGNORE
    return torch.randn(rows, 32), targets


@pytest.mark.parametrize("vocab", [50, 64])
@pytest.mark.parametrize("fields", [{}, dict(bias="trained"), dict(transform="gelu", bias="trained", scale=0.5)])
def test_the_rounded_rows_do_not_count(vocab: int, fields: dict[str, object]) -> None:
    lm, (hidden, targets) = head(vocab, **fields), batch(vocab)
    total, count = token_loss(lm, hidden.view(2, 20, 32), targets.view(2, 20))
    expected = F.cross_entropy(lm(hidden), targets, ignore_index=IGNORE, reduction="sum")
    assert int(count) == int((targets != IGNORE).sum())
    assert torch.allclose(total, expected)
    total.backward()
    assert lm.output.weight.grad is not None
    assert float(lm.output.weight.grad[vocab:].abs().sum()) == 0


@pytest.mark.parametrize("vocab", [50, 64])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_smoothing_is_that_of_torch(vocab: int, share: float) -> None:
    lm, (hidden, targets) = head(vocab, bias="trained"), batch(vocab)
    grads = []
    for slow in (False, True):
        x = hidden.clone().requires_grad_()
        if slow:
            total = F.cross_entropy(lm(x), targets, ignore_index=IGNORE, reduction="sum", label_smoothing=share)
        else:
            total, count = token_loss(lm, x.view(2, 20, 32), targets.view(2, 20), share)
            assert int(count) == int((targets != IGNORE).sum())
        total.backward()
        grads.append((total.detach(), x.grad))
    assert torch.allclose(grads[0][0], grads[1][0]) and torch.allclose(grads[0][1], grads[1][1], atol=1e-5)  # type: ignore[arg-type]
    assert bool(torch.isfinite(grads[0][1]).all())  # type: ignore[arg-type]


def test_nothing_to_count() -> None:
    lm, (hidden, targets) = head(50), batch(50)
    total, count = token_loss(lm, hidden, torch.full_like(targets, IGNORE))
    assert (float(total.detach()), int(count)) == (0.0, 0)


@pytest.mark.gpu
@pytest.mark.parametrize("vocab", [50, 64, 20_011])
@pytest.mark.parametrize("bias", ["none", "trained"])
def test_the_fused_path_equals_the_plain_one(vocab: int, bias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = head(vocab, bias=bias).cuda().bfloat16()
    hidden, targets = (t.cuda() for t in batch(vocab, rows=300))
    results = []
    for fast in (True, False):
        monkeypatch.setattr("headway.tasks.loss._fast", lambda x, fast=fast: fast)
        x = hidden.bfloat16().requires_grad_()
        lm.zero_grad()
        total, _ = token_loss(lm, x, targets)
        (0.37 * total).backward()
        results.append([total.detach(), x.grad, lm.output.weight.grad.clone()])
    for fused, plain in zip(*results, strict=True):
        assert float((fused - plain).abs().max()) <= 2e-2 * float(plain.abs().max())
