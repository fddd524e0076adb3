"""Snapshots of a model's weights: whether decoders, CUDA graphs and KV caches made from them are still valid.

Two questions. *Where* the weights are: a plan or a captured graph reads them there, and sees later changes. *What* they
are: cached keys and values came from the weights at that time.

torch counts the changes of a tensor (`_version`), also under no_grad and inference_mode. It does not count what fused
optimizers, replayed CUDA graphs, `.data` and numpy write, so a few numbers of every tensor are compared too. That sees
every such change of a whole tensor. It does not see single numbers written through `.data` or numpy: after such a
change, call `dispatch.forget`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from headway.generate.protocol import DecoderWrapper

SAMPLE = 8
"""Most numbers of a tensor that are compared."""


class Snapshot:
    """A model's weights at one time. It keeps their memory alive, so no other tensor can be mistaken for them."""

    def __init__(self, model: object) -> None:
        self._config: Any = getattr(model, "config", None)
        found = list(_tensors(model))
        self._places = [_place(*one) for one in found]
        self._versions = [_version(tensor) for _, _, tensor in found]
        self._views: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        for _, _, tensor in found:
            if tensor.numel():
                self._views.setdefault((tensor.dtype, tensor.device), []).append(_some(tensor))
        self._sample = self._numbers()

    def placed(self, model: object) -> bool:
        """Whether the same modules read their weights from the same memory."""
        return self._config == getattr(model, "config", None) and self._places == [_place(*t) for t in _tensors(model)]

    def counted(self, model: object) -> bool:
        """Whether, in addition, torch has counted no change. Compares no numbers, so it does not wait for a GPU."""
        return self.placed(model) and self._versions == [_version(tensor) for _, _, tensor in _tensors(model)]

    def same(self, model: object) -> bool:
        """Whether, in addition, the sampled numbers are the same."""
        return self.counted(model) and all(
            torch.equal(a, b) for a, b in zip(self._sample, self._numbers(), strict=True)
        )

    def _numbers(self) -> list[Tensor]:
        """The sampled numbers as bytes, so that NaN equals itself."""
        return [torch.cat(views).view(torch.uint8) for views in self._views.values()]


def _tensors(model: object) -> Iterator[tuple[type, str, Tensor]]:
    """Every weight and buffer, with its module's type and its name there."""
    while isinstance(model, DecoderWrapper):
        model = model.model
    for module in model.modules() if isinstance(model, nn.Module) else ():
        for table in (module._parameters, module._buffers):
            for name, tensor in table.items():
                if tensor is not None:
                    yield type(module), name, tensor


def _place(kind: type, name: str, tensor: Tensor) -> tuple[object, ...]:
    return kind, name, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version  # tensors made in inference_mode have no count


def _some(tensor: Tensor) -> Tensor:
    """Some numbers of a tensor of any layout, as a view of its memory."""
    span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    step = -(-span // SAMPLE)
    return tensor.detach().as_strided((-(-span // step),), (step,))
