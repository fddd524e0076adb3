"""A session: what a pass shows is what the model computed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from headway.api import Bundle, load
from headway.baselines.build import make_model
from headway.config.model import LMHeadConfig, SpanHeadConfig, TagHeadConfig, TokensConfig
from headway.config.networks.baseline import BaselineConfig
from headway.errors import DataError
from headway.inspect.show.page import page
from headway.inspect.show.terminal import picture, shown
from tests.inspect.conftest import config_of, made


def test_maps_equal_the_eager_weights(any_bundle: Bundle) -> None:
    seen = any_bundle.inspect("To be or not")
    eager: dict[str, np.ndarray] = {}
    reading = seen.reading
    with torch.no_grad():
        any_bundle.model(
            *reading.args,
            **reading.more,
            backend="eager",
            hook=lambda name, make: eager.__setitem__(name, make()[0].numpy()),
        )
    assert seen.kinds
    for kind in seen.kinds:
        for layer in range(2):
            name = seen.part(kind).name(layer, "attention") + ".weights"
            np.testing.assert_allclose(seen.attention(kind, layer), eager[name], atol=1e-5)
            np.testing.assert_array_equal(seen.attention(kind, layer, 3), seen.attention(kind, layer)[3])
        assert seen.attention(kind).shape[:2] == (2, 4)


def test_a_pass_with_everything_watched_gives_the_same_output(any_bundle: Bundle) -> None:
    seen = any_bundle.inspect("To be or not")
    with torch.no_grad():
        plain = any_bundle.model(*seen.reading.args, **seen.reading.more)
    torch.testing.assert_close(seen.output.hidden, plain.hidden)


def test_the_last_layer_of_the_lens_is_the_prediction(any_bundle: Bundle) -> None:
    seen = any_bundle.inspect("To be or not")
    lens, said = seen.lens(3), seen.predictions(3)
    assert len(lens) == 3
    assert [[a.id for a in row] for row in lens[-1]] == [[a.id for a in row] for row in said]
    assert lens[0] != lens[1] != lens[2]
    last = len(lens[0]) - 1
    for layer, one in zip(lens, seen.lens(3, last), strict=True):
        assert [a.id for a in one[-1]] == [a.id for a in layer[last]]


def test_predictions_are_the_probabilities_of_the_model(bundle: Bundle, classifier: Bundle) -> None:
    seen = bundle.inspect("To be")
    with torch.no_grad():
        expected = bundle.model.lm(bundle.model(seen.reading.args[0]).hidden)[0].softmax(-1)
    best = seen.predictions(2)[-1]
    assert [a.id for a in best] == expected[-1].topk(2).indices.tolist()
    assert best[0].probability == pytest.approx(float(expected[-1].max()), abs=1e-6)
    found = classifier.classify("To be")
    assert classifier.inspect("To be").predictions(3)[0][0].label == found.label


def test_the_ends_of_an_answer_are_positions() -> None:
    config = replace(config_of("bert"), lm=None, nsp=None, span=SpanHeadConfig())
    model = made(config, "spans")
    seen = model.inspect(("Who?", "Anna is here."))
    with torch.no_grad():
        logits = model.model.span(seen.output.hidden)[0]
    start, end = seen.predictions(2)
    assert [start[0].id, end[0].id] == logits.argmax(0).tolist()
    assert start[0].probability == pytest.approx(float(logits[:, 0].softmax(0).max()), abs=1e-5)
    told = "\n".join(picture(seen))
    assert f"start of the answer\n  {shown(seen.tokens[start[0].id].label)}@{start[0].id}" in told
    assert f"start: {seen.tokens[start[0].id].label}@{start[0].id}" in page("spans", model.session.overview(), seen)
    assert model.session.attribution(("Who?", "Anna is here."), position=0).answer == str(start[0].id)


def test_the_labels_of_tokens() -> None:
    config = replace(config_of("bert"), lm=None, nsp=None, tag=TagHeadConfig(labels=2), labels=("O", "PER"))
    seen = made(config, "tags").inspect("Anna")
    assert len(seen.predictions(1)) == 4 == len(seen.lens(1)[0])
    assert f"{shown('A')} {seen.predictions(1)[0][0].label} │" in "\n".join(picture(seen))


def test_the_arithmetic_of_a_cell_adds_up(any_bundle: Bundle) -> None:
    seen = any_bundle.inspect("To be or not")
    for kind in seen.kinds:
        cell = seen.cell(kind, 1, 3, 4, 2)
        assert sum(cell["products"]) == pytest.approx(cell["dot"], abs=1e-3)
        assert cell["score"] == pytest.approx(cell["dot"] * cell["scale"] + cell["bias"], abs=1e-4)
        assert cell["weight"] == pytest.approx(float(seen.attention(kind, 1, 3)[4, 2]), abs=1e-5)
        assert cell["row"][2] == pytest.approx(cell["weight"], abs=1e-5)


def test_contributions_of_all_cells_make_the_output_of_the_attention(bundle: Bundle) -> None:
    seen = bundle.inspect("To be")
    out = bundle.model.decoder.blocks[1].attention.out  # type: ignore[union-attr]
    total = out.bias.detach().numpy() + sum(  # type: ignore[union-attr]
        np.array(seen.cell("decoder", 1, head, 4, key)["contribution"]) for head in range(4) for key in range(5)
    )
    expected = seen.activations["decoder.blocks.1.attention.out"][0, 4].numpy()
    np.testing.assert_allclose(total, expected, atol=1e-3)


def test_a_hidden_key_has_no_score(bundle: Bundle) -> None:
    cell = bundle.inspect("To be").cell("decoder", 0, 0, 1, 3)
    assert cell["visible"] is False and cell["score"] is None and cell["weight"] == 0


def test_the_target_of_an_encoder_decoder_is_generated_or_given(seq2seq: Bundle) -> None:
    seen = seq2seq.inspect("To be", target="abc")
    assert [token.label for token in seen.tokens][1:] == ["a", "b", "c"]
    assert seen.attention("cross").shape == (2, 4, 4, 5)
    assert [token.label for token in seen.keys_of("cross")] == list("To be")
    made = seq2seq.inspect("To be")
    assert made.reading.target and len(made.tokens) > 1
    ids = made.reading.args[1][0, 1:].tolist()
    assert ids[0] == seq2seq.inspect("To be", target="").predictions(1)[0][0].id


def test_everything_is_plain_json(any_bundle: Bundle) -> None:
    found = json.loads(json.dumps(any_bundle.inspect("To be or not").to_dict(), allow_nan=False))
    assert np.array(next(iter(found["kinds"].values()))["maps"]).shape[:2] == (2, 4)
    json.dumps(any_bundle.session.overview(), allow_nan=False)


def test_the_overview_counts_all_parameters(bundle: Bundle) -> None:
    found = bundle.session.overview()
    assert [(part["part"], part["of"]) for part in found["parts"]] == [
        ("front", "decoder"),
        ("stack", "decoder"),
        ("head", "lm"),
    ]
    own = sum(part["parameters"] for part in found["parts"] if part["part"] != "head")
    assert own == found["parameters"] == bundle.model.parameter_count()


def test_bad_questions_are_refused_with_the_numbers(bundle: Bundle) -> None:
    seen = bundle.inspect("To be")
    with pytest.raises(DataError, match="no layer 7: the model has 2"):
        seen.attention(layer=7)
    with pytest.raises(DataError, match="no head 4: the model has 4"):
        seen.attention(layer=1, head=4)
    with pytest.raises(DataError, match="no attention 'decodr' — did you mean \"decoder\""):
        seen.attention("decodr")
    with pytest.raises(DataError, match="no position 9"):
        seen.cell("decoder", 0, 0, 9, 0)
    with pytest.raises(DataError, match="the text is empty"):
        bundle.inspect(" ")
    with pytest.raises(DataError, match="65 tokens, the model reads 64"):
        bundle.inspect("x" * 65)
    with pytest.raises(DataError, match="type int, the model reads texts"):
        bundle.inspect(3)


def test_a_model_without_attention_says_so() -> None:
    config = BaselineConfig(network="lstm", width=8, target=TokensConfig(vocab=8), lm=LMHeadConfig())
    model = Bundle("rnn", make_model(config), None, None)
    with pytest.raises(DataError, match="rnn has no attention"):
        model.inspect("To be")


def test_a_model_without_a_tokenizer_says_so() -> None:
    with pytest.raises(DataError, match="has no tokenizer"):
        load("llama-tiny").inspect("To be")
