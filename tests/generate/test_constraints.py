"""Words that must not appear do not, and those that must do, in the best text that has them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.config import SpecialTokens
from headway.data.vocabulary import train_tokenizer
from headway.errors import ConfigError, DataError
from headway.generate.beam import Beam, beam_search
from headway.generate.constraints import banned_words, search_with, spellings
from headway.generate.decode import Sampling, decode
from headway.generate.protocol import Source
from headway.generate.score import score
from tests.generate.conftest import Facts, Recurrent

EOS = 0
Words = list[list[tuple[int, ...]]]


def recurrent(seed: int, vocab: int = 4) -> Recurrent:
    return Recurrent(vocab, facts=Facts(special=SpecialTokens(eos=EOS, start=1)), seed=seed)


def has(tokens: list[int] | tuple[int, ...], words: Words) -> bool:
    def inside(spelling: tuple[int, ...]) -> bool:
        return any(tuple(tokens[i : i + len(spelling)]) == spelling for i in range(len(tokens)))

    return all(any(inside(spelling) for spelling in word) for word in words)


longer = st.lists(st.lists(st.integers(1, 19), min_size=1, max_size=4).map(tuple), min_size=1, max_size=2)
word = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=2).map(tuple), min_size=1, max_size=2)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.lists(word, min_size=1, max_size=2), st.sampled_from([0.0, 1.0, 2.0]))
def test_wide_enough_it_finds_the_best_text_with_the_words(seed: int, words: Words, penalty: float) -> None:
    model = recurrent(seed)
    texts = [(*body, EOS) for n in range(5) for body in product(range(1, 4), repeat=n)]
    texts += list(product(range(1, 4), repeat=5))
    texts = [text for text in texts if has(text, words)]
    scores = score(model, [[1, *text] for text in texts], [1] * len(texts))
    worth = {text: float(s.sum()) / len(text) ** penalty for text, s in zip(texts, scores, strict=True)}
    beam = Beam(width=400, n_best=3, length_penalty=penalty, max_tokens=5)
    found = search_with(model, words, beam, [1])
    best = sorted(worth, key=lambda text: -worth[text])[:3]
    assert [tuple(h.tokens) for h in found] == best
    assert [h.score for h in found] == pytest.approx([worth[text] for text in best], abs=1e-4)


@settings(max_examples=40)
@given(
    st.integers(0, 10**6),
    st.lists(longer, max_size=3),
    st.integers(1, 6),
    st.booleans(),
)
def test_the_words_always_come_if_there_is_room(seed: int, words: Words, width: int, early: bool) -> None:
    """Even with one beam, and exactly as much room as they take."""
    room = max(1, sum(min(len(spelling) for spelling in word) for word in words))
    found = search_with(recurrent(seed, 20), words, Beam(width=width, max_tokens=room, early=early), [1])
    assert found and has(found[0].tokens, words)


def bank_of(text: list[int], words: Words) -> int:
    """Tokens of words that a text has, and of the one it is nearest to having, by the shortest spelling of each."""
    bank, nearest = 0, 0
    for word in words:
        shortest = min(len(spelling) for spelling in word)
        if has(text, [word]):
            bank += shortest
        else:
            begun = [max(n for n in range(len(s)) if n == 0 or tuple(text[-n:]) == s[:n]) for s in word]
            left = min(len(s) - n for s, n in zip(word, begun, strict=True))
            nearest = max(nearest, shortest - left)
    return bank + nearest


def nearer(text: list[int], token: int, words: Words) -> bool:
    """Whether a token goes on with a spelling of a word that is missing, from as far as the text has come with it."""
    for spelling in (s for word in words if not has(text, [word]) for s in word):
        begun = max(n for n in range(len(spelling)) if n == 0 or tuple(text[-n:]) == spelling[:n])
        if spelling[begun] == token:
            return True
    return False


def twin(model: Recurrent, words: Words, beam: Beam) -> list[tuple[float, list[int]]]:
    """The search with lists and for one end token, every text scored from its beginning."""
    beams, ended = [(0.0, list[int]())], list[tuple[float, list[int]]]()
    for step in range(beam.max_tokens):
        grown = []
        for score_, text in beams:
            with torch.no_grad():
                logp = model.step(model.start(capacity=9), torch.tensor([[1, *text]])).log_softmax(-1)[0].tolist()
            grown.append([(score_ + p, [*text, t], nearer(text, t, words)) for t, p in enumerate(logp)])
        likeliest = sorted((c for own in grown for c in own), key=lambda c: -c[0])[: 2 * beam.width]
        chosen = {tuple(c[1]): c for c in likeliest}
        chosen |= {tuple(c[1]): c for own in grown for c in own if c[2] or c == max(own)}
        over = [c for c in chosen.values() if c[1][-1] == EOS or step + 1 == beam.max_tokens]
        ended += [(c[0] / (step + 1) ** beam.length_penalty, c[1]) for c in over if has(c[1], words)]
        ended = sorted(ended, reverse=True)[: beam.width]
        banks: dict[int, list[tuple[float, list[int]]]] = {}
        for c in sorted(chosen.values(), reverse=True):
            if c not in over:
                banks.setdefault(bank_of(c[1], words), []).append(c[:2])
        beams = []
        while len(beams) < beam.width and any(banks.values()):
            beams += [banks[b].pop(0) for b in sorted(banks, reverse=True) if banks[b]]
        beams = beams[: beam.width]
        if len(ended) == beam.width:
            best = max((b[0] for b in beams), default=-1e9) / (step + 1) ** beam.length_penalty
            if beam.early or best <= ended[-1][0]:
                break
    return ended[: beam.n_best]


@settings(max_examples=40)
@given(
    st.integers(0, 10**6),
    st.lists(word, max_size=2),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from([0.0, 1.0, 2.0]),
)
def test_beams_are_dealt_out_and_ended_by_the_rules(
    seed: int, words: Words, width: int, early: bool, penalty: float
) -> None:
    model = recurrent(seed, 6)
    beam = Beam(width=width, n_best=width, early=early, length_penalty=penalty, max_tokens=8)
    found, slow = search_with(model, words, beam, [1]), twin(model, words, beam)
    assert [h.tokens for h in found] == [text for _, text in slow]
    assert [h.score for h in found] == pytest.approx([score_ for score_, _ in slow], abs=1e-4)


def test_without_words_it_is_beam_search() -> None:
    for seed in range(10):
        model = recurrent(seed, 12)
        for beam in (
            Beam(width=5, n_best=5, max_tokens=6, eos=()),
            Beam(width=3, max_tokens=6, eos=(), first=3, last=4),
        ):
            plain, held = beam_search(model, beam, [[1, 5]])[0], search_with(model, [], beam, [1, 5])
            assert [h.tokens for h in plain] == [h.tokens for h in held]
            assert [h.score for h in plain] == pytest.approx([h.score for h in held], abs=1e-4)


def test_a_narrow_beam_finds_good_texts_with_an_unlikely_word() -> None:
    """The score is the text's own, every hypothesis has the word, and a wider beam finds no worse ones."""
    model, words = recurrent(1, 20), [[(7, 13)], [(4,)]]
    best = []
    for width in (1, 4, 16):
        beam = Beam(width=width, n_best=min(width, 4), max_tokens=10)
        found = search_with(model, words, beam, [1])
        assert all(has(h.tokens, words) for h in found)
        for hypothesis in found:
            exact = float(score(model, [[1, *hypothesis.tokens]], [1])[0].sum())
            assert hypothesis.score == pytest.approx(exact / len(hypothesis.tokens), abs=1e-4)
        best.append(found[0].score)
    assert best[0] <= best[1] <= best[2] and best[0] < best[2]


