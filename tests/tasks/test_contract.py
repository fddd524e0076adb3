"""The contract of a task, over every task of the registry and one of a package that headway does not know.

Its offline recipe trains; a resumed run ends in the same weights; a saved model is the loaded one; a batch gives what
single examples give; `eval` gives what training's own evaluation gave; arguments, files, pipes and requests give the
same predictions; bad rows are named; help, model card and report know the task.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from headway.api import Bundle, load
from headway.cli import main
from headway.config.recipe import DataConfig
from headway.data.files.rows import BadRows
from headway.data.images.decode import open_image
from headway.data.images.png import png
from headway.data.sounds.wav import wav_bytes
from headway.data.synthetic.pictures import make_pictures
from headway.data.synthetic.sounds import tones
from headway.errors import DataError
from headway.generate.sampling.sampler import Sampling
from headway.report.model_card import write_card
from headway.report.report import write_report
from headway.studio.play.describe import describe
from headway.studio.play.prediction import predict
from headway.tasks import registry
from headway.tasks.base import Task
from headway.tasks.predictor import Predictor, RunOptions
from headway.tasks.recipe import load_recipe
from headway.train.run import resume, start, train

TOY = Path(__file__).parent.parent / "toy"
TASKS = [*registry.BUILT_IN, "parity"]
TINY = ("model.depth=1", "model.width=16", "model.heads=2", "model.dropout=0.1", "train.batch=4", "train.steps=6")
EVERY = ("train.warmup=1", "train.save_every=3", "train.eval_every=6", "train.sample_every=6", "data.length=48")
MORE = {
    "seq2seq": ("seq2seq.eval_texts=1000", "seq2seq.max_new_tokens=6", "seq2seq.beam=2"),
    "transcribe": ("transcribe.eval_texts=1000", "transcribe.max_new_tokens=6", "transcribe.fallback=0"),
    "caption": ("caption.eval_texts=1000", "caption.max_new_tokens=6", "caption.beam=2"),
    "embed": ("train.batch=8",),
    "diffusion": ("diffusion.eval_images=8", "diffusion.steps=2"),
    "forecast": ("forecast.look_back=24", "forecast.horizon=8", "forecast.patch=8", "forecast.stride=4"),
    "dynamics": ("dynamics.look_back=4", "dynamics.trajectories=8", "dynamics.length=24", "dynamics.horizon=8"),
    "graph": ("graph.positions=4",),
    "memory": ("memory.linear_start=0.9", "train.clip=1"),
    "word2vec": ("word2vec.threads=1",),
    "dino": ("dino.outputs=16", "dino.hidden=16", "dino.bottleneck=8"),
}
INPUTS: dict[str, list[Any]] = {
    "mlm": [{"input": "the [MASK] statement"}, {"input": "a [MASK] of [MASK]"}],
    "answer": [{"input": q, "context": "anna lives in oslo . boris met clara ."} for q in ("who lives ?", "where ?")],
    "parity": [{"input": "3 1 4"}, {"input": "2 7"}],
    "diffusion": [{"input": "circle"}, {"input": "ring"}, {"input": "none"}],
    "dynamics": [{"input": "1 2 20"}, {"input": "1 2 20; 2 3 21"}, {"input": "drawn:7"}],
    "forecast": [{"input": " ".join(str((i * k) % 7 + i / 10) for i in range(24 + k))} for k in (1, 2, 3)],
    "graph": [{"input": "a:marked b c:marked a-b b-c"}, {"input": '{"nodes": ["", "marked"], "edges": []}'}],
    "memory": [
        {"input": "Anna took the milk. Anna went to the garden. Where is the milk?"},
        {"input": "Boris walked to the office. Where is Boris?"},
        {"input": "Anna took the lamp. Is Anna in the cellar?"},
    ],
    "word2vec": [{"input": "function"}, {"input": "class - object + type"}, {"input": "the statement"}],
}
"""Task → inputs for it; other tasks take any text."""
TRAINING: dict[str, list[Any]] = {
    "classify": [{"text": "a good film", "label": "good"}, {"text": "a bad film", "label": "bad"}],
    "tag": [{"tokens": ["anna", "ran"], "ner_tags": ["B-PER", "O"]}] * 2,
    "answer": [{"question": "who ran ?", "context": "anna ran .", "answers": {"text": ["anna"], "answer_start": [0]}}]
    * 2,
    "embed": [{"anchor": "a dog", "positive": "a hound"}] * 2,
    "seq2seq": [{"source": "a dog runs", "target": "ein hund rennt"}] * 2,
    "parity": [{"numbers": [1, 2], "label": "odd"}] * 2,
    "diffusion": [{"image": "0.png", "label": "circle"}, {"image": "1.png", "label": "ring"}],
    "memory": [
        {"story": "Anna went to the garden.", "question": "Where is Anna?", "answer": "garden"},
        {
            "story": ["Anna took the milk.", "Anna went to the hallway."],
            "question": "Where is Anna?",
            "answer": "hallway",
        },
    ],
    "graph": [{"nodes": ["marked", "marked"], "edges": [[0, 1]], "label": "1 step"}, {"nodes": 2, "label": "no path"}],
}
"""Task → rows that it is trained on."""
TEXTS = [{"input": "a dog runs in the garden"}, {"input": "mr gorven said it rained"}, {"input": "no"}]
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()[:10]
PICTURES = [png(picture.pixels.transpose(1, 2, 0)) for picture in make_pictures(3, seed=7)]
SOUNDS = [wav_bytes(tone.samples, tone.rate) for tone in tones(3, seed=7, seconds=1.7)]
FILES = {"image": (PICTURES, "png"), "sound": (SOUNDS, "wav")}
"""Kind of input → files of it, and their ending."""


def inputs_of(task: Task, folder: Path) -> list[Any]:
    """Inputs for a task; images and sounds are files in the folder, separated by commas where it takes both."""
    if task.takes not in FILES:
        return INPUTS.get(task.name, TEXTS)
    names = [",".join(str(each) for each in several) for several in zip(*files_of(task, folder), strict=True)]
    return [{"input": name} for name in names]


def kinds_of(task: Task) -> list[str]:
    """The kinds of files that an input has."""
    return ["image", "sound"] if task.name == "fusion" else [task.takes]


def files_of(task: Task, folder: Path) -> list[list[Path]]:
    """The files of the inputs, kind by kind."""
    found = []
    for kind in kinds_of(task):
        files, ending = FILES[kind]
        paths = [folder / f"{number}.{ending}" for number in range(len(files))]
        for path, raw in zip(paths, files, strict=True):
            path.write_bytes(raw)
        found.append(paths)
    return found


def training_rows(task: Task, folder: Path) -> list[Any] | None:
    if task.takes not in FILES:
        return TRAINING.get(task.name)
    several = zip(*files_of(task, folder), strict=True)
    return [
        {**dict(zip(kinds_of(task), map(str, paths), strict=True)), "label": label, "caption": "a dog", "text": "a dog"}
        for paths, label in zip(several, "ab", strict=False)
    ]


@pytest.fixture(scope="module", autouse=True)
def toy_package() -> Iterator[None]:
    """tests/toy on the path, with the entry point of its task."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOY))
        registry._found.cache_clear()
        yield
    registry._found.cache_clear()
    registry.get_task.cache_clear()


