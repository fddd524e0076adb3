// A run: what came of it, its curves, samples, evaluation, recipe and log; live while it trains.

import { follow, get } from "../api.js";
import { lineChart } from "../chart.js";
import { bytes, count, duration, empty, fill, h, notice, number, problem, style, table } from "../dom.js";
import { evaluation } from "../parts/evaluation.js";
import { badge, copyButton, discard, resume, stop } from "../parts/runs.js";

export const title = "Run";

const AXES = { step: "step", tokens: "tokens", seconds: "seconds of training" };
const READ = { memory: bytes, goal: number };

export async function show(host, { rest, signal, go }) {
  const name = rest.join("/"), asked = "name=" + encodeURIComponent(name);
  if (!name) { go("/runs"); return; }
  await style("run");
  document.title = name + " · headway studio";
  const parts = Object.fromEntries(["head", "now", "tiles", "advice", "samples", "evaluation", "facts", "next", "recipe"].map(part => [part, h("div")]));
  const curves = drawCurves(asked, signal), log = drawLog(asked, signal), samples = drawSamples(parts.samples);
  const sections = [["Curves", curves.host], ["Samples", parts.samples], ["Evaluation", parts.evaluation], ["Facts", parts.facts], ["Next", parts.next], ["Recipe", parts.recipe], ["Log", log.host]]
    .map(([name, body]) => ({ name, body, node: h("section", { id: name.toLowerCase() }, h("h2", {}, name), body) }));
  const links = h("nav", { class: "row soft inside", "aria-label": "Parts of this page" });
  fill(host, parts.head, parts.now, parts.tiles, parts.advice, links, sections.map(section => section.node));

  function draw(found) {
    const run = found.run;
    drawHead(parts.head, name, found, go);
    fill(parts.tiles, h("dl", { class: "tiles" }, found.tiles.map(([title, value, note]) => h("div", {}, h("dt", {}, title), h("dd", {}, value, note && h("small", {}, note))))));
    fill(parts.advice, found.suggestions.length > 0 && h("section", { class: "card advice" }, h("h2", {}, "What to try next"), h("ol", {}, found.suggestions.map(each =>
      h("li", {}, each.advice, h("p", { class: "soft" }, each.reason), each.command && command(each.command))))));
    samples(found.samples);
    drawEvaluation(parts.evaluation, found);
    fill(parts.facts, h("div", { class: "columns" }, [["Data", found.data], ["Health", found.health], ["Cost", found.cost], ["Reproduce", found.reproduce]]
      .filter(([, pairs]) => pairs.length).map(([title, pairs]) => h("div", {}, h("h3", {}, title), h("dl", { class: "facts" }, pairs.map(([key, value]) => [h("dt", {}, key), h("dd", {}, value)]))))));
    fill(parts.next, found.commands.map(([what, words]) => h("div", { class: "next" }, h("p", { class: "soft" }, what), command(words))));
    fill(parts.recipe, found.recipe && h("div", { class: "code" }, copyButton(found.recipe), h("pre", { tabindex: "0" }, found.recipe)));
    for (const { name, body, node } of sections) node.hidden = name !== "Log" && name !== "Curves" && !body.childElementCount;
    if (!run.steps) sections[0].node.hidden = true;
    fill(links, sections.filter(({ node }) => !node.hidden).map(({ name }) => h("a", { href: "#" + name.toLowerCase() }, name)));
  }
  async function load() {
    try {
      draw(await get("/api/run?" + asked, signal));
    } catch (error) {
      if (error.name !== "AbortError") fill(host, problem(error), h("p", {}, h("a", { href: "/runs" }, "All runs")));
    }
  }
  let heard = "", steps = -1;
  follow("/api/run/events?" + asked, signal, (now, error) => {
    if (error) { fill(host, problem(error), h("p", {}, h("a", { href: "/runs" }, "All runs"))); return; }
    fill(parts.now, now.status === "running" && progress(now));
    const told = JSON.stringify([now.heard, now.status]);
    if (told !== heard) { heard = told; load(); log.load(); }
    if (now.steps !== steps) { steps = now.steps; curves.load(); }
  });
}

const command = words => h("div", { class: "code" }, copyButton(words), h("pre", {}, words));

function progress(now) {
  const share = Math.min(1, now.share || 0), left = share > .02 ? now.seconds * (1 - share) / share : null;
  return h("div", { class: "progress" }, h("progress", { max: 1, value: share, "aria-label": "How much of the training is done" }),
    h("span", {}, `step ${count(now.steps)} · ${Math.floor(100 * share)} % · loss ${number(now.loss)} · ${duration(now.seconds)}` + (left ? `, ${duration(left)} left` : "")));
}

