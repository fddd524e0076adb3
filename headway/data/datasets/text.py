"""A corpus: its documents, the validation split, a tokenizer trained on it, and its token store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headway.config.recipe import UTF_8, DataConfig
from headway.data.batching.token_store import TokenStore, open_store
from headway.data.batching.windows import embedded_text
from headway.data.datasets.raw import ALPHABET, raw_files, raw_key, read_raw
from headway.data.files.digest import fingerprint
from headway.data.files.locate import file_format, find_files
from headway.data.files.rows import BadRows, documents
from headway.data.synthetic.byte_files import make_sound
from headway.data.tokenizers.tokenizer import Tokenizer, load_tokenizer
from headway.data.tokenizers.train import train_tokenizer

END_OF_DOCUMENT = "<|end|>"
"""Token at the end of each document of a corpus with several."""
DEFAULT_VOCAB_SIZE = {"bpe": 4096, "wordpiece": 4096, "unigram": 4096}
"""Vocabulary size by kind of tokenizer, if the recipe does not set data.vocab."""
HELD_OUT = 0.1
"""Share of the text that is held out if there is no validation file."""


@dataclass(frozen=True)
class Corpus:
    """Documents; `read` reads them again at each call."""

    read: Callable[[], Iterator[str]]
    key: str
    """Identifies the content: equal keys mean equal documents."""
    multi_document: bool
    """Whether there are several documents, so that END_OF_DOCUMENT must separate them."""
    raw: bool = False
    """Whether a character stands for a byte (data.raw)."""


def read_corpus(spec: str, data: DataConfig, bad: BadRows | None = None) -> Corpus:
    """Return the corpus of a spec; without one it is the text of Python's language reference, or made-up sound."""
    if data.raw:
        return _raw_corpus(spec)
    if not spec:
        text = embedded_text()
        return Corpus(lambda: iter([text]), hashlib.sha256(text.encode()).hexdigest(), False)
    files = find_files(spec)
    multi_document = data.lines or len(files) > 1 or file_format(files[0])[0] != "text"

    def read() -> Iterator[str]:
        found = (d.text for d in documents(spec, data.text, bad or BadRows(data.bad_rows)))
        return (line for text in found for line in text.splitlines()) if data.lines else found

    key = f"{fingerprint(spec)} column={data.text} bad={data.bad_rows} lines={data.lines}"
    key += "" if data.encoding == UTF_8 else f" encoding={data.encoding}"
    return Corpus(read, key, multi_document)


def _raw_corpus(spec: str) -> Corpus:
    """The bytes of files, each of them a document; for an empty spec, 8-bit sound."""
    if not spec:
        sound = make_sound()
        return Corpus(lambda: iter([sound]), hashlib.sha256(sound.encode()).hexdigest(), False, raw=True)
    files = raw_files(spec)
    return Corpus(lambda: map(read_raw, files), f"{raw_key(spec)} raw", len(files) > 1, raw=True)


def corpus_of_lines(texts: Sequence[str]) -> Corpus:
    """A corpus of texts in memory, one per line, to train a tokenizer on."""
    return Corpus(lambda: (f"{text}\n" for text in texts), "", False)


def hold_out(texts: Corpus, share: float = HELD_OUT) -> tuple[Corpus, Corpus]:
    """Split a corpus into its beginning for training and its end for validation, between documents if possible."""
    lengths = [len(text) for text in texts.read()]
    cut = int(sum(lengths) * (1 - share))
    if not texts.multi_document:
        first, second = slice(None, cut), slice(cut, None)
        return (
            replace(texts, read=lambda: (text[first] for text in texts.read()), key=f"{texts.key}[:{cut}]"),
            replace(texts, read=lambda: (text[second] for text in texts.read()), key=f"{texts.key}[{cut}:]"),
        )
    place, seen = 0, 0
    while place < len(lengths) - 1 and (place == 0 or seen + lengths[place] <= cut):
        seen += lengths[place]
        place += 1
    before, after = (
        lambda: (t for i, t in enumerate(texts.read()) if i < place),
        lambda: (t for i, t in enumerate(texts.read()) if i >= place),
    )
    keys = f"{texts.key}[:d{place}]", f"{texts.key}[d{place}:]"
    return replace(texts, read=before, key=keys[0]), replace(texts, read=after, key=keys[1])


def train_or_load_tokenizer(folder: Path, data: DataConfig, texts: Corpus, *, causal: bool = False) -> Tokenizer:
    """Train a tokenizer and save it in the run's folder, or load it from there: a resumed run must not train another.

    `causal` is for a language model, whose prompts start like its documents.
    """
    if not (folder / "tokenizer.json").exists():
        lines = (line for text in texts.read() for line in text.splitlines(keepends=True))
        size = data.vocab or DEFAULT_VOCAB_SIZE.get(data.tokenizer, 0)
        special = (END_OF_DOCUMENT,) if texts.multi_document else ()
        kind = data.tokenizer
        one_each = data.raw and kind == "bytes"  # a token for each byte, seen or not; in UTF-8 half would have two
        learned = [ALPHABET] if one_each else lines
        made = train_tokenizer("chars" if one_each else kind, learned, size, lower=data.lower, special=special)
        (without_special_tokens(made, END_OF_DOCUMENT if texts.multi_document else "") if causal else made).save(folder)
    return load_tokenizer(folder)


def without_special_tokens(tokenizer: Tokenizer, end: str = "") -> Tokenizer:
    """Return a tokenizer that adds no special tokens, for a model that reads documents one after the other.

    The token that ends a document precedes the next one, so it is BOS too.
    """
    tokenizer.backend.post_processor = None
    return Tokenizer(tokenizer.backend, {"bos_token": end, "eos_token": end} if end else {})


def tokenize_corpus(texts: Corpus, tokenizer: Tokenizer) -> TokenStore:
    """Return the token store of a corpus, from the cache if it is there.

    Each document starts like a prompt, with the special tokens that the tokenizer puts before a text.
    """
    end = tokenizer.special.get("eos") if texts.multi_document else None
    if texts.multi_document and end is None:
        end = tokenizer.backend.token_to_id(END_OF_DOCUMENT)
    store = open_store(texts.read, tokenizer, key=texts.key, end=end, begin=tokenizer.prefix_ids)
    return replace(store, byte_count=sum(map(len, texts.read()))) if texts.raw else store
