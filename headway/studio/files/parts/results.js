// Predictions shown by their shape: labels with probabilities as bars, entities in their text, an answer in its context,
// blanks, neighbours, pictures, curves … A shape that has no view here is shown as the terminal shows it, and as a table.

import { barChart, lineChart } from "../chart.js";
import { h, svg, number, table } from "../dom.js";
import { percent } from "./tokens.js";

/** Everything that the server says of a filled form. `form` is what was filled in. */
export function results(found, form) {
  const whole = VIEWS_OF_ALL.map(view => view(found, form)).find(Boolean);
  return h("div", { class: "results" },
    found.truncated > 0 && h("p", { class: "soft" }, `The text is longer than ${found.truncated} tokens: the model read its beginning.`),
    found.picture && h("div", { class: "row pictures" }, figure(found.picture, "as the model read it"), found.look && figure(found.look, "where it looked")),
    found.graph && graph(found.graph, found.results[0]),
    whole || found.results.map((each, i) => one(each, found.inputs[i] || {}, form, found.lines)),
    Object.keys(found.written).length > 0 && Object.entries(found.written).map(([name, text]) =>
      h("details", {}, h("summary", {}, `as ${name}`), h("pre", { tabindex: "0" }, text))),
    h("details", {}, h("summary", {}, "All values"), h("pre", { tabindex: "0" }, JSON.stringify(found.results.map(brief), null, 1))));
}

const figure = (src, text) => h("figure", {}, h("img", { src, alt: text }), h("figcaption", { class: "soft" }, text));
const brief = value => typeof value === "string" && value.length > 300 ? value.slice(0, 60) + " …"
  : Array.isArray(value) ? (value.length > 60 && value.every(v => typeof v === "number") ? [...value.slice(0, 12), `… ${value.length} numbers`] : value.map(brief))
  : value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([k, v]) => [k, brief(v)])) : value;

/** Bars with their numbers: rows of [name, share, text]; `most` is the longest bar. */
export function bars(rows, title, { most = 1, unit = "probability" } = {}) {
  const host = h("div");
  barChart(host, rows.map(([name, value, said]) => ({ name, value: Math.max(0, value), said: said ?? percent(value) })), { title, most, head: ["", "", unit] });
  return host;
}

const VIEWS_OF_ALL = [
  ({ curves: all }) => all.length > 0 && curves(all),
  ({ results: all }) => all[0] && "png" in all[0] && h("div", { class: "row pictures" }, all.map(each =>
    figure("data:image/png;base64," + each.png, `${each.class}, seed ${each.seed}, number ${each.number}`))),
  ({ results: all, inputs }) => all.length > 1 && all.every(each => "embedding" in each) && similarities(all, inputs),
];

function one(found, input, form, lines) {
  const view = VIEWS.find(([fits]) => fits(found));
  return view ? view[1](found, input, form) : h("pre", { tabindex: "0" }, lines.join("\n"));
}

const sorted = shares => Object.entries(shares).sort((a, b) => b[1] - a[1]);
const VIEWS = [
  [f => f.probabilities, f => h("div", {}, h("p", { class: "verdict" }, [f.label].flat().join(", ") || "none"),
    bars(sorted(f.probabilities).slice(0, 20), ""))],
  [f => typeof f.label === "number", f => h("p", { class: "verdict" }, number(f.label))],
  [f => f.entities, (f, input) => entities(f.entities, input.text || "")],
  [f => f.blanks, (f, input) => h("div", {}, h("p", { class: "verdict" }, f.best),
    f.blanks.map((blank, i) => bars(blank.choices.map(c => [c.text, c.probability]), f.blanks.length > 1 ? `blank ${i + 1}` : "")))],
  [f => f.best && "answer" in f.best[0], (f, input, form) => answers(f, form.context || "")],
  [f => f.alignment || f.best, f => h("div", {}, h("p", { class: "verdict" }, text(f)), f.best && table(["", "score"],
    f.best.map(each => [text(each), number(each.score)]), { numeric: [1] }), f.alignment && alignment(f.alignment))],
  [f => f.neighbours, f => bars(f.neighbours.map(n => [n.word, n.cosine, number(n.cosine, 3)]), "nearest words", { unit: "cosine" })],
  [f => f.segments, f => h("div", {}, h("p", { class: "verdict" }, f.text || "(nothing was said)"), h("p", { class: "soft" },
    [f.language, `${number(f.duration, 3)} s of sound`].filter(Boolean).join(" · ")), segments(f.segments))],
  [f => f.embedding, f => h("div", {}, h("p", {}, `${f.embedding.length} numbers`), h("p", { class: "mono soft" }, f.embedding.slice(0, 12).map(v => v.toFixed(3)).join(" ") + " …"),
    h("p", { class: "soft" }, "Give several lines to compare texts."))],
  [f => Array.isArray(f.nodes), f => table(["node", "label", "probability"], f.nodes.map(n => [n.node, String(n.label), percent(n.probability)]), { numeric: [2] })],
  [f => typeof text(f) === "string", f => h("div", {}, h("p", { class: "verdict" }, text(f)), f.score !== undefined && h("p", { class: "soft" }, `score ${number(f.score)}`))],
  [f => f.perplexity, f => h("p", { class: "verdict" }, `perplexity ${number(f.perplexity)}, log-probability ${number(f.log_probability)} over ${f.tokens} tokens`)],
];
const text = f => f.new ?? f.text ?? f.caption;

