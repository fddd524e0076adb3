// Compare: several runs side by side, or all runs of a comparison.

import { get } from "../api.js";
import { lineChart, lookOf } from "../chart.js";
import { bytes, count, duration, empty, fill, h, notice, number, problem, style, svg, table } from "../dom.js";
import { badge, placeOf } from "../parts/runs.js";

export const title = "Compare";

const MOST = 8, AGAIN = 4000;
const AXES = { step: "step", tokens: "tokens", seconds: "seconds of training" };

export async function show(host, { query, signal, go }) {
  await style("compare");
  const names = [...new Set([...query.getAll("run"), ...(query.get("runs") || "").split(",")].filter(Boolean))], of = query.get("of") || "";
  let base = query.get("base") || "";
  const address = (chosen, baseline = base) => "/compare?" + new URLSearchParams([...chosen.map(name => ["run", name]), ...(of && !chosen.length ? [["of", of]] : []), ...(baseline ? [["base", baseline]] : [])]);
  const pick = h("div"), facts = h("div"), drawn = h("div"), rest = h("div");
  fill(host, h("h1", {}, of || "Compare"), pick, facts, drawn, rest);
  const known = await get("/api/compare/known", signal);
  if (!of) fill(pick, picker(names, known.runs, chosen => go(address(chosen))));
  if (!of && names.length < 2) fill(rest, start(names, known));
  if (!of && !names.length) return;
  const asked = new URLSearchParams(of ? [["of", of]] : names.map(name => ["run", name])).toString();

  let training = false;
  async function load() {
    try {
      const found = await get(`/api/compare?${asked}&base=${encodeURIComponent(base)}`, signal);
      training = found.variants.some(each => each.runs.some(run => run.status === "running"));
      if (of || names.length > 1) fill(rest, found.variants.length > 1 && differences(found));
      fill(facts, results(found, next => { base = next; history.replaceState(null, "", address(names, base)); load(); }));
    } catch (error) {
      if (error.name === "AbortError") return;
      fill(drawn);
      fill(facts, problem(error), h("p", {}, h("a", { href: "/compare" }, "Choose other runs")));
      throw error;
    }
  }
  try { await load(); } catch { return; }
  const redraw = await drawCurves(drawn, asked, signal);
  while (training && !signal.aborted) {
    await new Promise(done => setTimeout(done, AGAIN));
    if (facts.contains(document.activeElement)) continue;  // nothing moves under somebody's hands
    await load().catch(() => {});
    await redraw();
  }
}

/** The runs that are compared, each with a button that takes it out, and a field for one more. */
function picker(names, runs, change) {
  const left = runs.filter(name => !names.includes(name));
  const field = h("input", { type: "search", list: "runs-left", placeholder: "Add a run", "aria-label": "Add a run",
    onchange: () => { if (left.includes(field.value)) change([...names, field.value]); } });
  return h("div", { class: "row picked" }, names.map(name => h("span", { class: "chip" }, h("a", { href: placeOf(name) }, name),
    h("button", { class: "quiet", "aria-label": `Take out ${name}`, onclick: () => change(names.filter(each => each !== name)) }, "✕"))),
    names.length < MOST && left.length > 0 && [field, h("datalist", { id: "runs-left" }, left.map(name => h("option", { value: name })))]);
}

function start(names, { runs, comparisons }) {
  const hint = names.length ? "Add another run to compare it with." : runs.length ? "Add the runs to compare, or choose them on the page of runs." : "There are no runs to compare yet.";
  return [empty(hint, h("a", { class: "button", href: "/runs" }, "Runs")),
    comparisons.length > 0 && h("section", {}, h("h2", {}, "Comparisons"), table(["comparison", "", "runs"], comparisons.map(each =>
      [h("a", { href: "/compare?of=" + encodeURIComponent(each.name) }, each.name), each.title, each.runs]), { numeric: [2] }))];
}

const swatch = look => h("span", { class: "charts inline" }, svg("svg", { class: "swatch", viewBox: "0 0 24 8", "aria-hidden": "true" }, svg("path", { class: "line " + lookOf(look), d: "M0 4H24" })));

