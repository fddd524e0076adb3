"""Model folders with a sentencepiece model: ids and special tokens by model family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headway.data.tokenizers.legacy import conversion_hint, json_object, require, vocab_ids
from headway.data.tokenizers.special_tokens import bool_setting, content_of, token_of
from headway.data.tokenizers.spm import SPACE, spm_backend
from headway.data.tokenizers.spm_file import CONTROL, UNKNOWN, SpmModel, read_spm
from headway.errors import ConfigError, DamagedError, NotFoundError
from headway.jsonfile import AGAIN, show

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend
    from tokenizers.normalizers import Normalizer

MARIAN_FILES = ("source.spm", "target.spm", "vocab.json")
MARIAN_TOKENS = {"unk": "<unk>", "eos": "</s>", "pad": "<pad>"}
"""Special tokens of Marian's class."""
SPM_FILES = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "spm.model")
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
    ids: Literal["pieces", "fairseq", "camembert", "pegasus", "masked"] = "pieces"
    """What ids count, if not the pieces alone. fairseq: its four special tokens, then pieces, languages and the mask;
    camembert: five tokens, pieces, mask; pegasus: the tokens of its pretraining, then pieces; masked: pieces, mask."""
    letters: Literal["as written", "albert"] = "as written"
    """albert: quotes are made alike, accents go, and case too, unless tokenizer_config.json says otherwise."""
    language: str = ""
    """The source language that a translator assumes; its token stands where a template has `lang`."""
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
    "XLMRoberta": Family(single="bos $A eos", pair="bos $A eos eos $B eos", tokens=_FAIRSEQ, ids="fairseq"),
    "Camembert": Family(single="bos $A eos", pair="bos $A eos eos $B eos", tokens=_FAIRSEQ, ids="camembert"),
    "Albert": Family(single="cls $A sep", pair="cls $A sep $B:1 sep:1", tokens=_CLS, letters="albert"),
    "DebertaV2": Family(single="cls $A sep", pair="cls $A sep $B:1 sep:1", tokens=_CLS, ids="masked"),
    "Pegasus": Family(single="$A eos", pair="$A $B eos", tokens={"mask": "<mask_2>"}, ids="pegasus"),
    "MBart": Family(single="$A eos lang", pair="$A $B eos lang", tokens=_FAIRSEQ, ids="fairseq", language="en_XX"),
    "MBart50": Family(single="lang $A eos", pair="lang $A $B eos", tokens=_FAIRSEQ, ids="fairseq", language="en_XX"),
    "Nllb": Family(single="lang $A eos", pair="lang $A $B eos", tokens=_FAIRSEQ, ids="fairseq", language="eng_Latn"),
}
MODEL_TYPES = {
    **{"t5": "T5", "mt5": "MT5", "llama": "Llama", "big_bird": "BigBird", "xlm-roberta": "XLMRoberta"},
    **{"camembert": "Camembert", "albert": "Albert", "deberta-v2": "DebertaV2", "pegasus": "Pegasus"},
    **{"mbart": "MBart", "m2m_100": "Nllb"},
}


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
    languages = _languages(path, family, config)
    special |= set(languages)
    if family.ids != "pieces":
        pieces, names = set(names), _names(file, names, family, languages)
        special |= set(names) - pieces
    if family.sentinels:
        sentinels = [f"<extra_id_{i}>" for i in reversed(range(_sentinels(config, family)))]
        names, special = [*names, *(s for s in sentinels if s not in names)], special | set(sentinels)
    backend = spm_backend(file, names, special, prefix=llama_prefix(config) if family.optional else None)
    if family.letters == "albert":
        _plain_letters(backend, file, config)
    _set_post_processor(backend, path, family, config)
    return backend


def _languages(path: Path, family: Family, config: Mapping[str, Any]) -> list[str]:
    """The tokens of languages, in the order of their ids; the first one is no more than the others."""
    if not family.language:
        return []
    found = [str(content_of(each, "a language")) for each in config.get("additional_special_tokens") or ()]
    if source_language(config, family.language) not in found:
        what = f"the language {source_language(config, family.language)!r} is none of {len(found)}"
        raise NotFoundError("F005", f"{show(path)}: {what} additional_special_tokens", conversion_hint(path.parent))
    return found


def source_language(config: Mapping[str, Any], usual: str) -> str:
    """The token of the language that a translator reads, as src_lang in tokenizer_config.json says."""
    said = config.get("src_lang") or usual
    if not isinstance(said, str):
        raise ConfigError("C002", f"src_lang in tokenizer_config.json is {str(said)[:40]!r}, not a language")
    return said


def _plain_letters(backend: Backend, file: SpmModel, config: Mapping[str, Any]) -> None:
    """ALBERT's letters and words. With sentencepiece's own steps besides, a text could grow without bounds."""
    from tokenizers import normalizers, pre_tokenizers

    steps: list[Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not bool_setting(config, "keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if bool_setting(config, "do_lower_case", True):
        steps.append(normalizers.Lowercase())
    if file.charsmap:
        steps.append(normalizers.Precompiled(file.charsmap))
    backend.normalizer = normalizers.Sequence(steps)
    words = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(SPACE, prepend_scheme="always", split=True)]
    backend.pre_tokenizer = pre_tokenizers.Sequence(words)


def _sentinels(config: Mapping[str, Any], family: Family) -> int:
    number = config.get("extra_ids", family.sentinels)
    if type(number) is not int or not 0 <= number <= MAX_SENTINELS:
        raise ConfigError("C002", f"extra_ids in tokenizer_config.json is {str(number)[:40]!r}, not a small number")
    return number


def _names(file: SpmModel, names: Sequence[str], family: Family, languages: Sequence[str]) -> list[str]:
    """The tokens in the order of their ids."""
    first, mask = list(_FAIRSEQ.values())[:4], family.tokens["mask"]
    if family.ids == "masked":
        return [*names, *([mask] if mask not in names else [])]
    if family.ids == "pegasus":
        if list(names[:3]) != ["<pad>", "</s>", "<unk>"]:
            raise _unexpected(file, "Pegasus")
        return [*names[:2], "<mask_1>", mask, *(f"<unk_{i}>" for i in range(2, 103)), *names[2:]]
    if sorted(names[:3]) != sorted({*first} - {"<pad>"}) or mask in names:
        raise _unexpected(file, "XLM-R")
    if family.ids == "camembert":
        unused = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"]
        return [*unused, *(name for name in names if name != "<unk>"), mask]
    return [*first, *names[3:], *languages, mask]


def _unexpected(file: SpmModel, name: str) -> DamagedError:
    message = f"{show(file.path)} does not start with the special tokens that {name}'s ids assume"
    return DamagedError("X001", message, AGAIN)


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
                token = source_language(config, family.language) if role == "lang" else str(token_of(config, role))
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
