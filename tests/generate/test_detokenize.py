"""Streamed text: joined it is the whole text, characters come whole, stop strings never show."""

from __future__ import annotations

from functools import cache

import pytest
import tokenizers as tk
from hypothesis import example, given
from hypothesis import strategies as st

from headway.data.tokenizers.tokenizer import Tokenizer
from headway.data.tokenizers.train import train_tokenizer
from headway.generate.detokenize import HALF, TextStream, spelling

TEXTS = ["the quick brown fox, don't jump over the lazy dog. été 東京 😀 naïve", "a b c  d\n\te"]
KINDS = {"bytes": 0, "chars": 0, "words": 0, "bpe": 290, "wordpiece": 120, "unigram": 290, "sentencepiece": 0}


@cache
def tokenizer(kind: str) -> Tokenizer:
    if kind != "sentencepiece":
        return train_tokenizer(kind, TEXTS, KINDS[kind], special=("<eos>",))
    # Llama's rules: spaces as ▁, unknown characters as bytes, the first space dropped
    words = ["▁", "▁the", "▁fox", "quick", "é", "."]
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *words]
    backend = tk.Tokenizer(tk.models.BPE({p: i for i, p in enumerate(pieces)}, [], byte_fallback=True))
    strip = tk.decoders.Strip(" ", 1, 0)
    backend.decoder = tk.decoders.Sequence(
        [tk.decoders.Replace("▁", " "), tk.decoders.ByteFallback(), tk.decoders.Fuse(), strip]
    )
    return Tokenizer(backend)


def streamed(kind: str, ids: list[int], stops: tuple[str, ...] = (), context: list[int] | None = None) -> list[str]:
    stream = TextStream(tokenizer(kind), stops, context or [])
    pieces = []
    for token in ids:
        pieces.append(stream.push(token))
        if stream.stopped:
            return pieces
    return [*pieces, stream.close()]


def written(kind: str) -> st.SearchStrategy[list[int]]:
    """Tokens of some text, so that characters of several bytes come up, with any tokens between."""
    made = tokenizer(kind)
    word = st.sampled_from([*TEXTS[0].split(), *TEXTS[1].split(" "), "<eos>", " "])
    real = word.map(lambda w: made.encode(w, special=False).ids)
    anything = st.lists(st.integers(0, made.vocab_size - 1), max_size=2)
    return st.lists(st.one_of(real, anything), max_size=6).map(lambda parts: [i for part in parts for i in part])


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "sentencepiece"])
@given(st.data())
def test_pieces_make_the_whole_text(kind: str, data: st.DataObject) -> None:
    ids, context = data.draw(written(kind)), data.draw(written(kind))
    pieces = streamed(kind, ids)
    assert "".join(pieces) == tokenizer(kind).decode(ids).rstrip(HALF)
    after = "".join(streamed(kind, ids, context=context))
    before = tokenizer(kind).decode(context).rstrip(HALF)
    assert (before + after).rstrip(HALF) == tokenizer(kind).decode([*context, *ids]).rstrip(HALF)


@given(st.lists(st.sampled_from(["the", "fox", "quick", "é", "東", "😀", ".", " "]), max_size=8))
def test_bytes_of_sentencepiece_wait_for_their_character(words: list[str]) -> None:
    made = tokenizer("sentencepiece")
    vocab = made.backend.get_vocab()
    ids: list[int] = []
    for word in words:
        name = {"the": "▁the", "fox": "▁fox", " ": "▁"}.get(word, word)
        ids += [vocab[name]] if name in vocab else [vocab[f"<0x{b:02X}>"] for b in word.encode()]
    assert "".join(streamed("sentencepiece", ids)) == made.decode(ids)
    assert not any(HALF in piece for piece in streamed("sentencepiece", ids))
    begun = [vocab["▁the"]]
    assert "the" + "".join(streamed("sentencepiece", ids, context=begun)) == made.decode(begun + ids)


def test_broken_bytes_do_not_stop_the_text() -> None:
    made = tokenizer("sentencepiece")
    ids = [3 + 0x41, 3 + 0xE2, made.backend.get_vocab()["▁fox"], made.backend.get_vocab()["▁the"]]
    assert "".join(streamed("sentencepiece", ids)).endswith(" fox the")


def test_a_character_waits_for_its_bytes() -> None:
    assert streamed("bytes", [*"aé😀".encode()]) == ["a", "", "é", "", "", "", "😀", ""]
    assert streamed("bytes", [*"😀".encode()][:3]) == ["", "", "", ""]
    assert streamed("bytes", [0xA9, 0x62], context=[0x61, 0xC3]) == ["é", "b", ""]


def test_only_the_last_tokens_are_decoded_again() -> None:
    class Counting:
        most = 0

        def decode(self, ids: list[int]) -> str:
            self.most = max(self.most, len(ids))
            return tokenizer("bytes").decode(ids)

    counting = Counting()
    stream = TextStream(counting, context=[*b"prompt"])
    assert "".join(stream.push(b) for b in b"x" * 500) == "x" * 500
    assert counting.most == len(b"prompt") + 1


def slow_stop(text: str, stops: tuple[str, ...]) -> str:
    """Character by character: the first place where any stop string is complete, and the longest that is."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)]
    return text


letters = st.text("abé", max_size=14)


@given(letters, st.lists(st.text("abé", min_size=1, max_size=4), max_size=3).map(tuple))
@example("aab", ("ab", "aabb"))
@example("abb", ("abba", "bb"))
def test_stop_strings(text: str, stops: tuple[str, ...]) -> None:
    pieces = streamed("bytes", [*text.encode()], stops)
    assert "".join(pieces) == slow_stop(text, stops)
    shown = ""
    for piece in pieces[:-1]:
        shown += piece  # whatever was shown is right, whatever comes
        assert slow_stop(text, stops).startswith(shown)


@given(letters, st.lists(st.text("abé", min_size=1, max_size=4), max_size=3).map(tuple), st.data())
def test_stop_strings_do_not_depend_on_tokens(text: str, stops: tuple[str, ...], data: st.DataObject) -> None:
    class Anyhow:
        """Tokens are pieces of the text, cut anyhow."""

        def decode(self, ids: list[int]) -> str:
            return "".join(parts[i] for i in ids)

    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=4)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    stream, shown = TextStream(Anyhow(), stops), ""
    for i in range(len(parts)):
        if not stream.stopped:
            shown += stream.push(i)
    assert shown + stream.close() == slow_stop(text, stops)
    assert stream.stopped == any(stop in text for stop in stops)


def test_text_is_held_only_as_long_as_it_may_stop() -> None:
    assert streamed("bytes", [*b"abcabd"], ("abd",)) == ["", "", "abc", "", "", ""]
    assert streamed("bytes", [*b"abx"], ("abd",)) == ["", "", "abx", ""]
    assert streamed("bytes", [*b"xab"], ("abd",)) == ["x", "", "", "ab"]


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_tokens_are_spelled_as_the_tokenizer_decodes_them(kind: str) -> None:
    """One by one and when first asked for: decoding a whole vocabulary takes longer than a first token."""
    found, whole = spelling(tokenizer(kind)), tokenizer(kind)
    assert found is not None
    for token in (*range(whole.vocab_size), whole.vocab_size, -1):
        text = "" if token < 0 else whole.decode([token])
        assert found[token].decode("utf-8", "replace") == text, token
    assert spelling(tokenizer("words")) is None
