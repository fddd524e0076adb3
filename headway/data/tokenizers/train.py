"""Tokenizers trained on the user's own text, and the merges of byte pair encoding, step by step.

    kind       tokens                                     a text it never saw
    bytes      256 byte values, nothing to learn          exact
    chars      every character seen, by code point        unseen characters are <unk>
    words      words between white space                  unseen words are <unk>; decode joins with one space
    bpe        bytes, and merges of frequent neighbours   exact
    wordpiece  BERT's words and ##continuations           words with unseen characters are [UNK]; spacing is lost
    unigram    bytes, and the most probable subwords      exact

Training twice on the same texts gives the same tokenizer. The trainers of `tokenizers` guarantee that for BPE only:
WordPiece numbers its ##characters, and Unigram sums probabilities, in the random order of a hash table.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from headway.data.tokenizers.bounds import MAX_TOKEN_CHARACTERS
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError, DataError, nearest
from headway.progress import bar

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend
    from tokenizers.models import Model
    from tokenizers.normalizers import Normalizer

OWN_SPECIAL = {"chars": ("<unk>",), "words": ("<unk>",), "wordpiece": ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")}
"""Special tokens that a kind always has, before those of the caller."""
SPECIAL = re.compile(r"[!-~]{2,}")
"""Form of special tokens: others could equal the byte-level form of a text, which decode would then skip."""
WORD = re.compile(r"[^\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
"""A word as `tokenizers` splits. str.split() also splits at \\x1c to \\x1f, which are not white space in Unicode."""
NO_WORDS = "there are no words to train a tokenizer on"
WORD_LIMIT = 1000
"""The most characters of a word in training, because the trainers take quadratic time. Longer words, for example base
64, are split for training; encoding them takes no longer than other text."""
LONG_WORD = re.compile("|".join(f"{kind}{{{WORD_LIMIT}}}" for kind in (r"[^\W_]", r"(?:[^\w\s]|[_\x1c-\x1f])", r"\s")))
"""The longest part of a word, of letters and digits, signs, or white space: byte-level rules split between those."""


def train_tokenizer(
    kind: str,
    texts: Iterable[str],
    size: int = 0,
    *,
    lower: bool = False,
    special: tuple[str, ...] = (),
) -> Tokenizer:
    """Train a tokenizer of one of KINDS on texts, which are read once (the end of a text ends a word).

    `size` is the size of the vocabulary, special tokens included; little text may give fewer tokens. 0 means no limit
    for bytes, chars and words; the other kinds need a size. `special` tokens have the first ids (for bytes, those from
    256) and are matched before a text is split. `lower` also strips accents for wordpiece, as BERT does.
    """
    from tokenizers import AddedToken, normalizers

    special = tuple(dict.fromkeys((*OWN_SPECIAL.get(kind, ()), *special)))
    _check(kind, size, special)
    lowercase = normalizers.Lowercase() if lower else None
    normalizer = normalizers.BertNormalizer(lowercase=lower) if kind == "wordpiece" else lowercase
    with bar("training a tokenizer"):
        backend = KINDS[kind](_read([texts] if isinstance(texts, str) else texts), size, special, normalizer)
    backend.normalizer = normalizer
    # <unk> is matched in a text like the others, but decode keeps it: it replaces a part of the text.
    backend.add_tokens([AddedToken(token, special=token != "<unk>", normalized=False) for token in special])
    return Tokenizer(backend)


def _check(kind: str, size: int, special: tuple[str, ...]) -> None:
    if kind not in KINDS:
        raise ConfigError("C003", f"tokenizer kind {kind!r} is none of {', '.join(KINDS)}{nearest(kind, KINDS)}")
    for token in special:
        if not SPECIAL.fullmatch(token):
            raise ConfigError("C003", f"special token {token!r} is not two or more visible ASCII characters")
    if size and kind in ("bytes", "chars"):
        raise ConfigError(
            "C003", f"data.vocab = {size}, but the size of a vocabulary of {kind} is fixed: leave it at 0"
        )
    least = len(special) + (256 if kind in ("bpe", "unigram") else 1)
    if size < least and (size or kind in ("bpe", "wordpiece", "unigram")):
        message = f"data.vocab = {size}, but {kind} with {len(special)} special tokens needs {least} or more"
        raise ConfigError("C003", message, "8000 to 32000 is usual")


def _read(texts: Iterable[str]) -> Iterator[str]:
    some = False
    for number, text in enumerate(texts, start=1):
        try:
            text.encode()
        except UnicodeEncodeError as cause:
            raise DataError("D001", f"character {cause.start} of text {number} is half a surrogate pair") from cause
        some = some or bool(text)
        yield text
    if not some:
        raise DataError("D002", "there is no text to train a tokenizer on")


def _byte_level(model: Model, normalizer: Normalizer | None, *, words: bool = True) -> Backend:
    """A backend with GPT-2's rules: a word keeps the space before it, and no merge crosses into the next word."""
    import tokenizers as tk

    backend = tk.Tokenizer(model)
    backend.normalizer = normalizer
    backend.pre_tokenizer = tk.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words)
    backend.decoder = tk.decoders.ByteLevel()
    return backend


