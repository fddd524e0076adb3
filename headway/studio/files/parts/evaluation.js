// An evaluation as blocks: the same ones as in the report.

import { lineChart, matrix } from "../chart.js";
import { fill, h, number, table } from "../dom.js";

const WIDE = 12;  // labels up to which a confusion matrix is a table with its numbers in it
const FEW = 5;  // mistakes that are shown at once
const capital = text => text.charAt(0).toUpperCase() + text.slice(1);
const numbersFrom = (head, first = 1) => head.map((_, i) => i).slice(first);

const DRAWN = {
  Table(block) {
    const title = block.title && h("h3", {}, capital(block.title));
    if (!block.shares) return [title, table(block.head, block.rows, { numeric: numbersFrom(block.head), caption: "" })];
    if (block.rows.length <= WIDE) return [title, shaded(block)];
    const host = h("div");
    requestAnimationFrame(() => matrix(host, block.shares, { rows: block.rows.map(row => row[0]), columns: block.head.slice(1), label: "Confusion",
      high: 1, say: v => Math.round(100 * v) + " % of the row" }));
    return [title, host];
  },
  Calibration(block) {
    const host = h("div", { class: "narrow" }), ends = [0, 1];
    requestAnimationFrame(() => lineChart(host, { title: "Calibration", axis: "confidence", tall: true, controls: false, extent: ends, series: [
      { name: "accuracy", look: "valid", dots: true, x: block.bins.map(bin => bin[0]), y: block.bins.map(bin => bin[1]) },
      { name: "as sure as right", look: "limit", x: ends, y: ends }] }));
    return [h("h3", {}, "Calibration"), block.error !== null && h("p", { class: "soft" }, `Confidence and accuracy differ by ${number(block.error, 3)} on average (expected calibration error).`), host];
  },
  Chart(block) {
    const host = h("div");
    requestAnimationFrame(() => lineChart(host, { title: block.title, axis: block.axis, tall: true, log: block.log, controls: block.log,
      series: block.lines.map(([name, x, y]) => ({ name, x, y, dots: x.length <= WIDE })) }));
    return [host];
  },
  Mistakes(block) {
    const list = (rows, start) => h("ol", { class: "mistakes", start }, rows.map(([text, said]) => h("li", {}, text, h("p", { class: "soft" }, said))));
    return [h("h3", {}, "Most confident mistakes"), list(block.rows.slice(0, FEW), 1),
      block.rows.length > FEW && h("details", {}, h("summary", {}, `${block.rows.length - FEW} more`), list(block.rows.slice(FEW), FEW + 1))];
  },
  Pictures: block => [h("h3", {}, capital(block.title)), h("div", { class: "pictures" }, block.images.map(([source, said]) =>
    h("figure", {}, h("img", { src: source, alt: "", loading: "lazy" }), h("figcaption", {}, said))))],
};

function shaded(block) {
  return h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": block.title }, h("table", {},
    h("thead", {}, h("tr", {}, block.head.map((name, i) => h("th", { scope: "col", class: i ? "number" : null }, name)))),
    h("tbody", {}, block.rows.map((row, r) => h("tr", {}, row.map((cell, c) => c
      ? h("td", { class: "number cell", style: { background: `color-mix(in srgb, var(--train) ${Math.round(45 * (block.shares[r][c - 1] || 0))}%, transparent)` } }, cell)
      : h("th", { scope: "row" }, cell)))))));
}

/** Fill a host with an evaluation: {on, examples, metrics, blocks}. */
export function evaluation(host, found) {
  fill(host, h("p", { class: "soft" }, `On ${found.on}` + (found.examples ? `: ${found.examples.toLocaleString("en-GB")} examples.` : ".")),
    found.metrics && table(found.metrics.head, found.metrics.rows, { numeric: [1, 2] }),
    found.blocks.map(block => h("div", { class: "block" }, (DRAWN[block.kind] || (() => []))(block))));
}
