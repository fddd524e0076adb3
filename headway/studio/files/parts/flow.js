// The flow of a model: a lane for each token, a band for each layer, drawn to the true norms of this input.

import { h, number, svg } from "../dom.js";
import { brief } from "./labels.js";
import { colour, css } from "./maps.js";

const ROW = 26, TOP = 46, LABEL = 118, STRIP = 84, LANES = 40;
const BRANCHES = { attention: ["attention", "--accent"], cross: ["attention to the encoder", "--good"], ffn: ["feed-forward", "--violet"] };

/**
 * seen: one kind of a pass (tokens, layers, heads, norms, causal). looks: (L, S), where the picked position looks.
 * Returns an element; picking a token or a layer calls back.
 */
export function flow(seen, { name, room = 760, position, layer, looks, embeddings, entry, exit, onposition, onlayer }) {
  const first = position < LANES ? 0 : Math.min(position - LANES / 2, seen.tokens.length - LANES);
  const tokens = seen.tokens.slice(first, first + LANES), layers = seen.layers;
  const branches = Object.keys(BRANCHES).filter(key => seen.norms[key]);
  const share = (room - LABEL - STRIP - 80) / layers, least = layers > 16 ? 28 : 26 + 16 * branches.length, band = Math.max(least, Math.min(240, share * 0.8)), gap = Math.max(8, Math.min(60, share * 0.2));
  const start = LABEL + STRIP + 22, x = i => start + i * (band + gap), y = i => TOP + (i - first) * ROW + ROW / 2;
  const width = x(layers) + 52, height = TOP + tokens.length * ROW + 8;
  const thick = thickness(seen.norms.residual);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "flow", role: "group",
    "aria-label": `${name}: ${tokens.length} tokens through ${layers} layers` });

  for (let i = 0; i < layers; i++) picture.append(bandOf(i));
  for (let t = first; t < first + tokens.length; t++) picture.append(lane(t));
  if (looks) for (let i = 0; i < layers; i++) picture.append(curves(i));
  picture.append(heads());
  const more = seen.tokens.length - tokens.length;
  return h("div", {}, h("div", { class: "wide flow-box", tabindex: "0", role: "region", "aria-label": "Flow of the model" }, picture),
    more > 0 && h("p", { class: "soft" }, `${tokens.length} of ${seen.tokens.length} positions are drawn, around the picked one.`));

  function bandOf(i) {
    const pick = () => onlayer(i);
    return svg("g", { class: "band" + (i === layer ? " picked" : ""), role: "button", tabindex: "0", "aria-pressed": String(i === layer),
      "aria-label": `Layer ${i + 1} of ${layers}, ${seen.heads} heads`, onclick: pick, onkeydown: pressed(pick) },
    svg("title", {}, `layer ${i + 1}: look inside`),
    svg("rect", { x: x(i), y: TOP - 6, width: band, height: height - TOP + 2, rx: 8 }),
    svg("text", { x: x(i) + band / 2, y: TOP - 26, class: "head" }, layers > 16 ? i + 1 : "layer " + (i + 1)));
  }

  function lane(t) {
    const token = seen.tokens[t], at = t === position, pick = () => onposition(t);
    const group = svg("g", { class: "lane" + (at ? " picked" : "") });
    group.append(svg("g", { role: "button", tabindex: "0", class: "name", "aria-pressed": String(at), onclick: pick, onkeydown: pressed(pick),
      "aria-label": `token ${t + 1}: ${token.label}` },
    svg("rect", { x: 2, y: y(t) - ROW / 2 + 2, width: LABEL - 8, height: ROW - 4, rx: 5 }),
    svg("text", { x: LABEL - 14, y: y(t) + 4 }, brief(token.label, 13))));
    if (embeddings && embeddings.sum[t]) group.append(cells(embeddings.sum[t], t));
    const stops = [LABEL + STRIP, ...Array.from({ length: layers }, (_, i) => x(i) + band / 2), width - 40];
    for (let i = 0; i <= layers; i++) {
      const size = seen.norms.residual[i][t];
      group.append(svg("line", { x1: stops[i], x2: stops[i + 1], y1: y(t), y2: y(t), "stroke-width": thick(size), class: "stream" },
        svg("title", {}, `${brief(token.label)}: length ${number(size, 3)} ${i ? "after layer " + i : "at the start"}`)));
    }
    for (let i = 0; i < layers; i++) branches.forEach((key, b) => group.append(added(i, t, key, b)));
    return group;
  }

  function cells(values, t) {
    const group = svg("g", { "aria-hidden": "true" }), most = Math.max(1e-9, ...embeddings.sum.flat().map(Math.abs));
    const [zero, above, below] = ["--back", "--accent", "--warm"].map(colour);
    values.slice(0, 12).forEach((v, i) => {
      const part = Math.min(1, Math.abs(v) / most * 1.6), to = v >= 0 ? above : below;
      group.append(svg("rect", { x: LABEL + 2 + i * 6, y: y(t) - 7, width: 5.4, height: 14,
        style: { fill: css(zero.map((c, k) => Math.round(c + (to[k] - c) * part))) } }));
    });
    return group;
  }

  function added(i, t, key, b) {
    const inner = (band - 12) / branches.length, left = x(i) + 6 + b * inner;
    const adds = seen.norms[key][i][t], before = seen.norms.residual[i][t], share = adds / (adds + before || 1);
    return svg("rect", { x: left + 3, y: y(t) - 5, height: 10, rx: 2, width: Math.max(1, share * (inner - 6)), class: "adds",
      style: { fill: `var(${BRANCHES[key][1]})` } },
    svg("title", {}, `${BRANCHES[key][0]} of layer ${i + 1} adds a vector of length ${number(adds, 3)} to one of ${number(before, 3)}`));
  }

  function curves(i) {
    const group = svg("g", { class: "curves", "aria-hidden": "true" }), from = i ? x(i - 1) + band : LABEL + STRIP - 4, to = x(i) + 6, middle = (from + to) / 2;
    looks[i].forEach((weight, s) => {
      if (weight < 0.04 || s < first || s >= first + tokens.length) return;
      group.append(svg("path", { d: `M${from} ${y(s)} C${middle} ${y(s)} ${middle} ${y(position)} ${to} ${y(position)}`,
        style: { opacity: Math.min(1, 0.15 + weight) }, "stroke-width": 1 + 3 * weight }));
    });
    return group;
  }

  function heads() {
    const small = (px, text, sub) => [svg("text", { x: px, y: TOP - 26, class: "head" }, text), sub && svg("text", { x: px, y: TOP - 12, class: "sub" }, sub)];
    const inner = (band - 12) / branches.length, names = { attention: "attn", cross: "cross", ffn: "ffn" };
    return svg("g", { "aria-hidden": "true" }, small(LABEL - 30, "tokens", ""), small(LABEL + STRIP / 2, "embedding", entry), small(width - 26, "head", exit),
      Array.from({ length: layers }, (_, i) => branches.map((key, b) => band >= 30 * branches.length &&
        svg("text", { x: x(i) + 6 + (b + 0.5) * inner, y: TOP - 12, class: "sub" }, names[key]))),
      svg("rect", { x: width - 40, y: TOP - 6, width: 26, height: height - TOP + 2, rx: 8, class: "end" }));
  }
}

const pressed = act => event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); } };

/** Norms span orders of magnitude (first tokens of many models are huge), so their logarithm makes the thickness. */
function thickness(norms) {
  const all = norms.flat().filter(v => v > 0), low = Math.log(Math.min(...all)), high = Math.log(Math.max(...all));
  return v => high - low < 0.05 ? 3 : 1.2 + 7 * Math.max(0, Math.log(v) - low) / (high - low);
}
