"""Attribution: integrated gradients are complete, gradients are those of the model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from headway.api import Bundle
from headway.errors import ConfigError, DataError
from headway.model.model import Transformer

TEXT = "To be or not"


def test_integrated_gradients_sum_to_the_difference(any_bundle: Bundle) -> None:
    found = any_bundle.session.attribution(TEXT)
    assert len(found.values) == len(found.tokens) == len(TEXT)
    assert abs(found.logit - found.baseline) > 1e-3
    assert found.gap < 0.01
    assert float(found.values.sum()) == pytest.approx(found.logit - found.baseline, rel=0.01)


def test_the_logit_is_that_of_the_answer(any_bundle: Bundle) -> None:
    session = any_bundle.session
    found = session.attribution(TEXT)
    target = "" if any_bundle.config.kind == "encoder-decoder" else None
    logits = session.run(TEXT, target=target).logits()[found.position]
    assert found.logit == pytest.approx(float(logits.max()), abs=1e-4)
    assert session.require_readout().name(int(logits.argmax())) == found.answer


def test_gradient_times_input_by_hand(bundle: Bundle) -> None:
    found = bundle.session.attribution(TEXT, "gradient_x_input", answer=65, position=4)
    ids = bundle.inspect(TEXT).reading.args[0]
    model = bundle.model
    x = model.target.table(ids).detach().requires_grad_()
    handle = model.target.table.register_forward_hook(lambda *_: x)
    logit = model.lm(model(ids).hidden)[0, 4, 65]
    handle.remove()
    (gradient,) = torch.autograd.grad(logit, x)
    np.testing.assert_allclose(found.values, (gradient * x).sum(-1)[0].detach().numpy(), atol=1e-4)
    assert np.allclose(found.values[5:], 0)  # tokens after the answer cannot matter


def test_an_answer_by_its_name(classifier: Bundle) -> None:
    values = [classifier.session.attribution(TEXT, answer=label).values for label in ("a", "b")]
    assert not np.allclose(*values)
    with pytest.raises(DataError, match="no answer 'd'"):
        classifier.session.attribution(TEXT, answer="d")


def test_what_cannot_be_attributed(bundle: Bundle) -> None:
    with pytest.raises(ConfigError, match="method = 'lime'"):
        bundle.session.attribution(TEXT, "lime")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no position 40: there are 12 answers"):
        bundle.session.attribution(TEXT, position=40)
    config = replace(bundle.config, quantization="int8")  # type: ignore[type-var]
    quantized = replace(bundle, model=Transformer(config).eval())  # type: ignore[arg-type]
    assert quantized.inspect(TEXT).attention().shape == (2, 4, 12, 12)
    with pytest.raises(DataError, match="this model is quantized"):
        quantized.session.attribution(TEXT)


def test_the_gradient_leaves_no_trace(bundle: Bundle) -> None:
    before = bundle.inspect(TEXT).output.hidden
    bundle.session.attribution(TEXT)
    assert torch.equal(bundle.inspect(TEXT).output.hidden, before)
    assert all(p.grad is None for p in bundle.model.parameters())
