"""Model folders with a sentencepiece model: ids and special tokens by model family."""

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
"""Special tokens of Marian's class."""
SPM_FILES = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
"""File names of a single model; ids are the positions of its pieces, unless the family changes them."""
GENERIC_CLASSES = ("PreTrainedTokenizer", "TokenizersBackend")
"""Classes without rules of their own."""
MAX_SENTINELS = 10_000


@dataclass(frozen=True, kw_only=True)
class Family:
    """Special tokens around a text, by roles; `$A` and `$B` are the texts, `:1` is the second token type."""

    single: str = "$A"
    pair: str = "$A $B"
    tokens: Mapping[str, str] = field(default_factory=dict)
    """Role → token, for roles that the model file does not define."""
    sentinels: int = 0
    """T5's sentinel tokens, which follow all pieces, the last one first."""
    fairseq: bool = False
    """Whether ids are those of fairseq: its four special tokens, then the pieces, then the mask."""
    optional: bool = False
    """Whether tokenizer_config.json selects the special tokens (default: BOS only) and where a space is inserted (see
    `llama_prefix`)."""


_CLS = {"cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_FAIRSEQ = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
FAMILIES = {
    "": Family(),  # a single file without a config
    "T5": Family(single="$A eos", pair="$A eos $B eos", sentinels=100),
    "MT5": Family(single="$A eos", pair="$A eos $B eos"),
    "Llama": Family(single="bos $A eos", pair="bos $A eos bos:1 $B:1 eos:1", optional=True),
    "BigBird": Family(single="cls $A sep", pair="cls $A sep $B:1 sep:1", tokens=_CLS),
    "XLMRoberta": Family(single="bos $A eos", pair="bos $A eos eos $B eos", tokens=_FAIRSEQ, fairseq=True),
}
MODEL_TYPES = {"t5": "T5", "mt5": "MT5", "llama": "Llama", "big_bird": "BigBird", "xlm-roberta": "XLMRoberta"}


def family_of(folder: Path, hint: str) -> str:
    """Return the family by the class in tokenizer_config.json, or else by the model_type, as in older folders."""
    kind = json_object(folder / "config.json").get("model_type", "")
    if not hint or hint.startswith(GENERIC_CLASSES):
        hint, family = f"model_type {str(kind)[:40]!r}", MODEL_TYPES.get(str(kind), "" if not kind else None)
    else:
        family = next(
            (name for name in FAMILIES if name and hint in (f"{name}Tokenizer", f"{name}TokenizerFast")), None
        )
    if family is None:
        message = f"{show(folder)} has a sentencepiece model of {hint[:60]}, which headway does not support"
        raise NotFoundError("F005", message, conversion_hint(folder))
    return family


def llama_prefix(config: Mapping[str, Any]) -> str:
    """Where Llama's class inserts a missing space: before the first word, or, with "legacy" (a bug that models were
    trained with), also after every special token."""
    if not bool_setting(config, "add_prefix_space", True):
        return "never"
    return "always" if bool_setting(config, "legacy", False) else "first"


def family_backend(path: Path, name: str, config: dict[str, Any]) -> Backend:
    """Build the backend of a model file by the rules of a family; adds its special tokens to `config`."""
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
        message = f"{show(file.path)} does not start with the special tokens that XLM-R's ids assume"
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
        message = f"{show(path)} has no piece {token[:40]!r}, a special token of this family"
        raise DamagedError("X001", message, f"{AGAIN}, with the tokenizer_config.json that goes with it")
    return found


def marian_backend(path: Path, vocab_path: Path, config: dict[str, Any]) -> Backend:
    """Build the backend of one side of a Marian model: pieces of its file, ids of its vocabulary, EOS at the end."""
    from tokenizers.processors import TemplateProcessing

    if not vocab_path.is_file():
        message = f"{show(vocab_path.parent)} has separate vocabularies, but {vocab_path.name} is missing"
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
        raise DamagedError("X001", f"{show(path)} has the unknown token {file.unk[:40]!r}, not {unk[:40]!r}", AGAIN)
    config |= {f"{role}_token": name for role, name in roles.items() if name in vocab}
    languages = [name for name in names if name.startswith(">>") and name.endswith("<<")]
    backend = spm_backend(file, names, set(roles.values()), set(languages))
    backend.post_processor = TemplateProcessing(["$A", eos], ["$A", "$B", eos], [(eos, vocab[eos])])
    return backend
