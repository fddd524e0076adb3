"""What X-ray draws is what the model computes."""

from __future__ import annotations

import base64

import numpy as np
import pytest
import torch

from headway.errors import DataError
from headway.inspect.capture import capture
from headway.inspect.changes import Ablate, Scale
from headway.inspect.session import Session
from headway.inspect.trace import Pass
from headway.model.model import evaluating
from headway.studio.xray.packed import packed_maps, packed_thumbs
from headway.studio.xray.values import before_and_after, embeddings, looks, map_values, neurons, pass_values

Seen = tuple[Session, Pass]


def answers(found: dict[str, object], which: str) -> dict[int, float]:
    listed = found["answers"]
    assert isinstance(listed, list)
    return {each["id"]: each[which] for each in listed}


@pytest.mark.parametrize("layer", [0, 1])
def test_a_change_gives_the_answers_of_a_whole_run(seen: Seen, layer: int) -> None:
    session, before = seen
    kind = "cross" if "cross" in before.kinds else before.part().kind
    changes = [Scale(kind=kind, layer=layer, head=2, factor=2.5), Ablate(layer=1, part="ffn")]
    after = session.run(before.reading, changes=changes)
    place = len(before.logits()) - 1
    found = before_and_after(session, before, changes, place)
    for run, which in ((before, "before"), (after, "after")):
        wanted = run.require_readout().chances(run.logits())[place]
        for i, chance in answers(found, which).items():
            assert chance == pytest.approx(float(wanted[i]), abs=1e-6)
    assert answers(found, "before") != answers(found, "after")
    assert found["divergence"] > 0


def test_a_change_of_the_encoder_reaches_the_decoder() -> None:
    from tests.inspect.conftest import config_of, made

    session = Session(made(config_of("t5"), "t5"))
    before = session.run("the cat", target="a dog")
    changes = [Ablate(kind="encoder", layer=1, part="attention")]
    wanted = session.run(before.reading, changes=changes)
    found = before_and_after(session, before, changes, 2)
    chances = wanted.require_readout().chances(wanted.logits())[2]
    assert found["divergence"] > 0
    assert all(p == pytest.approx(float(chances[i]), abs=1e-6) for i, p in answers(found, "after").items())


def test_blocks_that_share_their_weights() -> None:
    """A block that is all layers at once is computed for each of them, also below a change."""
    from tests.inspect.conftest import config_of, made

    session = Session(made(config_of("shared"), "shared"))
    before = session.run("the cat")
    changes = [Ablate(layer=1, part="attention")]
    wanted = session.run(before.reading, changes=changes)
    chances = wanted.require_readout().chances(wanted.logits())[0]
    found = before_and_after(session, before, changes, 0)
    assert all(p == pytest.approx(float(chances[i]), abs=1e-6) for i, p in answers(found, "after").items())


def test_layers_below_a_change_are_not_computed_again(decoder: Seen) -> None:
    session, before = decoder
    calls: list[int] = []
    parts = before.part()
    handles = [parts.block(i).ffn.register_forward_hook(lambda *_, i=i: calls.append(i)) for i in range(2)]
    before_and_after(session, before, [Ablate(layer=1, head=0)], 0)
    for handle in handles:
        handle.remove()
    assert calls == [1]
    assert all("forward" not in vars(parts.block(i)) for i in range(2))  # they compute again afterwards


def test_no_change_changes_nothing(seen: Seen) -> None:
    session, before = seen
    found = before_and_after(session, before, [], 0)
    assert answers(found, "before") == pytest.approx(answers(found, "after"), abs=1e-6)


def test_neurons_are_those_of_the_run(seen: Seen) -> None:
    session, before = seen
    kind = before.part().kind
    name = before.part().name(1, "ffn") + ".down.input"
    with evaluating(session.model), capture(session.model, name) as found:
        session.forward(before.reading)
    values = found[name][0, 1]
    shown = neurons(session, before, kind, 1, 1)
    assert shown["values"] == pytest.approx(values.tolist(), abs=1e-4)
    assert shown["active"] == pytest.approx(float((values > 0).float().mean()))
    weight = before.part().block(1).ffn.down.weight
    adds = values.abs() * weight.norm(dim=0)
    assert [each["neuron"] for each in shown["top"]] == adds.topk(12).indices.tolist()


def test_a_place_that_does_not_exist_is_an_error(decoder: Seen) -> None:
    session, before = decoder
    with pytest.raises(DataError, match="no position 99"):
        neurons(session, before, "decoder", 0, 99)
    with pytest.raises(DataError, match="no position 99"):
        before_and_after(session, before, [], 99)
    with pytest.raises(DataError, match="no position 99"):
        looks(before, "decoder", 99)
    with pytest.raises(DataError, match="no layer 7"):
        map_values(before, "decoder", 7, None, rolled=True)


def test_token_and_position_add_up_to_what_enters(decoder: Seen) -> None:
    found = embeddings(*decoder, "decoder")
    added = np.array(found["token"]) + np.array(found["position"])
    assert added == pytest.approx(np.array(found["sum"]), abs=1e-3)
    assert len(found["sum"]) == len(decoder[1].tokens)


def test_looks_are_means_of_the_heads(decoder: Seen) -> None:
    _, seen = decoder
    assert looks(seen, "decoder", 3)[1] == pytest.approx(seen.attention("decoder", 1)[:, 3].mean(0), abs=1e-4)


def test_maps_come_back_from_their_bytes(decoder: Seen) -> None:
    _, seen = decoder
    maps = seen.attention("decoder")
    packed = packed_maps(maps)
    back = np.frombuffer(base64.b64decode(packed["data"]), "<u2").reshape(packed["shape"]) / 65535
    assert back == pytest.approx(maps, abs=1e-5)


def test_a_small_picture_keeps_the_largest_weights() -> None:
    maps = np.zeros((1, 2, 120, 80), np.float32)
    maps[0, 1, 100, 41] = 0.6
    packed = packed_thumbs(maps)
    thumb = np.frombuffer(base64.b64decode(packed["data"]), "u1").reshape(packed["shape"])
    assert thumb.shape == (1, 2, 40, 40)
    assert thumb[0, 1, 33, 20] == thumb.sum() == round(255 * 0.6)


def test_one_map_is_a_head_a_mean_or_a_rollout(decoder: Seen) -> None:
    _, seen = decoder
    wanted = {
        (2, False): seen.attention("decoder", 1, 2),
        (None, False): seen.attention("decoder", 1).mean(0),
        (None, True): seen.rollout("decoder")[1],
    }
    for (head, rolled), maps in wanted.items():
        assert map_values(seen, "decoder", 1, head, rolled) == packed_maps(maps)


def test_a_pass_tells_how_likely_each_token_was(decoder: Seen) -> None:
    _, seen = decoder
    found = pass_values(seen)
    chances = torch.softmax(seen.logits(), -1)
    ids = [token.id for token in seen.tokens]
    assert found["probabilities"][0] is None
    assert found["probabilities"][3] == pytest.approx(float(chances[2, ids[3]]), abs=1e-5)
    assert found["kinds"]["decoder"]["causal"] and found["place"] == len(ids) - 1
