"""Trained tokenizers: what comes back, what is unknown, the same result every time, and BPE against its slow twin."""

from __future__ import annotations

import functools
import json
import pydoc_data.topics
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers, trainers

from headway.data.tokenizers import train as vocabulary
from headway.data.tokenizers.tokenizer import Tokenizer, load_tokenizer
from headway.data.tokenizers.train import KINDS, merge_steps, train_tokenizer
from headway.errors import ConfigError, DataError

PIPER = "Peter Piper picked a peck of pickled peppers"
TOPICS = [text for _, text in sorted(pydoc_data.topics.topics.items())][:12]
TEXTS = [*TOPICS, "naïve café, Ελλάς, 数字 1234, 🦙 and ½\n", PIPER]
SIZES = {"bytes": 0, "chars": 0, "words": 500, "bpe": 600, "wordpiece": 600, "unigram": 600}
MARKS = ("<s>", "</s>", "<pad>")
TRICKY = [
    *("", " ", "  two  spaces ", "\n\n\t\r\n", "The import statement's ÀÉ", "naïve café 数字 🦙👩‍👩‍👧 ½"),
    *("\x00\x01\x1c\x1f\x7f\x85\ufffd\ufeff\u2028\xa0", "don't they'll 3.14", "[MASK] <unk> <0x41> Ġ ▁ ##ing"),
]
ANY = st.text(st.characters(exclude_categories=["Cs"]))


def reference_merges(words: Mapping[str, int], merges: int) -> list[tuple[str, str]]:
    """The textbook algorithm: count all adjacent pairs, merge the most frequent one everywhere, repeat.

    Of equally frequent pairs the one with the older left piece wins, then the older right piece: characters by code
    point, then pieces in the order in which they were made.
    """
    pieces = {word: list(word) for word in words}
    age = {char: i for i, char in enumerate(sorted(set("".join(words))))}
    learned: list[tuple[str, str]] = []
    while len(learned) < merges:
        counts: Counter[tuple[str, str]] = Counter()
        for word, times in words.items():
            for pair in pairwise(pieces[word]):
                counts[pair] += times
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], age[pair[0]], age[pair[1]]))
        learned.append(best)
        age.setdefault("".join(best), len(age))
        for parts in pieces.values():
            at = 0
            while at < len(parts) - 1:
                if (parts[at], parts[at + 1]) == best:
                    parts[at : at + 2] = ["".join(best)]
                at += 1
    return learned


@functools.cache
def trained(kind: str, *, lower: bool = False, special: tuple[str, ...] = MARKS) -> Tokenizer:
    return train_tokenizer(kind, TEXTS, SIZES[kind], lower=lower, special=special)


def json_of(tokenizer: Tokenizer) -> str:
    return str(tokenizer.backend.to_str())


def tokens(tokenizer: Tokenizer) -> list[str]:
    return tokenizer.pieces(range(tokenizer.vocab_size))


# What every kind promises


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_has_no_holes_and_the_size_asked_for(kind: str) -> None:
    tokenizer = trained(kind)
    assert "" not in tokens(tokenizer)
    assert len(set(tokens(tokenizer))) == tokenizer.vocab_size
    seen = set("".join(TEXTS))
    assert tokenizer.vocab_size == (SIZES[kind] or {"bytes": 256 + 3, "chars": len(seen) + 4}[kind])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lower", [False, True])
def test_saved_and_loaded_it_is_equal_for_us_and_for_transformers(kind: str, lower: bool, tmp_path: Path) -> None:
    tokenizer = trained(kind, lower=lower)
    tokenizer.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert json_of(again) == json_of(tokenizer)
    assert (again.special, again.vocab_size) == (tokenizer.special, tokenizer.vocab_size)
    other = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert len(other) == tokenizer.vocab_size
    for text in [*TRICKY, *TEXTS[-4:], "a <s> b</s><pad>"]:
        ids = tokenizer.encode(text).ids
        assert again.encode(text).ids == ids
        assert other(text)["input_ids"] == ids
        assert other.decode(ids) == tokenizer.decode(ids, skip_special=False)
    pair = tokenizer.encode("the import", "a statement").ids
    assert other("the import", "a statement")["input_ids"] == pair


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_have_ids_and_never_split(kind: str) -> None:
    tokenizer = trained(kind)
    vocab = tokens(tokenizer)
    own = vocabulary.OWN_SPECIAL.get(kind, ())
    first = 256 if kind == "bytes" else 0
    assert vocab[first : first + len(own) + 3] == [*own, *MARKS]
    assert {role: vocab[i] for role, i in tokenizer.special.items()}.items() >= {"bos": "<s>", "eos": "</s>"}.items()
    for text in ("<s>import</s>", "<s> import </s>", "<s></s>", "a<s>import</s>b"):
        pieces = tokenizer.pieces(tokenizer.encode(text).ids)
        assert (pieces.count("<s>"), pieces.count("</s>")) == (1, 1)
    assert "<s>" not in tokenizer.decode(tokenizer.encode("<s>import").ids)
    assert "<s>" in tokenizer.decode(tokenizer.encode("<s>import").ids, skip_special=False)


