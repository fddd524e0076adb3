"""Several processes that train one model: torchrun's ranks, collectives, FSDP2 around the blocks.

Under `torchrun` every process runs the same program. The samples of a step do not depend on the number of processes:
each process takes its share of the step's batch. FSDP2 wraps the model from outside; the model knows nothing of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from headway.model.model import Model
from headway.model.stack import Block

T = TypeVar("T")
MAX_TEXT_BYTES = 4096
"""The longest text that `broadcast_text` sends."""
TIMEOUT = timedelta(seconds=600)
"""How long a process waits for the others, which may be compiling."""


@dataclass(frozen=True)
class World:
    """This process's rank, the number of processes, and this process's device."""

    rank: int
    size: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is rank 0, the process that writes files and reports."""
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """Sum each value over all processes, in float64 so that token counts stay exact."""
        if self.size == 1:
            return list(values)
        together = torch.tensor(values, dtype=torch.float64, device=self.device)
        distributed.all_reduce(together)
        numbers: list[float] = together.tolist()
        return numbers

    def broadcast_text(self, text: str) -> str:
        """Send rank 0's text to all processes."""
        if self.size == 1:
            return text
        raw = text.encode()[:MAX_TEXT_BYTES]
        letters = torch.zeros(MAX_TEXT_BYTES, dtype=torch.uint8)
        letters[: len(raw)] = torch.tensor(list(raw), dtype=torch.uint8)
        letters = letters.to(self.device)
        distributed.broadcast(letters, 0)
        return bytes(letters.tolist()).rstrip(b"\0").decode()

    def rank_zero_first(self, work: Callable[[], T]) -> T:
        """Run `work` on rank 0, then on the others, which find its results in the caches."""
        if self.first:
            result = work()
        self.barrier()
        return result if self.first else work()

    def barrier(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            distributed.barrier()


def init_distributed() -> World:
    """Join the processes that torchrun has started; a single process needs no process group."""
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if size > 1 and not distributed.is_initialized():
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
    return World(rank, size, device)


def close_distributed() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()


def torchrun_line(processes: int, arguments: Sequence[str]) -> list[str]:
    """The command that starts `headway` with these arguments in several processes of this machine."""
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [*run, "-m", "headway", *arguments]


def shard(model: Model, world: World) -> None:
    """Shard the weights over the processes (FSDP2). Each block gathers its own weights when it runs."""
    if world.size == 1:
        return
    mesh = init_device_mesh(world.device.type, (world.size,))
    for block in [module for module in model.modules() if isinstance(module, Block)]:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def reshard(model: nn.Module) -> None:
    """Free the weights that a forward pass has gathered if no backward pass follows."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a sharded tensor. This is a collective: every process has to call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """This process's shard of a full tensor, with the placement and the device of `like`."""
    tensor = tensor.to(like.device)
    return distribute_tensor(tensor, like.device_mesh, like.placements) if isinstance(like, DTensor) else tensor
