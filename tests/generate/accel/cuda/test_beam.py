"""A search recorded for a GPU finds what the ordinary one finds: on a CPU with torch in the place of the kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headway.config.model import ModelConfig, SpecialTokens
from headway.config.recipe import ShapeConfig
from headway.config.shape import seq2seq_config
from headway.generate.accel.cuda import beam as gpubeam
from headway.generate.accel.cuda import ops as products
from headway.generate.accel.cuda import topk as candidates
from headway.generate.accel.dispatch import accelerates_beams
from headway.generate.beam import search as beam_module
from headway.generate.beam.rules import Group, Rules, Search
from headway.generate.beam.search import Beam, beam_search
from headway.generate.protocol import Source, initial_ids
from headway.model.model import Transformer

VOCAB, EOS, START = 61, 2, 1


def shape(norm_at: Literal["pre", "post"], groups: int = 4, **fields: Any) -> ModelConfig:
    width = {"depth": 2, "width": 32, "heads": 4, "ff": 48, "dropout": 0.0} | fields
    made = seq2seq_config(ShapeConfig(norm_at=norm_at, positions="sinusoidal", **width), VOCAB, 40)
    assert made.decoder is not None
    special = SpecialTokens(pad=0, bos=START, eos=EOS, start=START)
    return replace(made, special=special, decoder=replace(made.decoder, n_kv_heads=groups))


def model_of(config: ModelConfig) -> Transformer:
    torch.manual_seed(1)
    model = Transformer(config).eval()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


MODELS = {
    "pre": shape("pre", activation="relu"),
    "post": shape("post", activation="gelu"),
    "grouped": shape("pre", groups=2, activation="relu"),
}


class Again:
    """Stands in for a graph: does the work again, and leaves the result where the first one was."""

    def __init__(self, work: Callable[[], Tensor]) -> None:
        self.work, self.result = work, work()

    def replay(self) -> None:
        self.result.copy_(self.work())


def add_and_norm(x: Tensor, y: Tensor | None, norm: Any) -> Tensor:
    if y is not None:
        x += y
    normed: Tensor = norm(x)
    return normed


def gate_values(x: Tensor, act: str, gated: bool) -> Tensor:
    assert not gated
    return {"relu": torch.relu, "gelu": torch.nn.functional.gelu}[act](x)


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """One query (H, D) over keys and values (G, S, D)."""
    k, v = (t.repeat_interleave(len(q) // len(t), 0) for t in (k, v))
    weights = (torch.einsum("hd,hsd->hs", q, k) * scale).softmax(-1)
    return torch.einsum("hs,hsd->hd", weights, v)


def look(self: gpubeam.CudaBeamSearch, layer: int, qkv: Tensor) -> Tensor:
    heads, groups, width = self.stack.n_heads, self.stack.kv_heads, self.stack.head_width
    out, end = [], int(self.end)
    for row, values in enumerate(qkv.unflatten(-1, (-1, width))):
        q, k, v = values.split([heads, groups, groups])
        home, columns = self.held[row, :end].long(), torch.arange(end)
        keys, contents = (
            torch.cat([held[layer][home, :, columns].transpose(0, 1), new[:, None]], 1)
            for held, new in ((self.keys, k), (self.values, v))
        )
        self.keys[layer][row, :, end], self.values[layer][row, :, end] = k, v
        out.append(attend(q, keys, contents, self.stack.scale or width**-0.5).flatten())
    return torch.stack(out)


def cross_attend(self: gpubeam.CudaBeamSearch, layer: int, queries: Tensor) -> Tensor:
    keys, values = self.memory[layer]
    width, beams = self.stack.head_width, len(queries) // len(keys)
    out = []
    for row, q in enumerate(queries.unflatten(-1, (-1, width))):
        source = row // beams
        seen = self.seen[source]
        found = attend(q, keys[source][:, seen], values[source][:, seen], self.stack.scale or width**-0.5)
        out.append(found.flatten())
    return torch.stack(out)


def on_host(place: Any, name: str, twin: Callable[..., Any], patch: pytest.MonkeyPatch) -> None:
    """A twin in place of a function whose first argument is on a CPU; on a GPU the function itself is tested."""
    real = getattr(place, name)

    def either(first: Any, *rest: Any) -> Any:
        owner = getattr(first, "__self__", first)  # work that is to be recorded is a method
        device = getattr(owner, "ids", owner)
        return (twin if getattr(device, "device", device).type == "cpu" else real)(first, *rest)

    patch.setattr(place, name, either)


@pytest.fixture(scope="module", autouse=True)
def _twins() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        on_host(gpubeam, "capture_graph", lambda work: (again := Again(work), again.result), patch)
        on_host(gpubeam, "cache_budget", lambda device: 1 << 28, patch)
        on_host(products, "add_and_norm", add_and_norm, patch)
        on_host(products, "gate_values", gate_values, patch)
        on_host(gpubeam.CudaBeamSearch, "_attend", look, patch)
        on_host(gpubeam.CudaBeamSearch, "_cross_attend", cross_attend, patch)
        yield


@torch.no_grad()
def both(model: Transformer, beam: Beam, source: Source, prompts: list[list[int]] | None = None) -> tuple[Any, Any]:
    begin = initial_ids(model, prompts, source)
    search = Search(model, beam, begin)
    assert gpubeam.suits(search)
    fast = gpubeam.find(model, search, begin, source)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beam_module, "accelerates_beams", lambda model: False)
        return fast, beam_search(model, beam, prompts, source=source)


def agree(model: Transformer, beam: Beam, source: Source, prompts: list[list[int]] | None = None) -> None:
    fast, slow = both(model, beam, source, prompts)
    assert [[h.tokens for h in best] for best in fast] == [[h.tokens for h in best] for best in slow]
    scores = [[h.score for best in found for h in best] for found in (fast, slow)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def source_of(lengths: list[int], device: str = "cpu") -> Source:
    attention_mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids = torch.randint(3, VOCAB, attention_mask.shape, generator=torch.Generator().manual_seed(len(lengths)))
    return Source(ids.to(device), attention_mask.to(device))


SEARCHES = st.builds(
    Beam,
    width=st.sampled_from([2, 3, 5]),
    n_best=st.sampled_from([1, 2]),
    length_penalty=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    early=st.sampled_from([False, True, "never"]),
    max_tokens=st.sampled_from([1, 4, 12]),
    first=st.sampled_from([None, 4]),
    last=st.sampled_from([None, EOS]),
    banned=st.sampled_from([(), ((5,), (7,)), ((9,),)]),
    eos=st.sampled_from([None, (EOS, 11, 30)]),
)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=12, deadline=None)
@given(beam=SEARCHES, lengths=st.lists(st.integers(1, 20), min_size=1, max_size=5), prompted=st.booleans())
def test_what_is_found_is_the_same(name: str, beam: Beam, lengths: list[int], prompted: bool) -> None:
    prompts = [[START, 3 + i] for i in range(len(lengths))] if prompted else None
    agree(model_of(MODELS[name]), beam, source_of(lengths), prompts)


def test_a_source_without_anything_real_is_looked_at_as_a_whole() -> None:
    agree(model_of(MODELS["pre"]), Beam(width=3, max_tokens=6), source_of([0, 5, 3]))


def test_recordings_are_used_again_and_follow_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    model, made = model_of(MODELS["pre"]), []
    build = gpubeam.CudaBeamSearch.__init__

    def counted(self: gpubeam.CudaBeamSearch, *rest: Any) -> None:
        made.append(rest)
        build(self, *rest)

    monkeypatch.setattr(gpubeam.CudaBeamSearch, "__init__", counted)
    for lengths in ([4, 9, 2], [7, 7, 7, 1], [30, 3]):  # of like shape, of another
        agree(model, Beam(width=3, max_tokens=9), source_of(lengths))
    assert len(made) == 2
    written = beam_search(model, Beam(width=3, max_tokens=9), source=source_of([30, 3]))
    for banned in (tuple((token,) for token in written[0][0].tokens), ()):  # rules of one search are not another's
        agree(model, Beam(width=3, max_tokens=9, banned=banned), source_of([30, 3]))
    assert len(made) == 2
    with torch.no_grad():
        next(model.decoder.parameters()).mul_(1.5)  # as training does: in its place
    agree(model, Beam(width=3, max_tokens=9), source_of([30, 3]))
    assert len(made) == 2
    model.double().float()  # other memory
    agree(model, Beam(width=3, max_tokens=9), source_of([30, 3]))
    assert len(made) == 3
    for width in range(2, 6):
        agree(model, Beam(width=width, max_tokens=2), source_of([3]))
    assert len(gpubeam._CACHED[model]) == gpubeam.KEPT


def test_inputs_that_have_no_room_together_are_searched_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    model, sizes = model_of(MODELS["post"]), []
    run = gpubeam.CudaBeamSearch.start
    each = 2 * 2 * 32 * 4 * 3 * 32  # two layers of keys and values, 32 wide, in float32; three beams, 32 columns

    def start(self: gpubeam.CudaBeamSearch, search: Search, prompts: Any, memory: Any) -> None:
        sizes.append(len(prompts))
        run(self, search, prompts, memory)

    monkeypatch.setattr(gpubeam.CudaBeamSearch, "start", start)
    for bytes_, parts in ((each - 1, [1] * 5), (2 * each, [2, 2, 1]), (100 * each, [5])):
        sizes.clear()
        monkeypatch.setattr(gpubeam, "cache_budget", lambda device, bytes_=bytes_: bytes_)
        agree(model, Beam(width=3, max_tokens=9), source_of([4, 9, 2, 8, 1]))
        assert sizes == parts


def test_the_look_that_ends_a_search_is_not_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps after the last input has ended change nothing; none is left out before."""
    model = model_of(MODELS["post"])
    model.lm.output.weight.data[EOS] *= 3  # texts end soon
    for count in (1, 2, 7):
        monkeypatch.setattr(gpubeam, "LOOK", count)
        agree(model, Beam(width=4, max_tokens=30), source_of([5, 9, 3, 8]))


