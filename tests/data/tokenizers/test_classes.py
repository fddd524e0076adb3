"""tokenizer_config.json over tokenizer.json: which keys of which classes are obeyed, held to `transformers`."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from headway.data.tokenizers.classes import CLASSES
from headway.data.tokenizers.tokenizer import load_tokenizer
from headway.errors import HeadwayError

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


@pytest.mark.parametrize("around", ["none", "template", "roberta", "bert"])
@pytest.mark.parametrize("in_file", ["always", "never"])
@pytest.mark.parametrize("said", [*SPACE, *AROUND[1:]], ids=str)
@pytest.mark.parametrize(
    ("class_", "model"),
    [
        ("XLMRobertaTokenizer", "xlm-roberta"), ("XLMRobertaTokenizerFast", "roberta"), (None, "xlm-roberta"),
        ("BigBirdTokenizer", "big_bird"), ("BigBirdTokenizerFast", "big_bird"), (None, "big_bird"),
    ],
)  # fmt: skip
def test_unigram_files(
    class_: str | None, model: str, said: dict[str, Any], in_file: str, around: str, tmp_path: Path
) -> None:
    splitter: Any = pre_tokenizers.Metaspace(prepend_scheme=in_file)
    file = trained("unigram") | {"post_processor": put_around(around)}
    if model == "big_bird":
        file["normalizer"] = state(normalizers.Replace(tokenizers.Regex(" {2,}"), "▁"))
    else:
        splitter = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), splitter])
    named = {} if class_ is None else {"tokenizer_class": class_}
    check(tmp_path, file | {"pre_tokenizer": state(splitter)}, ROLES | BERT | named | said, {"model_type": model})


@pytest.mark.parametrize("class_", ["GPT2Tokenizer", "RobertaTokenizer", "BertTokenizer", "XLMRobertaTokenizer"])
def test_steps_that_a_class_could_not_have_written_stay(class_: str, tmp_path: Path) -> None:
    """Digits apart are what a model was trained with, whatever class it is given."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    splitter = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    file = trained("bpe") | {"pre_tokenizer": state(splitter), "post_processor": put_around("template")}
    (tmp_path / "tokenizer.json").write_text(json.dumps(file), encoding="utf-8")
    config = ROLES | BERT | {"tokenizer_class": class_, "add_prefix_space": True, "do_lower_case": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    made = json.loads(load_tokenizer(tmp_path).backend.to_str())
    assert {part: made[part] for part in ("normalizer", "pre_tokenizer", "post_processor")} == {
        part: file[part] for part in ("normalizer", "pre_tokenizer", "post_processor")
    }


STRANGE: list[Any] = [
    *(7, "x", [], {}, [1], {"type": 7}, {"type": "Sequence"}, {"type": "Sequence", "pretokenizers": 7}),
    *({"type": "Sequence", "pretokenizers": [7]}, {"type": "Sequence", "normalizers": 7}, {"type": "Metaspace"}),
]


@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer", "post_processor", "added_tokens", "model", "vocab"])
@pytest.mark.parametrize("class_", CLASSES)
def test_strange_files_are_refused_and_nothing_else(class_: str, part: str, tmp_path: Path) -> None:
    config = ROLES | BERT | {"tokenizer_class": class_}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    for kind, strange in itertools.product(("word", "bpe", "unigram"), STRANGE):
        file = trained(kind) | (
            {part: strange} if part != "vocab" else {"model": trained(kind)["model"] | {part: strange}}
        )
        (tmp_path / "tokenizer.json").write_text(json.dumps(file), encoding="utf-8")
        with contextlib.suppress(HeadwayError):  # some may be read all the same
            load_tokenizer(tmp_path)


def test_what_a_class_overrules_is_saved(tmp_path: Path) -> None:
    file = trained("bpe") | {"pre_tokenizer": state(pre_tokenizers.ByteLevel(add_prefix_space=False))}
    check(tmp_path, file, ROLES | {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}, {})
    ours = load_tokenizer(tmp_path)
    ours.save(tmp_path / "saved")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    for text in TEXTS:
        assert theirs(text)["input_ids"] == ours.encode(text).ids == load_tokenizer(tmp_path / "saved").encode(text).ids
