"""tokenizer_config.json over tokenizer.json: which keys of which classes are obeyed, held to `transformers`."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from headway.data.tokenizer import load_tokenizer

CORPUS = ["The quick brown fox jumps over the lazy dog.", "A naïve café, 1984: it's HERE and not there!", "数字 and é"]
TEXTS = [
    *("Hello world", " Hello  world ", "", " ", "a\nb\n\nc", "Über café naïve 数字", "it's don't 123,456.78"),
    *("THE Quick", "a<s> the</s> fox", "tabs\tand  spaces   ", "e\u0301 and E\u0301"),
]
MARKS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
ROLES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>"}
BERT = {"unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>", "cls_token": "<s>", "sep_token": "</s>"}
AROUND = [{}, {"add_bos_token": True}, {"add_bos_token": False}, {"add_eos_token": True}]
SPACE = [{}, {"add_prefix_space": True}, {"add_prefix_space": False}]


@functools.cache
def trained(kind: str) -> dict[str, Any]:
    made = {"bpe": models.BPE, "word": models.WordPiece, "unigram": models.Unigram}[kind]
    backend = tokenizers.Tokenizer(made() if kind != "word" else made(unk_token="<unk>"))
    settings: dict[str, Any] = {"vocab_size": 330, "special_tokens": MARKS, "show_progress": False}
    if kind == "bpe":
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **settings)
    elif kind == "word":
        backend.pre_tokenizer, backend.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(**settings)
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(unk_token="<unk>", **settings)
    backend.train_from_iterator([*CORPUS, *(line.lower() for line in CORPUS)] * 3, trainer)
    return dict(json.loads(backend.to_str()))


def state(step: Any) -> Any:
    return json.loads(step.__getstate__())


def put_around(name: str) -> Any:
    if name == "none":
        return None
    if name == "template":
        ids = [("<s>", 0), ("</s>", 2)]
        return state(processors.TemplateProcessing(["<s>", "$A"], ["<s>", "$A", "$B:1"], ids))
    if name == "bert":
        return state(processors.BertProcessing(("</s>", 2), ("<s>", 0)))
    return state(processors.RobertaProcessing(("</s>", 2), ("<s>", 0)))


def check(folder: Path, file: dict[str, Any], config: dict[str, Any], model: dict[str, Any]) -> None:
    for name, content in (("tokenizer", file), ("tokenizer_config", config), ("config", model)):
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    ours, theirs = load_tokenizer(folder), transformers.AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        assert ours.encode(text).ids == theirs(text)["input_ids"], text
    assert ours.encode("the dog", "a fox").ids == theirs("the dog", "a fox")["input_ids"]
    ours.save(folder / "saved")
    again = transformers.AutoTokenizer.from_pretrained(folder / "saved")
    for text in TEXTS:
        assert again(text)["input_ids"] == ours.encode(text).ids == load_tokenizer(folder / "saved").encode(text).ids


@pytest.mark.parametrize("around", ["none", "template", "roberta"])
@pytest.mark.parametrize("in_file", [True, False])
@pytest.mark.parametrize("said", [*SPACE, *AROUND[1:]], ids=str)
@pytest.mark.parametrize(
    ("class_", "model"),
    [
        ("GPT2Tokenizer", "gpt2"), ("GPT2TokenizerFast", "llama"), ("GPT2Tokenizer", "mistral"), (None, "gpt2"),
        ("RobertaTokenizer", "roberta"), ("RobertaTokenizerFast", "gpt2"), (None, "roberta"),
        ("BartTokenizer", "bart"), ("BartTokenizerFast", "bart"), (None, "bart"),
        ("PreTrainedTokenizerFast", "gpt2"), ("LlamaTokenizerFast", "llama"), (None, "llama"),
    ],
)  # fmt: skip
def test_byte_level_files(
    class_: str | None, model: str, said: dict[str, Any], in_file: bool, around: str, tmp_path: Path
) -> None:
    splitter = state(pre_tokenizers.ByteLevel(add_prefix_space=in_file))
    file = trained("bpe") | {"pre_tokenizer": splitter, "post_processor": put_around(around)}
    named = {} if class_ is None else {"tokenizer_class": class_}
    check(tmp_path, file, ROLES | named | said, {"model_type": model})


@pytest.mark.parametrize("around", ["none", "template", "bert"])
@pytest.mark.parametrize("in_file", [True, False])
@pytest.mark.parametrize(
    "said",
    [
        *AROUND, {"do_lower_case": True}, {"do_lower_case": False}, {"strip_accents": False}, {"strip_accents": True},
        {"do_lower_case": False, "strip_accents": True}, {"tokenize_chinese_chars": False},
        {"tokenize_chinese_chars": True, "do_lower_case": False},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize(
    ("class_", "model"),
    [
        ("BertTokenizer", "bert"), ("BertTokenizerFast", "llama"), (None, "bert"), (None, "distilbert"),
        ("DistilBertTokenizer", "distilbert"), ("PreTrainedTokenizerFast", "bert"), ("BertTokenizer", "mistral"),
    ],
)  # fmt: skip
def test_word_piece_files(
    class_: str | None, model: str, said: dict[str, Any], in_file: bool, around: str, tmp_path: Path
) -> None:
    normalizer = state(normalizers.BertNormalizer(lowercase=in_file, handle_chinese_chars=in_file))
    file = trained("word") | {"normalizer": normalizer, "post_processor": put_around(around)}
    named = {} if class_ is None else {"tokenizer_class": class_}
    check(tmp_path, file, BERT | named | said, {"model_type": model})


@pytest.mark.parametrize("in_file", ["always", "never"])
@pytest.mark.parametrize("said", [*SPACE, *AROUND[1:]], ids=str)
@pytest.mark.parametrize(
    ("class_", "model"),
    [("XLMRobertaTokenizer", "xlm-roberta"), ("XLMRobertaTokenizerFast", "xlm-roberta"), (None, "xlm-roberta")],
)
def test_unigram_files(class_: str | None, model: str, said: dict[str, Any], in_file: str, tmp_path: Path) -> None:
    spaces = pre_tokenizers.Metaspace(prepend_scheme=in_file)
    splitter = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), spaces])
    file = trained("unigram") | {"pre_tokenizer": state(splitter), "post_processor": put_around("roberta")}
    named = {} if class_ is None else {"tokenizer_class": class_}
    check(tmp_path, file, ROLES | named | said, {"model_type": model})
