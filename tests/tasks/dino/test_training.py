"""Self-distillation against slow twins: crops, loss, teacher, centre; and what a run leaves."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from headway.api import load
from headway.config.recipe import DataConfig, ShapeConfig, TrainConfig
from headway.data.images.augment import Uniform
from headway.errors import ConfigError, DataError
from headway.hub.trainable import trainable_weights
from headway.model.model import Transformer, evaluating
from headway.report.advice.rules import suggestions
from headway.runs.history import read_run
from headway.tasks.dino.crops import LARGE, draw_crops, make_crops, small_side
from headway.tasks.dino.loss import collapse_measures, distillation_loss, momentum, student_outputs, targets
from headway.tasks.dino.task import Settings
from headway.tasks.dino.training import DinoTraining
from headway.tasks.recipe import Recipe, load_recipe
from headway.train.build import build_model
from headway.train.run import start, train

SMALL = ("dino.outputs=16", "dino.hidden=16", "dino.bottleneck=8", "dino.local_crops=2", "train.batch=8")
SHAPE = ("model.depth=1", "model.width=16", "model.heads=2", "model.patch=8", "train.warmup=1", "train.eval_every=100")
ALONE = SimpleNamespace(rank=0, size=1, device=torch.device("cpu"), sum=lambda *values: list(values))


@pytest.fixture(scope="module")
def task() -> DinoTraining:
    return DinoTraining.read(load_recipe("dino", [*SMALL, *SHAPE])[1])


def model_of(task: DinoTraining) -> Transformer:
    torch.manual_seed(0)
    model = build_model(task.recipe, task, torch.device("cpu"))
    assert isinstance(model, Transformer)
    for name, parameter in model.named_parameters():
        parameter.data += 0.1 * torch.randn_like(parameter) * (not name.startswith("distill.teacher"))
    return model


def test_crops_are_the_same_for_a_sample_in_any_batch(task: DinoTraining) -> None:
    settings, size = task.settings, 32
    several, alone = np.arange(5, 9), np.array([7])

    def crops(samples: Any) -> Any:
        images = task.data.train.pixels(samples)
        drawn = draw_crops(settings, 3, samples, 1.0)
        return make_crops(settings, images, drawn, size, 16, task.data.norm)

    whole, one = crops(several), crops(alone)
    assert whole.large.shape == (8, 3, 32, 32) and whole.small.shape == (8, 3, 16, 16)
    for ours, theirs, count in ((whole.large, one.large, LARGE), (whole.small, one.small, 2)):
        torch.testing.assert_close(ours.unflatten(0, (count, 4))[:, 2], theirs)
        assert not torch.equal(*theirs.unbind(0)[:2]), "every crop has draws of its own"


def test_small_crops_keep_less_of_the_image_than_large_ones() -> None:
    settings = Settings(local_crops=3, global_crop=0.5, local_crop=0.1, jitter=0.4, grey=0.3, solarize=0.2)
    geometry, _, jitter, _, _, colours = draw_crops(settings, 0, np.arange(400), 1.0)
    area = (geometry[:, 0, 0].abs() * geometry[:, 1, 1]).unflatten(0, (5, 400))
    assert area[:LARGE].min() > 0.45 and area[:LARGE].mean() > 0.65
    assert area[LARGE:].min() > 0.09 and area[LARGE:].max() <= 0.5 + 1e-6
    grey, solarized = colours.unflatten(0, (5, 400)).mean(1).T
    assert (abs(grey - 0.3) < 0.08).all() and abs(solarized[1] - 0.2) < 0.06
    assert solarized.sum() == solarized[1], "only the second large crop"
    plain = (jitter == 1).all(1).float().mean()
    assert abs(plain - 0.2) < 0.05
    assert small_side(Settings(), 224, 16) == 96 and small_side(Settings(local_size=40), 224, 8) == 40


def slow_loss(settings: Settings, wanted: torch.Tensor, student: torch.Tensor) -> float:
    """As Caron et al. write it: every pair of a teacher's crop and another crop."""
    total, pairs = 0.0, 0
    for g in range(LARGE):
        for v in range(len(student)):
            if v == g:
                continue
            log = F.log_softmax(student[v].double() / settings.student_temperature, -1)
            total += float(-(wanted[g].double() * log).sum(-1).sum())
            pairs += 1
    return total / pairs


def test_the_loss_is_the_mean_over_pairs_of_crops(task: DinoTraining) -> None:
    model, settings = model_of(task), task.settings
    teacher = torch.randn(LARGE, 6, 16)
    model.distill.centre.copy_(torch.randn(16))
    for share, temperature in ((0.0, 0.04), (0.05, 0.055), (0.5, 0.07)):
        tuned = replace(settings, first_temperature=0.04, teacher_temperature=0.07, warm_share=0.1)
        model.distill.share.fill_(share)
        wanted = targets(tuned, model, teacher)
        expected = F.softmax((teacher - model.distill.centre) / temperature, -1)
        torch.testing.assert_close(wanted, expected)
    student = torch.randn(4, 6, 16)
    found = distillation_loss(settings, wanted, student)
    assert float(found) == pytest.approx(slow_loss(settings, wanted, student), rel=1e-5)


