"""Small decoders to decode with: a transformer, and a recurrent one that shares nothing with it but the protocol."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn

from headway.config.model import ModelConfig, SpecialTokens
from headway.config.recipe import ShapeConfig
from headway.config.shape import decoder_config
from headway.generate.engine.engine import Engine, Request
from headway.model.attention import Attention
from headway.model.model import Transformer
from headway.model.quantize import quantize_


def tiny_model(vocab: int = 256, length: int = 24, width: int = 32, depth: int = 2, seed: int = 0) -> Transformer:
    """A decoder whose weights are large enough that it has opinions."""
    torch.manual_seed(seed)
    made = Transformer(decoder_config(ShapeConfig(depth=depth, width=width, heads=2), vocab, length)).eval()
    for parameter in made.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return made


def made(config: ModelConfig, int8: bool = False) -> Transformer:
    torch.manual_seed(0)
    model = Transformer(config).eval()
    for parameter in model.parameters():  # biases and gains of a fresh model would hide what is done with them
        parameter.data += 0.3 * torch.randn_like(parameter)
    for part in model.modules():  # keys without a bias are held at zero, in files and in training
        if isinstance(part, Attention) and not part.key_bias:
            linear, skip = (part.qkv, part.heads) if hasattr(part, "qkv") else (part.kv, 0)
            linear.bias.data[skip * part.width : (skip + part.groups) * part.width] = 0
    return quantize_(model) if int8 else model


@dataclass
class DecoderConfig:
    max_length: int | None = None
    special: SpecialTokens = field(default_factory=SpecialTokens)


class Recurrent(nn.Module):
    """A GRU by the protocol; its state is one vector per row, which the encoder's inputs set if there are any."""

    def __init__(self, vocab: int = 12, width: int = 16, config: DecoderConfig | None = None, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.config = config or DecoderConfig()
        self.table, self.cell, self.lm = nn.Embedding(vocab, width), nn.GRUCell(width, width), nn.Linear(width, vocab)
        for parameter in self.parameters():
            parameter.data += 0.5 * torch.randn_like(parameter)

    def start(
        self, inputs: Tensor | None = None, *, attention_mask: Tensor | None = None, batch: int = 1, capacity: int
    ) -> list[Tensor]:
        if inputs is None:
            return [torch.zeros(batch, self.cell.hidden_size)]
        weights = torch.ones(inputs.shape) if attention_mask is None else attention_mask.float()
        return [(self.table(inputs) * weights[:, :, None]).sum(1) / weights.sum(1, keepdim=True)]

    def extend(self, state: list[Tensor], /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        hidden = []
        for t, x in enumerate(self.table(ids).unbind(1)):
            new = self.cell(x, state[0])
            state[0] = new if attention_mask is None else torch.where(attention_mask[:, t, None], new, state[0])
            hidden.append(state[0])
        return torch.stack(hidden, 1)

    def step(self, state: list[Tensor], /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        logits: Tensor = self.lm(self.extend(state, ids, attention_mask)[:, -1])
        return logits

    def reorder(self, state: list[Tensor], /, rows: Tensor) -> list[Tensor]:
        return [state[0][rows]]


def answered(engine: Engine, *requests: Request) -> list[Request]:
    """The live requests, after the engine has finished everything."""
    live = [engine.submit(request) for request in requests]
    while engine.step():
        pass
    return live


@pytest.fixture
def model() -> Transformer:
    return tiny_model()