@pytest.mark.parametrize("kind", KINDS)
def test_training_twice_gives_the_same_file(kind: str) -> None:
    runs = {json_of(train_tokenizer(kind, TEXTS, SIZES[kind])) for _ in range(4)}
    assert len(runs) == 1


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_the_trainers_we_steady_are_not_steady_alone(kind: str) -> None:
    """When this fails, what we do about it can go."""
    runs = set()
    for _ in range(8):
        backend = tokenizers.Tokenizer(models.WordPiece() if kind == "wordpiece" else models.Unigram())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        maker = trainers.WordPieceTrainer if kind == "wordpiece" else trainers.UnigramTrainer
        trainer = maker(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
        backend.train_from_iterator(TEXTS, trainer)
        runs.add(backend.to_str())
    assert len(runs) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_the_texts_does_not_matter(kind: str) -> None:
    mixed = random.Random(1).sample(TEXTS, len(TEXTS))
    assert json_of(train_tokenizer(kind, mixed, SIZES[kind], special=MARKS)) == json_of(trained(kind))


@pytest.mark.parametrize("kind", ["bytes", "chars", "words"])
def test_how_the_text_is_cut_does_not_matter(kind: str) -> None:
    lines = [line for text in TEXTS for line in text.splitlines(keepends=True)]
    for texts in (lines, ["\n".join(TEXTS)]):
        assert json_of(train_tokenizer(kind, texts, SIZES[kind], special=MARKS)) == json_of(trained(kind))
    with_halves = [half for text in TEXTS for half in (text[:7], text[7:])]
    if kind != "words":  # a word ends with its text
        assert json_of(train_tokenizer(kind, with_halves, special=MARKS)) == json_of(trained(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_lower(kind: str) -> None:
    tokenizer = trained(kind, lower=True)
    assert tokenizer.encode("The IMPORT").ids == tokenizer.encode("the import").ids
    assert trained(kind).encode("The IMPORT").ids != trained(kind).encode("the import").ids
    assert not [piece for piece in tokens(tokenizer)[256:] if kind == "words" and piece != piece.lower()]


def test_lower_case_of_a_sigma_is_the_one_that_encoding_makes() -> None:
    for kind in ("chars", "words"):
        tokenizer = train_tokenizer(kind, ["ΟΔΟΣ"], lower=True)
        assert tokenizer.special["unk"] not in tokenizer.encode("ΟΔΟΣ").ids


# Exact kinds


@pytest.mark.parametrize("kind", ["bytes", "bpe", "unigram"])
@settings(max_examples=150, deadline=None)
@given(text=ANY)
def test_any_text_comes_back(kind: str, text: str) -> None:
    tokenizer = trained(kind, special=())
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


@pytest.mark.parametrize("kind", ["bytes", "bpe", "unigram"])
@pytest.mark.parametrize("text", [*TRICKY, "".join(map(chr, range(0x800))), "".join(TEXTS)])
def test_tricky_text_comes_back(kind: str, text: str) -> None:
    tokenizer = trained(kind)
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    marked = f"<s>{text}</s>"
    assert tokenizer.decode(tokenizer.encode(marked).ids) == text
    assert tokenizer.decode(tokenizer.encode(marked).ids, skip_special=False) == marked


@settings(max_examples=100, deadline=None)
@given(text=ANY)
def test_the_id_of_a_byte_is_the_byte(text: str) -> None:
    tokenizer = trained("bytes", special=())
    assert tokenizer.encode(text).ids == list(text.encode())


def test_bytes_need_no_text() -> None:
    assert train_tokenizer("bytes", []).vocab_size == 256
    assert train_tokenizer("bytes", iter(()), special=("<s>",)).special == {"bos": 256}


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_all_bytes_are_tokens_even_at_the_smallest_size(kind: str) -> None:
    tokenizer = train_tokenizer(kind, ["ab" * 50, " "], 258, special=("<s>", "</s>"))
    assert set(tokens(tokenizer)) == {*pre_tokenizers.ByteLevel.alphabet(), "<s>", "</s>"}
    assert tokenizer.decode(tokenizer.encode("数字 ab").ids) == "数字 ab"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_pieces_are_learned_and_used(kind: str) -> None:
    tokenizer = trained(kind)
    assert len(tokenizer.encode(TOPICS[0]).ids) < 0.5 * len(TOPICS[0].encode())


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_little_text_gives_fewer_tokens(kind: str) -> None:
    assert 256 < train_tokenizer(kind, [PIPER] * 3, 5000).vocab_size < 400


# Kinds with unknowns


def test_chars() -> None:
    tokenizer = train_tokenizer("chars", ["hello\n", "héllo"], special=("<s>",))
    assert tokens(tokenizer) == ["<unk>", "<s>", "\n", "e", "h", "l", "o", "é"]
    assert tokenizer.encode("hole").ids == [4, 6, 5, 3]
    assert tokenizer.encode("hxyé").ids == [4, 0, 0, 7]
    assert tokenizer.decode([4, 0, 0, 7]) == "h<unk><unk>é"
    assert tokenizer.encode("<s>h<unk>").ids == [1, 4, 0]
    text = "".join(TEXTS)
    assert trained("chars").decode(trained("chars").encode(text).ids) == text


def test_words() -> None:
    tokenizer = train_tokenizer("words", ["b a\nc  b", "c\tb <unk> <unk> <unk> N <eos>"], 5, special=("<eos>",))
    assert tokens(tokenizer) == ["<unk>", "<eos>", "b", "c", "N"]  # of equals, the smaller code point
    assert tokenizer.encode(" b  z <unk>\nc <eos>").ids == [2, 0, 0, 3, 1]
    assert tokenizer.decode([2, 0, 0, 3]) == "b <unk> <unk> c"
    assert tokenizer.decode([2, 1, 3], skip_special=False) == "b <eos> c"


@settings(max_examples=100, deadline=None)
@given(text=ANY)
def test_every_word_and_character_of_the_text_is_known(text: str) -> None:
    text = text.replace("<unk>", "")
    for kind in ("chars", "words"):
        if text and (kind == "chars" or vocabulary.WORD.search(text)):
            tokenizer = train_tokenizer(kind, [text])
            assert 0 not in tokenizer.encode(text).ids
            assert len(set(tokenizer.encode(text).ids)) == tokenizer.vocab_size - 1


def test_word_piece_has_the_template_of_bert() -> None:
    tokenizer = trained("wordpiece")
    assert tokenizer.special.keys() >= {"pad", "unk", "cls", "sep", "mask"}
    one, two = tokenizer.encode("the statement"), tokenizer.encode("the statement", "imports")
    pieces = tokenizer.pieces(two.ids)
    assert tokenizer.pieces(one.ids) == ["[CLS]", "the", "statement", "[SEP]"]
    assert pieces[: len(one.ids)] == tokenizer.pieces(one.ids) and pieces[-1] == "[SEP]"
    assert two.token_type_ids == [0] * len(one.ids) + [1] * (len(pieces) - len(one.ids))
    assert tokenizer.decode(one.ids) == "the statement"
    assert tokenizer.pieces(tokenizer.encode("the ☃", special=False).ids) == ["the", "[UNK]"]
    assert tokenizer.encode("[MASK]", special=False).ids == [tokenizer.special["mask"]]
    assert [piece for piece in tokens(tokenizer) if piece.startswith("##") and len(piece) > 3]


@settings(max_examples=150, deadline=None)
@given(text=ANY, lower=st.booleans())
def test_words_are_counted_as_bert_splits_a_whole_text(text: str, lower: bool) -> None:
    whole = normalizers.BertNormalizer(lowercase=lower).normalize_str(text)
    expected = Counter(word for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(whole))
    if not expected:
        with pytest.raises(DataError):
            train_tokenizer("wordpiece", [text], 10_000, lower=lower)
    else:
        known = tokens(train_tokenizer("wordpiece", [text], 10_000, lower=lower))
        assert not [word for word in expected if word not in known]  # a big vocabulary ends in whole words


# Byte pair encoding, fast and slow


def test_merges_of_the_tongue_twister() -> None:
    tokenizer = train_tokenizer("bpe", [PIPER], 256 + 6)
    steps = [" ".join(pieces) for pieces in merge_steps(tokenizer, " pickled peppers")]
    assert steps == [
        "Ġ p i c k l e d Ġ p e p p e r s",
        "Ġ p i c k l e d Ġ pe p p e r s",
        "Ġ p i c k l e d Ġ pe p pe r s",
        "Ġ p i ck l e d Ġ pe p pe r s",
        "Ġ p i ck l ed Ġ pe p pe r s",
        "Ġ p ick l ed Ġ pe p pe r s",
        "Ġ pick l ed Ġ pe p pe r s",
        "Ġ pick l ed Ġpe p pe r s",
    ]


def test_no_merge_crosses_into_a_token_that_begins_with_white_space() -> None:
    spelled = {token for token in tokens(trained("bpe", special=())) if len(token) > 1}
    for token in spelled:
        rest = token.lstrip("ĠĊĉčĈċ")
        assert not set(rest) & set("ĠĊĉč"), token


@settings(max_examples=200, deadline=None)
@given(word=st.one_of(ANY, st.sampled_from(" ".join(TOPICS[:3]).split(" "))))
def test_merge_steps_end_where_encode_does(word: str) -> None:
    tokenizer = trained("bpe", lower=True, special=())
    steps = merge_steps(tokenizer, word)
    assert steps[-1] == tokenizer.pieces(tokenizer.encode(word).ids)
    assert all(len(piece) == 1 for piece in steps[0])
    for before, after in pairwise(steps):
        assert len(after) == len(before) - 1 and "".join(after) == "".join(before)


def test_merge_steps_refuses_what_merges_do_not_explain() -> None:
    for kind, named in {"unigram": "Unigram", "words": "WordLevel", "wordpiece": "WordPiece"}.items():
        with pytest.raises(ConfigError, match=named):
            merge_steps(trained(kind), "word")
    for kind in ("bytes", "chars"):
        with pytest.raises(ConfigError, match="without merges"):
            merge_steps(trained(kind), "word")
    with pytest.raises(DataError, match="special"):
        merge_steps(trained("bpe"), "a<s>b")


def fast_merges(words: dict[str, int], merges: int) -> list[tuple[str, str]]:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(vocab_size=len(set("".join(words))) + merges, show_progress=False)
    backend.train_from_iterator([" ".join([w] * n) for w, n in words.items()], trainer)
    return [tuple(pair) for pair in json.loads(backend.to_str())["model"]["merges"]]


@settings(max_examples=150, deadline=None)
@given(words=st.dictionaries(st.text("abcd", min_size=1, max_size=8), st.integers(1, 5), min_size=1, max_size=12))
def test_the_slow_twin_learns_the_same_merges(words: dict[str, int]) -> None:
    fast = fast_merges(words, 30)
    assert reference_merges(words, len(fast)) == fast


def test_the_slow_twin_learns_what_the_product_learns() -> None:
    text = TOPICS[0][:4000]
    split = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)
    product = json.loads(json_of(train_tokenizer("bpe", [text], 256 + 200)))["model"]["merges"]
    assert reference_merges(Counter(word for word, _ in split), 200) == [tuple(pair) for pair in product]


def test_the_slow_twin_by_hand() -> None:
    by_hand = [("e", "s"), ("es", "t"), ("l", "o"), ("lo", "w")]
    assert reference_merges({"low": 5, "lower": 2, "newest": 6, "widest": 3}, 4) == by_hand
    assert reference_merges({"aaaa": 1}, 9) == [("a", "a"), ("aa", "aa")]
    assert reference_merges({"ba": 1, "ab": 1}, 1) == [("a", "b")]
    assert reference_merges({}, 3) == []


# Streams and bad input


def test_texts_are_read_once_and_one_by_one() -> None:
    for kind in set(KINDS) - {"bytes"}:
        alive = 0

        def stream() -> Iterator[str]:
            nonlocal alive
            for text in TEXTS:
                alive += 1
                yield text

        assert json_of(train_tokenizer(kind, stream(), SIZES[kind], special=MARKS)) == json_of(trained(kind))
        assert alive == len(TEXTS)


def test_a_string_is_one_text() -> None:
    assert "ab" in tokens(train_tokenizer("words", "ab cd"))


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"bytes"}))
@pytest.mark.parametrize("texts", [[], ["", ""], "", [" \n", "\t"]])
def test_nothing_to_train_on(kind: str, texts: list[str]) -> None:
    if " \n" in texts and kind not in ("words", "wordpiece"):
        return  # the other kinds learn white space
    with pytest.raises(DataError) as caught:
        train_tokenizer(kind, texts, SIZES[kind])
    assert caught.value.code == "D002"


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"bytes"}))
def test_half_a_surrogate_pair_names_its_text(kind: str) -> None:
    with pytest.raises(DataError, match="character 1 of text 2"):
        train_tokenizer(kind, ["fine", "a\ud800"], SIZES[kind])


