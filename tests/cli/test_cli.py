"""The command line: results on stdout, progress messages on stderr, every error short and with its exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import headway
from headway.checks.equivalence import suite
from headway.config import presets
from headway.config.model import LMHeadConfig
from headway.errors import MemoryOrDiskError
from headway.hub import download
from headway.hub.folder import load_model, save_model
from headway.model.model import Transformer
from tests.cli.conftest import Done, Run

ROOT = Path(__file__).resolve().parents[2]

VERBS = ("check", "get", "export", "doctor")
ROWS = """right padding = none, left padding = none, batch = single, packed = separate, cached = uncached,
reordered = fresh, fast decoder = step, decoded = recomputed, engine = alone, prefix cache = fresh,
speculative = plain, scored = recomputed, outgrown = last half, beam readers = step, beams = reference,
int8 alone = together, chat held = fresh, segments matter, spare rows closed, LoRA merged = beside,
maps = eager weights, saved = loaded, tied = one matrix""".replace(",\n", ", ").split(", ")
"""The checks of a decoder."""


def process(*arguments: str | Path, shell_tail: str = "", **env: str) -> Done:
    """`python -m headway` with these arguments, as a user starts it; `shell_tail` is what it is piped into."""
    words = [sys.executable, "-m", "headway", *map(str, arguments)]
    command = ["bash", "-c", f'"$@" | {shell_tail}; exit ${{PIPESTATUS[0]}}', "bash", *words] if shell_tail else words
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, env=os.environ | env)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny GPT-2, not to be changed."""
    torch.manual_seed(0)
    model = Transformer(presets.gpt2(2, 16, 2, vocab=40, length=64))
    return save_model(model, tmp_path_factory.mktemp("cli") / "model")


def refused(done: Done, exit_code: int, code: str) -> str:
    """The first line of an error: nothing on stdout, one screen on stderr, no traceback."""
    assert (done.code, done.out) == (exit_code, ""), done
    assert "Traceback" not in done.err
    lines = done.err.rstrip("\n").splitlines()
    first = next(line for line in lines if line.startswith("error["))
    assert first.startswith(f"error[{code}]: ")
    assert len(lines) <= 5
    assert max(map(len, lines)) <= 300
    return first


# --- help ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], [], ["--debug"]])
def test_help_lists_the_verbs(run: Run, arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.code, done.err) == (0, "")
    for verb in VERBS:
        assert re.search(rf"^  {verb} +[A-Z]", done.out, re.MULTILINE)
    for option in ("--version", "--debug", "--help"):
        assert option in done.out


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_shows_examples(run: Run, verb: str) -> None:
    done = run(verb, "-h")
    assert (done.code, done.err) == (0, "")
    assert run(verb, "--help").out == done.out
    examples = done.out.partition("Examples:")[2].splitlines()
    assert len([line for line in examples if re.match(rf" +headway {verb}\b", line)]) >= 2


