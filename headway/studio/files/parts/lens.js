// The logit lens: what the model's head would say after each layer. And heat maps of two inputs patched into each other.

import { h, number } from "../dom.js";
import { percent } from "./bars.js";
import { brief, seen } from "./labels.js";
import { shade } from "./maps.js";

const region = (label, inner) => h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label }, inner);

/** found[layer][position] is a list of answers. Rows are layers, the last one on top as the model's own answer. */
export function lensTable(found, tokens, { position = null, onposition = () => {} } = {}) {
  const single = found[0].length !== tokens.length;
  const columns = single ? found[0].map((_, i) => ({ label: found[0].length > 1 ? String(i + 1) : "answer" })) : tokens;
  const name = i => i === 0 ? "embedding" : i === found.length - 1 ? `layer ${i} (says)` : "layer " + i;
  return region("Logit lens", h("table", { class: "x-heat" }, h("caption", {}, "What the head would say if the layers above were not there: its first answer, darker where it is surer."),
    h("thead", {}, h("tr", {}, h("td"), columns.map((t, i) => h("th", { scope: "col", class: i === position && !single ? "picked" : null }, single ? t.label
      : h("button", { class: "quiet", onclick: () => onposition(i) }, brief(t.label, 10)))))),
    h("tbody", {}, found.map((layer, i) => h("tr", {}, h("th", { scope: "row" }, name(i)), layer.map(answers => h("td", {
      style: shade(answers[0].probability), title: answers.map(a => `${seen(a.label)} ${percent(a.probability)}`).join("\n") },
    brief(answers[0].label, 10), h("small", {}, percent(answers[0].probability)))))).reverse())));
}

/** A table of shares: 0 nothing, 1 all; below 0 the other way. `rows` and `columns` are names. */
export function heatTable(values, rows, columns, label) {
  return region(label, h("table", { class: "x-heat" }, h("caption", {}, label),
    h("thead", {}, h("tr", {}, h("td"), columns.map(name => h("th", { scope: "col" }, name)))),
    h("tbody", {}, values.map((row, i) => h("tr", {}, h("th", { scope: "row" }, rows[i]),
      row.map(v => h("td", { class: "number", style: shade(Math.abs(v), v >= 0 ? "--accent" : "--warm") }, number(Math.round(100 * v), 3))))).reverse())));
}