@pytest.mark.parametrize(
    ("kind", "size", "special", "message"),
    [
        ("bpee", 300, (), 'did you mean "bpe"'),
        ("bytes", 300, (), "data.vocab = 300"),
        ("chars", 300, (), "data.vocab = 300"),
        ("words", -1, (), "data.vocab = -1"),
        ("words", 1, (), "1 special tokens needs 2"),
        ("bpe", 0, (), "data.vocab = 0"),
        ("bpe", 257, ("<a>", "<b>"), "2 special tokens needs 258"),
        ("unigram", 255, (), "needs 256"),
        ("wordpiece", 5, (), "needs 6"),
        ("wordpiece", 20, (), "need 1"),
        ("bpe", 300, ("a",), "'a' is not two"),
        ("bytes", 0, ("<é>",), "'<é>' is not two"),
        ("words", 0, ("<a b>",), "'<a b>' is not two"),
    ],
)
def test_impossible_settings(kind: str, size: int, special: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        train_tokenizer(kind, TEXTS, size, special=special)
    assert caught.value.code == "C003" and message in caught.value.message


def test_an_error_of_the_reader_comes_through() -> None:
    def stream() -> Iterator[str]:
        yield "some text"
        raise DataError("D001", "line 7 is broken")

    for kind in set(KINDS) - {"bytes"}:
        with pytest.raises(DataError, match="line 7"):
            train_tokenizer(kind, stream(), SIZES[kind])


def test_importing_loads_neither_torch_nor_tokenizers() -> None:
    code = "import sys, headway.data.tokenizers.train; print({'torch', 'tokenizers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# --- long words ----------------------------------------------------------------------------------

CLASSES = ("a", "ab", "é", "数", "7", "1½", "-", "-_", "\x1c-", " ", "\n ", "a7", "e\u0301")


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(CLASSES), st.integers(1, 3000)), max_size=6))
def test_no_word_is_learned_from_beyond_the_limit(runs: list[tuple[str, int]]) -> None:
    """All of a text is in its parts, and no word that a byte-level trainer sees in them is longer than the limit."""
    text = "".join(run * times for run, times in runs)
    parts = list(vocabulary._parts([text]))
    assert "".join(parts) == text and len(parts) <= 1 + len(text) // vocabulary.WORD_LIMIT
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for part in parts:
        for _, (start, end) in split.pre_tokenize_str(part):
            assert end - start <= vocabulary.WORD_LIMIT + 1  # and the space before it


