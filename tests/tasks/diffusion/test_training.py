"""Diffusion: what a batch holds, guidance, drawing by number, and the judge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from headway.config.shape import diffusion_config
from headway.errors import ConfigError, DataError
from headway.model.model import Transformer
from headway.tasks.diffusion import judge as judges
from headway.tasks.diffusion.noise import normal, sample_keys
from headway.tasks.diffusion.predict import DiffusionPredictor, denoised, draw_images, guided
from headway.tasks.diffusion.process import Process
from headway.tasks.diffusion.solvers import solve
from headway.tasks.diffusion.task import Diffusion, DrawExample, Settings, class_number
from headway.tasks.diffusion.training import DiffusionTraining
from headway.tasks.recipe import Recipe, load_recipe
from headway.tasks.training import TaskContext
from headway.train.run import start, train

SMALL = ("model.depth=1", "model.width=16", "model.heads=2", "diffusion.eval_images=6", "diffusion.steps=2")


def recipe(*words: str) -> Recipe:
    return load_recipe("diffusion", [*SMALL, *words])[1]


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> DiffusionTraining:
    return DiffusionTraining.prepare(TaskContext(recipe(), tmp_path_factory.mktemp("run") / "tokenizer"))


@pytest.fixture(scope="module")
def model() -> Iterator[Transformer]:
    """With random weights, and classes a, b and c."""
    torch.manual_seed(0)
    config = diffusion_config(recipe().model, 8, 1, 3)
    made = Transformer(replace(config, labels=("a", "b", "c"))).eval()
    for weight in made.parameters():
        nn.init.normal_(weight, std=0.2)
    yield made


def predictor(model: Transformer) -> DiffusionPredictor:
    loaded = SimpleNamespace(model=model, recipe=None, folder=None, name="", named_task="diffusion")
    return DiffusionPredictor(loaded, Recipe(task="diffusion", settings=Settings(steps=3)))  # type: ignore[arg-type]


def test_a_sample_is_the_same_in_any_batch(training: DiffusionTraining) -> None:
    samples = np.arange(5000, 5032)  # of the second epoch
    whole = training.batch(samples).tensors
    parts = [training.batch(part).tensors for part in np.split(samples, 4)]
    for place, tensor in enumerate(whole):
        assert tensor is not None and torch.equal(tensor, torch.cat([part[place] for part in parts]))  # type: ignore[misc]


def test_accumulated_parts_give_the_gradients_of_the_whole(training: DiffusionTraining) -> None:
    made = Transformer(training.config(None)).double()  # type: ignore[arg-type]
    nn.init.normal_(made.denoise.output.weight)
    gradients = []
    for count in (1, 2):
        made.zero_grad()
        for part in np.split(np.arange(8), count):
            training.loss(made, *training.batch(part).tensors).backward()
        gradients.append([p.grad.clone() for p in made.parameters() if p.grad is not None])
    assert gradients[0] and all(torch.allclose(a, b, rtol=1e-9) for a, b in zip(*gradients, strict=True))


def test_some_classes_are_hidden(training: DiffusionTraining) -> None:
    classes = training.batch(np.arange(4000)).tensors[2]
    assert classes is not None and classes.max() == len(training.labels) == 6
    assert float((classes == 6).double().mean()) == pytest.approx(0.1, abs=0.02)
    nothing = DiffusionTraining(
        recipe("diffusion.class_dropout=1"), training.data, training.labels, training.folder, lambda make: make()
    )
    assert (nothing.batch(np.arange(20)).tensors[2] == 6).all()  # type: ignore[union-attr]


def test_times_are_spread_over_the_whole_path(training: DiffusionTraining) -> None:
    times = training.batch(np.arange(4000)).tensors[1]
    assert times is not None and 0 < times.min() < 0.01 and 0.99 < times.max() < 1
    assert float(times.mean()) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("objective", ["v", "epsilon", "flow"])
def test_a_new_model_is_at_chance(training: DiffusionTraining, objective: str) -> None:
    """It predicts zeros."""
    changed = recipe(f"diffusion.objective={objective}")
    made = DiffusionTraining(changed, training.data, training.labels, training.folder, lambda make: make())
    losses = made._losses(Transformer(made.config(None)), made.data.valid)  # type: ignore[arg-type]
    assert made.chance["valid"] == pytest.approx(float(losses.mean()), rel=1e-5)
    assert made.chance["agreement"] == pytest.approx(1 / 6, abs=0.05)


@torch.no_grad()
def test_guidance_leads_away_from_what_is_predicted_without_a_class(model: Transformer) -> None:
    process, x, classes = Process("v", "cosine"), 0.1 * torch.randn(2, 1, 8, 8), torch.tensor([0, 2])
    times = torch.full((2,), 0.3)
    own, none = (denoised(model, x, times, each) for each in (classes, torch.tensor([3, 3])))
    for guidance, expected in ((1.0, own), (0.0, none), (3.0, none + 3 * (own - none))):
        image = process.split(x, expected, times)[0].clamp(-1, 1)
        torch.testing.assert_close(guided(model, process, classes, guidance)(x, 0.3)[0], image, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(own, none)


@torch.no_grad()
def test_guidance_1_draws_with_the_conditional_model_alone(model: Transformer) -> None:
    settings, classes, keys = Settings(steps=4, guidance=1.0), torch.tensor([1, 2]), sample_keys(0, np.arange(2))
    process = Process.of(settings)

    def conditional(x: torch.Tensor, time: float) -> tuple[torch.Tensor, torch.Tensor]:
        times = torch.full((2,), time)
        image = process.split(x, denoised(model, x, times, classes), times)[0].clamp(-1, 1)
        alpha, sigma = (float(level) for level in process.levels(times[:1].double()))
        return image, (x - alpha * image) / sigma

    expected = solve("dpm", process, conditional, normal(keys, (1, 8, 8)), 4, lambda step: keys)
    assert torch.equal(draw_images(model, settings, classes, keys), expected)


@torch.no_grad()
@pytest.mark.parametrize("path", [("v", "linear"), ("epsilon", "cosine"), ("flow", "cosine")])
def test_a_model_says_itself_what_it_predicts(model: Transformer, training: DiffusionTraining, path: Any) -> None:
    """A saved folder has no recipe of its run."""
    words = (f"diffusion.objective={path[0]}", f"diffusion.schedule={path[1]}")
    made = DiffusionTraining(recipe(*words), training.data, training.labels, training.folder, lambda make: make())
    head = made.config(None).denoise
    assert head is not None and (head.objective, head.schedule) == path
    other = Transformer(
        replace(model.config, denoise=replace(model.config.denoise, objective=path[0], schedule=path[1]))
    )
    other.load_state_dict(model.state_dict())
    settings, classes, keys = Settings(steps=4, guidance=1.0), torch.tensor([1]), sample_keys(0, np.arange(1))
    predict = guided(other, Process(*path), classes, 1.0)
    expected = solve("dpm", Process(*path), predict, normal(keys, (1, 8, 8)), 4, lambda step: keys)
    assert torch.equal(draw_images(other, settings, classes, keys), expected)
    assert not torch.allclose(draw_images(model, settings, classes, keys), expected, atol=1e-2)


def test_images_are_a_function_of_seed_number_and_class(model: Transformer) -> None:
    some = predictor(model)
    asked = [DrawExample("a"), DrawExample("a", 1), DrawExample("b"), DrawExample("a", seed=1), DrawExample("none")]
    found = [each.image.astype(int) for each in some.predict(asked)]
    for example, image in zip(asked, found, strict=True):
        (alone,) = some.predict([example])
        assert alone.image.dtype == np.uint8 and alone.image.shape == (1, 8, 8)
        assert abs(alone.image - image).max() <= 1  # rounding
    assert all(abs(found[0] - other).max() > 1 for other in found[1:])
    (other,) = some.predict([DrawExample("0", steps=30)])
    assert other.label == "a" and abs(other.image - found[0]).max() > 1


def test_classes_are_names_numbers_or_none() -> None:
    labels = ("7", "1", "cat, tabby")
    assert [class_number(name, labels) for name in ("7", "1", "cat, tabby", "2", "none")] == [0, 1, 2, 2, 3]
    for wrong in ("3", "dog", "-1", ""):
        with pytest.raises(DataError) as caught:
            class_number(wrong, labels)
        assert caught.value.code == "D001"


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"class": ""},
        {"class": True},
        {"class": ["a"]},
        {"class": "a", "steps": 0},
        {"class": "a", "steps": 1.5},
        {"class": "a", "seed": -1},
        {"class": "a", "guidance": "nan"},
        {"class": "a", "guidance": 1e9},
    ],
)
def test_a_bad_request_is_refused(raw: dict[str, Any]) -> None:
    with pytest.raises(DataError) as caught:
        Diffusion().parse(raw)
    assert caught.value.code == "D001"


def test_a_request_says_how_to_draw() -> None:
    found = Diffusion().parse({"class": 7, "seed": "3", "steps": 4, "guidance": 2})
    assert found == DrawExample("7", 0, 3, 4, 2.0)


@pytest.mark.parametrize(
    "words", [("diffusion.steps=0",), ("diffusion.class_dropout=1.5",), ("diffusion.guidance=-1",)]
)
def test_settings_have_ranges(words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        recipe(*words)
    assert caught.value.code == "C003"


def test_patches_must_fill_the_images(training: DiffusionTraining) -> None:
    made = DiffusionTraining(recipe("model.patch=5"), training.data, training.labels, training.folder, lambda m: m())
    with pytest.raises(ConfigError) as caught:
        made.config(None)
    assert caught.value.code == "C004"


def test_the_judge_is_trained_once_and_leaves_the_generator_alone(
    training: DiffusionTraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judges, "LEAST", 3)
    monkeypatch.setattr(judges, "MOST", 3)

    def made(size: int = 16) -> judges.Judge:
        device = torch.device("cpu")
        return judges.make_judge(tmp_path / "judge.safetensors", training.data.train, training.truth, size, 6, device)

    state = torch.get_rng_state()
    first = made()
    assert torch.equal(torch.get_rng_state(), state)
    (tmp_path / "judge.safetensors").rename(tmp_path / "kept.safetensors")
    again = made()
    with monkeypatch.context() as patch:
        patch.setattr(judges, "_train", lambda *given: pytest.fail("trained again"))
        read = made()
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name]) and torch.equal(weight, read.state_dict()[name])
    (tmp_path / "judge.safetensors").write_bytes(b"damaged")
    made()
    assert (tmp_path / "judge.safetensors").stat().st_size > 1000


def test_samples_and_evaluations_use_averaged_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []

    def look(self: DiffusionTraining, made: Transformer) -> str:
        seen.append(made.source.project.weight.detach().clone())
        return ""

    monkeypatch.setattr(DiffusionTraining, "sample", look)
    monkeypatch.setattr(judges, "LEAST", 2)
    monkeypatch.setattr(judges, "MOST", 2)
    words = ("train.steps=3", "train.batch=4", "train.sample_every=3", "train.eval_every=3", f"out={tmp_path}")
    run = start("run", recipe(*words, "train.ema=0.9", "train.lr=0.1", "train.warmup=0"))
    monkeypatch.setattr(run.loop, "load_final_weights", lambda: None)
    train(run, lambda kind, **facts: None)
    assert run.loop.ema is not None
    (found,) = seen
    assert torch.equal(found, run.loop.ema.tensors["source.project.weight"])
    assert not torch.equal(found, run.model.source.project.weight)  # type: ignore[union-attr]
