"""Changes of a running model: what is patched, ablated, scaled and steered, and that it is gone afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from headway.api import Bundle
from headway.config.model import ExpertsConfig
from headway.errors import DataError
from headway.inspect.changes import Ablate, Change, Patch, Scale, Steer, parse_change
from headway.inspect.weights.units import units
from tests.inspect.conftest import config_of, made

PARTS = [{"head": 1}, {"neuron": 5}, {"part": "attention"}, {"part": "ffn"}, {}]
FIRST, SECOND = "To be or not", "To me of now"


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_scaling_by_zero_equals_ablation_and_by_one_changes_nothing(any_bundle: Bundle, part: dict[str, int]) -> None:
    for kind in any_bundle.inspect(FIRST).kinds:
        plain = any_bundle.inspect(FIRST, target="ab").output.hidden
        place = {"kind": kind, "layer": 1, **part}
        ablated, zero, one = (
            any_bundle.inspect(FIRST, target="ab", changes=[change]).output.hidden
            for change in (Ablate(**place), Scale(**place, factor=0.0), Scale(**place, factor=1.0))  # type: ignore[arg-type]
        )
        assert torch.equal(ablated, zero)
        assert torch.equal(one, plain)
        assert float((ablated - plain).abs().max()) > 1e-3


def test_ablating_nothing_changes_nothing_and_changes_are_gone_afterwards(any_bundle: Bundle) -> None:
    plain = any_bundle.inspect(FIRST).output.hidden
    assert torch.equal(any_bundle.inspect(FIRST, changes=[]).output.hidden, plain)
    any_bundle.inspect(FIRST, changes=[Ablate(layer=0)])
    assert torch.equal(any_bundle.inspect(FIRST).output.hidden, plain)


def test_changes_are_gone_after_an_error(bundle: Bundle) -> None:
    plain = bundle.inspect(FIRST).output.hidden
    with pytest.raises(DataError):
        bundle.inspect(FIRST, changes=[Ablate(layer=0), Ablate(layer=9)])
    assert torch.equal(bundle.inspect(FIRST).output.hidden, plain)


def test_an_ablated_head_is_a_head_of_zeros_in_the_weights(bundle: Bundle) -> None:
    found = bundle.inspect(FIRST, changes=[Ablate(layer=1, head=2)]).output.hidden
    width = bundle.config.output_stack.head_width  # type: ignore[union-attr]
    with torch.no_grad():
        bundle.model.decoder.blocks[1].attention.out.weight[:, 2 * width : 3 * width] = 0  # type: ignore[union-attr,index]
    torch.testing.assert_close(found, bundle.inspect(FIRST).output.hidden)


def test_a_layer_without_its_branches_passes_the_stream_on(bundle: Bundle) -> None:
    seen = bundle.inspect(FIRST, changes=[Ablate(layer=1)])
    assert torch.equal(seen.residual()[2], seen.residual()[1])


def test_layers_that_share_weights_are_changed_one_by_one() -> None:
    session = made(config_of("shared"), "shared").session
    plain, first, second = (session.run(FIRST, changes=c) for c in ([], [Ablate(layer=0)], [Ablate(layer=1)]))
    assert torch.equal(second.residual()[1], plain.residual()[1])
    assert not torch.equal(first.residual()[1], plain.residual()[1])
    assert not torch.equal(second.residual()[2], plain.residual()[2])
    assert not torch.equal(first.output.hidden, second.output.hidden)


def test_experts_have_no_single_neurons() -> None:
    config = config_of("llama")
    stack = replace(config.decoder, experts=ExpertsConfig(count=4, d_ff=16))  # type: ignore[type-var]
    session = made(replace(config, decoder=stack), "experts").session
    seen = session.run(FIRST)
    assert units(seen)[0].neurons == 0
    assert not torch.equal(session.run(FIRST, changes=[Ablate(layer=0, part="ffn")]).output.hidden, seen.output.hidden)
    with pytest.raises(DataError, match="mixture of experts"):
        session.run(FIRST, changes=[Ablate(layer=0, neuron=1)])


def test_patching_everything_restores_the_other_run(any_bundle: Bundle) -> None:
    other = any_bundle.inspect(SECOND, target="ab")
    plain = any_bundle.inspect(FIRST, target="ab")
    assert not torch.equal(plain.output.hidden, other.output.hidden)
    every: list[Change] = [
        Patch(kind=kind, layer=layer, source=other.activations) for kind in other.kinds for layer in range(2)
    ]
    found = any_bundle.inspect(FIRST, target="ab", changes=every)
    assert torch.equal(found.output.hidden, other.output.hidden)


def test_patching_all_heads_is_patching_attention(any_bundle: Bundle) -> None:
    other = any_bundle.inspect(SECOND, target="ab")
    heads = [Patch(layer=1, head=head, source=other.activations) for head in range(4)]
    whole = Patch(layer=1, part="attention", source=other.activations)
    found = [any_bundle.inspect(FIRST, target="ab", changes=each).output.hidden for each in (heads, [whole])]
    torch.testing.assert_close(*found)


def test_a_patch_of_one_position_leaves_the_others(bundle: Bundle) -> None:
    other, plain = bundle.inspect(SECOND), bundle.inspect(FIRST)
    found = bundle.inspect(FIRST, changes=[Patch(layer=0, position=3, source=other.activations)]).residual()[1]
    assert torch.equal(found[3], other.residual()[1][3])
    assert torch.equal(found[:3], plain.residual()[1][:3])
    assert torch.equal(found[4:], plain.residual()[1][4:])


def test_a_patch_needs_equal_lengths(bundle: Bundle) -> None:
    other = bundle.inspect("To be")
    with pytest.raises(DataError, match="5 positions in the other pass, 12 in this one"):
        bundle.inspect(FIRST, changes=[Patch(layer=0, source=other.activations)])


def test_steering_adds_a_direction(bundle: Bundle) -> None:
    direction = bundle.session.direction(["aaa", "ab"], ["ccc"], 0)
    plain = bundle.inspect(FIRST).residual()[1]
    found = bundle.inspect(FIRST, changes=[Steer(layer=0, vector=direction, strength=2.0)]).residual()[1]
    torch.testing.assert_close(found - plain, torch.from_numpy(2 * direction).expand_as(plain), atol=1e-5, rtol=0)
    one = bundle.inspect(FIRST, changes=[Steer(layer=0, vector=direction, position=2)]).residual()[1]
    assert [i for i in range(12) if not torch.equal(one[i], plain[i])] == [2]
    with pytest.raises(DataError, match=r"shape \(3,\), the layers are 32 wide"):
        bundle.inspect(FIRST, changes=[Steer(layer=0, vector=[1, 2, 3])])


def test_a_direction_is_the_difference_of_means(bundle: Bundle) -> None:
    means = [bundle.inspect(text).residual()[2].mean(0) for text in ("abc", "xyz", "klm")]
    expected = (means[0] + means[1]) / 2 - means[2]
    found = bundle.session.direction(["abc", "xyz"], ["klm"], 1)
    torch.testing.assert_close(torch.from_numpy(found), expected)
    with pytest.raises(DataError, match="two lists of texts"):
        bundle.session.direction("abc", ["klm"], 1)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("3", Ablate(layer=3)),
        ("3.5", Ablate(layer=3, head=5)),
        ("3.ffn", Ablate(layer=3, part="ffn")),
        ("3.attention", Ablate(layer=3, part="attention")),
        ("3.ffn.17", Ablate(layer=3, neuron=17)),
        ("cross.3.5", Ablate(kind="cross", layer=3, head=5)),
    ],
)
def test_changes_as_people_write_them(words: str, expected: Ablate) -> None:
    assert parse_change(words) == expected
    assert parse_change(words, 0.5) == Scale(**{**vars(expected), "factor": 0.5})


@pytest.mark.parametrize("words", ["", "x", "3.", "3.5.6", "3.attention.4", "-1", "3 5", "cross", "9" * 30])
def test_words_that_name_no_part(words: str) -> None:
    with pytest.raises(DataError, match="names no part"):
        parse_change(words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("7", "no layer 7: the model has 2"),
        ("0.9", "no head 9"),
        ("0.ffn.999", "no neuron 999"),
        ("x.0", "no attention 'x'"),
    ],
)
def test_parts_that_do_not_exist(bundle: Bundle, words: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        bundle.inspect(FIRST, changes=[parse_change(words)])