def test_ordinary_texts_are_learned_from_as_they_are() -> None:
    texts = [*pydoc_data.topics.topics.values(), "", "数字。" * 2000, "=" * 80 + "\n" + "x" * 999]
    assert list(vocabulary._parts(texts)) == texts


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram", "words"])
@pytest.mark.parametrize("letters", ["a", "abcdefghijklmnop"])
def test_one_long_word_does_not_hold_up_training(kind: str, letters: str, tmp_path: Path) -> None:
    """Trainers take the square of a word's length; what is learned can be saved and read again."""
    word = "".join(random.Random(0).choices(letters, k=20_000 if kind == "unigram" else 150_000))
    sizes = {"bpe": 600, "wordpiece": 600, "unigram": 600}
    start = time.process_time()
    made = train_tokenizer(kind, ["the cat sat on the mat " * 20, word, f"x {word} y"], sizes.get(kind, 0))
    assert time.process_time() - start < 15
    made.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert again.ids([word, "the cat"]) == made.ids([word, "the cat"])
    if kind in ("bpe", "unigram"):
        assert again.decode(again.ids([word])[0]) == word


def test_ids_are_shown_by_their_texts_or_by_the_vocabularys_spelling() -> None:
    made = train_tokenizer("bytes", ["a b"], 0)
    half = made.ids(["é"])[0][:1]
    assert made.shown(made.ids(["a b"])[0]) == ["a", " ", "b"]
    assert made.shown(half) == made.pieces(half) and "\ufffd" not in made.shown(half)[0]
