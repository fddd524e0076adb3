"""Copies between CPU and device that do not wait for the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def copy_to_cpu(values: Tensor) -> Callable[[], list[Any]]:
    """Begin to copy values to the CPU. The returned function waits for the copy, not for later work of the device."""
    if not values.is_cuda:
        found = values.tolist()  # now: the next step may overwrite them
        return lambda: found
    here = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    here.copy_(values, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record()

    def look() -> list[Any]:
        copied.synchronize()
        return here.tolist()

    return look


def copy_to_device(values: Sequence[Any], device: torch.device, dtype: torch.dtype = torch.long) -> Tensor:
    """A tensor on a device, copied without waiting for the device."""
    if device.type != "cuda":
        return torch.tensor(values, dtype=dtype, device=device)
    return torch.tensor(values, dtype=dtype, pin_memory=True).to(device, non_blocking=True)
