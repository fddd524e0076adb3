"""What was tried, as pasted: the command, the lines of Python, and the body of the request to a server."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.api.bundle import load
from headway.cli import main
from headway.serve.schemas import ChatRequest, CompletionRequest, RunRequest, validate
from headway.studio.play.copies import Tried
from headway.tasks.registry import get_task
from tests.studio.conftest import RunningStudio

ROOT = Path(__file__).parents[3]
HARD = 'It\'s "odd" -- $HOME `date` 50 %'
SETTINGS = {"max_tokens": 4, "seed": 1}


def copied(studio: RunningStudio, **body: Any) -> dict[str, str]:
    answer = studio.client.post("/api/playground/copies", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, str] = answer.json()
    return found


def command(line: str, capfd: pytest.CaptureFixture[str]) -> str:
    """Run a command in this process."""
    capfd.readouterr()
    with pytest.raises(SystemExit) as caught:
        main(shlex.split(line)[1:])
    out, err = capfd.readouterr()
    assert caught.value.code == 0, err
    return out


def body_of(curl: str) -> dict[str, Any]:
    """The body of a request, as the shell would hand it to curl."""
    line = next(line for line in curl.splitlines() if line.startswith(("curl", "printf")))
    take = 'curl() { for last; do :; done; if [ "$last" = "@-" ]; then cat; else printf %s "$last"; fi; }'
    done = subprocess.run(["bash", "-c", f"{take}; {line}"], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


TRIED: list[tuple[str, dict[str, Any]]] = [
    ("tiny-0001", {"kind": "generate", "text": HARD, "settings": SETTINGS}),
    ("tiny-0001", {"kind": "generate", "text": "-x", "settings": {**SETTINGS, "stop_strings": ["q", "z"]}}),
    ("tiny-0001", {"kind": "beams", "text": HARD, "settings": {"width": 2, "n_best": 2, "max_tokens": 3}}),
    ("tiny-0001", {"kind": "score", "text": HARD}),
    ("classify-0001", {"kind": "task", "task": "classify", "form": {"input": HARD}}),
    ("images-0001", {"kind": "task", "task": "images", "form": {"input": "drawn:ring", "look": "gradient"}}),
]


@pytest.mark.parametrize(("model", "what"), TRIED)
def test_the_command_works_as_pasted(
    model: str,
    what: dict[str, Any],
    playing: RunningStudio,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    out = command(copied(playing, model=model, **what)["command"], capfd)
    bundle = load(playing.studio.runs / model)
    if what["kind"] == "generate":
        assert out == what["text"] + bundle.stream(what["text"], **what["settings"]).text + "\n"
    elif what["kind"] == "beams":
        assert len(out.splitlines()) == 2
    elif what["kind"] == "score":
        assert f"{bundle.score(HARD).log_probability:.3f}" in out
    else:
        assert bundle.predict(what["form"]["input"])["label"] in out
        assert (tmp_path / "looks.png").is_file() == ("look" in what["form"])


@pytest.mark.slow
def test_the_lines_of_python_and_of_a_shell_work_as_pasted(playing: RunningStudio, tmp_path: Path) -> None:
    codes = [copied(playing, model=model, **what)["python"] for model, what in TRIED]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": HARD}]
    codes.append(copied(playing, model="chat-0001", kind="chat", messages=messages, settings=SETTINGS)["python"])
    done = subprocess.run(
        [sys.executable, "-"], input="\n".join(codes), capture_output=True, text=True, cwd=tmp_path, timeout=120,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    bundle = load(playing.studio.runs / "tiny-0001")
    assert bundle.stream(HARD, **SETTINGS).text in done.stdout and "'probabilities'" in done.stdout

    (tmp_path / "headway").write_text(f'#!/bin/sh\nexec {sys.executable} -m headway "$@"\n')
    (tmp_path / "headway").chmod(0o755)
    turns = [{"role": "user", "content": HARD}, {"role": "assistant", "content": "?"}, {"role": "user", "content": "b"}]
    line = copied(playing, model="chat-0001", kind="chat", messages=turns, settings=SETTINGS)["command"]
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path, timeout=120,
        env={"PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}:/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    chat = load(playing.studio.runs / "chat-0001")
    assert done.stdout.startswith(chat.chat([turns[0]], **SETTINGS).text)


@pytest.mark.parametrize(("model", "what"), TRIED)
def test_the_request_is_one_that_the_server_takes(model: str, what: dict[str, Any], playing: RunningStudio) -> None:
    curl = copied(playing, model=model, **what)["curl"]
    if what["kind"] == "beams":
        assert "headway run --beam" in curl
        return
    assert curl.startswith(f"headway serve {playing.studio.runs / model}")
    body = body_of(curl)
    if what["kind"] == "task":
        assert validate(RunRequest, body).input == what["form"]["input"]
    else:
        assert validate(CompletionRequest, body).prompt == what["text"] and body["model"] == model


def test_a_conversation_as_a_request(playing: RunningStudio) -> None:
    messages = [{"role": "user", "content": HARD}]
    settings = {"temperature": 0.5, "typical_p": 0.9, "presence": 0.1}
    curl = copied(playing, model="chat-0001", kind="chat", messages=messages, settings=settings)["curl"]
    body = validate(ChatRequest, body_of(curl))
    assert body.messages[0].content == HARD and (body.temperature, body.presence_penalty) == (0.5, 0.1)
    assert "# the server has no setting typical_p" in curl


def test_an_uploaded_file_is_sent_as_base64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = "my photo's 50%.png"
    Path(name).write_bytes(b"\x00\xff" * 300)
    form = {"input": name, "labels": "a cat,50% dog"}
    one = Tried(place="m", served="m", kind="task", task=get_task("contrastive"), form=form, uploads=["input"])
    body = body_of(one.curl())
    assert body["input"]["labels"] == "a cat,50% dog" and body["input"]["image"].startswith("AP8A")
    assert name in shlex.split(one.command()) and repr(name) in one.python()


def test_images_to_draw_and_objects() -> None:
    form = {"input": "ring", "count": 2, "seed": 3, "guidance": 1.5}
    one = Tried(place="m", served="m", kind="task", task=get_task("diffusion"), form=form)
    assert shlex.split(one.command())[3:] == [
        *("--grid", "1x2", "--seed", "3", "--guidance", "1.5"),
        "class=ring",
        "task=diffusion",
    ]
    assert body_of(one.curl())["input"][1] == {"class": "ring", "number": 1, "seed": 3, "guidance": 1.5}
    graph = {"nodes": ["marked", ""], "edges": [[0, 1]]}
    two = Tried(place="m", served="m", kind="task", task=get_task("graph"), form={"input": graph})
    assert two.command().startswith("echo ") and body_of(two.curl())["input"] == graph
