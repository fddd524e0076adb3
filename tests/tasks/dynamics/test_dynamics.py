"""Dynamical systems: losses by hand, the prediction horizon, rollouts, simulated beginnings and tables of the user."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headway
from headway.cli import main
from headway.config.networks.series import SeriesConfig
from headway.data.series.scaling import Scaling
from headway.data.series.times import Clock
from headway.data.synthetic.systems import SYSTEMS, simulate
from headway.errors import ConfigError, DataError
from headway.model.model import Model
from headway.tasks.dynamics.evaluate import LYAPUNOV, Truth, no_change, straight_on
from headway.tasks.dynamics.predict import DRAWN_SEED, DynamicsPredictor
from headway.tasks.dynamics.training import DynamicsTraining, read_data, state_errors
from headway.tasks.recipe import Recipe, load_recipe
from headway.train.build import build_model
from headway.train.run import start, train

SMALL = (
    *("model.depth=1", "model.width=16", "model.heads=2", "train.batch=4", "train.steps=4", "train.eval_every=4"),
    *("train.save_every=4", "train.sample_every=4", "train.warmup=1", "dynamics.look_back=4", "dynamics.horizon=12"),
    *("dynamics.trajectories=6", "dynamics.length=24"),
)


def recipe(*words: str) -> Recipe:
    return load_recipe("dynamics", [*SMALL, *words])[1]


def made(*words: str) -> tuple[DynamicsTraining, Model]:
    training = DynamicsTraining(recipe(*words), read_data(recipe(*words)))
    return training, build_model(training.recipe, training, torch.device("cpu")).eval()


def truth(true: np.ndarray, system: str = "") -> Truth:
    scaling = Scaling(("a",) * true.shape[2], (0.0,) * true.shape[2], (1.0,) * true.shape[2], Clock("number", 0.5))
    if system:
        scaling = replace(scaling, columns=SYSTEMS[system].columns)
    return Truth(true[:, :2], true, scaling, 0.4, SYSTEMS.get(system))


@pytest.mark.parametrize("rollout", [1, 3])
def test_the_loss_follows_the_models_own_predictions(rollout: int) -> None:
    """After the states that are read, each next one is predicted from the predictions before it."""
    training, model = made(f"dynamics.rollout={rollout}")
    windows, keys = training.batch(np.arange(3)).tensors
    assert windows is not None and windows.shape == (3, 4 + rollout, 3) and keys is not None
    change = training.data.change
    with torch.no_grad():
        found = [model.forecast(windows[:, : at + 1], 1)[:, 0, :, 0] for at in range(4)]  # type: ignore[operator]
        known = windows[:, :4]
        for _ in range(rollout - 1):
            known = torch.cat([known, found[-1][:, None]], 1)[:, -4:]
            found.append(model.forecast(known, 1)[:, 0, :, 0])  # type: ignore[operator]
        slow = ((torch.stack(found, 1) - windows[:, 1:]) / change) ** 2
        assert torch.allclose(state_errors(model, windows[:, :4], windows, change), slow, atol=1e-4)  # type: ignore[arg-type]
        assert float(training.loss(model, windows, keys)) == pytest.approx(float(slow.sum()), rel=1e-4)
    assert training.batch(np.arange(3)).count == slow.numel()


def test_gradients_pass_through_a_rollout() -> None:
    training, model = made("dynamics.rollout=3")
    windows = training.batch(np.arange(2)).tensors[0]
    assert windows is not None
    read = windows[:, :4].clone().requires_grad_()
    state_errors(model, read, windows, 1.0)[:, -1].sum().backward()  # type: ignore[arg-type]
    assert read.grad is not None and read.grad[:, -1].abs().sum() > 0


def test_noise_is_on_what_is_read_and_follows_from_the_sample() -> None:
    """Targets stay true, so a model learns to come back; another batch size changes nothing."""
    training, model = made("dynamics.noise=0.5")
    plain, _ = made()
    windows, keys = training.batch(np.arange(4)).tensors
    assert windows is not None and keys is not None
    with torch.no_grad():
        noisy = [float(training.loss(model, windows, keys)) for _ in range(2)]
        parts = sum(float(training.loss(model, windows[i : i + 1], keys[i : i + 1])) for i in range(4))
        assert noisy[0] == noisy[1] == pytest.approx(parts, rel=1e-4)
        assert noisy[0] != pytest.approx(float(plain.loss(model, windows, keys)), rel=1e-3)


def test_an_untrained_model_that_predicts_changes_starts_near_no_change() -> None:
    training, model = made()
    with torch.no_grad():
        model.output.weight.zero_()  # type: ignore[union-attr,operator]
        model.output.bias.zero_()  # type: ignore[union-attr,operator]
    part = training.data.valid
    assert training._loss_of(model, part.windows) == pytest.approx(training.chance["valid"], rel=1e-5)
    assert training.chance["valid"] == pytest.approx(1.0, rel=0.3), "a step's change is the unit"


def test_the_prediction_horizon_is_the_time_until_the_error_exceeds_the_threshold() -> None:
    true = np.zeros((3, 5, 2))
    found = true.copy()
    found[0, 3:] = 0.5  # steps 0, 1, 2 are good
    found[1, 0] = 0.39
    found[2, 1] = [0.0, 0.6]  # its root mean square is 0.42
    held = truth(true)
    errors = held.errors(found)
    assert errors[2, 1] == pytest.approx(0.6 / 2**0.5)
    assert held.horizons(errors).tolist() == [1.5, 2.5, 0.5] and held.unit == "time"
    assert truth(np.zeros((1, 5, 3)), "lorenz").unit == LYAPUNOV
    assert truth(np.zeros((1, 5, 3)), "lorenz").per_step == pytest.approx(0.5 * 0.906)


def test_rollouts_that_leave_all_bounds_are_bad_and_not_nan() -> None:
    true = np.zeros((1, 3, 1))
    found = np.array([[[0.0], [np.inf], [np.nan]]])
    metrics = truth(true).metrics(found)
    assert metrics["prediction_horizon"].tolist() == [0.5] and metrics["rollout_error"].tolist() == [20 / 3]


def test_the_energy_of_true_states_does_not_drift() -> None:
    system = SYSTEMS["pendulum"]
    states = simulate(system, 5, 30, 0)
    held = truth(states, "pendulum")
    still, louder = held.drift(states), held.drift(1.5 * states)
    assert still is not None and louder is not None and still.max() < 1e-6 < 0.1 < louder.max()
    assert "energy_drift" in held.metrics(states) and held.drift is not None
    assert truth(np.zeros((1, 5, 3)), "lorenz").drift(np.zeros((1, 5, 3))) is None


def test_simple_rollouts() -> None:
    read = np.array([[[0.0], [2.0]]])
    assert no_change(read, 3)[0, :, 0].tolist() == [2, 2, 2]
    assert straight_on(read, 3)[0, :, 0].tolist() == [4, 6, 8]
    assert straight_on(read[:, 1:], 2)[0, :, 0].tolist() == [2, 2]


@pytest.mark.parametrize(
    "words", [(), ("model.kind=lstm",), ("dynamics.system=pendulum",), ("dynamics.system=string",)]
)
def test_systems_and_networks_train_and_are_evaluated(words: tuple[str, ...], tmp_path: Path) -> None:
    made_up = recipe(
        *words, "train.steps=60", "train.lr=3e-3", "train.batch=32", "train.eval_every=60", f"out={tmp_path}"
    )
    log: list[dict[str, Any]] = []
    run = train(start("dynamics", made_up), lambda kind, **facts: log.append({"event": kind, **facts}))
    (data,) = (event for event in log if event["event"] == "data")
    last = [event for event in log if event["event"] == "eval"][-1]
    assert last["valid"] < 0.9 * data["chance"]["valid"]
    assert ("energy_drift" in last) == any(word.endswith(("pendulum", "string")) for word in words)
    config = headway.load(run.folder).model.config
    assert isinstance(config, SeriesConfig) and config.cell == ("lstm" if words == ("model.kind=lstm",) else "")
    page = (run.folder / "run" / "evaluation.json").read_text()
    assert "no change" in page and "error of rollouts against time" in page


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(start("dynamics", recipe(f"out={tmp_path_factory.mktemp('runs')}")), lambda kind, **facts: None).folder


def test_a_drawn_beginning_is_simulated_and_comes_with_the_truth(run: Path) -> None:
    model = headway.load(run)
    found = model.forecast("drawn:7", horizon=5)
    states = simulate(SYSTEMS["lorenz"], 1, 9, DRAWN_SEED + 7)[0]
    assert np.allclose([[row[f"{name}_true"] for name in "xyz"] for row in found.rows], states[4:], rtol=1e-4)
    again = model.forecast([list(row) for row in states[:4]], horizon=5)
    assert np.allclose(again.values, found.values, rtol=1e-5) and again.columns == ("x", "y", "z")
    assert [row["t"] for row in found.rows] == pytest.approx([0.2, 0.25, 0.3, 0.35, 0.4])


def test_a_single_state_is_enough_to_begin(run: Path) -> None:
    model = headway.load(run)
    assert model.forecast("1 2 20", horizon=3).values.shape == (3, 3)
    assert np.allclose(model.forecast("1 2 20", horizon=3).values, model.forecast([[1, 2, 20]], horizon=3).values)
    with pytest.raises(DataError, match="no column 'x'"):
        model.forecast("1 2", horizon=3)


def test_a_table_of_states_is_learned_and_continued(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    states = simulate(SYSTEMS["pendulum"], 1, 200, 3)[0]
    path = tmp_path / "states.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["t", "angle", "speed"])
        writer.writerows([round(0.1 * at, 6), *state] for at, state in enumerate(states.tolist()))
    trained = train(start("dynamics", recipe(f"data.train={path}", f"out={tmp_path}")), lambda kind, **facts: None)
    training = trained.task
    assert isinstance(training, DynamicsTraining) and training.data.scaling.clock.step == pytest.approx(0.1)
    assert len(training.data.train) == 160 - 4 and training.data.valid.truth.unit == "time"
    own = Scaling.measured(("angle", "speed"), states[:160])
    assert training.data.scaling.mean == pytest.approx(own.mean), "the held-out part is not measured"
    out = tmp_path / "next.csv"
    with pytest.raises(SystemExit) as caught:
        main(
            [
                "run",
                str(trained.folder),
                "--file",
                str(path),
                "--horizon",
                "3",
                "--out",
                str(out),
                "-q",
                "--device",
                "cpu",
            ]
        )
    assert caught.value.code == 0, capfd.readouterr().err
    assert out.read_text().splitlines()[0] == "t,angle,speed" and out.read_text().splitlines()[1].startswith("20.0,")
    with pytest.raises(DataError, match="no system is simulated"):
        headway.load(trained.folder).forecast("drawn:1")
    found = DynamicsPredictor(headway.load(trained.folder)).examine(str(path))
    assert found.metrics["prediction_horizon"][0] >= 0 and found.examples > 1


def test_series_that_are_too_short_or_of_other_numbers(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"series of 3 time steps are too short for dynamics.look_back = 4 and 1 step"):
        read_data(recipe("dynamics.length=3"))
    _, model = made()
    other = DynamicsTraining(recipe("dynamics.system=pendulum"), read_data(recipe("dynamics.system=pendulum")))
    with pytest.raises(ConfigError, match="is no model of states of 2 numbers"):
        other.config(model.config)
    with pytest.raises(ConfigError, match=r"dynamics\.threshold"):
        recipe("dynamics.threshold=0")
