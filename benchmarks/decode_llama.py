"""llama.cpp as a peer of `decode_cpu.py`: driven token by token, and given the same weights. Optional."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NAMES = {
    "attn_norm": "ln_1", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj",
}  # fmt: skip
"""Parts of a block, as GGUF and as transformers call them."""


def _llama_cpp(file: Path, threads: int) -> Callable[[list[int], int], list[int]]:
    """Greedy decoding of a GGUF file."""
    import llama_cpp as library

    model = library.Llama(str(file), n_ctx=512, n_threads=threads, n_threads_batch=threads, verbose=False)

    def write(prompt: list[int], tokens: int) -> list[int]:
        model.reset()
        model._ctx.kv_cache_clear()
        found: list[int] = []
        new = prompt
        for _ in range(tokens):
            model.eval(new)
            scores = library.llama_get_logits_ith(model._ctx.ctx, -1)
            new = [int(np.ctypeslib.as_array(scores, (model.n_vocab(),)).argmax())]
            found += new
        return found

    return write


llama_cpp = _llama_cpp if importlib.util.find_spec("llama_cpp") else None


def requantize(file: Path, out: Path) -> Path:
    """The same weights as q8_0: eight bits, a scale for each 32."""
    import llama_cpp as library

    settings = library.llama_model_quantize_default_params()
    settings.ftype, settings.allow_requantize, settings.nthread = library.LLAMA_FTYPE_MOSTLY_Q8_0, True, 2
    if library.llama_model_quantize(str(file).encode(), str(out).encode(), settings):
        raise RuntimeError(f"llama.cpp could not write {out}")
    return out


def write_gpt2(model: Any, kind: str, folder: Path) -> Path:
    """A GPT-2 of transformers as a GGUF file without a vocabulary, in f32 or q8_0."""
    import gguf

    path, config = folder / f"gpt2-{kind}.gguf", model.config
    types = gguf.GGMLQuantizationType
    file = gguf.GGUFWriter(path, "gpt2")
    file.add_context_length(config.n_positions)
    file.add_embedding_length(config.n_embd)
    file.add_feed_forward_length(4 * config.n_embd)
    file.add_block_count(config.n_layer)
    file.add_head_count(config.n_head)
    file.add_layer_norm_eps(config.layer_norm_epsilon)
    file.add_tokenizer_model("no_vocab")
    file.add_vocab_size(config.vocab_size)
    state = {name: tensor.numpy() for name, tensor in model.transformer.state_dict().items()}

    def add(name: str, tensor: Any, large: bool = False) -> None:
        as_type = types[kind.upper()] if large else types.F32
        tensor = np.ascontiguousarray(tensor)
        file.add_tensor(name, gguf.quants.quantize(tensor, as_type), raw_dtype=as_type)

    for name in ("token_embd", "output"):
        add(f"{name}.weight", state["wte.weight"], large=True)
    add("position_embd.weight", state["wpe.weight"])
    for leaf in ("weight", "bias"):
        add(f"output_norm.{leaf}", state[f"ln_f.{leaf}"])
    for i in range(config.n_layer):
        for ours, theirs in NAMES.items():
            weight, matrix = state[f"h.{i}.{theirs}.weight"], "norm" not in ours
            add(f"blk.{i}.{ours}.weight", weight.T if matrix else weight, large=matrix)
            add(f"blk.{i}.{ours}.bias", state[f"h.{i}.{theirs}.bias"])
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path