def test_words_for_an_encoder_decoder_and_banned_ones() -> None:
    model = recurrent(2, 20)
    source = Source(torch.tensor([[4, 5, 6]]))
    beam = Beam(width=4, n_best=4, max_tokens=8, eos=())
    found = search_with(model, [[(9, 9)]], replace(beam, banned=((3,), (5, 6))), source=source)
    assert all(has(h.tokens, [[(9, 9)]]) and not has(h.tokens, [[(3,), (5, 6)]]) for h in found)
    other = search_with(model, [[(9, 9)]], beam, [1], source=Source(torch.tensor([[7, 8, 9]])))
    assert other != search_with(model, [[(9, 9)]], beam, source=source)


def test_spellings_of_a_word() -> None:
    tokenizer = train_tokenizer("bpe", ["the fox the fox fox"], 280)
    plain, spaced = tokenizer.encode("fox", special=False).ids, tokenizer.encode(" fox", special=False).ids
    assert plain != spaced and set(spellings(tokenizer, "fox")) == {tuple(plain), tuple(spaced)}
    assert set(banned_words(tokenizer, ["fox", "fox", "the"])) == {
        *spellings(tokenizer, "fox"),
        *spellings(tokenizer, "the"),
    }
    assert spellings(train_tokenizer("words", ["a fox"]), "fox") == ((2,),)
    with pytest.raises(DataError, match="no token for ''"):
        spellings(tokenizer, "")


def test_banned_words_are_not_written() -> None:
    tokenizer = train_tokenizer("bytes", [])
    model = Recurrent(256)
    with torch.no_grad():  # a model of few letters, so that words come by chance
        model.lm.bias += 20 * torch.tensor([chr(b) in "ab " for b in range(256)])
    free = Sampling(max_tokens=40, temperature=2.0)
    how = [replace(free, seed=s, banned=banned_words(tokenizer, ["ab", "bba"]) if s < 8 else ()) for s in range(16)]
    texts = [""] * 16
    for piece in decode(model, [[65]] * 16, how, tokenizer=tokenizer):
        texts[piece.row] += piece.text
    assert not any("ab" in text or "bba" in text for text in texts[:8])
    assert all("ab" in text for text in texts[8:])


def test_what_cannot_be_held_to() -> None:
    model = recurrent(0)
    for words, beam, match in (
        ([[(1, 2, 3)], [(2, 2)]], Beam(max_tokens=4), "the words take 5 tokens, and 4 may be written"),
        ([[(1, 2, 3)]], Beam(max_tokens=4, first=1, last=0), "the words take 5 tokens"),
        ([[(1,)], []], Beam(), "word 1 has no tokens"),
        ([[(1,), ()]], Beam(), "word 0 has no tokens"),
        ([[(3,)]], Beam(banned=((3,),)), "no text of 128 tokens or less was found"),
    ):
        with pytest.raises(DataError, match=match):
            search_with(model, words, beam, [1])
    with pytest.raises(ConfigError, match="groups = 2"):
        search_with(model, [], Beam(groups=2), [1])
