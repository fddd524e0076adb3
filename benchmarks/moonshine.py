"""Moonshine tiny (Jeffries et al. 2024) from the package moonshine-voice as a folder in the Hugging Face layout.

    pip install --no-deps moonshine-voice==0.1.0
    python benchmarks/moonshine.py OUT [--package FOLDER]
    headway run OUT talk.wav
    python benchmarks/moonshine.py OUT --compare SOUNDS     # with onnxruntime: pip install onnxruntime

SOUNDS is a folder with a table transcripts.tsv (file, text). Of each sound, --compare prints the texts of headway and
of ONNX Runtime, which multiplies by the integers themselves; how far the encoder's output is from theirs, over its own
size; and the edits between words, without case and punctuation. Abbreviations that the model writes (Mr.) are read out.

The package has the model for ONNX Runtime, with matrices of 8-bit integers: they are dequantized, and named after the
nodes that multiply by them. Nothing but NumPy reads the file, so the package itself is never imported.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import emit
from numpy.typing import NDArray

import headway
from headway.data.sounds.decode import open_sound
from headway.data.sounds.resample import resampled
from headway.hub.weights import FORMAT, write_tensors
from headway.model.model import evaluating
from headway.tasks.metrics.error_rate import edits, normalized

ENCODER, DECODER, TOKENS = "encoder_model.ort", "decoder_model_merged.ort", "tokenizer.bin"
TYPES = {1: np.float32, 2: np.uint8, 3: np.int8}
BYTES, PLAIN = range(3, 259), range(259, 32000)
"""Tokens that are single bytes, and tokens that are text; those after them are special."""
BYTE_ORDER_MARK = 31353
"""The token whose text the package has lost."""
CONFIG: dict[str, Any] = {
    "model_type": "moonshine",
    "architectures": ["MoonshineForConditionalGeneration"],
    **{"encoder_num_hidden_layers": 6, "decoder_num_hidden_layers": 6},
    **{f"{side}_num_{what}": 8 for side in ("encoder", "decoder") for what in ("attention_heads", "key_value_heads")},
    "encoder_hidden_act": "gelu",
    "decoder_hidden_act": "silu",
    "hidden_size": 288,
    "intermediate_size": 1152,
    "vocab_size": 32768,
    "max_position_embeddings": 194,
    "partial_rotary_factor": 0.9,
    "rope_theta": 10000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "is_encoder_decoder": True,
}
PREPROCESSOR = {
    "feature_extractor_type": "Wav2Vec2FeatureExtractor",
    "feature_size": 1,
    "sampling_rate": 16000,
    "do_normalize": False,
    "padding_side": "right",
    "padding_value": 0.0,
    "return_attention_mask": True,
}
Floats = NDArray[np.float32]


class Table:
    """A table of a FlatBuffers file; the numbers of its fields are those of ONNX Runtime's schema."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def _place(self, field: int) -> int:
        """Where a field is; 0 if it is absent."""
        table = self.at - struct.unpack_from("<i", self.data, self.at)[0]
        if 4 + 2 * field >= struct.unpack_from("<H", self.data, table)[0]:
            return 0
        offset = struct.unpack_from("<H", self.data, table + 4 + 2 * field)[0]
        return self.at + offset if offset else 0

    def _follow(self, place: int) -> int:
        return place + int(struct.unpack_from("<I", self.data, place)[0])

    def table(self, field: int) -> Table | None:
        place = self._place(field)
        return Table(self.data, self._follow(place)) if place else None

    def number(self, field: int) -> int:
        place = self._place(field)
        return int(struct.unpack_from("<i", self.data, place)[0]) if place else 0

    def vector(self, field: int, dtype: Any) -> NDArray[Any]:
        place = self._place(field)
        if not place:
            return np.empty(0, dtype)
        start = self._follow(place)
        return np.frombuffer(self.data, dtype, struct.unpack_from("<I", self.data, start)[0], start + 4)

    def places(self, field: int) -> list[int]:
        place = self._place(field)
        if not place:
            return []
        start = self._follow(place) + 4
        return [self._follow(start + 4 * i) for i in range(len(self.vector(field, np.uint32)))]

    def text(self, field: int) -> str:
        return bytes(self.vector(field, np.uint8)).decode()

    def texts(self, field: int) -> list[str]:
        found = ((at + 4, struct.unpack_from("<I", self.data, at)[0]) for at in self.places(field))
        return [self.data[at : at + size].decode() for at, size in found]

    def tables(self, field: int) -> list[Table]:
        return [Table(self.data, at) for at in self.places(field)]