const LOOKS = 8, labels = new Map();  // a label keeps its look while the page is open; its name stands beside the words too
function mark(label) {
  if (!labels.has(label)) labels.set(label, labels.size % LOOKS);
  return "mark" + labels.get(label);
}

/** Places count characters, of which JavaScript takes some as two. */
function entities(found, whole) {
  const letters = [...whole], parts = [];
  let at = 0;
  for (const e of found) {
    parts.push(letters.slice(at, e.start).join(""), h("mark", { class: mark(e.label) }, letters.slice(e.start, e.end).join(""), h("small", {}, e.label)));
    at = e.end;
  }
  return h("div", {}, h("p", { class: "marked" }, parts, letters.slice(at).join("")), found.length > 0
    ? table(["entity", "label", "score"], found.map(e => [e.text, e.label, percent(e.score)]), { numeric: [2] }) : h("p", { class: "soft" }, "No entities."));
}

function answers(found, context) {
  const letters = [...context], inside = found.start !== null && found.start !== undefined;
  return h("div", {}, h("p", { class: "verdict" }, inside ? found.answer : "The context has no answer."),
    h("p", { class: "marked" }, inside ? [letters.slice(0, found.start).join(""), h("mark", { class: "mark0" }, letters.slice(found.start, found.end).join("")), letters.slice(found.end).join("")] : context),
    table(["answer", "place", "score"], found.best.map(b => [b.answer ?? "(none)", b.start === null ? "–" : `${b.start}–${b.end}`, number(b.score)]), { numeric: [2] }));
}

function alignment({ text: source, new: target, links }) {
  return table(["word", "from", "share"], links.map(l => [target[l.new], source[l.text], percent(l.share)]), { caption: "Which word each word came from", numeric: [2] });
}

const segments = all => table(["from", "to", "text"], all.flatMap(s => [[s.start.toFixed(2), s.end.toFixed(2), s.text],
  ...(s.words || []).map(w => [w.start.toFixed(2), w.end.toFixed(2), "· " + (w.word ?? w.text)])]), { caption: "Seconds" });

/** A graph on a circle; a node has its name, what it holds, and the label that it was given. */
function graph({ names, values, edges }, result) {
  const at = names.map((_, i) => [230 + 150 * Math.sin(2 * Math.PI * i / names.length), 190 - 150 * Math.cos(2 * Math.PI * i / names.length)]);
  const labels = Array.isArray(result.nodes) ? result.nodes.map(node => [node.label].flat().join(", ")) : names.map(() => "");
  return svg("svg", { viewBox: "0 0 460 380", class: "graph", role: "img", "aria-label": `graph of ${names.length} nodes and ${edges.length} edges` },
    edges.map(([a, b]) => svg("line", { x1: at[a][0], y1: at[a][1], x2: at[b][0], y2: at[b][1] })),
    names.map((name, i) => svg("g", {}, svg("circle", { cx: at[i][0], cy: at[i][1], r: 15, class: values[i] ? "told" : "" }),
      svg("text", { x: at[i][0], y: at[i][1] + 4 }, [...name].slice(0, 4).join("")),
      svg("text", { class: "beside", x: at[i][0], y: at[i][1] + (at[i][1] < 190 ? -21 : 29) }, [labels[i], values[i]].filter(Boolean).join(" · ").slice(0, 24)))));
}

/** Cosines of the first text with the others, and of all with all. */
function similarities(all, inputs) {
  const names = all.map((_, i) => inputs[i]?.text || `text ${i + 1}`), unit = all.map(({ embedding: v }) => { const n = Math.hypot(...v) || 1; return v.map(x => x / n); });
  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const first = names.slice(1).map((name, i) => [name, dot(unit[0], unit[i + 1])]).sort((a, b) => b[1] - a[1]);
  return h("div", {}, bars(first.map(([n, c]) => [n, c, number(c, 3)]), `nearest to “${names[0]}”`, { unit: "cosine" }),
    h("details", {}, h("summary", {}, "All with all"), table(["", ...names.map((_, i) => i + 1)],
      names.map((name, i) => [`${i + 1} ${name}`, ...unit.map(other => dot(unit[i], other).toFixed(2))]), { numeric: names.map((_, i) => i + 1) })));
}

/** Series and what is predicted to follow them, over one axis: 0 is the last step that was read; quantiles are a band. */
function curves(all) {
  const host = h("div", { class: "curves" }), steps = (from, values) => values.map((_, i) => from + i);
  const panel = ({ name, before, after, bounds }) => {
    const last = before.length ? [before.at(-1)] : [], from = 1 - last.length;
    return { key: name, title: name, series: [{ name: "read", x: steps(1 - before.length, before), y: before },
      { name: "predicted", x: steps(from, [...last, ...after]), y: [...last, ...after], band: bounds && bounds.map(edge => [...last, ...edge]) }] };
  };
  lineChart(host, { title: "Forecast", axis: "step", whole: true, controls: false, panels: all.map(panel) });
  return host;
}
