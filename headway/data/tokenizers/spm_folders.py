"""Folders with a sentencepiece model instead of a tokenizer.json: the ids and the tokens around a text, by family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.data.tokenizers.legacy import conversion_hint, json_object, require, vocab_ids
from headway.data.tokenizers.special_tokens import bool_setting, token_of
from headway.data.tokenizers.spm import spm_backend
from headway.data.tokenizers.spm_file import CONTROL, UNKNOWN, SpmModel, read_spm
from headway.errors import ConfigError, DamagedError, NotFoundError
from headway.jsonfile import AGAIN, show

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

MARIAN_FILES = ("source.spm", "target.spm", "vocab.json")
MARIAN_TOKENS = {"unk": "<unk>", "eos": "</s>", "pad": "<pad>"}
"""The tokens that Marian's classes know."""
SPM_FILES = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
"""The names of a model that serves both sides; its ids are the places of its pieces, unless the family moves them."""
GENERIC_CLASSES = ("PreTrainedTokenizer", "TokenizersBackend")
"""Classes that say nothing of rules."""
MAX_SENTINELS = 10_000


@dataclass(frozen=True, kw_only=True)
class Family:
    """What stands around a text, by roles; `$A` and `$B` are the texts, and `:1` counts to the second."""

    single: str = "$A"
    pair: str = "$A $B"
    tokens: Mapping[str, str] = field(default_factory=dict)
    """Role → name, for tokens that the model file does not name by their role."""
    sentinels: int = 0
    """T5's marks for gaps, which come after all pieces, the last one first."""
    fairseq: bool = False
    """Whether ids are fairseq's: its own four tokens first, then the pieces, then the mask."""
    optional: bool = False
    """Whether tokenizer_config.json says which tokens are put around, the first one if nothing is said; and where a
    space is put before a text (see `llama_prefix`)."""


