"""The engine: everybody gets the text they would get alone, in company that comes, goes, fails and leaves."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.config.model import SpecialTokens
from headway.config.recipe import ShapeConfig
from headway.config.shape import decoder_config
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError, DataError, DivergedError, MemoryOrDiskError
from headway.generate.decode import decode
from headway.generate.engine.engine import Closed, Engine, Event, QueueFull, Request
from headway.generate.sampling.sampler import Sampling
from headway.model.cache import KVCacheLike
from headway.model.model import Transformer
from tests.generate.conftest import answered, tiny_model

TOKENIZER = train_tokenizer("bytes", [])
GREEDY = Sampling(temperature=0, max_tokens=8, stop=())


@pytest.fixture(scope="module")
def small() -> Transformer:
    return tiny_model(256, 40, 16, depth=1)


class Watched(Transformer):
    """A model that writes down the shape of each pass, and can be made to fail at a token."""

    def __init__(self, length: int = 40, tied: bool = True) -> None:
        torch.manual_seed(0)
        super().__init__(decoder_config(ShapeConfig(depth=1, width=16, heads=2, tied=tied), 256, length))
        for parameter in self.parameters():
            parameter.data += 0.2 * torch.randn_like(parameter)
        self.eval()
        self.passes: list[tuple[int, int]] = []
        self.poison: int | None = None

    def step(self, cache: KVCacheLike, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        self.passes.append((ids.shape[0], ids.shape[1]))
        scores = super().step(cache, ids, attention_mask)
        if self.poison is not None and bool((ids == self.poison).any()):
            raise RuntimeError("poisoned")
        return scores


def run(engine: Engine) -> None:
    answered(engine)


def tokens_of(events: Sequence[Event]) -> list[int]:
    return [event.token for event in events if event.token is not None]


def prompt_of(row: int, longest: int = 16) -> tuple[int, ...]:
    source = random.Random(row)
    return tuple(source.randrange(97, 123) for _ in range(source.randint(1, longest)))


def settings_of(row: int) -> Sampling:
    """All kinds of settings, mixed; every fourth is greedy."""
    return Sampling(
        temperature=(0.0, 0.7, 1.0, 1.6)[row % 4],
        top_k=(0, 5, 40)[row % 3],
        top_p=(1.0, 0.9, 0.6)[row // 2 % 3],
        min_p=(0.0, 0.02)[row // 5 % 2],
        repetition=(1.0, 1.0, 1.3)[row // 3 % 3],
        presence=(0.0, 0.0, 0.5, -0.2)[row // 4 % 4],
        frequency=(0.0, 0.3)[row // 7 % 2],
        banned=((), ((7,), (3, 4)), ((9, 9),))[row // 6 % 3],
        stop=((), tuple(range(60)))[row // 2 % 2],
        stop_strings=((), ("q", "zz"))[row // 5 % 2],
        seed=row % 50,
        max_tokens=1 + row * 7 % 13,
    )


def alone(model: Transformer, request: Request) -> tuple[list[int], str, str | None]:
    """Tokens, text and end of a request, by `decode`."""
    pieces = list(decode(model, [request.prompt], request.sampling, tokenizer=TOKENIZER))
    tokens = [piece.token for piece in pieces if piece.token is not None]
    return tokens, "".join(piece.text for piece in pieces), pieces[-1].finish


def heard(request: Request) -> tuple[list[int], str, str | None]:
    events = list(request)
    assert [event.finish for event in events[:-1]] == [None] * (len(events) - 1)
    return tokens_of(events), "".join(event.text for event in events), events[-1].finish


def make_requests(count: int) -> list[Request]:
    return [Request(prompt_of(row), settings_of(row)) for row in range(count)]


def test_one_request_equals_decode(small: Transformer) -> None:
    for request in make_requests(25):
        (live,) = answered(Engine(small, TOKENIZER), request)
        assert heard(live) == alone(small, request)


def in_batches(model: Transformer, count: int, sizes: Sequence[int], **how: Any) -> None:
    """Requests come while others are under way, to engines of each size."""
    asked = make_requests(count)
    wanted = [alone(model, request) for request in asked]
    assert {finish for _, _, finish in wanted} == {"stop", "length"}
    source = random.Random(count)
    for size in sizes:
        engine = Engine(model, TOKENIZER, slots=size, queue=count, **how)
        order = source.sample(range(count), count)
        requests = {}
        for row in order:
            requests[row] = engine.submit(asked[row])
            for _ in range(source.choice((0, 0, 0, 1, 3))):
                engine.step()
        run(engine)
        assert [heard(requests[row]) for row in range(count)] == wanted
        assert engine.stats().used == 0


def test_neighbours_change_nothing(small: Transformer) -> None:
    in_batches(small, 28, (3, 16))
    in_batches(small, 28, (6,), chunk=5)


@pytest.mark.slow
def test_neighbours_change_nothing_for_200_prompts_and_any_size(small: Transformer) -> None:
    in_batches(small, 200, range(2, 33))
    in_batches(tiny_model(256, 40, 32, depth=3), 200, (2, 7, 32), chunk=7)


def test_a_cpu_computes_few_rows_for_nothing() -> None:
    model = Watched()
    engine = Engine(model, TOKENIZER, slots=6)
    requests = answered(engine, *(Request((1, 2), replace(GREEDY, max_tokens=1 + n)) for n in (8, 1, 6, 2, 4, 7)))
    writing = [batch for batch, steps in model.passes if steps == 1]
    assert writing == [6, 6, 4, 4, 4, 4, 2, 1]
    assert [heard(t) for t in requests] == [alone(model, t) for t in requests]


def test_what_an_event_says(small: Transformer) -> None:
    engine = Engine(small, TOKENIZER)
    sampling = Sampling(seed=3, temperature=1.4, repetition=1.2, max_tokens=6, stop=())
    asked = [Request((97, 98), sampling, top=3), Request((99,), GREEDY), Request((100,), sampling, top=999)]
    requests = answered(engine, *asked)
    for request in requests:
        text, top = list(request.prompt), request.top
        for event in request:
            with torch.no_grad():
                logp = small.lm(small(torch.tensor([text])).hidden[0, -1]).log_softmax(-1)
            assert event.token is not None
            assert event.log_probability == pytest.approx(float(logp[event.token]), abs=1e-4)
            best = logp.topk(min(top, 256))
            assert [token for token, _ in event.alternatives] == best.indices.tolist()
            assert [value for _, value in event.alternatives] == pytest.approx(best.values.tolist(), abs=1e-4)
            text.append(event.token)
        assert len(text) == len(request.prompt) + request.sampling.max_tokens
    with pytest.raises(ConfigError, match="top = -1"):
        Request((1,), GREEDY, top=-1)


def test_a_seed_repeats_and_none_differs(small: Transformer) -> None:
    engine = Engine(small, TOKENIZER)
    seeds = (4, 4, 5, None, None)
    requests = answered(engine, *(Request((97,), Sampling(seed=seed, max_tokens=20, stop=())) for seed in seeds))
    same, again, *others = [heard(request)[0] for request in requests]
    assert same == again and len({tuple(text) for text in (same, *others)}) == 4


def test_the_models_own_end() -> None:
    model = tiny_model(256, 40, 16, depth=1)
    free = alone(model, Request((97,), replace(GREEDY, max_tokens=20)))[0]
    model.config = replace(model.config, special=SpecialTokens(eos=(free[4], 3)))
    engine = Engine(model, TOKENIZER)
    requests = answered(
        engine, *(Request((97,), replace(GREEDY, max_tokens=20, stop=stop)) for stop in (None, (), (free[2],)))
    )
    cut = [free[: free.index(free[4]) + 1], free, free[: free.index(free[2]) + 1]]
    assert [heard(request)[0] for request in requests] == cut


def test_no_room_for_more_is_an_end(small: Transformer) -> None:
    engine = Engine(small, TOKENIZER, capacity=12)
    for length, count in ((3, 10), (11, 2), (12, 1)):
        (request,) = answered(engine, Request((97,) * length, replace(GREEDY, max_tokens=50)))
        tokens, _, finish = heard(request)
        assert finish == "length"
        assert tokens == alone(small, Request(request.prompt, replace(GREEDY, max_tokens=count)))[0]


def test_nothing_to_write(small: Transformer) -> None:
    engine = Engine(small, TOKENIZER)
    request = engine.submit(Request((97,), replace(GREEDY, max_tokens=0)))
    assert not engine.step()
    assert list(request) == [Event(None, finish="length")] and engine.stats().prompt_tokens == 0


@pytest.mark.parametrize("others", [0, 1])
def test_nothing_to_write_for_a_request_that_comes_during_a_step(
    small: Transformer, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """A client may submit between the look at all requests and the giving of slots."""
    engine, came = Engine(small, TOKENIZER), list[Request]()
    asked = [engine.submit(Request((97,), replace(GREEDY, max_tokens=3))) for _ in range(others)]
    gone = engine.submit(Request((98,), GREEDY))

    def during() -> None:
        if not came:
            gone.cancel()
            came.append(engine.submit(Request((97,), replace(GREEDY, max_tokens=0))))

    monkeypatch.setattr(engine, "_check_weights", during)
    while engine.step():
        pass
    assert list(came[0]) == [Event(None, finish="length")] and list(gone) == [Event(None, finish="cancelled")]
    for request in asked:
        assert heard(request) == alone(small, request)
    assert engine.failures == 0


def test_a_text_after_which_nothing_is_possible(small: Transformer) -> None:
    engine = Engine(small, TOKENIZER)
    nothing = replace(GREEDY, banned=tuple((token,) for token in range(256)))
    requests = answered(engine, *(Request((97,), sampling) for sampling in (nothing, GREEDY)))
    assert list(requests[0]) == [Event(None, finish="stop")]
    assert heard(requests[1]) == alone(small, requests[1])
    assert engine.trouble and engine.failures == 0


@pytest.mark.parametrize(
    ("prompt", "sampling", "message"),
    [
        ((), GREEDY, "empty"),
        ((97,) * 41, GREEDY, "41 tokens, there is room for 40"),
        ((1, 256), GREEDY, "1 … 256, the vocabulary has 256"),
        ((1, -1), GREEDY, "-1 … 1"),
        ((1,), replace(GREEDY, banned=((300,),)), "1 … 300"),
    ],
)
def test_what_can_never_be_answered(
    small: Transformer, prompt: tuple[int, ...], sampling: Sampling, message: str
) -> None:
    engine = Engine(small, TOKENIZER)
    with pytest.raises(DataError, match=message) as error:
        engine.submit(Request(prompt, sampling))
    assert error.value.code == "D001" and not engine.step()


def test_engines_that_cannot_be(small: Transformer) -> None:
    for wrong in ({"slots": 0}, {"capacity": 0}, {"chunk": 0}, {"queue": 0}, {"capacity": 41}):
        with pytest.raises(ConfigError, match=next(iter(wrong))) as error:
            Engine(small, TOKENIZER, **wrong)
        assert error.value.code == "C003"
    endless = Transformer(decoder_config(ShapeConfig(depth=1, width=16, heads=2, positions="rope"), 256, 8)).eval()
    assert Engine(small, TOKENIZER).capacity == 40 and Engine(endless, TOKENIZER, slots=1).capacity == 2048
    with pytest.raises(MemoryOrDiskError, match="3 slots of 1099511627776 tokens") as memory:
        Engine(endless, TOKENIZER, slots=3, capacity=2**40)
    assert memory.value.code == "M001"


def test_a_full_queue(small: Transformer) -> None:
    engine = Engine(small, TOKENIZER, slots=1, queue=2)
    requests = [engine.submit(Request((97,), GREEDY)) for _ in range(2)]
    with pytest.raises(QueueFull, match="2 requests"):
        engine.submit(Request((97,), GREEDY))
    engine.step()
    requests.append(engine.submit(Request((97,), GREEDY)))  # one has a slot now
    with pytest.raises(QueueFull):
        engine.submit(Request((97,), GREEDY))
    run(engine)
    assert len({tuple(heard(request)[0]) for request in requests}) == 1


def test_first_come_first_served(small: Transformer) -> None:
    engine, order = Engine(small, TOKENIZER, slots=2, chunk=4), list[int]()
    for row, length in enumerate((3, 11, 2, 9, 1, 1)):

        def first(event: Event, row: int = row) -> None:
            if row not in order:
                order.append(row)

        engine.submit(Request(prompt_of(row, 1) * length, GREEDY), first)
    run(engine)
    assert order == sorted(order) == [*range(6)]


def test_a_long_prompt_stalls_nobody() -> None:
    model = Watched()
    engine = Engine(model, TOKENIZER, slots=4, chunk=8)
    running = engine.submit(Request((97, 98), replace(GREEDY, max_tokens=30)))
    engine.step()
    events = [engine.stats().generated_tokens]
    long = engine.submit(Request(tuple(range(35)), replace(GREEDY, max_tokens=3)))
    short = engine.submit(Request((1, 2, 3), GREEDY))
    while not long.wait(0):
        model.passes.clear()
        engine.step()
        assert sum(batch * steps for batch, steps in model.passes if steps > 1) <= 8
        events.append(engine.stats().generated_tokens)
    assert events[:5] == [1, 2, 3, 4, 5]  # one token of the first in each round while 32 of 35 are read
    run(engine)
    for request in (running, long, short):
        assert heard(request) == alone(model, request)


def test_short_prompts_are_read_side_by_side() -> None:
    model = Watched()
    engine = Engine(model, TOKENIZER, slots=8, chunk=16)
    requests = answered(
        engine, *(Request(prompt, GREEDY) for prompt in ((1, 2, 3), (4, 5), (6, 7, 8, 9), (10, 11, 12, 13, 14)))
    )
    assert [shape for shape in model.passes if shape[1] > 1] == [(3, 4), (1, 5)]  # 4 × 5 would be too many
    assert [heard(request) for request in requests] == [alone(model, request) for request in requests]


def test_a_prompt_that_begins_like_another_is_read_from_there() -> None:
    model = Watched()
    base = tuple(random.Random(0).randrange(256) for _ in range(20))
    asked = [
        Request(base, GREEDY),
        Request((*base[:15], 1, 2, 3), GREEDY),  # begins alike
        Request(base, Sampling(seed=1, max_tokens=5, stop=())),  # the same again
        Request((*base[:3], 9), GREEDY),
        Request((5, 6), GREEDY),
    ]
    engine = Engine(model, TOKENIZER, slots=3)
    wanted = [alone(model, request) for request in asked]
    model.passes.clear()
    requests = []
    for request in asked:
        requests.append(engine.submit(request))
        run(engine)
    assert [heard(request) for request in requests] == wanted
    assert [request.reused for request in requests] == [0, 15, 19, 3, 0]
    stats = engine.stats()
    assert (stats.prefix_hits, stats.prefix_tokens, stats.prompt_tokens) == (3, 37, 20 + 3 + 1 + 1 + 2)
    assert [steps for _, steps in model.passes if steps > 1] == [20, 3, 2]


def test_a_conversation_goes_on_where_it_was(small: Transformer) -> None:
    engine = Engine(small, TOKENIZER)
    text: tuple[int, ...] = (97, 98, 99)
    for turn in range(3):
        (request,) = answered(engine, Request(text, GREEDY))
        tokens = heard(request)[0]
        assert tokens == alone(small, request)[0]
        assert request.reused == (0 if turn == 0 else len(text) - 2 - 1)
        text = (*text, *tokens, 101, 102)


def test_the_same_long_prompt_of_two_who_come_together() -> None:
    model = Watched()
    engine = Engine(model, TOKENIZER, slots=3, chunk=8)
    base = tuple(range(30))
    requests = answered(engine, *(Request(base, Sampling(seed=seed, max_tokens=5, stop=())) for seed in range(3)))
    assert [request.reused for request in requests] == [0, 29, 29]  # copied from a text that is still being written
    assert [heard(request) for request in requests] == [alone(model, request) for request in requests]


def test_a_cancelled_text_is_gone_a_step_later(small: Transformer) -> None:
    engine = Engine(small, TOKENIZER, slots=2, chunk=8)
    writing = engine.submit(Request((97,), replace(GREEDY, max_tokens=30)))
    engine.step()
    reading = engine.submit(Request((98,) * 30, GREEDY))
    engine.step()
    waiting = engine.submit(Request((99,), GREEDY))
    last = engine.submit(Request((100,), GREEDY))
    assert engine.stats().used == 2 and engine.stats().waiting == 2
    for request in (writing, reading, waiting):
        request.cancel()
    assert not writing.wait(0)
    engine.step()
    for request in (writing, reading, waiting):
        assert request.wait(0) and list(request)[-1] == Event(None, finish="cancelled")
        request.cancel()  # once more does no harm
    assert engine.stats().used == engine.stats().running == 1 and engine.stats().waiting == 0
    run(engine)
    assert heard(last) == alone(small, last)
    assert engine.stats().finished == {"cancelled": 3, "length": 1}


def test_only_those_fail_who_must() -> None:
    model = Watched()
    asked = [Request(prompt_of(row), settings_of(row)) for row in range(12)]
    bad = [Request((97, 200), GREEDY), Request((98, 99, 200, 7), GREEDY)]
    wanted = [alone(model, request) for request in asked]
    model.poison = 200
    assert all(200 not in (*request.prompt, *tokens) for request, (tokens, _, _) in zip(asked, wanted, strict=True))
    engine = Engine(model, TOKENIZER, slots=8)
    requests = [engine.submit(request) for request in (*asked[:3], bad[0], *asked[3:9], bad[1], *asked[9:])]
    run(engine)
    failed = [requests.pop(10), requests.pop(3)]
    for request in failed:
        assert list(request) == [Event(None, finish="error")] and str(request.error) == "poisoned"
    assert [heard(request) for request in requests] == wanted
    assert all(request.error is None for request in requests)
    assert engine.stats().used == 0 and engine.stats().finished["error"] == 2


def test_a_failure_while_writing() -> None:
    """The third token of one of three texts is the bad one: the two others do not notice."""
    model = Watched()
    sampling = Sampling(temperature=2.0, presence=0.5, frequency=0.5, max_tokens=8, stop=())
    asked = [Request((token,), replace(sampling, seed=token)) for token in (97, 98, 99)]
    wanted = [alone(model, request) for request in asked]
    model.poison = wanted[1][0][2]
    assert model.poison not in (*wanted[0][0], *wanted[2][0], *wanted[1][0][:2])
    engine = Engine(model, TOKENIZER)
    requests = answered(engine, *asked)
    assert heard(requests[0]) == wanted[0] and heard(requests[2]) == wanted[2]
    tokens, _, finish = heard(requests[1])
    assert tokens == wanted[1][0][:3] and finish == "error"


def test_scores_that_are_no_numbers() -> None:
    """They end the text, and leave nothing behind in its slot."""
    model = Watched(tied=False)
    wanted = alone(model, Request((97, 98), GREEDY))
    model.target.table.weight.data[200] = torch.nan
    engine = Engine(model, TOKENIZER, slots=1)
    for _ in range(2):
        (request,) = answered(engine, Request((97, 98, 200, 99), GREEDY))
        assert list(request) == [Event(None, finish="error")]
        assert isinstance(request.error, DivergedError) and request.error.code == "T001"
        assert engine.cache.tokens == [[]]
        (request,) = answered(engine, Request((97, 98), GREEDY))
        assert heard(request) == wanted


def test_listeners_and_tokenizers_that_fail(small: Transformer) -> None:
    def deaf(event: Event) -> None:
        raise ValueError("not listening")

    class Dumb:
        def decode(self, ids: Sequence[int]) -> str:
            if 100 in ids and len(ids) > 1:
                raise ValueError("speechless")
            return TOKENIZER.decode(ids)

    engine = Engine(small, Dumb())
    failing = [engine.submit(Request((97,), GREEDY), deaf), engine.submit(Request((100,), GREEDY))]
    good = engine.submit(Request((99,), GREEDY))
    run(engine)
    assert [str(request.error) for request in failing] == ["not listening", "speechless"]
    assert heard(good) == alone(small, good)
    assert engine.stats().used == 0


def test_a_mistake_of_our_own(small: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(small, TOKENIZER, slots=1)
    requests = [engine.submit(Request((97,), GREEDY)) for _ in range(2)]
    with monkeypatch.context() as patch:
        patch.setattr(engine.cache, "gather", lambda size: 1 / 0)
        run(engine)
    for request in requests:
        assert list(request)[-1].finish == "error" and isinstance(request.error, ZeroDivisionError)
    (again,) = answered(engine, Request((97,), GREEDY))
    assert heard(again) == alone(small, again)


def test_whether_it_is_alive() -> None:
    model = Watched()
    engine = Engine(model, TOKENIZER)
    assert engine.trouble
    with closing(engine):
        engine.start()
        assert not engine.trouble
        model.poison = 200
        for _ in range(3):
            assert not engine.trouble
            assert engine.submit(Request((200,), GREEDY)).wait(10)
        assert engine.trouble
        assert engine.submit(Request((97,), GREEDY)).wait(10)
        assert not engine.trouble
        model.poison = None
        model.lm.output.weight.data[3] = torch.nan
        for _ in range(3):
            assert engine.submit(Request((97,), GREEDY)).wait(10)
        assert engine.trouble
    assert engine.trouble


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("headway")}


def test_a_thread_of_its_own(small: Transformer) -> None:
    asked = make_requests(20)
    with closing(Engine(small, TOKENIZER, slots=4)) as engine:
        engine.start()
        engine.start()  # once is enough
        assert threads() == {"headway-engine"} and len(threading.enumerate()) >= 2
        requests = [engine.submit(request) for request in asked]
        assert [heard(request) for request in requests] == [alone(small, request) for request in asked]
        time.sleep(0.02)  # idle by now: it must wake up again
        request = engine.submit(asked[0])
        assert request.wait(10) and heard(request) == alone(small, asked[0])
    assert threads() == set()


def test_several_may_listen(small: Transformer) -> None:
    engine = Engine(small, TOKENIZER)
    request, came = engine.submit(Request((97,), GREEDY)), list[Event]()
    listeners = [threading.Thread(target=lambda: came.extend(request)) for _ in range(3)]
    for listener in listeners:
        listener.start()
    run(engine)
    for listener in listeners:
        listener.join(10)
        assert not listener.is_alive()
    assert len(came) == 8 and list(request) == []
    heard_by_callback = list[Event]()
    other = engine.submit(Request((97,), GREEDY), heard_by_callback.append)
    run(engine)
    assert tokens_of(heard_by_callback) == [token for token in alone(small, other)[0]]
    assert list(other) == []


class Clock:
    """Seconds that pass when looked at."""

    def __init__(self, each: float) -> None:
        self.now, self.each = 0.0, each

    def __call__(self) -> float:
        self.now += self.each
        return self.now


def test_draining(small: Transformer) -> None:
    for each, finished in ((0.0, True), (1.0, False)):
        engine = Engine(small, TOKENIZER, slots=2, clock=Clock(each))
        requests = [engine.submit(Request((97 + row,), replace(GREEDY, max_tokens=20))) for row in range(4)]
        engine.step()
        assert engine.drain(15.0) is finished
        ends = [list(request)[-1].finish for request in requests]
        assert ends == (["length"] * 4 if finished else ["cancelled"] * 4)
        assert engine.stats().used == engine.stats().running == engine.stats().waiting == 0
        with pytest.raises(Closed):
            engine.submit(Request((97,), GREEDY))
        with pytest.raises(Closed):
            engine.start()


def test_draining_a_thread(small: Transformer) -> None:
    for deadline, finished in ((30.0, True), (0.0, False)):
        engine = Engine(small, TOKENIZER, slots=2, capacity=40)
        engine.start()
        requests = [engine.submit(Request((97,), replace(GREEDY, max_tokens=39))) for _ in range(12)]
        assert engine.drain(deadline) is finished
        ends = [list(request)[-1].finish for request in requests]
        assert ends == ["length"] * 12 if finished else ends[-1] == "cancelled"
        assert threads() == set() and engine.stats().used == 0


def test_closing_ends_whatever_is_left(small: Transformer) -> None:
    engine = Engine(small, TOKENIZER, slots=1)
    requests = [engine.submit(Request((97,), GREEDY)) for _ in range(3)]
    engine.step()
    engine.close()
    engine.close()
    assert [list(request)[-1].finish for request in requests] == ["cancelled"] * 3
    assert engine.stats().used == 0 and not engine.step()


def test_the_numbers(small: Transformer) -> None:
    clock = Clock(0.0)
    engine = Engine(small, TOKENIZER, slots=3, clock=clock)
    assert engine.stats().tokens_per_second == 0.0
    for row in range(5):
        engine.submit(Request((97, 98 + row), replace(GREEDY, max_tokens=4)))
    engine.step()
    clock.now += 1.0
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.slots, stats.used) == (3, 2, 3, 3)
    assert (stats.prompt_tokens, stats.generated_tokens, stats.tokens_per_second) == (6, 3, 3.0)
    clock.now += 1.0
    run(engine)
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.used, stats.generated_tokens) == (0, 0, 0, 20)
    assert stats.tokens_per_second == 10.0 and stats.finished == {"length": 5}
    clock.now += 11.0
    assert engine.stats().tokens_per_second == 0.0


def storm(engine: Engine, count: int, seed: int) -> None:
    """Requests, half of which are cancelled at a random time: at once, while waiting, or while being written."""
    source, requests = random.Random(seed), list[Request]()
    doomed: list[Request] = []
    while len(requests) < count:
        try:
            request = engine.submit(Request(prompt_of(len(requests)), settings_of(len(requests))))
        except QueueFull:
            requests[-1].wait(0.001)
            continue
        requests.append(request)
        if source.random() < 0.5:
            doomed.append(request)
        for victim in [victim for victim in doomed if source.random() < 0.2]:
            victim.cancel()
            doomed.remove(victim)
    for victim in doomed:
        victim.cancel()
    for request in requests:
        assert request.wait(60)
        assert list(request)[-1].finish in ("stop", "length", "cancelled")


def calm(small: Transformer, count: int) -> None:
    before = threads()
    with closing(Engine(small, TOKENIZER, slots=4, queue=16)) as engine:
        memory = [part.data_ptr() for part in (*engine.cache.keys, *engine.cache.values)]
        engine.start()
        objects = []
        for seed in range(3):
            storm(engine, count, seed)
            stats = engine.stats()
            assert (stats.used, stats.running, stats.waiting) == (0, 0, 0)
            assert sum(stats.finished.values()) == (seed + 1) * count
            assert stats.finished["cancelled"] > count // 20 and not engine.sequences and not engine.waiting
            gc.collect()
            objects.append(len(gc.get_objects()))
        assert memory == [part.data_ptr() for part in (*engine.cache.keys, *engine.cache.values)]
        assert abs(objects[2] - objects[1]) < 100  # a request that stayed would be several objects
        assert (
            all(len(text) <= engine.capacity for text in engine.cache.tokens) and len(engine.counters._recent) < 10**5
        )
    assert threads() == before


def test_requests_that_come_and_go_leave_nothing(small: Transformer) -> None:
    calm(small, 40)


@pytest.mark.slow
def test_thousand_requests_that_come_and_go_leave_nothing(small: Transformer) -> None:
    calm(small, 1000)
