// Change the model while it runs: take away or scale heads and layers, and watch its answer move.

import { h, fill, number, problem } from "../dom.js";
import { bars } from "./bars.js";
import { headGrid } from "./heads.js";

const WAIT = 40;  // milliseconds after the last move of a slider
const same = (a, b) => a.kind === b.kind && a.layer === b.layer && a.head === b.head && a.part === b.part;
const nameOf = c => `Layer ${c.layer + 1}, ` + (c.head !== null ? `head ${c.head + 1}` : c.part === "ffn" ? "feed-forward" : "all heads") + (c.kind === "cross" ? " (cross)" : "");

/** What has been changed, as a list that pages share; `onchange` hears of each move, and whether the list has another length. */
export function changeList(onchange) {
  const list = [];
  return {
    list,
    at: (kind, layer, head, part = "") => list.find(c => same(c, { kind, layer, head, part })) ?? null,
    set(kind, layer, head, factor, part = "") {
      const found = list.find(c => same(c, { kind, layer, head, part }));
      if (found) found.factor = factor; else list.push({ kind, layer, head, part, factor });
      onchange(!found);
    },
    drop(change) { list.splice(list.indexOf(change), 1); onchange(true); },
    clear() { list.length = 0; onchange(true); },
  };
}

/** A slider for one part of the model. */
export function strength(change, changes, { onlabel = nameOf } = {}) {
  const value = h("output", {}, "× " + number(change.factor, 3));
  const slider = h("input", { type: "range", min: 0, max: 3, step: 0.05, value: change.factor, "aria-label": "strength of " + onlabel(change) });
  slider.addEventListener("input", () => { value.textContent = "× " + number(+slider.value, 3); changes.set(change.kind, change.layer, change.head, +slider.value, change.part); });
  return h("div", { class: "x-strength row" }, h("span", {}, onlabel(change)), slider, value,
    h("button", { class: "quiet", onclick: () => changes.drop(change) }, "As it was"));
}

/** Answers before and after, kept up to date: returns {node, update(pass, changes, position)}. */
export function effect(signal) {
  const node = h("div", { class: "x-effect", "aria-live": "polite" });
  let timer = 0, asked = 0;
  function update(pass, changes, position) {
    clearTimeout(timer);
    if (!changes.length) { fill(node, bars(pass.predictions[Math.min(position, pass.predictions.length - 1)])); return; }
    timer = setTimeout(async () => {
      const mine = ++asked;
      try {
        const found = await pass.fresh("change", { changes, position: Math.min(position, pass.predictions.length - 1) });
        if (mine !== asked || signal.aborted) return;
        fill(node, bars(found.answers), found.divergence !== null && h("p", { class: "soft" }, `The answers moved by ${number(found.divergence, 3)} nats (Kullback–Leibler divergence).`));
      } catch (error) {
        if (error.name !== "AbortError") fill(node, problem(error));
      }
    }, WAIT);
  }
  return { node, update };
}

/** All heads, to be switched off by a click; and sliders for what is changed. Both stay in place while `redraw` updates them. */
export function changeView({ heads, kind, info, changes, causal }) {
  const grid = headGrid(heads, { causal, side: Math.max(20, Math.min(48, Math.floor(560 / info.heads) - 6)), changed: (layer, head) => changes.at(kind, layer, head)?.factor ?? null,
    onpick: (layer, head) => { const found = changes.at(kind, layer, head); found ? changes.drop(found) : changes.set(kind, layer, head, 0); } });
  const layers = h("select", { "aria-label": "layer" }, Array.from({ length: info.layers }, (_, i) => h("option", { value: i }, `layer ${i + 1}`)));
  const off = part => changes.set(kind, +layers.value, null, 0, part), list = h("div", { class: "x-list" });
  const listed = () => fill(list, changes.list.length > 0 && [h("h3", {}, "Changed"), changes.list.map(c => strength(c, changes)), h("button", { onclick: () => changes.clear() }, "Undo all")]);
  listed();
  return { list, redraw(longer) { grid.redraw(); if (longer) listed(); },
    node: h("div", {}, h("p", { class: "soft" }, "Click a head to take it away, once more to bring it back. A slider then scales what it adds."),
      h("div", { class: "row" }, "A whole layer: ", layers, h("button", { onclick: () => off("attention") }, "Without its attention"), !info.cross && h("button", { onclick: () => off("ffn") }, "Without its feed-forward")), h("div", { class: "x-gap" }), grid) };
}
