// The tree of a beam search: tokens without a fork between them stand together; a fork is where beams part.

import { h, svg, table } from "../dom.js";
import { visible } from "./tokens.js";

const LINE = 26, LETTER = 8, GAP = 26;

/** The tree drawn, and the texts that were found. */
export function beamTree({ tree, best }) {
  const roots = tree.map(joined), rows = [], edges = [];
  let bottom = 0;
  const widths = [];
  const measure = (node, depth) => { widths[depth] = Math.max(widths[depth] || 0, node.text.length * LETTER + 16); node.next.forEach(n => measure(n, depth + 1)); };
  roots.forEach(n => measure(n, 0));
  const lefts = widths.map((_, i) => widths.slice(0, i).reduce((a, b) => a + b + GAP, 0));
  const place = (node, depth) => {
    const below = node.next.map(n => place(n, depth + 1));
    const y = below.length ? (below[0].y + below.at(-1).y) / 2 : bottom++ * LINE;
    const put = { node, y, x: lefts[depth], end: lefts[depth] + node.text.length * LETTER + 16 };
    rows.push(put);
    for (const other of below) edges.push([put, other]);
    return put;
  };
  roots.forEach(n => place(n, 0));
  const wide = Math.max(...rows.map(r => r.end + (r.node.next.length ? 0 : 90))), tall = bottom * LINE + 8;
  const drawn = svg("svg", { viewBox: `0 0 ${wide} ${tall}`, width: wide, height: tall, class: "beam-tree", role: "img",
    "aria-label": `tree of the beam search: ${bottom} ends; the list below says the same` },
    edges.map(([a, b]) => svg("path", { d: `M${a.end} ${a.y + 13}C${a.end + 14} ${a.y + 13} ${b.x - 14} ${b.y + 13} ${b.x} ${b.y + 13}`, class: kept(b.node) ? "kept" : "" })),
    rows.map(({ node, x, y }) => svg("g", { class: kept(node) ? "kept" : "" },
      svg("rect", { x, y: y + 2, width: node.text.length * LETTER + 16, height: 22, rx: 5 }),
      svg("text", { x: x + 8, y: y + 17 }, node.text),
      !node.next.length && svg("text", { x: x + node.text.length * LETTER + 22, y: y + 17, class: "score" },
        (node.ended ? "■ " : "× ") + node.score.toFixed(3)))));
  return h("div", {}, h("h2", {}, "Best continuations"),
    table(["text", "score"], best.map(each => [visible(each.text), each.score.toFixed(4)]), { numeric: [1] }),
    h("h2", {}, "Tree"), h("p", { class: "soft" }, "■ a finished text with its final score, × a beam that was dropped, with its last log-probability."),
    h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "tree of the beam search" }, drawn),
    h("details", {}, h("summary", {}, "The tree as a list"), list(roots)));
}

/** A node with all that follows it without a fork. */
function joined(node) {
  let text = visible(node.label), last = node;
  while (last.next.length === 1) { last = last.next[0]; text += visible(last.label); }
  return { text, score: last.score, ended: last.ended, next: last.next.map(joined) };
}

const kept = node => node.next.length ? node.next.some(kept) : node.ended;
const list = nodes => h("ul", {}, nodes.map(n => h("li", {}, h("code", {}, n.text),
  n.next.length ? list(n.next) : ` ${n.ended ? "■" : "×"} ${n.score.toFixed(3)}`)));
