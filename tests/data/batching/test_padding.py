"""Pairs of texts cut to a length: the ids of `transformers`, whatever a tokenizer's template says of segments."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import processors

from headway.api import load
from headway.data.batching.padding import truncate
from headway.data.batching.strides import special_layout
from headway.data.datasets.squad import Question
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.data.tokenizers.train import train_tokenizer
from headway.tasks.classification.predict import classify
from headway.tasks.qa.predict import lay_out
from headway.tasks.qa.task import Settings as QuestionAnsweringConfig

WORDS = re.findall(r"\S+", "the cat sat on a mat , and twelve unbelievable dogs in Zürich said hello to other cats")
MARKS = ("<s>", "</s>", "<pad>", "<unk>", "<mask>")
TEMPLATES = {
    "xlm-roberta": ("<s> $A </s>", "<s> $A </s> </s> $B </s>"),
    "t5": ("$A </s>", "$A </s> $B </s>"),
    "llama": ("<s> $A", "<s> $A <s>:1 $B:1"),
}


@cache
def reader(kind: str) -> Tokenizer:
    """A tokenizer of a family's kind of pieces, with the family's tokens around texts."""
    text = [" ".join(WORDS)] * 4
    if kind == "bert":
        return train_tokenizer("wordpiece", text, 120)
    pieces = "bpe" if kind in ("roberta", "bart", "gpt2") else "unigram"
    backend = train_tokenizer(pieces, text, 320, special=MARKS).backend
    ids = {name: backend.token_to_id(name) for name in MARKS}
    if kind in TEMPLATES:
        single, pair = TEMPLATES[kind]
        backend.post_processor = processors.TemplateProcessing(single, pair, list(ids.items()))
    elif kind != "gpt2":
        around = ("</s>", ids["</s>"]), ("<s>", ids["<s>"])
        backend.post_processor = processors.RobertaProcessing(*around, trim_offsets=True, add_prefix_space=False)
    roles = {"bos": "<s>", "eos": "</s>", "pad": "<pad>", "mask": "<mask>", "cls": "<s>", "sep": "</s>"}
    return Tokenizer(backend, {f"{role}_token": name for role, name in roles.items()})


KINDS = ("bert", "roberta", "bart", "gpt2", *TEMPLATES)


@cache
def oracle(kind: str) -> Any:
    copy = Backend.from_str(reader(kind).backend.to_str())  # it switches truncation on in its own one
    return transformers.PreTrainedTokenizerFast(tokenizer_object=copy)  # type: ignore[no-untyped-call]


def text_of(count: int, seed: int) -> str:
    return " ".join(WORDS[(7 * i + seed) % len(WORDS)] for i in range(count))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(st.integers(0, 40), st.integers(1, 40), st.integers(0, 60), st.integers(0, 6))
def test_pairs_are_cut_as_transformers_cuts_them(kind: str, first: int, second: int, room: int, seed: int) -> None:
    one, two = text_of(first, seed), text_of(second, seed + 1)
    around = special_layout(reader(kind), pair=True).size
    limit = max(1, room + around)
    encoded = reader(kind).encode(one, two)
    ids, token_type_ids = truncate(encoded, limit)
    theirs = oracle(kind)(one, two, truncation="longest_first", max_length=limit, return_token_type_ids=True)
    assert ids == theirs["input_ids"] and token_type_ids == theirs["token_type_ids"]
    survivors = {theirs.sequence_ids()[i] for i in range(len(ids))} - {None}
    assert survivors >= {number for number, text in enumerate((one, two)) if text and room > 1}


@pytest.mark.parametrize("kind", KINDS)
@given(st.integers(0, 40), st.integers(0, 30))
def test_single_texts_are_cut_as_transformers_cuts_them(kind: str, count: int, room: int) -> None:
    text, limit = text_of(count, 0), max(1, room + special_layout(reader(kind)).size)
    ids, _ = truncate(reader(kind).encode(text), limit)
    assert ids == oracle(kind)(text, truncation=True, max_length=limit)["input_ids"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_around_a_pair_is_what_the_template_says(kind: str) -> None:
    around, tokenizer = special_layout(reader(kind), pair=True), reader(kind)
    for one, two in (("the cat", "sat on"), ("cat", "said hello to other dogs")):
        a, b = (tokenizer.encode(text, special=False).ids for text in (one, two))
        whole = tokenizer.encode(one, two)
        assert around.wrap(a, b) == (whole.ids, whole.token_type_ids)


def test_a_vocabulary_without_the_letter_a_has_a_frame_too() -> None:
    from tokenizers.models import BPE

    backend = Backend(BPE(vocab={"<s>": 0, "</s>": 1, "C": 2, "G": 3}, merges=[]))
    template = "<s> $A </s>", "<s> $A </s> $B:1 </s>:1", [("<s>", 0), ("</s>", 1)]
    backend.post_processor = processors.TemplateProcessing(*template)
    backend.add_special_tokens(["<s>", "</s>"])
    around = special_layout(Tokenizer(backend), pair=True)
    assert around.wrap([2], [3, 3]) == ([0, 2, 1, 3, 3, 1], [0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta"])
@settings(max_examples=30)
@given(st.integers(1, 6), st.integers(1, 80), st.integers(30, 60), st.integers(0, 4))
def test_windows_of_a_context_are_those_of_transformers(
    kind: str, first: int, second: int, limit: int, stride: int
) -> None:
    question, context = text_of(first, 3), text_of(second, 5)
    room = limit - special_layout(reader(kind), pair=True).size
    assume(len(reader(kind).encode(question, special=False).ids) <= room // 2)  # longer ones are cut
    rows = lay_out(
        [Question("x", question, context, ())], reader(kind), limit, QuestionAnsweringConfig(stride=stride), None
    )
    theirs = oracle(kind)(
        question, context, truncation="only_second", max_length=limit, stride=stride, return_overflowing_tokens=True
    )
    assert rows.examples.ids == theirs["input_ids"]


@pytest.mark.parametrize("kind", ["roberta", "bert"])
def test_a_classifier_reads_both_texts(kind: str, tmp_path: Path) -> None:
    """A folder of `transformers`, pairs longer than the model reads: its logits, and both texts change them."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    length = {"roberta": 34, "bert": 32}[kind]
    name = kind.capitalize()
    config = getattr(transformers, f"{name}Config")(
        vocab_size=reader(kind).vocab_size, max_position_embeddings=length, num_labels=3,
        pad_token_id=reader(kind).special["pad"],
        type_vocab_size=1 + (kind == "bert"), initializer_range=0.5, **sizes,
    )  # fmt: skip
    made = getattr(transformers, f"{name}ForSequenceClassification")(config).eval()
    made.save_pretrained(tmp_path)
    reader(kind).save(tmp_path)
    limit = length - {"roberta": 3, "bert": 0}[kind]  # RoBERTa counts positions from behind the id of padding
    model = load(tmp_path)
    one, two, other = text_of(40, 0), text_of(60, 1), text_of(60, 2)
    said = []
    for pair in ((one, two), (one, other), (other, two)):
        inputs = oracle(kind)(*pair, truncation="longest_first", max_length=limit, return_tensors="pt",
                              return_token_type_ids=kind == "bert")  # fmt: skip
        with torch.no_grad():
            expected = made(**inputs).logits.softmax(-1)[0]
        (found,) = classify(model.model, model.tokenizer, [pair[0]], [pair[1]], length=limit)
        assert list(found.probabilities.values()) == pytest.approx(expected.tolist(), abs=1e-5)
        said.append(expected)
    assert all((said[0] - changed).abs().max() > 1e-3 for changed in said[1:])


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_a_classifier_with_two_stacks(kind: str, tmp_path: Path) -> None:
    """Its decoder reads the same text one token later; several texts at once, some padded."""
    torch.manual_seed(0)
    marks = reader(kind).special
    ids = {"pad_token_id": marks["pad"], "eos_token_id": marks["eos"], "decoder_start_token_id": marks["eos"]}
    sizes: dict[str, Any] = {"vocab_size": reader(kind).vocab_size, "d_model": 16, "num_labels": 3, **ids}
    if kind == "bart":
        layers = {f"{side}_{what}": 2 for side in ("encoder", "decoder") for what in ("layers", "attention_heads")}
        more = {f"{side}_ffn_dim": 16 for side in ("encoder", "decoder")} | {"max_position_embeddings": 80}
        made = transformers.BartForSequenceClassification(
            transformers.BartConfig(init_std=0.5, **sizes, **layers, **more)
        )
    else:
        made = transformers.T5ForSequenceClassification(
            transformers.T5Config(d_kv=8, d_ff=16, num_layers=2, num_heads=2, **sizes)
        )
    made.eval().save_pretrained(tmp_path)
    reader(kind).save(tmp_path)
    bundle, texts = load(tmp_path), [text_of(count, count) for count in (3, 9, 20)]
    for pairs in (None, [text_of(count, 7) for count in (5, 2, 6)]):
        found = bundle.classify(texts, pairs)
        for i, text in enumerate(texts):
            row = oracle(kind)(
                text, None if pairs is None else pairs[i], return_tensors="pt", return_token_type_ids=False
            )
            with torch.no_grad():
                expected = made(**row).logits.softmax(-1)[0]
            assert list(found[i].probabilities.values()) == pytest.approx(expected.tolist(), abs=1e-5)
