"""Text for a task: documents from files, the part held out, a tokenizer of their own, and token stores."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.config.recipe import DataConfig
from headway.data.batching.token_store import TokenStore, open_store
from headway.data.batching.windows import embedded_text
from headway.data.files.digest import fingerprint
from headway.data.files.locate import file_format, find_files
from headway.data.files.rows import BadRows, documents
from headway.data.tokenizers.tokenizer import Tokenizer, load_tokenizer
from headway.data.tokenizers.train import train_tokenizer

END_OF_DOCUMENT = "<|end|>"
"""Ends a document where a text has several."""
DEFAULT_VOCAB_SIZE = {"bpe": 4096, "wordpiece": 4096, "unigram": 4096}
"""Size of a vocabulary that has to have one, where the recipe does not say."""
HELD_OUT = 0.1
"""Share of the text to validate on, where there is no file for it."""


@dataclass(frozen=True)
class Corpus:
    """Documents, read anew each time they are asked for."""

    read: Callable[[], Iterator[str]]
    key: str
    """Names the content: the same key, the same documents."""
    multi_document: bool
    """More than one document, so that their ends have to be marked."""


def read_corpus(spec: str, data: DataConfig, bad: BadRows | None = None) -> Corpus:
    """The documents a spec stands for; an empty one is the text of Python's own reference."""
    if not spec:
        text = embedded_text()
        return Corpus(lambda: iter([text]), hashlib.sha256(text.encode()).hexdigest(), False)
    files = find_files(spec)
    multi_document = data.lines or len(files) > 1 or file_format(files[0])[0] != "text"

    def read() -> Iterator[str]:
        found = (d.text for d in documents(spec, data.text, bad or BadRows(data.bad_rows)))
        return (line for text in found for line in text.splitlines()) if data.lines else found

    key = f"{fingerprint(spec)} column={data.text} bad={data.bad_rows} lines={data.lines}"
    return Corpus(read, key, multi_document)


def corpus_of_lines(texts: Sequence[str]) -> Corpus:
    """Texts in memory, a line each, for a tokenizer to be trained on."""
    return Corpus(lambda: (f"{text}\n" for text in texts), "", False)


def hold_out(texts: Corpus, share: float = HELD_OUT) -> tuple[Corpus, Corpus]:
    """The past to train on and the future to test on: cut between documents, or within the only one."""
    lengths = [len(text) for text in texts.read()]
    cut = int(sum(lengths) * (1 - share))
    if not texts.multi_document:
        first, second = slice(None, cut), slice(cut, None)
        return (
            Corpus(lambda: (text[first] for text in texts.read()), f"{texts.key}[:{cut}]", False),
            Corpus(lambda: (text[second] for text in texts.read()), f"{texts.key}[{cut}:]", False),
        )
    place, seen = 0, 0
    while place < len(lengths) - 1 and (place == 0 or seen + lengths[place] <= cut):
        seen += lengths[place]
        place += 1
    return (
        Corpus(lambda: (t for i, t in enumerate(texts.read()) if i < place), f"{texts.key}[:d{place}]", True),
        Corpus(lambda: (t for i, t in enumerate(texts.read()) if i >= place), f"{texts.key}[d{place}:]", True),
    )


def train_or_load_tokenizer(folder: Path, data: DataConfig, texts: Corpus, *, causal: bool = False) -> Tokenizer:
    """Trained once per run and kept with it: a resumed run must not train another.

    `causal` is for a language model, whose prompts begin as its documents do.
    """
    if not (folder / "tokenizer.json").exists():
        lines = (line for text in texts.read() for line in text.splitlines(keepends=True))
        size = data.vocab or DEFAULT_VOCAB_SIZE.get(data.tokenizer, 0)
        special = (END_OF_DOCUMENT,) if texts.multi_document else ()
        made = train_tokenizer(data.tokenizer, lines, size, lower=data.lower, special=special)
        (without_special_tokens(made, END_OF_DOCUMENT if texts.multi_document else "") if causal else made).save(folder)
    return load_tokenizer(folder)


def without_special_tokens(tokenizer: Tokenizer, end: str = "") -> Tokenizer:
    """The same tokenizer for a model that reads texts one after the other: nothing is put around a text.

    What ends a document stands before the next one, so that it is BOS too.
    """
    tokenizer.backend.post_processor = None
    return Tokenizer(tokenizer.backend, {"bos_token": end, "eos_token": end} if end else {})


def tokenize_corpus(texts: Corpus, tokenizer: Tokenizer) -> TokenStore:
    """The documents as ids, from the cache where they have been there before.

    Each begins as a prompt does, with what the tokenizer puts before a text.
    """
    end = tokenizer.special.get("eos") if texts.multi_document else None
    if texts.multi_document and end is None:
        end = tokenizer.backend.token_to_id(END_OF_DOCUMENT)
    return open_store(texts.read, tokenizer, key=texts.key, end=end, begin=tokenizer.prefix_ids)
