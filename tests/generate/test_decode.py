"""Decoding: the cached choice is the uncached one, and no row depends on the others."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headway.api import Bundle
from headway.config.model import SpecialTokens
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError, DataError, DivergedError
from headway.generate.decode import Piece, Sampling, decode, generate
from headway.generate.protocol import Decoder, Source
from headway.generate.sampling.sampler import Sampler, uniform
from headway.generate.trace import Choice
from headway.model.model import Transformer
from tests.generate.conftest import DecoderConfig, Recurrent, tiny_model


@torch.no_grad()
def slowly(model: Transformer, prompt: list[int], tokens: int) -> list[int]:
    """Greedy decoding that reads everything again for each token."""
    text = list(prompt)
    for _ in range(tokens):
        text.append(int(model.lm(model(torch.tensor([text])).hidden[:, -1]).argmax(-1)))
    return text[len(prompt) :]


def collect(pieces: list[Piece], rows: int) -> list[list[int]]:
    """The tokens of each row; a row that has ended must be silent."""
    tokens: list[list[int]] = [[] for _ in range(rows)]
    done = set()
    for piece in pieces:
        assert piece.row not in done
        if piece.token is not None:
            tokens[piece.row].append(piece.token)
        if piece.finish is not None:
            done.add(piece.row)
    assert len(done) == rows
    return tokens


def test_greedy_equals_reading_all_again(model: Transformer) -> None:
    prompt = [5, 17, 200]
    assert list(generate(model, prompt, 20, Sampling(temperature=0))) == slowly(model, prompt, 20)


def test_past_its_length_it_goes_on_from_the_last_half(model: Transformer) -> None:
    new = list(generate(model, [1, 2, 3], 60, Sampling(temperature=0)))
    assert len(new) == 60
    text = [1, 2, 3, *new]
    # the model reads 24: full after the 21st new token, begun anew with the 12 before
    assert new[21] == slowly(model, text[:24], 1)[0]
    assert new[22] == slowly(model, text[13:25], 1)[0]
    assert new[33] == slowly(model, text[13:36], 1)[0]
    for first in range(5):  # a longer prompt is cut to what can be read
        prompt = list(range(first, first + 40))
        assert list(generate(model, prompt, 1, Sampling(temperature=0))) == slowly(model, prompt[-24:], 1)


def test_a_seed_repeats_and_another_differs(model: Transformer) -> None:
    draw = [list(generate(model, [9], 30, Sampling(seed=seed))) for seed in (1, 1, 2)]
    assert draw[0] == draw[1] != draw[2]
    drawn = []
    for _ in range(2):  # without a seed, torch's own decides
        torch.manual_seed(5)
        drawn.append([list(generate(model, [9], 30, Sampling())) for _ in range(2)])
    assert drawn[0] == drawn[1] and drawn[0][0] != drawn[0][1]


def settings_of(row: int) -> Sampling:
    """All kinds of settings, mixed."""
    return Sampling(
        temperature=(0.0, 0.7, 1.0, 1.6)[row % 4],
        top_k=(0, 5, 40)[row % 3],
        top_p=(1.0, 0.9, 0.6)[row // 2 % 3],
        min_p=(0.0, 0.02)[row // 5 % 2],
        repetition=(1.0, 1.3)[row // 3 % 2],
        presence=(0.0, 0.5, -0.2)[row // 4 % 3],
        frequency=(0.0, 0.3)[row // 7 % 2],
        banned=((), ((7,), (3, 4)), ((9, 9),))[row // 6 % 3],
        no_repeat=(0, 0, 2, 0, 3, 1)[row // 4 % 6],
        stop=((), (11, 12))[row // 2 % 2],
        seed=row % 50,
        max_tokens=1 + row * 7 % 13,
    )


def prompt_of(row: int, vocab: int) -> list[int]:
    source = random.Random(row)
    return [source.randrange(vocab) for _ in range(source.choice((1, 2, 3, 5, 8, 13)))]


@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
def test_a_row_is_the_same_alone_and_in_any_batch(kind: str) -> None:
    """200 prompts, with room for 10 tokens, so that texts are cut at different times in one batch."""
    model: Decoder = (
        tiny_model(20, 10, 16, depth=1) if kind == "transformer" else Recurrent(20, 16, DecoderConfig(max_length=10))
    )
    prompts, how = [prompt_of(row, 20) for row in range(200)], [settings_of(row) for row in range(200)]
    alone = [collect(list(decode(model, [p], s)), 1)[0] for p, s in zip(prompts, how, strict=True)]
    assert len({len(text) for text in alone}) == 13
    assert sum(len(p) + len(t) > 16 for p, t in zip(prompts, alone, strict=True)) > 20  # cut more than once
    first = 0
    for size in (2, 3, 5, 32, 8, 4, 16, 7, 30, 31, 32, 30):
        rows = slice(first, first + size)
        assert collect(list(decode(model, prompts[rows], how[rows])), size) == alone[rows]
        first += size
    assert first == 200


def test_rows_that_end_leave_the_batch() -> None:
    """Of 8 rows of 1 to 8 tokens, at most half of those computed are for nothing."""

    class Counting(Recurrent):
        rows = 0

        def step(self, state: list[Tensor], /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
            self.rows += len(ids)
            return super().step(state, ids, attention_mask)

    counting = Counting()
    how = [Sampling(max_tokens=n, seed=n) for n in range(1, 9)]
    assert [len(t) for t in collect(list(decode(counting, [[1]] * 8, how)), 8)] == [*range(1, 9)]
    assert counting.rows == 8 + 8 + 8 + 8 + 4 + 4 + 2 + 1


def test_one_setting_for_all_and_the_same_text_for_the_same_seed(model: Transformer) -> None:
    rows = collect(list(decode(model, [[1, 2]] * 3, Sampling(seed=4, max_tokens=12))), 3)
    assert rows[0] == rows[1] == rows[2]
    other = collect(list(decode(model, [[1, 2]] * 3, [Sampling(seed=s, max_tokens=12) for s in (4, 5, 6)])), 3)
    assert other[0] == rows[0] and other[0] != other[1] != other[2]


def test_an_encoder_decoder_starts_from_its_start_token() -> None:
    model = Recurrent(
        12, 16, DecoderConfig(6, SpecialTokens(start=3, eos=2))
    )  # to be begun anew when one row has ended
    inputs = torch.tensor([[4, 5, 6], [7, 8, 0], [9, 0, 0]])
    attention_mask = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
    how = [Sampling(seed=s, max_tokens=n) for s, n in ((1, 9), (2, 3), (3, 30))]
    together = collect(list(decode(model, None, how, source=Source(inputs, attention_mask))), 3)
    for row in range(3):
        source = Source(inputs[row : row + 1, : 3 - row])
        assert collect(list(decode(model, [[3]], how[row], source=source)), 1)[0] == together[row]


def test_a_start_token_is_no_text() -> None:
    tokenizer = train_tokenizer("words", ["one two three"])
    model = Recurrent(tokenizer.vocab_size, config=DecoderConfig(special=SpecialTokens(start=1)))
    source, how = Source(torch.tensor([[2]])), Sampling(seed=1, max_tokens=4)
    pieces = list(decode(model, None, how, source=source, tokenizer=tokenizer))
    assert "".join(p.text for p in pieces) == tokenizer.decode([p.token for p in pieces if p.token is not None])
    after = list(decode(model, [[1]], how, tokenizer=tokenizer))  # a prompt is
    assert all(p.text.startswith(" ") for p in after)


def test_stop_tokens_end_a_text() -> None:
    model = Recurrent(12, config=DecoderConfig(special=SpecialTokens(eos=(2, 5))))
    how = Sampling(seed=1, temperature=3.0, max_tokens=60)
    free = collect(list(decode(model, [[1]], replace(how, stop=()))), 1)[0]
    assert len(free) == 60 and {2, 5, 7} <= set(free)
    pieces = list(decode(model, [[1]], how))
    end = min(free.index(2), free.index(5))
    assert [p.token for p in pieces] == free[: end + 1] and pieces[-1].finish == "stop"
    assert list(generate(model, [1], 60, how)) == free[:end]
    assert list(generate(model, [1], 60, replace(how, stop=(7,)))) == free[: free.index(7)]


def test_nothing_to_write(model: Transformer) -> None:
    assert list(decode(model, [[1], [2]], Sampling(max_tokens=0))) == []
    assert list(decode(model, [], Sampling())) == []


def test_text_is_streamed_and_cut_before_a_stop_string(model: Transformer) -> None:
    tokenizer = train_tokenizer("bytes", [])
    free = collect(list(decode(model, [[65]], Sampling(seed=2, max_tokens=60))), 1)[0]
    text = tokenizer.decode(free)
    stop = text[20:23]
    how = Sampling(seed=2, max_tokens=60, stop_strings=(stop, "never there"))
    pieces = list(decode(model, [[65], [66]], [how, Sampling(seed=3, max_tokens=5)], tokenizer=tokenizer))
    first = [p for p in pieces if p.row == 0]
    assert "".join(p.text for p in first) == text[: text.index(stop)]
    assert first[-1].finish == "stop" and len(first) < 60
    other = [p for p in pieces if p.row == 1]
    assert other[-1].finish == "length" and len(other) == 5
    assert tokenizer.decode([p.token for p in other if p.token is not None]).startswith("".join(p.text for p in other))


def test_text_held_back_comes_with_the_end() -> None:
    class Always(Recurrent):
        """Writes "ab" again and again."""

        def step(self, state: list[Tensor], /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
            return torch.nn.functional.one_hot(torch.where(ids[:, -1] == 97, 98, 97), 256).float()

    how = Sampling(temperature=0, max_tokens=3, stop_strings=("ac",))
    pieces = list(decode(Always(256), [[98]], how, tokenizer=train_tokenizer("bytes", [])))
    assert [(p.text, p.finish) for p in pieces] == [("", None), ("ab", None), ("a", "length")]
    ended = list(decode(Always(256), [[98]], replace(how, stop=(97,)), tokenizer=train_tokenizer("bytes", [])))
    assert ended == [Piece(0, 97, "", "stop")]  # a stop token is no text
    ended = list(decode(Always(256), [[98]], replace(how, stop=(98,)), tokenizer=train_tokenizer("bytes", [])))
    assert ended == [Piece(0, 97), Piece(0, 98, "a", "stop")]


class Alternate:
    """A mask: even rows write even tokens, odd rows odd ones; row 2 is complete after two."""

    def __init__(self) -> None:
        self.came: dict[int, list[int]] = {}

    def allowed(self, row: int) -> Tensor | None:
        if row == 3:
            return None
        if row == 2 and len(self.came.get(row, [])) == 2:
            return torch.zeros(12, dtype=torch.bool)
        return torch.arange(12) % 2 == row % 2

    def accept(self, row: int, token: int) -> None:
        self.came.setdefault(row, []).append(token)


def test_a_mask_holds_each_row_to_its_own() -> None:
    mask, model = Alternate(), Recurrent(12)
    how = [Sampling(seed=s, temperature=3.0, max_tokens=40, stop=(6,) if s < 2 else ()) for s in range(4)]
    pieces = list(decode(model, [[1], [2], [3], [4]], how, mask=mask))
    rows = collect(pieces, 4)
    assert all(t % 2 == 0 for t in rows[0]) and all(t % 2 == 1 for t in rows[1]) and len(rows[2]) == 2
    assert [p for p in pieces if p.row == 2][-1] == Piece(2, None, "", "stop")
    assert rows[3] == collect(list(decode(model, [[4]], how[3])), 1)[0]  # None: everything
    assert rows[0][-1] == 6 and mask.came[0] == rows[0][:-1]  # a stop token is not passed on
    assert mask.came[1] == rows[1][:-1]


def test_a_row_with_nothing_possible_ends() -> None:
    model, trace = Recurrent(12), list[Choice]()
    how = Sampling(seed=1, max_tokens=3)
    nothing = replace(how, banned=tuple((i,) for i in range(12)), presence=1.0, repetition=1.1)
    pieces = list(decode(model, [[1], [1], [1]], [how, nothing, replace(nothing, temperature=0)], trace=trace))
    assert [p for p in pieces if p.row] == [Piece(1, None, "", "stop"), Piece(2, None, "", "stop")]
    assert [p.token for p in pieces if p.row == 0] == list(generate(model, [1], 3, how))
    assert [c.row for c in trace] == [0, 0, 0]


def test_scores_that_are_no_numbers_are_an_error() -> None:
    model = Recurrent(12)
    model.lm.bias.data[3] = torch.nan
    for temperature in (0.0, 1.0):
        with pytest.raises(DivergedError, match="not numbers") as error:
            list(decode(model, [[1]], Sampling(temperature=temperature)))
        assert error.value.code == "T001"


def test_next_to_no_temperature_is_none(model: Transformer) -> None:
    cold = [Sampling(temperature=t, max_tokens=9) for t in (0.0, 1e-9, 1e-42, 2e-5)]
    rows = collect(list(decode(model, [[5]] * 4, cold)), 4)
    assert rows[0] == rows[1] == rows[2] == rows[3] == slowly(model, [5], 9)


def test_a_trace_shows_what_could_have_been(model: Transformer) -> None:
    how = [Sampling(seed=1, max_tokens=4, top_k=2, temperature=0.5), Sampling(temperature=0, max_tokens=2)]
    plain, trace = list(decode(model, [[1], [2]], how)), list[Choice]()
    assert list(decode(model, [[1], [2]], how, trace=trace)) == plain
    assert [(c.row, c.chosen.token) for c in trace] == [(p.row, p.token) for p in plain]
    assert [(c.row, c.position) for c in trace] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (0, 3)]
    json.dumps([asdict(choice) for choice in trace])
    text = [1]
    for choice in (c for c in trace if c.row == 0):
        raw = model.lm(model(torch.tensor([text])).hidden[:, -1])[0].detach()
        shares, order = raw.softmax(-1).sort(descending=True)
        assert [a.token for a in choice.best] == order[:5].tolist()
        assert [a.probability for a in choice.best] == pytest.approx(shares[:5].tolist(), rel=1e-4)
        drawn = (raw[order[:2]] / 0.5).softmax(-1).tolist()
        assert [a.share for a in choice.best] == pytest.approx([*drawn, 0, 0, 0], rel=1e-4)
        same = next(a for a in choice.best if a.token == choice.chosen.token)
        assert (choice.chosen.probability, choice.chosen.share) == (same.probability, same.share)
        text.append(choice.chosen.token)


@settings(max_examples=50)
@given(st.integers(0, 10**9), st.integers(0, 10**6))
def test_a_draw_follows_from_seed_and_position(seed: int, position: int) -> None:
    assert 0 <= uniform(seed, position) < 1
    assert uniform(seed, position) == uniform(seed, position)
    assert uniform(seed, position) != uniform(seed, position + 1) != uniform(seed + 1, position)


def test_draws_are_spread_evenly_and_fixed_for_ever() -> None:
    draws = torch.tensor([uniform(seed, position) for seed in range(20) for position in range(500)])
    assert float((torch.histc(draws, 10, 0, 1) / 1000 - 1).abs().max()) < 0.12
    pairs = draws.view(20, 500)
    assert abs(float((pairs[:, 1:] - 0.5).mul(pairs[:, :-1] - 0.5).mean())) < 0.005
    assert uniform(0, 0) == 0.2586582929896224  # texts of a seed would change with it


def test_the_best_token_unless_it_repeats() -> None:
    """Greedy and nothing else: the fast way to the best token is not taken then."""
    seen = 0
    for seed in range(6):
        torch.manual_seed(seed)
        model, prompt = Recurrent(12), [3, 4, 3]
        plain, held = (
            [*prompt, *generate(model, prompt, 9, Sampling(temperature=0, stop=(), no_repeat=n))] for n in (0, 2)
        )
        pairs, free = (list(pairwise(text)) for text in (held, plain))
        assert len(set(pairs)) == len(pairs)
        seen += len(set(free)) < len(free)
    assert seen > 3  # it would have repeated itself


def slow_shape(scores: list[float], s: Sampling, prompt: list[int], new: list[int]) -> list[float]:
    """One row's settings in plain Python, in their order; filters leave -inf."""
    out = list(scores)
    for i in set(prompt + new):
        out[i] = out[i] / s.repetition if out[i] > 0 else out[i] * s.repetition
    for i in set(new):
        out[i] -= s.presence + s.frequency * new.count(i)
    for sequence in s.banned:
        if tuple([*prompt, *new][len(prompt + new) - len(sequence) + 1 :]) == sequence[:-1]:
            out[sequence[-1]] = -torch.inf
    text = [*prompt, *new]
    for i in range(len(text) - s.no_repeat + 1 if s.no_repeat else 0):
        if text[i : i + s.no_repeat - 1] == text[len(text) - s.no_repeat + 1 :]:
            out[text[i + s.no_repeat - 1]] = -torch.inf
    out = [x / (s.temperature or 1) for x in out]
    if s.top_k:
        out = [x if x >= sorted(out)[-min(s.top_k, len(out))] else -torch.inf for x in out]
    shares = torch.tensor(out).softmax(-1).tolist()
    order = sorted(range(len(out)), key=lambda i: -out[i])
    kept = [i for n, i in enumerate(order) if n == 0 or sum(shares[j] for j in order[:n]) < s.top_p or s.top_p == 1]
    out = [x if i in kept else -torch.inf for i, x in enumerate(out)]
    shares = torch.tensor(out).softmax(-1).tolist()
    return [x if p >= s.min_p * max(shares) else -torch.inf for x, p in zip(out, shares, strict=True)]