def test_the_examples_of_the_help_parse(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each example gets past the parser: what fails then is that the model is not there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("headway.api.load", _raise(LookupError("past the parser")))
    monkeypatch.setattr("headway.hub.download.resolve", _raise(LookupError("past the parser")))
    monkeypatch.setattr("headway.tasks.recipe.load_recipe", _raise(LookupError("past the parser")))
    for verb in ("check", "get", "export"):
        for line in run(verb, "-h").out.partition("Examples:")[2].split("\n"):
            if line.strip():
                assert "past the parser" in run(*line.split()[1:]).err


def test_the_version(run: Run) -> None:
    assert run("--version") == Done(0, f"{headway.__version__}\n", "")
    assert process("--version") == Done(0, f"{headway.__version__}\n", "")


def test_the_program_and_the_function_say_the_same(run: Run) -> None:
    done = process("--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.split("Options:")[1] == run("--help").out.split("Options:")[1]
    assert refused(process("frobnicate"), 2, "U001") == refused(run("frobnicate"), 2, "U001")


# --- results ------------------------------------------------------------------------------------


def test_check_prints_rows_on_stdout_and_messages_on_stderr(run: Run) -> None:
    done = run("check", "gpt2-tiny", "--no-compile", "--device", "cpu")
    assert done.code == 0
    rows = done.out.splitlines()
    assert [row.split("  ")[1].strip() for row in rows] == ROWS
    shown = [row for row in rows if not row.startswith("–")]
    assert len(shown) == len(rows) - 5  # no template, token types, padded vocabulary, int8, kernels for beams
    assert all(re.match(r"✓  .{22} +\d\.\de[-+]\d\d   limit \de[-+]\d\d($|  )", row) for row in shown), rows
    assert not set("\x1b\r") & set(done.out + done.err)
    first, last = done.err.splitlines()
    assert first == "gpt2-tiny: gpt2 decoder, 0.9M parameters, float32 on cpu"
    assert "next: headway export gpt2-tiny " in last


def test_check_says_why_a_row_does_not_apply(run: Run) -> None:
    done = run("check", "vit-tiny", "--no-compile", "--device", "cpu")
    assert done.code == 0
    rows = done.out.splitlines()
    assert {row[0] for row in rows} == {"✓", "–"}
    assert any(re.fullmatch(r"–  left padding = none +images have no padding", row) for row in rows)


def test_check_json_is_one_document(run: Run, folder: Path) -> None:
    done = run("check", folder, "--no-compile", "--json")
    assert done.code == 0
    report = json.loads(done.out)
    assert done.out.count("\n") == 1
    assert (report["model"], report["ok"], len(report["checks"])) == (str(folder), True, len(ROWS))
    for row in report["checks"]:
        assert row.keys() == {"name", "means", "difference", "limit", "note", "ok"}
        assert row["ok"] is True
        assert (row["difference"] is None and row["note"]) or 0 <= row["difference"] <= row["limit"]
    assert len(done.err.splitlines()) == 2


def test_quiet_is_quiet(run: Run, folder: Path, tmp_path: Path) -> None:
    assert run("check", folder, "--no-compile", "-q").err == ""
    assert run("check", folder, "--no-compile", "--quiet", "--json").err == ""
    assert run("get", folder, "-q") == Done(0, f"{folder}\n", "")
    assert run("export", folder, tmp_path / "out", "-q") == Done(0, f"{tmp_path / 'out'}\n", "")
    assert run("get", tmp_path / "absent", "-q").err.startswith("error[F001]")  # errors are still printed


def test_get_prints_the_folder(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    done = run("get", "./model")
    assert (done.code, done.out) == (0, "model\n")
    assert "GPT2LMHeadModel, decoder, 0.0 MB of weights" in done.err
    facts = json.loads(run("get", "./model", "--json").out)
    assert facts == {
        "folder": "model",
        "family": "gpt2",
        "architecture": "GPT2LMHeadModel",
        "kind": "decoder",
        "bytes": 4 * load_model(folder).parameter_count(),
    }


def test_export_writes_what_transformers_and_check_accept(run: Run, folder: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    out = tmp_path / "new" / "out"
    done = run("export", folder, out)
    assert (done.code, done.out) == (0, f"{out}\n")
    assert f"next: headway check {out}" in done.err
    oracle = AutoModelForCausalLM.from_pretrained(out).eval()
    ids = torch.arange(12)[None]
    model = load_model(folder)
    with torch.no_grad():
        assert (oracle(ids).logits - model.logits(model(ids))["lm"]).abs().max() <= 1e-5
    assert run("check", out, "--no-compile").code == 0


def test_export_in_another_type(run: Run, folder: Path, tmp_path: Path) -> None:
    assert run("export", folder, tmp_path / "half", "--dtype", "bfloat16").code == 0
    assert {p.dtype for p in load_model(tmp_path / "half").parameters()} == {torch.bfloat16}
    assert json.loads((tmp_path / "half" / "config.json").read_text())["dtype"] == "bfloat16"


def test_doctor_says_what_the_machine_can_do(run: Run) -> None:
    done = run("doctor")
    assert done.code == 0
    assert f"torch {torch.__version__}" in done.out
    assert re.search(r"\d+ cores", done.out)
    assert done.err.startswith("next: headway ")
    done = run("doctor", "--json")
    facts = json.loads(done.out)
    assert done.err == ""
    assert facts["torch"] == torch.__version__
    assert facts["memory_gb"] > 0
    assert facts["offline"] is True


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "error", "named"),
    [
        (["frobnicate"], 2, "U001", "frobnicate"),
        (["check", "FOLDER", "--frob"], 2, "U001", "--frob"),
        (["check"], 2, "U001", "MODEL"),
        (["export", "FOLDER"], 2, "U001", "OUT"),
        (["check", "FOLDER", "more"], 2, "U001", "more"),
        (["check", "FOLDER", "--dtype", "float3"], 2, "U001", 'did you mean "float32"'),
        *((["check", "FOLDER", "--device", name], 2, "U001", name) for name in ("tpu", "meta", "cuda:99", "cpu:x", "")),
        *(([verb, name, *more], 5, "F001", name.removeprefix("./"))
          for verb, *more in (("check",), ("get",), ("export", "OUT")) for name in ("./absent", "nonsense")),
        *(([verb, "nobody/nothing", *more], 6, "N001", "nobody/nothing")
          for verb, *more in (("check",), ("get",), ("export", "OUT"))),
        (["check", "gpt3-tiny"], 5, "F001", 'did you mean "gpt2-tiny"'),
        (["check", "gpt3"], 7, "M001", "GB"),
    ],
)  # fmt: skip
def test_errors_are_named(run: Run, folder: Path, words: list[str], code: int, error: str, named: str) -> None:
    assert named in refused(run(*(folder if word == "FOLDER" else word for word in words)), code, error)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_a_gpu_that_is_not_there(run: Run, folder: Path) -> None:
    refused(run("check", folder, "--device", "cuda"), 2, "U001")


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    made = tmp_path / "copy"
    made.mkdir()
    for path in folder.iterdir():
        (made / path.name).write_bytes(path.read_bytes())
    return made


def test_a_damaged_file(run: Run, copy: Path) -> None:
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    for verb in ("check", "get"):
        assert str(weights) in refused(run(verb, copy), 9, "X001")


def test_an_unknown_field(run: Run, copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"n_layr": 3}))
    assert "n_layer" in refused(run("check", copy), 3, "C021")
    (copy / "config.json").write_text(json.dumps(config | {"n_layer": 10**9}))
    refused(run("check", copy), 3, "C003")


