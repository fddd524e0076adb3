"""Tokenizer classes of `transformers` whose settings override tokenizer.json.

Such a class replaces steps of tokenizer.json by its own, from its keys in tokenizer_config.json and its defaults. Only
steps of the type that the class writes are replaced: other chains, such as split digits in a GPT-2, are what the model
was trained with. add_bos_token and add_eos_token have no effect beside a tokenizer.json. The name of a class is only
compared; nothing is imported by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headway.data.tokenizers.legacy import json_object
from headway.data.tokenizers.special_tokens import bool_setting, token_of
from headway.data.tokenizers.spm import SPACE
from headway.data.tokenizers.spm_folders import llama_prefix, source_language

Parts = dict[str, Any]
"""Parts of a tokenizer.json, by their keys."""

PREPEND = {"type": "Prepend", "prepend": SPACE}
REPLACE_SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
"""Steps for sentencepiece's spaces in older tokenizer.json files."""
BERT_TOKENS = {"cls": "[CLS]", "sep": "[SEP]"}


def class_rules(folder: Path, config: Mapping[str, Any], found: Mapping[str, Any]) -> Parts:
    """Return the parts that the folder's class puts in place of those `found` in its tokenizer.json."""
    model = json_object(folder / "config.json")
    kind = str(model.get("model_type") or "")
    if kind and kind not in MODEL_CLASSES:  # for other models the class has no rules
        return {}
    hint = config.get("tokenizer_class") or model.get("tokenizer_class") or MODEL_CLASSES.get(kind, "")
    rules = CLASSES.get(str(hint).removesuffix("Fast"))
    return rules(config, found) if rules else {}


def _bert(config: Mapping[str, Any], found: Mapping[str, Any]) -> Parts:
    if found["model"].get("type", "WordPiece") != "WordPiece":  # older files do not say
        return {}
    parts: Parts = {}
    if _type(found, "normalizer") in (None, "BertNormalizer"):
        parts["normalizer"] = {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": bool_setting(config, "tokenize_chinese_chars", True),
            "strip_accents": bool_setting(config, "strip_accents", None),  # None: when lower-casing
            "lowercase": bool_setting(config, "do_lower_case", True),
        }
    return parts | _post_processor("BertProcessing", config, found, BERT_TOKENS)


def _gpt2(config: Mapping[str, Any], found: Mapping[str, Any]) -> Parts:
    if _type(found, "pre_tokenizer") != "ByteLevel":
        return {}
    space = bool_setting(config, "add_prefix_space", False)
    splitter = {"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": True, "use_regex": True}
    return {"pre_tokenizer": splitter}


def _roberta(config: Mapping[str, Any], found: Mapping[str, Any]) -> Parts:
    splitter = _gpt2(config, found)
    return splitter and splitter | _roberta_post_processor(config, found, {"cls": "<s>", "sep": "</s>"})


def _llama(config: Mapping[str, Any], found: Mapping[str, Any]) -> Parts:
    """Rules for sentencepiece files only: a byte-level file with this class has it by mistake."""
    normalizer, splitter = found.get("normalizer") or {}, found.get("pre_tokenizer") or {}
    steps = normalizer.get("normalizers", [normalizer])
    by_splitter = not normalizer and splitter.get("type") == "Metaspace" and splitter.get("replacement") == SPACE
    if not by_splitter and (splitter or steps not in ([PREPEND, REPLACE_SPACE], [REPLACE_SPACE])):
        return {}
    return {"normalizer": None, "pre_tokenizer": _metaspace(llama_prefix(config), split=False)}


def _xlm_roberta(config: Mapping[str, Any], found: Mapping[str, Any]) -> Parts:
    splitter = found.get("pre_tokenizer") or {}
    kinds = [step.get("type") for step in splitter.get("pretokenizers", [splitter])]
    if kinds not in (["WhitespaceSplit", "Metaspace"], ["Metaspace"]):
        return {}
    spaces = _metaspace("always" if bool_setting(config, "add_prefix_space", True) else "never", split=True)
    return {
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, spaces]},
        "decoder": spaces,
        **_roberta_post_processor(config, found, {"bos": "<s>", "eos": "</s>"}),
    }


