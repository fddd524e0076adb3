"""The tokenizer: one class around the `tokenizers` library, loaded from the files of a model folder.

A tokenizer.json is complete, except for what its class overrides (`classes`). Older files and sentencepiece models
leave rules to the class that wrote them; `legacy` and `spm_folders` implement those rules. Files with other rules are
refused, because wrong ids raise no error later: they only make a model bad. `bounds` checks all files first.
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
from headway.errors import DamagedError, DataError, NotFoundError
from headway.jsonfile import parse_json
from headway.resources import write_error

if TYPE_CHECKING:
    from tokenizers import Encoding
    from tokenizers import Tokenizer as Backend

SAVED_KEYS = (
    *("add_prefix_space", "chat_template", "clean_up_tokenization_spaces", "model_input_names"),
    *("model_max_length", "padding_side", "truncation_side"),
)
"""Keys of tokenizer_config.json that `save` keeps; the others are in tokenizer.json, or name code."""

LAYOUTS = (
    *("tokenizer.json", "vocab.txt", "vocab.json + merges.txt", "encoder.json + vocab.bpe"),
    *(" + ".join(MARIAN_FILES), *SPM_FILES),
)
UNSUPPORTED_CLASSES = (
    *("BertJapanese", "Bertweet", "Blenderbot", "CLIP", "CTRL", "Deberta", "FSMT", "Funnel", "Herbert"),
    *("MPNet", "OpenAIGPT", "Phobert", "ProphetNet", "Qwen2", "RoFormer", "Whisper", "XLM"),
)
"""Classes with the file names of BERT or GPT-2, but other rules."""
TARGET_FILE = "target_tokenizer.json"
"""The target's tokenizer, beside tokenizer.json, if source and target have separate vocabularies."""
SEPARATE_VOCABS = "separate_vocabs"
"""The key of tokenizer_config.json for that, as in Marian's folders."""


UNCHECKED_CHARACTERS, MAX_CHARACTERS, MAX_MEASURED_GROWTH = 1 << 22, 1 << 30, 8
"""Characters of texts that need no check of their normalized length; the most characters after normalization, at worst;
the most that normalization may lengthen a text in fact."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """One text, or one pair of texts, as ids; the five lists have one entry per id."""

    ids: list[int]
    token_type_ids: list[int]
    """Token type ids of the model's template. Many templates have 0 for both texts; `texts` says which text an id
    belongs to."""
    offsets: list[tuple[int, int]]
    """Characters [start, end) of each id in its own text; (0, 0) for an added special token."""
    words: list[int | None]
    """Index of each id's word in its own text; None for an added special token."""
    texts: list[int | None]
    """0 for ids of the first text, 1 for ids of the second; None for an added special token."""


