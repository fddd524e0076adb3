"""A search index: the texts of a corpus with their vectors, in memory or in a file that is mapped into memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from headway.data.files.digest import file_content
from headway.data.files.rows import BadRows
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DamagedError, counted
from headway.jsonfile import show
from headway.model.model import Model
from headway.progress import track
from headway.resources import check_writable, replacing, write_error
from headway.tasks.base import Task
from headway.tasks.embedding.vectors import Near, nearest_of
from headway.tasks.recipe import Recipe

FORMAT = "headway search index 1"
BATCH = 4096
"""Texts that are embedded together; their vectors are kept, not their tokens."""
Encode = Callable[[Sequence[Any]], Tensor]


class Encoder(Protocol):
    """A predictor that gives vectors."""

    model: Model
    recipe: Recipe

    @property
    def task(self) -> Task: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    def encode(self, things: Sequence[Any]) -> Tensor: ...
    def shown(self, example: Any) -> str: ...


@dataclass(frozen=True)
class SearchIndex:
    """Texts that can be searched by meaning."""

    encode: Encode
    vectors: Tensor
    """(N, M), of length one."""
    lines: Tensor
    """(N,), where each text stands in its file."""
    letters: Tensor
    """The bytes of all texts, one after the other."""
    ends: Tensor
    """(N,), where each text ends."""
    key: str = ""
    """What the vectors were made from; equal keys mean equal vectors."""

    def __len__(self) -> int:
        return len(self.vectors)

    def text(self, place: int) -> str:
        begin = int(self.ends[place - 1]) if place else 0
        return bytes(self.letters[begin : int(self.ends[place])].numpy()).decode()

    def search(self, query: Any, top: int = 5) -> list[Near]:
        """The texts nearest in meaning to the query, the best first."""
        return self.search_all([query], top)[0]

    def search_all(self, queries: Sequence[Any], top: int = 5) -> list[list[Near]]:
        """The same for several queries."""
        return [nearest_of(vector, self.vectors, self.text, top) for vector in self.encode(queries)]

    def save(self, path: Path) -> None:
        """Write the index; the file is complete, or as it was."""
        tensors = {"vectors": self.vectors, "lines": self.lines, "letters": self.letters, "ends": self.ends}
        try:
            with replacing(path) as partial:
                save_file(tensors, partial, metadata={"format": FORMAT, "key": self.key})
        except OSError as error:
            raise write_error(path, OSError(error.errno, error.strerror)) from None


def build_index(encode: Encode, items: Iterator[tuple[Any, str, int]], key: str = "") -> SearchIndex:
    """Embed examples, each with the text that is shown for it and its line."""
    vectors, letters, lines, ends = [encode([])], list[bytes](), list[int](), list[int]()
    end = 0
    while batch := list(islice(items, BATCH)):
        vectors.append(encode([example for example, _, _ in batch]))
        for _, text, line in batch:
            raw = text.encode()
            end += len(raw)
            letters.append(raw)
            lines.append(line)
            ends.append(end)
    together = torch.from_numpy(np.frombuffer(b"".join(letters) or b"\0", dtype=np.uint8).copy())
    return SearchIndex(encode, torch.cat(vectors), torch.tensor(lines), together, torch.tensor(ends), key)


def open_index(path: Path, encode: Encode) -> SearchIndex:
    """Map the file of an index into memory; any other file is an error, so that it is not overwritten."""
    try:
        with safe_open(path, "pt") as file:
            about = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in ("vectors", "lines", "letters", "ends")}
    except (SafetensorError, OSError) as error:
        raise DamagedError(
            "X001", f"{show(path)} is no search index: {str(error)[:100]}", "name another file"
        ) from None
    if about.get("format") != FORMAT:
        raise DamagedError("X001", f"{show(path)} is no search index of this headway", "name another file")
    return SearchIndex(encode, **tensors, key=about["key"])


def corpus_index(predictor: Encoder, corpus: str, path: str, say: Callable[..., None], **reading: Any) -> SearchIndex:
    """The index of a file of texts: from `path` if it is of this model and this file, else built, and saved there."""
    recipe, bad = predictor.recipe, BadRows(predictor.recipe.data.bad_rows)

    def examples() -> Iterator[tuple[Any, str, int]]:
        inputs = predictor.task.inputs(corpus, recipe.data, bad, **reading)
        for item in track(inputs, f"embedding {corpus}", unit="texts"):
            yield item.example, predictor.shown(item.example), item.line

    files = predictor.task.files(corpus)
    key = _key(predictor, "\n".join(file_content(file).sha256 for file in files), reading) if path else ""
    if path and Path(path).exists():
        known = open_index(Path(path), predictor.encode)
        if known.key == key:
            return known
        say(f"{path} is of another model or other texts: building it again")
    if path:
        check_writable(Path(path))
    index = build_index(predictor.encode, examples(), key)
    if not len(index):
        raise bad.no_rows(corpus, "texts")
    if bad.count:
        say("\n".join([f"{bad.count:,} {'row' if bad.count == 1 else 'rows'} skipped:", *bad.first]))
    if path:
        index.save(Path(path))
        say(f"{counted(len(index), 'texts')} in {path}")
    return index


def _key(predictor: Encoder, corpus: str, reading: Any) -> str:
    """A digest of all that decides the vectors: weights, tokenizer, settings, texts."""
    about = {"data": asdict(predictor.recipe.data), "settings": asdict(predictor.recipe.settings), "reading": reading}
    parts = (weights_digest(predictor.model), predictor.tokenizer.backend.to_str(), corpus, json.dumps(about))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def weights_digest(model: Model) -> str:
    """SHA-256 of all weights of a model."""
    total = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        total.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        total.update(memoryview(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()))
    return total.hexdigest()
