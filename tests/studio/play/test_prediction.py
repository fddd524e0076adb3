"""Forms and predictions: what the page offers for a model is what its tasks take, and every answer is plain JSON."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from headway.api.bundle import load
from headway.data.images.png import png
from headway.studio.play.prediction import _examples
from headway.tasks.registry import get_task
from tests.studio.conftest import RunningStudio
from tests.studio.play.conftest import XSS


def model(studio: RunningStudio, name: str) -> dict[str, Any]:
    answer = studio.client.get("/api/playground/model", params={"name": name})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def predict(studio: RunningStudio, name: str, task: str, **form: Any) -> Any:
    return studio.client.post("/api/playground/predict", json={"model": name, "task": task, "form": form})


def test_models_of_every_kind_are_listed(playing: RunningStudio) -> None:
    found = playing.client.get("/api/playground/models").json()["models"]
    by_name = {each["name"]: each for each in found}
    assert {"tiny-0001", "classify-0001", XSS} <= by_name.keys()
    assert by_name["classify-0001"] == {"group": "Runs", "name": "classify-0001", "about": "text classification"}
    assert by_name["gpt2"]["group"] == "Presets"


def test_what_a_model_offers(playing: RunningStudio) -> None:
    kinds = {name: [mode["kind"] for mode in model(playing, name)["modes"]] for name in ("tiny-0001", "chat-0001")}
    assert kinds == {"tiny-0001": ["generate", "beams", "score"], "chat-0001": ["chat", "generate", "beams", "score"]}
    classify, embed = model(playing, "classify-0001")["modes"]
    (text,) = classify["fields"]
    assert (classify["task"], text["name"], text["kind"]) == ("classify", "input", "text") and text["value"]
    assert [field["kind"] for field in embed["fields"]] == ["lines", "integer"]
    (images,) = model(playing, "images-0001")["modes"]
    assert {field["name"]: field["kind"] for field in images["fields"]} == {"input": "image", "look": "choice"}
    assert model(playing, "gpt2-tiny")["modes"] == [], "random weights, no tokenizer"


def test_every_setting_of_generation_is_explained(playing: RunningStudio) -> None:
    found = playing.client.get("/api/playground/settings").json()
    assert {"temperature", "top_p", "seed", "stop_strings"} <= {field["name"] for field in found["sampling"]}
    assert {"width", "max_tokens", "no_repeat"} <= {field["name"] for field in found["beam"]}
    assert all(field["help"] for fields in found.values() for field in fields)


def test_a_prediction_is_that_of_the_model(playing: RunningStudio) -> None:
    answer = predict(playing, "classify-0001", "classify", input=XSS).json()
    assert answer["results"] == [load(playing.studio.runs / "classify-0001").predict(XSS)]
    assert answer["inputs"] == [{"text": XSS}] and XSS in answer["lines"][0]


def test_an_upload_is_predicted_and_shown_with_what_the_model_looked_at(playing: RunningStudio) -> None:
    pixels = np.arange(20 * 20 * 3, dtype=np.uint8).reshape(20, 20, 3)
    url = "data:image/png;base64," + base64.b64encode(png(pixels)).decode()
    looks = {}
    for look in ("rollout", "gradient", "heads", "nothing"):
        answer = predict(playing, "images-0001", "images", input=url, look=look).json()
        assert answer["picture"].startswith("data:image/png;base64,")
        looks[look] = answer.get("look")
    assert looks.pop("nothing") is None and len(set(looks.values())) == 3
    made = load(playing.studio.runs / "images-0001").classify(base64.b64decode(url.partition(",")[2]))
    assert answer["results"][0]["label"] == made.label


@pytest.mark.parametrize(
    ("name", "task", "form", "code"),
    [
        ("classify-0001", "classify", {"input": " "}, "D001"),
        ("classify-0001", "tag", {"input": "a"}, "C003"),
        ("classify-0001", "classify", {"input": {"a": 7}}, "C002"),
        ("images-0001", "images", {"input": "/etc/passwd"}, "D001"),
        ("images-0001", "images", {"input": "data:image/png;base64,AAAA"}, "D001"),
        ("classify-0001", "embed", {"input": "a", "top": "many"}, "C003"),
        ("tiny-0001", "lm", {"input": "a"}, "D001"),
    ],
)
def test_what_cannot_be_predicted_is_refused(
    name: str, task: str, form: dict[str, Any], code: str, playing: RunningStudio
) -> None:
    answer = predict(playing, name, task, **form)
    assert 400 <= answer.status_code < 500 and answer.json()["error"]["code"] == code


def test_a_table_that_is_pasted_is_read_like_a_file() -> None:
    task, lines = get_task("forecast"), "date,load,heat\n2024-01-01,1,5\n2024-01-02,2,6\n2024-01-03,3,7\n"
    for text in (lines, lines.replace(",", "\t")):
        (example,) = _examples(task, {"input": text})
        assert example.table.columns == ("load", "heat") and example.table.values[:, 0].tolist() == [1, 2, 3]
    assert _examples(task, {"input": "1\n2\n3"}) == [] and _examples(task, {"input": "drawn:1"}) == []
    assert _examples(get_task("classify"), {"input": lines}) == []