class Tokenizer:
    """Encodes and decodes; batching pads and truncates.

    `backend` comes from a file or from a trainer; `config` has the keys of tokenizer_config.json.
    """

    def __init__(
        self, backend: Backend, config: Mapping[str, Any] | None = None, target: Tokenizer | None = None
    ) -> None:
        self.backend, self.config = backend, dict(config or {})
        self.target = target or self
        """The tokenizer of an encoder–decoder's target: itself, unless source and target have separate vocabularies."""
        backend.no_truncation()
        backend.no_padding()
        vocab = backend.get_vocab(with_added_tokens=True)
        names = find_roles(backend, self.config, added_names(backend) or vocab)  # if not added, "<s>" may be text
        mark_special(backend, names.values(), self.config)
        self.special = {role: vocab[name] for role, name in names.items()}
        """Role → id, for those of pad, bos, eos, unk, cls, sep, mask that exist."""
        self.vocab_size = 1 + max(vocab.values(), default=-1)
        """Rows of an embedding for all ids, added tokens included."""

    def __len__(self) -> int:
        return self.vocab_size

    def encode(self, text: str, pair: str | None = None, *, special: bool = True) -> Encoded:
        """`special=False` adds no special tokens; those written in the text itself still count."""
        self._check_texts([text] if pair is None else [text, pair])
        with backend_errors("the tokenizer cannot encode this text"):
            return _encoded(self.backend.encode(text, pair, add_special_tokens=special))

    def encode_batch(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, special: bool = True
    ) -> list[Encoded]:
        """Encode many texts, on all cores."""
        if pairs is not None and len(pairs) != len(texts):
            raise DataError("D001", f"{len(texts)} texts but {len(pairs)} second texts to go with them")
        self._check_texts([*texts, *(pairs or ())])
        inputs = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
        with backend_errors("the tokenizer cannot encode these texts"):
            return [_encoded(e) for e in self.backend.encode_batch(inputs, add_special_tokens=special)]

    def ids(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """Encode many texts to ids only; `special` adds the special tokens of the template."""
        self._check_texts(texts)
        with backend_errors("the tokenizer cannot encode these texts"):
            return [e.ids for e in self.backend.encode_batch_fast(list(texts), add_special_tokens=special)]

    @property
    def prefix_ids(self) -> tuple[int, ...]:
        """The special tokens before a text, such as Llama's BOS."""
        with backend_errors("the tokenizer cannot encode a text"):
            encoding = self.backend.encode("a")
        first = encoding.special_tokens_mask.index(0) if 0 in encoding.special_tokens_mask else 0
        return tuple(encoding.ids[:first])

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Decode ids; ids without a token (a model's vocabulary is often rounded up) give no text."""
        with backend_errors("the tokenizer cannot decode these ids"):
            return self.backend.decode(_ids(ids), skip_special_tokens=skip_special)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the vocabulary entry of each id, as in the file; "" for an id without one."""
        return [self.backend.id_to_token(i) or "" for i in _ids(ids)]

    def shown(self, ids: Sequence[int]) -> list[str]:
        """Return each id as people can read it: its text, or the vocabulary's spelling of what is no text by itself.

        That is a part of a character, a token without a text, or one that would lose its space.
        """
        found = zip(self.pieces(ids), ([i] for i in ids), strict=True)
        texts = ((piece, self.decode(one, skip_special=False)) for piece, one in found)
        return [piece if "\ufffd" in text or not text or piece.startswith("\u2581") else text for piece, text in texts]

    @cached_property
    def growth(self) -> float:
        """The most that the normalizer lengthens a text, as a factor."""
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
        """Normalize long texts in parts and count: at worst they might fill the memory, usually they hardly grow."""
        part, grown = int(UNCHECKED_CHARACTERS / self.growth) + 1, 0
        for text in texts:
            for at in range(0, len(text), part):
                with backend_errors("the tokenizer cannot normalize this text"):
                    grown += len(self.backend.normalizer.normalize_str(text[at : at + part]))
        if grown > MAX_MEASURED_GROWTH * size:
            message = f"the tokenizer normalizes {size:,} characters to {grown:,}, which is too many"
            raise DataError("D001", message, "give it shorter texts, or another tokenizer")

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and tokenizer_config.json, readable by `transformers`, and the target's if separate."""
        config = {key: self.config[key] for key in SAVED_KEYS if key in self.config}
        config.setdefault("clean_up_tokenization_spaces", False)
        # token_type_ids only for BERT-like templates: decoders in transformers do not accept them.
        segments = "cls" in self.special and 1 in self.encode("a", "a").token_type_ids
        names = ["input_ids", "token_type_ids", "attention_mask"]
        config.setdefault("model_input_names", names if segments else names[::2])
        # The general class uses tokenizer.json unchanged; a named class would apply its own rules again.
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
        config |= {f"{role}_token": self.backend.id_to_token(i) for role, i in self.special.items()}
        config |= {} if self.target is self else {SEPARATE_VOCABS: True}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if self.target is not self:  # first: a folder with tokenizer.json counts as complete
                (folder / TARGET_FILE).write_text(self.target.backend.to_str(pretty=True), encoding="utf-8")
            (folder / "tokenizer.json").write_text(self.backend.to_str(pretty=True), encoding="utf-8")
            text = json.dumps(config, indent=2, ensure_ascii=False, sort_keys=True)
            (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
        except OSError as cause:
            raise write_error(folder, cause) from cause


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer of a model folder, from the first of LAYOUTS that is complete."""
    folder = Path(folder)
    if not folder.is_dir():
        raise NotFoundError("F001", f"there is no folder {folder}")
    config = json_object(folder / "tokenizer_config.json")
    for key, value in json_object(folder / "special_tokens_map.json").items():
        if config.get(key) is None:
            config[key] = value
    if (folder / "chat_template.jinja").is_file():  # the newer place, which wins
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
    """Build a backend from older files, by the class in tokenizer_config.json; its name is compared, never imported."""
    hint, paths = str(config.get("tokenizer_class") or ""), [folder / name for name in layout.split(" + ")]
    if layout in SPM_FILES:
        return family_backend(paths[0], family_of(folder, hint), config)
    if hint.startswith(UNSUPPORTED_CLASSES):
        message = f"{folder} has {layout} of a {hint[:40]}, which headway does not support"
        raise NotFoundError("F005", message, conversion_hint(folder))
    return word_piece(paths[0], config) if len(paths) == 1 else byte_bpe(paths[0], paths[1], config)


def _marian(folder: Path, config: dict[str, Any]) -> Tokenizer:
    """Load Marian's tokenizer: each side has its own model; ids come from one shared vocabulary, or from two."""
    apart = bool_setting(config, SEPARATE_VOCABS, False)
    source, target = (
        marian_backend(folder / model, folder / ids, config)
        for model, ids in zip(
            MARIAN_FILES[:2], (MARIAN_FILES[2], "target_vocab.json" if apart else MARIAN_FILES[2]), strict=True
        )
    )
    return Tokenizer(source, config, Tokenizer(target, config))


def _target(folder: Path, config: Mapping[str, Any]) -> Tokenizer | None:
    """Return the tokenizer of the target if it is separate."""
    if (folder / TARGET_FILE).is_file():
        return Tokenizer(_json_backend(folder / TARGET_FILE, config), config)
    if (folder / "target_vocab.json").is_file() or bool_setting(
        config, SEPARATE_VOCABS, False
    ):  # the source's ids would be wrong
        message = f"{folder} has separate vocabularies, but {TARGET_FILE} is missing"
        raise NotFoundError("F005", message, f"make one with the model's ids and save it as {TARGET_FILE}")
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
    """Convert the library's errors, which are bare `Exception`s and Rust panics, to an error that says what failed."""
    try:
        yield
    except BaseException as cause:
        if type(cause) in (Exception, ValueError, OverflowError) or type(cause).__name__ == "PanicException":
            raise DamagedError("X001", f"{what}: {str(cause)[:200]}") from cause
        raise
