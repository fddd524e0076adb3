"""Fast decoding: the order of things on any machine, with a slow twin in its place; the kernels on a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.config.model import ModelConfig
from headway.config.presets import gpt2, llama
from headway.data.tokenizers.train import train_tokenizer
from headway.generate import decode as decoding
from headway.generate.accel import dispatch as fast_path
from headway.generate.accel import passes
from headway.generate.accel.cuda.decoder import CudaDecoder
from headway.generate.accel.dispatch import accelerates
from headway.generate.decode import Sampling, decode
from headway.generate.engine import engine as engines
from headway.generate.engine import runner
from headway.generate.engine.admission import PATIENCE
from headway.generate.engine.engine import Engine, Request
from headway.model.model import Model, Transformer
from tests.generate.conftest import answered, tiny_model
from tests.generate.twin import Twin, acquire

TOKENIZER = train_tokenizer("bytes", [])
HOW = [
    Sampling(temperature=0, max_tokens=9),
    Sampling(seed=1, max_tokens=17, repetition=1.3),
    Sampling(seed=2, max_tokens=4, top_k=5),
    Sampling(seed=3, max_tokens=40, stop=(7, 8, 9)),
    Sampling(temperature=0, max_tokens=1),
]
PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10, 11], [12, 13], [14]]


@pytest.fixture
def model() -> Transformer:
    return tiny_model(256, 24, 16, depth=1)


@pytest.fixture
def twin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is decoded takes the fast path, with a twin instead of the kernels."""
    for module in (decoding, engines):
        monkeypatch.setattr(module, "accelerates", lambda model, rows: True)
    monkeypatch.setattr(runner, "acquire", acquire)
    monkeypatch.setattr(runner, "release", lambda decoder: None)
    monkeypatch.setattr(engines, "make_decoder", Twin)


def everything(model: Transformer, **more: Any) -> list[Any]:
    return list(decode(model, [list(prompt) for prompt in PROMPTS], HOW, tokenizer=TOKENIZER, **more))


def test_beginning_a_step_early_changes_nothing(model: Transformer, request: pytest.FixtureRequest) -> None:
    slow: list[Any] = []
    wanted = everything(model, trace=slow)  # some texts outgrow the model, some stop
    request.getfixturevalue("twin")
    fast: list[Any] = []
    assert everything(model, trace=fast) == wanted
    assert len(fast) == len(slow) and [(c.row, c.position, c.chosen.token) for c in fast] == [
        (c.row, c.position, c.chosen.token) for c in slow
    ]


