"""transformer-base in Marian's layout, with random weights, and beam search with it by headway and by transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from headway.generate.beam.search import Beam, beam_search
from headway.generate.protocol import Source
from headway.hub.folder import load_model
from headway.model.model import Transformer

Rows = list[list[int]]
Write = Callable[[], Rows]
THEIRS: Any = transformers  # only part of it has type hints
EOS = 0
"""As in Marian's own models, where the last token is the padding, which is also what a decoder starts from."""


def marian(vocab: int, layers: int = 6, dropout: float = 0.1) -> Any:
    """Embeddings are as large as those of a trained model, or nothing that it writes would differ."""
    torch.manual_seed(0)
    config = THEIRS.MarianConfig(
        vocab_size=vocab, d_model=512, encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, activation_function="relu",
        scale_embedding=True, pad_token_id=vocab - 1, decoder_start_token_id=vocab - 1, eos_token_id=EOS,
        bos_token_id=1, forced_eos_token_id=None, attn_implementation="sdpa", init_std=512**-0.5, dropout=dropout,
    )  # fmt: skip
    return THEIRS.MarianMTModel(config).eval()


def same_model(model: Any, folder: Path) -> Transformer:
    """headway's, with the weights of a Marian of transformers."""
    model.save_pretrained(folder / "marian")
    return load_model(folder / "marian")


def ours(model: Transformer, source: Tensor, length: int, width: int, attention_mask: Tensor | None = None) -> Write:
    """What headway writes for rows of ids: `length` tokens each, since nothing may end them."""
    start = model.config.special.start
    assert start is not None
    beam = Beam(width=width, max_tokens=length, banned=((EOS,), (start,)))
    return lambda: [found[0].tokens for found in beam_search(model, beam, source=Source(source, attention_mask))]


def theirs(model: Any, source: Tensor, length: int, width: int, attention_mask: Tensor | None = None) -> Write:
    """The same by transformers."""
    real = torch.ones_like(source) if attention_mask is None else attention_mask.long()
    options = {
        "num_beams": width,
        "max_new_tokens": length,
        "bad_words_ids": [[EOS], [model.config.pad_token_id]],
        "do_sample": False,
    }

    @torch.inference_mode()
    def write() -> Rows:
        rows: Rows = model.generate(source, attention_mask=real, **options)[:, 1:].tolist()
        return rows

    return write