def byte_ids() -> dict[str, int]:
    """Byte-level character → byte: visible Latin-1 characters stand for themselves, chr(256) and up for the others."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


def _parts(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts, split within words beyond the limit: the end of a text ends a word."""
    for text in texts:
        start = 0
        for found in LONG_WORD.finditer(text):
            yield text[start : found.end()]
            start = found.end()
        if start < len(text) or not text:
            yield text[start:]


def _byte_bpe(texts: Iterable[str], size: int, special: tuple[str, ...], normalizer: Normalizer | None) -> Backend:
    from tokenizers import models, trainers

    if not size:  # bytes only: nothing to learn, and words do not matter
        return _byte_level(models.BPE(vocab=byte_ids(), merges=[]), normalizer, words=False)
    backend, alphabet, first = _byte_level(models.BPE(), normalizer), list(byte_ids()), list(special)
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=first, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(_parts(texts), trainer)
    return backend


def _unigram(texts: Iterable[str], size: int, special: tuple[str, ...], normalizer: Normalizer | None) -> Backend:
    from tokenizers import models, trainers

    backend, alphabet = _byte_level(models.Unigram(), normalizer), sorted(byte_ids())
    room = size - len(special)
    trainer = trainers.UnigramTrainer(vocab_size=room, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(_parts(texts), trainer)
    # Sums differ in the last digits from run to run, and unseen bytes get scores just above the lowest one, in any
    # order. With rounded scores, and one score for these bytes, two runs agree.
    scores = {piece: round(score, 4) for piece, score in json.loads(backend.to_str())["model"]["vocab"]}
    lowest = min(scores.values())
    scores |= {byte: lowest for byte in alphabet if scores[byte] < lowest + 0.0001 * (len(alphabet) + 1)}
    longer = sorted(scores.keys() - {*alphabet, *special}, key=lambda piece: (-scores[piece], piece))
    pieces = [(piece, scores[piece]) for piece in (alphabet + longer)[:room]]
    backend.model = models.Unigram([*((token, 0.0) for token in special), *pieces])
    return backend


def _chars(texts: Iterable[str], size: int, special: tuple[str, ...], normalizer: Normalizer | None) -> Backend:
    import tokenizers as tk

    seen = set(chain.from_iterable(_normalized(texts, normalizer)))
    vocab = {token: i for i, token in enumerate([*special, *sorted(seen)])}
    backend = tk.Tokenizer(tk.models.BPE(vocab=vocab, merges=[], unk_token="<unk>"))
    backend.decoder = tk.decoders.Fuse()
    return backend


def _words(texts: Iterable[str], size: int, special: tuple[str, ...], normalizer: Normalizer | None) -> Backend:
    import tokenizers as tk

    counts = Counter(chain.from_iterable(map(WORD.findall, _normalized(texts, normalizer))))
    common = sorted(counts, key=lambda word: (-counts[word], word))
    # A text may contain <unk>, and strings longer than the longest token.
    words = [w for w in common if len(w) <= MAX_TOKEN_CHARACTERS and not any(token in w for token in special)]
    if not words:
        raise DataError("D002", NO_WORDS)
    vocab = {token: i for i, token in enumerate([*special, *words][: size or None])}
    backend = tk.Tokenizer(tk.models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = tk.pre_tokenizers.WhitespaceSplit()
    return backend


def _normalized(texts: Iterable[str], normalizer: Normalizer | None) -> Iterable[str]:
    return map(normalizer.normalize_str, texts) if normalizer else texts


def _word_piece(texts: Iterable[str], size: int, special: tuple[str, ...], normalizer: Normalizer | None) -> Backend:
    """Count words here, to give the trainer their characters in a fixed order."""
    import tokenizers as tk

    raw = Counter(chain.from_iterable(re.split("[ \t\n\r]+", text) for text in texts))  # BERT splits there too
    split, words = tk.pre_tokenizers.BertPreTokenizer(), Counter[str]()
    for text, count in zip(_normalized(raw, normalizer), raw.values(), strict=True):
        for word, _ in split.pre_tokenize_str(text):
            for at in range(0, len(word), WORD_LIMIT):
                words[word[at : at + WORD_LIMIT]] += count
    if not words:
        raise DataError("D002", NO_WORDS)
    inner = sorted({f"##{char}" for word in words for char in word[1:]})
    least = len(special) + len(inner) + len({char for word in words for char in word})
    if size < least:
        raise ConfigError("C003", f"data.vocab = {size}, but the characters of {len(words)} words need {least}")
    counter = tk.Tokenizer(tk.models.WordPiece(unk_token="[UNK]"))
    counter.pre_tokenizer = tk.pre_tokenizers.WhitespaceSplit()
    trainer = tk.trainers.WordPieceTrainer(vocab_size=size, special_tokens=[*special, *inner], show_progress=False)
    counter.train_from_iterator((f"{word} " * count for word, count in words.items()), trainer)

    vocab = counter.get_vocab()
    backend = tk.Tokenizer(tk.models.WordPiece(vocab, unk_token="[UNK]"))  # here `inner` is not special
    backend.pre_tokenizer, backend.decoder = split, tk.decoders.WordPiece()
    ids = [(token, vocab[token]) for token in ("[CLS]", "[SEP]")]
    backend.post_processor = tk.processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ids)
    return backend


KINDS = {"bytes": _byte_bpe, "chars": _chars, "words": _words}
KINDS |= {"bpe": _byte_bpe, "wordpiece": _word_piece, "unigram": _unigram}


def merge_steps(tokenizer: Tokenizer, word: str) -> list[list[str]]:
    """Return the steps from the characters of a word (or a text) to its tokens, one merge at a time.

    Tokens are spelled as in the vocabulary: in byte-level BPE, "Ġ" is a space.
    """
    backend = tokenizer.backend
    model = json.loads(backend.to_str())["model"]
    if not model.get("merges"):
        kind = "BPE without merges (bytes or chars)" if model["type"] == "BPE" else model["type"]
        raise ConfigError("C003", f"only a BPE tokenizer merges; this one is {kind}")
    rank = {tuple(pair): i for i, pair in enumerate(model["merges"])}
    text = backend.normalizer.normalize_str(word) if backend.normalizer else word
    parts = backend.pre_tokenizer.pre_tokenize_str(text) if backend.pre_tokenizer else [(text, (0, len(text)))]
    words = [list(part) for part, _ in parts]
    steps = [list(chain(*words))]
    while found := [(rank[p], w, i) for w, x in enumerate(words) for i, p in enumerate(pairwise(x)) if p in rank]:
        _, w, i = min(found)
        words[w][i : i + 2] = ["".join(words[w][i : i + 2])]
        steps.append(list(chain(*words)))
    if steps[-1] != tokenizer.pieces(tokenizer.encode(word, special=False).ids):
        raise DataError("D001", f"merges alone do not give the tokens of {word!r}: it has special or unknown ones")
    return steps
