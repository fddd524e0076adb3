// Inside one layer, at one token: attention, residual connections, norms, feed-forward, with the numbers of this input.

import { h, number } from "../dom.js";
import { percent } from "./bars.js";
import { mapPainter, painted, strip, unpack } from "./maps.js";

const arrow = () => h("span", { class: "x-arrow", "aria-hidden": "true" }, "→");
const box = (look, title, ...inside) => h("div", { class: "x-box " + look }, h("h4", {}, title), inside);

/** stack: its facts; norms, position, layer; heads: small pictures of all heads; neurons: of the feed-forward network. */
export function block({ stack, norms, position, layer, heads, cross, neurons, causal, onhead }) {
  const at = name => norms[name] && norms[name][layer][position], length = v => h("p", { class: "soft" }, "length ", number(v, 3));
  const norm = () => box("norm", stack.norm === "rmsnorm" ? "RMSNorm" : stack.norm === "dyt" ? "DyT" : "LayerNorm");
  const add = v => h("div", { class: "x-add" }, h("span", { class: "x-plus", title: "residual connection: added to what came in" }, "+"), h("small", {}, "adds ", h("b", {}, number(v, 3))));
  const attention = (kind, title, found, masked) => box(kind, title, h("p", { class: "soft" }, `${stack.n_heads} heads × ${stack.d_head}`, stack.n_kv_heads !== stack.n_heads && `, ${stack.n_kv_heads} of keys and values`),
    h("div", { class: "x-thumbs" }, thumbs(found, layer, masked).map((canvas, i) => h("button", { class: "quiet", title: `head ${i + 1}`, "aria-label": `${title}, head ${i + 1}`, onclick: () => onhead(kind, i) }, canvas, h("small", {}, i + 1)))));
  const ffn = box("ffn", "Feed-forward", h("p", { class: "soft" }, `${stack.d_model} → ${stack.d_ff} → ${stack.d_model}, ${stack.activation}${stack.gated ? ", gated" : ""}`),
    neurons && [strip(neurons.values.slice(0, 128), { label: "hidden values", height: 14, cell: 2 }),
      h("p", { class: "soft" }, `${percent(neurons.active)} of ${neurons.width.toLocaleString("en-GB")} neurons are above 0; the strongest: `,
        neurons.top.slice(0, 4).map(n => `${n.neuron} (${number(n.value, 2)})`).join(", "))]);
  const branches = [["attention", attention("attention", stack.causal ? "Masked self-attention" : "Self-attention", heads, causal)]];
  if (cross) branches.push(["cross", attention("cross", "Attention to the encoder", cross, false)]);
  branches.push(["ffn", ffn]);
  const order = { pre: [norm, arrow, "inside", "add"], post: ["inside", "add", arrow, norm], sandwich: [norm, arrow, "inside", arrow, norm, "add"], branch: ["inside", arrow, norm, "add"] }[stack.norm_at];
  const parts = branches.map(([name, inside]) => order.map(each => each === "inside" ? inside : each === "add" ? [arrow(), add(at(name))] : each()));
  return h("div", { class: "x-block" }, box("ends", "In", length(norms.residual[layer][position])), arrow(),
    parts.map(part => [part, arrow()]), box("ends", "Out", length(norms.residual[layer + 1][position])));
}

/** Small pictures of the heads of a layer. */
export function thumbs(found, layer, causal, side = 48) {
  const { shape: [, heads, rows, columns], values } = unpack(found.thumbs), paint = mapPainter();
  return Array.from({ length: heads }, (_, i) => {
    const canvas = h("canvas", { role: "img", "aria-hidden": "true" }), start = (layer * heads + i) * rows * columns;
    painted(canvas, side, side, pen => paint(pen, values.subarray(start, start + rows * columns), rows, columns, { width: side, height: side, causal }));
    return canvas;
  });
}
