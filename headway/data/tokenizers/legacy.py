"""Backends from the vocabulary files of older model folders: vocab.txt, or vocab.json with merges.txt.

These files lack the rules for splitting and special tokens; this module has the rules of the classes that wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.data.tokenizers.bounds import bounded, check_largest, check_names
from headway.data.tokenizers.special_tokens import bool_setting, find_roles, mark_special, token_of
from headway.errors import DamagedError, NotFoundError
from headway.jsonfile import AGAIN, JSON_LIMIT, read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend


def word_piece(path: Path, config: Mapping[str, Any]) -> Backend:
    """WordPiece as in BERT: `[CLS] A [SEP]`, `[CLS] A [SEP] B [SEP]`; the id of an entry is its line number."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

    vocab = {line.rstrip(): i for i, line in enumerate(read_text(path).removesuffix("\n").split("\n"))}
    with bounded(path):
        check_names(vocab, len(vocab))
        check_largest(max(vocab.values()), len(vocab))
    unk, cls, sep = (token_of(config, role) or f"[{role.upper()}]" for role in ("unk", "cls", "sep"))
    require(path, vocab, unk, cls, sep)
    backend = Backend(models.WordPiece(vocab, unk_token=unk, continuing_subword_prefix="##"))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool_setting(config, "tokenize_chinese_chars", True),
        strip_accents=bool_setting(config, "strip_accents", None),  # None: when lower-casing
        lowercase=bool_setting(config, "do_lower_case", True),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    backend.post_processor = processors.TemplateProcessing(
        single=[cls, "$A", sep],
        pair=[cls, "$A", sep, "$B:1", f"{sep}:1"],
        special_tokens=[(cls, vocab[cls]), (sep, vocab[sep])],
    )
    mark_special(backend, find_roles(backend, config, vocab).values(), config)
    return backend


def byte_bpe(vocab_path: Path, merges_path: Path, config: dict[str, Any]) -> Backend:
    """Byte-level BPE. GPT-2: the text, with BOS and EOS as add_bos_token and add_eos_token say. OPT: `</s> A`.

    RoBERTa, BART: `<s> A </s>`, `<s> A </s></s> B </s>`.
    """
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, pre_tokenizers, processors

    vocab = _byte_vocab(vocab_path)
    merges = _merges(merges_path, vocab)
    whole = vocab.keys() - {a + b for a, b in merges}  # a token that merges can produce is text, even "<s>"
    hint, prefix_space = str(config.get("tokenizer_class")), bool_setting(config, "add_prefix_space", False)
    backend = Backend(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    backend.decoder = decoders.ByteLevel()
    if hint.startswith(("Roberta", "Bart")) or (not hint.startswith("GPT2") and {"<s>", "</s>"} <= whole):
        cls, sep, mask = (token_of(config, role) for role in ("cls", "sep", "mask"))
        cls, sep = cls or "<s>", sep or "</s>"
        require(vocab_path, vocab, cls, sep)
        backend.post_processor = processors.RobertaProcessing(
            (sep, vocab[sep]), (cls, vocab[cls]), trim_offsets=True, add_prefix_space=prefix_space
        )
        config |= {"cls_token": cls, "sep_token": sep}
        if not isinstance(config.get("mask_token"), dict):  # the mask replaces a word and the space before it
            config["mask_token"] = {"content": mask or "<mask>", "lstrip": True}
    elif used := {role: token for role in ("bos", "eos") if (token := _token_if_added(config, role))}:
        require(vocab_path, vocab, *used.values())
        before, after = ([used[role]] if role in used else [] for role in ("bos", "eos"))
        second = [f"{token}:1" for token in (*before, "$B", *after)]
        backend.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *after],
            pair=[*before, "$A", *after, *second],
            special_tokens=[(token, vocab[token]) for token in dict.fromkeys(used.values())],
        )
    mark_special(backend, find_roles(backend, config, whole).values(), config)
    return backend


def _token_if_added(config: Mapping[str, Any], role: str) -> str | None:
    return token_of(config, role) if bool_setting(config, f"add_{role}_token", False) else None


def _byte_vocab(path: Path) -> dict[str, int]:
    vocab = vocab_ids(path)
    if any(token.endswith("</w>") for token in vocab):
        message = f"{path} marks ends of words with </w>, so it is not a byte-level vocabulary"
        raise NotFoundError("F005", message, conversion_hint(path.parent))
    return vocab


def vocab_ids(path: Path) -> dict[str, int]:
    """Read a vocabulary: token → id, with unique ids."""
    vocab = json_object(path)
    for token, i in vocab.items():
        if type(i) is not int or i < 0:
            raise DamagedError("X001", f"{path}: the id of {token[:40]!r} is {str(i)[:40]!r}, not an integer", AGAIN)
    with bounded(path):
        check_names(vocab, len(vocab))
        check_largest(max(vocab.values(), default=0), len(vocab))
    if len(set(vocab.values())) < len(vocab):
        raise DamagedError("X001", f"{path} gives the same id to several of its {len(vocab)} tokens", AGAIN)
    return vocab


def _merges(path: Path, vocab: Mapping[str, int]) -> list[tuple[str, str]]:
    merges = []
    for number, line in enumerate(read_text(path).replace("\r\n", "\n").split("\n"), start=1):
        if not line or line.startswith("#version"):
            continue
        first, _, second = line.partition(" ")
        for token in (first, second, first + second):
            if token not in vocab:
                raise DamagedError("X001", f"{path}:{number}: {token[:40]!r} is not in the vocabulary")
        merges.append((first, second))
    return merges


def require(path: Path, vocab: Mapping[str, int], *names: str) -> None:
    for name in names:
        if name not in vocab:
            raise DamagedError("X001", f"{path} has no {name!r} among its {len(vocab)} tokens", AGAIN)


def read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(JSON_LIMIT + 1)
        if len(raw) > JSON_LIMIT:
            raise DamagedError("X001", f"{path} has more than {JSON_LIMIT:,} bytes", AGAIN)
        return raw.decode("utf-8")
    except UnicodeDecodeError as cause:
        raise DamagedError("X001", f"{path} is not UTF-8 text, at byte {cause.start}") from cause
    except OSError as cause:
        raise NotFoundError("F001", f"{path} cannot be read: {cause.strerror}") from cause


def json_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; empty if there is no file."""
    return read_json(path) if path.is_file() else {}


def conversion_hint(folder: Path) -> str:
    call = f"AutoTokenizer.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})"
    return f"make a tokenizer.json once, where transformers is installed: {call}"
