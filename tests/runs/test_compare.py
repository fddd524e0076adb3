"""What is varied, what comes of it, and how it is shown."""

from __future__ import annotations

import json
import math
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import ConfigError, HeadwayError, UsageError
from headway.report.comparison import length_rows, metric_names, render, rows
from headway.runs.compare import (
    compare,
    confidence_interval,
    final_metrics,
    grid,
    split_values,
    t_quantile,
    variant_names,
)
from headway.runs.history import History, read_run


def test_a_grid() -> None:
    plan = grid(["model.norm=layernorm,dyt", "train.steps=50", "model.depth=1,2,3", "seeds=3"])
    assert plan.common == ("train.steps=50",)
    assert plan.keys == ("model.norm", "model.depth")
    assert plan.variants[:3] == tuple(("model.norm=layernorm", f"model.depth={n}") for n in (1, 2, 3))
    assert len(plan.variants) == 6
    assert plan.seeds_from(7) == (7, 8, 9)


def test_settings_that_change_together() -> None:
    plan = grid(["model.kind+model.attention=lstm+none,gru+dot", "model.depth=1,2"])
    assert plan.keys == ("model.kind", "model.attention", "model.depth")
    assert plan.variants[1] == ("model.kind=lstm", "model.attention=none", "model.depth=2")
    assert plan.variants[2] == ("model.kind=gru", "model.attention=dot", "model.depth=1")
    with pytest.raises(UsageError, match="2 settings, gru has 1"):
        grid(["model.kind+model.attention=lstm+none,gru"])


def test_what_is_not_varied() -> None:
    plan = grid(["data.train=a.en,a.de", "train.betas=[0.9, 0.99],[0.9, 0.95]", 'data.text="a,b"'])
    assert plan.common == ("data.train=a.en,a.de", 'data.text="a,b"')
    assert plan.variants == (("train.betas=[0.9, 0.99]",), ("train.betas=[0.9, 0.95]",))
    assert grid(["seeds=4,2"]).seeds_from(9) == (4, 2)
    assert grid(["seeds=2"]).variants == ((),)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["model.depth=2"],
        ["seeds=1"],
        ["seeds=0", "a=1,2"],
        ["seeds=x", "a=1,2"],
        ["seeds=1,1", "a=1,2"],
        ["seeds=-2", "a=1,2"],
        ["a=1,2", "a=3,4"],
    ],
)
def test_no_comparison(words: list[str]) -> None:
    with pytest.raises(HeadwayError) as caught:
        grid(words)
    assert isinstance(caught.value, UsageError | ConfigError)


@settings(max_examples=40)
@given(st.lists(st.from_regex(r"[a-z0-9.\"'\[\]]*", fullmatch=True), min_size=1))
def test_nothing_of_a_value_is_lost(parts: list[str]) -> None:
    raw = ",".join(parts)
    assert ",".join(split_values(raw)) == raw
    if not any(set(part) & set("[]\"'") for part in parts):
        assert split_values(raw) == parts


@settings(max_examples=40)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40))
def test_spread(values: list[float]) -> None:
    found = confidence_interval(values)
    mean, sd, low, high = (found[key] for key in ("mean", "sd", "low", "high"))
    assert mean is not None and sd is not None and low is not None and high is not None
    assert sd == pytest.approx(statistics.stdev(values), abs=1e-6)
    assert mean - low == pytest.approx(high - mean, abs=1e-6)
    assert high - mean == pytest.approx(t_quantile(len(values) - 1) * sd / math.sqrt(len(values)), abs=1e-6)


def test_one_value_has_no_spread() -> None:
    assert confidence_interval([2.0]) == {"mean": 2.0, "sd": None, "low": None, "high": None}


def test_student_is_the_table() -> None:
    """From printed tables, on both sides of where the expansion takes over."""
    known = {1: 12.706, 2: 4.303, 5: 2.571, 10: 2.228, 11: 2.201, 15: 2.131, 30: 2.042, 120: 1.980}
    for freedom, value in known.items():
        assert t_quantile(freedom) == pytest.approx(value, abs=6e-4)