def graph_of(path: Path) -> Table:
    data = path.read_bytes()
    model = Table(data, struct.unpack_from("<I", data)[0]).table(1)
    graph = model and model.table(7)
    assert graph is not None, path
    return graph


def constants(graph: Table) -> dict[str, NDArray[Any]]:
    """The arrays of a graph by name."""
    found = {}
    for tensor in graph.tables(0):
        kind = TYPES.get(tensor.number(3))
        if kind is not None:
            found[tensor.text(0)] = tensor.vector(4, np.uint8).view(kind).reshape(tensor.vector(2, np.int64))
    return found


def nodes(graph: Table) -> Iterator[tuple[str, list[str]]]:
    """Names and inputs, those of the graphs inside included: a decoder is one for the first token, one for the rest."""
    for node in graph.tables(2):
        yield node.text(0), node.texts(8)
        for attribute in node.tables(10):
            inner = attribute.table(7)
            if inner is not None:
                yield from nodes(inner)


def dequantized(arrays: dict[str, NDArray[Any]], name: str) -> Floats:
    base = name.removesuffix("_quantized")
    zero = arrays[f"{base}_zero_point"].astype(np.float32)
    return (arrays[name].astype(np.float32) - zero) * arrays[f"{base}_scale"]


def weights(path: Path, prefix: str) -> dict[str, Floats]:
    """The weights of a file under the names that `transformers` gives them."""
    graph = graph_of(path)
    arrays, found = constants(graph), dict[str, Floats]()
    for name, array in arrays.items():
        plain = name.removesuffix("_merged_0").removesuffix("_add_tensor")
        if plain.endswith((".weight", ".bias")):
            found[prefix + plain] = array
        elif plain.endswith(".weight_merged_0_quantized"):
            found[prefix + plain.removesuffix("_merged_0_quantized")] = dequantized(arrays, name)
    for name, inputs in nodes(graph):
        matrix = next((each for each in inputs if each.endswith("_quantized") and each in arrays), None)
        if name.endswith("/MatMul_quant") and matrix is not None:
            module = name.strip("/").removesuffix("/MatMul_quant").replace("/", ".")
            found[f"{prefix}{module}.weight"] = dequantized(arrays, matrix).T
        elif name in ("/groupnorm/Mul", "/groupnorm/Add"):
            leaf = "weight" if name.endswith("Mul") else "bias"
            found[f"{prefix}groupnorm.{leaf}"] = next(arrays[each] for each in inputs if each in arrays).reshape(-1)
    return found


def vocabulary(path: Path) -> list[str]:
    """The tokens: each with its length before it, in one byte or in two."""
    data, at, found = path.read_bytes(), 0, list[str]()
    while at < len(data):
        size, at = data[at], at + 1
        if size > 127:
            size, at = size - 128 + 128 * data[at], at + 1
        token, at = data[at : at + size], at + size
        found.append(f"<0x{token[0]:02X}>" if len(found) in BYTES else token.decode())
    found[BYTE_ORDER_MARK] = "\ufeff"
    return found


