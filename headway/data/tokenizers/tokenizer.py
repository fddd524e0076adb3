"""Text to ids and back: one class around the `tokenizers` library, and readers for a model folder's files.

`tokenizer.json` is complete and taken as it stands, but for what its class overrules (`tokenizerclasses`). The older
layouts and sentencepiece models leave some rules to the class that wrote them; `layouts` and `piecefolders` state those
rules, and files with other rules are refused: wrong ids raise no error later, they make a model bad. All files are held
to `tokenizerbounds` first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.data.tokenizers.bounds import TOKENIZER_VALUES, bounded, check_tokenizer, growth_of
from headway.data.tokenizers.classes import class_rules
from headway.data.tokenizers.legacy import byte_bpe, conversion_hint, json_object, read_text, word_piece
from headway.data.tokenizers.special_tokens import add_tokens, added_names, bool_setting, find_roles, mark_special
from headway.data.tokenizers.spm_folders import MARIAN_FILES, SPM_FILES, family_backend, family_of, marian_backend
from headway.errors import DamagedError, DataError, MemoryOrDiskError, NotFoundError
from headway.jsonfile import parse_json

if TYPE_CHECKING:
    from tokenizers import Encoding
    from tokenizers import Tokenizer as Backend

SAVED_KEYS = (
    *("add_prefix_space", "chat_template", "clean_up_tokenization_spaces", "model_input_names"),
    *("model_max_length", "padding_side", "truncation_side"),
)
"""Keys of tokenizer_config.json that survive a save; the rest is in tokenizer.json, or names code."""

LAYOUTS = (
    *("tokenizer.json", "vocab.txt", "vocab.json + merges.txt", "encoder.json + vocab.bpe"),
    *(" + ".join(MARIAN_FILES), *SPM_FILES),
)
UNSUPPORTED_CLASSES = (
    *("BertJapanese", "Bertweet", "Blenderbot", "CLIP", "CTRL", "Deberta", "FSMT", "Funnel", "Herbert"),
    *("MPNet", "OpenAIGPT", "Phobert", "ProphetNet", "Qwen2", "RoFormer", "Whisper", "XLM"),
)
"""Classes that use the file names of BERT or GPT-2 with rules of their own."""
TARGET_FILE = "target_tokenizer.json"
"""Beside tokenizer.json, where a translator writes with a vocabulary of its own."""
SEPARATE_VOCABS = "separate_vocabs"
"""What tokenizer_config.json says then, as Marian's does."""


