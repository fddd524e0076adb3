"""Series over HTTP: a model without a front end of tokens is served like others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headway.api import load
from headway.tasks.recipe import load_recipe
from headway.train.run import start, train
from tests.serve.conftest import KEY, Running, refusal, running

SMALL = ("model.depth=1", "model.width=16", "model.heads=1", "train.steps=1", "train.batch=2")


@pytest.fixture(scope="module", params=["encoder", "decoder"])
def server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("series")
    history = folder / "history.csv"
    history.write_text(
        "date,load\n" + "".join(f"2024-01-{d:02} {h:02}:00,{h % 7}\n" for d in range(1, 9) for h in range(24))
    )
    own = (f"data.train={history}", "forecast.look_back=16", "forecast.horizon=4", "forecast.patch=4")
    words = ("forecast", *own, f"forecast.kind={request.param}", "forecast.stride=4", f"out={folder}", *SMALL)
    run = start(*load_recipe(words[0], words[1:]), list(words))
    train(run, lambda kind, **facts: None)
    with running(load(run.folder), KEY) as made:
        yield made


def test_forecasts(server: Running) -> None:
    numbers = list(range(16))
    answer = server.post("/v1/run", {"model": server.served.id, "input": {"values": numbers, "horizon": 6}})
    assert answer.status_code == 200, answer.text
    ((name, values),) = answer.json()["data"][0]["forecast"].items()
    assert name == "load" and len(values) == 6


def test_what_is_no_series(server: Running) -> None:
    for given in ("1 2 x", {"values": [[1, 2], [3]]}, {"values": [1, 2]}, "history.csv"):
        found = refusal(server.post("/v1/run", {"model": server.served.id, "input": given}))
        assert found == (400, "D001"), given
