"""A map of words: the most frequent ones, at the two directions in which their vectors differ most (PCA)."""

from __future__ import annotations

import base64
from html import escape
from typing import Any

import torch
from torch import Tensor

from headway.tasks.word2vec.search import Search

WORDS, SKIPPED = 150, 30
"""Words of a map, and the most frequent ones that are left out: words like "the" are near to none."""
WIDTH, HEIGHT, BORDER = 900, 640, 40


def word_map(search: Search) -> dict[str, Any]:
    """An SVG as the `pictures` of an evaluation have it."""
    begin = min(SKIPPED, len(search.words) // 4)
    words = search.words[begin : begin + WORDS]
    flat, share = flattened(search.vectors[begin : begin + WORDS])
    low, high = flat.min(0).values, flat.max(0).values
    spread = torch.tensor([WIDTH - 2 * BORDER, HEIGHT - 2 * BORDER], dtype=flat.dtype)
    places = (BORDER + (flat - low) / (high - low).clamp(min=1e-9) * spread).tolist()
    text = f"{len(words)} words; the two directions hold {share:.0%} of the variance"
    return {"png": _url(_svg(words, places)), "text": text}


def flattened(vectors: Tensor) -> tuple[Tensor, float]:
    """(N, 2): vectors along the two directions in which they differ most, and the share of the variance there."""
    centred = vectors.double() - vectors.double().mean(0)
    _, sizes, directions = torch.linalg.svd(centred, full_matrices=False)
    flat = centred @ directions[:2].T
    if flat.shape[1] < 2:
        flat = torch.cat([flat, torch.zeros(len(flat), 1, dtype=flat.dtype)], 1)
    return flat, float((sizes[:2] ** 2).sum() / (sizes**2).sum().clamp(min=1e-12))


def _svg(words: list[str], places: list[list[float]]) -> str:
    labels = "".join(
        f'<circle cx="{x:.0f}" cy="{y:.0f}" r="2"/><text x="{x + 4:.0f}" y="{y + 4:.0f}">{escape(word[:20])}</text>'
        for word, (x, y) in zip(words, places, strict=True)
    )
    style = 'font-family="sans-serif" font-size="11" fill="#27588c"'
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    background = '<rect width="100%" height="100%" fill="white"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{background}<g {style}>{labels}</g></svg>'


def _url(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
