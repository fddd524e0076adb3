"""Images, sounds, series and graphs: the model gets what its task gives it, and every position has a name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headway.api import Bundle
from headway.baselines.build import make_model
from headway.config.model import ClassifyHeadConfig, ModelConfig, SpecialTokens, StackConfig
from headway.config.networks.graph import GraphConfig, NodesConfig
from headway.config.networks.memory import MemoryConfig, StoryConfig
from headway.config.networks.series import SeriesConfig
from headway.config.networks.towers import TwoTowersConfig
from headway.config.presets import bert, vit
from headway.data.series.scaling import Scaling
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import DataError, NotFoundError
from headway.inspect.changes import Ablate
from headway.inspect.reading.media import first_call
from headway.inspect.show.page import page
from headway.inspect.show.terminal import picture
from headway.tasks.memory.predict import MemoryPredictor

PICTURE = np.random.default_rng(0).integers(0, 255, (16, 16, 3), dtype=np.uint8)
GRAPH = "a b c d a-b b-c c-d"


def made(config: Any, folder: Path | None = None) -> Bundle:
    torch.manual_seed(0)
    return Bundle("tiny", make_model(config).eval(), train_tokenizer("bytes", ["abc"]), folder)


@pytest.fixture
def images() -> Bundle:
    return made(vit(2, 32, 4, image=16, patch=4, labels=3))


@pytest.fixture
def graphs() -> Bundle:
    stack = StackConfig(d_model=32, n_layers=2, n_heads=4, d_ff=64)
    head = ClassifyHeadConfig(labels=2, pool="mean")
    return made(GraphConfig(encoder=stack, source=NodesConfig(), hops=1, classify=head, labels=("no", "yes")))


@pytest.fixture
def towers() -> Bundle:
    text = replace(bert(2, 32, 4, vocab=256, length=16), lm=None, nsp=None)
    image = replace(vit(2, 32, 4, image=16, patch=4), classify=None, labels=())
    return made(TwoTowersConfig(image=image, text=text, projection=8, special=SpecialTokens(eos=46)))


def test_an_image_is_read_as_the_classifier_reads_it(images: Bundle) -> None:
    seen = images.inspect(PICTURE)
    assert seen.predictions(1)[0][0].label == images.classify(PICTURE).label
    assert seen.reading.said["label"] == images.classify(PICTURE).label
    assert seen.attention().shape == (2, 4, 17, 17)
    assert [token.label for token in seen.tokens][:3] == ["[CLASS]", "0,0", "0,1"]
    grid = seen.grid()
    assert grid is not None and (grid.rows, grid.columns, grid.leading) == (4, 4, 1)
    assert seen.reading.picture is not None and seen.reading.picture.shape == (3, 16, 16)


def test_the_patches_of_an_image_are_attributed(images: Bundle) -> None:
    found = images.session.attribution(PICTURE)
    assert [token.label for token in found.tokens] == [f"{row},{column}" for row in range(4) for column in range(4)]
    assert found.gap < 0.01


def test_a_graph_is_named_by_its_nodes_and_far_nodes_have_no_weight(graphs: Bundle) -> None:
    seen = graphs.inspect(GRAPH)
    assert [token.label for token in seen.tokens] == ["a", "b", "c", "d"]
    maps = seen.attention()
    assert float(maps[:, :, 0, 2].max()) == 0  # a and c are two edges apart, and hops is 1
    assert float(maps[:, :, 0, 1].min()) > 0
    assert seen.predictions(1)[0][0].label == graphs.classify(GRAPH).label
    with pytest.raises(DataError, match="no numbers to take gradients of"):
        graphs.session.attribution(GRAPH)


def test_each_tower_is_inspected_with_its_own_input(towers: Bundle) -> None:
    assert towers.inspect(PICTURE).kinds == ("image",)
    text = towers.inspect("a cat.")
    assert text.kinds == ("text",)
    assert [token.label for token in text.tokens] == list("a cat.")
    with pytest.raises(DataError, match="no head whose answers"):
        text.predictions()


def test_a_series_is_a_window_of_patches(tmp_path: Path) -> None:
    stack = StackConfig(d_model=32, n_layers=2, n_heads=4, d_ff=64)
    scaling = Scaling(("value",), (2.0,), (3.0,))
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(scaling_json(scaling)))
    model = made(SeriesConfig(stack=stack, look_back=24, horizon=8, patch=8, stride=8), tmp_path)
    values = np.sin(np.arange(40.0))
    seen = model.inspect(values)
    np.testing.assert_allclose(seen.reading.args[0][0, :, 0].numpy(), (values[-24:] - 2) / 3, atol=1e-5)
    assert [token.label for token in seen.tokens] == ["0–7", "8–15", "16–23", "24–31"]
    with pytest.raises(DataError, match="5 time steps, and the model reads 24"):
        model.inspect(values[:5])


def scaling_json(scaling: Scaling) -> dict[str, Any]:
    from headway.data.series.scaling import KEY

    own = {name: getattr(scaling, name) for name in ("columns", "mean", "scale", "time", "about")}
    return {KEY: {**own, "clock": vars(scaling.clock)}}


STORY = "Anna took the milk. Anna went to the garden. Where is the milk?"


def stories(kind: str) -> Bundle:
    words = ("anna", "garden", "is", "milk", "the", "to", "took", "went", "where")
    front = StoryConfig(words=words, memories=4, longest=8)
    labels: dict[str, Any] = {"labels": ("garden", "milk"), "width": 16, "source": front}
    if kind == "hops":
        return made(MemoryConfig(**labels, n_hops=2))
    stack = StackConfig(d_model=16, n_layers=2, n_heads=2, d_ff=32)
    return made(MemoryConfig(**labels, encoder=stack, classify=ClassifyHeadConfig(labels=2)))


def test_the_hops_of_a_memory_network() -> None:
    model = stories("hops")
    seen = model.inspect(STORY)
    told = MemoryPredictor(model).predict([MemoryPredictor.task.parse({"input": STORY})])[0]
    assert seen.kinds == ("hops",)
    assert [token.label for token in seen.keys_of()] == ["Anna went to the garden.", "Anna took the milk."]
    expected = [list(weights) for _, weights in told.sentences[::-1]]
    np.testing.assert_allclose(seen.attention("hops")[:, 0, 0].T, expected, atol=1e-5)
    assert seen.predictions(1)[0][0].label == told.answer
    json.dumps(seen.to_dict(), allow_nan=False)
    lines = list(picture(seen))
    assert lines[-1].startswith("  Anna went to the garden.") and f"{expected[0][0]:.1%}" in lines[-1]
    assert "Anna went to the garden." in page("tiny", model.session.overview(), seen)
    with pytest.raises(DataError, match="hops are no layers"):
        model.inspect(STORY, changes=[Ablate(layer=0)])
    with pytest.raises(DataError, match="hops have no queries"):
        seen.cell("hops", 0, 0, 0, 0)
    with pytest.raises(DataError, match="no layer 2: the model has 2"):
        seen.attention("hops", 2)


def test_the_words_of_a_story() -> None:
    seen = stories("transformer").inspect(STORY)
    assert [token.label for token in seen.tokens][:6] == ["[READ]", "where", "is", "the", "milk", "anna"]
    assert len(seen.tokens) == 14 == seen.attention().shape[-1]
    assert len(seen.lens(1)) == 3


def test_inputs_of_the_wrong_kind(images: Bundle, graphs: Bundle, towers: Bundle) -> None:
    with pytest.raises(NotFoundError, match=r"no such file: cat\.png"):
        images.inspect("cat.png")
    with pytest.raises(DataError, match="the input is empty"):
        images.inspect(" ")
    with pytest.raises(DataError, match="type float, the model reads a graph"):
        graphs.inspect(1.5)
    with pytest.raises(DataError):
        images.inspect(3)


def test_a_model_without_a_task_says_so() -> None:
    config = replace(bert(1, 8, 2, vocab=256), lm=None, nsp=None)
    bare = ModelConfig(encoder=config.encoder, source=vit(1, 8, 2, image=8, patch=4).source, family="vit")
    found = made(bare)
    assert found.inspect(PICTURE[:8, :8]).readout is None


def test_the_first_call_is_kept_and_not_made() -> None:
    calls: list[int] = []

    class Counted(torch.nn.Module):
        def forward(self, x: int, *, y: int = 0) -> None:
            calls.append(x)

    module = Counted()
    assert first_call([module], lambda: module(3, y=4)) == ((3,), {"y": 4})
    assert first_call([module], lambda: None) is None
    assert calls == []
    module(5)
    assert calls == [5]
