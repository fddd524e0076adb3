"""How texts are cut: bytes add up to the text, places are right, and steps agree with slow twins."""

from __future__ import annotations

import functools
import itertools
import json
import pydoc_data.topics
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, processors

from headway.checks.tokenization import STEPS_LIMIT, TokenizedText, open_tokenizer, segmentations, tokenize, words
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.data.tokenizers.train import KINDS, merge_steps, train_tokenizer
from headway.errors import DataError, HeadwayError, NotFoundError

TEXTS = [text for _, text in sorted(pydoc_data.topics.topics.items())][:8]
SIZES = {"bytes": 0, "chars": 0, "words": 500, "bpe": 600, "wordpiece": 600, "unigram": 600}
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@functools.cache
def trained(kind: str) -> Tokenizer:
    return train_tokenizer(kind, TEXTS, SIZES[kind], special=("<s>", "</s>"))


def sentencepiece(pieces: str, *, unk: bool = True) -> Tokenizer:
    """BPE as Llama 2 has it: a space is ▁, one is put in front, what is not in the vocabulary is bytes."""
    names = ["<unk>", "<s>", *(f"<0x{i:02X}>" for i in range(256)), "▁", *dict.fromkeys("".join(pieces.split()))]
    merges = []
    for word in pieces.split():
        for end in range(2, len(word) + 1):
            if word[:end] not in names:
                names.append(word[:end])
                merges.append((word[: end - 1], word[end - 1 : end]))
    model = models.BPE(
        vocab={name: i for i, name in enumerate(names)},
        merges=merges,
        byte_fallback=unk,
        unk_token="<unk>" if unk else None,
    )
    backend = Backend(model)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return Tokenizer(backend)


# --- a text in pieces ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bytes", "bpe", "unigram"])
@settings(max_examples=60)
@given(ANY)
def test_the_bytes_of_the_tokens_are_those_of_the_text(kind: str, text: str) -> None:
    shown = tokenize(trained(kind), text)
    assert b"".join(token.data for token in shown.tokens) == text.encode()
    assert (shown.unknown, shown.of_text) == (0, len(shown.tokens))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(ANY)
def test_tokens_are_those_of_the_tokenizer_and_stand_where_they_say(kind: str, text: str) -> None:
    tokenizer, shown = trained(kind), tokenize(trained(kind), text)
    oracle = tokenizer.backend.encode(text)
    assert [token.id for token in shown.tokens] == oracle.ids
    assert [token.piece for token in shown.tokens] == oracle.tokens
    assert [token.inserted for token in shown.tokens] == [bool(mask) for mask in oracle.special_tokens_mask]
    for token in shown.tokens:
        assert token.data in text[token.start : token.end].encode()
        assert bool(token.data) == (not token.inserted)


def test_a_character_of_several_tokens_is_shared_among_them() -> None:
    shown = tokenize(trained("bytes"), "a½🦙")
    assert [(token.data.hex(), token.start, token.end) for token in shown.tokens] == [
        ("61", 0, 1),
        *(("c2", 1, 2), ("bd", 1, 2)),
        *(("f0", 2, 3), ("9f", 2, 3), ("a6", 2, 3), ("99", 2, 3)),
    ]


def test_what_stands_around_a_text_and_what_is_unknown() -> None:
    shown = tokenize(trained("wordpiece"), "the ünseen")
    assert [(t.piece, t.data.decode(), t.unknown, t.inserted) for t in shown.tokens] == [
        ("[CLS]", "", False, True),
        ("the", "the", False, False),
        ("[UNK]", "ünseen", True, False),
        ("[SEP]", "", False, True),
    ]
    assert (shown.unknown, shown.of_text) == (1, 2)
    assert [t.unknown for t in tokenize(trained("chars"), "a\x01b").tokens] == [False, True, False]
    assert [t.unknown for t in tokenize(trained("words"), "the zzz").tokens] == [False, True]


def test_a_space_cut_off_its_place_is_still_of_the_text() -> None:
    """RoBERTa's places leave spaces out: a token of one space then has no character at all."""
    tokenizer = train_tokenizer("bpe", TEXTS, 600)
    tokenizer.backend.post_processor = processors.ByteLevel(trim_offsets=True)
    shown = tokenize(tokenizer, "a  b").tokens
    assert [(t.data, t.end - t.start, t.inserted) for t in shown] == [
        (b"a", 1, False),
        (b" ", 0, False),
        (b" b", 1, False),
    ]