@pytest.mark.parametrize("penalty", [2.0, 4.0])
def test_an_input_that_has_ended_does_not_begin_anew(penalty: float) -> None:
    """Where length counts for much, a worse beginning may become better than what was found: too late by then."""
    ends = tuple(range(2, 14))
    for name in MODELS:
        beam = Beam(width=2, max_tokens=16, length_penalty=penalty, eos=ends)
        agree(model_of(MODELS[name]), beam, source_of([5, 9, 3, 8, 2, 7, 1, 4]))


@pytest.mark.parametrize(
    ("fields", "accelerates"),
    [
        ({}, True),
        ({"first": 3, "last": 4, "banned": ((5,),)}, True),
        ({"banned": ((5, 6),)}, False),
        ({"no_repeat": 2}, False),
        ({"min_tokens": 2}, False),
        ({"groups": 2, "width": 4}, False),
        ({"width": 17}, False),
    ],
)
def test_rules_that_need_whole_rows_of_scores_are_left_to_the_ordinary_way(fields: Any, accelerates: bool) -> None:
    assert gpubeam.suits(Search(model_of(MODELS["pre"]), Beam(**fields), [[START]])) == accelerates


def test_a_cpu_has_no_use_for_it() -> None:
    assert not accelerates_beams(model_of(MODELS["pre"]))