def test_settings_apply_in_their_order_to_rows_of_their_own() -> None:
    generator = torch.Generator().manual_seed(0)
    how = [settings_of(row) for row in range(40)]
    prompts = [[*prompt_of(row, 20), (3, 9)[row % 2]] for row in range(40)]  # the beginnings of what is banned
    tokens, new = [list(prompt) for prompt in prompts], [list[int]() for _ in how]
    sampler = Sampler(how, tokens)
    for step in range(6):
        if step == 3:  # made anew in the middle, as when a batch changes: what it remembers comes from the tokens
            sampler = Sampler(how, tokens)
        logits = 2 * torch.randn(40, 20, generator=generator)
        processed = sampler.process(logits, [step] * 40)
        slow = [slow_shape(logits[r].tolist(), how[r], prompts[r], new[r]) for r in range(40)]
        torch.testing.assert_close(processed, torch.tensor(slow), atol=1e-4, rtol=1e-4)
        for row, token in enumerate(sampler.sample(processed, [step] * 40).tolist()):
            new[row].append(token)
            tokens[row].append(token)
            assert how[row].temperature or token == int(processed[row].argmax())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1), ("temperature", float("nan")), ("top_p", 1.2), ("top_p", -1), ("min_p", 2),
        ("top_k", -1), ("repetition", 0), ("max_tokens", -1), ("stop_strings", ("",)),
        ("banned", ((),)), ("presence", float("inf")), ("no_repeat", -1),
    ],
)  # fmt: skip
def test_settings_out_of_range(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name) as error:
        Sampling(**{name: value})  # type: ignore[arg-type]
    assert error.value.code == "C003"


