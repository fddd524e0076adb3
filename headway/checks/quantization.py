"""Quantize a model to int8, and measure its size and perplexity before and after."""

from __future__ import annotations

from dataclasses import dataclass

from headway.config.networks.baseline import BaselineConfig
from headway.config.networks.ngram import NGramConfig
from headway.data.batching.windows import embedded_text, split_text
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError
from headway.generate.score import perplexity, score
from headway.hub.convert import dump_tensors
from headway.model.model import Model, Transformer
from headway.model.quantize import quantize_
from headway.progress import track

TOKENS, LENGTH, ROWS = 4096, 512, 4
"""Tokens of the text, tokens per row, rows per batch."""
CHARACTERS = 40_000
"""Enough characters for TOKENS tokens."""


@dataclass(frozen=True)
class QuantizationResult:
    """Size and perplexity before and after quantization."""

    bytes: tuple[int, int]
    perplexity: tuple[float, float] | None
    """None if the model does not generate text, or has no tokenizer."""
    tokens: int

    def lines(self) -> list[str]:
        """The result as sentences."""
        before, after = self.bytes
        size = f"weights {before / 1e6:,.1f} MB → {after / 1e6:,.1f} MB ({before / after:.2f} times smaller)"
        if self.perplexity is None:
            return [size, "perplexity: not measured, the model does not generate text"]
        first, last = self.perplexity
        where = f"on {self.tokens:,} tokens of Python's reference"
        return [size, f"perplexity {first:,.3f} → {last:,.3f} ({100 * (last / first - 1):+.2f} %) {where}"]


def quantize_and_compare(model: Model, tokenizer: Tokenizer | None) -> QuantizationResult:
    """Quantize the model in place; measure it before and after on the same text."""
    if isinstance(model.config, BaselineConfig | NGramConfig):
        raise ConfigError("C004", f"quant = int8 is for transformers; this model is of kind {model.config.network}")
    if not isinstance(model, Transformer):
        raise ConfigError("C004", "quant = int8 is for single transformers; this model is of another kind")
    if model.config.quantization != "none":
        raise ConfigError("C004", f"quant = int8: the model is already quantized ({model.config.quantization})")
    generates = model.config.kind == "decoder" and model.config.lm is not None
    rows = _rows(model, tokenizer) if tokenizer is not None and generates else []
    size, loss = _bytes(model), _perplexity(model, rows)
    quantize_(model)
    after = _perplexity(model, rows)
    both = None if loss is None or after is None else (loss, after)
    return QuantizationResult((size, _bytes(model)), both, sum(len(row) - 1 for row in rows))


def card(name: str, result: QuantizationResult) -> str:
    """README.md of a quantized model's folder."""
    parts = (
        "---\nlibrary_name: headway\ntags:\n- headway\n- int8\n---",
        f"# {name}, int8",
        "Large matrices are stored as int8, with a scale for each row; everything else is unchanged.",
        "\n".join(f"- {line}" for line in result.lines()),
        "headway reads this folder: `run`, `eval`, `check`, `serve`. It cannot be trained. `transformers` cannot "
        "read it; config.json says so with `model_type: headway` and `quantization: int8`.",
    )
    return "\n\n".join(parts) + "\n"


def _bytes(model: Model) -> int:
    return sum(tensor.nbytes for _, tensor in dump_tensors(model, None, ""))


def _rows(model: Model, tokenizer: Tokenizer) -> list[list[int]]:
    """The held-out part of headway's own text, split to the model's context."""
    text = split_text(embedded_text())[1][:CHARACTERS]
    ids, before = tokenizer.ids([text])[0][:TOKENS], list(tokenizer.prefix_ids)
    length = min(LENGTH, model.config.max_length or LENGTH) - len(before)
    return [row for row in (before + ids[i : i + length] for i in range(0, len(ids), length)) if len(row) > 1]


def _perplexity(model: Model, rows: list[list[int]]) -> float | None:
    if not rows:
        return None
    parts = [rows[i : i + ROWS] for i in range(0, len(rows), ROWS)]
    watched = track(parts, "measuring the perplexity", unit="batches")
    return perplexity([found for part in watched for found in score(model, part, [1] * len(part))])
