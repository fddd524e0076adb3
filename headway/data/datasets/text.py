"""Text for a task: documents from files, the part held out, a tokenizer of their own, and token stores."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.config.recipe import DataConfig
from headway.data.batching.token_store import TokenStore, open_store
from headway.data.batching.windows import embedded_text
from headway.data.files.locate import file_format, find_files, fingerprint
from headway.data.files.rows import BadRows, documents
from headway.data.tokenizers.tokenizer import Tokenizer, load_tokenizer
from headway.data.tokenizers.train import train_tokenizer

END = "<|end|>"
"""Ends a document where a text has several."""
VOCAB = {"bpe": 4096, "wordpiece": 4096, "unigram": 4096}
"""Size of a vocabulary that has to have one, where the recipe does not say."""
HELD_OUT = 0.1
"""Share of the text to validate on, where there is no file for it."""


@dataclass(frozen=True)
class Texts:
    """Documents, read anew each time they are asked for."""

    read: Callable[[], Iterator[str]]
    key: str
    """Names the content: the same key, the same documents."""
    several: bool
    """More than one document, so that their ends have to be marked."""


def read_texts(spec: str, data: DataConfig, bad: BadRows | None = None) -> Texts:
    """The documents a spec stands for; an empty one is the text of Python's own reference."""
    if not spec:
        text = embedded_text()
        return Texts(lambda: iter([text]), hashlib.sha256(text.encode()).hexdigest(), False)
    files = find_files(spec)
    several = data.lines or len(files) > 1 or file_format(files[0])[0] != "text"

    def read() -> Iterator[str]:
        found = (d.text for d in documents(spec, data.text, bad or BadRows(data.bad_rows)))
        return (line for text in found for line in text.splitlines()) if data.lines else found

    key = f"{fingerprint(spec)} column={data.text} bad={data.bad_rows} lines={data.lines}"
    return Texts(read, key, several)


def short_texts(texts: Sequence[str]) -> Texts:
    """Texts in memory, a line each, for a tokenizer to be trained on."""
    return Texts(lambda: (f"{text}\n" for text in texts), "", False)


def hold_out(texts: Texts, share: float = HELD_OUT) -> tuple[Texts, Texts]:
    """The past to train on and the future to test on: cut between documents, or within the only one."""
    lengths = [len(text) for text in texts.read()]
    cut = int(sum(lengths) * (1 - share))
    if not texts.several:
        first, second = slice(None, cut), slice(cut, None)
        return (
            Texts(lambda: (text[first] for text in texts.read()), f"{texts.key}[:{cut}]", False),
            Texts(lambda: (text[second] for text in texts.read()), f"{texts.key}[{cut}:]", False),
        )
    place, seen = 0, 0
    while place < len(lengths) - 1 and (place == 0 or seen + lengths[place] <= cut):
        seen += lengths[place]
        place += 1
    return (
        Texts(lambda: (t for i, t in enumerate(texts.read()) if i < place), f"{texts.key}[:d{place}]", True),
        Texts(lambda: (t for i, t in enumerate(texts.read()) if i >= place), f"{texts.key}[d{place}:]", True),
    )


def own_tokenizer(folder: Path, data: DataConfig, texts: Texts, *, writes: bool = False) -> Tokenizer:
    """Trained once per run and kept with it: a resumed run must not train another.

    `writes` is for a language model, whose prompts begin as its documents do.
    """
    if not (folder / "tokenizer.json").exists():
        lines = (line for text in texts.read() for line in text.splitlines(keepends=True))
        size = data.vocab or VOCAB.get(data.tokenizer, 0)
        special = (END,) if texts.several else ()
        made = train_tokenizer(data.tokenizer, lines, size, lower=data.lower, special=special)
        (bare(made, END if texts.several else "") if writes else made).save(folder)
    return load_tokenizer(folder)


def bare(tokenizer: Tokenizer, end: str = "") -> Tokenizer:
    """The same tokenizer for a model that reads texts one after the other: nothing is put around a text.

    What ends a document stands before the next one, so that it is BOS too.
    """
    tokenizer.backend.post_processor = None
    return Tokenizer(tokenizer.backend, {"bos_token": end, "eos_token": end} if end else {})


def tokens(texts: Texts, tokenizer: Tokenizer) -> TokenStore:
    """The documents as ids, from the cache where they have been there before.

    Each begins as a prompt does, with what the tokenizer puts before a text.
    """
    end = tokenizer.special.get("eos") if texts.several else None
    if texts.several and end is None:
        end = tokenizer.backend.token_to_id(END)
    return open_store(texts.read, tokenizer, key=texts.key, end=end, begin=tokenizer.before)