UNCHECKED_CHARACTERS, MAX_CHARACTERS, MAX_MEASURED_GROWTH = 1 << 22, 1 << 30, 8
"""Characters of texts that are worth a look at what a normalizer may make of them; characters that it may make at
worst; times as many as it may make in truth."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """One text, or one pair of texts, as ids; the five lists have one entry per id."""

    ids: list[int]
    token_type_ids: list[int]
    """The segment ids of the model's template (BERT's token type ids). Many templates have 0 for both texts, so these
    do not say which text an id belongs to: `texts` does."""
    offsets: list[tuple[int, int]]
    """Characters [start, end) of its own text that an id stands for; (0, 0) for a token put around a text."""
    words: list[int | None]
    """Index of the word an id belongs to, counted anew in each text; None for a token put around a text."""
    texts: list[int | None]
    """0 for an id of the first text, 1 for one of the second; None for a token put around a text."""


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
        names = find_roles(backend, self.config, added_names(backend) or vocab)  # unmarked, "<s>" may be text
        mark_special(backend, names.values(), self.config)
        self.special = {role: vocab[name] for role, name in names.items()}
        """Role → id, for those of pad, bos, eos, unk, cls, sep, mask that exist."""
        self.vocab_size = 1 + max(vocab.values(), default=-1)
        """Rows an embedding needs to hold every id, added tokens included."""

    def __len__(self) -> int:
        return self.vocab_size

    def encode(self, text: str, pair: str | None = None, *, special: bool = True) -> Encoded:
        """`special=False` puts no tokens around the text; any written *in* the text count all the same."""
        self._check_texts([text] if pair is None else [text, pair])
        with backend_errors("the tokenizer cannot encode this text"):
            return _encoded(self.backend.encode(text, pair, add_special_tokens=special))

    def encode_batch(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, special: bool = True
    ) -> list[Encoded]:
        """The same as one by one, on all cores."""
        if pairs is not None and len(pairs) != len(texts):
            raise DataError("D001", f"{len(texts)} texts but {len(pairs)} second texts to go with them")
        self._check_texts([*texts, *(pairs or ())])
        inputs = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
        with backend_errors("the tokenizer cannot encode these texts"):
            return [_encoded(e) for e in self.backend.encode_batch(inputs, add_special_tokens=special)]

    def ids(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """Ids of many texts without offsets; `special` puts the tokens around each that its template has."""
        self._check_texts(texts)
        with backend_errors("the tokenizer cannot encode these texts"):
            return [e.ids for e in self.backend.encode_batch_fast(list(texts), add_special_tokens=special)]

    @property
    def prefix_ids(self) -> tuple[int, ...]:
        """The special tokens that the tokenizer puts before a text, such as Llama's BOS."""
        with backend_errors("the tokenizer cannot encode a text"):
            encoding = self.backend.encode("a")
        first = encoding.special_tokens_mask.index(0) if 0 in encoding.special_tokens_mask else 0
        return tuple(encoding.ids[:first])

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Ids without a token (a model's vocabulary is often rounded up) give no text."""
        with backend_errors("the tokenizer cannot decode these ids"):
            return self.backend.decode(_ids(ids), skip_special_tokens=skip_special)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The vocabulary entry of each id, as the file spells it; "" for an id without one."""
        return [self.backend.id_to_token(i) or "" for i in _ids(ids)]

    @cached_property
    def growth(self) -> float:
        """How many times as much its normalizer makes of a text, at worst."""
        return growth_of(self.backend.normalizer)

    def _check_texts(self, texts: Sequence[str]) -> None:
        for text in texts:
            try:
                text.encode()
            except UnicodeEncodeError as cause:
                raise DataError("D001", f"character {cause.start} of a text is half a surrogate pair") from cause
        if (size := sum(map(len, texts))) > UNCHECKED_CHARACTERS and size * self.growth > MAX_CHARACTERS:
            self._check_growth(texts, size)

    def _check_growth(self, texts: Sequence[str], size: int) -> None:
        """Spell long texts anew in parts, and count: at worst they might fill the memory, usually they hardly grow."""
        part, grown = int(UNCHECKED_CHARACTERS / self.growth) + 1, 0
        for text in texts:
            for at in range(0, len(text), part):
                with backend_errors("the tokenizer cannot spell this text anew"):
                    grown += len(self.backend.normalizer.normalize_str(text[at : at + part]))
        if grown > MAX_MEASURED_GROWTH * size:
            message = f"the tokenizer makes {grown:,} characters of {size:,}, and no good one makes that many"
            raise DataError("D001", message, "give it shorter texts, or another tokenizer")

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and tokenizer_config.json, readable by `transformers`; and the target's, if another."""
        config = {key: self.config[key] for key in SAVED_KEYS if key in self.config}
        config.setdefault("clean_up_tokenization_spaces", False)
        # Segments only for BERT-like templates: decoders in transformers stumble over token_type_ids.
        segments = "cls" in self.special and 1 in self.encode("a", "a").token_type_ids
        names = ["input_ids", "token_type_ids", "attention_mask"]
        config.setdefault("model_input_names", names if segments else names[::2])
        # The general class takes tokenizer.json as it is; a named one would apply its own rules again.
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
        config |= {f"{role}_token": self.backend.id_to_token(i) for role, i in self.special.items()}
        config |= {} if self.target is self else {SEPARATE_VOCABS: True}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if self.target is not self:  # first: who finds tokenizer.json takes the folder to be complete
                (folder / TARGET_FILE).write_text(self.target.backend.to_str(pretty=True), encoding="utf-8")
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
    config = json_object(folder / "tokenizer_config.json")
    for key, value in json_object(folder / "special_tokens_map.json").items():
        if config.get(key) is None:
            config[key] = value
    if (folder / "chat_template.jinja").is_file():  # a newer place of it, which wins
        config["chat_template"] = read_text(folder / "chat_template.jinja")
    layout = next((x for x in LAYOUTS if all((folder / name).is_file() for name in x.split(" + "))), None)
    if layout is None:
        raise _no_layout(folder)
    with backend_errors(f"{layout} in {folder} cannot be read as a tokenizer"):
        if layout == "tokenizer.json":
            return Tokenizer(_json_backend(folder / layout, config), config, _target(folder, config))
        if layout == " + ".join(MARIAN_FILES):
            return _marian(folder, config)
        backend = _legacy_backend(folder, layout, config)
        add_tokens(backend, config, json_object(folder / "added_tokens.json"))
        return Tokenizer(backend, config)


def _legacy_backend(folder: Path, layout: str, config: dict[str, Any]) -> Backend:
    """By the rules of a class that tokenizer_config.json names, a word to compare; nothing is imported by it."""
    hint, paths = str(config.get("tokenizer_class") or ""), [folder / name for name in layout.split(" + ")]
    if layout in SPM_FILES:
        return family_backend(paths[0], family_of(folder, hint), config)
    if hint.startswith(UNSUPPORTED_CLASSES):
        message = f"{folder} has {layout} of a {hint[:40]}, whose rules headway does not know"
        raise NotFoundError("F005", message, conversion_hint(folder))
    return word_piece(paths[0], config) if len(paths) == 1 else byte_bpe(paths[0], paths[1], config)


def _marian(folder: Path, config: dict[str, Any]) -> Tokenizer:
    """Both sides have a model of their own, and ids of one list; unless there are two of that also."""
    apart = bool_setting(config, SEPARATE_VOCABS, False)
    source, target = (
        marian_backend(folder / model, folder / ids, config)
        for model, ids in zip(
            MARIAN_FILES[:2], (MARIAN_FILES[2], "target_vocab.json" if apart else MARIAN_FILES[2]), strict=True
        )
    )
    return Tokenizer(source, config, Tokenizer(target, config))


def _target(folder: Path, config: Mapping[str, Any]) -> Tokenizer | None:
    """The tokenizer of what is written, where it is not that of what is read."""
    if (folder / TARGET_FILE).is_file():
        return Tokenizer(_json_backend(folder / TARGET_FILE, config), config)
    if (folder / "target_vocab.json").is_file() or bool_setting(
        config, SEPARATE_VOCABS, False
    ):  # ids of the other would be wrong
        message = f"{folder} says that what is written has a vocabulary of its own, and there is no {TARGET_FILE}"
        raise NotFoundError(
            "F005", message, f"make one with the ids that the model knows, and save it as {TARGET_FILE}"
        )
    return None


def _no_layout(folder: Path) -> NotFoundError:
    names = " + ".join(LAYOUTS).split(" + ")
    found = ", ".join(name for name in dict.fromkeys(names) if (folder / name).is_file()) or "none of these files"
    looked = ", or ".join(LAYOUTS)
    return NotFoundError("F005", f"no tokenizer in {folder}: looked for {looked}; found {found}")


def _json_backend(path: Path, config: Mapping[str, Any]) -> Backend:
    from tokenizers import Tokenizer as Backend

    text = read_text(path)
    found = parse_json(path, text, TOKENIZER_VALUES)
    with bounded(path):
        check_tokenizer(found)
    rules = class_rules(path.parent, config, found)
    changed = any(found.get(part) != step for part, step in rules.items())
    return Backend.from_str(json.dumps(found | rules) if changed else text)


def _encoded(encoding: Encoding) -> Encoded:
    return Encoded(encoding.ids, encoding.type_ids, encoding.offsets, encoding.word_ids, encoding.sequence_ids)


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
