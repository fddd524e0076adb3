"""A page that stands alone: style, script and frame of the report. It asks the network for nothing, and may not."""

from __future__ import annotations

import base64
import hashlib
from html import escape

STYLE = """
:root { color-scheme: light dark; --back: #fcfcfa; --card: #ffffff; --text: #1d1f23; --soft: #5a5f68; --edge: #dcdcd6;
  --grid: #e9e9e4; --train: #1c5cb8; --valid: #b4480a; --lr: #6a459c; --norm: #23704a; --rate: #76560f;
  --bad: #b3261e;
  --good: #23704a; }
@media (prefers-color-scheme: dark) { :root { --back: #15171b; --card: #1b1e23; --text: #e5e6e9; --soft: #a0a5ae;
  --edge: #353a42; --grid: #2a2e35; --train: #78a9ec; --valid: #f0965a; --lr: #bb9ee6; --norm: #74c49a;
  --rate: #d6b25e;
  --bad: #f28b82; --good: #74c49a; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--back); color: var(--text); line-height: 1.5; font-size: 1rem;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0; font-weight: 650; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 0 0 .8rem; font-weight: 650; }
h3 { font-size: .95rem; margin: 1.6rem 0 .5rem; font-weight: 600; }
section { margin-top: 2.75rem; }
.meta { color: var(--soft); margin: .4rem 0 0; font-size: .92rem; overflow-wrap: anywhere; }
.status { border: 1px solid currentColor; border-radius: 1rem; padding: .05rem .6rem; font-weight: 600;
  font-size: .82rem; margin-right: .6rem; white-space: nowrap; }
.status.finished { color: var(--good); } .status.running { color: var(--train); }
.status.stopped { color: var(--rate); } .status.diverged, .status.broken { color: var(--bad); }
.verdict { font-size: 1.12rem; margin: 1.4rem 0 0; max-width: 46rem; overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(10.5rem, 1fr)); gap: 1.1rem 1.5rem;
  margin: 1.75rem 0 0; }
.tiles div { border-top: 1px solid var(--edge); padding-top: .55rem; }
.tiles dt { color: var(--soft); font-size: .84rem; } .tiles dd { margin: 0; font-size: 1.3rem; font-weight: 600; }
.tiles small { display: block; font-size: .8rem; font-weight: 400; color: var(--soft); }
.tiles dd, table, .axis, .y, output { font-variant-numeric: tabular-nums; }
.controls { display: flex; flex-wrap: wrap; gap: .4rem 1rem; align-items: center; border: 0; margin: 0 0 1rem;
  padding: 0;
  font-size: .9rem; color: var(--soft); min-height: 1.9rem; }
.controls label { display: inline-flex; gap: .35rem; align-items: center; }
.controls button { font: inherit; color: var(--text); background: var(--card); border: 1px solid var(--edge);
  border-radius: .35rem; padding: .1rem .6rem; }
.charts { --gutter: 4.4rem; border-radius: .3rem; }
.panel { margin: 0 0 1.2rem; }
.panel figcaption { display: flex; flex-wrap: wrap; gap: 0 1.1rem; align-items: baseline; font-size: .9rem;
  margin-bottom: .35rem; }
.legend { display: flex; flex-wrap: wrap; gap: 0 1rem; color: var(--soft); font-size: .84rem; }
.key { display: inline-flex; align-items: center; gap: .35rem; }
.swatch { width: 24px; height: 8px; overflow: visible; } .swatch .line.raw { opacity: .65; }
.value { margin-left: auto; font-size: .84rem; min-height: 1.3em; }
.plot { position: relative; height: 5.6rem; margin-left: var(--gutter); } .tall .plot { height: 16rem; }
.plot.log { display: none; }
.curves:has(#scale-log:checked) .plot.linear:not(.only) { display: none; }
.curves:has(#scale-log:checked) .plot.log { display: block; }
.y { position: absolute; right: 100%; margin-right: .5rem; transform: translateY(50%); font-size: .78rem;
  line-height: 1;
  color: var(--soft); white-space: nowrap; }
.area { position: absolute; inset: 0; overflow: hidden; touch-action: pan-y; border-left: 1px solid var(--edge);
  border-bottom: 1px solid var(--edge); }
.area > svg { display: block; width: 100%; height: 100%; }
.grid, .line, .dot, .rule { fill: none; vector-effect: non-scaling-stroke; stroke-linejoin: round; }
.grid { stroke: var(--grid); } .line { stroke-width: 1.75; } .line.raw { stroke-width: 1; opacity: .38; }
.dot { stroke-width: 6; stroke-linecap: round; }
.raw, .train { stroke: var(--train); } .valid { stroke: var(--valid); } .lr { stroke: var(--lr); }
.norm { stroke: var(--norm); } .rate { stroke: var(--rate); } .line.valid { stroke-dasharray: 5 3; }
.line.second { stroke-dasharray: 10 3 2 3; }
.norm.raw, .rate.raw { opacity: .4; } .limit { stroke: var(--soft); stroke-dasharray: 2 4; }
.rule { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 2 3; } .rule.nan, .rule.spike { stroke: var(--bad); }
.rule.best { stroke: var(--good); }
.rail { position: relative; height: 1.35rem; margin-left: var(--gutter); font-size: .8rem; }
.rail .y { bottom: 50%; } .rail + .panel { margin-top: .8rem; }
.rail .area { border-bottom: 0; overflow: visible; }
.mark { position: absolute; top: 50%; transform: translate(-50%, -50%); color: var(--soft); line-height: 1; }
.mark.best { color: var(--good); } .mark.nan, .mark.spike { color: var(--bad); }
.axis { position: relative; height: 1.5rem; margin: -.9rem 0 1rem var(--gutter); font-size: .78rem;
  color: var(--soft); }
.axis span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
.axis-name { margin: -.6rem 0 1rem var(--gutter); text-align: center; font-size: .84rem; color: var(--soft); }
.tables { display: flex; flex-wrap: wrap; gap: 0 1.6rem; }
.cursor { position: absolute; top: 0; bottom: 0; width: 1px; background: var(--text); opacity: .55;
  pointer-events: none; }
.brush { position: absolute; top: 0; bottom: 0; background: var(--train); opacity: .15; pointer-events: none; }
.samples { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem; }
.samples figure { margin: 0; border: 1px solid var(--edge); border-radius: .5rem; background: var(--card); }
.samples figcaption { padding: .5rem .9rem; border-bottom: 1px solid var(--edge); font-size: .84rem;
  color: var(--soft); }
pre, code, .samples pre { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre { margin: 0; padding: .8rem .9rem; font-size: .82rem; white-space: pre-wrap; overflow-wrap: anywhere; }
code { font-size: .88em; overflow-wrap: anywhere; }
.box { border: 1px solid var(--edge); border-radius: .5rem; background: var(--card); }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 0 2.5rem; }
dl.facts { display: grid; align-content: start; grid-template-columns: minmax(8.5rem, auto) 1fr; gap: .3rem 1rem;
  margin: 0;
  font-size: .94rem; }
dl.facts dt { color: var(--soft); } dl.facts dd { margin: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .3rem .9rem .3rem 0; text-align: right; border-bottom: 1px solid var(--edge); white-space: nowrap; }
thead th { color: var(--soft); font-weight: 500; } tbody th { font-weight: 400; }
.names th:first-child { text-align: left; }
tr.best td, tr.best th { font-weight: 650; } td.note { text-align: left; }
ol.advice { margin: 0; padding-left: 1.3rem; max-width: 46rem; overflow-wrap: anywhere; }
ol.advice li { margin-bottom: .7rem; }
ol.advice p { margin: 0; color: var(--soft); }
details { margin-top: .6rem; font-size: .9rem; } summary { cursor: pointer; color: var(--soft); }
details[open] > summary { margin-bottom: .5rem; }
:focus-visible { outline: 2px solid var(--train); outline-offset: 3px; }
footer { margin-top: 3rem; border-top: 1px solid var(--edge); padding-top: .8rem; font-size: .84rem;
  color: var(--soft); }
@media (max-width: 34rem) { main { padding: 1.5rem 1rem 3rem; } .charts { --gutter: 3.3rem; }
  .tall .plot { height: 12rem; }
  h1 { font-size: 1.4rem; } .verdict { font-size: 1.02rem; } .value { margin-left: 0; width: 100%; }
  .tiles { grid-template-columns: 1fr 1fr; gap: .9rem 1.2rem; } dl.facts { grid-template-columns: 7rem 1fr; }
  .rail .y { font-size: .68rem; } }
@media print { :root { color-scheme: light; --back: #fff; --card: #fff; --text: #000; --soft: #444; --edge: #bbb;
  --grid: #ddd; --train: #1c5cb8; --valid: #b4480a; --lr: #6a459c; --norm: #23704a; --rate: #76560f; --bad: #b3261e;
  --good: #23704a; }
  html { font-size: 10pt; } main { max-width: none; padding: 0; } .controls, .value,
  details:not([open]) { display: none; }
  .panel, .samples figure, tr, li, .tiles, .rail { break-inside: avoid; } h2 { break-after: avoid; }
  section { margin-top: 1.5rem; } * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""

SCRIPT = """
(() => {
  const source = document.getElementById("series"), charts = document.querySelector(".charts");
  if (!source || !charts) return;
  const data = JSON.parse(source.textContent), areas = [...charts.querySelectorAll(".area")];
  const axis = charts.querySelector(".axis"), reset = document.getElementById("reset");
  let low = data.low, high = data.high, step = null, from = null;
  const part = at => (at - low) / (high - low);
  const say = v => v.toLocaleString("en-GB", { maximumSignificantDigits: 4 });
  const brief = v => v >= 1e6 ? say(v / 1e6) + "M" : v >= 1e4 ? say(v / 1e3) + "k" : say(v);
  const add = (area, name) => area.querySelector("." + name) ||
    area.appendChild(Object.assign(document.createElement("div"), { className: name }));

  function near(xs, at) {  // the last point at or before a step
    let a = 0, b = xs.length - 1;
    while (a < b) { const m = (a + b + 1) >> 1; if (xs[m] <= at) a = m; else b = m - 1; }
    return a;
  }
  function point(at) {
    step = Math.min(high, Math.max(low, Math.round(at)));
    for (const area of areas) add(area, "cursor").style.left = 100 * part(step) + "%";
    for (const panel of charts.querySelectorAll(".panel")) {
      const words = [];
      for (const s of data.series) if (s.panel === panel.dataset.key && s.x.length && s.x[0] <= step) {
        const y = s.y[near(s.x, step)];
        if (y !== null) words.push(s.name + " " + say(y));
      }
      panel.querySelector(".value").textContent = "step " + say(step) + (words.length ? ": " + words.join(", ") : "");
    }
  }
  function leave() {
    step = null;
    for (const cursor of charts.querySelectorAll(".cursor")) cursor.remove();
    for (const value of charts.querySelectorAll(".value")) value.textContent = "";
  }
  function zoom(a, b) {
    low = a; high = b;
    const left = 1000 * (a - data.low) / (data.high - data.low), width = 1000 * (b - a) / (data.high - data.low);
    for (const area of areas) {
      const svg = area.querySelector("svg");
      if (svg) svg.setAttribute("viewBox", left + " 0 " + width + " 100");
    }
    for (const mark of charts.querySelectorAll(".mark")) {
      mark.style.left = 100 * part(+mark.dataset.at) + "%";
      mark.hidden = part(+mark.dataset.at) < 0 || part(+mark.dataset.at) > 1;
    }
    const raw = (b - a) / 5, ten = 10 ** Math.floor(Math.log10(raw));
    const size = Math.max(1, ten * [1, 2, 5, 10].find(f => ten * f >= raw));
    axis.replaceChildren();
    for (let t = Math.ceil(a / size) * size; t <= b; t += size) {
      const label = axis.appendChild(document.createElement("span"));
      label.textContent = brief(t);
      label.style.left = 100 * part(t) + "%";
    }
    reset.hidden = a === data.low && b === data.high;
    leave();
  }
  for (const area of areas) {
    const at = event => {
      const box = area.getBoundingClientRect();
      return low + (high - low) * Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    };
    area.addEventListener("pointerdown", event => { from = at(event); area.setPointerCapture(event.pointerId); });
    area.addEventListener("pointermove", event => {
      point(at(event));
      if (from === null) return;
      const a = part(Math.min(from, at(event))), b = part(Math.max(from, at(event)));
      Object.assign(add(area, "brush").style, { left: 100 * a + "%", width: 100 * (b - a) + "%" });
    });
    const stop = event => {
      const brush = area.querySelector(".brush"), start = from;
      from = null;
      if (!brush) return;
      brush.remove();
      const ends = [start, at(event)].map(Math.round).sort((a, b) => a - b);
      if (event.type === "pointerup" && ends[1] - ends[0] >= 2) zoom(...ends);
    };
    area.addEventListener("pointerup", stop);
    area.addEventListener("pointercancel", stop);
    area.addEventListener("pointerleave", () => { if (from === null) leave(); });
    area.addEventListener("dblclick", () => zoom(data.low, data.high));
  }
  charts.tabIndex = 0;
  charts.addEventListener("keydown", event => {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (way) point((step === null ? low : step) + way * Math.max(1, Math.round((high - low) / 100)));
    else if (event.key === "Escape") zoom(data.low, data.high);
    else return;
    event.preventDefault();
  });
  charts.addEventListener("blur", leave);
  reset.addEventListener("click", () => zoom(data.low, data.high));
  for (const hint of document.querySelectorAll(".scripted")) hint.hidden = false;
})();
"""


def page(title: str, body: str) -> str:
    """A whole document; its policy lets nothing load and no script run but the one above."""
    known = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{known}'; base-uri 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style></head>\n<body><main>\n{body}\n</main>\n"
        f"<script>{SCRIPT}</script></body></html>\n"
    )
