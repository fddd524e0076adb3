"""Text to ids and back: one class around the `tokenizers` library, and readers for a model folder's files.

`tokenizer.json` is complete and taken as it stands. The older layouts hold a vocabulary only; the rules (how
to split, what to put around a text) lived in the class that wrote them. Two builders below state those rules,
and files with other rules are refused: wrong ids raise no error later, they make a model bad.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import ConfigError, DamagedError, DataError, MemoryOrDiskError, NotFoundError
from headway.jsonfile import read_json

if TYPE_CHECKING:
    from tokenizers import AddedToken, Encoding
    from tokenizers import Tokenizer as Backend

WELL_KNOWN = {
    "pad": ("[PAD]", "<pad>"),
    "bos": ("<s>", "<bos>", "<|endoftext|>"),
    "eos": ("</s>", "<eos>", "<|endoftext|>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<cls>"),
    "sep": ("[SEP]", "<sep>"),
    "mask": ("[MASK]", "<mask>"),
}
"""Role → the names it usually has, for folders that do not say."""

KEPT = (
    *("add_prefix_space", "chat_template", "clean_up_tokenization_spaces", "model_input_names"),
    *("model_max_length", "padding_side", "truncation_side"),
)
"""Keys of tokenizer_config.json that survive a save; the rest is in tokenizer.json, or names code."""

LAYOUTS = ("tokenizer.json", "vocab.txt", "vocab.json + merges.txt", "encoder.json + vocab.bpe")
OTHER_RULES = (
    *("BertJapanese", "Bertweet", "Blenderbot", "CLIP", "CTRL", "Deberta", "FSMT", "Funnel", "Herbert"),
    *("MPNet", "OpenAIGPT", "Phobert", "ProphetNet", "Qwen2", "RoFormer", "Whisper", "XLM"),
)
"""Classes that use the file names of BERT or GPT-2 with rules of their own."""
TARGET = "target_tokenizer.json"
"""Beside tokenizer.json, where a translator writes with a vocabulary of its own."""
SEPARATE = "separate_vocabs"
"""What tokenizer_config.json says then, as Marian's does."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """One text, or one pair of texts, as ids; the four lists have one entry per id."""

    ids: list[int]
    segments: list[int]
    """0 for the first text, 1 for the second, as the model's template has it (BERT's token type ids)."""
    offsets: list[tuple[int, int]]
    """Characters [start, end) of its own text that an id stands for; (0, 0) for a token put around a text."""
    words: list[int | None]
    """Index of the word an id belongs to, counted anew in each text; None for a token put around a text."""


