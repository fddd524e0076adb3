"""Whether a model still has the weights that something was made from: a decoder, a recorded graph, keys and values.

Two questions. *Where* the weights are: a compiled plan or a recorded graph reads them there, and sees what is written
there later. *What* they are: keys and values that were kept came from the weights of then.

torch counts the changes of a tensor (`_version`), also under no_grad and inference_mode. It does not count what fused
optimizers, replayed CUDA graphs, `.data` and numpy write, so a few numbers of every tensor are compared too. That sees
every such change of a whole tensor. It does not see single numbers written through `.data` or numpy: whoever does that
calls `fast.forget`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from headway.generate.protocol import DecoderWrapper

SAMPLE = 8
"""Numbers of each tensor that are compared, at most."""


class Snapshot:
    """A model's weights at one time. Their memory stays taken as long as it, so no other tensor can be mistaken."""

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
        """Whether torch has counted no change of them either. Looks at no number, so a GPU is not waited for."""
        return self.placed(model) and self._versions == [_version(tensor) for _, _, tensor in _tensors(model)]

    def same(self, model: object) -> bool:
        """Whether these are also the same numbers."""
        return self.counted(model) and all(
            torch.equal(a, b) for a, b in zip(self._sample, self._numbers(), strict=True)
        )

    def _numbers(self) -> list[Tensor]:
        """What is sampled, as bytes: one that is no number equals itself then."""
        return [torch.cat(views).view(torch.uint8) for views in self._views.values()]


def _tensors(model: object) -> Iterator[tuple[type, str, Tensor]]:
    """Every weight and buffer, with its name in the module it belongs to."""
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
    return 0 if tensor.is_inference() else tensor._version  # those made in inference_mode are not counted


def _some(tensor: Tensor) -> Tensor:
    """Some numbers of a tensor, whatever its layout, as a view of its memory."""
    span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    step = -(-span // SAMPLE)
    return tensor.detach().as_strided((-(-span // step),), (step,))
