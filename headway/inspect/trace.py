"""`Pass`: one input on its way through a model, with everything that can be asked about it.

Letters: L layers, H heads, T positions (queries), S keys, M width of the model, D width of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.errors import DataError
from headway.inspect.changes import Change, checked_position, head_columns
from headway.inspect.heads import HeadStats, Maps, head_stats, receptive_field, rollout
from headway.inspect.parts import Part, chosen_part
from headway.inspect.reading.base import MEMORIES, Grid, Reading, Token
from headway.inspect.readout import Answer, Readout
from headway.model.model import Output

DIGITS = 5
"""Decimals in JSON."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Pass:
    """What a forward pass shows. Attention maps are computed when they are asked for: the fused kernel stays on."""

    reading: Reading
    parts: Mapping[str, Part]
    """The kinds of attention that this pass has gone through."""
    output: Output
    activations: Mapping[str, Tensor]
    """What the modules of the stacks gave, by their names."""
    own: Mapping[str, Callable[..., Tensor]] = field(repr=False)
    """What the model's hook was given: functions of weights, scores, queries, keys and values, by name."""
    readout: Readout | None
    changes: tuple[Change, ...] = ()

    def __repr__(self) -> str:
        kinds = ", ".join(f"{kind} {part.layers}×{part.config.n_heads}" for kind, part in self.parts.items())
        return f"Pass({self.reading.text[:40]!r}, {len(self.tokens)} tokens, {kinds})"

    # --- what there is

    @property
    def tokens(self) -> tuple[Token, ...]:
        """What stands at each position of the output stack."""
        return self.tokens_of("")

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of attention: encoder, decoder, cross …"""
        return tuple(self.parts)

    @property
    def layers(self) -> int:
        """Of the output stack."""
        return self.part().layers

    def part(self, kind: str = "") -> Part:
        return chosen_part(self.parts, kind)

    def tokens_of(self, kind: str = "") -> tuple[Token, ...]:
        """What stands at the positions of a stack, which are the queries of its attention."""
        part = self.part(kind)
        if part.stack is None:
            return self.reading.of(part.kind)
        return self._named(part.stack_kind, self.residual(part.kind).shape[1])

    def keys_of(self, kind: str = "") -> tuple[Token, ...]:
        """What stands at the keys of a kind of attention: for cross-attention, the positions of the other stack."""
        part = self.part(kind)
        if not part.cross:
            return self.tokens_of(kind)
        if part.stack is None:
            return self._named(MEMORIES, self.attention(part.kind, 0, 0).shape[1])
        others = [other for other in self.parts.values() if other.path != part.path]
        return self._named(others[-1].stack_kind, self.attention(part.kind, 0, 0).shape[1])

    def _named(self, kind: str, count: int) -> tuple[Token, ...]:
        tokens = self.reading.of(kind)
        return tokens if len(tokens) == count else tuple(Token(label=str(i)) for i in range(count))

    def grid(self, kind: str = "") -> Grid | None:
        """How the positions of a stack form a picture; None if they do not."""
        return self.reading.grids.get(self.part(kind).stack_kind)

    # --- attention

    def attention(self, kind: str = "", layer: int | None = None, head: int | None = None) -> Maps:
        """Attention weights: (L, H, T, S), of one layer (H, T, S), of one head (T, S)."""
        part = self.part(kind)
        if layer is None:
            if head is not None:
                raise DataError("D001", "a head is one of a layer", "give the layer, too")
            return np.stack([self.attention(part.kind, i) for i in range(part.layers)])
        if head is not None:
            head_columns(part, head)
        heads = None if head is None else [head]
        found = array(self._own(part, layer, "weights")(heads=heads)[0])
        return found if head is None else found[0]

    def _own(self, part: Part, layer: int, what: str) -> Callable[..., Tensor]:
        part.check_layer(layer)
        name = part.name(layer, "attention") + f".{what}"
        if name not in self.own:
            raise DataError("D001", f"{part.kind} have no {what}: their attention is computed in one step")
        make = self.own[name]
        return make if part.stack is not None else lambda heads=None: make()[:, None, None]  # (B, N) of one head

    def head_stats(self, kind: str = "") -> list[HeadStats]:
        """What each head of a kind looks at."""
        part = self.part(kind)
        queries, keys = self.tokens_of(part.kind), self.keys_of(part.kind)
        return head_stats(part.kind, self._maps(part.kind), queries, keys, self.grid(part.kind))

    def _maps(self, kind: str) -> Maps:
        if kind not in self._kept:
            self._kept[kind] = self.attention(kind)
        return self._kept[kind]

    @cached_property
    def _kept(self) -> dict[str, Maps]:
        return {}

    def rollout(self, kind: str = "") -> Maps:
        """(L, T, T): what each position has taken from each input after each layer."""
        return rollout(self._square(kind))

    def receptive(self, kind: str = "") -> dict[str, NDArray[np.int64]]:
        """(L, T) each: `reach`, the positions that can have reached each position; `most`, those it has most from."""
        reach, most = receptive_field(self._square(kind))
        return {"reach": reach, "most": most}

    def _square(self, kind: str) -> Maps:
        part = self.part(kind)
        if part.cross:
            raise DataError("D001", "cross-attention has no rollout: it leads into another stack")
        return self._maps(part.kind)

    def cell(self, kind: str, layer: int, head: int, query: int, key: int) -> dict[str, Any]:
        """The arithmetic of one weight: q·k, times the scale, plus mask and bias, softmax, times the value."""
        part = self.part(kind)
        config, columns = part.config, head_columns(part, head)
        q, k, v = (self._own(part, layer, name)()[0].float() for name in ("queries", "keys", "values"))
        group = head * config.kv_heads // config.n_heads
        for position, count in ((query, q.shape[1]), (key, k.shape[1])):
            checked_position(position, count)
        attention = part.attention(layer)
        scale = attention.scale or attention.width**-0.5
        scores = self._own(part, layer, "scores")(heads=[head])[0, 0].float()
        products = q[head, query] * k[group, key]
        dot, score = float(products.sum()), float(scores[query, key])
        visible = np.isfinite(score)
        row, value = scores[query].softmax(-1), v[group, key]
        weight = float(row[key])
        out = attention.out.weight.detach()[:, columns].float() @ (weight * value)
        return {
            "kind": part.kind,
            "layer": layer,
            "head": head,
            "query": query,
            "key": key,
            "q": rounded(q[head, query]),
            "k": rounded(k[group, key]),
            "products": rounded(products),
            "dot": dot,
            "scale": scale,
            "scaled": dot * scale,
            "bias": round(score - dot * scale, DIGITS) if visible else None,
            "visible": bool(visible),
            "score": score if visible else None,
            "scores": [s if np.isfinite(s) else None for s in scores[query].tolist()],
            "row": rounded(row),
            "weight": weight,
            "value": rounded(value),
            "weighted": rounded(weight * value),
            "contribution": rounded(out),
            "contribution_norm": float(out.norm()),
        }

    # --- layers

    def residual(self, kind: str = "") -> Tensor:
        """(L + 1, T, M): the residual stream before the first layer and after each."""
        part = self.part(kind)
        if part.stack is None:
            raise DataError("D001", f"{part.kind} have no residual stream")
        names = [f"{part.name(0)}.input", *(part.name(i) for i in range(part.layers))]
        return torch.stack([self.activations[name][0] for name in names])

    def norms(self, kind: str = "") -> dict[str, Maps]:
        """Lengths of vectors: of the residual stream (L + 1, T), and of what each branch adds to it (L, T)."""
        part = self.part(kind)
        found = {"residual": array(self.residual(part.kind).norm(dim=-1))}
        branches = {"attention": "attention.out", "cross": "cross.out", "ffn": "ffn"}
        for branch, module in branches.items():
            names = [f"{part.path}.blocks.{i}.{module}" for i in range(part.layers)]
            if names[0] in self.activations:
                found[branch] = array(torch.stack([self.activations[name][0].float().norm(dim=-1) for name in names]))
        return found

    def lens(self, k: int = 3, position: int | None = None) -> list[list[list[Answer]]]:
        """For each layer, the embeddings first, and each position: the k answers that the model's head would give.

        A head of the whole input (a classifier) has one position. `position` asks for that one alone, which is fast.
        """
        readout, part = self.require_readout(), self.part()
        stream = self.residual(part.kind)
        norm = None if part.stack is None else part.stack.norm
        with torch.no_grad():
            layers = stream[:, None] if norm is None else norm(stream[:, None])  # L + 1, 1, T, M
            if position is None or not readout.each:
                return [readout.top(x, self.output.attention_mask, k) for x in layers]
            at = checked_position(position, stream.shape[1])
            return [[answers] for answers in readout.top(layers[:, :, at].transpose(0, 1), None, k)]

    def predictions(self, k: int = 5) -> list[list[Answer]]:
        """The k likeliest answers of the model at each position; one position for a head of the whole input."""
        readout = self.require_readout()
        with torch.no_grad():
            return readout.top(self.output.hidden, self.output.attention_mask, k)

    def logits(self) -> Tensor:
        """(T, V), or (1, V) for a head of the whole input."""
        readout = self.require_readout()
        with torch.no_grad():
            return readout.logits(self.output.hidden, self.output.attention_mask)[0].float()

    def require_readout(self) -> Readout:
        if self.readout is None:
            raise DataError("D001", "the model gives vectors: it has no head whose answers could be shown")
        return self.readout

    def probabilities(self) -> list[float | None]:
        """How likely the model found each token, given those before it; None for the first, and for other models."""
        if self.readout is None or self.readout.head != "lm" or not self.part().config.causal:
            return [None] * len(self.tokens)
        chances = self.readout.chances(self.logits())
        ids = [token.id or 0 for token in self.tokens]
        return [None, *(float(chances[i, later]) for i, later in enumerate(ids[1:]))]

    # --- JSON

    def to_dict(self, *, k: int = 5, maps: bool = True) -> dict[str, Any]:
        """Everything as plain values; `maps=False` leaves the attention maps out."""
        found: dict[str, Any] = {
            "input": self.reading.text,
            "medium": self.reading.medium,
            "target": self.reading.target,
            "said": dict(self.reading.said),
            "kinds": {kind: self._kind_dict(kind, maps) for kind in self.kinds},
        }
        if self.readout is not None:
            found["head"] = self.readout.head
            found["probabilities"] = [None if p is None else round(p, DIGITS) for p in self.probabilities()]
            found["predictions"] = answers_dict(self.predictions(k))
            if self.part().stack is not None:
                found["lens"] = [answers_dict(layer) for layer in self.lens(min(k, 3))]
        return found

    def _kind_dict(self, kind: str, maps: bool) -> dict[str, Any]:
        part, grid = self.part(kind), self.grid(kind)
        found: dict[str, Any] = {
            "layers": part.layers,
            "heads": part.config.n_heads,
            "causal": part.config.causal and not part.cross,
            "tokens": [token.to_dict() for token in self.tokens_of(kind)],
            "keys": [token.to_dict() for token in self.keys_of(kind)] if part.cross else None,
            "grid": None if grid is None or part.cross else dict(vars(grid)),
            "head_stats": [stats.to_dict() for stats in self.head_stats(kind)],
        }
        if not part.cross:
            found["norms"] = {name: rounded(values) for name, values in self.norms(kind).items()}
            found["receptive"] = {name: values.tolist() for name, values in self.receptive(kind).items()}
            found["rollout"] = rounded(self.rollout(kind)[-1])
        if maps:
            found["maps"] = rounded(self._maps(kind))
        return found


def answers_dict(rows: Sequence[Sequence[Answer]]) -> list[list[dict[str, Any]]]:
    """Answers of each position as plain values."""
    return [[answer.to_dict() | {"probability": round(answer.probability, DIGITS)} for answer in row] for row in rows]


def array(x: Tensor) -> Maps:
    """A tensor as float32 numbers of numpy."""
    found: Maps = x.detach().float().cpu().numpy()
    return found


def rounded(x: Any) -> Any:
    """Numbers with few decimals, as lists."""
    values = array(x) if isinstance(x, Tensor) else x
    return np.round(values.astype(np.float64), DIGITS).tolist()