def a_run(
    folder: Path, seed: int, valids: list[float], *, test: dict[str, Any] | None = None, best: int = 0
) -> History:
    (folder / "run").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"")
    (folder / "run" / "recipe.toml").write_text(f"seed = {seed}\n", encoding="utf-8")
    events: list[dict[str, Any]] = [{"event": "start", "time": 1.0, "step": 0, "parameters": 1000}]
    for n, valid in enumerate(valids, start=1):
        events.append({"event": "step", "time": 2.0, "step": n, "tokens": 100 * n, "seconds": 2.0 * n, "loss": 1.0})
        events.append({"event": "eval", "time": 2.0, "step": n, "valid": valid, "perplexity": math.exp(valid)})
    events += [{"event": "best", "time": 3.0, "step": best}] if best else []
    events += [{"event": "test", "time": 3.0, "step": len(valids), **test}] if test else []
    events.append({"event": "end", "time": 3.0, "step": len(valids), "signal": 0})
    (folder / "run" / "log.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events), encoding="utf-8")
    return read_run(folder)


def test_which_figures_are_final(tmp_path: Path) -> None:
    assert final_metrics(a_run(tmp_path / "a", 1, [3.0, 1.0, 2.0]))["valid"] == 2.0
    assert final_metrics(a_run(tmp_path / "b", 1, [3.0, 1.0, 2.0], best=1))["valid"] == 3.0
    assert final_metrics(a_run(tmp_path / "c", 1, [3.0], test={"test": 5.0, "bleu": 30.0})) == {
        "test": 5.0,
        "bleu": 30.0,
    }


def sliced(run: History, *values: float) -> History:
    slices = [{"from": 5 * i, "to": 5 * i + 4, "examples": 3, "bleu": v, "chrf": 1.0} for i, v in enumerate(values)]
    text = json.dumps({"data": "test", "details": {"slices": slices}})
    (run.folder / "run" / "evaluation.json").write_text(text, encoding="utf-8")
    return run


def compared(place: Path) -> dict[str, Any]:
    plan = grid(["model.kind=gru,lstm", "train.steps=2", "seeds=2"])
    first = [sliced(a_run(place / f"g{s}", s, [3.0, s]), 30.0 + s, 10.0) for s in (1, 2)]
    second = [
        sliced(a_run(place / f"l{s}", s, [2.0, 4.0 + s], test={"test": 7.0, "bleu": 40.0}), 35, 35) for s in (1, 2)
    ]
    return compare("rnn", plan, [first, second])


def test_runs_side_by_side(tmp_path: Path) -> None:
    found = compared(tmp_path)
    assert found["keys"] == ["model.kind"] and found["seeds"] == [1, 2] and found["common"] == ["train.steps=2"]
    gru, lstm = found["variants"]
    assert gru["name"] == "gru" and gru["settings"] == ["model.kind=gru"]
    assert gru["figures"]["valid"]["values"] == [1.0, 2.0] and gru["figures"]["valid"]["mean"] == 1.5
    assert lstm["figures"]["bleu"]["mean"] == 40.0 and "valid" not in lstm["figures"]
    assert gru["parameters"] == 1000 and gru["seconds"] == 4.0 and gru["tokens_per_second"] == 50.0
    assert gru["curve"] == [[1, 3.0], [2, 1.5]]
    assert [(s["from"], s["to"], s["figure"], s["mean"]) for s in gru["slices"]] == [
        (0.0, 4.0, "bleu", 31.5),
        (5.0, 9.0, "bleu", 10.0),
    ]
    json.dumps(found, allow_nan=False)


def test_variants_are_called_by_what_sets_them_apart() -> None:
    def names(*words: str) -> list[str]:
        return variant_names(grid(words))

    assert names("model.kind+model.attention=gru+none,conv+none") == ["gru none", "conv none"]
    assert names("model.freeze+model.lora+train.layer_decay=0+0+1.0,4+0+1.0,0+8+1.0,0+0+.8") == [
        "freeze=0 lora=0 layer_decay=1.0",
        "freeze=4",
        "lora=8",
        "layer_decay=.8",
    ]
    assert names("model.norm+train.lr=dyt+1e-3,dyt+2e-3") == ["dyt lr=1e-3", "dyt lr=2e-3"]
    assert names("train.lr=1,2", "model.norm=dyt,rmsnorm") == ["1 dyt", "1 rmsnorm", "2 dyt", "2 rmsnorm"]
    assert names("train.lr=1,2") == ["1", "2"] and names("seeds=2") == ["all"]


def test_figures_that_not_all_runs_have_are_left_out(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / "a", 1, [1.0]), a_run(tmp_path / "b", 2, [1.0], test={"test": 5.0, "perplexity": 2.0})]
    (only,) = compare("x", grid(["seeds=2"]), [runs])["variants"]
    assert list(only["figures"]) == ["perplexity"]