def tokenizer(tokens: list[str]) -> dict[str, Any]:
    """The tokenizer of Llama 2, with special tokens behind it. The order of its merges is that of its tokens."""
    ids = {token: i for i, token in enumerate(tokens)}
    text = {tokens[i] for i in PLAIN}
    merges = []
    for token in (tokens[i] for i in PLAIN):
        parts = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        known = [pair for pair in parts if text.issuperset(pair)]
        merges += sorted(known, key=lambda pair: (ids[pair[0]], ids[pair[1]]))
    space: dict[str, Any] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    back: dict[str, Any] = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    special = [i for i in range(len(tokens)) if i < BYTES.start or i >= PLAIN.stop]
    last = [{"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": tokens[i], **plain} for i in special],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, space]},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [back, *last]},
        "model": {
            **{"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None},
            **{"end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False},
            **{"vocab": ids, "merges": [list(pair) for pair in merges]},
        },
    }


def convert(folder: Path, out: Path) -> None:
    """Write a folder that headway and `transformers` open."""
    found = weights(folder / ENCODER, "model.encoder.") | weights(folder / DECODER, "")
    found.pop("proj_out.weight")  # the token table once more, quantized by itself
    tokens = vocabulary(folder / TOKENS)
    out.mkdir(parents=True, exist_ok=True)
    tensors = {name: torch.from_numpy(np.array(array, np.float32)) for name, array in sorted(found.items())}
    write_tensors(out / "model.safetensors", tensors, FORMAT)
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    written = {
        "config.json": CONFIG,
        "preprocessor_config.json": PREPROCESSOR,
        "generation_config.json": {"bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
        "tokenizer.json": tokenizer(tokens),
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", **special},
    }
    for name, value in written.items():
        (out / name).write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")


def installed() -> Path:
    """The folder of the model in the installed package, which is found, not imported."""
    spec = importlib.util.find_spec("moonshine_voice")
    if spec is None or spec.origin is None:
        raise SystemExit("moonshine-voice is not installed: pip install --no-deps moonshine-voice==0.1.0")
    return Path(spec.origin).parent / "assets" / "tiny-en"


def onnx_text(encoder: Any, decoder: Any, samples: Floats) -> tuple[Floats, list[int]]:
    """The encoder's output and the likeliest tokens, as ONNX Runtime computes them."""
    mask = np.ones((1, len(samples)), np.int64)
    memory = encoder.run(None, {"input_values": samples[None], "attention_mask": mask})[0]
    names = [each.name for each in decoder.get_outputs()][1:]
    past = {name.replace("present", "past_key_values"): np.zeros((1, 8, 0, 36), np.float32) for name in names}
    tokens, most = [1], round(len(samples) / 16_000 * 6.5)
    while len(tokens) <= most and tokens[-1] != 2:
        later = len(tokens) > 1
        given = {"encoder_hidden_states": memory, "encoder_attention_mask": mask, "use_cache_branch": np.array([later])}
        logits, *present = decoder.run(None, {"input_ids": np.array([tokens[-1:]]), **given, **past})
        kept = zip(names, present, strict=True)  # what is of the encoder is computed once
        past |= {n.replace("present", "past_key_values"): v for n, v in kept if not (later and ".encoder." in n)}
        tokens.append(int(logits[0, -1].argmax()))
    return memory, [token for token in tokens if token > 2]


def compare(folder: Path, package: Path, sounds: Path) -> None:
    """Print what both hear in some sounds."""
    import onnxruntime

    model = headway.load(folder)
    encoder, decoder = (onnxruntime.InferenceSession(str(package / name)) for name in (ENCODER, DECODER))
    with (sounds / "transcripts.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    for row in rows:
        sound = open_sound(sounds / row["file"])
        samples = resampled(sound.samples, sound.rate, 16_000)
        memory, tokens = onnx_text(encoder, decoder, samples)
        with evaluating(model.model):
            ours = model.model.encode(torch.from_numpy(samples)[None]).hidden.numpy()
        found = model.transcribe(samples)
        said = normalized(found.text, "words").replace("mr ", "mister ")
        emit(
            sound=row["file"], text=found.text, onnx_runtime=model.tokenizer.decode(tokens),
            distance=float(np.linalg.norm(ours - memory) / np.linalg.norm(memory)),
            wrong_words=edits(said.split(), normalized(row["text"], "words").split()),
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--package", type=Path, help=f"a folder with {ENCODER}; without it, the installed package's")
    parser.add_argument("--compare", type=Path, help="a folder of sounds with transcripts.tsv")
    asked = parser.parse_args()
    package = asked.package or installed()
    if asked.compare is None:
        convert(package, asked.out)
    else:
        compare(asked.out, package, asked.compare)


if __name__ == "__main__":
    main()
