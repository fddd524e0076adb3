"""A model quantized, and what that did to it: its size, and how well it predicts a text."""

from __future__ import annotations

from dataclasses import dataclass

from headway.config.baselines import BaselineConfig
from headway.data.batching.windows import embedded_text, split_text
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError
from headway.generate.score import perplexity, score
from headway.hub.convert import dump_tensors
from headway.model.model import Model, Transformer
from headway.model.quantized import quantize_

TOKENS, LENGTH, ROWS = 4096, 512, 4
"""How much text is read, in stretches of which length at most, and how many of them at a time."""
CHARACTERS = 40_000
"""Enough for as many tokens, of eight or nine characters each."""


@dataclass(frozen=True)
class QuantizationResult:
    """Before and after."""

    bytes: tuple[int, int]
    perplexity: tuple[float, float] | None
    """None where the model does not write text, or has no tokenizer to read one with."""
    tokens: int

    def lines(self) -> list[str]:
        """The same in words."""
        before, after = self.bytes
        size = f"weights {before / 1e6:,.1f} MB → {after / 1e6:,.1f} MB ({before / after:.2f} times smaller)"
        if self.perplexity is None:
            return [size, "loss in perplexity: not measured, since there is no text the model could be asked to write"]
        first, last = self.perplexity
        where = f"on {self.tokens:,} tokens of Python's reference"
        return [size, f"perplexity {first:,.3f} → {last:,.3f} ({100 * (last / first - 1):+.2f} %) {where}"]


def quantize_and_compare(model: Model, tokenizer: Tokenizer | None) -> QuantizationResult:
    """Quantize the model in place, measured before and after on the same text."""
    if isinstance(model.config, BaselineConfig):
        raise ConfigError("C004", f"quant = int8 is for transformers, the model is of kind {model.config.network}")
    if model.config.quantization != "none":
        raise ConfigError("C004", f"quant = int8, but the model is in {model.config.quantization} already")
    writes = model.config.kind == "decoder" and model.config.lm is not None
    rows = _rows(model, tokenizer) if tokenizer is not None and writes else []
    size, loss = _bytes(model), _perplexity(model, rows)
    assert isinstance(model, Transformer)
    quantize_(model)
    after = _perplexity(model, rows)
    both = None if loss is None or after is None else (loss, after)
    return QuantizationResult((size, _bytes(model)), both, sum(len(row) - 1 for row in rows))


def card(name: str, result: QuantizationResult) -> str:
    """README.md of a quantized folder, which no longer opens where that of its model did."""
    parts = (
        "---\nlibrary_name: headway\ntags:\n- headway\n- int8\n---",
        f"# {name}, int8",
        "Large matrices are stored in whole numbers of one byte, with a scale for each row; all else is as it was.",
        "\n".join(f"- {line}" for line in result.lines()),
        "headway reads this folder: `run`, `eval`, `check`, `serve`. It cannot be trained. `transformers` cannot "
        "read it; config.json says so with `model_type: headway` and `quantization: int8`.",
    )
    return "\n\n".join(parts) + "\n"


def _bytes(model: Model) -> int:
    return sum(tensor.nbytes for _, tensor in dump_tensors(model, None, ""))


def _rows(model: Model, tokenizer: Tokenizer) -> list[list[int]]:
    """The part of the embedded text that recipes hold back, cut to what the model can read."""
    text = split_text(embedded_text())[1][:CHARACTERS]
    ids, before = tokenizer.ids([text])[0][:TOKENS], list(tokenizer.prefix_ids)
    length = min(LENGTH, model.config.max_length or LENGTH) - len(before)
    return [row for row in (before + ids[i : i + length] for i in range(0, len(ids), length)) if len(row) > 1]


def _perplexity(model: Model, rows: list[list[int]]) -> float | None:
    if not rows:
        return None
    parts = [rows[i : i + ROWS] for i in range(0, len(rows), ROWS)]
    return perplexity([found for part in parts for found in score(model, part, [1] * len(part))])
