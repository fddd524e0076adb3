"""What comes of a comparison's runs, and how it is shown."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headway.report.comparison import (
    length_rows,
    metric_names,
    plot,
    problem_lines,
    render,
    rows,
    table_of_runs,
    verdict_lines,
    verdicts,
)
from headway.runs.compare import Trial, final_metrics
from headway.runs.compare import compare as compare_trials
from headway.runs.grid import Grid, grid
from headway.runs.history import History, read_run


def compare(name: str, plan: Grid, runs: Sequence[Sequence[History]]) -> dict[str, Any]:
    """A comparison of runs that are all there."""
    return compare_trials(name, plan, [[Trial(seed=run.recipe["seed"], run=run) for run in row] for row in runs])


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
    assert [(p["step"], p["tokens"], p["seconds"], p["mean"], p["low"], p["high"]) for p in gru["curves"]["valid"]] == [
        (1, 100, 2, 3.0, 3.0, 3.0),
        (2, 200, 4, 1.5, 1.0, 2.0),
    ]
    assert [(s["from"], s["to"], s["figure"], s["mean"]) for s in gru["slices"]] == [
        (0.0, 4.0, "bleu", 31.5),
        (5.0, 9.0, "bleu", 10.0),
    ]
    json.dumps(found, allow_nan=False)


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
    assert rows(found)[1][0][-1] == "1 of 2 (1 diverged)"


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
    # The t interval of 1 and 2 is 1.5 ± 6.353; on the logarithmic scale it stays above zero.
    low, high = 1.5 / math.exp(6.353 / 1.5), 1.5 * math.exp(6.353 / 1.5)
    assert lines[0][head.index("valid")] == f"1.500 [{low:.3f}, {high:.3f}]"
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
    loss = places(html, "loss-step")
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
    (drawn,) = re.findall(r'class="charts intervals".*?</section>', html, re.S)
    first, second = re.findall(r"<svg.*?</svg>", drawn, re.S)
    runs = [float(x) for x in re.findall(r'class="rule" d="M([\d.]+) ', first)]
    (low, high), (mean, _) = (
        [float(x) for x in re.findall(pattern, first)[0]]
        for pattern in (r'line [^"]*" d="M([\d.]+) 10H([\d.]+)', r'dot [^"]*" d="M(([\d.]+)) 10h0')
    )
    assert runs == sorted(runs) and mean == pytest.approx(runs[1]) and low < runs[0] < runs[2] < high
    assert high - mean > mean - low  # a loss is above zero
    assert float(re.findall(r'dot [^"]*" d="M([\d.]+)', second)[0]) > high
    assert 'class="intervals"' not in render(compare("x", plan, [[], []])).partition("<body>")[2]


def test_a_deviation_is_no_finer_than_its_mean(tmp_path: Path) -> None:
    def shown(*valids: float) -> str:
        place = tmp_path / str(valids)
        runs = [a_run(place / str(s), s, [valid]) for s, valid in enumerate(valids)]
        html = render(compare("x", grid(["seeds=2"]), [runs]))
        return re.findall(r"<td>([^<]* ± [^<]*)<small>", html)[0]

    assert shown(4.1825, 4.1835) == "4.183 ± 0.001"
    assert shown(0.0011, 0.0013) == "0.0012 ± 0.000141"


def test_more_variants_than_colours(tmp_path: Path) -> None:
    run = a_run(tmp_path / "a", 1, [1.0, 2.0])
    words = ",".join(str(n) for n in range(7))
    html = render(compare("x", grid([f"model.depth={words}"]), [[run]] * 7))
    assert html.count('class="line train second"') == html.count('class="line train"') == 2 * 3  # over three costs


def test_differences_are_paired_by_seed(tmp_path: Path) -> None:
    """Runs that differ from seed to seed, but always by the same between variants: paired, the difference is sure."""
    plan = grid(["model.kind=gru,lstm,conv", "seeds=3", "against=lstm"])
    shift = {"gru": lambda s: 0.01 * s, "lstm": lambda s: 0.0, "conv": lambda s: (-1) ** s}
    seeds = [[a_run(tmp_path / f"{kind}{s}", s, [9.0, 5 + s + by(s)]) for s in (1, 2, 3)] for kind, by in shift.items()]
    found = compare("x", plan, seeds)
    told = verdicts(found)
    assert list(told) == ["gru", "conv"] and found["against"] == "lstm"
    gru = found["variants"][0]["versus"]["valid"]
    assert gru["difference"] == pytest.approx(0.02) and gru["half"] == pytest.approx(4.303 * 0.01 / math.sqrt(3))
    assert gru["p_holm"] == pytest.approx(min(1, 2 * gru["p"])) and gru["p"] > 0.05
    assert told["gru"] == "no difference at this budget: 0.020 ± 0.025"
    assert told["conv"].startswith("no difference at this budget: -0.3 ± 2.9")
    head, *lines = verdict_lines(found)
    assert head == "valid, against lstm:" or head == "validation loss, against lstm:"
    assert lines[0] == f"  gru: {told['gru']}" and told["gru"] in render(found)


def test_only_common_seeds_are_paired(tmp_path: Path) -> None:
    plan = grid(["model.kind=gru,lstm", "seeds=3"])
    runs = {kind: [a_run(tmp_path / f"{kind}{s}", s, [float(s), v + s]) for s in (1, 2, 3)] for kind, v in
            (("gru", 1.0), ("lstm", 2.0))}  # fmt: skip
    trials = [[Trial(seed=run.recipe["seed"], run=run) for run in row] for row in runs.values()]
    trials[1][0] = Trial(seed=1, status="failed", error="out of memory", command="headway train x seed=1")
    found = compare_trials("x", plan, trials)
    versus = found["variants"][1]["versus"]["valid"]
    assert versus["seeds"] == 2 and versus["difference"] == pytest.approx(1.0) and versus["verdict"].startswith("worse")
    assert rows(found)[1][1][-1] == "2 of 3 (1 failed)"
    assert problem_lines(found) == ["lstm, seed 1: out of memory\n  again: headway train x seed=1"]
    assert "headway train x seed=1" in render(found)
    table = table_of_runs(found)
    assert table[0][:4] == ["variant", "model.kind", "seed", "status"] and len(table) == 7
    assert table[4][:5] == ["lstm", "lstm", 1, "failed", None] and table[4][-1] == "out of memory"
    assert table[1][table[0].index("valid")] == 2.0


def test_one_seed_has_no_verdict(tmp_path: Path) -> None:
    runs = [[a_run(tmp_path / kind, 1, [3.0, valid])] for kind, valid in (("gru", 2.0), ("lstm", 1.5))]
    found = compare("x", grid(["model.kind=gru,lstm"]), runs)
    assert verdicts(found) == {"lstm": "one seed: no interval (-0.5)"}


def test_a_running_comparison_says_what_is_to_come(tmp_path: Path) -> None:
    plan = grid(["model.kind=gru,lstm", "seeds=2"])
    first = Trial(seed=1, run=a_run(tmp_path / "a", 1, [1.0, 2.0]))
    found = compare_trials("x", plan, [[first, Trial(seed=2)], [Trial(seed=1), Trial(seed=2)]])
    assert found["waiting"] == 3 and rows(found)[1][1][-1] == "0 of 2 (2 waiting)"
    assert "3 runs are still to come" in render(found)


def test_a_table_fits_the_terminal(tmp_path: Path) -> None:
    found = compared(tmp_path)
    found["variants"][0]["name"] = "a very long name of a variant, as a path to a folder would be"

    def width(most: int) -> int:
        head, lines = rows(found, most)
        assert head[-1] == "runs" and head[0] == "model.kind"
        return max(sum(max(len(line[i]) for line in (head, *lines)) + 2 for i in range(len(head))) - 2, 0)

    assert width(0) > 120 and width(120) <= 120 and width(100) <= 100
    assert len(rows(found, 100)[0]) < len(rows(found)[0])


def test_bands_reach_from_the_lowest_to_the_highest_run(tmp_path: Path) -> None:
    found = compared(tmp_path)
    points = [[(1.0, 3.0, 2.0, 4.0), (2.0, 2.0, 1.0, 3.0)], []]
    drawn = plot(found, "reach", "gradient reach", "tokens back", points)
    assert drawn is not None and drawn["across"] == "tokens back"
    (curve,) = drawn["panel"]["plots"][0]["curves"]
    xs = re.findall(r"[ML]([\d.]+) ([\d.]+)", curve["band"])
    assert len(xs) == 4 and curve["band"].endswith("Z") and curve["band"].count("M") == 1
    line = re.findall(r"[ML][\d.]+ ([\d.]+)", curve["path"])
    assert float(xs[0][1]) < float(line[0]) < float(xs[3][1])  # up is small
    assert 'class="band train"' in render(found)
    assert plot(found, "reach", "up", "across", [[(1.0, 1.0, 1.0, 1.0)], []]) is None


def test_curves_over_what_a_run_cost(tmp_path: Path) -> None:
    html = render(compared(tmp_path))
    steps, tokens = places(html, "loss-step")[0], places(html, "loss-tokens")[0]
    assert steps == tokens and 'data-key="loss-flops"' not in html  # the log of these runs has no FLOPs
    assert re.findall(r'class="over-(\w+)"', html) == ["step", "tokens", "seconds"]


def test_lengths_that_were_asked_for(tmp_path: Path) -> None:
    """Perplexity at each length, as the mean of the runs; a length that one cannot read is absent."""
    plan = grid(["model.positions=rope,learned", "seeds=2", "lengths=8,32"])
    runs = [[a_run(tmp_path / f"{kind}{s}", s, [1.0]) for s in (1, 2)] for kind in ("rope", "learned")]
    for i, row in enumerate(runs):
        for s, run in enumerate(row):
            known = {"8": 3.0 + s, "32": "the input has 32 positions" if i else 9.0}
            (run.folder / "run" / "lengths.json").write_text(json.dumps(known), encoding="utf-8")
    head, lines = length_rows(compare("x", plan, runs))
    assert head == ["perplexity by length", "8", "32"]
    assert lines == [["rope", "3.500", "9.000"], ["learned", "3.500", "–"]]


def test_settings_that_differ(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / name, 1, [1.0]) for name in ("a", "b")]
    text = "seed = 1\nout = '{0}'\n[model]\nwidth = {1}\nbias = true\n[train]\nsteps = 3\n"
    for run, width in zip(runs, (8, 16), strict=True):
        (run.folder / "run" / "recipe.toml").write_text(text.format(width, width), encoding="utf-8")
    found = compare("x", grid(["model.width=8,16"]), [[read_run(run.folder)] for run in runs])
    assert found["differences"] == {"model.width": [8, 16]}
    assert "Settings that differ" in render(found)
