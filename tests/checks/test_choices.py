"""Multiple-choice questions: log-probabilities, columns, few-shot examples, intervals, bad rows."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.checks.choices import (
    ChoicesConfig,
    _Columns,
    _question,
    fill,
    joined,
    measure_choices,
    questions,
    wilson_interval,
)
from headway.config.model import SpecialTokens
from headway.config.presets import gpt2
from headway.data.files.rows import BadRows, Row
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError, DataError
from headway.generate.score import rank_choices
from headway.model.model import Transformer

ROWS = [
    {"question": f"what is {i} and {i}", "choices": [str(2 * i), "a fish", "é ü"], "answer": i % 3} for i in range(8)
]


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(0)
    made = Transformer(gpt2(1, 16, 2, vocab=256, length=256)).eval()
    for parameter in made.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return made


@pytest.fixture
def tokenizer() -> Tokenizer:
    return train_tokenizer("bytes", ["abc"])


def write(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@torch.no_grad()
def alone(model: Transformer, text: str, before: str) -> float:
    """The log-probability of what follows `before`, by one full pass without a cache."""
    ids = list(text.encode())
    logp = model.lm(model(torch.tensor([ids])).hidden)[0].double().log_softmax(-1)
    return sum(float(logp[i - 1, ids[i]]) for i in range(len(before.encode()), len(ids)))


@pytest.mark.parametrize("shots", [0, 2])
@pytest.mark.parametrize("normalise", ["bytes", "tokens", "none"])
def test_worth_is_that_of_separate_full_passes(
    model: Transformer, tokenizer: Tokenizer, tmp_path: Path, shots: int, normalise: Any
) -> None:
    config = ChoicesConfig(
        data=write(tmp_path / "q.jsonl", ROWS), template="Q: {question}?\\nA:", shots=shots, normalise=normalise
    )
    found = measure_choices(model, tokenizer, config, BadRows())
    first = "".join(f"Q: {r['question']}?\nA: {r['choices'][r['answer']]}\n\n" for r in ROWS[:shots])
    asked = ROWS[shots:]
    assert found.n == len(found.rows) == len(asked) and found.chance == pytest.approx(1 / 3)
    for row, answered in zip(asked, found.rows, strict=True):
        before = f"{first}Q: {row['question']}?\nA:"
        sizes = [1 if normalise == "none" else len(f" {choice}".encode()) for choice in row["choices"]]
        worth = [alone(model, f"{before} {c}", before) / n for c, n in zip(row["choices"], sizes, strict=True)]
        assert answered.worth == pytest.approx(worth, abs=1e-3)
        assert answered.taken == max(range(3), key=lambda i: worth[i]) and answered.answer == row["answer"]
        assert answered.right == (answered.taken == answered.answer)
    right = sum(row.right for row in found.rows)
    assert 0 < right < len(asked) and found.accuracy == wilson_interval(right, len(asked))


def test_a_prompt_is_read_once_and_the_examples_too(
    model: Transformer, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[tuple[int, ...]] = []
    whole = Transformer.extend

    def extend(self: Transformer, cache: Any, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        passes.append(tuple(ids.shape))
        return whole(self, cache, ids, attention_mask)

    monkeypatch.setattr(Transformer, "extend", extend)
    rows = [{"prompt": f"the number {i}", "choices": ["is", "was so"], "label": 0} for i in range(4)]
    config = ChoicesConfig(data=write(tmp_path / "q.jsonl", rows), shots=2)
    measure_choices(model, tokenizer, config, BadRows())
    shots = sum(len(f"the number {i} is\n\n") for i in range(2))
    # the context and the space that both choices begin with; then what is new of the second
    assert passes == [(1, shots + 13), (2, 6), (1, 2), (2, 6)]


def test_examples_come_from_their_file(model: Transformer, tokenizer: Tokenizer, tmp_path: Path) -> None:
    data, other = write(tmp_path / "q.jsonl", ROWS[2:]), write(tmp_path / "s.jsonl", ROWS[:2])
    apart = measure_choices(model, tokenizer, ChoicesConfig(data=data, shots=2, shots_from=other), BadRows())
    both = write(tmp_path / "both.jsonl", ROWS)
    inside = measure_choices(model, tokenizer, ChoicesConfig(data=both, shots=2), BadRows())
    assert [row.worth for row in apart.rows] == [row.worth for row in inside.rows] and apart.n == 6
    few = measure_choices(model, tokenizer, ChoicesConfig(data=both, shots=2, limit=3), BadRows())
    assert few.rows == inside.rows[:3]
    with pytest.raises(DataError, match=r"D002.*8 rows.*shots = 9"):
        measure_choices(model, tokenizer, ChoicesConfig(data=both, shots=9), BadRows())
    with pytest.raises(DataError, match="D002"):
        measure_choices(model, tokenizer, ChoicesConfig(data=both, shots=8), BadRows())
    with pytest.raises(ConfigError, match=r"C004.*shots_from"):
        ChoicesConfig(data=both, shots_from=other)
    with pytest.raises(ConfigError, match=r"C003.*limit = -1"):
        ChoicesConfig(data=both, limit=-1)


def asked(values: dict[str, Any], **given: Any) -> tuple[str, list[str], int]:
    row, config = Row(values, "f.jsonl", 1), ChoicesConfig(**given)
    found = _question(row, _Columns.of(row, config), config.template)
    return found.prompt, found.choices, found.answer


def test_columns_and_answers_of_many_kinds() -> None:
    two = {"question": "q", "choices": ["x", "y"]}
    for answer, index in ((1, 1), ("1", 1), ("B", 1), ("b", 1), ("y", 1), (" x ", 0), ("0", 0)):
        assert asked(two | {"answer": answer}) == ("q", ["x", "y"], index)
    # text comes before letter and index, a name before an index
    assert asked({"text": "q", "options": ["1", "0"], "label": "0"})[2] == 1
    assert asked({"text": "q", "options": ["1", "0"], "label": 0})[2] == 0
    assert asked({"text": "q", "options": ["B", "A"], "gold": "A"})[2] == 1
    assert asked({"sentence": "q", "option1": "x", "option2": "y", "answer": "2"})[1:] == (["x", "y"], 1)
    assert asked({"sentence": "q", "option1": "x", "option2": "y", "answer": 1})[2] == 0
    assert asked({"question": "q", "a": "x", "b": "y", "c": "z", "answer": "c"})[1:] == (["x", "y", "z"], 2)
    assert asked({"ctx": "q", "ending0": "x", "ending1": "y", "label": "1"})[1:] == (["x", "y"], 1)
    named = {"text": ["x", "y"], "label": ["1", "2"]}
    assert asked({"question": "q", "choices": named, "answerKey": "2"})[1:] == (["x", "y"], 1)
    assert asked({"question": "q", "choices": '["x", "y"]', "answer": "1"})[1:] == (["x", "y"], 1)
    odd = {"q": "?", "good": "x", "bad": "y", "which": "y"}
    assert asked(odd, prompt="q", choices="good,bad", answer="which") == ("?", ["x", "y"], 1)
    assert asked(odd, prompt="q", choices="bad,good", answer="which", template="{prompt} {which}\\n")[0] == "? y\n"


def test_columns_that_are_not_there_are_named() -> None:
    row = {"question": "q", "choices": ["x", "y"], "answer": 0}
    for given, what in (
        ({"prompt": "qestion"}, "no column 'qestion' — did you mean \"question\""),
        ({"choices": "choices,more"}, "no column 'more'"),
        ({"answer": "anwser"}, "did you mean"),
        ({"template": "{questoin}"}, "did you mean"),
    ):
        with pytest.raises(DataError, match=what) as error:
            asked(row, **given)
        assert error.value.code == "D004" and all(name in error.value.hint for name in row)
    for missing, role in zip(row, ("prompt", "choices", "answer"), strict=True):
        with pytest.raises(DataError, match=f"{role}=NAME"):
            asked({name: value for name, value in row.items() if name != missing} | {"a": "only one"})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"answer": 2}, "the answer 2"),
        ({"answer": -1}, "the answer -1"),
        ({"answer": True}, "the answer True"),
        ({"answer": None}, "the answer None"),
        ({"answer": "C"}, "the answer 'C'"),
        ({"choices": ["x"]}, "1 choices"),
        ({"choices": ["x", ""]}, "expected a list of texts"),
        ({"choices": ["x", 3]}, "expected a list of texts"),
        ({"choices": "[x"}, "not a list in JSON"),
        ({"choices": 7}, "expected a list of texts, found 7"),
        ({"question": " "}, "question: expected text"),
        ({"question": "long " * 60}, "tokens, the model reads at most 256"),
        (None, "not valid JSON"),
    ],
)
def test_bad_rows_are_named_by_file_and_line(
    model: Transformer, tokenizer: Tokenizer, tmp_path: Path, change: dict[str, Any] | None, reason: str
) -> None:
    good = {"question": "q", "choices": ["x", "y"], "answer": 0}
    data = write(tmp_path / "q.jsonl", [good, good | (change or {}), good])
    if change is None:
        Path(data).write_text(json.dumps(good) + "\n{nope\n" + json.dumps(good) + "\n")
    with pytest.raises(DataError) as error:
        measure_choices(model, tokenizer, ChoicesConfig(data=data), BadRows(setting="bad_rows"))
    assert error.value.code == "D007" and reason in error.value.message and "q.jsonl line 2" in error.value.message
    assert error.value.hint.startswith("bad_rows=skip leaves such rows out")
    bad = BadRows("skip")
    found = measure_choices(model, tokenizer, ChoicesConfig(data=data, bad_rows="skip"), bad)
    assert (found.n, bad.count) == (2, 1) and "q.jsonl:2" in bad.first[0]


def test_other_formats(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("question,A,B,answer\nq,x,y,B\n")
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    table = pyarrow.Table.from_pylist([{"question": "q", "choices": ["x", "y"], "answer": 1}])
    parquet.write_table(table, tmp_path / "q.parquet")
    for name in ("q.csv", "q.parquet"):
        (found,) = questions(str(tmp_path / name), ChoicesConfig(), BadRows())
        assert (found.prompt, found.choices, found.answer) == ("q", ["x", "y"], 1)


def test_wilson_is_the_published_interval() -> None:
    """Newcombe 1998, table I, method 3."""
    for right, n, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        p, a, b = wilson_interval(right, n)
        assert p == right / n and (a, b) == pytest.approx((low, high), abs=5e-5)
    assert wilson_interval(5, 5)[2] == 1.0 and math.isclose(wilson_interval(5, 5)[1], 1 - wilson_interval(0, 5)[2])


def test_a_space_goes_between_where_there_is_none() -> None:
    assert (
        joined("a", "b") == "a b"
        and joined("a ", "b") == "a b"
        and joined("a", "\nb") == "a\nb"
        and joined("", "b") == "b"
    )


def test_a_template_is_no_program() -> None:
    assert fill("{a.b} {a[0]} {a!r} {a}{{b}}", {"a": 1, "b": 2}) == "{a.b} {a[0]} {a!r} 1{2}"


def test_texts_begin_as_the_tokenizer_begins_them(model: Transformer, tokenizer: Tokenizer) -> None:
    from tokenizers.processors import TemplateProcessing

    plain = rank_choices(model, tokenizer, "ab", ["c"])[0].log_probability
    assert plain == pytest.approx(alone(model, "abc", "ab"), abs=1e-3)
    tokenizer.backend.post_processor = TemplateProcessing(single="x $A", pair="x $A $B", special_tokens=[("x", 120)])
    object.__setattr__(model.config, "special", SpecialTokens(bos=120))
    begun = rank_choices(model, tokenizer, "ab", ["c"])[0].log_probability
    assert begun == pytest.approx(alone(model, "xabc", "xab"), abs=1e-3) and begun != pytest.approx(plain, abs=1e-2)
    object.__setattr__(model.config, "special", SpecialTokens(bos=121))  # the tokenizer decides
    assert rank_choices(model, tokenizer, "ab", ["c"])[0].log_probability == pytest.approx(begun, abs=1e-6)