def test_an_unknown_token_known_only_by_its_number() -> None:
    backend = Backend(models.Unigram([("odd", 0.0), ("a", -1.0), ("b", -2.0)], unk_id=0))
    assert [(t.piece, t.unknown) for t in tokenize(Tokenizer(backend), "azb").tokens] == [
        ("a", False),
        ("odd", True),
        ("b", False),
    ]


def test_an_unknown_token_known_only_by_its_name() -> None:
    backend = Backend(models.BPE(vocab={"odd": 0, "a": 1}, merges=[], unk_token="odd"))
    assert [(t.piece, t.unknown) for t in tokenize(Tokenizer(backend), "az").tokens] == [("a", False), ("odd", True)]


def test_a_byte_level_vocabulary_with_tokens_that_spell_no_bytes() -> None:
    """ "∂" is in no byte alphabet, and "~~", put around a text, would spell two bytes of it."""
    backend = Backend(models.BPE(vocab={"a": 0, "∂": 1, "~~": 2}, merges=[]))
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.TemplateProcessing(single="~~ $A", special_tokens=[("~~", 2)])
    shown = tokenize(Tokenizer(backend), "∂a").tokens
    assert [(t.piece, t.data, t.inserted) for t in shown] == [
        ("~~", b"", True),
        ("∂", "∂".encode(), False),
        ("a", b"a", False),
    ]


def test_a_special_token_in_a_text_stands_for_its_own_spelling() -> None:
    for kind in ("bytes", "bpe", "wordpiece", "words"):
        marks = [token for token in tokenize(trained(kind), "a <s> b").tokens if token.piece == "<s>"]
        assert [(t.data, t.start, t.end, t.inserted) for t in marks] == [(b"<s>", 2, 5, False)]
    backend = train_tokenizer("bytes", ["any"]).backend
    backend.add_tokens(["Ġ"])  # which would spell a space
    assert [token.data for token in tokenize(Tokenizer(backend), "Ġ ").tokens] == ["Ġ".encode(), b" "]


def test_bytes_that_stand_in_for_a_character() -> None:
    shown = tokenize(sentencepiece("▁low lo w"), "low é")
    assert [(t.piece, t.data, t.start, t.end) for t in shown.tokens] == [
        ("▁low", b"low", 0, 3),
        ("▁", b" ", 3, 4),
        ("<0xC3>", b"\xc3", 4, 5),
        ("<0xA9>", b"\xa9", 4, 5),
    ]
    assert [(t.piece, t.inserted) for t in tokenize(sentencepiece("lo"), "o").tokens] == [("▁", False), ("o", False)]


def test_bytes_are_only_read_where_the_decoder_does() -> None:
    tokenizer = train_tokenizer("words", ["<0x41> Ġthe"])
    assert [token.data for token in tokenize(tokenizer, "<0x41> Ġthe").tokens] == [b"<0x41>", "Ġthe".encode()]


def test_an_empty_text() -> None:
    assert tokenize(trained("bpe"), "") == TokenizedText(text="", tokens=[])
    assert tokenize(trained("wordpiece"), "").of_text == 0
    assert words(trained("bpe"), "") == []


# --- how a word is built -------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.lists(st.sampled_from(["the", "import", "statement", "naïve", "returns", "x", "zq", "of"]), min_size=1))
def test_the_steps_of_a_text_are_those_of_its_words(chosen: list[str]) -> None:
    tokenizer, text = trained("bpe"), " ".join(chosen)
    if len(text) > STEPS_LIMIT:
        return
    alone = [chosen[0], *(f" {word}" for word in chosen[1:])]
    found = words(tokenizer, text)
    assert [word.text for word in found] == list(dict.fromkeys(alone))
    assert [word.steps for word in found] == [merge_steps(tokenizer, word) for word in dict.fromkeys(alone)]
    assert all(not word.scores and not word.runner_up for word in found)


