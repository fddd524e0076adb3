"""The verbs of headway as functions: what they return, show and refuse."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest

import headway
from headway.api.past_runs import Run
from headway.api.settings import recipe_words
from headway.errors import ConfigError, DataError, NotFoundError, UsageError
from headway.train.loop import Loop
from tests.cli.conftest import Run as Command
from tests.cli.conftest import run as run  # the command line beside the functions
from tests.runs.conftest import HOSTILE, event, finished, write_run

SMALL: dict[str, Any] = {
    "model": {"depth": 1, "width": 16, "heads": 2},
    "train": {"steps": 4, "batch": 4, "eval_every": 2, "sample_every": 9, "warmup": 0, "compile": False},
    "length": 16,
}
REVIEWS = [{"text": f"a {('dull', 'fine')[i % 2]} film {i}", "label": ("bad", "good")[i % 2]} for i in range(40)]


@pytest.fixture(autouse=True)
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog\n" * 40)
    return path


def train(**more: Any) -> Run:
    return headway.train("tiny", SMALL, **{"data.train": "text.txt", **more})


def test_training_shows_progress_and_returns_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    done = train()
    told = capfd.readouterr()
    assert "step 4" in told.err and not told.out
    assert done.folder == Path("runs/tiny-0001") and os.fspath(done) == "runs/tiny-0001" and done.status == "finished"
    assert done.metrics.keys() >= {"valid", "perplexity"} and done.metrics["valid"] > 0
    assert [row["step"] for row in done.history] == [2, 4] and done.history[-1]["valid"] == done.metrics["valid"]
    assert list(done.history.to_frame()["step"]) == [2, 4]
    assert done.report() == Path("runs/tiny-0001/run/report.html") and (done.folder / "README.md").exists()
    assert len(done.model.generate("the", max_tokens=3)) >= 1 and done.model is done.model
    assert repr(done).startswith("Run('runs/tiny-0001', finished, lm, 4 steps, valid ") and len(repr(done)) < 200
    page = done._repr_html_()
    assert "<svg" in page and "<path" in page and "perplexity" in page
    assert Run("runs/tiny-0001") == done == headway.run() == headway.runs()["tiny-0001"]


def test_quiet_is_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    train(quiet=True)
    assert capfd.readouterr() == ("", "")


def test_a_run_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    done = train(quiet=True)
    before = done.model
    assert done.resume() is done and done.record.facts.steps == 4
    assert done.resume(steps=6, quiet=True) is done and done.record.facts.steps == 6 and done.model is not before
    with pytest.raises(ConfigError, match="C040"):
        done.resume(batch=8)


def test_control_c_saves_and_returns(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    step, pid = Loop.step, os.getpid()

    def interrupted(self: Loop) -> Any:
        if self.progress.step == 1:
            os.kill(pid, signal.SIGINT)
        return step(self)

    monkeypatch.setattr(Loop, "step", interrupted)
    done = train()
    assert done.status == "stopped" and 1 <= done.record.facts.steps < 4
    assert ".resume()" in capfd.readouterr().err
    monkeypatch.setattr(Loop, "step", step)
    assert done.resume(quiet=True).status == "finished"


def test_training_in_a_thread_handles_no_signals() -> None:
    found: list[Run] = []
    thread = threading.Thread(target=lambda: found.append(train(quiet=True)))
    thread.start()
    thread.join()
    assert found[0].status == "finished"


def test_several_processes_are_for_the_terminal() -> None:
    with pytest.raises(ConfigError, match=r"C004.*gpus = 2"):
        train(gpus=2)
    assert not Path("runs").exists()


@pytest.mark.parametrize("data", [REVIEWS, pandas.DataFrame(REVIEWS)])
def test_rows_are_kept_where_the_run_can_read_them_again(data: Any) -> None:
    done = headway.train("classify", SMALL, data=data, quiet=True)
    kept = Path(done.recipe["data"]["train"])
    assert kept.parent.resolve() == Path("runs/data").resolve() and len(kept.read_text().splitlines()) == 40
    assert done.resume(steps=5, quiet=True).status == "finished"
    assert [run.name for run in headway.runs()] == ["classify-0001"]
    found = headway.evaluate(done, data, quiet=True)
    assert found.facts["examples"] == 40 and len(found.predictions) == 40 and "accuracy" in found.metrics
    assert found.predictions.to_frame().shape[0] == 40 and found.to_dict()["data"] == "rows"
    assert done.model.evaluate(REVIEWS[:10]).facts["examples"] == 10
    renamed = [{"said": row["text"], "y": row["label"]} for row in REVIEWS]
    assert headway.evaluate(done.model, renamed, text="said", label="y").metrics == found.metrics
    other = headway.evaluate(
        done, renamed, **{"data.text": "said", "data.label": "y"}, against=replace(done.model, name="?")
    )
    assert other.facts["gain"][0] == 0 and other.facts["against"] == "?" and other.metrics == found.metrics


def test_an_evaluation_is_that_of_the_command_line(run: Command) -> None:
    done = train(quiet=True)
    told = json.loads(run("eval", "last", "text.txt", "--json").out)
    found = headway.evaluate("last", "text.txt")
    assert json.loads(json.dumps(found.to_dict())) == told
    assert found.metrics["loss"] == told["loss"][0] and found.intervals["loss"][1] <= found.metrics["loss"]
    assert set(found.to_frame()["metric"]) == {"loss", "perplexity", "bits_per_byte"}
    assert "perplexity" in repr(found) and "<td>loss</td>" in found._repr_html_()
    both = headway.evaluate(done.model, Path("text.txt"), against=done, length=8)
    assert both.facts["against"] == "runs/tiny-0001" and "saves" not in both.metrics
    with pytest.raises(ConfigError, match=r"C014.*colunm.*column"):
        headway.evaluate("last", "text.txt", colunm="x")
    for verb in (headway.data, lambda data: headway.evaluate("last", data)):
        with pytest.raises(DataError, match="D001"):
            verb(3)


@pytest.mark.usefixtures("runs_in_process")
def test_a_comparison_is_that_of_the_command_line(run: Command) -> None:
    found = headway.compare(
        "tiny", {"model.norm": ["layernorm", "rmsnorm"]}, SMALL, seeds=[1, 2], data="text.txt", quiet=True
    )
    assert [row["variant"] for row in found.to_dicts()] == ["layernorm", "rmsnorm"]
    assert found.to_frame().shape[0] == 2 and "valid_sd" in found.to_frame() and len(found.runs) == 4
    assert found.page.exists() and found.folder == Path("runs/compare-tiny-norm")
    assert list(found.verdicts) == ["rmsnorm"] and "±" in found.verdicts["rmsnorm"] and not found.failed
    assert repr(found).splitlines()[1].startswith("layernorm") and found._repr_html_().count("<tr>") == 3
    told = run(
        *("compare", "tiny", "model.norm=layernorm,rmsnorm", "seeds=1,2", "data.train=text.txt", "--json"),
        *recipe_words("tiny", (SMALL,), {}),
    )
    assert told.err.count(", finished") == 4 and json.loads(told.out)["variants"] == found.to_dict()["variants"]


def test_what_cannot_be_compared() -> None:
    for vary in ({"norm": "layernorm"}, {"norm": ["layernorm"]}, {"norm": 3}):
        with pytest.raises(ConfigError, match="C002"):
            headway.compare("tiny", vary)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="U001"):
        headway.compare("tiny")
    with pytest.raises(UsageError, match=r'vary={"lr": \[0\.1, 0\.2\]}'):
        headway.compare("tiny", steps=3, lr=[0.1, 0.2])


def test_a_dataset_is_looked_at(run: Command) -> None:
    Path("reviews.csv").write_text("text,label\n" + "".join(f"{r['text']},{r['label']}\n" for r in REVIEWS))
    found = headway.data("reviews.csv")
    told = json.loads(run("data", "reviews.csv", "--json").out)
    assert found.task is not None and found.task.name == "classify"
    assert json.loads(json.dumps(found.to_dict())) == told
    assert str(found).strip() == run("data", "reviews.csv", "-q").out.strip()
    assert list(found.to_frame()["name"]) == ["text", "label"] and "\n" not in repr(found)
    assert "headway train classify" in found._repr_html_()
    assert headway.data(REVIEWS).survey.rows == 40
    with pytest.raises(NotFoundError, match="F001"):
        headway.data("nowhere.csv")


def test_past_runs_are_a_list_and_a_table(run: Command) -> None:
    write_run(Path("runs/tiny-0001"), finished())
    write_run(Path("runs/other-0001"), [event("start")])
    found = headway.runs()
    assert found["tiny-0001"].status == "finished" and len(found[:1]) == 1 and found[0] in found
    assert found.to_dicts() == json.loads(run("runs", "--json").out)
    assert set(found.to_frame()["name"]) == {"tiny-0001", "other-0001"}
    assert len(repr(found).splitlines()) == 3 and found._repr_html_().count("<tr>") == 3
    assert repr(headway.runs("elsewhere")) == "no runs"
    with pytest.raises(NotFoundError, match=r"F001.*tiny-0001"):
        found["tiny-0002"]


def test_hostile_runs_do_no_harm() -> None:
    told = [event("start", goal=HOSTILE), event("eval", step=1, **{HOSTILE: 1.0}), event("end")]
    write_run(Path("runs/x"), told, recipe=f"task = {json.dumps(HOSTILE)}")
    for page in (headway.run("x")._repr_html_(), headway.runs()._repr_html_()):
        assert "<script" not in page and "<img" not in page


def test_looking_at_runs_imports_no_torch(tmp_path: Path) -> None:
    import subprocess

    write_run(tmp_path / "runs" / "tiny-0001", finished())
    code = (
        "import sys, headway; [getattr(headway, name) for name in dir(headway)]; run = headway.run('last');"
        "run.metrics, run.history, repr(run), run._repr_html_(), headway.runs(), repr(headway.runs());"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr
