"""Forecasting: no leak of the future, losses and errors by hand, tables in and forecasts out."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headway
from headway.cli import main
from headway.config.shape import decoder_config
from headway.data.files.rows import first_rows
from headway.data.images.decode import open_image
from headway.data.series.table import Table
from headway.data.synthetic.series import make_table
from headway.errors import ConfigError, DataError
from headway.model.model import evaluating
from headway.tasks.forecast.evaluate import Errors, model_errors, pinball, rule_errors, simple_forecasts, window_sums
from headway.tasks.forecast.task import Forecasting, Settings
from headway.tasks.forecast.training import ForecastTraining, read_data
from headway.tasks.recipe import Recipe, load_recipe
from headway.train.build import build_model
from headway.train.run import start, train

SMALL = (
    *("model.depth=1", "model.width=8", "model.heads=2", "model.dropout=0", "train.batch=4", "train.steps=4"),
    *("train.eval_every=4", "train.save_every=4", "train.sample_every=4", "train.warmup=1"),
    *("forecast.look_back=24", "forecast.horizon=8", "forecast.patch=8", "forecast.stride=4"),
)


def recipe(*words: str) -> Recipe:
    return load_recipe("forecast", [*SMALL, *words])[1]


def write(path: Path, table: Table) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([table.time, *table.columns])
        for when, row in zip(table.clock.shown(table.times), table.values.tolist(), strict=True):
            writer.writerow([when, *("" if value != value else value for value in row)])
    return path


def records(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return write(tmp_path / "history.csv", make_table(400, 5))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = recipe("forecast.quantiles=[0.1, 0.5, 0.9]", f"out={tmp_path_factory.mktemp('runs')}")
    return train(start("forecast", made), lambda kind, **facts: None).folder


def test_nothing_before_the_cut_knows_what_comes_after(tmp_path: Path) -> None:
    """Every value after the training part is changed: what was learned from stays; so do statistics, the linear map,
    forecasts and errors of windows that end before the change."""
    table, cut, later = make_table(400, 5), 280, 340
    made = recipe(f"data.train={write(tmp_path / 'a.csv', table)}", "forecast.split=0.7/0.3")
    before = ForecastTraining(made, read_data(made))
    changed = table.values.copy()
    changed[cut:] = 1000 - 3 * changed[cut:]
    path = write(tmp_path / "b.csv", replace(table, values=changed))
    other = replace(made, data=replace(made.data, train=str(path)))
    after = ForecastTraining(other, read_data(other))
    assert after.data.scaling == before.data.scaling and after.model_files == before.model_files
    assert np.array_equal(after.data.train.read()[0], before.data.train.read()[0])
    assert len(after.data.train) == 280 - 24 - 8 + 1
    batches = [training.batch(np.arange(4)).tensors[0] for training in (before, after)]
    assert torch.equal(*batches)  # type: ignore[arg-type]
    assert not np.array_equal(after.data.valid.read()[0], before.data.valid.read()[0])
    # a change later in the held-out part: windows that end before it are the same, and so are their forecasts
    changed = table.values.copy()
    changed[later:] += 50.0
    path = write(tmp_path / "c.csv", replace(table, values=changed))
    other = replace(made, data=replace(made.data, train=str(path)))
    third = ForecastTraining(other, read_data(other))
    model = build_model(made, before, torch.device("cpu"))
    ours, theirs = (model_errors(model, each.data.valid) for each in (before, third))  # type: ignore[arg-type]
    same = later - cut - 8 + 1
    assert np.array_equal(ours.squared[:same], theirs.squared[:same])
    assert not np.allclose(ours.squared[same:], theirs.squared[same:])
    late = [each.data.valid.read(np.arange(same + 4))[0][:, :24] for each in (before, third)]
    with evaluating(model):
        first, second = (model.forecast(torch.from_numpy(x)) for x in late)  # type: ignore[operator]
    assert torch.equal(first, second), "a forecast depends on its look-back alone"


def test_the_linear_map_is_fitted_on_the_training_part(tmp_path: Path) -> None:
    """Its strength is chosen on the validation part; the test part changes nothing."""
    table = make_table(400, 5)
    changed = table.values.copy()
    changed[320:] *= -1
    found = []
    for name, values in (("a", table.values), ("b", changed)):
        path = write(tmp_path / f"{name}.csv", replace(table, values=values))
        made = recipe(f"data.train={path}", "forecast.split=0.7/0.1/0.2")
        found.append(ForecastTraining(made, read_data(made)).linear)
    assert np.array_equal(found[0].weights, found[1].weights) and found[0].strength == found[1].strength


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
@pytest.mark.parametrize("loss", ["mse", "mae"])
def test_the_loss_is_the_mean_error_of_known_targets(kind: str, loss: str) -> None:
    made = recipe(f"forecast.kind={kind}", f"forecast.loss={loss}")
    training = ForecastTraining(made, read_data(made))
    model = build_model(made, training, torch.device("cpu")).eval()
    batch = training.batch(np.arange(5))
    windows, known = batch.tensors
    assert windows is not None and known is None and batch.count == 5 * 8 * 4
    right = torch.ones(5, 8, 4, dtype=torch.bool)
    right[2:, 3] = False
    with torch.no_grad():
        error = model.fitted(windows)[..., 0] - windows[:, 24:]  # type: ignore[operator]
        each = error.abs() if loss == "mae" else error**2
        assert training.loss(model, windows, None) == pytest.approx(float(each.sum()), rel=1e-5)
        assert training.loss(model, windows, right) == pytest.approx(float(each[right].sum()), rel=1e-5)


def test_missing_targets_do_not_count(tmp_path: Path) -> None:
    table = make_table(400, 5)
    table.values[100:130, 1] = np.nan
    made = recipe(f"data.train={write(tmp_path / 'gaps.csv', table)}")
    training = ForecastTraining(made, read_data(made))
    known = training.data.train.read()[1]
    assert known is not None
    batch = training.batch(np.arange(len(training.data.train)))
    assert batch.count == known[:, 24:].sum() < known[:, 24:].size
    assert all(t is not None and torch.isfinite(t.float()).all() for t in batch.tensors)


def test_errors_by_hand() -> None:
    predicted, target = torch.zeros(2, 3, 2, 1), torch.arange(12.0).view(2, 3, 2)
    known = torch.ones(2, 3, 2, dtype=torch.bool)
    known[1, 2, 1] = False
    errors = Errors.of(window_sums(predicted, target, known, ()).double().numpy(), 3)
    metrics = errors.metrics()
    assert metrics["mse"].value == pytest.approx(sum(i**2 for i in range(11)) / 11)
    assert metrics["mae"].value == pytest.approx(sum(range(11)) / 11)
    assert errors.by_step(errors.absolute).tolist() == pytest.approx([(0 + 1 + 6 + 7) / 4, (2 + 3 + 8 + 9) / 4, 19 / 3])


def test_pinball_and_coverage_by_hand() -> None:
    target = torch.tensor([[[0.0], [4.0]]])
    predicted = torch.tensor([-1.0, 1.0, 3.0]).expand(1, 2, 1, 3)
    loss = pinball(predicted, target, (0.1, 0.5, 0.9))
    assert loss.flatten().tolist() == pytest.approx([(0.1 + 0.5 + 0.3) / 3, (0.5 + 1.5 + 0.9) / 3])
    errors = Errors.of(window_sums(predicted, target, None, (0.1, 0.5, 0.9)).double().numpy(), 2)
    assert errors.metrics()["coverage"].value == 0.5 and errors.metrics()["mae"].value == 2.0


def test_the_median_minimises_the_pinball_loss() -> None:
    values = torch.tensor([0.0, 1.0, 10.0])
    losses = [float(pinball(torch.full((3, 1), guess), values, (0.5,)).sum()) for guess in (0.0, 1.0, 4.0, 10.0)]
    assert min(losses) == losses[1]


def test_the_evaluation_has_every_window_and_simple_forecasts() -> None:
    made = recipe()
    training = ForecastTraining(made, read_data(made))
    model = build_model(made, training, torch.device("cpu"))
    found = training.evaluate_in_full(model, training.data.valid)
    assert found.examples == len(training.data.valid) == 3360 // 5 - 8 + 1
    rows = {row["kind"]: row for row in found.details["by_model"]}
    assert len(rows) == 4 and rows["this model"]["mse"] == found.metrics["mse"][0]
    assert rows["last season (24 steps)"]["mse"] < rows["last value"]["mse"]
    assert rows["linear (trend and season, ridge)"]["mse"] < rows["last season (24 steps)"]["mse"]
    errors = rule_errors(simple_forecasts(24, 8, 0, None)["last value"], training.data.valid, 24)
    assert training.chance["mse"] == errors.metrics()["mse"].value == rows["last value"]["mse"]
    low, high = found.metrics["mse"][1:]
    assert low < found.metrics["mse"][0] < high


def test_a_few_steps_beat_the_last_season(tmp_path: Path) -> None:
    """The starter learns: an untrained model is no better than chance."""
    made = recipe("train.steps=150", "train.batch=32", "train.lr=3e-3", "model.width=32", "model.heads=4",
                  "train.eval_every=150", f"out={tmp_path}")  # fmt: skip
    log: list[dict[str, Any]] = []
    train(start("forecast", made), lambda kind, **facts: log.append({"event": kind, **facts}))
    (data,) = (event for event in log if event["event"] == "data")
    assert [e for e in log if e["event"] == "eval"][-1]["mse"] < 0.4 * data["chance"]["mse"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("forecast.patch=30",), "forecast.patch = 30 is more than look_back = 24"),
        (("forecast.stride=9",), "forecast.stride = 9 leaves gaps between patches of 8"),
        (("forecast.split=1/2/3",), "is no split"),
        (("forecast.kind=decoder", "forecast.horizon=9"), "horizon = 9"),
        (("forecast.quantiles=[0.1, 0.9]",), "0.5 should be among them"),
    ],
)
def test_settings_that_cannot_be(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        made = recipe(*words)
        ForecastTraining(made, read_data(made)).config(None)


def test_a_table_that_is_too_short(tmp_path: Path) -> None:
    path = write(tmp_path / "short.csv", make_table(35))
    with pytest.raises(
        DataError, match=r"short.csv: the validation part of 35 time steps is too short.*look_back = 24"
    ):
        read_data(recipe(f"data.train={path}"))


def test_columns_of_validation_and_test_files(history: Path, tmp_path: Path) -> None:
    valid = write(tmp_path / "valid.csv", make_table(60, 5))
    made = recipe(f"data.train={history}", f"data.valid={valid}", f"data.test={valid}", "forecast.columns=price,load")
    training = ForecastTraining(made, read_data(made))
    assert training.data.scaling.columns == ("price", "load")
    assert len(training.data.train) == 400 - 32 + 1 and len(training.data.valid) == 60 - 32 + 1
    assert training.test_part is not None and len(training.test_part) == 29
    with pytest.raises(ConfigError, match="trains models of series"):
        training.config(decoder_config(made.model, 16, 8))


def test_the_command_line_writes_a_table_and_a_picture(
    run: Path, history: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, plot = tmp_path / "forecast.csv", tmp_path / "forecast.png"
    words = ["--file", str(history), "--horizon", "10", "--out", str(out), "--plot", str(plot), "-q", "--device", "cpu"]
    with pytest.raises(SystemExit) as caught:
        main(["run", str(run), *words])
    assert caught.value.code == 0, capfd.readouterr().err
    rows = records(out)
    assert len(rows) == 10 and list(rows[0])[:3] == ["time", "load", "temperature"] and "price_0.9" in rows[0]
    last = records(history)[-1]["time"]
    assert np.datetime64(rows[0]["time"]) - np.datetime64(last) == np.timedelta64(1, "h")
    assert all(float(row["load_0.1"]) <= float(row["load"]) <= float(row["load_0.9"]) for row in rows)
    assert open_image(str(plot)).size[0] > 500


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["1 2 3"], "3 time steps, and the model reads 24"),
        (["a b c"], "expected a number, found 'a'"),
        (["drawn:1", "--horizon", "0"], "--horizon 0 should be at least 1"),
        (["drawn:1", "--plot", "a.svg"], "the picture is a PNG file"),
        (["drawn:1", "--grid", "2x2"], "--grid does not go with"),
    ],
)
def test_the_command_line_says_what_is_wrong(
    run: Path, words: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", str(run), *words, "-q", "--device", "cpu"])
    assert caught.value.code != 0 and said in capfd.readouterr().err


def test_every_way_to_give_a_series_is_the_same(run: Path, history: Path, tmp_path: Path) -> None:
    """A path, rows, a DataFrame, a request with times; numbers alone have the same values and no times."""
    model = headway.load(run)
    found = model.forecast(str(history), horizon=3)
    rows = records(history)
    assert model.forecast(history, horizon=3).rows == model.forecast(rows, horizon=3).rows == found.rows
    pandas = pytest.importorskip("pandas")
    assert model.forecast(pandas.read_csv(history, parse_dates=["time"]), horizon=3).rows == found.rows
    columns = list(found.columns)
    body = {"values": {name: [float(row[name]) for row in rows] for name in columns}, "time": [r["time"] for r in rows]}
    request = Forecasting().parse_request({"input": {**body, "horizon": 3}})
    assert model.forecast(str(history), horizon=3).to_dict()["forecast"] == _predicted(model, request)["forecast"]
    alone = model.forecast([[float(row[name]) for name in columns] for row in rows], horizon=3)
    assert alone.columns == found.columns and np.allclose(alone.values, found.values) and not alone.time
    with pytest.raises(DataError, match=r"no such file: nowhere\.csv"):
        model.forecast("nowhere.csv")


def _predicted(model: Any, example: Any) -> dict[str, Any]:
    from headway.tasks.forecast.predict import ForecastPredictor

    return ForecastPredictor(model).predict([example])[0].to_dict()


def test_a_forecast_is_in_the_units_of_its_series(run: Path) -> None:
    """A column that the model does not know is standardised by itself: its level and scale come back."""
    model, table = headway.load(run), make_table(100, 5)
    plain = model.forecast({"other": table.values[:, 0].tolist()})
    moved = model.forecast({"other": (1000 + 50 * table.values[:, 0]).tolist()})
    assert np.allclose(moved.values, 1000 + 50 * plain.values, rtol=1e-3)


def test_requests_that_cannot_be() -> None:
    task = Forecasting()
    for raw, said in (
        ({}, "expected numbers"),
        ({"input": "  "}, "no numbers"),
        ({"values": [[1, 2], [3]]}, "rows of 1 and of 2 numbers"),
        ({"values": [1, 2], "columns": ["a", "b"]}, "there are 1, each needs a name"),
        ({"values": [1, 2], "time": ["2020-01-01"]}, "a list of 2 times"),
        ({"values": [1, 2], "time": ["2020-01-02", "2020-01-01"]}, "times have to rise"),
        ({"values": [1, 2], "horizon": 0}, "horizon = 0 should be an integer from 1"),
        ({"values": [1, True]}, "expected a number, found True"),
        ({"values": {"a": [1], "b": [1, 2]}}, "equally long"),
        ({"input": "/etc/hostname.csv"}, "expected a number"),
    ):
        with pytest.raises(DataError, match=said):
            task.parse_request(raw)


def test_a_client_cannot_name_files_of_the_server(history: Path) -> None:
    assert len(Forecasting().parse({"input": str(history)}).table) == 400
    with pytest.raises(DataError, match="expected a number"):
        Forecasting().parse_request({"input": str(history)})


def test_a_table_of_times_and_numbers_suits(history: Path, tmp_path: Path) -> None:
    texts = tmp_path / "reviews.csv"
    texts.write_text("date,text,stars\n2020-01-01,a fine film,5\n2020-01-02,a dull one,1\n")
    found = [Forecasting().suits(None, first_rows(str(path))).confidence for path in (history, texts)]  # type: ignore[arg-type]
    assert found[0] > 0.5 and found[1] == 0


def test_the_settings_of_a_recipe_are_those_of_its_toml() -> None:
    assert load_recipe("etth1")[1].settings == Settings(
        look_back=512, horizon=96, patch=16, stride=8, split="12/4/4 months"
    )


def test_predictions_are_json(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", str(run), "drawn:3", "--json", "-q", "--device", "cpu"])
    found = json.loads(capfd.readouterr().out)
    assert len(found["time"]) == 8 and found["quantiles"].keys() == {"0.1", "0.5", "0.9"}
    assert found["forecast"] == found["quantiles"]["0.5"]
