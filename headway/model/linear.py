"""The linear map; and another way to the same result, for a few rows on a CPU, where decoding spends its time.

Torch's product of a matrix and a vector keeps to one core. Numpy's library reads the matrix with all of them, but not
beside torch's own threads: these go on looking for work for some milliseconds after each operation. So within
`few_rows` torch keeps to one thread, and products go through numpy.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[Any]

FEW = 16
"""Rows up to which numpy's product is the faster one."""


class _Here(threading.local):
    numpy = False


_here = _Here()


@contextmanager
def few_rows(rows: int, like: Tensor | None) -> Iterator[None]:
    """For a step of so many rows through a model with such weights; None is one that has others. No gradients."""
    suits = like is not None and like.device.type == "cpu" and like.dtype == torch.float32
    if not suits or rows > FEW or _here.numpy or torch.is_grad_enabled():
        yield
        return
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
