// One head: as a matrix, and as lines from each token to the tokens that it looks at.

import { matrix } from "../chart.js";
import { h, svg } from "../dom.js";
import { percent } from "./bars.js";
import { brief, seen } from "./labels.js";

const LINES = 64, ROW = 20, SIDE = 112;

/** Rows of a map, with null where a causal mask hides a key. */
export function mapRows({ shape: [rows, columns], values }, causal) {
  return Array.from({ length: rows }, (_, q) => Array.from({ length: columns }, (_, k) => causal && k > q ? null : values[q * columns + k]));
}

/** The matrix; a click or Enter opens the arithmetic of a cell. */
export function headMatrix(host, map, { causal, queries, keys, label, oncell = null }) {
  const made = matrix(host, mapRows(map, causal), { rows: queries.map(t => seen(t.label)), columns: keys.map(t => seen(t.label)), label, say: v => v === null ? "hidden" : percent(v),
    onpick: oncell && ((q, k) => q >= 0 && k >= 0 && q < queries.length && k < keys.length && oncell(q, k)) });
  return made;
}

/** Lines from queries on the left to keys on the right; one query alone if it is picked. */
export function headLines(map, { queries, keys, picked = null, onquery }) {
  const { shape: [rows, columns], values } = map, n = Math.min(rows, LINES), m = Math.min(columns, LINES), width = 2 * SIDE + 190;
  const y = i => 14 + i * ROW, picture = svg("svg", { viewBox: `0 0 ${width} ${Math.max(n, m) * ROW + 8}`, width, height: Math.max(n, m) * ROW + 8, class: "x-lines", role: "group", "aria-label": "Lines from each token to what it looks at" });
  const lines = svg("g", { "aria-hidden": "true" });
  for (let q = 0; q < n; q++) for (let k = 0; k < m; k++) {
    const weight = values[q * columns + k];
    if (weight < 0.02 || (picked !== null && q !== picked)) continue;
    lines.append(svg("line", { x1: SIDE, y1: y(q), x2: width - SIDE, y2: y(k), "stroke-width": 0.6 + 4 * weight, style: { opacity: Math.min(1, 0.08 + weight) } }));
  }
  const name = (token, i, left) => {
    const pick = () => onquery(i === picked ? null : i), share = !left && picked !== null ? values[picked * columns + i] : null;
    return svg("g", left ? { role: "button", tabindex: "0", class: "query" + (i === picked ? " picked" : ""), "aria-pressed": String(i === picked), "aria-label": `lines of ${token.label}`,
      onclick: pick, onkeydown: event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(); } } } : { class: "key", style: share === null ? {} : { opacity: 0.35 + 0.65 * Math.min(1, 2 * share) } },
    svg("rect", { x: left ? 0 : width - SIDE + 4, y: y(i) - ROW / 2 + 1, width: SIDE - 4, height: ROW - 2, rx: 4 }),
    svg("text", { x: left ? SIDE - 8 : width - SIDE + 10, y: y(i) + 4, "text-anchor": left ? "end" : "start" }, brief(token.label, 13), share !== null && share >= 0.02 ? "  " + percent(share) : ""));
  };
  picture.append(lines, ...queries.slice(0, n).map((t, i) => name(t, i, true)), ...keys.slice(0, m).map((t, i) => name(t, i, false)));
  return h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Attention lines" }, picture,
    Math.max(rows, columns) > LINES && h("p", { class: "soft" }, `The first ${LINES} positions are drawn.`));
}

/** What a head looks at, with the shares of its attention. */
export function headWords(stats) {
  const names = { previous: "previous token", next: "next token", self: "itself", first: "first token", separator: "separators", same: "same token elsewhere" };
  const shares = Object.entries(stats.shares).filter(([, v]) => v >= 0.01).sort((a, b) => b[1] - a[1]).slice(0, 4);
  return h("p", { class: "soft" }, `Looks at ${stats.looks_at}, spread over ${stats.keys.toFixed(1)} keys`, stats.distance !== null && `, ${stats.distance.toFixed(1)} positions away`, ". ",
    shares.map(([name, v]) => `${names[name]} ${percent(v)}`).join(" · "));
}