def test_without_a_pre_tokenizer_a_text_is_one_word() -> None:
    (word,) = words(sentencepiece("▁low lo w"), "low w")
    assert word.pieces == ["▁low", "▁", "w"]
    assert word.steps[0] == list("▁low▁w")
    assert [len(step) for step in word.steps] == [6, 5, 4, 3]


def test_pieces_alone_where_nothing_is_merged() -> None:
    (first, second) = words(trained("wordpiece"), "importing it importing")
    assert (first.text, second.text) == ("importing", "it")
    assert first.steps == [trained("wordpiece").backend.encode("importing", add_special_tokens=False).tokens]
    assert [word.steps for word in words(trained("chars"), "ab")] == [[["a", "b"]]]


@settings(max_examples=60)
@given(st.text("ab", min_size=1, max_size=8), st.data())
def test_segmentations_against_all_there_are(word: str, data: st.DataObject) -> None:
    parts = ["a", "b", "ab", "ba", "aa", "aab", "bab", "abab"]
    scores = {part: data.draw(st.floats(-9, 0)) for part in parts}
    every = []
    for places in itertools.product([False, True], repeat=len(word) - 1):
        ends = [i + 1 for i, end in enumerate(places) if end] + [len(word)]
        pieces = [word[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        if all(piece in scores for piece in pieces):
            every.append(sum(scores[piece] for piece in pieces))
    found = segmentations(word, scores, 3)
    assert [score for score, _ in found] == pytest.approx(sorted(every, reverse=True)[:3])
    assert all("".join(pieces) == word for _, pieces in found)
    assert [score for score, _ in found] == pytest.approx([sum(scores[p] for p in pieces) for _, pieces in found])


def test_the_likeliest_segmentation_is_the_one_the_tokenizer_takes() -> None:
    tokenizer = trained("unigram")
    scores = dict(json.loads(tokenizer.backend.to_str())["model"]["vocab"])
    sample = random.Random(0).sample(sorted({word for text in TEXTS for word in text.split() if word.isalpha()}), 60)
    for text in sample:
        (word,) = words(tokenizer, text)
        (best, pieces), *others = segmentations(text, scores, 2)
        assert word.pieces == pieces
        assert sum(word.scores) == pytest.approx(best)
        assert word.runner_up == (others[0][1] if others else [])
        assert word.runner_up_score == (others[0][0] if others else 0.0) <= (best if others else 0.0)
        assert word.runner_up != word.pieces


def test_only_a_short_text_is_shown_step_by_step() -> None:
    assert len(words(trained("bpe"), "a" * STEPS_LIMIT)) == 1
    with pytest.raises(DataError, match=str(STEPS_LIMIT)):
        words(trained("bpe"), "a" * (STEPS_LIMIT + 1))


# --- tokenizers by name --------------------------------------------------------------------------


def test_open_by_folder_by_file_and_by_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trained("bpe").save(tmp_path / "model")
    ids = trained("bpe").encode("the import").ids
    assert open_tokenizer("model").encode("the import").ids == ids
    assert open_tokenizer("model/tokenizer.json").encode("the import").ids == ids
    assert open_tokenizer("bytes").encode("é").ids == [0xC3, 0xA9]
    (tmp_path / "runs/x-0001/run").mkdir(parents=True)
    (tmp_path / "runs/x-0001/run/recipe.toml").write_text("")
    trained("bpe").save(tmp_path / "runs/x-0001")
    assert open_tokenizer("last").encode("the import").ids == ids
    trained("chars").save(tmp_path / "bytes")  # a folder that exists wins
    assert open_tokenizer("bytes").pieces([0]) == ["<unk>"]


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("bpe", "F005", "kind of tokenizer"),
        ("gpt2", "F005", "preset"),
        ("absent", "F001", "absent"),
        ("last", "F001", "no runs"),
        ("some.txt", "F005", "tokenizer.json"),
        ("empty", "F005", "no tokenizer in"),
    ],
)
def test_names_that_are_no_tokenizer(
    name: str, code: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some.txt").write_text("x")
    trained("chars").save(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError, match=words) as caught:
        open_tokenizer(name)
    assert caught.value.code == code


def test_a_broken_file_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(HeadwayError):
        open_tokenizer(str(tmp_path / "tokenizer.json"))