def test_what_cannot_be_decoded(model: Transformer) -> None:
    for prompts, how, match in (
        ([[1], []], Sampling(), "prompt 1 is empty"),
        ([[1]], [Sampling(), Sampling()], "1 prompts but 2 settings"),
        (None, Sampling(), "nothing to go on from"),
    ):
        with pytest.raises(DataError, match=match):
            list(decode(model, prompts, how))
    with pytest.raises(DataError, match="2 prompts but 1"):
        list(decode(model, [[1], [2]], Sampling(), source=Source(torch.zeros(1, 3))))
    with pytest.raises(ConfigError, match="stop_strings"):
        list(decode(model, [[1]], Sampling(stop_strings=("a",))))


def test_streamed_text_is_whole_characters(model: Transformer) -> None:
    bundle = Bundle("test", model, train_tokenizer("bytes", []), None)
    pieces = list(bundle.stream("é", 40, Sampling(seed=3)))
    ids = list(generate(model, list("é".encode()), 40, Sampling(seed=3)))
    assert bundle.tokenizer is not None
    assert bundle.tokenizer.decode(ids).startswith("".join(pieces))
    with pytest.raises(DataError) as empty:  # there is no token that it could begin with
        bundle.stream("", 3, Sampling(seed=0))
    assert empty.value.code == "D001"
    with pytest.raises(DataError, match="bare has no tokenizer"):
        list(Bundle("bare", model, None, None).stream("a"))
