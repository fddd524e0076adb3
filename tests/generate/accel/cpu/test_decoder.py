"""Fast decoding on a CPU: kernels against the model itself, and what is written with them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from headway.config.model import ExpertsConfig
from headway.config.presets import gpt2, llama, transformer
from headway.data.tokenizers.train import train_tokenizer
from headway.generate.accel import dispatch as fast
from headway.generate.decode import Sampling, decode
from headway.generate.engine.engine import Engine, Request
from headway.generate.engine.runner import AcceleratedRunner
from headway.generate.prefix_cache import PrefixCache
from headway.model.model import Transformer
from tests.generate.conftest import answered, made
from tests.generate.twin import Twin

host = pytest.importorskip("headway.generate.accel.cpu.decoder")
plan = pytest.importorskip("headway.generate.accel.cpu.plan")

GREEDY = Sampling(temperature=0, max_tokens=12, stop=())
LLAMA = llama(2, 64, 4, 2, 96, 300)
SHAPES = {
    "llama": LLAMA,
    "gpt2": gpt2(2, 64, 4, 301, 96),
    "gemma-like": replace(LLAMA, decoder=replace(LLAMA.decoder, norm_offset=1.0, scale=0.3, activation="gelu_tanh")),
    "relu": replace(LLAMA, decoder=replace(LLAMA.decoder, activation="relu", gated=False, ffn_bias=True)),
    "tanh": replace(LLAMA, decoder=replace(LLAMA.decoder, activation="tanh", qkv_bias=True)),
    "scaled": replace(LLAMA, lm=replace(LLAMA.lm, scale=0.25)),
}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small models too."""
    monkeypatch.setattr(fast, "MIN_WEIGHTS", 0)
    yield
    fast._CACHED.clear()


def pair(model: Transformer, rows: int) -> list[Any]:
    caches = [model.start(batch=rows, capacity=40) for _ in range(2)]
    return [kind(model, c.keys, c.values) for kind, c in zip((host.CpuDecoder, Twin), caches, strict=True)]


@pytest.mark.parametrize("rows", [1, 3, 6])
@pytest.mark.parametrize("name", SHAPES)
def test_a_step_gives_the_scores_of_the_model(name: str, rows: int) -> None:
    model = made(SHAPES[name])
    texts = torch.randint(0, 300, (rows, 20)).tolist()
    found: list[Any] = []
    for decoder in pair(model, rows):
        decoder.prefill({row: (0, text[: 5 + row]) for row, text in enumerate(texts)})
        steps = [decoder.prefill({row: (5 + row, text[5 + row : 8 + row]) for row, text in enumerate(texts)})]
        for step in range(4):
            decoder.ids.copy_(torch.tensor([text[8 + row + step] for row, text in enumerate(texts)]))
            decoder.end.copy_(torch.tensor([8 + row + step for row in range(rows)]))
            steps.append(decoder.step().clone())
            assert decoder.argmax.tolist() == steps[-1].argmax(-1).tolist()
            assert decoder.end.tolist() == [9 + row + step for row in range(rows)]
        found.append(torch.stack(steps))
    torch.testing.assert_close(*found, atol=2e-4, rtol=2e-4)


def test_matrices_of_whole_numbers_are_multiplied_as_they_are() -> None:
    """By numbers in float32: the model itself rounds them to bfloat16."""
    model, wide = made(LLAMA, int8=True), made(LLAMA)
    with torch.no_grad():
        for name, part in wide.named_modules():
            if isinstance(part, torch.nn.Linear):
                part.weight.copy_(model.get_submodule(name).weight)
    fast_one, _ = pair(model, 2)
    _, twin = pair(wide, 2)
    found = []
    for decoder in (fast_one, twin):
        decoder.end.zero_()
        for token in (5, 6, 7):
            decoder.ids.fill_(token)
            scores = decoder.step()
        found.append(scores.clone())
    torch.testing.assert_close(*found, atol=2e-4, rtol=2e-4)


def written(model: Transformer, texts: list[list[int]], prompts: list[int], steps: int) -> torch.Tensor:
    """Logits (texts, steps, V) after prompts of these lengths and the tokens that follow."""
    cache = model.start(batch=len(texts), capacity=30)
    decoder = host.CpuDecoder(model, cache.keys, cache.values)
    read = decoder.prefill({row: (0, text[: prompts[row]]) for row, text in enumerate(texts)})
    found = [read.clone()]
    for step in range(steps):
        decoder.ids.copy_(torch.tensor([text[prompts[row] + step] for row, text in enumerate(texts)]))
        decoder.end.copy_(torch.tensor([prompts[row] + step for row in range(len(texts))]))
        found.append(decoder.step().clone())
    return torch.stack(found, 1)


