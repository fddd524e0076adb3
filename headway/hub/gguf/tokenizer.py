"""The tokenizer of a GGUF file: its vocabulary and merges, and the rules by their name in llama.cpp.

A file holds only the name of its rules. Names without rules in this module are refused: wrong ids raise no error later,
they only make a model bad.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.data.tokenizers.bounds import bounded, check_added, check_names
from headway.data.tokenizers.spm import MAX_PIECE_CHARACTERS, merges_from_scores
from headway.data.tokenizers.tokenizer import Tokenizer, backend_errors
from headway.errors import DamagedError, NotFoundError
from headway.hub.gguf.file import GGUFFile, open_file
from headway.jsonfile import show

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend
    from tokenizers.pre_tokenizers import PreTokenizer

UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4
"""Types of tokens that are no plain pieces of text."""
ROLES = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
"""Our name → llama.cpp's."""
LLAMA3_WORD = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DIGITS = ("smollm", "starcoder", "refact", "command-r")
"""Rules: GPT-2's, with every digit a word of its own."""
LLAMA3 = ("llama-bpe", "llama3", "llama-v3")
"""Rules: Llama 3's. A word that is in the vocabulary is one token, without merges."""
QWEN2 = "qwen2"
"""Rules: Llama 3's, but every digit is a word of its own, and composed letters are one character."""
RULES = ("gpt-2", *DIGITS, *LLAMA3, QWEN2)


def load_gguf_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a GGUF file, with its special tokens and its chat template."""
    file = open_file(path)
    tokens, kinds = _tokens(file)
    special = {role: tokens[i] for role, i in _roles(file, len(tokens)).items()}
    model = file.metadata.get("tokenizer.ggml.model")
    if model not in ("gpt2", "llama"):
        raise _unknown(file, f"a tokenizer of type {show(str(model)[:40])}; headway knows gpt2 and llama")
    with backend_errors(f"the tokenizer in {show(path)}"):
        backend = _byte_level(file, tokens) if model == "gpt2" else _sentencepiece(file, tokens, special.get("unk"))
        _add_tokens(backend, tokens, kinds)
        _put_around(backend, file, special)
    config: dict[str, Any] = {f"{role}_token": token for role, token in special.items()}
    length = f"{file.metadata.get('general.architecture')}.context_length"
    for key, fact in (("chat_template", "tokenizer.chat_template"), ("model_max_length", length)):
        if fact in file.metadata:
            config[key] = file.metadata[fact]
    return Tokenizer(backend, config)


def _unknown(file: GGUFFile, what: str) -> NotFoundError:
    hint = "give the folder of the original model, which has a tokenizer.json"
    return NotFoundError("F005", f"{show(file.path)} has {what}", hint)


def _damaged(file: GGUFFile, what: str) -> DamagedError:
    return DamagedError("X001", f"{show(file.path)}: {what}")


def _tokens(file: GGUFFile) -> tuple[list[str], list[int]]:
    """The tokens in the order of their ids, and the type of each."""
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens or not isinstance(tokens[0], str):
        raise _unknown(file, "no tokenizer.ggml.tokens")
    if len(set(tokens)) < len(tokens):
        raise _damaged(file, f"the vocabulary of {len(tokens):,} tokens has a token twice")
    with bounded(file.path):
        check_names(tokens, len(tokens))
    kinds = file.metadata.get("tokenizer.ggml.token_type", [1] * len(tokens))
    if not isinstance(kinds, list) or len(kinds) != len(tokens):
        raise _damaged(file, f"tokenizer.ggml.token_type needs one type for each of {len(tokens):,} tokens")
    return tokens, kinds


def _roles(file: GGUFFile, size: int) -> dict[str, int]:
    found = {ours: file.metadata.get(f"tokenizer.ggml.{theirs}_token_id") for ours, theirs in ROLES.items()}
    for role, i in found.items():
        if i is not None and (type(i) is not int or not 0 <= i < size):
            raise _damaged(file, f"the {role} token has id {str(i)[:20]}, and there are {size:,} tokens")
    return {role: i for role, i in found.items() if i is not None}


def _byte_level(file: GGUFFile, tokens: Sequence[str]) -> Backend:
    import tokenizers as tk

    rules = file.metadata.get("tokenizer.ggml.pre")
    if rules not in RULES:
        raise _unknown(file, f"rules named {show(str(rules)[:40])}; headway knows {', '.join(RULES)}")
    vocab = {token: i for i, token in enumerate(tokens)}
    model = tk.models.BPE(vocab=vocab, merges=_merges(file), ignore_merges=rules in LLAMA3)
    backend = tk.Tokenizer(model)
    if rules == QWEN2:
        backend.normalizer = tk.normalizers.NFC()
    backend.pre_tokenizer = tk.pre_tokenizers.Sequence(list(_words(rules)))
    backend.decoder = tk.decoders.ByteLevel()
    return backend


def _words(rules: str) -> Iterator[PreTokenizer]:
    import tokenizers as tk

    if rules in DIGITS:
        yield tk.pre_tokenizers.Digits(individual_digits=True)
    if rules in (*LLAMA3, QWEN2):
        word = LLAMA3_WORD if rules in LLAMA3 else LLAMA3_WORD.replace("{1,3}", "")
        yield tk.pre_tokenizers.Split(tk.Regex(word), "isolated")
    yield tk.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rules not in (*LLAMA3, QWEN2))


def _merges(file: GGUFFile) -> list[tuple[str, str]]:
    merges = file.metadata.get("tokenizer.ggml.merges")
    if not isinstance(merges, list) or not all(isinstance(merge, str) and " " in merge for merge in merges):
        raise _damaged(file, "tokenizer.ggml.merges is not a list of pairs")
    return [(first, second) for first, _, second in (merge.partition(" ") for merge in merges)]


def _sentencepiece(file: GGUFFile, tokens: Sequence[str], unk: str | None) -> Backend:
    """SentencePiece's BPE, as in Llama 2: ▁ for a space, and one before the text."""
    import tokenizers as tk

    for name in ("remove_extra_whitespaces", "precompiled_charsmap"):
        if file.metadata.get(f"tokenizer.ggml.{name}"):
            raise _unknown(file, f"tokenizer.ggml.{name}, a rule that headway does not know")
    scores = file.metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(tokens) or not isinstance(scores[0], float):
        raise _damaged(file, f"tokenizer.ggml.scores needs one score for each of {len(tokens):,} tokens")
    if (longest := max(map(len, tokens))) > MAX_PIECE_CHARACTERS:
        raise _damaged(file, f"a token of {longest:,} characters; the limit is {MAX_PIECE_CHARACTERS}")
    merges = merges_from_scores(dict(zip(tokens, scores, strict=True)))
    vocab = {token: i for i, token in enumerate(tokens)}
    backend = tk.Tokenizer(tk.models.BPE(vocab=vocab, merges=merges, unk_token=unk, fuse_unk=True, byte_fallback=True))
    prefix = file.metadata.get("tokenizer.ggml.add_space_prefix", True) is True
    space = tk.normalizers.Replace(" ", "▁")
    backend.normalizer = tk.normalizers.Sequence([tk.normalizers.Prepend("▁"), space] if prefix else [space])
    text = [tk.decoders.Replace("▁", " "), tk.decoders.ByteFallback(), tk.decoders.Fuse()]
    backend.decoder = tk.decoders.Sequence([*text, tk.decoders.Strip(" ", 1, 0)] if prefix else text)
    return backend


