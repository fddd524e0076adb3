"""Units of a model on one input: neurons that stay silent, those that speak most, and channels that stand out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headway.inspect.trace import DIGITS, Pass

SILENT = 0.01
"""A neuron is silent if its peak is at most this share of the median peak of its layer."""
OUTLIER = 6.0
"""A channel stands out if it is so many times as large as the median channel (Dettmers et al. 2022 found such)."""
SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Units:
    """The neurons of one layer, and the channels of the residual stream after it."""

    layer: int
    neurons: int
    silent: int
    """Neurons that no position of this input wakes."""
    loudest: list[tuple[int, float, int]]
    """Neuron, its largest activation, and the position of it."""
    outliers: list[tuple[int, float]]
    """Channel, and how many times the median channel it is."""

    def to_dict(self) -> dict[str, Any]:
        loud = [{"neuron": n, "activation": round(a, DIGITS), "position": p} for n, a, p in self.loudest]
        out = [{"channel": channel, "ratio": round(ratio, 2)} for channel, ratio in self.outliers]
        return {**vars(self), "loudest": loud, "outliers": out}


def units(seen: Pass, kind: str = "") -> list[Units]:
    """The units of each layer; neurons are left out where the feed-forward network has none of its own."""
    part, found = seen.part(kind), list[Units]()
    for layer in range(part.layers):
        stream = seen.residual(part.kind)[layer + 1].float().pow(2).mean(0).sqrt()
        ratio = stream / stream.median().clamp(min=1e-12)
        order = ratio.argsort(descending=True)[: int((ratio > OUTLIER).sum())].tolist()
        inner = seen.activations.get(f"{part.name(layer, 'ffn.down')}.input")
        count, silent, loudest = 0, 0, list[tuple[int, float, int]]()
        if inner is not None:
            x = inner[0].float()
            peak, where = x.abs().max(0)
            count, silent = len(peak), int((peak <= SILENT * peak.median()).sum())
            loudest = [(n, float(x[where[n], n]), int(where[n])) for n in peak.topk(min(SHOWN, count)).indices.tolist()]
        found.append(
            Units(
                layer=layer,
                neurons=count,
                silent=silent,
                loudest=loudest,
                outliers=[(i, float(ratio[i])) for i in order],
            )
        )
    return found
