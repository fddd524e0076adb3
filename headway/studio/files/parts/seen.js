// What a model sees of training examples: tokens with their ids and the ones that count, pictures, spectrograms, curves.

import { count, fill, h, number, style, svg, table } from "../dom.js";

/** Samples as the server describes them; `more(first)` shows others. */
export function seenSamples(seen, more) {
  style("data");
  const last = seen.first + seen.samples.length;
  const step = (text, first, on) => h("button", { disabled: !on, onclick: () => more(first) }, text);
  return h("div", {},
    h("div", { class: "row" }, h("span", { class: "soft" }, seen.of > 1
      ? `Training samples ${count(seen.first + 1)} to ${count(last)} of ${count(seen.of)}, in the order of the first epoch` : "The only training sample"),
    step("Before", Math.max(0, seen.first - 3), seen.first > 0), step("Next", last, last < seen.of)),
    h("div", { class: seen.samples.flat().some(view => view.kind === "tokens") ? "" : "side-by-side" }, seen.samples.map((views, i) =>
      h("article", { class: "card sample", "aria-label": `sample ${seen.first + i + 1}` }, views.map(draw)))));
}

function draw(view) {
  if (view.kind === "tokens") return tokens(view);
  if (view.kind === "label") return h("p", { class: "target" }, h("b", {}, "label"), " ", view.text);
  if (view.kind === "curves") return curves(view);
  if (view.image) return h("figure", { class: view.kind }, h("img", { src: view.image, alt: `${view.kind}: ${view.name}` }), h("figcaption", {}, view.name));
  return h("p", { class: "soft" }, `numbers, ${view.name}: `, h("code", {}, view.first.join(" "), " …"));
}

/** A token as it is shown: its spaces and line breaks are visible. */
export const visible = text => text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll(" ", "·") || "∅";

function tokens(view) {
  const rows = view.tokens.map((token, i) => [count(i + 1), count(token.id), visible(token.text), token.counts ? token.wanted ? visible(token.wanted) : "yes" : ""]);
  const counts = view.asks ? view.next
    ? `${count(view.counted)} marked tokens are learned: each from all before it`
    : `${count(view.counted)} marked tokens are learned, below each what should be said there` : "";
  const host = h("div", { class: "tokens" + (view.tokens.some(token => token.wanted) ? " with-wanted" : "") });
  fill(host, view.tokens.map((token, i) => h("span", { class: token.counts ? "token counts" : "token",
    title: `token ${i + 1}, id ${token.id}${token.counts ? ", counts in the loss" : ""}${token.wanted ? ", wanted: " + token.wanted : ""}` },
  h("span", {}, visible(token.text)), h("small", {}, token.wanted ? visible(token.wanted) : String(token.id)))));
  const size = view.tokens.length + view.left_out;
  return h("section", {},
    h("p", { class: "soft" }, h("b", {}, view.name === "writes" ? "The model writes" : "The model reads"), ` ${count(size)} tokens`,
      view.padding ? ` and ${count(view.padding)} of padding` : "", counts && ". " + counts, "."),
    host, view.left_out > 0 && h("p", { class: "soft" }, `… and ${count(view.left_out)} more`),
    h("details", {}, h("summary", {}, "Tokens as a table"),
      table(["place", "id", "token", "counts"], rows, { label: "tokens", numeric: [0, 1] })));
}

function curves(view) {
  const all = view.curves.flat(), low = Math.min(...all), high = Math.max(...all), wide = Math.max(2, view.curves[0].length);
  const y = v => 58 - 56 * (v - low) / (high - low || 1);
  return h("figure", { class: "curves" }, svg("svg", { viewBox: "0 0 600 60", preserveAspectRatio: "none", role: "img",
    "aria-label": `${view.name}, values from ${number(low)} to ${number(high)}` },
  view.curves.map((values, i) => svg("path", { class: "c" + i % 5,
    d: values.map((v, x) => (x ? "L" : "M") + (600 * x / (wide - 1)).toFixed(1) + " " + y(v).toFixed(1)).join("") }))),
  h("figcaption", {}, `${view.name}, from ${number(low)} to ${number(high)}`));
}