def _add_tokens(backend: Backend, tokens: Sequence[str], kinds: Sequence[int]) -> None:
    """Add tokens that are matched in the text before it is split into words."""
    from tokenizers import AddedToken

    added = [
        (token, kind) for token, kind in zip(tokens, kinds, strict=True) if kind in (UNKNOWN, CONTROL, USER_DEFINED)
    ]
    with bounded("the list of special tokens"):
        check_added(token for token, _ in added)
    # in one call, since every call sorts all of them
    backend.add_tokens([AddedToken(token, special=kind != USER_DEFINED, normalized=False) for token, kind in added])


def _put_around(backend: Backend, file: GGUFFile, special: Mapping[str, str]) -> None:
    """Add the tokens before and after a text, if the file says so or llama.cpp assumes it."""
    from tokenizers.processors import TemplateProcessing

    metadata = file.metadata
    usual = metadata["tokenizer.ggml.model"] == "llama" or metadata.get("tokenizer.ggml.pre") in LLAMA3
    before = (
        [special["bos"]] if metadata.get("tokenizer.ggml.add_bos_token", usual) is True and "bos" in special else []
    )
    after = [special["eos"]] if metadata.get("tokenizer.ggml.add_eos_token") is True and "eos" in special else []
    if before or after:
        names = [(token, backend.token_to_id(token)) for token in dict.fromkeys((*before, *after))]
        second = [f"{token}:1" for token in before], [f"{token}:1" for token in after]
        pair = [*before, "$A", *after, *second[0], "$B:1", *second[1]]
        backend.post_processor = TemplateProcessing([*before, "$A", *after], pair, names)