def test_a_decoder_is_given_back_even_by_who_stops_listening(
    model: Transformer, twin: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    back: list[Any] = []
    monkeypatch.setattr(runner, "release", back.append)
    pieces = decode(model, [[1]], Sampling(seed=1, max_tokens=9))
    next(pieces)
    assert not back
    pieces.close()  # type: ignore[attr-defined]
    assert len(back) == 1


def asked() -> list[Request]:
    made = [Request(tuple(prompt), how) for prompt in PROMPTS for how in HOW]
    return [replace(one, sampling=replace(one.sampling, seed=number)) for number, one in enumerate(made)]


def answers(model: Transformer, requests: list[Request], **settings: Any) -> tuple[list[Any], Engine]:
    engine = Engine(model, TOKENIZER, queue=100, **settings)
    return [[(e.token, e.text, e.finish) for e in request] for request in answered(engine, *requests)], engine


def holds_what_it_says(model: Model, engine: Engine, slot: int) -> None:
    """The keys in a slot are those of the tokens that it is said to hold."""
    tokens = engine.cache.tokens[slot]
    fresh = model.start(batch=1, capacity=25)
    model.step(fresh, torch.tensor([tokens]))
    torch.testing.assert_close(engine.cache.keys[0][slot, :, : len(tokens)], fresh.keys[0][0, :, : len(tokens)])


@pytest.mark.parametrize("settings", [{"slots": 3}, {"slots": 40}, {"slots": 2, "chunk": 2}])
def test_an_engine_with_steps_begun_early_gives_the_same_answers(
    model: Transformer, request: pytest.FixtureRequest, settings: dict[str, int]
) -> None:
    wanted, engine = answers(model, asked(), **settings)
    assert type(engine.scheduler.runner) is runner.SlotRunner
    request.getfixturevalue("twin")
    found, engine = answers(model, asked(), **settings)
    assert isinstance(engine.scheduler.runner, runner.AcceleratedRunner)
    assert found == wanted
    assert engine.stats().used == 0 and engine.stats().prompt_tokens <= sum(len(one.prompt) for one in asked())
    for slot, tokens in enumerate(engine.cache.tokens):
        if tokens:
            holds_what_it_says(model, engine, slot)


@pytest.mark.parametrize("waiting", [0, 1, 3])
def test_a_prompt_read_in_parts_while_others_are_written(model: Transformer, twin: None, waiting: int) -> None:
    """A step computes all slots: in that of a prompt half read, it must write beyond what was read."""
    engine = Engine(model, TOKENIZER, slots=2, chunk=2)
    prompts = [(1,), (7, 3, 9, 2, 8, 4, 6, 5, 1)]
    requests = [engine.submit(Request(prompts[0], Sampling(temperature=0, max_tokens=20)))]
    for _ in range(waiting):
        engine.step()
    requests.append(engine.submit(Request(prompts[1], Sampling(temperature=0, max_tokens=8))))
    answered(engine)
    for request, prompt in zip(requests, prompts, strict=True):
        alone = [piece.token for piece in decode(model, [list(prompt)], request.sampling)]
        assert [event.token for event in request] == alone
        slot = next(i for i, tokens in enumerate(engine.cache.tokens) if tuple(tokens[: len(prompt)]) == prompt)
        holds_what_it_says(model, engine, slot)


def test_cancelled_texts_make_room_in_a_step_on_its_way(model: Transformer, twin: None) -> None:
    engine = Engine(model, TOKENIZER, slots=2)
    first, second = (engine.submit(Request((i,), Sampling(seed=i, max_tokens=20))) for i in (1, 2))
    for _ in range(3):
        engine.step()
    first.cancel()
    third = engine.submit(Request((3,), Sampling(seed=3, max_tokens=20)))
    answered(engine)
    for request, prompt in ((second, 2), (third, 3)):
        alone = [piece.token for piece in decode(model, [[prompt]], Sampling(seed=prompt, max_tokens=20))]
        assert [event.token for event in request] == alone
    assert next(reversed([*first])).finish == "cancelled"


@pytest.mark.parametrize("error", [RuntimeError("no kernel image"), MemoryError("none"), KeyError("odd")])
def test_kernels_that_fail_are_tried_again_but_not_for_ever(
    model: Transformer, twin: None, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Whatever the error: the texts there are get their answers without kernels, the next ones with them."""
    engine, inner = Engine(model, TOKENIZER, slots=2), Twin.step
    wanted = [piece.token for piece in decode(model, [[5]], Sampling(seed=5, max_tokens=12))]
    for fault in range(4):
        calls = iter(range(100))

        def refuse(self: Twin, rows: Any = None, calls: Any = calls) -> Tensor:
            if next(calls) == 3:
                raise error
            return inner(self, rows)

        monkeypatch.setattr(Twin, "step", refuse)
        request = engine.submit(Request((5,), Sampling(seed=5, max_tokens=12)))
        if fault < 3:
            with pytest.warns(RuntimeWarning, match="goes on without it"):
                while engine.step():
                    pass
        while engine.step():
            pass
        assert [event.token for event in request] == wanted
        assert engine.failures == 0
        assert (engine.fast is None) == (fault >= 2)
    assert type(engine.scheduler.runner) is runner.SlotRunner


class Sour:
    """A mask that fails in its third step."""

    def __init__(self) -> None:
        self.calls = 0

    def allowed(self, row: int) -> Tensor | None:
        self.calls += 1
        if self.calls == 3:
            raise ZeroDivisionError
        return None

    def accept(self, row: int, token: int) -> None:
        return None


def test_a_mask_that_fails_is_the_affair_of_one_text(model: Transformer, twin: None) -> None:
    engine = Engine(model, TOKENIZER, slots=4)
    requests = [Request((i,), Sampling(seed=i, max_tokens=9), mask=Sour() if i == 2 else None) for i in range(1, 4)]
    requests = answered(engine, *requests)
    for prompt, request in enumerate(requests, 1):
        alone = [piece.token for piece in decode(model, [[prompt]], Sampling(seed=prompt, max_tokens=9))]
        found = [event.token for event in request if event.token is not None]
        assert found == (alone[:2] if prompt == 2 else alone)
    assert isinstance(requests[1].error, ZeroDivisionError)
    assert isinstance(engine.scheduler.runner, runner.AcceleratedRunner) and engine.failures == 0


def test_prompts_wait_for_company_but_not_for_ever(model: Transformer, twin: None) -> None:
    engine = Engine(model, TOKENIZER, slots=32, queue=100)
    long = [engine.submit(Request((i,), Sampling(seed=i, max_tokens=20))) for i in range(31)]
    short = engine.submit(Request((99,), Sampling(seed=1, max_tokens=3)))
    engine.step()
    late = engine.submit(Request((98,), Sampling(seed=1, max_tokens=2)))
    rounds_waited = 0
    while engine.waiting:
        engine.step()
        rounds_waited += 1
    assert 2 < rounds_waited <= 2 + PATIENCE + 1  # one slot of 32 becomes free, two would be enough at once
    answered(engine)
    assert all(request.wait(0) for request in (*long, short, late))


@pytest.mark.parametrize("counts", [[5], [2048], [2049], [100] * 20, [1] * 40, [5000, 3]])
def test_passes_have_every_token_once_and_in_order(counts: list[int]) -> None:
    texts = {row + 3: (row, [*range(count)]) for row, count in enumerate(counts)}
    seen: dict[int, list[int]] = {row: [] for row in texts}
    for part in passes.split_passes(texts):
        assert len(part) <= passes.SEQUENCES and sum(len(new) for _, _, new, _ in part) <= passes.SIZES[-1]
        for row, held, new, last in part:
            assert held == texts[row][0] + len(seen[row]) and new
            seen[row] += new
            assert last == (len(seen[row]) == len(texts[row][1]))
    assert seen == {row: [*new] for row, (_, new) in texts.items()}


def test_only_what_the_kernels_know_takes_the_fast_path(model: Transformer) -> None:
    assert not accelerates(model, 1)  # small, and on a CPU
    assert not accelerates(object(), 1)


SHAPES = {
    "llama": llama(3, 256, 8, 2, 512, 1000),
    "gpt2": gpt2(3, 256, 4, 1000, 1600),
    "heads of 96": llama(2, 192, 2, 1, 256, 1001),
    "gemma-like": replace(
        llama(2, 128, 4, 4, 320, 500),
        decoder=replace(llama(2, 128, 4, 4, 320, 500).decoder, norm_offset=1.0, scale=0.3),
    ),
}


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 3, 20])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("length", [7, 1200])
def test_kernels_are_as_exact_as_torch(name: str, rows: int, length: int) -> None:
    config: ModelConfig = SHAPES[name]
    torch.manual_seed(0)
    model = Transformer(config).to("cuda", torch.bfloat16).eval()
    wide = Transformer(config).to("cuda").eval()
    wide.load_state_dict(model.float().state_dict())
    model.bfloat16()
    assert accelerates(model, rows) and not accelerates(wide, rows)
    made = [m.start(batch=rows, capacity=1500) for m in (model, model, wide)]
    twins: list[Any] = [
        kind(m, cache.keys, cache.values)
        for kind, m, cache in zip((CudaDecoder, Twin, Twin), (model, model, wide), made, strict=True)
    ]
    texts = torch.randint(0, config.target.vocab, (rows, length + 6)).tolist()  # type: ignore[union-attr]
    sizes = [length - row % 5 for row in range(rows)]
    half = {row: (0, text[: size // 2]) for row, (text, size) in enumerate(zip(texts, sizes, strict=True)) if size > 1}
    rest = {row: (size // 2, text[size // 2 : size]) for row, (text, size) in enumerate(zip(texts, sizes, strict=True))}
    for twin in twins:
        twin.prefill(half)
    found = [[twin.prefill(rest).float()] for twin in twins]
    for step in range(6):
        for twin, scores in zip(twins, found, strict=True):
            twin.ids.copy_(torch.tensor([text[size + step] for text, size in zip(texts, sizes, strict=True)]))
            twin.end.copy_(torch.tensor([size + step for size in sizes]))
            scores.append(twin.step().float().clone())
    fast, slow, true = (torch.stack(scores) for scores in found)
    error, usual = (fast - true).abs().max() / true.std(), (slow - true).abs().max() / true.std()
    assert error < 0.06 and error < 1.5 * usual + 0.005


@pytest.mark.gpu
def test_a_kept_decoder_is_used_again_and_only_while_it_fits() -> None:
    model = Transformer(SHAPES["llama"]).to("cuda", torch.bfloat16).eval()
    first = fast_path.acquire(model, 2, 100)
    fast_path.release(first)
    again = fast_path.acquire(model, 2, 120)
    assert again is first and fast_path.acquire(model, 2, 100) is not first  # taken: nobody else gets it
    fast_path.release(again)
    assert fast_path.acquire(model, 3, 100) is not again
    fast_path.release(again)
    model.float().bfloat16()  # other memory
    assert fast_path.acquire(model, 2, 100) is not again


@pytest.mark.gpu
def test_an_engine_on_a_gpu_writes_what_decoding_writes() -> None:
    torch.manual_seed(0)
    model = Transformer(replace(SHAPES["llama"], decoder=replace(SHAPES["llama"].decoder, n_layers=1))).to(
        "cuda", torch.float16
    )
    model = model.eval()
    for parameter in model.parameters():
        parameter.data *= 3  # scores far apart: half precision does not decide
    requests = [Request(tuple(range(1 + n, 9 + n)), Sampling(temperature=0, max_tokens=20)) for n in range(30)]
    wanted = [[p.token for p in decode(model, [list(r.prompt)], r.sampling)] for r in requests]
    engine = Engine(model, TOKENIZER, slots=8, capacity=64, queue=40)
    requests = answered(engine, *requests)
    found = [[event.token for event in request] for request in requests]
    same = sum(a == b for a, b in zip(found, wanted, strict=True))
    assert same >= 27  # ties in half precision may fall either way


class Even:
    """A mask by which every second token may come, and nothing after four of them."""

    def __init__(self) -> None:
        self.count: dict[int, int] = {}

    def allowed(self, row: int) -> torch.Tensor | None:
        places = torch.arange(256)
        return (places % 2 == 0) & torch.tensor(self.count.get(row, 0) < 4)

    def accept(self, row: int, token: int) -> None:
        self.count[row] = self.count.get(row, 0) + 1


GREEDY = Sampling(temperature=0, max_tokens=12, stop=())


@pytest.mark.parametrize("what", ["plain", "trace", "mask"])
def test_the_best_token_of_a_step_is_used_where_it_is_all_that_counts(
    model: Transformer, request: pytest.FixtureRequest, what: str
) -> None:
    def run() -> tuple[list[Any], list[Any]]:
        trace: list[Any] = []
        more: dict[str, Any] = {"trace": {"trace": trace}, "mask": {"mask": Even()}, "plain": {}}[what]
        return list(decode(model, [list(prompt) for prompt in PROMPTS], GREEDY, **more)), trace

    wanted, slow = run()
    request.getfixturevalue("twin")
    found, fast = run()
    assert found == wanted
    assert [(c.chosen.token, len(c.best)) for c in fast] == [(c.chosen.token, len(c.best)) for c in slow]


@pytest.mark.parametrize("masked", [False, True])
def test_an_engine_that_is_asked_for_nothing_else_gives_the_best_tokens(
    model: Transformer, request: pytest.FixtureRequest, masked: bool
) -> None:
    def asks() -> list[Request]:
        return [Request(tuple(p), GREEDY, likely=False, mask=Even() if masked else None) for p in PROMPTS]

    wanted, _ = answers(model, asks(), slots=3)
    request.getfixturevalue("twin")
    found, _ = answers(model, asks(), slots=3)
    assert found == wanted
    written = [[token for token, _, _ in events if token is not None] for events in found]
    assert all(len(tokens) == 4 and not any(token % 2 for token in tokens) for tokens in written) == masked


def test_how_likely_a_token_was_is_told_by_a_fast_step_too(model: Transformer, request: pytest.FixtureRequest) -> None:
    def told() -> list[float | None]:
        engine = Engine(model, TOKENIZER, slots=2)
        (request,) = answered(engine, Request((1, 2), GREEDY))
        return [event.log_probability for event in request]

    wanted = told()
    request.getfixturevalue("twin")
    assert None not in wanted and told() == pytest.approx(wanted, rel=1e-4)


def test_scores_that_are_no_numbers_end_a_text_in_a_fast_step_too(model: Transformer, twin: None) -> None:
    engine = Engine(model, TOKENIZER, slots=2)
    request = engine.submit(Request((1, 2), GREEDY, likely=False))
    engine.step()
    with torch.no_grad():
        next(iter(model.decoder.parameters())).fill_(torch.nan)
    answered(engine)
    assert next(reversed([*request])).finish == "error" and "not numbers" in str(request.error)


def test_prompts_do_not_wait_where_there_is_room(model: Transformer, twin: None) -> None:
    engine = Engine(model, TOKENIZER, slots=32, queue=100)
    for i in range(10):
        engine.submit(Request((i,), Sampling(seed=i, max_tokens=20)))
    engine.step()
    engine.submit(Request((99,), Sampling(seed=1, max_tokens=3)))
    engine.step()
    assert not engine.waiting and engine.stats().running == 11