def test_without_memory_for_it_the_ordinary_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    model, source, beam = model_of(MODELS["pre"]), source_of([5, 3]), Beam(width=2, max_tokens=6)
    wanted, forgotten = beam_search(model, beam, source=source), list[Transformer]()

    def full(*_: object) -> Any:
        raise torch.cuda.OutOfMemoryError("no room")

    monkeypatch.setattr(beam_module, "accelerates_beams", lambda model: True)
    monkeypatch.setattr(gpubeam, "find", full)
    monkeypatch.setattr(gpubeam, "forget", forgotten.append)
    assert beam_search(model, beam, source=source) == wanted and forgotten == [model]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 70), st.integers(1, 40), st.integers(0, 1000))
def test_the_likeliest_tokens(rows: int, vocab: int, count: int, seed: int) -> None:
    dice = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, vocab, generator=dice)
    allowed = torch.rand(vocab, generator=dice) < 0.8
    logp, tokens = candidates.likeliest(scores, count, allowed)
    wanted = scores.log_softmax(-1).masked_fill(~allowed, -torch.inf).sort(descending=True)
    count = min(count, vocab)
    assert logp.shape == tokens.shape == (rows, count) and torch.allclose(logp, wanted.values[:, :count], atol=1e-5)
    real = logp > -torch.inf
    assert torch.equal(tokens[real], wanted.indices[:, :count][real])


def test_a_forced_token_is_the_only_one() -> None:
    rules = Rules(Beam(width=2, first=5, last=7), torch.tensor([EOS]), torch.tensor([[1], [3]]))
    own, last = torch.rand(2, 2, 3).log(), torch.arange(12).view(2, 2, 3)
    for at, tokens in ((0, (7, 5)), (1, (None, None)), (2, (None, 7))):
        found, chosen = rules.forced(own, last, torch.tensor([at]))
        for row, token in enumerate(tokens):
            if token is None:
                assert torch.equal(found[row], own[row]) and torch.equal(chosen[row], last[row])
            else:
                assert found[row].tolist() == [[0.0, -torch.inf, -torch.inf]] * 2 and bool((chosen[row] == token).all())


def test_groups_are_tensors_of_their_own() -> None:
    group = Group.empty(2, 3, 4, torch.device("cpu"))
    places = {tensor.data_ptr() for tensor in group.tensors()}
    assert len(places) == len(group.tensors()) == 6


@pytest.mark.gpu
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("width", [1, 4, 5])
def test_kernels_find_the_same_on_a_gpu(name: str, width: int) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    model = model_of(MODELS[name]).cuda()
    assert accelerates_beams(model)
    for lengths in ([3], [5, 1, 20], [*range(1, 40)], [7] * 70):
        beam = Beam(width=width, max_tokens=33, banned=((5,),), last=EOS)
        agree(model, beam, source_of(lengths, "cuda"))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocab", [50, 2048, 32_001])
@pytest.mark.parametrize("share", [0.8, 0.1])
def test_a_row_has_the_likeliest_of_all(vocab: int, dtype: torch.dtype, share: float) -> None:
    wide = torch.randn(33, vocab + 7, device="cuda").to(dtype)
    scores, allowed = wide[:, :vocab], torch.rand(vocab, device="cuda") < share  # of 50 tokens there are then too few
    logp, tokens = candidates.by_row(scores, 10, allowed)
    exact = scores.float().log_softmax(-1).masked_fill(~allowed, -torch.inf)
    assert torch.allclose(logp, exact.topk(10).values, atol=1e-4)
    assert torch.allclose(exact.gather(1, tokens), logp, atol=1e-4)
    assert all(len(set(row)) == 10 for row in tokens.tolist())