function results(found, setBase) {
  const first = found.variants[0].name, several = found.variants.length > 1;
  const choose = h("select", { onchange: () => setBase(choose.value) }, found.variants.map(each => h("option", { value: each.name, selected: each.name === first }, each.name)));
  const value = metric => metric === null ? "–" : [number(metric.mean), metric.sd !== null && h("small", {}, ` ± ${number(metric.sd, 2)}`),
    metric.low !== null && h("small", { class: "interval" }, `[${number(metric.low)}, ${number(metric.high)}]`)];
  const runs = each => each.runs.length === 1 && each.runs[0].name === each.name ? [h("a", { href: placeOf(each.name) }, each.name), each.runs[0].status !== "finished" && [" ", badge(each.runs[0].status)]]
    : [each.name, h("small", { class: "interval" }, each.runs.map((run, i) => [i ? ", " : "", h("a", { href: placeOf(run.name) }, run.seed === null ? run.name : `seed ${run.seed}`), run.status !== "finished" && ` (${run.status})`]))];
  const verdict = each => each.name === first ? "the baseline" : (each.metrics[0] && each.metrics[0].verdict) || "–";
  const rows = found.variants.map(each => [[swatch(each.look), runs(each)], ...each.metrics.map(value), ...(several ? [h("span", { class: "said" }, verdict(each))] : []),
    count(each.costs[0]), duration(each.costs[1]), count(each.costs[2]), count(each.costs[3]), each.costs[4] === null ? "–" : bytes(each.costs[4])]);
  const head = ["run", ...found.metrics, ...(several ? [`${found.metrics[0] || "result"}: verdict`] : []), "steps", "time", "tokens/s", "parameters", "memory"];
  return [h("section", {}, h("h2", {}, "Results"),
    h("div", { class: "row tools" }, several && h("label", {}, "baseline ", choose), h("button", { onclick: () => download("compare.csv", found.csv) }, "Export CSV")),
    table(head, rows, { numeric: head.map((_, i) => i).filter(i => i > 0 && i !== found.metrics.length + (several ? 1 : head.length)), caption: "" }),
    found.several && h("p", { class: "soft method" }, found.method))];
}

function differences(found) {
  const rows = Object.entries(found.differences), told = v => v === null || v === undefined ? "–" : typeof v === "string" ? v : JSON.stringify(v);
  return [h("section", { class: "differences" }, h("h2", {}, "Settings that differ"), rows.length
    ? table(["setting", ...found.variants.map(each => each.name)], rows.map(([key, values]) => [h("code", {}, key), ...values.map(told)])) : h("p", { class: "soft" }, "The recipes are the same."))];
}

function download(name, text) {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function drawCurves(host, asked, signal) {
  const stage = h("div"), pick = h("select", { onchange: () => { axis = pick.value; view = {}; load(); } }, Object.entries(AXES).map(([key, name]) => h("option", { value: key }, name)));
  let axis = "step", view = {}, smooth = .025, chart = null;
  fill(host, h("section", {}, h("h2", {}, "Curves"), stage));
  async function load() {
    try {
      const part = view.zoomed ? `&low=${view.low}&high=${view.high}` : "";
      const found = await get(`/api/compare/curves?${asked}&axis=${axis}&smooth=${smooth}${part}`, signal);
      if (!found.panels.length) { fill(stage, empty("No step has been logged yet.")); return; }
      const spec = { title: "Curves of the runs", axis: AXES[axis], whole: axis !== "seconds", extent: found.extent, sayX: axis === "seconds" ? duration : undefined,
        panels: found.panels.map(panel => ({ ...panel, series: panel.series.map(each => ({ ...each, look: lookOf(each.variant) })) })) };
      if (chart) { chart.update(spec); return; }
      chart = lineChart(stage, { ...spec, onview: next => { view = next; smooth = next.smooth; load(); } });
      chart.controls.prepend(h("label", {}, "over ", pick));
      chart.controls.append(h("span", {}, "Drag across a curve to zoom; click a name to hide its curve."));
    } catch (error) {
      if (error.name !== "AbortError") notice(error.message, { bad: true });
    }
  }
  await load();
  return load;
}
