"""The loss is a sum and a count, the same by either path."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from headway.config.model import LMHeadConfig, StackConfig
from headway.model.heads import LMHead
from headway.tasks.losses.tokens import IGNORE, r_drop_loss, symmetric_kl, token_loss


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


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_two_passes_share_their_loss_and_are_held_together(share: float) -> None:
    lm, (hidden, targets) = head(50, bias="trained"), batch(50)
    both = torch.stack([hidden, hidden + 0.3 * torch.randn_like(hidden)])
    total, count = r_drop_loss(lm, both, targets, share, 0.7)
    expected = sum(token_loss(lm, one, targets, share)[0] for one in both) / 2
    p, q = (lm(one[targets != IGNORE]).log_softmax(-1) for one in both)
    apart = F.kl_div(p, q, reduction="sum", log_target=True) + F.kl_div(q, p, reduction="sum", log_target=True)
    assert int(count) == int((targets != IGNORE).sum())
    assert torch.allclose(total, expected + 0.7 * apart / 2, rtol=1e-5)
    total.backward()
    assert lm.output.weight.grad is not None and bool(torch.isfinite(lm.output.weight.grad).all())
    assert not symmetric_kl(p, p).any()


def test_nothing_to_count() -> None:
    lm, (hidden, targets) = head(50), batch(50)
    total, count = token_loss(lm, hidden, torch.full_like(targets, IGNORE))
    assert (float(total.detach()), int(count)) == (0.0, 0)


@pytest.mark.gpu
@pytest.mark.parametrize("vocab", [50, 64, 20_011])
@pytest.mark.parametrize("bias", ["none", "trained"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("agreement", [None, 0.7])
def test_the_fused_path_equals_the_plain_one(
    vocab: int, bias: str, smoothing: float, agreement: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = head(vocab, bias=bias).cuda().bfloat16()
    hidden, targets = (t.cuda() for t in batch(vocab, rows=300))
    if agreement is not None:
        hidden = torch.stack([hidden, hidden + 0.5 * torch.randn_like(hidden)])
    results = []
    for fast in (True, False):
        monkeypatch.setattr("headway.tasks.losses.tokens._can_fuse", lambda x, fast=fast: fast)
        x = hidden.bfloat16().requires_grad_()
        lm.zero_grad()
        if agreement is None:
            total, _ = token_loss(lm, x, targets, smoothing)
        else:
            total, _ = r_drop_loss(lm, x, targets, smoothing, agreement)
        (0.37 * total).backward()
        results.append([total.detach(), x.grad, lm.output.weight.grad.clone()])
    for fused, plain in zip(*results, strict=True):
        assert float((fused - plain).abs().max()) <= 2e-2 * float(plain.abs().max())