def test_an_output_folder_that_exists(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").write_text("keep me")
    (tmp_path / "file").write_text("keep me")
    for name in ("full", "file"):
        assert name in refused(run("export", folder, tmp_path / name), 5, "F004")
    assert (tmp_path / "full" / "note").read_text() == "keep me"


def _raise(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def test_an_error_nobody_foresaw(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "resolve", _raise(ZeroDivisionError("boom\nand more")))
    first = refused(run("get", "x/y"), 1, "B000")
    assert first.endswith("ZeroDivisionError: boom")
    for words in (["--debug", "get", "x/y"], ["get", "x/y", "--debug"]):
        done = run(*words)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith("Traceback (most recent call last)")
        assert "test_cli.py" in done.err
        assert "error[B000]" in done.err
    monkeypatch.setenv("HEADWAY_DEBUG", "1")
    assert "Traceback" in run("get", "x/y").err


def test_debug_shows_where_an_expected_error_came_from(run: Run) -> None:
    done = run("check", "gpt3-tiny", "--debug")
    assert done.code == 5
    assert "Traceback" in done.err
    assert done.err.rstrip().splitlines()[-2].startswith("error[F001]")


def test_an_interrupt(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "resolve", _raise(KeyboardInterrupt()))
    done = run("get", "x/y")
    assert (done.code, done.out) == (130, "")
    assert done.err.strip() == "stopped"


def test_a_check_that_fails(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transformer, "reorder", staticmethod(lambda cache, rows: cache))
    done = run("check", folder, "--no-compile")
    assert done.code == 9
    failed = [row for row in done.out.splitlines() if row.startswith("✗")]
    names = [row[3:25].strip() for row in failed]
    assert names[0] == "reordered = fresh" and "beams = reference" in names and "engine = alone" not in names
    assert f"error[X007]: {len(names)} of {len(ROWS)} checks failed: reordered = fresh, " in done.err
    assert "next:" not in done.err
    done = run("check", folder, "--no-compile", "--json")
    report = json.loads(done.out)
    assert (done.code, report["ok"]) == (9, False)
    assert [row["name"] for row in report["checks"] if not row["ok"]] == names


def test_a_check_that_breaks_is_still_shown_and_still_json(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "save_model", _raise(MemoryOrDiskError("M002", "no [/room] for [bold]it")))
    done = run("check", folder, "--no-compile")
    assert done.code == 9
    assert done.out.splitlines()[-1].endswith("M002: no [/room] for [bold]it")
    done = run("check", folder, "--no-compile", "--json")
    last = json.loads(done.out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))["checks"][-1]
    assert (last["ok"], last["difference"]) == (False, None)


def test_scores_without_bounds_do_not_pass(run: Run, tmp_path: Path) -> None:
    """Infinite scores differ from themselves by no number: they are no proof of anything."""
    config = replace(presets.gpt2(2, 16, 2, vocab=40, length=64), lm=LMHeadConfig(tied=False))
    model = Transformer(config)
    model.lm.output.weight.data.fill_(3e38)
    done = run("check", save_model(model, tmp_path / "model"), "--no-compile", "--json")
    assert done.code == 9
    report = json.loads(done.out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert report["ok"] is False


# --- terminals and pipes ------------------------------------------------------------------------


def test_colours_only_on_a_terminal_that_wants_them(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("check", "vit-tiny", "--no-compile")
    monkeypatch.setenv("TERM", "xterm-256color")
    plain = run(*arguments).out
    assert "\x1b" not in plain
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    coloured = run(*arguments).out
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert run(*arguments).out == plain


def test_a_pipe_that_closes_early(folder: Path) -> None:
    for words in (("--help",), ("check", folder, "--no-compile", "-q")):
        done = process(*words, shell_tail="head -1")
        assert len(done.out.splitlines()) == 1
        assert "Traceback" not in done.err
        assert "BrokenPipe" not in done.err
        assert "error[" not in done.err
