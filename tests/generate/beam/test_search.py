"""Beam search: exhaustive where it can be, greedy at width 1, the same for every batch, diverse by a plain twin."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import product

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from headway.config.model import SpecialTokens
from headway.errors import ConfigError, DataError
from headway.generate.beam.search import Beam, Hypothesis, beam_search
from headway.generate.decode import Sampling, generate
from headway.generate.protocol import Source
from headway.generate.trace import Growth
from tests.generate.conftest import DecoderConfig, Recurrent, tiny_model

EOS = 0


def recurrent(seed: int, vocab: int = 12) -> Recurrent:
    return Recurrent(vocab, config=DecoderConfig(special=SpecialTokens(eos=EOS, start=1)), seed=seed)


@torch.no_grad()
def log_probabilities(model: Recurrent, text: Sequence[int]) -> list[float]:
    """Of every next token, the text read from its beginning."""
    state = model.start(capacity=len(text))
    found: list[float] = model.step(state, torch.tensor([list(text)])).log_softmax(-1)[0].tolist()
    return found


def texts(vocab: int, length: int) -> Iterator[tuple[int, ...]]:
    """Every text that can be: ended by EOS, or of full length."""
    for n in range(1, length + 1):
        for body in product(range(1, vocab), repeat=n - 1):
            yield (*body, EOS)
    yield from product(range(1, vocab), repeat=length)


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 1.0, 2.0, -1.0]))
def test_wide_enough_it_finds_the_best_text_there_is(seed: int, penalty: float) -> None:
    model = recurrent(seed, 4)
    after = {body: log_probabilities(model, [1, *body]) for n in range(4) for body in product(range(1, 4), repeat=n)}
    worth = {}
    for text in texts(4, 4):
        total = sum(after[text[:i]][token] for i, token in enumerate(text))
        worth[text] = total / len(text) ** penalty
    beam = Beam(width=150, n_best=5, length_penalty=penalty, max_tokens=4)
    found = beam_search(model, beam, [[1]])[0]
    best = sorted(worth, key=lambda text: -worth[text])[:5]
    assert [tuple(h.tokens) for h in found] == best
    assert [h.score for h in found] == pytest.approx([worth[text] for text in best], abs=1e-4)


def test_there_are_no_more_texts_than_there_are() -> None:
    found = beam_search(recurrent(0, 4), Beam(width=150, n_best=150, max_tokens=2), [[1]])[0]
    assert sorted(tuple(h.tokens) for h in found) == sorted(texts(4, 2))


@pytest.mark.parametrize("early", [False, True])
def test_width_1_is_greedy(early: bool) -> None:
    for seed in range(20):
        model, beam = recurrent(seed), Beam(width=1, max_tokens=9, early=early, length_penalty=3.0)
        for prompt in ([3], [4, 5]):
            greedy = list(generate(model, prompt, 9, Sampling(temperature=0)))
            found = beam_search(model, beam, [prompt])[0][0].tokens
            assert found == greedy or found == [*greedy, EOS]
            assert len(found) == 9 or found[-1] == EOS
    model = tiny_model()
    found = beam_search(model, Beam(width=1, max_tokens=12), [[1, 2]])[0][0].tokens
    assert found == list(generate(model, [1, 2], 12, Sampling(temperature=0)))


def close(a: list[Hypothesis], b: list[Hypothesis]) -> bool:
    same = [h.tokens for h in a] == [h.tokens for h in b]
    return same and [h.score for h in a] == pytest.approx([h.score for h in b], abs=1e-4)


BEAMS = {
    "plain": Beam(width=4, n_best=4, max_tokens=12),
    "early": Beam(width=4, n_best=3, max_tokens=12, early=True, length_penalty=0.4),
    "diverse": Beam(width=6, n_best=6, max_tokens=8, groups=3, diversity=1.0),
    "forced": Beam(width=3, n_best=3, max_tokens=7, first=5, last=EOS, banned=((4,), (3, 3))),
    "unrepeated": Beam(width=3, n_best=3, max_tokens=9, no_repeat=2, min_tokens=4, banned=((4, 5, 6),)),
}


@pytest.mark.parametrize("name", BEAMS)
@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
def test_the_batch_changes_nothing(kind: str, name: str) -> None:
    """Prompts of 1 to 9 tokens with room for 12, so that each has another limit."""
    special = SpecialTokens(eos=EOS)
    model = (
        tiny_model(12, 12, 16, depth=1) if kind == "transformer" else Recurrent(12, config=DecoderConfig(12, special))
    )
    beam = replace(BEAMS[name], eos=(EOS,))
    generator = torch.Generator().manual_seed(1)
    sizes = (1, 9, 3, 3, 6, 2)
    prompts = [torch.randint(1, 12, (n,), generator=generator).tolist() for n in sizes]
    alone = [beam_search(model, beam, [prompt])[0] for prompt in prompts]
    together = beam_search(model, beam, prompts)
    assert all(close(a, b) for a, b in zip(alone, together, strict=True))
    lengths = [max(len(h.tokens) for h in found) for found in alone]
    assert all(n <= min(beam.max_tokens, 13 - size) for n, size in zip(lengths, sizes, strict=True))
    assert len(set(lengths)) > 1 or name == "diverse"


def test_an_encoder_reads_each_input_once() -> None:
    model = recurrent(3)
    inputs = torch.tensor([[4, 5, 6], [7, 8, 0], [9, 0, 0]])
    attention_mask = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
    together = beam_search(model, BEAMS["plain"], source=Source(inputs, attention_mask))
    for row in range(3):
        alone = beam_search(model, BEAMS["plain"], [[1]], source=Source(inputs[row : row + 1, : 3 - row]))[0]
        assert close(alone, together[row])
    assert together[0] != together[1]


def twin(model: Recurrent, beam: Beam, prompt: list[int]) -> list[tuple[float, list[int]]]:
    """Diverse beam search with lists, one group after the other, everything read from the beginning each time."""
    size, ends = beam.width // beam.groups, beam.eos or (EOS,)
    running: list[list[tuple[float, list[int]]]] = [[(0.0, [])] for _ in range(beam.groups)]
    ended: list[list[tuple[float, list[int]]]] = [[] for _ in range(beam.groups)]
    going = [True] * beam.groups
    for step in range(beam.max_tokens):
        taken: list[int] = []
        for g in range(beam.groups):
            candidates = []
            for score, text in running[g]:
                for token, logp in enumerate(log_probabilities(model, prompt + text)):
                    lowered = score + logp - beam.diversity * taken.count(token)
                    candidates.append((lowered, score + logp, [*text, token]))
            candidates = sorted(candidates, key=lambda c: -c[0])[: (1 + len(ends)) * size]
            running[g] = []
            for place, (_, score, text) in enumerate(candidates):
                if text[-1] in ends or step + 1 == beam.max_tokens:
                    if place < size and going[g]:
                        ended[g].append((score / (step + 1) ** beam.length_penalty, text))
                elif len(running[g]) < size:
                    running[g].append((score, text))
            ended[g] = sorted(ended[g], key=lambda e: -e[0])[:size]
            best = max((score for score, _ in running[g]), default=-math.inf) / (step + 1) ** beam.length_penalty
            if len(ended[g]) == size and (beam.early or best <= ended[g][-1][0]):
                going[g] = False
            taken += [text[-1] for _, text in running[g]]
        if not any(going):
            break
    every = sorted((e for group in ended for e in group), key=lambda e: -e[0])
    return [e for i, e in enumerate(every) if e[1] not in [f[1] for f in every[:i]]][: beam.n_best]


@settings(max_examples=25)
@given(
    st.integers(0, 10**6),
    st.sampled_from([(4, 2), (6, 3), (3, 3), (4, 1)]),
    st.sampled_from([0.0, 0.5, 3.0]),
    st.booleans(),
    st.sampled_from([0.0, 1.0, 1.5]),
)
@example(0, (4, 2), 1.0, False, 1.0)  # the beam a group chose first is not its likeliest
@example(11, (6, 3), 3.0, False, 0.0)
def test_groups_avoid_each_other(
    seed: int, shape: tuple[int, int], diversity: float, early: bool, penalty: float
) -> None:
    width, groups = shape
    if groups == 1:
        diversity = 0.0
    beam = Beam(
        width=width, groups=groups, n_best=width, diversity=diversity, early=early, length_penalty=penalty, max_tokens=6
    )
    model = recurrent(seed, 7)
    found, slow = beam_search(model, beam, [[1, 2]])[0], twin(model, beam, [1, 2])
    assert [h.tokens for h in found] == [text for _, text in slow]
    assert [h.score for h in found] == pytest.approx([score for score, _ in slow], abs=1e-4)


def test_several_end_tokens_leave_enough_to_go_on() -> None:
    longest = 0
    for seed in range(12):
        model = recurrent(seed, 7)
        with torch.no_grad():
            model.lm.bias[[2, 3, 5]] += 2.0
        beam = Beam(width=3, n_best=3, max_tokens=6, eos=(2, 3, 5), length_penalty=3.0)
        found, slow = beam_search(model, beam, [[1]])[0], twin(model, beam, [1])
        assert [h.tokens for h in found] == [text for _, text in slow]
        longest = max(longest, *(len(h.tokens) for h in found))
    assert longest > 3
    many = Beam(width=3, n_best=3, max_tokens=4, eos=(0, 7, 8, 9, 10))  # more than there are tokens
    assert len(beam_search(recurrent(1, 4), many, [[1]])[0]) == 3


def test_diversity_makes_a_difference() -> None:
    beam = Beam(width=4, n_best=4, groups=4, max_tokens=5)
    firsts = [
        len({h.tokens[0] for h in beam_search(recurrent(5), replace(beam, diversity=d), [[1]])[0]}) for d in (0.0, 9.0)
    ]
    assert firsts == [1, 4]


def test_forced_and_banned_tokens() -> None:
    free = Beam(width=4, n_best=4, max_tokens=5, eos=())
    for seed in range(8):
        model = recurrent(seed)
        for hypothesis in beam_search(model, replace(free, first=7, last=8), [[1]])[0]:
            tokens = hypothesis.tokens
            assert (tokens[0], tokens[-1], len(tokens)) == (7, 8, 5)
            middle = sum(log_probabilities(model, [1, *tokens[:i]])[tokens[i]] for i in range(1, 4))
            assert hypothesis.score == pytest.approx(middle / 5, abs=1e-5)  # what is forced costs nothing
        best = beam_search(model, free, [[1]])[0][0].tokens
        bans = ((best[0],), (1, best[1]), (best[0], best[1], best[2]), (best[2], best[3]))
        for ban in bans:
            after = [[1, *h.tokens] for h in beam_search(model, replace(free, banned=(ban,)), [[1]])[0]]
            ends = range(2, 7)  # of new tokens; the prompt may be what it is
            assert not any(tuple(text[max(0, end - len(ban)) : end]) == ban for text in after for end in ends)


def repeats(text: list[int], size: int, begin: int) -> bool:
    """Whether tokens from `begin` on complete a row of so many that was there before."""
    rows = [tuple(text[i : i + size]) for i in range(len(text) - size + 1)]
    return any(row in rows[:i] for i, row in enumerate(rows) if i + size > begin)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_nothing_is_written_twice(size: int) -> None:
    free = Beam(width=4, n_best=4, max_tokens=8, eos=())
    prompts, seen = [[1, 2, 1], [5], [3, 4, 3, 4, 3, 4, 3]], 0
    for seed in range(12):
        model = recurrent(seed)
        plain = beam_search(model, free, prompts)
        held = beam_search(model, replace(free, no_repeat=size), prompts)
        for prompt, before, after in zip(prompts, plain, held, strict=True):
            seen += any(repeats(prompt + h.tokens, size, len(prompt)) for h in before)
            assert not any(repeats(prompt + h.tokens, size, len(prompt)) for h in after)
    assert seen > 12  # it was not for nothing


def test_no_end_before_its_time() -> None:
    lengths = []
    for seed in range(20):
        for least in (0, 3, 9):
            beam = Beam(width=4, n_best=4, max_tokens=6, eos=(EOS, 3), min_tokens=least)
            found = beam_search(recurrent(seed), beam, [[1], [2, 4]])
            tokens = [h.tokens for row in found for h in row]
            assert all(not {EOS, 3} & set(text[:least]) for text in tokens)
            assert all(text[-1] in (EOS, 3) or len(text) == 6 for text in tokens)
            lengths += [len(text) for text in tokens if least == 3]
    assert min(lengths) == 4  # three tokens, and then the end


def test_the_trace_is_the_tree_of_the_search() -> None:
    model, trace = recurrent(2), list[Growth]()
    beam = Beam(width=4, n_best=4, max_tokens=6, groups=2, diversity=0.3)
    plain = beam_search(model, beam, [[1], [4, 2]])
    assert beam_search(model, beam, [[1], [4, 2]], trace=trace) == plain
    json.dumps([asdict(growth) for growth in trace])
    for row, prompt in enumerate(([1], [4, 2])):
        beams: list[list[int]] = [[]] * 4
        ended = {}
        for step, growth in enumerate(g for g in trace if g.input == row):
            assert growth.step == step
            for branch in growth.ended:
                ended[(*beams[branch.parent], branch.token)] = branch.score
            beams = [[*beams[branch.parent], branch.token] for branch in growth.beams]
            for text, branch in zip(beams, growth.beams, strict=True):
                total = sum(log_probabilities(model, [*prompt, *text[:i]])[token] for i, token in enumerate(text))
                assert branch.score == pytest.approx(total, abs=1e-4)
        assert {tuple(h.tokens): h.score for h in plain[row]}.items() <= ended.items()


def test_one_step_for_all_beams_and_one_reorder() -> None:
    class Counting(Recurrent):
        steps: list[int] = []  # noqa: RUF012
        reorders = 0

        def step(self, state: list[Tensor], /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
            self.steps.append(len(ids))
            return super().step(state, ids, attention_mask)

        def reorder(self, state: list[Tensor], /, rows: Tensor) -> list[Tensor]:
            self.reorders += 1
            return super().reorder(state, rows)

    counting = Counting(12)
    beam_search(counting, Beam(width=3, max_tokens=5, eos=()), [[1], [2]])
    assert counting.steps == [2, 6, 6, 6, 6] and counting.reorders == 4


@pytest.mark.parametrize(
    ("fields", "code", "match"),
    [
        ({"width": 0}, "C003", "width"), ({"max_tokens": 0}, "C003", "max_tokens"),
        ({"n_best": 5}, "C004", "n_best"),
        ({"groups": 3}, "C004", "groups"), ({"diversity": 1.0}, "C004", "diversity"),
        ({"banned": ((),)}, "C003", "banned"), ({"no_repeat": -1}, "C003", "no_repeat"),
        ({"min_tokens": -1}, "C003", "min_tokens"),
        ({"diversity": -1.0, "groups": 2}, "C003", "diversity"),
        ({"length_penalty": math.nan}, "C003", "length_penalty"),
    ],
)  # fmt: skip
def test_settings_out_of_range(fields: dict[str, object], code: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match) as error:
        Beam(**fields)  # type: ignore[arg-type]
    assert error.value.code == code


def test_what_cannot_be_searched() -> None:
    model = tiny_model(12, 8, 16, depth=1)
    with pytest.raises(DataError, match="9 tokens, the model reads at most 8"):
        beam_search(model, Beam(), [[1] * 9])
    with pytest.raises(DataError, match="no text is possible"):
        beam_search(model, Beam(banned=tuple((i,) for i in range(12))), [[1]])
    assert beam_search(model, Beam(), []) == []
    assert len(beam_search(model, Beam(eos=()), [[1] * 8])[0][0].tokens) == 1
