// A survey of data: what is in them, what they fit, what is wrong with them.

import { barChart, histogram } from "../chart.js";
import { bytes, count, duration, h, number, style, table } from "../dom.js";
import { short } from "./source.js";

const share = (part, whole) => `${count(part)} (${number(100 * part / Math.max(1, whole), 2)} %)`;
const BARS = 30, SHOWN = 20, FIRST = 6;

/** The sentence above everything, and the numbers below it. */
export function numbers(found) {
  const f = found.facts, rows = [];
  const add = (name, value, look = "") => rows.push(h("div", { class: look || null }, h("dt", {}, name), h("dd", {}, value)));
  if (found.kind === "rows") {
    add(f.columns.length ? "rows" : f.unit, count(f.columns.length ? f.rows : f.texts));
    if (f.columns.length) add("columns", count(f.columns.length));
    add("size", bytes(f.bytes));
    add("format", f.formats.join(", ") + (f.files > 1 ? `, ${count(f.files)} files` : ""));
    add("duplicates", share(f.duplicates, f.texts));
  } else if (found.kind === "pairs") {
    add("pairs", count(f.pairs));
    add("size", bytes(f.bytes));
    add("words per source word", number(f.ratio, 3));
    add("duplicates", share(f.duplicates, f.pairs));
  } else {
    add(found.kind, count(f[found.kind]));
    for (const [part, n] of Object.entries(f.parts)) add(part, count(n));
    if (Object.keys(f.labels).length) add("labels", count(Object.keys(f.labels).length));
    if (f.widths && f.images) add("pixels", f.widths[0] === f.widths[2] && f.heights[0] === f.heights[2] ? `${f.widths[1]} × ${f.heights[1]}`
      : `about ${f.widths[1]} × ${f.heights[1]}`);
    if (f.captions) add("captions", count(f.captions));
    if (f.sounds) { add("together", duration(f.seconds)); add("seconds of each", f.lengths[0] === f.lengths[2] ? number(f.lengths[0], 3) : `${number(f.lengths[0], 3)} to ${number(f.lengths[2], 3)}`); }
    if (f.texts) add("with a text", count(f.texts));
    add("duplicates", count(f.duplicates.length));
  }
  add(found.kind === "images" || found.kind === "sounds" ? `bad ${found.kind}` : "bad rows", count(f.bad), f.bad ? "bad" : "");
  return h("dl", { class: "stats" }, rows);
}

/** All sections below the numbers. */
export function sections(found, { onrole = null } = {}) {
  style("data");
  const f = found.facts;
  return h("div", {}, found.sheet && sheet(found.sheet, f.labels), found.kind === "rows" && columns(found, onrole),
    overlap(f.overlap), head(found), trouble(found), h("div", { class: "columns" }, f.lengths && found.kind !== "sounds" && lengths(found), ...labels(found)));
}

function columns({ facts, roles }, onrole) {
  if (!facts.columns.length) return null;
  const pick = column => h("select", { "aria-label": "column of the text", onchange: event => onrole(event.target.value) },
    facts.columns.filter(each => each.kind === "text" || each.name === column).map(each => h("option", { value: each.name, selected: each.name === column }, each.name)));
  const role = each => {
    const [name, setting] = roles[each.name] || (each.name === facts.column ? ["text", "data.text"] : ["", ""]);
    return name ? h("span", { class: "role", title: setting ? `another column: ${setting}=NAME` : null }, name) : "–";
  };
  const text = facts.columns.filter(each => each.kind === "text");
  return h("section", {}, h("h2", {}, "Columns"),
    table(["column", "taken for", "holds", "empty", "example"], facts.columns.map(each =>
      [each.name, role(each), each.kind, count(each.missing), each.example]), { label: "columns", numeric: [3] }),
    onrole && text.length > 1 && h("p", { class: "row" }, h("span", { class: "soft" }, "the text is in"), pick(facts.column)));
}

function head({ head: shown }) {
  if (!shown || !shown.rows.length) return null;
  const named = shown.lines ? ["line", ...shown.columns] : shown.columns;
  const rows = shown.rows.map((row, i) => shown.lines ? [count(shown.lines[i]), ...row] : row);
  const some = (from, to) => table(named, rows.slice(from, to), { label: from ? "more rows" : "first rows", numeric: shown.lines ? [0] : [] });
  return h("section", { class: "head" }, h("h2", {}, "First rows"), some(0, FIRST),
    rows.length > FIRST && h("details", {}, h("summary", {}, `${count(rows.length - FIRST)} more`), some(FIRST)));
}

