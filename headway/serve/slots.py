"""How many texts are written at one time where nobody says how many."""

from __future__ import annotations

from collections.abc import Callable

import torch

from headway.generate.accel.dispatch import accelerates
from headway.generate.engine.engine import CAPACITY
from headway.generate.protocol import device_of
from headway.model.model import Model
from headway.serve.limits import Limits

DEFAULT_SLOTS = 8
MAX_SLOTS = 64
"""With kernels, a GPU takes hardly longer for so many texts than for one."""
KV_CACHE_SHARE = 0.25
"""Of the free memory of a GPU that keys and values may take."""


def free_memory(device: torch.device) -> int:
    """Bytes that nobody has taken of a GPU."""
    return torch.cuda.mem_get_info(device)[0]


def choose_slots(limits: Limits, model: Model, free: Callable[[torch.device], int] = free_memory) -> int:
    """As many as the limits say, or what suits the model where it is."""
    if limits.slots is not None:
        return limits.slots
    device = device_of(model)
    if device.type != "cuda" or not accelerates(model, MAX_SLOTS):
        return DEFAULT_SLOTS
    slots, room = MAX_SLOTS, KV_CACHE_SHARE * free(device)
    while slots > DEFAULT_SLOTS and slots * kv_cache_bytes(model, limits.context) > room:
        slots //= 2
    return slots


def kv_cache_bytes(model: Model, context: int) -> int:
    """Keys and values of one text as long as may be; `context` 0 is what the model can read."""
    stack = model.config.decoder
    assert stack is not None
    tokens = context or model.config.max_length or CAPACITY
    return tokens * stack.n_layers * 2 * stack.kv_heads * stack.head_width * next(model.parameters()).element_size()