@dataclass(frozen=True)
class Trained:
    task: Task
    folder: Path
    log: list[dict[str, Any]]

    def bundle(self) -> Bundle:
        return load(self.folder)

    def predictor(self, bundle: Bundle) -> Predictor[Any, Any]:
        options = RunOptions(sampling=Sampling(seed=1, max_tokens=6)) if self.task.generates else RunOptions()
        return self.task.load_predictor()(bundle, self.bundle().recipe, options)

    def inputs(self) -> list[Any]:
        return inputs_of(self.task, self.folder)

    def examples(self) -> list[Any]:
        return [self.task.parse(raw) for raw in self.inputs()]


@pytest.fixture(scope="module", params=TASKS)
def trained(request: pytest.FixtureRequest, toy_package: None, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    task = registry.get_task(request.param)
    out = tmp_path_factory.mktemp(task.name)
    recipe = load_recipe(task.starter or task.name, [*TINY, *EVERY, *MORE.get(task.name, ()), f"out={out}"])[1]
    assert recipe.task == task.name and not recipe.data.train
    log: list[dict[str, Any]] = []
    run = train(start("run", recipe), lambda kind, **facts: log.append({"event": kind, **facts}))
    write_card(run.folder)
    write_report(run.folder)
    return Trained(task, run.folder, log)


def close(one: Any, other: Any) -> bool:
    """Equal, but for the last digits of numbers."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(close, one, other))
    if isinstance(one, str) and one.startswith(PNG):  # rounding may change a pixel by one level
        ours, theirs = (np.asarray(open_image(base64.b64decode(text))).astype(int) for text in (one, other))
        return ours.shape == theirs.shape and abs(ours - theirs).max() <= 1
    return bool(one == (pytest.approx(other, abs=3e-5, rel=1e-4) if isinstance(other, float) else other))


def test_the_recipe_trains_and_its_card_and_report_name_the_task(trained: Trained) -> None:
    losses = [event["loss"] for event in trained.log if event["event"] == "step"]
    assert len(losses) == 6 and all(map(torch.isfinite, map(torch.tensor, losses)))
    card, page = ((trained.folder / name).read_text(encoding="utf-8") for name in ("README.md", "run/report.html"))
    assert trained.task.noun in card and trained.task.noun in page
    assert (f"pipeline_tag: {trained.task.pipeline_tag}" in card) == bool(trained.task.pipeline_tag)


def test_what_guessing_scores_is_known_by_the_names_of_the_metrics(trained: Trained) -> None:
    (data,) = (event for event in trained.log if event["event"] == "data")
    metrics = [event for event in trained.log if event["event"] == "eval"][-1]
    assert data["chance"].keys() <= metrics.keys() and all(map(math.isfinite, data["chance"].values()))
    assert data["chance"] or trained.task.name == "parity", "a task of headway knows"


def test_resumed_is_straight(trained: Trained, tmp_path: Path) -> None:
    """From the checkpoint in the middle, in another folder, to the same weights."""
    folder = shutil.copytree(trained.folder, tmp_path / "again")
    for path in (*folder.glob("*.safetensors"), folder / "run" / "log.jsonl"):
        path.unlink()
    middle, last = sorted(path for path in (folder / "run" / "checkpoints").iterdir() if path.is_dir())
    shutil.rmtree(last)
    train(resume(folder, lambda path, why: pytest.fail(why)), lambda kind, **facts: None)
    ours, theirs = (load(each).model.state_dict() for each in (folder, trained.folder))
    assert middle.name != last.name and all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_batch_is_its_examples_and_a_saved_model_is_the_loaded_one(trained: Trained, tmp_path: Path) -> None:
    bundle, examples = trained.bundle(), trained.examples()
    found = [each.to_dict() for each in trained.predictor(bundle).predict(examples)]
    alone = [trained.predictor(bundle).predict([example])[0].to_dict() for example in examples]
    assert close(found, alone) and json.loads(json.dumps(found)) == found
    saved = load(bundle.save(tmp_path / "saved"))
    assert saved.task == trained.task.name
    assert close([each.to_dict() for each in trained.predictor(saved).predict(examples)], found)


def test_eval_is_the_evaluation_of_training(trained: Trained) -> None:
    if not trained.task.evaluates:
        pytest.skip("evaluated on plain text, see tests/checks/test_perplexity.py")
    bundle = trained.bundle()
    examined = trained.predictor(bundle).examine("").metrics
    last = next(event for event in reversed(trained.log) if event["event"] == "eval")
    shared = {name: name for name in examined} | {"loss": "valid"}
    both = [(examined[mine][0], last[theirs]) for mine, theirs in shared.items() if mine in examined and theirs in last]
    assert both and all(mine == pytest.approx(theirs, rel=1e-4, abs=1e-5) for mine, theirs in both), (examined, last)


def test_arguments_files_and_pipes_give_the_same(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    task, raws = trained.task, trained.inputs()
    more = ["-q", "--device", "cpu", *(["--seed", "1", "--tokens", "6"] if task.generates else [])]
    if context := raws[0].get("context"):
        (tmp_path / "context.txt").write_text(context)
        more += ["--context", str(tmp_path / "context.txt")]

    def said(*words: str) -> list[dict[str, Any]]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            main(["run", str(trained.folder), *words, *more])
        out, err = capfd.readouterr()
        assert caught.value.code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    lines = "".join(raw["input"] + "\n" for raw in raws)
    (tmp_path / "inputs.txt").write_text(lines)
    found = said("--file", str(tmp_path / "inputs.txt"))
    assert [row.pop("line") for row in found] == list(range(1, len(raws) + 1))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    piped = said("--file", "-")
    assert [row.pop("line") for row in piped] == list(range(1, len(raws) + 1)) and close(piped, found)
    if not task.generates:  # these print their text as it comes
        assert close(said(*(raw["input"] for raw in raws), "--json"), found)


def test_requests_give_the_same(trained: Trained) -> None:
    if trained.task.generates:
        pytest.skip("/v1/completions and /v1/chat/completions, see tests/serve")
    pytest.importorskip("fastapi")
    from headway.serve.limits import Limits
    from headway.serve.predict import Tasks

    bundle, raws = trained.bundle(), trained.inputs()
    expected = [each.to_dict() for each in trained.predictor(bundle).predict(trained.examples())]
    if trained.task.takes in FILES:  # a client sends the bytes: a path would be one of the server
        with pytest.raises(DataError):
            trained.task.parse_request(raws[0])
        coded = [[base64.b64encode(raw).decode() for raw in FILES[kind][0]] for kind in kinds_of(trained.task)]
        several = [dict(zip(kinds_of(trained.task), each, strict=True)) for each in zip(*coded, strict=True)]
        raws = [{"input": each if len(each) > 1 else next(iter(each.values()))} for each in several]
    tasks = Tasks(bundle, Limits(), bundle.config.max_length)
    assert bundle.tokenizer is not None or all(task.takes != "text" for task in tasks.tasks.values())
    name = tasks.choose(trained.task.name)
    body = SimpleNamespace(input=[raw["input"] for raw in raws], context=raws[0].get("context"), pair=None)
    examples, _ = tasks.check(body, name)
    found = asyncio.run(tasks.run(name, examples))
    assert [row.pop("index") for row in found] == list(range(len(raws)))
    assert close(found, expected)
    sample = SimpleNamespace(**{"pair": None, "context": None, **tasks.sample(name)})
    assert asyncio.run(tasks.run(name, tasks.check(sample, name)[0]))


def test_a_file_of_training_is_a_file_of_inputs(trained: Trained, tmp_path: Path) -> None:
    """Columns that training takes are found when the model is used; targets are left alone."""
    rows = training_rows(trained.task, tmp_path)
    if rows is None:
        pytest.skip("trained on plain text")
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = list(trained.task.inputs(str(path), DataConfig(), BadRows()))
    assert [item.line for item in found] == [1, 2]
    assert len(trained.predictor(trained.bundle()).predict([item.example for item in found])) == 2


def test_the_texts_of_training_are_those_that_settings_are_chosen_by(trained: Trained, tmp_path: Path) -> None:
    rows = training_rows(trained.task, tmp_path) or [{"text": "a dog runs"}] * 2
    if trained.task.name == "chat":
        rows = [{"question": "who ?", "answer": "anna"}] * 2
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = list(trained.task.texts(DataConfig(train=str(path)), BadRows()))
    assert len(found) == (0 if trained.task.takes != "text" else 2)
    assert all(texts and all(isinstance(text, str) and text for text in texts) for texts in found)


def test_bad_rows_are_named(trained: Trained, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    takes = trained.task.takes
    good, field = trained.inputs()[0], {"table": "numbers"}.get(takes, "text" if takes == "text" else takes)
    field = "input" if takes in FILES and len(kinds_of(trained.task)) > 1 else field
    own = {"answer": "question", "forecast": "values", "dynamics": "values", "memory": "input"}
    names = {"input": own.get(trained.task.name, field), "context": "context"}
    rows = [{names[key]: value for key, value in good.items()}] * 2
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [rows[0], {names["input"]: None}, rows[1]]))
    words = ["run", str(trained.folder), "--file", str(path), "-q", "--device", "cpu"]
    words += ["--tokens", "3"] if trained.task.generates else []
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == DataError.exit_code and "rows.jsonl line 2" in capfd.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main([*words, "data.bad_rows=skip"])
    assert caught.value.code == 0
    assert [json.loads(line)["line"] for line in capfd.readouterr().out.splitlines()] == [1, 3]


@pytest.mark.parametrize("name", TASKS)
def test_a_task_says_what_others_need(name: str) -> None:
    task = registry.get_task(name)
    assert task.name == name and task.title and task.noun and task.tries.made_up
    assert not task.generates or task.predicts_tokens
    assert issubclass(task.load_predictor(), Predictor) and task.load_predictor().task.noun


def test_the_playground_has_a_form_for_it_and_answers_what_the_form_holds(trained: Trained) -> None:
    """Also for the task of another package: the page asks the task, and knows none by name."""
    bundle = trained.bundle()
    modes = describe("m", bundle)["modes"]
    if trained.task.generates:
        assert "generate" in [mode["kind"] for mode in modes]
        return
    (mode,) = (mode for mode in modes if mode.get("task") == trained.task.name)
    form = {field["name"]: field["value"] for field in mode["fields"]}
    found = predict(bundle, threading.Lock(), trained.task.name, form)
    assert (found["graph"] is not None) == (trained.task.takes == "graph")
    assert found["results"] and found["lines"] and json.loads(json.dumps(found, allow_nan=False)) == found


def test_the_light_half_needs_no_torch_and_help_lists_the_toy() -> None:
    code = "import sys, headway.tasks.registry as r; [t.Settings() for t in r.tasks()]; print('torch' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TOY), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.stdout == "False\n", done.stderr
    done = subprocess.run([sys.executable, "-m", "headway", "train", "-h"], capture_output=True, text=True, env=env)
    assert "parity" in done.stdout, done.stderr


def test_no_module_of_headway_names_the_toy() -> None:
    package = Path(registry.__file__).parent.parent
    assert not [
        path for path in package.rglob("*.py") if "parity_task" in path.read_text() or '"parity"' in path.read_text()
    ]
    assert sum(len(path.read_text().splitlines()) for path in TOY.glob("*.py")) < 120