def _big_bird(config: Mapping[str, Any], found: Mapping[str, Any]) -> Parts:
    if _type(found, "pre_tokenizer") != "Metaspace":
        return {}
    spaces = _metaspace("always" if bool_setting(config, "add_prefix_space", True) else "never", split=True)
    around = _post_processor("BertProcessing", config, found, BERT_TOKENS)
    return {"pre_tokenizer": spaces, "decoder": spaces, **around}


def _metaspace(scheme: str, *, split: bool) -> Parts:
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split}


def _type(found: Mapping[str, Any], part: str) -> Any:
    return (found.get(part) or {}).get("type")


def _mbart(config: Mapping[str, Any], found: Mapping[str, Any]) -> Parts:
    return _translator(config, found, "en_XX", first=False)


def _mbart50(config: Mapping[str, Any], found: Mapping[str, Any]) -> Parts:
    return _translator(config, found, "en_XX", first=True)


def _nllb(config: Mapping[str, Any], found: Mapping[str, Any]) -> Parts:
    return _translator(config, found, "eng_Latn", first=not bool_setting(config, "legacy_behaviour", False))


def _translator(config: Mapping[str, Any], found: Mapping[str, Any], usual: str, *, first: bool) -> Parts:
    """Around a text are the token of its language, first or last, and an end token."""
    language, end, ids = source_language(config, usual), token_of(config, "eos") or "</s>", _ids(found)
    if language not in ids or end not in ids:
        return {}
    before, after = ([language], [end]) if first else ([], [end, language])

    def template(*texts: str) -> list[Parts]:
        around = [[{"SpecialToken": {"id": name, "type_id": 0}} for name in names] for names in (before, after)]
        return [*around[0], *({"Sequence": {"id": text, "type_id": 0}} for text in texts), *around[1]]

    used = {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in (language, end)}
    single, pair = template("A"), template("A", "B")
    return {"post_processor": {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": used}}


def _ids(found: Mapping[str, Any]) -> dict[str, int]:
    """Token → id of a tokenizer.json, added tokens included."""
    vocab = found["model"]["vocab"]
    ids = dict(vocab) if isinstance(vocab, dict) else {piece: i for i, (piece, _) in enumerate(vocab)}
    return ids | {token["content"]: token["id"] for token in found.get("added_tokens") or ()}


def _post_processor(
    processor: str, config: Mapping[str, Any], found: Mapping[str, Any], usual: Mapping[str, str]
) -> Parts:
    """Return a post-processor with the tokens of the two roles in `usual`, whatever the file has."""
    first, last = (token_of(config, role) or name for role, name in usual.items())
    ids = _ids(found)
    if first not in ids or last not in ids:
        return {}
    return {"post_processor": {"type": processor, "cls": [first, ids[first]], "sep": [last, ids[last]]}}


def _roberta_post_processor(config: Mapping[str, Any], found: Mapping[str, Any], usual: Mapping[str, str]) -> Parts:
    around = _post_processor("RobertaProcessing", config, found, usual)
    for processor in around.values():
        processor["add_prefix_space"] = bool_setting(config, "add_prefix_space", False)
        processor["trim_offsets"] = bool_setting(config, "trim_offsets", True)
    return around


CLASSES: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Parts]] = {
    "BertTokenizer": _bert,
    "DistilBertTokenizer": _bert,
    "GPT2Tokenizer": _gpt2,
    "WhisperTokenizer": _gpt2,
    "RobertaTokenizer": _roberta,
    "BartTokenizer": _roberta,
    "LlamaTokenizer": _llama,
    "XLMRobertaTokenizer": _xlm_roberta,
    "BigBirdTokenizer": _big_bird,
    "MBartTokenizer": _mbart,
    "MBart50Tokenizer": _mbart50,
    "NllbTokenizer": _nllb,
}
"""Class, without "Fast" → its rules; other classes use tokenizer.json unchanged."""
MODEL_CLASSES = {
    "bert": "BertTokenizer",
    "distilbert": "BertTokenizer",
    "gpt2": "GPT2Tokenizer",
    "whisper": "WhisperTokenizer",
    "roberta": "RobertaTokenizer",
    "bart": "RobertaTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "big_bird": "BigBirdTokenizer",
    "mbart": "MBartTokenizer",
    **dict.fromkeys(("llama", "t5", "mt5", "marian", "gemma", "m2m_100", "headway"), ""),
}
"""model_type → the class of a folder that does not name one."""
