"""What every baseline must do as a transformer does: padding, batches, decoding, reordering, and no look ahead."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headway.baselines.build import make_model
from headway.errors import ConfigError, DataError
from headway.generate.beam.search import Beam, beam_search
from headway.generate.decode import Sampling, decode
from headway.generate.protocol import Source
from headway.generate.score import score
from headway.model.model import Transformer
from headway.tasks.losses.tokens import IGNORE, token_loss
from tests.baselines.conftest import KINDS, SOURCE_VOCAB, VOCAB, named, small, small_config

LENGTHS = ((5, 4), (2, 7), (6, 1))
"""Of three sources and of what is written."""


def rows(lengths: list[int], vocab: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(vocab, (n,), generator=generator) for n in lengths]


def padded(found: list[Tensor], left: bool) -> tuple[Tensor, Tensor]:
    longest = max(map(len, found)) + 1
    ids, attention_mask = (
        torch.zeros(len(found), longest, dtype=torch.long),
        torch.zeros(len(found), longest, dtype=torch.bool),
    )
    for i, row in enumerate(found):
        place = slice(longest - len(row), None) if left else slice(0, len(row))
        ids[i, place], attention_mask[i, place] = row, True
    return ids, attention_mask


def alone(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    """Scores (T, V) of one text."""
    output = model(source[None], target[None]) if model.config.encoder else model(target[None])
    return model.logits(output)["lm"][0]


@pytest.mark.parametrize("kind", KINDS, ids=named)
@given(data=st.data())
@settings(max_examples=8)
def test_padding_and_company_change_nothing(kind: dict[str, Any], data: st.DataObject) -> None:
    model = small(**kind)
    size = st.lists(st.integers(1, 8), min_size=3, max_size=3)
    sources = rows(data.draw(size), SOURCE_VOCAB, 1)
    targets = rows(data.draw(size), VOCAB, 2)
    inputs, attention_mask = padded(sources, data.draw(st.booleans()))
    ids, target_attention_mask = padded(targets, data.draw(st.booleans()))
    if data.draw(st.booleans()):
        attention_mask, target_attention_mask = (
            attention_mask.long(),
            target_attention_mask.long(),
        )  # as files of one text a row have it
    if model.config.encoder:
        output = model(inputs, ids, attention_mask=attention_mask, target_attention_mask=target_attention_mask)
    else:
        output = model(ids, attention_mask=target_attention_mask)
    assert output.attention_mask is target_attention_mask
    scores = model.logits(output)["lm"]
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        torch.testing.assert_close(scores[i][target_attention_mask[i] != 0], alone(model, source, target))


@pytest.mark.parametrize("kind", KINDS, ids=named)
@given(data=st.data())
@settings(max_examples=8)
def test_written_in_pieces(kind: dict[str, Any], data: st.DataObject) -> None:
    """Left-padded, in chunks of any size, some of which are padding alone, with rows exchanged in between."""
    model = small(**kind)
    sources = rows([5, 2, 6], SOURCE_VOCAB, 1)
    targets = rows(data.draw(st.lists(st.integers(1, 8), min_size=3, max_size=3)), VOCAB, 2)
    inputs, attention_mask = padded(sources, left=False)
    ids, target_attention_mask = padded(targets, left=True)
    cuts = sorted(data.draw(st.sets(st.integers(1, ids.shape[1] - 1))))
    order = torch.tensor(data.draw(st.permutations([0, 1, 2])))
    state = (
        model.start(inputs, attention_mask=attention_mask, capacity=99)
        if model.config.encoder
        else model.start(batch=3, capacity=99)
    )
    parts, at = [], 0
    for end in [*cuts, ids.shape[1]]:
        state = model.reorder(state, order)
        ids, target_attention_mask = ids[order], target_attention_mask[order]
        sources, targets = [sources[i] for i in order], [targets[i] for i in order]
        parts = [part[order] for part in parts]
        parts.append(model.lm(model.extend(state, ids[:, at:end], target_attention_mask[:, at:end])))
        at = end
    scores = torch.cat(parts, 1)
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        torch.testing.assert_close(scores[i][target_attention_mask[i]], alone(model, source, target))


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_no_look_ahead(kind: dict[str, Any]) -> None:
    model, source = small(**kind), torch.arange(5)
    first = torch.tensor([3, 1, 4, 1, 5, 9])
    other = first.clone()
    other[3] = 7
    a, b = alone(model, source, first), alone(model, source, other)
    torch.testing.assert_close(a[:3], b[:3])
    assert (a[3] - b[3]).abs().max() > 1e-6


@pytest.mark.parametrize("kind", KINDS[4:], ids=named)
def test_every_source_token_matters(kind: dict[str, Any]) -> None:
    model, source, target = small(**kind), torch.arange(5), torch.arange(4)
    for place in range(5):
        other = source.clone()
        other[place] = 9
        assert (alone(model, source, target) - alone(model, other, target)).abs().max() > 1e-9


def test_a_fixed_state_is_all_the_decoder_gets() -> None:
    """Two sources that leave the same state cannot be told apart, and the state does not grow with them."""
    model = small("lstm")
    assert "context" not in vars(model) and model.writer.input_size == 8
    short, long = (model.start(torch.arange(n)[None], capacity=9) for n in (2, 9))
    assert short.memory is None and long.memory is None and short.context is None
    assert [h.shape for h in short.hidden] == [h.shape for h in long.hidden] == [(2, 1, 8)] * 2


def test_a_context_is_a_fixed_state_too() -> None:
    model = small("gru", context=True)
    short, long = (model.start(torch.arange(n)[None], capacity=9) for n in (2, 9))
    assert short.memory is None and long.memory is None
    assert short.context.shape == long.context.shape == (1, 1, 8)
    assert torch.equal(short.context[0, 0], short.hidden[0][-1, 0])


@pytest.mark.parametrize("kind", [kind for kind in KINDS[4:] if kind.get("attention")] + [KINDS[11]], ids=named)
def test_attention_can_be_watched(kind: dict[str, Any]) -> None:
    model, seen = small(**kind), {}

    def hook(name: str, make: Any) -> None:
        seen[name] = make(heads=None)

    inputs, attention_mask = padded(rows([5, 2], SOURCE_VOCAB, 1), left=True)
    model(inputs, torch.ones(2, 3, dtype=torch.long), attention_mask=attention_mask, hook=hook)
    layers = [0, 1] if kind["network"] == "conv" else [1]
    assert list(seen) == [f"decoder.blocks.{i}.cross.weights" for i in layers]
    for weights in seen.values():
        assert weights.shape == (2, 1, 3, 6)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, 3, dtype=torch.double))
        assert (weights[~attention_mask[:, None, None].expand_as(weights)] == 0).all()
        assert weights.std() > 1e-3


def test_a_fixed_state_has_nothing_to_watch() -> None:
    def hook(name: str, make: Any) -> None:
        raise AssertionError(name)

    small("gru")(torch.arange(3)[None], torch.arange(3)[None], hook=hook)


@pytest.mark.parametrize("kind", KINDS[::3], ids=named)
def test_all_of_a_model_learns(kind: dict[str, Any]) -> None:
    model = small(**kind).train()
    inputs, targets = torch.arange(5)[None], torch.arange(4)[None]
    output = model(inputs, targets) if model.config.encoder else model(targets)
    total, count = token_loss(model.lm, output.hidden, torch.tensor([[3, 4, IGNORE, 1]]))
    total.backward()
    assert int(count) == 3
    still = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    assert not still


@pytest.mark.parametrize("kind", KINDS[4::2], ids=named)
def test_greedy_sampled_and_beam(kind: dict[str, Any]) -> None:
    """Decoding code that knows nothing of baselines, against a plain loop over forward passes."""
    model = small(**kind)
    sources = rows([5, 2, 4], SOURCE_VOCAB, 3)
    inputs, attention_mask = padded(sources, left=False)
    texts: list[list[int]] = [[], [], []]
    for piece in decode(model, None, Sampling(temperature=0, max_tokens=6), source=Source(inputs, attention_mask)):
        texts[piece.row] += [piece.token] if piece.token is not None else []
    for source, text in zip(sources, texts, strict=True):
        slow = [1]
        while len(slow) <= 6 and slow[-1] != 2:
            slow.append(int(alone(model, source, torch.tensor(slow))[-1].argmax()))
        assert text == slow[1:]
    widths = [beam_search(model, Beam(width=w, max_tokens=6), source=Source(inputs, attention_mask)) for w in (1, 4)]
    for row, (narrow, wide) in enumerate(zip(*widths, strict=True)):
        assert wide[0].score >= narrow[0].score - 1e-9
        found = [1, *wide[0].tokens]
        own = score(model, [found], [1], source=Source(sources[row][None]))[0].double()
        assert float(own.sum()) / len(own) == pytest.approx(wide[0].score, abs=1e-5)


@pytest.mark.parametrize("kind", [KINDS[8], KINDS[11]], ids=named)
def test_a_source_of_padding_alone(kind: dict[str, Any]) -> None:
    """It says nothing, but is no reason for NaN: batches are filled up with such rows."""
    inputs, targets = torch.ones(1, 3, dtype=torch.long), torch.ones(1, 2, dtype=torch.long)
    hidden = small(**kind)(inputs, targets, attention_mask=torch.zeros(1, 3, dtype=torch.bool)).hidden
    assert hidden.isfinite().all()


def test_packed_rows_are_refused() -> None:
    with pytest.raises(DataError, match="2 packed sequences"):
        small("lstm", False)(torch.arange(4)[None], attention_mask=torch.tensor([[1, 1, 2, 2]]))


def test_too_long_for_its_positions() -> None:
    model = small("conv", False)
    assert model.config.max_length == 32 and small("gru", False).config.max_length is None
    with pytest.raises(DataError, match="33 positions"):
        model(torch.zeros(1, 33, dtype=torch.long))
    state = model.start(batch=1, capacity=40)
    model.extend(state, torch.zeros(1, 30, dtype=torch.long))
    with pytest.raises(DataError, match="33 positions"):
        model.extend(state, torch.zeros(1, 3, dtype=torch.long))


def test_sources_are_needed_and_targets() -> None:
    model = small("gru")
    with pytest.raises(DataError, match="targets"):
        model(torch.arange(3)[None])
    with pytest.raises(DataError, match="inputs"):
        model.start(capacity=3)


def test_parameters_are_counted_once() -> None:
    """An LSTM layer has 4 gates of (M + M + 2) weights a unit; a vocabulary counts as large as it is."""
    model = make_model(small_config("lstm", False, depth=1))
    assert model.parameter_count() == 4 * 8 * (8 + 8 + 2) + 2 * VOCAB * 8
    tied = make_model(small_config("gru", False, depth=1, lm=type(model.config.lm)(tied=True)))
    assert tied.parameter_count() == 3 * 8 * (8 + 8 + 2) + VOCAB * 8
    assert len(model.lm.output.weight) == 64 and not model.lm.output.weight[VOCAB:].any()
    assert not model.target.table.weight[VOCAB:].any() and model.target.table.weight[:VOCAB].all()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"source": False, "attention": "dot"}, "attention"),
        ({"source": False, "bidirectional": True}, "bidirectional"),
        ({"source": False, "context": True}, "context"),
        ({"network": "conv", "context": True}, "context"),
        ({"attention": "dot", "context": True}, "context"),
        ({"network": "conv", "bidirectional": True}, "bidirectional"),
        ({"network": "conv", "kernel": 2}, "kernel"),
        ({"shared_embedding": True}, "shared_embedding"),
        ({"dropout": 1.5}, "dropout"),
        ({"bidirectional": True, "width": 7}, "width = 7"),
        ({"depth": 0}, "depth"),
    ],
)
def test_settings_that_make_no_sense(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        small_config(**wrong)


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_the_seed_decides(kind: dict[str, Any]) -> None:
    made = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        made.append(torch.cat([p.flatten() for p in make_model(small_config(**kind)).parameters()]))
    assert torch.equal(made[0], made[1]) and not torch.equal(made[0], made[2])
