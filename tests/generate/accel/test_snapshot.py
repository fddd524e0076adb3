"""Weights that change between two texts: nothing of the old ones is left, whichever way the model is read."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from headway.config.model import ModelConfig, TokensConfig
from headway.config.presets import llama, t5, transformer
from headway.data.tokenizers.train import train_tokenizer
from headway.generate.accel import dispatch as fast
from headway.generate.accel.snapshot import Snapshot
from headway.generate.beam.search import Beam, beam_search
from headway.generate.decode import Sampling, generate
from headway.generate.engine.engine import Engine, Request
from headway.generate.prefix_cache import PrefixCache
from headway.generate.protocol import Source
from headway.generate.score import score
from headway.generate.speculative import SpeculativeDecoder
from headway.kernels.lora import LoRALinear, add_adapters, merge_adapters
from headway.model.model import Transformer
from headway.model.quantize import quantize_
from tests.generate.conftest import answered, made

GREEDY = Sampling(temperature=0, max_tokens=10, stop=())
PROMPT = [5, 9, 2, 7, 7, 1, 30, 31, 32, 33]
LLAMA = llama(2, 64, 4, 2, 96, 300)
assert LLAMA.lm is not None
UNTIED = replace(LLAMA, lm=replace(LLAMA.lm, tied=False))


def small(config: ModelConfig) -> ModelConfig:
    assert isinstance(config.source, TokensConfig) and config.target is not None
    return replace(config, source=replace(config.source, vocab=90), target=replace(config.target, vocab=90))


SEQ2SEQ = {"columns": small(transformer(1, 64, 2, 48)), "packed": small(t5(1, 64, 2, 48))}

Change = Callable[[Transformer], None]


def scaled(path: str) -> Change:
    @torch.no_grad()
    def change(model: Transformer) -> None:
        model.get_parameter(path).mul_(-1.5)

    return change


def behind_torchs_back(model: Transformer) -> None:
    for parameter in model.decoder.blocks[0].parameters():
        parameter.data.mul_(-1.5)


def in_inference_mode(model: Transformer) -> None:
    with torch.inference_mode():
        model.get_parameter("decoder.blocks.0.ffn.down.weight").mul_(-1.5)


def loaded(assign: bool) -> Change:
    def change(model: Transformer) -> None:
        model.load_state_dict({k: v * -1.2 for k, v in model.state_dict().items()}, assign=assign)

    return change


def merged(model: Transformer) -> None:
    """Nothing but the attention's matrices moves, to other memory."""
    add_adapters(model, 4, ["qkv", "out"])
    for part in model.modules():
        if isinstance(part, LoRALinear):
            nn.init.normal_(part.widen, std=0.5)
    merge_adapters(model)
    model.requires_grad_(False)


def trained(model: Transformer) -> None:
    """A fused optimizer: torch does not count what it writes."""
    model.requires_grad_(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.3, fused=True)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    before = [p._version for p in model.parameters()]
    optimizer.step()
    assert [p._version for p in model.parameters()] == before
    model.requires_grad_(False)
    for parameter in model.parameters():
        parameter.grad = None


def there_and_back(model: Transformer) -> None:
    """Other numbers, often in the memory that was freed before."""
    model.half().float()
    with torch.no_grad():
        model.lm.output.weight.mul_(-1)


def quantized(model: Transformer) -> None:
    with torch.no_grad():
        model.get_parameter("decoder.blocks.0.attention.out.weight").mul_(-1.5)
    quantize_(model)


CHANGES: dict[str, Change] = {
    "attention": scaled("decoder.blocks.1.attention.out.weight"),
    "ffn": scaled("decoder.blocks.0.ffn.up.weight"),
    "norm": scaled("decoder.blocks.0.residual2.norm.weight"),
    "last norm": scaled("decoder.norm.weight"),
    "table": scaled("target.table.weight"),
    "output": scaled("lm.output.weight"),
    ".data": behind_torchs_back,
    "inference mode": in_inference_mode,
    "state dict": loaded(False),
    "state dict assigned": loaded(True),
    "LoRA merge": merged,
    "fused optimizer": trained,
    "half and back": there_and_back,
    "int8": quantized,
}


def by_generate(reader: object, model: Transformer) -> list[int]:
    return list(generate(reader, PROMPT, 10, GREEDY))  # type: ignore[type-var]


def by_score(reader: PrefixCache, model: Transformer) -> list[int]:
    rows = [PROMPT * 4 + [tail, 3, 5] for tail in (1, 2)]
    found = score(model, rows, [len(PROMPT * 4)] * 2, prefix=reader)
    return [round(float(x) * 1e4) for row in found for x in row]