def test_a_run_that_failed_does_not_count(tmp_path: Path) -> None:
    good, bad = a_run(tmp_path / "good", 1, [3.0]), a_run(tmp_path / "bad", 2, [9.0])
    log = bad.folder / "run" / "log.jsonl"
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if '"end"' not in line]
    nan = json.dumps({"event": "nan", "time": 3.0, "step": 1, "action": "stop"})
    log.write_text("\n".join([*lines, nan]) + "\n", encoding="utf-8")
    found = compare("x", grid(["seeds=2"]), [[good, read_run(bad.folder)]])
    (only,) = found["variants"]
    assert only["name"] == "all" and only["figures"]["valid"]["values"] == [3.0]
    assert rows(found)[1][0][-1] == "1 of 2"


def test_slices_that_differ_are_not_put_together(tmp_path: Path) -> None:
    runs = [sliced(a_run(tmp_path / "a", 1, [1.0]), 1.0), sliced(a_run(tmp_path / "b", 2, [1.0]), 2.0, 3.0)]
    (only,) = compare("x", grid(["seeds=2"]), [runs])["variants"]
    assert [(s["from"], s["mean"]) for s in only["slices"]] == [(0.0, 1.5)]


def test_slices_of_strangers(tmp_path: Path) -> None:
    run = a_run(tmp_path / "a", 1, [1.0])
    for text in ("[]", '{"details": 3}', '{"details": {"slices": [1, {"from": "x"}, {"from": 1, "to": 2}]}}', "{"):
        (run.folder / "run" / "evaluation.json").write_text(text, encoding="utf-8")
        assert compare("x", grid(["seeds=2"]), [[run, run]])["variants"][0]["slices"] == []


def test_how_it_is_shown(tmp_path: Path) -> None:
    found = compared(tmp_path)
    assert metric_names(found)[0] == "bleu"
    head, lines = rows(found)
    assert head[:2] == ["model.kind", "bleu"] and head[-4:] == ["parameters", "time", "tokens/s", "runs"]
    assert lines[0][0] == "gru" and lines[0][1] == "–" and lines[0][-4:] == ["1k", "4.0 s", "50", "2"]
    assert lines[0][head.index("valid")].startswith("1.500 ± 0.707 [-4.853")
    head, lines = length_rows(found)
    assert head == ["BLEU by length", "0–4", "5–9"] and lines[0] == ["gru", "31.500", "10.000"]
    html = render(found)
    assert html.count("<svg") >= 2 and "<h2>BLEU by length</h2>" in html and "Validation loss" in html
    assert html.count('<path class="line') >= 8  # two variants in two panels, each with its key
    assert html.count('<path class="dot') == html.count('<path class="line')


def places(html: str, key: str) -> list[list[tuple[float, float]]]:
    """The points of each curve of a panel, from 0 to 1 across and from 0 to 1 up."""
    (panel,) = re.findall(rf'data-key="{key}".*?</figure>', html, re.S)
    curves = re.findall(r'<path class="line [^"]*" d="(M[^"]*)"', panel.partition('class="area"')[2])
    found = [re.findall(r"[ML]([\d.]+) ([\d.]+)", curve) for curve in curves]
    return [[(float(x) / 1000, 1 - float(y) / 100) for x, y in points] for points in found]