function drawHead(host, name, { run, about, verdict, report }, go) {
  const usable = run.final || run.checkpoints.length > 0, model = encodeURIComponent(name);
  const steps = h("input", { type: "number", min: run.steps + 1, step: 1, value: 2 * run.steps, "aria-label": "Steps in all" });
  const further = h("form", { class: "row", hidden: true, onsubmit: event => { event.preventDefault(); further.hidden = true; resume(name, +steps.value); } },
    h("label", {}, "to ", steps, " steps"), h("button", {}, "Train"));
  fill(host, h("p", { class: "soft crumb" }, h("a", { href: "/runs" }, "Runs")), h("h1", {}, name, " ", badge(run.status)), h("p", { class: "soft" }, about.join(" · ")),
    h("p", { class: "verdict" }, verdict.join(" ")), run.problem && h("p", { class: "problem" }, run.problem),
    h("div", { class: "row actions" },
      run.status === "running" && h("button", { class: "main", onclick: () => stop(name) }, "Stop and save"),
      ["stopped", "diverged"].includes(run.status) && run.checkpoints.length > 0 && h("button", { class: "main", onclick: () => resume(name) }, "Resume"),
      usable && h("a", { class: "button", href: "/playground?model=" + model }, "Playground"), usable && h("a", { class: "button", href: "/xray?model=" + model }, "X-ray"),
      run.steps > 0 && h("a", { class: "button", href: "/compare?runs=" + model }, "Compare"),
      h("a", { class: "button", href: report, target: "_blank", rel: "noopener" }, "Report"),
      run.status === "finished" && run.checkpoints.length > 0 && h("button", { onclick: () => { further.hidden = !further.hidden; steps.focus(); } }, "Train further"), further,
      copyButton(run.folder, "Copy path"),
      run.status !== "running" && h("button", { class: "quiet", onclick: () => discard(name, () => go("/runs")) }, "Delete")));
}

/** The curves: asked for again when the run has grown, when a part is shown, when the smoothing changes. */
function drawCurves(asked, signal) {
  const host = h("div"), stage = h("div", {}, h("p", { class: "soft" }, "Reading the log …"));
  const pick = h("select", { "aria-label": "Axis", onchange: () => { axis = pick.value; view = {}; load(); } });
  let axis = "step", view = {}, smooth = .025, chart = null, asking = false, again = false;
  host.append(stage);

  async function load() {
    if (asking) { again = true; return; }
    asking = true;
    try {
      const part = view.zoomed ? `&low=${view.low}&high=${view.high}` : "";
      const found = await get(`/api/run/curves?${asked}&axis=${axis}&smooth=${smooth}${part}`, signal);
      if (found.panels.length) update(found);
      else fill(stage, empty("No step has been logged yet."));
    } catch (error) {
      if (error.name !== "AbortError") notice(error.message, { bad: true });
    }
    asking = false;
    if (again) { again = false; setTimeout(load, 300); }
  }
  function update(found) {
    if (pick.children.length !== found.axes.length) fill(pick, found.axes.map(each => h("option", { value: each, selected: each === found.axis }, AXES[each])));
    const spec = { title: "Curves of the run", axis: AXES[found.axis], whole: found.axis !== "seconds", extent: found.extent, sayX: found.axis === "seconds" ? duration : undefined,
      panels: found.panels.map(panel => ({ ...panel, say: READ[panel.key] })), events: found.events };
    if (chart && stage.contains(chart.controls)) chart.update(spec);
    else {
      chart = lineChart(stage, { ...spec, onview: next => { view = next; smooth = next.smooth; load(); } });
      chart.controls.prepend(h("label", {}, "over ", pick));
      chart.controls.append(h("span", {}, "Drag across a curve to zoom."));
    }
  }
  return { host, load };
}

function drawSamples(host) {
  const slider = h("input", { type: "range", min: 0, step: 1, "aria-label": "Sample", oninput: () => turn() });
  const when = h("output", {}), figure = h("figure", { class: "card sample" });
  let samples = [];
  function turn() {
    const sample = samples[+slider.value];
    when.textContent = (sample.step === null ? "sample" : "step " + count(sample.step)) + ` (${+slider.value + 1} of ${samples.length})`;
    fill(figure, sample.picture && h("img", { src: sample.picture, alt: "sample" }), (sample.text || !sample.picture) && h("pre", { tabindex: "0" }, sample.text || "(nothing)"));
  }
  return next => {
    const last = +slider.value >= samples.length - 1;
    samples = next;
    if (!samples.length) { fill(host); return; }
    slider.max = samples.length - 1;
    if (last) slider.value = samples.length - 1;
    if (!host.childElementCount) fill(host, h("div", { class: "row" }, slider, when), figure);
    slider.hidden = samples.length < 2;
    turn();
  };
}

function drawEvaluation(host, found) {
  const { head, rows, note } = found.evaluations, all = h("div"), last = h("div");
  fill(host);
  if (found.evaluation) { evaluation(last, found.evaluation); host.append(last); }
  if (rows.length) {
    fill(all, table(["step", ...head, ""], rows.map(([step, cells, best]) => [step, ...cells, best ? "★ best" : ""]), { numeric: [0, ...head.map((_, i) => i + 1)] }), note && h("p", { class: "soft" }, note));
    host.append(found.evaluation || rows.length > 8 ? h("details", {}, h("summary", {}, `All ${rows.length} evaluations`), all) : all);
  }
}

function drawLog(asked, signal) {
  const host = h("div"), list = h("div"), box = h("input", { type: "checkbox", onchange: () => load() });
  host.append(h("details", { ontoggle: event => { if (event.target.open) load(); } }, h("summary", {}, "The end of run/log.jsonl"), h("div", { class: "row" }, h("label", {}, box, " steps too")), list));
  async function load() {
    if (!host.firstChild.open) return;
    try {
      const { lines } = await get(`/api/run/log?${asked}&steps=${box.checked}`, signal);
      fill(list, lines.length ? table(["time", "event", "step", ""], lines.map(([time, kind, step, words]) =>
        [time ? new Date(1000 * time).toLocaleTimeString("en-GB") : "–", kind, step === null ? "" : count(step), words]), { numeric: [2] }) : empty("Nothing but steps so far."));
    } catch (error) {
      if (error.name !== "AbortError") fill(list, problem(error));
    }
  }
  return { host, load };
}