@pytest.fixture(params=["kernels", "model"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "kernels":
        pytest.importorskip("numba")
        monkeypatch.setattr(fast, "MIN_WEIGHTS", 0)
    yield request.param
    fast._CACHED.clear()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["plain", "prefix", "score", "speculation"])
def test_a_model_that_changed_writes_as_a_new_one(way: str, kind: str, change: str) -> None:
    model = made(UNTIED)

    def reader(of: Transformer) -> object:
        if kind == "speculation":
            return SpeculativeDecoder(PrefixCache(of), PrefixCache(of), GREEDY)
        return of if kind == "plain" else PrefixCache(of)

    kept, write = reader(model), by_score if kind == "score" else by_generate
    before = write(kept, model)  # type: ignore[arg-type]
    assert write(kept, model) == before  # type: ignore[arg-type]
    CHANGES[change](model)
    fresh = copy.deepcopy(model)
    expected = write(reader(fresh), fresh)  # type: ignore[arg-type]
    assert expected != before
    assert write(kept, model) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("change", CHANGES)
def test_an_engine_forgets_prompts_that_others_weights_read(way: str, change: str) -> None:
    tokenizer = train_tokenizer("bytes", [])
    model = made(UNTIED)

    def write(engine: Engine) -> tuple[int, ...]:
        (request,) = answered(engine, Request(tuple(PROMPT), GREEDY))
        return tuple(event.token for event in request if event.token is not None)

    engine = Engine(model, tokenizer, slots=2, capacity=40)
    before = write(engine)
    assert write(engine) == before and engine.stats().prefix_tokens > 0
    CHANGES[change](model)
    expected = write(Engine(copy.deepcopy(model), tokenizer, slots=2, capacity=40))
    assert expected != before
    assert write(engine) == expected


@pytest.mark.parametrize("change", ["attention", "table", ".data", "state dict", "LoRA merge", "int8"])
@pytest.mark.parametrize("rows", [2, 20])
@pytest.mark.parametrize("kind", SEQ2SEQ)
def test_beams_of_a_model_that_changed(way: str, change: str, rows: int, kind: str) -> None:
    """Few by the kernels, many in columns or with a packed output matrix."""
    model = made(SEQ2SEQ[kind])
    alter = scaled("decoder.blocks.0.attention.out.weight") if change == "attention" else CHANGES[change]

    def write(of: Transformer) -> list[list[int]]:
        source = Source(torch.arange(rows * 4).view(rows, 4) % 80 + 2)
        found = beam_search(of, Beam(width=2, max_tokens=6, eos=()), [[1]] * rows, source=source)
        return [list(hypotheses[0].tokens) for hypotheses in found]

    before = write(model)
    alter(model)
    expected = write(copy.deepcopy(model))
    assert expected != before and write(model) == expected


def tensors(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


@pytest.mark.parametrize("int8", [False, True])
def test_a_change_of_any_tensor_is_seen(int8: bool) -> None:
    """Through .data, where torch counts nothing; so also whatever torch counts."""
    model = made(UNTIED, int8)
    snapshot = Snapshot(model)
    assert snapshot.same(model) and snapshot.placed(model)
    for tensor in tensors(model):
        kept = tensor.detach().clone()
        tensor.data.copy_(tensor.data + 1 if tensor.is_floating_point() else tensor.data ^ 1)
        assert not snapshot.same(model) and snapshot.placed(model)
        tensor.data.copy_(kept)
        assert snapshot.same(model)


def test_a_single_number_is_seen_where_torch_counts() -> None:
    model = made(UNTIED)
    snapshot = Snapshot(model)
    with torch.no_grad():
        model.decoder.blocks[1].ffn.up.weight[3, 5] += 1
    assert snapshot.placed(model) and not snapshot.same(model)


def test_numbers_that_are_none_are_the_same_as_before() -> None:
    model = made(UNTIED)
    model.decoder.norm.weight.data.fill_(torch.nan)
    assert Snapshot(model).same(model)


def test_weights_made_in_inference_mode() -> None:
    with torch.inference_mode():
        model = made(UNTIED)
    snapshot = Snapshot(model)
    assert snapshot.same(model)
    with torch.inference_mode():
        model.decoder.norm.weight.mul_(2)
    assert not snapshot.same(model)


def test_other_tensors_in_the_same_place_are_told_apart() -> None:
    """Memory that was freed is the first that is used again."""
    model = made(UNTIED)
    snapshot, norm = Snapshot(model), model.decoder.norm
    for _ in range(20):
        norm.weight = nn.Parameter(norm.weight.detach() * 1.0, requires_grad=False)
        assert not snapshot.placed(model)