function lengths({ facts }) {
  const names = Object.keys(facts.lengths);
  if (!names.length) return null;
  const chart = h("div"), unit = h("select", { "aria-label": "unit of length", onchange: event => draw(event.target.value) },
    names.map(name => h("option", { value: name, selected: name === "words" }, name)));
  const draw = name => {
    const of = facts.lengths[name];
    if (of.min === of.max) { chart.replaceChildren(h("p", { class: "soft" }, `all have ${count(of.min)}`)); return; }
    const low = Math.max(1, of.min), at = i => low * (Math.max(1, of.max) / low) ** (i / of.histogram.length);
    histogram(chart, of.histogram.map((n, i) => ({ from: i, to: i + 1, count: n })),
      { title: `${name} of each`, axis: `${name}, on a logarithmic scale`, sayX: v => count(at(v)) });
  };
  draw(names.includes("words") ? "words" : names[0]);
  return h("section", {}, h("div", { class: "row" }, h("h2", {}, "Lengths"), unit), chart,
    table(["length in", "total", "least", "median", "mean", "95 %", "most"], names.map(name => { const of = facts.lengths[name];
      return [name, count(of.total), count(of.min), count(of.median), number(of.mean, 3), count(of.p95), count(of.max)]; }),
    { label: "lengths", numeric: [1, 2, 3, 4, 5, 6] }));
}

function labels({ facts, kind }) {
  const tables = kind === "rows" ? facts.columns.filter(each => Object.keys(each.labels).length).map(each => [each.name, each.labels])
    : facts.labels && Object.keys(facts.labels).length ? [["label", facts.labels]] : [];
  return tables.slice(0, 4).map(([name, values]) => {
    const sorted = Object.entries(values).sort((a, b) => b[1] - a[1]), total = sorted.reduce((sum, [, n]) => sum + n, 0), chart = h("div");
    barChart(chart, sorted.slice(0, BARS).map(([label, n]) => ({ name: label, value: n, said: share(n, total) })), { head: [name, "", "rows"] });
    return h("section", {}, h("h2", {}, `Balance of ${name}`), chart, sorted.length > BARS && h("p", { class: "soft" }, `… and ${count(sorted.length - BARS)} more`));
  });
}

function overlap(found) {
  if (!found) return null;
  return h("section", {}, h("h2", {}, "Overlap"), h("p", { class: found.equal ? "bad" : null },
    `${share(found.equal, found.texts)} of the texts in ${short(found.valid)} are also in these data.`),
  h("p", { class: "soft" }, `${share(found.sharing, found.texts)} share 8 or more words in a row with them.`));
}

function trouble({ facts: f, kind }) {
  const parts = [];
  if (f.bad) parts.push(h("section", {}, h("h2", {}, `Bad ${kind === "images" || kind === "sounds" ? kind : "rows"}`),
    h("p", { class: "soft" }, f.task ? `as ${f.task} reads the data; training stops at the first one, unless data.bad_rows=skip leaves them out`
      : "training stops at the first one, unless data.bad_rows=skip leaves them out"), list(f.bad_lines, f.bad)));
  const repeats = (kind === "rows" ? f.repeats : f.duplicates) || [];
  if (Array.isArray(repeats) && repeats.length) parts.push(h("section", {}, h("h2", {}, "Duplicates"), f.across > 0 && h("p", { class: "bad" },
    `${count(f.across)} of them are in the training data and in another part`), list(repeats.map(([a, b]) => `${a} = ${b}`), repeats.length)));
  const others = f.skipped || f.others || [];
  if (others.length) parts.push(h("section", {}, h("h2", {}, "Files left out"), list(others, others.length)));
  return parts;
}

function list(lines, all) {
  const items = some => h("ol", { class: "flaws" }, some.map(line => h("li", {}, h("code", {}, line))));
  return h("div", {}, items(lines.slice(0, SHOWN)),
    lines.length > SHOWN && h("details", {}, h("summary", {}, `${count(lines.length - SHOWN)} more`), items(lines.slice(SHOWN))),
    all > lines.length && h("p", { class: "soft" }, `${count(all - lines.length)} more; headway data FILE --bad lists them all`));
}

function sheet(rows, labels) {
  return h("section", {}, h("h2", {}, "Contact sheet"), h("div", { class: "sheet" }, rows.map(({ label, images }) => h("div", {},
    h("h3", {}, label || "without a label", labels[label] && h("small", {}, " " + count(labels[label]))),
    h("div", { class: "row tight" }, images.map((url, i) => h("img", { src: url, alt: `${label || "image"} ${i + 1}`, loading: "lazy" })))))));
}