@pytest.mark.parametrize("shape", ["llama", "gpt2", "odd"])
@pytest.mark.parametrize("rows", [2, 3, 4, 5, 15, 16, 17, 33, 70])
def test_with_whole_numbers_a_text_is_the_same_to_the_bit_alone_and_among_others(shape: str, rows: int) -> None:
    """Prompts of unequal length, and widths that are no multiple of a vector."""
    config = gpt2(1, 36, 2, 301, 96) if shape == "odd" else SHAPES[shape]
    model = made(config, int8=True)
    texts, prompts = torch.randint(0, 300, (rows, 20)).tolist(), torch.randint(1, 9, (rows,)).tolist()
    together = written(model, texts, prompts, 3)
    for row in (0, rows // 2, rows - 1):
        assert torch.equal(written(model, [texts[row]], [prompts[row]], 3)[0], together[row])


def test_an_int8_model_writes_a_text_alike_alone_and_among_many(quick: None) -> None:
    model = made(LLAMA, int8=True)
    prompts = [torch.randint(0, 300, (1 + row % 7,)).tolist() for row in range(fast.MAX_ROWS + 8)]
    assert fast.accelerates(model, len(prompts))

    def written_of(prompts: list[list[int]]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {row: [] for row in range(len(prompts))}
        for piece in decode(model, prompts, GREEDY):
            if piece.token is not None:
                found[piece.row].append(piece.token)
        return found

    together = written_of(prompts)
    assert all(len(tokens) == GREEDY.max_tokens for tokens in together.values())
    for row in range(0, len(prompts), 5):
        assert written_of([prompts[row]])[0] == together[row]
    assert list(written_of(prompts[:3]).values()) == [together[row] for row in range(3)]


@pytest.mark.parametrize("rows", [2, 3, 4, 5, 16, 31])
def test_a_step_is_the_same_to_the_bit_alone_and_among_others(rows: int) -> None:
    """In float32 too; what prompts leave is copied here, since torch sums them as it likes."""
    model, tokens = made(LLAMA), torch.randint(0, 300, (rows, 6))
    cache = model.start(batch=rows, capacity=9)
    for part in (*cache.keys, *cache.values):
        part.normal_()
    alone = [(model.start(batch=1, capacity=9), row) for row in range(0, rows, 3)]
    for own, row in alone:
        for new, old in zip((*own.keys, *own.values), (*cache.keys, *cache.values), strict=True):
            new.copy_(old[row : row + 1])

    def steps(keys: Any, values: Any, tokens: torch.Tensor) -> torch.Tensor:
        decoder, found = host.CpuDecoder(model, keys, values), []
        decoder.end.fill_(2)
        for column in tokens.T:
            decoder.ids.copy_(column)
            found.append(decoder.step().clone())
        return torch.stack(found, 1)

    together = steps(cache.keys, cache.values, tokens)
    for own, row in alone:
        assert torch.equal(steps(own.keys, own.values, tokens[row : row + 1])[0], together[row])


def test_only_rows_that_are_asked_for_are_computed() -> None:
    model = made(LLAMA)
    one, all_ = (host.CpuDecoder(model, c.keys, c.values) for c in [model.start(batch=4, capacity=9)] * 2)
    all_.ids.copy_(torch.tensor([1, 2, 3, 4]))
    whole = all_.step().clone()
    one.ids.copy_(all_.ids)
    one._logits.fill_(7.0)
    scores = one.step([3, 1])
    torch.testing.assert_close(scores[[1, 3]], whole[[1, 3]], atol=2e-4, rtol=2e-4)
    assert bool((scores[[0, 2]] == 7.0).all()) and one.end.tolist() == [0, 1, 0, 1]


def test_the_last_column_is_where_rows_end_up() -> None:
    model = made(LLAMA)
    cache = model.start(batch=1, capacity=5)
    decoder = host.CpuDecoder(model, cache.keys, cache.values)
    for _ in range(9):
        decoder.step()
    assert decoder.end.item() == 4


def test_scores_that_are_no_numbers_have_no_best_token() -> None:
    model = made(LLAMA)
    cache = model.start(batch=1, capacity=5)
    decoder = host.CpuDecoder(model, cache.keys, cache.values)
    model.decoder.norm.weight.data[3] = torch.nan
    decoder.step()
    assert decoder.argmax.item() == -1


def test_unusual_models_are_left_to_torch(quick: None) -> None:
    assert LLAMA.lm is not None and LLAMA.decoder is not None
    for changes in (
        {"lm": replace(LLAMA.lm, scale=0.5, bias="trained")},
        {"decoder": replace(LLAMA.decoder, norm_at="post")},  # with a norm at the end all the same
        {"decoder": replace(LLAMA.decoder, norm="dyt")},
        {"decoder": replace(LLAMA.decoder, experts=ExpertsConfig(count=4, d_ff=32))},
    ):
        assert not fast.accelerates(made(replace(LLAMA, **changes)), 1), changes  # type: ignore[arg-type]
    assert fast.accelerates(made(LLAMA), fast.MAX_ROWS) and not fast.accelerates(made(LLAMA), fast.MAX_ROWS + 1)
    assert not fast.accelerates(made(LLAMA).bfloat16(), 1)
    assert not fast.accelerates(made(transformer(1, 32, 2, 48)), 1)


def test_the_first_of_the_highest_unless_one_is_no_number() -> None:
    scores = np.array([[1, 3, 3], [1, np.nan, 0], [5, 2, np.nan], [-np.inf] * 3], np.float32)
    found = np.zeros(4, np.int64)
    plan.kernels.highest(scores, found)
    assert found.tolist() == [1, -1, -1, -1]


@pytest.mark.parametrize("int8", [False, True])
def test_texts_are_those_of_the_slow_way(int8: bool, monkeypatch: pytest.MonkeyPatch, quick: None) -> None:
    model = made(LLAMA, int8)
    prompts = [[1, 2, 3], [4], [5, 6, 7, 8]]
    how = [GREEDY, replace(GREEDY, max_tokens=3), Sampling(seed=3, max_tokens=9, stop=(), repetition=1.2)]
    assert fast.accelerates(model, 3)
    found = [(p.row, p.token) for p in decode(model, prompts, how)]
    monkeypatch.setattr(fast, "MIN_WEIGHTS", 1 << 60)
    wanted = [(p.row, p.token) for p in decode(model, prompts, how)]
    same = sum(a == b for a, b in zip(found, wanted, strict=True))
    assert same == len(wanted) if not int8 else same > len(wanted) // 2


def test_an_engine_writes_the_same(quick: None) -> None:
    model = made(LLAMA)
    prompts = [[n, n + 1, n + 2] for n in range(1, 20, 3)]
    wanted = [[p.token for p in decode(model, [prompt], GREEDY)] for prompt in prompts]
    engine = Engine(model, train_tokenizer("bytes", []), slots=3, capacity=30, queue=40)
    assert isinstance(engine.scheduler.runner, AcceleratedRunner) and not engine.scheduler.runner.fast.runs_ahead
    requests = answered(engine, *(Request(tuple(prompt), GREEDY) for prompt in prompts))
    assert [[event.token for event in request] for request in requests] == wanted


def test_an_engine_reuses_only_what_is_in_the_cache(quick: None) -> None:
    """A stop token ends a sequence before any step has computed its keys: the next turn must prefill it."""
    model = made(LLAMA)
    engine = Engine(model, train_tokenizer("bytes", []), slots=2, capacity=60)
    stop = [p.token for p in decode(model, [[1, 2, 3]], GREEDY)][3]
    how, prompt = replace(GREEDY, stop=(stop,)), (1, 2, 3)
    for _ in range(3):
        (request,) = answered(engine, Request(prompt, how))
        tokens = [event.token for event in request if event.token is not None]
        assert tokens == [p.token for p in decode(model, [list(prompt)], how)]
        prompt = (*prompt, *tokens, 5, 6)


def test_a_conversation_is_not_read_from_its_beginning(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made(LLAMA)
    read: list[int] = []
    inner = host.CpuDecoder.prefill

    def counted(self: Any, texts: Any) -> Any:
        read.extend(len(new) for _, new in texts.values())
        return inner(self, texts)

    monkeypatch.setattr(host.CpuDecoder, "prefill", counted)
    held, text = PrefixCache(model), [1, 2, 3, 4, 5, 6]
    for tokens in (7, 400):  # the second needs more room: what was read moves there
        text = [*text, 9, 10]
        begin = len(text)
        text += [p.token for p in decode(held, [text], replace(GREEDY, max_tokens=tokens)) if p.token is not None]
        wanted = [p.token for p in decode(model, [text[:begin]], replace(GREEDY, max_tokens=tokens))]
        assert text[begin:] == wanted
    assert read == [8, 8, 3, 17]  # turn by turn, held and not: the last token of a turn, and what came after


def test_a_text_that_was_not_read_to_its_end_is_read_anew(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made(LLAMA)
    held, text = PrefixCache(model), [7, 8, 9, 10, 11]
    wanted = [p.token for p in decode(model, [text], GREEDY)]
    [*decode(held, [[1, 2, 3]], GREEDY)]
    inner = host.CpuDecoder.prefill

    def fail(self: Any, texts: Any) -> Any:
        raise RuntimeError("interrupted")

    monkeypatch.setattr(host.CpuDecoder, "prefill", fail)
    with pytest.raises(RuntimeError, match="interrupted"):
        [*decode(held, [text], GREEDY)]
    monkeypatch.setattr(host.CpuDecoder, "prefill", inner)
    for _ in range(2):  # the second time all of it is known, and its last token is read again
        assert [p.token for p in decode(held, [text], GREEDY)] == wanted


def test_what_fewer_rows_had_read_is_of_no_use(quick: None) -> None:
    model = made(LLAMA)
    two = fast.acquire(model, 2, 10)
    fast.release(two)
    three = fast.acquire(model, 3, 1000)
    assert three.rows == 3 and three.held == [[], [], []]
    fast.release(three)
    assert fast.acquire(model, 3, 900) is three


def test_what_was_read_for_one_is_forgotten_for_others(quick: None) -> None:
    """Weights may have changed in their place."""
    model = made(LLAMA)
    [*decode(model, [[1, 2, 3]], GREEDY)]
    for parameter in model.parameters():
        parameter.data *= 1.5
    found = [p.token for p in decode(model, [[1, 2, 3]], GREEDY)]
    fast._CACHED.clear()
    assert found == [p.token for p in decode(model, [[1, 2, 3]], GREEDY)]


def test_kernels_are_compiled_beforehand(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    model, steps = made(LLAMA), []
    step = host.CpuDecoder.step
    monkeypatch.setattr(host.CpuDecoder, "step", lambda self, rows: steps.append(len(rows)) or step(self, rows))
    monkeypatch.setattr(host, "compiled", lambda: False)
    fast.compile_kernels(model, 3, now=False)
    assert sorted(steps) == [1, 3]
    monkeypatch.setattr(host, "compiled", lambda: True)
    fast.compile_kernels(model, 1, now=False)
    assert len(steps) == 2  # left to the first step
    fast.compile_kernels(model, 1)
    assert len(steps) == 3
    monkeypatch.undo()
    assert host.compiled()  # kept by the steps above
    monkeypatch.setattr(fast, "MIN_WEIGHTS", 1 << 60)
    monkeypatch.setattr(host, "CpuDecoder", None)
    fast.compile_kernels(model, 1)
    fast.compile_kernels(object(), 1)


def test_the_first_token_needs_no_kernels() -> None:
    """Numba takes half a second to import, and the prefill is the model's own."""
    program = """
import sys
from headway.config.presets import preset
from headway.generate.accel import dispatch
from headway.generate.decode import Sampling, decode
from headway.model.model import Transformer
dispatch.MIN_WEIGHTS = 0
model = Transformer(preset("gpt2-tiny")).eval()
assert dispatch.accelerates(model, 1)
assert len(list(decode(model, [[1, 2]], Sampling(max_tokens=1)))) == 1
assert "numba" not in sys.modules
assert len(list(decode(model, [[1, 2]], Sampling(max_tokens=2)))) == 2
assert "numba" in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_the_first_kernel_leaves_torchs_threads_alone() -> None:
    pace, before = plan.Pace(), torch.get_num_threads()
    with pace:
        torch.set_num_threads(before + 1)  # as Numba's pool does when it starts
    assert torch.get_num_threads() == before


def test_half_of_the_threads_where_others_want_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    counts: list[int] = []
    monkeypatch.setattr(plan.numba, "set_num_threads", counts.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(plan.numba.config, "NUMBA_NUM_THREADS", 8)
    pace = plan.Pace(clock=lambda: now[0])
    for step in range(1500):
        busy = 500 <= step < 1000
        with pace:
            slow = step == 150  # one slow step says nothing
            now[0] += 50.0 if slow else 1.0 if counts[-1] == 1 else 3.0 if busy else 0.6
    assert counts[:500].count(1) <= 6
    assert counts[520:1000].count(2) <= 5 * plan.LOOK
    assert counts[1000 + plan.TRY :].count(1) <= 5
