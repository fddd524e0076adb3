"""The linear map; and another way to the same result, for a few rows on a CPU, where decoding spends its time.

Torch's product of a matrix and a vector keeps to one core. Numpy's library reads the matrix with all of them, but not
beside threads that want the same cores: torch's own, which go on looking for work for some milliseconds after each
operation, or another program's. So within `few_rows` torch keeps to one thread while products go through numpy; and
where that turns out to be slow, the next steps are left to torch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[Any]

FEW = 16
"""Rows up to which numpy's product is the faster one."""


PAUSE = 64
"""Steps that are left to torch after one that took twice as long through numpy."""


class _Here(threading.local):
    numpy = False

    def __init__(self) -> None:
        self.usual: dict[tuple[int, ...], float] = {}
        """Seconds that a step takes with torch alone, by the shape of its largest matrix and its rows."""
        self.pause = 0


_here = _Here()


@contextmanager
def few_rows(rows: int, like: Tensor | None) -> Iterator[None]:
    """For a step of so many rows through a model with such weights; None is one that has others. No gradients."""
    suits = like is not None and like.device.type == "cpu" and like.dtype == torch.float32
    if like is None or not suits or rows > FEW or _here.numpy or torch.is_grad_enabled():
        yield
        return
    kind = (*like.shape, rows)
    alone = kind not in _here.usual or _here.pause > 0
    begin = time.perf_counter()
    with nullcontext() if alone else _through_numpy():
        yield
    seconds = time.perf_counter() - begin
    if alone:
        _here.usual[kind] = min(seconds, _here.usual.get(kind, seconds))
        _here.pause = max(0, _here.pause - 1)
    elif seconds > 2 * _here.usual[kind]:
        _here.pause = PAUSE


@contextmanager
def _through_numpy() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    _here.numpy = True
    try:
        yield
    finally:
        _here.numpy = False
        torch.set_num_threads(threads)


class Linear(nn.Linear):
    """torch's, but for what is said above."""

    def forward(self, x: Tensor) -> Tensor:
        if _here.numpy and x.dtype == self.weight.dtype == torch.float32 and 0 < x.numel() <= FEW * self.in_features:
            y = product(x.detach().numpy(), self.weight.detach().numpy())
            if self.bias is not None:
                y += self.bias.detach().numpy()
            return torch.from_numpy(y)
        return super().forward(x)


def product(x: Array, weight: Array) -> Array:
    """x (…, K) times the transposed weight (N, K); one or two rows as vectors, which libraries read faster."""
    rows = x.size // x.shape[-1]
    if rows == 1:
        y = weight.dot(x.reshape(-1))
    elif rows == 2:
        y = np.stack([weight.dot(row) for row in x.reshape(2, -1)])
    else:
        y = x.reshape(rows, -1).dot(weight.T)
    result: Array = y.reshape(*x.shape[:-1], len(weight))
    return result
