"""Shell completion, asked as shells ask: environment variables in, words out. Nothing heavy is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.cli import main
from headway.tasks.recipe import recipe_names

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bash(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):  # type: ignore[no-untyped-def]
    """What bash is told for these words; = is a word of its own there."""
    monkeypatch.chdir(tmp_path)
    for name in ("tiny-0001", "tag-0001"):
        (tmp_path / "runs" / name / "run").mkdir(parents=True)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "reviews.csv").write_text("a,b\n")
    (tmp_path / "mine.yaml").write_text("task: tag\ntrain: {steps: 5}\n")

    def ask(*words: str) -> list[str]:
        capfd.readouterr()
        monkeypatch.setenv("_HEADWAY_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(["headway", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        with pytest.raises(SystemExit) as caught:
            main([])
        out, err = capfd.readouterr()
        assert (caught.value.code, err) == (0, "")
        return out.split("\n")[:-1] if out.endswith("\n") else out.split("\n")

    return ask


def test_verbs(bash) -> None:  # type: ignore[no-untyped-def]
    assert bash("")[:3] == ["data", "tokens", "recipes"]
    assert bash("ex") == ["explain", "export"]


def test_recipes(bash) -> None:  # type: ignore[no-untyped-def]
    assert bash("train", "ti") == ["tiny"]
    assert set(recipe_names()) <= set(bash("train", ""))
    assert bash("train", "mi") == ["mine.yaml"]
    assert bash("compare", "shakespeare-") == ["shakespeare-best", "shakespeare-cpu", "shakespeare-fast"]
    assert bash("compare", "norm") == ["norm-places", "norms"] and bash("train", "norm") == [""]


def test_keys_and_values(bash) -> None:  # type: ignore[no-untyped-def]
    assert bash("train", "tiny", "train.l") == ["train.lr=", "train.layer_decay="]
    assert bash("train", "tiny", "data.low") == ["data.lower=true", "data.lower=false"]
    assert bash("train", "tiny", "train.optimizer", "=") == ["adamw", "muon", "sgd"]
    assert bash("train", "tiny", "train.optimizer", "=", "m") == ["muon"]
    assert bash("train", "tiny", "data.lower", "=", "") == ["true", "false"]
    assert bash("train", "tiny", "data.train", "=", "rev") == ["reviews.csv"]
    assert bash("check", "--training", "tiny", "model.norm_") == ["model.norm_at=pre", "model.norm_at=post"]


def test_keys_are_those_of_the_recipe(bash) -> None:  # type: ignore[no-untyped-def]
    assert "tag.scheme=" in bash("train", "tag", "tag.")
    assert "tag.scheme=" in bash("train", "mine.yaml", "tag.")
    assert bash("train", "tiny", "tag.") == [""]
    assert bash("train", "absent", "train.") == [""]
    assert "temperature=" in bash("run", "last", '"an open quote', "temp")


def test_models_and_runs(bash) -> None:  # type: ignore[no-untyped-def]
    assert {"last", "tiny-0001", "tag-0001", "gpt2-tiny", "model"} <= set(bash("run", ""))
    assert bash("export", "mod") == ["model"]
    assert bash("serve", "tiny") == ["tiny-0001"]
    assert bash("runs", "show", "t") in (["tiny-0001", "tag-0001"], ["tag-0001", "tiny-0001"])
    assert bash("train", "--resume", "la") == ["last"]


def test_generation_and_explain(bash) -> None:  # type: ignore[no-untyped-def]
    assert bash("run", "last", "hi", "temp") == ["temperature="]
    assert bash("run", "last", "hi", "early", "=") == ["true", "false", "never"]
    assert "train.lr" in bash("explain", "train.l")
    assert {"tag", "tag."} <= set(bash("explain", "ta"))
    assert bash("explain", "C01") == ["C014"]


@pytest.mark.parametrize(
    ("shell", "words", "found"),
    [
        ("zsh", "headway train tiny train.opt", '"train.optimizer=muon"'),
        ("zsh", "headway train tiny model.norm=r", '"model.norm=rmsnorm"'),
        ("fish", "headway train tiny model.norm=r", "model.norm=rmsnorm"),
        ("fish", "headway run la", "last"),
    ],
)
def test_other_shells_keep_the_word_whole(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, shell: str, words: str, found: str
) -> None:
    monkeypatch.setenv("_HEADWAY_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", words)
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    with pytest.raises(SystemExit):
        main([])
    assert found in capfd.readouterr().out


def test_a_real_bash_completes(tmp_path: Path) -> None:
    """The script that --show-completion prints, in a bash that completes a line as typed."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "headway"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m headway "$@"\n')
    program.chmod(0o755)
    script = """
    eval "$(_HEADWAY_COMPLETE=source_bash headway)"
    COMP_WORDS=(headway train tiny model.norm = r); COMP_CWORD=5
    $(complete -p headway | sed 's/.*-F //; s/ .*//') headway
    echo "${COMPREPLY[*]}"
    """
    env = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=env, cwd=tmp_path, timeout=60)
    assert done.stdout.strip() == "rmsnorm", done.stderr


@pytest.mark.parametrize("words", ["train tiny train.", "run ", "run last x t", "explain train."])
def test_nothing_heavy_is_imported(words: str) -> None:
    code = (
        "import sys\nfrom headway.cli import main\ntry:\n    main([])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('torch', 'numpy', 'pyarrow', 'tokenizers') if name in sys.modules])"
    )
    env = {**os.environ, "_HEADWAY_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": f"headway {words}"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=ROOT, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