class Tokenizer:
    """Encodes and decodes; never pads or truncates, which is the batcher's work.

    `backend` may come from a file or fresh from a trainer; `config` has the keys of tokenizer_config.json.
    """

    def __init__(
        self, backend: Backend, config: Mapping[str, Any] | None = None, target: Tokenizer | None = None
    ) -> None:
        self.backend, self.config = backend, dict(config or {})
        self.target = target or self
        """What an encoder–decoder writes with: itself, unless source and target have a vocabulary each."""
        backend.no_truncation()
        backend.no_padding()
        vocab = backend.get_vocab(with_added_tokens=True)
        names = _roles(backend, self.config, _added_names(backend) or vocab)  # unmarked, "<s>" may be text
        _mark(backend, names.values(), self.config)
        self.special = {role: vocab[name] for role, name in names.items()}
        """Role → id, for those of pad, bos, eos, unk, cls, sep, mask that exist."""
        self.vocab_size = 1 + max(vocab.values(), default=-1)
        """Rows an embedding needs to hold every id, added tokens included."""

    def __len__(self) -> int:
        return self.vocab_size

    def encode(self, text: str, pair: str | None = None, *, special: bool = True) -> Encoded:
        """`special=False` puts no tokens around the text; any written *in* the text count all the same."""
        _check_texts([text] if pair is None else [text, pair])
        with backend_errors("the tokenizer cannot encode this text"):
            return _encoded(self.backend.encode(text, pair, add_special_tokens=special))

    def encode_batch(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, special: bool = True
    ) -> list[Encoded]:
        """The same as one by one, on all cores."""
        if pairs is not None and len(pairs) != len(texts):
            raise DataError("D001", f"{len(texts)} texts but {len(pairs)} second texts to go with them")
        _check_texts([*texts, *(pairs or ())])
        inputs = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
        with backend_errors("the tokenizer cannot encode these texts"):
            return [_encoded(e) for e in self.backend.encode_batch(inputs, add_special_tokens=special)]

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Bare ids of many texts, no tokens around them and no offsets: what a corpus is made of."""
        _check_texts(texts)
        with backend_errors("the tokenizer cannot encode these texts"):
            return [e.ids for e in self.backend.encode_batch_fast(list(texts), add_special_tokens=False)]

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Ids without a token (a model's vocabulary is often rounded up) give no text."""
        with backend_errors("the tokenizer cannot decode these ids"):
            return self.backend.decode(_ids(ids), skip_special_tokens=skip_special)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The vocabulary entry of each id, as the file spells it; "" for an id without one."""
        return [self.backend.id_to_token(i) or "" for i in _ids(ids)]

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and tokenizer_config.json, readable by `transformers`; and the target's, if another."""
        config = {key: self.config[key] for key in KEPT if key in self.config}
        config.setdefault("clean_up_tokenization_spaces", False)
        # Segments only for BERT-like templates: decoders in transformers stumble over token_type_ids.
        segments = "cls" in self.special and 1 in self.encode("a", "a").segments
        names = ["input_ids", "token_type_ids", "attention_mask"]
        config.setdefault("model_input_names", names if segments else names[::2])
        # The general class takes tokenizer.json as it is; a named one would apply its own rules again.
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
        config |= {f"{role}_token": self.backend.id_to_token(i) for role, i in self.special.items()}
        config |= {} if self.target is self else {SEPARATE: True}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if self.target is not self:  # first: who finds tokenizer.json takes the folder to be complete
                (folder / TARGET).write_text(self.target.backend.to_str(pretty=True), encoding="utf-8")
            (folder / "tokenizer.json").write_text(self.backend.to_str(pretty=True), encoding="utf-8")
            text = json.dumps(config, indent=2, ensure_ascii=False, sort_keys=True)
            (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
        except OSError as cause:
            raise MemoryOrDiskError("M002", f"the tokenizer cannot be saved to {folder}: {cause}") from cause


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a model folder, from the first of LAYOUTS that is complete."""
    folder = Path(folder)
    if not folder.is_dir():
        raise NotFoundError("F001", f"there is no folder {folder}")
    config = _json_object(folder / "tokenizer_config.json")
    for key, value in _json_object(folder / "special_tokens_map.json").items():
        if config.get(key) is None:
            config[key] = value
    if (folder / "chat_template.jinja").is_file():  # a newer place of it, which wins
        config["chat_template"] = _text(folder / "chat_template.jinja")
    layout = next((x for x in LAYOUTS if all((folder / name).is_file() for name in x.split(" + "))), None)
    if layout is None:
        raise _no_layout(folder)
    paths = [folder / name for name in layout.split(" + ")]
    with backend_errors(f"{layout} in {folder} cannot be read as a tokenizer"):
        if layout == "tokenizer.json":
            return Tokenizer(_complete(paths[0]), config, _target(folder, config))
        hint = str(config.get("tokenizer_class") or "")  # a word to compare; nothing is imported by it
        if hint.startswith(OTHER_RULES):
            message = f"{folder} has {layout} of a {hint[:40]}, whose rules headway does not know"
            raise NotFoundError("F005", message, _conversion(folder))
        backend = _word_piece(paths[0], config) if len(paths) == 1 else _byte_bpe(paths[0], paths[1], config)
        _add_tokens(backend, config, _json_object(folder / "added_tokens.json"))
        return Tokenizer(backend, config)


def _target(folder: Path, config: Mapping[str, Any]) -> Tokenizer | None:
    """The tokenizer of what is written, where it is not that of what is read."""
    if (folder / TARGET).is_file():
        return Tokenizer(_complete(folder / TARGET), config)
    if (folder / "target_vocab.json").is_file() or _flag(config, SEPARATE, False):  # ids of the other would be wrong
        message = f"{folder} says that what is written has a vocabulary of its own, and there is no {TARGET}"
        raise NotFoundError("F005", message, f"make one with the ids that the model knows, and save it as {TARGET}")
    return None


def _no_layout(folder: Path) -> NotFoundError:
    sentencepiece = ", ".join(sorted(p.name for p in folder.iterdir() if p.suffix in (".model", ".spm")))
    if sentencepiece:
        message = f"{folder} has no tokenizer.json, only {sentencepiece} (sentencepiece)"
        marian = (folder / "source.spm").is_file()  # for which transformers makes none either
        hint = f"headway reads Marian's models, but texts by tokenizer.json, and {TARGET} where there are two of them"
        return NotFoundError("F005", message, hint if marian else _conversion(folder))
    names = " + ".join(LAYOUTS).split(" + ")
    found = ", ".join(name for name in names if (folder / name).is_file()) or "none of these files"
    looked = ", or ".join(LAYOUTS)
    return NotFoundError("F005", f"no tokenizer in {folder}: looked for {looked}; found {found}")


def _conversion(folder: Path) -> str:
    call = f"AutoTokenizer.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})"
    return f"make a tokenizer.json once, where transformers is installed: {call}"


def _complete(path: Path) -> Backend:
    from tokenizers import Tokenizer as Backend

    text = _text(path)
    try:
        return Backend.from_str(text)
    except Exception:
        _json_object(path)  # where the JSON itself is broken, say so with line and column
        raise


def _word_piece(path: Path, config: Mapping[str, Any]) -> Backend:
    """BERT: `[CLS] A [SEP]`, `[CLS] A [SEP] B [SEP]`; the id of an entry is its line."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

    vocab = {line.rstrip(): i for i, line in enumerate(_text(path).removesuffix("\n").split("\n"))}
    unk, cls, sep = (_token(config, role) or f"[{role.upper()}]" for role in ("unk", "cls", "sep"))
    _require(path, vocab, unk, cls, sep)
    backend = Backend(models.WordPiece(vocab, unk_token=unk, continuing_subword_prefix="##"))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=_flag(config, "tokenize_chinese_chars", True),
        strip_accents=_flag(config, "strip_accents", None),  # None: when lower-casing
        lowercase=_flag(config, "do_lower_case", True),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    backend.post_processor = processors.TemplateProcessing(
        single=[cls, "$A", sep],
        pair=[cls, "$A", sep, "$B:1", f"{sep}:1"],
        special_tokens=[(cls, vocab[cls]), (sep, vocab[sep])],
    )
    _mark(backend, _roles(backend, config, vocab).values(), config)
    return backend


def _byte_bpe(vocab_path: Path, merges_path: Path, config: dict[str, Any]) -> Backend:
    """GPT-2: the text alone. OPT: `</s> A`. RoBERTa, BART: `<s> A </s>`, `<s> A </s></s> B </s>`."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, pre_tokenizers, processors

    vocab = _vocab_json(vocab_path)
    merges = _merges(merges_path, vocab)
    whole = vocab.keys() - {a + b for a, b in merges}  # what merging can build is text, even "<s>"
    hint, prefix_space = str(config.get("tokenizer_class")), _flag(config, "add_prefix_space", False)
    backend = Backend(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    backend.decoder = decoders.ByteLevel()
    if hint.startswith(("Roberta", "Bart")) or (not hint.startswith("GPT2") and {"<s>", "</s>"} <= whole):
        cls, sep, mask = (_token(config, role) for role in ("cls", "sep", "mask"))
        cls, sep = cls or "<s>", sep or "</s>"
        _require(vocab_path, vocab, cls, sep)
        backend.post_processor = processors.RobertaProcessing(
            (sep, vocab[sep]), (cls, vocab[cls]), trim_offsets=True, add_prefix_space=prefix_space
        )
        config |= {"cls_token": cls, "sep_token": sep}
        if not isinstance(config.get("mask_token"), dict):  # a mask stands for a word and the space before it
            config["mask_token"] = {"content": mask or "<mask>", "lstrip": True}
    elif (bos := _token(config, "bos")) and _flag(config, "add_bos_token", False):
        _require(vocab_path, vocab, bos)
        backend.post_processor = processors.TemplateProcessing(
            single=[bos, "$A"], pair=[bos, "$A", f"{bos}:1", "$B:1"], special_tokens=[(bos, vocab[bos])]
        )
    _mark(backend, _roles(backend, config, whole).values(), config)
    return backend


def _vocab_json(path: Path) -> dict[str, int]:
    vocab = _json_object(path)
    for token, i in vocab.items():
        if type(i) is not int or not 0 <= i < 2**31:
            raise DamagedError("X001", f"{path}: the id of {token[:40]!r} is {str(i)[:40]!r}, no whole number")
        if token.endswith("</w>"):
            message = f"{path} marks the ends of words with </w>: no byte-level vocabulary"
            raise NotFoundError("F005", message, _conversion(path.parent))
    if len(set(vocab.values())) < len(vocab):
        raise DamagedError("X001", f"{path} gives the same id to several of its {len(vocab)} tokens")
    return vocab


def _merges(path: Path, vocab: Mapping[str, int]) -> list[tuple[str, str]]:
    merges = []
    for number, line in enumerate(_text(path).replace("\r\n", "\n").split("\n"), start=1):
        if not line or line.startswith("#version"):
            continue
        first, _, second = line.partition(" ")
        for token in (first, second, first + second):
            if token not in vocab:
                raise DamagedError("X001", f"{path}:{number}: {token[:40]!r} is not in the vocabulary")
        merges.append((first, second))
    return merges


def _add_tokens(backend: Backend, config: Mapping[str, Any], legacy: Mapping[str, Any]) -> None:
    """Tokens added after training, in no vocabulary file; each must get the id the model knows it by."""
    special = {_token(config, role) for role in WELL_KNOWN}
    try:
        special |= {_content(x, "a special token") for x in config.get("additional_special_tokens") or ()}
        stated = {int(i): {"content": name, "special": name in special} for name, i in legacy.items()}
        stated |= {int(i): dict(token) for i, token in (config.get("added_tokens_decoder") or {}).items()}
    except (AttributeError, TypeError, ValueError) as cause:
        raise ConfigError("C002", f"added tokens should be given as ids and tokens: {cause}") from cause
    for i, token in sorted(stated.items()):
        name = _content(token, f"added token {i}") or ""
        backend.add_tokens([_added_token(token)])
        if (got := backend.token_to_id(name)) != i:
            raise DamagedError("X001", f"the added token {name[:40]!r} should have id {i}, but gets {got}")
    _mark(backend, [name for name in special if name and backend.token_to_id(name) is not None], config)


def _mark(backend: Backend, names: Iterable[str], config: Mapping[str, Any]) -> None:
    """Make tokens of the vocabulary special: found in a text before it is split, left out by decode."""
    said = {_token(config, role): config.get(f"{role}_token") for role in WELL_KNOWN}
    flags = {name: token for name, token in said.items() if isinstance(token, dict)}
    new = [{"content": n, **flags.get(n, {}), "special": True} for n in set(names) - _added_names(backend)]
    backend.add_special_tokens([_added_token(token) for token in new])


def _added_token(token: Mapping[str, Any]) -> AddedToken:
    from tokenizers import AddedToken

    flags = {key: bool(token.get(key, False)) for key in ("single_word", "lstrip", "rstrip", "special")}
    flags["normalized"] = bool(token.get("normalized", not flags["special"]))
    return AddedToken(token["content"], **flags)


def _added_names(backend: Backend) -> set[str]:
    return {token.content for token in backend.get_added_tokens_decoder().values()}


def _roles(backend: Backend, config: Mapping[str, Any], usual: Container[str]) -> dict[str, str]:
    """Role → token: as the config says, or else a well-known name that is in `usual`."""
    roles = {}
    for role, names in WELL_KNOWN.items():
        if "<mask>" in usual:  # RoBERTa and its kin use the marks of a sentence for these
            names += {"cls": ("<s>",), "sep": ("</s>",)}.get(role, ())
        candidates = [_token(config, role), *(name for name in names if name in usual)]
        found = next((name for name in candidates if name and backend.token_to_id(name) is not None), None)
        if found:
            roles[role] = found
    return roles


def _token(config: Mapping[str, Any], role: str) -> str | None:
    return _content(config.get(f"{role}_token"), f"{role}_token")


def _content(value: Any, what: str) -> str | None:
    """A token is a string, or an object with flags, depending on the age of the file."""
    content = value.get("content") if isinstance(value, dict) else value
    if isinstance(content, str) or value is None:
        return content
    raise ConfigError("C002", f"{what} in tokenizer_config.json is {str(value)[:40]!r}, not a token")


def _flag(config: Mapping[str, Any], key: str, default: bool | None) -> Any:
    value = config.get(key)
    if value is None or isinstance(value, bool):
        return default if value is None else value
    raise ConfigError("C002", f"{key} in tokenizer_config.json is {str(value)[:40]!r}, not true or false")


def _require(path: Path, vocab: Mapping[str, int], *names: str) -> None:
    for name in names:
        if name not in vocab:
            raise DamagedError("X001", f"{path} has no {name!r} among its {len(vocab)} tokens")


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as cause:
        raise DamagedError("X001", f"{path} is not UTF-8 text, at byte {cause.start}") from cause
    except OSError as cause:
        raise NotFoundError("F001", f"{path} cannot be read: {cause.strerror}") from cause


def _json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty when there is no file."""
    return read_json(path) if path.is_file() else {}


def _encoded(encoding: Encoding) -> Encoded:
    return Encoded(encoding.ids, encoding.type_ids, encoding.offsets, encoding.word_ids)


def _check_texts(texts: Sequence[str]) -> None:
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as cause:
            raise DataError("D001", f"character {cause.start} of a text is half a surrogate pair") from cause


def _ids(ids: Sequence[int]) -> list[int]:
    for i in ids:
        if not 0 <= i < 2**32:
            raise DataError("D001", f"{i} is no token id")
    return [int(i) for i in ids]


@contextmanager
def backend_errors(what: str) -> Iterator[None]:
    """The library raises bare `Exception`s, and panics that are none; both mean a file it cannot use."""
    try:
        yield
    except BaseException as cause:
        if type(cause) in (Exception, ValueError, OverflowError) or type(cause).__name__ == "PanicException":
            raise DamagedError("X001", f"{what}: {str(cause)[:200]}") from cause
        raise