def test_gradients_reach_the_student_alone_and_the_last_layer_only_after_a_while(task: DinoTraining) -> None:
    model = model_of(task)
    batch = task.batch(np.arange(8))
    for share, moves in ((0.0, False), (0.5, True)):
        model.zero_grad()
        model.distill.share.fill_(share)
        task.loss(model, *batch.tensors).backward()
        grads = {name: p.grad for name, p in model.named_parameters()}
        assert all(g is None for name, g in grads.items() if name.startswith("distill.teacher"))
        assert all(g is not None and g.any() for name, g in grads.items() if name.startswith("encoder.blocks"))
        last = grads["distill.head.output.weight"]
        assert last is not None and bool(last.any()) == moves


def test_after_a_step_teacher_and_centre_are_moving_averages(task: DinoTraining) -> None:
    """In two parts of a batch: the centre takes the mean of both."""
    model, settings = model_of(task), task.settings
    before = {name: p.clone() for name, p in trainable_weights(model).items()}
    outputs = []
    for samples in (np.arange(8), np.arange(8, 12)):
        batch = task.batch(samples)
        task.loss(model, *batch.tensors)
        images, *rest = batch.tensors
        crops = make_crops(settings, images, tuple(rest[:-1]), 32, task.small, rest[-1])
        with evaluating(model):
            hidden = model.distill.teacher(crops.large).hidden[:, 0]
            outputs.append(model.distill.teacher_head(hidden))
    task.after_step(model, 0.25, ALONE)
    m = momentum(settings, 0.25)
    assert m == pytest.approx(1 - (1 - settings.momentum) * (1 + math.cos(math.pi / 4)) / 2)
    assert momentum(settings, 0.0) == settings.momentum and momentum(settings, 1.0) == 1.0
    after = trainable_weights(model)
    for name in ("source.positions", "encoder.blocks.0.attention.qkv.weight"):
        expected = m * before[f"distill.teacher.{name}"] + (1 - m) * before[name]
        torch.testing.assert_close(after[f"distill.teacher.{name}"], expected)
        assert not torch.equal(before[f"distill.teacher.{name}"], before[name])
    centre = torch.cat(outputs).mean(0)
    torch.testing.assert_close(after["distill.centre"], centre, rtol=1e-4, atol=1e-6)
    assert not model.distill.seen.any() and float(model.distill.share) == 0.25
    model.distill.seen.fill_(2.0)
    task.after_step(model, 0.5, ALONE)
    centre = settings.centre_momentum * centre + (1 - settings.centre_momentum)  # the mean of two 2s is 1
    torch.testing.assert_close(model.distill.centre, centre, rtol=1e-4, atol=1e-6)
    model.distill.seen.fill_(math.nan)  # of a step that was left out
    task.after_step(model, 0.75, ALONE)
    torch.testing.assert_close(model.distill.centre, centre, rtol=1e-4, atol=1e-6)


def test_the_teacher_begins_as_the_student(task: DinoTraining) -> None:
    model = build_model(task.recipe, task, torch.device("cpu"))
    assert isinstance(model, Transformer)
    ours, teacher = model.state_dict(), model.distill.teacher.state_dict()
    assert all(torch.equal(ours[name], tensor) for name, tensor in teacher.items())
    heads = (model.distill.head.state_dict(), model.distill.teacher_head.state_dict())
    assert all(torch.equal(heads[0][name], tensor) for name, tensor in heads[1].items())


def test_only_a_model_in_training_reads_other_sizes(task: DinoTraining) -> None:
    model = model_of(task)
    assert model(torch.zeros(1, 3, 16, 16)).hidden.shape == (1, 5, 16)
    with pytest.raises(DataError):
        model(torch.zeros(1, 3, 16, 24))
    with pytest.raises(DataError):
        model.finished()(torch.zeros(1, 3, 16, 16))
    grid = model.source.positions[1:].T.unflatten(1, (4, 4))[None]  # type: ignore[union-attr,index]
    wanted = F.interpolate(grid, size=(2, 2), mode="bicubic", align_corners=False)[0].flatten(1).T
    found = model.source(torch.zeros(1, 3, 16, 16)).x[0, 1:] - model.source.project.bias  # type: ignore[union-attr]
    torch.testing.assert_close(found, wanted)