def test_by_length_on_the_page(tmp_path: Path) -> None:
    """Points in the middles of ranges, on an axis from the shortest text to the longest; their numbers below it."""
    html = render(compared(tmp_path))
    gru, lstm = places(html, "BLEU")
    across = [x * 9 * 1.02 for x, _ in gru]
    assert across == pytest.approx([2.0, 7.0], abs=0.02) and gru[0][1] > gru[1][1] + 0.5
    assert lstm[0][1] == pytest.approx(lstm[1][1]) and lstm[0][1] > gru[0][1]
    assert "tokens of the input" in html and ">0–4<" in html and ">31.500<" in html
    loss = places(html, "loss")
    assert [x * 2 * 1.02 for x, _ in loss[0]] == pytest.approx([1.0, 2.0], abs=0.01)
    none = {**compared(tmp_path / "b")}
    none["variants"] = [{**variant, "slices": []} for variant in none["variants"]]
    assert "by length" not in render(none)


def test_a_range_of_one_length_and_a_single_seed(tmp_path: Path) -> None:
    found = compared(tmp_path)
    assert "95 % confidence" in render(found) and "95 % confidence" not in render({**found, "seeds": [1]})
    for variant in found["variants"]:
        variant["slices"][0]["to"] = variant["slices"][0]["from"]
    assert length_rows(found)[0] == ["BLEU by length", "0", "5–9"]
    for variant in found["variants"]:
        variant["slices"] = [{**s, "figure": "rouge_l"} for s in variant["slices"]]
    assert length_rows(found)[0][0] == "ROUGE-L by length"


def test_names_are_escaped(tmp_path: Path) -> None:
    run = a_run(tmp_path / "a", 1, [1.0, 2.0])
    found = compare("<b>", grid(["data.text=<i>,<u>"]), [[run], [run]])
    html = render(found)
    assert "<i>" not in html and "<b>:" not in html and "&lt;i&gt;" in html


def test_the_page_links_each_report(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / f"my run #{s}", s, [1.0, 2.0]) for s in (3, 4)]
    html = render(compare("x", grid(["seeds=3,4"]), [runs]))
    links = re.findall(r'<a href="([^"]+)" title="([^"]+)">(\d+)</a>', html)
    assert links == [(f"my%20run%20%23{s}/run/report.html", f"my run #{s}, finished", str(s)) for s in (3, 4)]


def test_runs_means_and_intervals_on_one_axis(tmp_path: Path) -> None:
    """The runs of a variant lie around its mean; a variant without the metric has no line."""
    plan = grid(["model.kind=gru,lstm", "seeds=3"])
    seeds = [[a_run(tmp_path / f"{kind}{s}", s, [4.0, at + s]) for s in (1, 2, 3)] for kind, at in (("g", 0), ("l", 9))]
    html = render(compare("x", plan, seeds))
    (drawn,) = re.findall(r'class="intervals".*?</section>', html, re.S)
    first, second = re.findall(r"<svg.*?</svg>", drawn, re.S)
    runs = [float(x) for x in re.findall(r'class="rule" d="M([\d.]+) ', first)]
    (low, high), (mean, _) = (
        [float(x) for x in re.findall(pattern, first)[0]]
        for pattern in (r'line [^"]*" d="M([\d.]+) 10H([\d.]+)', r'dot [^"]*" d="M(([\d.]+)) 10h0')
    )
    assert runs == sorted(runs) and mean == pytest.approx(runs[1]) and low < runs[0] < runs[2] < high
    assert mean - low == pytest.approx(high - mean, abs=0.2)
    assert float(re.findall(r'dot [^"]*" d="M([\d.]+)', second)[0]) > high
    assert "intervals" not in render(compare("x", plan, [[], []])).partition("<body>")[2]


def test_a_deviation_is_no_finer_than_its_mean(tmp_path: Path) -> None:
    def shown(*valids: float) -> str:
        place = tmp_path / str(valids)
        runs = [a_run(place / str(s), s, [valid]) for s, valid in enumerate(valids)]
        return rows(compare("x", grid(["seeds=2"]), [runs]))[1][0][1].partition(" [")[0]

    assert shown(4.1825, 4.1835) == "4.183 ± 0.001"
    assert shown(0.0011, 0.0013) == "0.0012 ± 0.000141"


def test_more_variants_than_colours(tmp_path: Path) -> None:
    run = a_run(tmp_path / "a", 1, [1.0, 2.0])
    words = ",".join(str(n) for n in range(7))
    html = render(compare("x", grid([f"model.depth={words}"]), [[run]] * 7))
    assert html.count('class="line train second"') == html.count('class="line train"') == 2
