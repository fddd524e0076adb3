// Bars of probabilities: what a model says, alone or before and after a change.

import { h } from "../dom.js";
import { seen } from "./labels.js";

export const percent = p => p >= 0.9995 ? "100 %" : (100 * p).toFixed(p >= 0.1 ? 0 : p >= 0.001 ? 1 : 2) + " %";

/** Rows of {label, probability}, or of {label, before, after}. `plain`: numbers that are no probabilities. */
export function bars(rows, { title = "", plain = false, onpick = null } = {}) {
  const two = rows.some(row => row.after !== undefined), all = rows.flatMap(row => two ? [row.before, row.after] : [row.probability]);
  const most = plain ? Math.max(1e-9, ...all.map(Math.abs)) : Math.max(0.02, ...all);
  const say = plain ? v => v.toPrecision(3) : percent;
  const bar = (v, look) => h("span", { class: "bar " + look }, h("i", { style: { width: 100 * Math.min(1, Math.abs(v) / most) + "%" } }),
    h("b", {}, say(v)));
  return h("div", { class: "x-bars" + (two ? " two" : "") }, title && h("h3", {}, title),
    two && h("p", { class: "soft" }, h("span", { class: "x-key before" }, "before"), " ", h("span", { class: "x-key after" }, "after")),
    h("ol", {}, rows.map(row => h("li", {},
      onpick ? h("button", { class: "quiet answer", onclick: () => onpick(row) }, seen(row.label)) : h("span", { class: "answer" }, seen(row.label)),
      two ? h("span", { class: "pair" }, bar(row.before, "before"), bar(row.after, "after")) : bar(row.probability, "now")))));
}