def test_measures_tell_the_two_kinds_of_collapse_from_health() -> None:
    one = torch.eye(8)[[3] * 50]
    even = torch.full((50, 8), 1 / 8)
    healthy = torch.eye(8)[torch.arange(48) % 8]
    assert collapse_measures(one) == pytest.approx({"entropy": 0.0, "information": 0.0}, abs=1e-9)
    assert collapse_measures(even) == pytest.approx({"entropy": 1.0, "information": 0.0}, abs=1e-9)
    assert collapse_measures(healthy) == pytest.approx({"entropy": 1.0, "information": 1.0}, abs=1e-9)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (["dino.local_crop=0.9"], "C004"),
        (["dino.local_size=12", "model.patch=8"], "C003"),
        (["dino.local_size=64"], "C003"),
        (["dino.teacher_temperature=0"], "C003"),
        (["dino.momentum=1.5"], "C003"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: list[str], code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DinoTraining.read(load_recipe("dino", [*SMALL, *SHAPE, *settings])[1]).config(None)
    assert caught.value.code == code


# --- runs


def run_of(folder: Path, *settings: str) -> Any:
    name, recipe = load_recipe("dino", [*SMALL, *SHAPE, f"out={folder}", "train.sample_every=1000", *settings])
    return train(start(name, recipe, ["dino", *SMALL, *SHAPE, *settings]), lambda kind, **facts: None)


def test_a_run_saves_its_teacher_which_then_classifies(tmp_path: Path) -> None:
    run = run_of(tmp_path, "train.steps=3", "train.save_every=2")
    teacher = run.model.distill.teacher.state_dict()
    saved = load(run.folder)
    assert saved.task == "dino" and saved.config.distill is None and saved.config.family == "vit"
    assert all(torch.equal(tensor, teacher[name]) for name, tensor in saved.model.state_dict().items())
    assert not torch.equal(teacher["source.positions"], run.model.source.positions)
    halfway = load(f"{run.folder}@2")
    assert halfway.config.distill is None and halfway.model.state_dict().keys() == teacher.keys()
    words = [f"model.from={run.folder}", f"out={tmp_path}", "train.steps=1", "train.batch=4", "train.eval_every=1"]
    name, recipe = load_recipe("images", words)
    made = start(name, recipe)
    assert torch.equal(made.model.state_dict()["encoder.norm.weight"], teacher["encoder.norm.weight"])
    again = start("dino", load_recipe("dino", [*SMALL, f"model.from={run.folder}", f"out={tmp_path}"])[1])
    student, follower = again.model.state_dict(), again.model.distill.teacher.state_dict()
    assert all(torch.equal(student[name], tensor) for name, tensor in follower.items())
    assert torch.equal(follower["source.positions"], teacher["source.positions"])
    for each in (made, again):
        each.loop.close()


def test_images_without_labels_are_measured_by_their_outputs(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    from headway.data.images.png import png

    folder = tmp_path / "photos"
    folder.mkdir()
    draws = Uniform(0, np.arange(40))
    for number in range(40):
        pixels = (np.random.default_rng(number).random((20, 20, 3)) * 255 * draws()[number]).astype(np.uint8)
        (folder / f"{number}.png").write_bytes(png(pixels))
    run = run_of(tmp_path, f"data.train={folder}", "data.size=16", "train.steps=2")
    assert run.task.labels == () and run.task.primary_metric == "information" and run.task.chance == {}
    last = read_run(run.folder).facts.last_eval
    assert last is not None and {"valid", "spread", "entropy", "information"} <= last.keys() and "knn" not in last


@pytest.mark.parametrize(
    ("settings", "entropy", "changed"),
    [
        (["dino.teacher_temperature=2.0", "dino.first_temperature=2.0"], 1.0, "dino.teacher_temperature=0.04"),
        (["dino.centre_momentum=1.0", "dino.teacher_temperature=0.01", "dino.first_temperature=0.01"], 0.0, "centre"),
    ],
)
def test_a_collapse_is_noticed_and_named(tmp_path: Path, settings: list[str], entropy: float, changed: str) -> None:
    """Without sharpening all outputs become equal; without centring one output takes all."""
    run = run_of(tmp_path, *settings, "train.steps=60", "train.lr=0.01", "dino.freeze_last=0", "dino.momentum=0.5")
    history = read_run(run.folder)
    (first, *_) = suggestions(history)
    assert first.name == "collapsed" and changed in first.command, (history.facts.last_eval, first)
    last = history.facts.last_eval
    assert last is not None and last["information"] < 0.01 and last["entropy"] == pytest.approx(entropy, abs=0.2)


def test_adapters_are_refused(task: DinoTraining) -> None:
    recipe = Recipe(task="dino", data=DataConfig(), model=ShapeConfig(lora=4, from_="x"), train=TrainConfig(steps=1))
    with pytest.raises(ConfigError, match="lora"):
        replace(task, recipe=replace(recipe, settings=task.settings)).config(None)


def test_student_outputs_do_not_mix_crops(task: DinoTraining) -> None:
    model = model_of(task).eval()
    images, *rest = task.batch(np.arange(4)).tensors
    crops = make_crops(task.settings, images, tuple(rest[:-1]), 32, task.small, rest[-1])
    together = student_outputs(model, crops, None)
    assert together.shape == (4, 4, 16) and crops.small is not None
    third = model.distill.head(model(crops.small[2:3]).hidden[:, 0])
    torch.testing.assert_close(together[2, 2], third[0], rtol=1e-4, atol=1e-5)
