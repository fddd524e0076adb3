"""The model card: a header the hub reads, true statements only, and nothing of a log that acts on a page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headway.report.model_card import GENERATED_MARK, card, code_span, escape_markdown, write_card
from headway.report.report import HELD_BACK
from headway.runs.history import History, read_run
from tests.runs.conftest import RECIPE, event, finished, steps, towards, write_run

ROOT = Path(__file__).resolve().parents[2]
DATA = event("data", train="/home/someone/books/tales.txt", valid="", documents=12, tokens=500, bytes=700, vocab=256)


def made(folder: Path, log: list[Any] | None = None, model_type: str = "gpt2", **more: Any) -> History:
    write_run(folder, [*finished(), DATA] if log is None else log, **more)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return read_run(folder)


def header(text: str) -> dict[str, Any]:
    first, rest = text.split("\n", 1)
    assert first == "---"
    found = yaml.safe_load(rest.split("\n---\n", 1)[0])
    assert isinstance(found, dict)
    return found


def outside_code(text: str) -> str:
    """What Markdown reads as such: without fenced blocks and code spans."""
    text = re.sub(r"(?ms)^(`{3,})[^\n]*\n.*?^\1$", "", text)
    return re.sub(r"(?s)(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", text)


def test_the_header_is_what_the_hub_expects(tmp_path: Path) -> None:
    text = card(made(tmp_path / "tiny-0001"))
    assert header(text) == {
        "library_name": "headway",
        "pipeline_tag": "text-generation",
        "tags": ["headway", "lm", "gpt2"],
    }


def test_the_hub_reads_it(tmp_path: Path) -> None:
    from huggingface_hub import ModelCard

    found = ModelCard(card(made(tmp_path / "tiny-0001")))
    assert (found.data.library_name, found.data.pipeline_tag) == ("headway", "text-generation")
    assert found.text.strip().startswith(GENERATED_MARK)


def test_a_goal_of_its_own_stands_first(tmp_path: Path) -> None:
    log = towards("macro_f1", (0.5, 0.91, 0.8, 0.7), (3.0, 2.5, 2.4, 2.39), test=0.875)
    text = card(read_run(write_run(tmp_path / "c", log)))
    rows = (
        "| macro f1 (best, step 50) | 0.910 |",
        "| validation loss at that step | 2.500 |",
        "| test macro f1 | 0.875 |",
    )
    assert text.index(rows[0]) < text.index(rows[1]) < text.index(rows[2])
    assert "at that step" not in card(made(tmp_path / "tiny-0001"))


def test_what_it_says(tmp_path: Path) -> None:
    text = card(made(tmp_path / "tiny-0001"))
    for words in (
        "# tiny-0001\n",
        "A language model of 1.23k parameters, trained on `tales.txt` for 100 steps (1k tokens); its best validation",
        "| validation loss (best, step 100) | 2.390 |",
        "| validation bits per byte | 1.195 |",
        "| parameters | 1,234 |",
        "| trained on | `tales.txt` |",
        f"| validated on | {HELD_BACK} |",
        "| epochs | 2 |",
        "| versions | headway 0.1.0, torch 2.13, Python 3.11 |",
        "It finished without trouble",
        "`headway train run/recipe.toml`",
        "```toml\ntask = \"lm\"\nseed = 7\n",
        "- It was trained on sequences of 64 tokens.",
        "It was trained on the data above only.",
        "states no licence",
    ):  # fmt: skip
        assert words in text, words
    for absent in ("–", "None", "nan", "/home/someone", "did not finish", "rows of the data could not"):
        assert absent not in text, absent


def test_it_says_nothing_that_it_does_not_know(tmp_path: Path) -> None:
    text = card(made(tmp_path / "r", steps(1, 3), recipe="task = 'odd'\n", weights=False))
    assert header(text) == {"library_name": "headway", "tags": ["headway", "odd", "gpt2"]}
    for absent in (
        "## Use",
        "parameters",
        "bits per byte",
        "versions",
        "device",
        "sequences of",
        "harmful",
        "None",
        "–",
    ):
        assert absent not in text, absent
    assert "An odd model, trained on made-up data for 3 steps" in text
    assert "it was not evaluated" in text and "did not finish" in text


def test_a_model_that_began_as_another(tmp_path: Path) -> None:
    recipe = RECIPE.replace("depth = 2", 'depth = 2\nfrom = "/models/base-7"')
    text = card(made(tmp_path / "r", recipe=recipe))
    assert "| started from | `base-7` |" in text and 'from = "base-7"' in text
    assert "data above only" not in text and "/models" not in text


def test_test_scores_and_rows_left_out(tmp_path: Path) -> None:
    more = [event("test", test=2.5, bits_per_byte=1.25), event("data", bad_rows=4)]
    text = card(made(tmp_path / "r", [*finished(), *more]))
    assert "| test loss | 2.500 |" in text and "| test bits per byte | 1.250 |" in text
    assert "- 4 rows of the data could not be used." in text


def test_transformers_only_where_it_opens_the_folder(tmp_path: Path) -> None:
    known = card(made(tmp_path / "a"))
    assert 'transformers.pipeline("text-generation", model=".")' in known and "max_new_tokens=32" in known
    own = card(made(tmp_path / "b", model_type="headway"))
    assert "transformers.pipeline" not in own and "`transformers` has no model" in own
    run = made(tmp_path / "c")
    (run.folder / "config.json").unlink()
    neither = card(run)
    assert "transformers" not in neither and 'headway.load(".")' in neither


def test_other_tasks_have_other_pipelines(tmp_path: Path) -> None:
    text = card(made(tmp_path / "r", recipe=RECIPE.replace('"lm"', '"classify"'), model_type="bert"))
    assert header(text)["pipeline_tag"] == "text-classification"
    assert "Once upon" not in text and "A text classifier of" in text


# --- strangers ----------------------------------------------------------------------------------

HOSTILE = (
    "<script>alert(1)</script>`` ``` | [x](javascript:1) ![i](http://x/y) **b** _i_ &amp; #1\n---\n```\n# Evil\n<!-- "
)


def test_nothing_a_log_says_becomes_markdown(tmp_path: Path) -> None:
    quoted = json.dumps(HOSTILE)
    recipe = f"task = {quoted}\nseed = {quoted}\n{quoted} = 1\n[data]\ntrain = {quoted}\n[model]\nfrom = {quoted}\n"
    places = dict.fromkeys(("device", "version", "torch", "python", "world"), HOSTILE)
    facts = dict.fromkeys(("train", "valid", "fingerprint"), HOSTILE)
    log = [event("start", step=0, **places), event("data", **facts), *finished()[1:]]
    run = replace(made(tmp_path / "r", log, model_type=HOSTILE, recipe=recipe), name=HOSTILE)
    text = card(run)
    assert header(text) == {"library_name": "headway", "tags": ["headway"]}
    rest = outside_code(text.split("\n---\n", 1)[1].replace(GENERATED_MARK, ""))
    assert "<" not in rest and "](" not in rest.replace("\\]", "") and "**b" not in rest.replace("\\*", "")
    titles = [line for line in rest.split("\n") if line.startswith("#")]
    assert [t for t in titles if "Evil" in t] == [titles[0]], "in the title, which is the name"
    assert len(titles) == 6 and titles[1:] == ["## Numbers", "## Use", "## Training", "## Data", "## Limits"]
    for row in (line for line in text.split("\n") if line.startswith("| ")):
        assert len(re.findall(r"(?<!\\)\|", row)) == 3, row


def test_what_is_wrong_with_a_broken_run_is_no_markdown_either(tmp_path: Path) -> None:
    run = replace(made(tmp_path / "r"), status="broken", problem=HOSTILE)
    rest = outside_code(card(run).split("\n---\n", 1)[1].replace(GENERATED_MARK, ""))
    assert "<" not in rest and len([line for line in rest.split("\n") if line.startswith("#")]) == 5
    assert "## Use" not in rest, "its weights are not to be trusted"


@given(st.text(max_size=30))
def test_code_spans_hold_any_text(text: str) -> None:
    span = code_span(text)
    ticks = re.match("`+", span)
    assert ticks is not None and "\n" not in span
    inside = span[len(ticks[0]) : -len(ticks[0])]
    assert ticks[0] not in re.findall("`+", inside)
    assert not inside.startswith("`") and not inside.endswith("`")


@given(st.text(max_size=30))
def test_prose_is_one_line_without_marks(text: str) -> None:
    safe = escape_markdown(text)
    assert not re.search(r"[<>\n\r\x0b\x0c\x1c-\x1f\x85\u2028]", safe)
    assert not re.search(r"(?<!\\)(\\\\)*[`*_\[\]~#|]", re.sub(r"\\[\\`*_\[\]~#|]", "", safe))


@pytest.mark.parametrize("word", ["no", "null", "true", "1e5", "a b", "- x", "a: b", "", "ünicode"])
def test_words_that_yaml_would_take_for_something_else_are_no_tags(tmp_path: Path, word: str) -> None:
    assert header(card(made(tmp_path / "r", model_type=word)))["tags"] == ["headway", "lm"]


# --- writing ------------------------------------------------------------------------------------


def test_it_is_written_again_until_someone_owns_it(tmp_path: Path) -> None:
    folder = made(tmp_path / "tiny-0001").folder
    path = write_card(folder)
    assert path == folder / "README.md"
    assert sorted(p.name for p in folder.iterdir()) == ["README.md", "config.json", "model.safetensors", "run"]
    path.write_text(path.read_text().replace("# tiny-0001", "# changed"))
    assert "# tiny-0001" in write_card(folder).read_text()
    mine = path.read_text().replace(GENERATED_MARK + "\n\n", "").replace("# tiny-0001", "# My model")
    path.write_text(mine)
    assert write_card(folder) == path and path.read_text() == mine


def test_a_card_of_bytes_that_are_no_text_is_left_alone(tmp_path: Path) -> None:
    folder = made(tmp_path / "r").folder
    (folder / "README.md").write_bytes(b"\xff\xfe")
    assert write_card(folder).read_bytes() == b"\xff\xfe"


@pytest.mark.slow
def test_what_the_card_tells_to_type_works(tmp_path: Path) -> None:
    from headway.config import presets
    from headway.data.tokenizers.train import train_tokenizer
    from headway.hub.folder import write_model_files
    from headway.model.model import Transformer

    folder = made(tmp_path / "tiny-0001").folder
    (folder / "model.safetensors").unlink()
    tokenizer = train_tokenizer("bytes", ["Once upon a time"], 0)
    write_model_files(Transformer(presets.gpt2(1, 16, 2, vocab=tokenizer.vocab_size, length=64)), folder, tokenizer)
    text = write_card(folder).read_text()
    programs = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(programs) == 2
    for program in programs:
        done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True,
                              env=os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"})  # fmt: skip
        assert done.returncode == 0 and done.stdout.strip(), done.stderr
    command = re.search(r"```\nheadway (.*?)\n```", text)
    assert command is not None and command[1] == 'run . "Once upon a time"'