_CLS = {"cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_FAIRSEQ = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
FAMILIES = {
    "": Family(),  # a file alone
    "T5": Family(single="$A eos", pair="$A eos $B eos", sentinels=100),
    "MT5": Family(single="$A eos", pair="$A eos $B eos"),
    "Llama": Family(single="bos $A eos", pair="bos $A eos bos:1 $B:1 eos:1", optional=True),
    "BigBird": Family(single="cls $A sep", pair="cls $A sep $B:1 sep:1", tokens=_CLS),
    "XLMRoberta": Family(single="bos $A eos", pair="bos $A eos eos $B eos", tokens=_FAIRSEQ, fairseq=True),
}
MODEL_TYPES = {"t5": "T5", "mt5": "MT5", "llama": "Llama", "big_bird": "BigBird", "xlm-roberta": "XLMRoberta"}


def family_of(folder: Path, hint: str) -> str:
    """By the class that tokenizer_config.json names, or else by the model; older folders name only that."""
    kind = json_object(folder / "config.json").get("model_type", "")
    if not hint or hint.startswith(GENERIC_CLASSES):
        hint, family = f"model_type {str(kind)[:40]!r}", MODEL_TYPES.get(str(kind), "" if not kind else None)
    else:
        family = next(
            (name for name in FAMILIES if name and hint in (f"{name}Tokenizer", f"{name}TokenizerFast")), None
        )
    if family is None:
        message = f"{show(folder)} has a sentencepiece model of {hint[:60]}, whose rules headway does not know"
        raise NotFoundError("F005", message, conversion_hint(folder))
    return family


def llama_prefix(config: Mapping[str, Any]) -> str:
    """Where Llama's class puts a space before a text that has none: before the first word, or ("legacy", a mistake that
    models were trained with) also after every special token in a text."""
    if not bool_setting(config, "add_prefix_space", True):
        return "never"
    return "always" if bool_setting(config, "legacy", False) else "first"


def family_backend(path: Path, name: str, config: dict[str, Any]) -> Backend:
    """The tokenizer of a model file; the config is completed by the tokens it names."""
    family, file = FAMILIES[name], read_spm(path)
    for role, token in {**file.roles, **family.tokens}.items():
        config[f"{role}_token"] = config.get(f"{role}_token") or token
    names = [piece.text for piece in file.pieces]
    special = {*file.of_kind(UNKNOWN, CONTROL), *family.tokens.values()}
    if family.fairseq:
        names = _fairseq_names(file, names)
    if family.sentinels:
        sentinels = [f"<extra_id_{i}>" for i in reversed(range(_sentinels(config, family)))]
        names, special = [*names, *(s for s in sentinels if s not in names)], special | set(sentinels)
    backend = spm_backend(file, names, special, prefix=llama_prefix(config) if family.optional else None)
    _set_post_processor(backend, path, family, config)
    return backend


def _sentinels(config: Mapping[str, Any], family: Family) -> int:
    number = config.get("extra_ids", family.sentinels)
    if type(number) is not int or not 0 <= number <= MAX_SENTINELS:
        raise ConfigError("C002", f"extra_ids in tokenizer_config.json is {str(number)[:40]!r}, not a small number")
    return number


def _fairseq_names(file: SpmModel, names: Sequence[str]) -> list[str]:
    first, mask = list(_FAIRSEQ.values())[:4], _FAIRSEQ["mask"]
    if sorted(names[:3]) != sorted({*first} - {"<pad>"}) or mask in names:
        message = f"{show(file.path)} begins with other pieces than those that XLM-R's ids are counted from"
        raise DamagedError("X001", message, AGAIN)
    return [*first, *names[3:], mask]


def _set_post_processor(backend: Backend, path: Path, family: Family, config: Mapping[str, Any]) -> None:
    from tokenizers.processors import TemplateProcessing

    usual = {"bos": True, "eos": False} if family.optional else {}
    left_out = {role for role, is_usual in usual.items() if not bool_setting(config, f"add_{role}_token", is_usual)}
    used: dict[str, int] = {}

    def template(roles: str) -> list[str]:
        made = []
        for role, colon, segment in (part.partition(":") for part in roles.split()):
            token = role
            if not role.startswith("$"):
                token = str(token_of(config, role))
                used[token] = _id(backend, path, token)
            made.append(f"{token}{colon}{segment}")
        return made

    parts = [" ".join(p for p in x.split() if p.split(":")[0] not in left_out) for x in (family.single, family.pair)]
    single, pair = map(template, parts)
    if used:
        backend.post_processor = TemplateProcessing(single, pair, list(used.items()))


def _id(backend: Backend, path: Path, token: str) -> int:
    found = backend.token_to_id(token)
    if found is None:
        message = f"{show(path)} has no piece {token[:40]!r}, which belongs around a text"
        raise DamagedError("X001", message, f"{AGAIN}, with the tokenizer_config.json that goes with it")
    return found


def marian_backend(path: Path, vocab_path: Path, config: dict[str, Any]) -> Backend:
    """One side of a translator: cut as its own model says, by the ids of a list; the end is put after a text."""
    from tokenizers.processors import TemplateProcessing

    if not vocab_path.is_file():
        message = f"{show(vocab_path.parent)} says that each side has a vocabulary, and has no {vocab_path.name}"
        raise NotFoundError("F005", message, AGAIN)
    file, vocab = read_spm(path), vocab_ids(vocab_path)
    roles = {role: token_of(config, role) or usual for role, usual in MARIAN_TOKENS.items()}
    unk, eos = roles["unk"], roles["eos"]
    require(vocab_path, vocab, unk, eos)
    names = sorted(vocab, key=lambda name: vocab[name])
    if vocab[names[-1]] != len(names) - 1:
        message = f"{show(vocab_path)}: {len(names):,} tokens have ids up to {vocab[names[-1]]:,}; some are missing"
        raise DamagedError("X001", message, AGAIN)
    if file.unk != unk:
        raise DamagedError("X001", f"{show(path)} calls what is unknown {file.unk[:40]!r}, and not {unk[:40]!r}", AGAIN)
    config |= {f"{role}_token": name for role, name in roles.items() if name in vocab}
    languages = [name for name in names if name.startswith(">>") and name.endswith("<<")]
    backend = spm_backend(file, names, set(roles.values()), set(languages))
    backend.post_processor = TemplateProcessing(["$A", eos], ["$A", "$B", eos], [(eos, vocab[eos])])
    return backend
