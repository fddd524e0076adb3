// X-ray: what goes on inside a model for one input, from the whole down to the arithmetic of one cell.

import { post, put } from "../api.js";
import { count, empty, field, fill, h, problem, style, table } from "../dom.js";
import { bars, percent } from "../parts/bars.js";
import { block } from "../parts/block.js";
import { arithmetic } from "../parts/cell.js";
import { changeList, changeView, effect } from "../parts/change.js";
import { flow } from "../parts/flow.js";
import { headLines, headMatrix, headWords } from "../parts/head.js";
import { headGrid } from "../parts/heads.js";
import { brief, seen, tokenRow } from "../parts/labels.js";
import { lensTable } from "../parts/lens.js";
import { mapPainter, painted, shade, unpack } from "../parts/maps.js";
import { lastPlace, runPass } from "../parts/pass.js";
import { patchView } from "../parts/patch.js";
import { overPicture } from "../parts/picture.js";
import { picker } from "../parts/picker.js";

export const title = "X-ray";
const VIEWS = [["flow", "Flow"], ["heads", "All heads"], ["lens", "Logit lens"], ["change", "Change it"], ["patch", "Two inputs"]];
const NUMBERS = ["layer", "head", "query", "key", "position"];

export async function show(host, { query, signal, go }) {
  await Promise.all([style("playground"), style("xray")]);  // the box for models looks as it does there
  const at = { view: VIEWS.some(([name]) => name === query.get("view")) ? query.get("view") : "flow", kind: query.get("kind") || "" };
  for (const name of NUMBERS) at[name] = /^\d+$/.test(query.get(name) || "") ? +query.get(name) : null;
  const model = query.get("model") || "";
  const choose = picker({ label: "Model", value: model, signal, onpick: name => go("/xray?model=" + encodeURIComponent(name)) });
  const facts = h("p", { class: "lead" }), body = h("div");
  host.append(h("div", { class: "x-page" }, h("h1", {}, "X-ray"), facts, h("div", { class: "playground" }, choose), body));
  if (!model) {
    facts.textContent = "Every part of a model, with the numbers of your own input.";
    fill(body, empty("Pick a model above, or train one: the tour does it in a minute.", h("p", {}, h("a", { class: "button", href: "/learn" }, "Take the tour"))));
    return;
  }
  fill(body, h("p", { class: "soft", role: "status" }, "Loading the model …"));
  try {
    const card = await post("/api/xray/model", { model }, signal);
    facts.textContent = sizes(card);
    new Xray(body, { model, card, at, query, signal }).start();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    fill(body, problem(error));
  }
}

/** A model in a line: what it is, how deep and wide, how many weights. */
export function sizes(card) {
  const stacks = card.parts.filter(p => p.part === "stack"), vocab = card.parts.find(p => p.vocab);
  return [card.title, ...stacks.map(s => `${stacks.length > 1 ? s.of + ": " : ""}${s.layers} layers × ${s.n_heads} heads, ${count(s.d_model)} wide`),
    vocab && `vocabulary of ${count(vocab.vocab)}`, `${count(card.parameters)} parameters`].filter(Boolean).join(" · ");
}

class Xray {
  constructor(host, { model, card, at, query, signal }) {
    Object.assign(this, { host, model, card, at, signal, pins: [], second: "" });
    this.input = h("textarea", { rows: 2, value: query.get("input") ?? card.example.input });
    const extra = card.second || card.example.second !== undefined;
    this.pair = extra ? h("textarea", { rows: 2, value: query.get("second") ?? card.example.second ?? "" }) : null;
    this.changes = changeList(longer => { this.effect.update(this.pass, this.changes.list, this.place()); if (at.view === "change") this.panel.redraw(longer); });
    this.effect = effect(signal);
    this.out = h("div");
    this.view = h("div", { role: "tabpanel", id: "x-view", "aria-labelledby": "x-tab-" + at.view });
    this.zoom = h("div", { "aria-live": "off" });
  }

  start() {
    const button = h("button", { class: "main", onclick: () => this.run() }, "Run");
    for (const box of [this.input, this.pair]) box?.addEventListener("keydown", event => {
      if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); this.run(); }
    });
    const what = { text: "Text", image: "Picture", sound: "Sound", table: "Series", graph: "Graph" }[this.card.takes] || "Input";
    const file = ["image", "sound", "table"].includes(this.card.takes) && h("input", { type: "file", accept: { image: "image/*", sound: "audio/*" }[this.card.takes], onchange: () => this.send(file) });
    const help = this.card.takes === "text" ? "Enter runs it, Shift+Enter starts a new line." : "A path on this machine, or a made-up input such as the one above.";
    fill(this.host, h("div", { class: "x-input" }, field(what, this.input, help), this.pair && field(this.card.second === "context" ? "Context" : "Second text", this.pair), file && field("Or a file", file), button), this.out);
    return this.run();
  }

  /** Copy a file to the studio, and run it by its path there. */
  async send(box) {
    const [file] = box.files;
    if (!file) return;
    try {
      const { batch } = await post("/api/data/batch", {}, this.signal);
      this.input.value = (await put(`/api/data/upload/${batch}/${encodeURIComponent(file.name)}`, file, this.signal)).path;
      await this.run();
    } catch (error) {
      if (error.name !== "AbortError") fill(this.out, problem(error));
    }
  }

  async run() {
    const { at } = this;
    fill(this.out, h("p", { class: "soft", role: "status" }, "Running …"));
    try {
      const second = this.pair && this.pair.value.trim() ? { second: this.pair.value } : {};
      this.pass = await runPass(this.model, { input: this.input.value, ...second }, this.signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      fill(this.out, problem(error));
      return;
    }
    if (!this.pass.kinds[at.kind]) at.kind = this.pass.output;
    const info = this.info();
    if (at.position === null || at.position >= info.tokens.length) at.position = firstPlace(this.pass, info);
    for (const [name, most] of [["layer", info.layers], ["head", info.heads], ["query", info.tokens.length], ["key", (info.keys || info.tokens).length]])
      if (at[name] !== null && at[name] >= most) at[name] = null;
    this.draw();
  }

  info(kind = this.at.kind) { return this.pass.kinds[kind]; }
  own() { return this.info().cross ? this.pass.output : this.at.kind; }
  place() { return this.pass.predictions ? Math.min(this.at.position ?? 0, lastPlace(this.pass)) : 0; }
  stack(kind = this.own()) { return this.card.parts.find(p => p.part === "stack" && p.of === kind); }

  set(values) {
    Object.assign(this.at, values);
    this.remember();
    if ("view" in values || "kind" in values) this.draw();
    else {
      this.drawView();
      this.drawZoom().then(() => { if ([values.layer, values.head, values.query].some(Number.isInteger)) this.zoom.lastElementChild?.scrollIntoView({ block: "nearest" }); });
    }
    if ("position" in values && this.pass.predictions) this.effect.update(this.pass, this.changes.list, this.place());
  }

  /** The address says what is shown, so that it can be sent to somebody. */
  remember() {
    const words = new URLSearchParams({ model: this.model, input: this.input.value });
    if (this.pair && this.pair.value) words.set("second", this.pair.value);
    for (const [name, value] of Object.entries(this.at)) if (value !== null && value !== "") words.set(name, value);
    history.replaceState(null, "", "/xray?" + words);
  }

  draw() {
    this.remember();
    const { at, pass } = this, kinds = Object.keys(pass.kinds);
    const views = VIEWS.filter(([name]) => pass.predictions || !["lens", "change", "patch"].includes(name));
    const tabs = h("div", { class: "x-tabs", role: "tablist", "aria-label": "Views" }, views.map(([name, words]) => h("button", {
      role: "tab", id: "x-tab-" + name, "aria-selected": String(name === at.view), "aria-controls": "x-view", tabindex: name === at.view ? "0" : "-1", onclick: () => { this.set({ view: name }); document.getElementById("x-tab-" + name).focus(); } }, words)));
    tabs.addEventListener("keydown", event => {
      const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key], here = views.findIndex(([name]) => name === at.view);
      if (way) { event.preventDefault(); tabs.children[(here + way + views.length) % views.length].click(); }
    });
    this.view.setAttribute("aria-labelledby", "x-tab-" + at.view);
    fill(this.out, h("div", { class: "row x-bar" }, tabs, kinds.length > 1 && h("div", { class: "row", role: "group", "aria-label": "Attention" }, kinds.map(kind =>
      h("button", { "aria-pressed": String(kind === at.kind), onclick: () => this.set({ kind, layer: null, head: null, query: null, key: null, position: firstPlace(this.pass, this.info(kind)) }) }, kind))), h("a", { class: "button", href: pass.page, download: "xray.html" }, "Save as a page")),
    pass.target && h("p", { class: "soft" }, "The decoder reads: ", h("q", {}, pass.target)), this.view, this.zoom);
    this.drawView();
    this.drawZoom();
  }

  async drawView() {
    const { at, pass, signal } = this, asked = (this.asked = {});
    try {
      const made = await this["view_" + at.view]();
      if (asked === this.asked && !signal.aborted) fill(this.view, made);
    } catch (error) {
      if (error.name !== "AbortError" && asked === this.asked) fill(this.view, problem(error));
    }
  }

  async view_flow() {
    const { at, pass } = this, kind = this.own(), info = this.info(kind), stack = this.stack(kind);
    const [looks, embeddings] = await Promise.all([pass.ask("looks", { kind: at.kind, position: at.position }), pass.ask("embeddings", { kind })]);
    const front = this.card.parts.find(p => p.part === "front" && p.of === kind), head = this.card.parts.find(p => p.part === "head" && p.answers);
    const output = kind === pass.output && pass.predictions;
    const drawn = flow(info, { name: kind, room: this.view.clientWidth - (output ? 372 : 0), position: at.position, layer: at.layer, looks: this.info().cross ? null : looks, embeddings, entry: front?.vocab ? `${count(front.vocab)} → ${stack.d_model}` : stack ? "→ " + stack.d_model : "",
      exit: head && output ? "→ " + count(head.answers) : "", onposition: position => this.set({ position }), onlayer: layer => this.set({ layer: layer === at.layer ? null : layer, head: null, query: null, key: null }) });
    if (output) this.effect.update(pass, this.changes.list, this.place());
    return h("div", { class: "x-flow" }, h("div", { class: "x-main" }, drawn, h("p", { class: "soft x-legend" }, h("span", { class: "x-key stream" }, "residual stream, as thick as it is long"), h("span", { class: "x-key attention" }, "what attention adds"),
      info.norms.cross && h("span", { class: "x-key cross" }, "what attention to the encoder adds"), h("span", { class: "x-key ffn" }, "what feed-forward adds"), "Pick a token to see where it looks; pick a layer to look inside.")),
    output && h("aside", { class: "x-says" }, h("h3", {}, pass.head === "lm" ? (info.causal ? "Next after " : "In place of ") : "Answer", pass.head === "lm" && h("code", {}, seen(info.tokens[at.position].label))), this.effect.node, this.speaks()));
  }

  /** Which tokens speak for the answer. */
  speaks() {
    const { at, pass } = this, out = h("div"), place = this.place();
    return h("div", {}, h("button", { onclick: async () => {
      fill(out, h("p", { class: "soft" }, "Following gradients …"));
      try {
        const found = await pass.ask("attribution", { position: place }), most = Math.max(1e-9, ...found.values.map(Math.abs));
        fill(out, h("p", { class: "soft" }, "For ", h("b", {}, seen(String(found.answer))), found.method === "integrated" ? ", by integrated gradients" : ", by gradient × input (integrating takes long for a model of this size: headway inspect --why)", ": blue speaks for it, orange against."),
          tokenRow(found.tokens.map(t => typeof t === "string" ? { label: t } : t), { label: "Tokens and what they speak for", onpick: () => {}, shades: found.values.map(v => shade(Math.abs(v) / most, v >= 0 ? "--accent" : "--warm")) }));
      } catch (error) { if (error.name !== "AbortError") fill(out, problem(error)); }
    } }, "Which tokens speak for it?"), out);
  }

  async view_heads() {
    const { at, pass } = this, info = this.info(), found = await pass.ask("heads", { kind: at.kind });
    const grid = headGrid(found, { causal: info.causal, picked: at.head === null ? null : { layer: at.layer, head: at.head }, onpick: (layer, head) => this.set({ layer, head, query: null, key: null }) });
    const rows = found.stats.map(s => [`${s.layer + 1}.${s.head + 1}`, s.looks_at, s.keys.toFixed(1), s.distance === null ? "–" : s.distance.toFixed(1), ...["previous", "self", "next", "first", "separator", "same"].map(name => s.shares[name] === undefined ? "–" : percent(s.shares[name])),
      h("button", { class: "quiet", "aria-label": `open head ${s.layer + 1}.${s.head + 1}`, onclick: () => this.set({ layer: s.layer, head: s.head, query: null, key: null }) }, "open")]);
    return h("div", {}, this.pinned(), h("p", { class: "soft" }, `Rows are layers, columns are heads. In each picture, a row is a token that looks, a column a token that is looked at.`), grid,
      !info.cross && this.whole(info), h("details", {}, h("summary", {}, "What each head looks at, as a table"), sortable(["head", "looks at", "keys", "distance", "previous", "itself", "next", "first", "separators", "same token", ""], rows)));
  }

  /** Maps of a whole layer: the mean of its heads, and the rollout of all layers up to it. */
  whole(info) {
    const { at, pass } = this, out = h("div"), layer = h("select", { "aria-label": "layer" }, Array.from({ length: info.layers }, (_, i) => h("option", { value: i, selected: i === info.layers - 1 }, `layer ${i + 1}`)));
    const which = h("select", { "aria-label": "map" }, h("option", { value: "rollout" }, "rollout up to"), h("option", { value: "mean" }, "mean of the heads of"));
    const draw = async (picked = null) => {
      try {
        const map = unpack(await pass.ask("map", { kind: at.kind, layer: +layer.value, rolled: which.value === "rollout" }));
        if (pass.picture && info.grid) fill(out, overPicture({ picture: pass.picture, grid: info.grid, map, tokens: info.tokens, picked, onquery: draw }));
        else headMatrix(out, map, { causal: info.causal, queries: info.tokens, keys: info.tokens, label: `${which.selectedOptions[0].text} ${layer.selectedOptions[0].text}` });
      } catch (error) { if (error.name !== "AbortError") fill(out, problem(error)); }
    };
    for (const each of [layer, which]) each.addEventListener("change", () => draw());
    return h("details", { ontoggle: event => { if (event.target.open) draw(); } }, h("summary", {}, "Whole layers, and attention rollout"),
      h("p", { class: "soft" }, "The rollout multiplies the maps of all layers, each mixed with its residual connection: what a position has taken from each input by then."), h("div", { class: "row" }, which, layer), h("div", { class: "x-plane x-gap" }, out));
  }

  pinned() {
    if (!this.pins.length) return null;
    return h("section", { class: "x-pins", "aria-label": "Pinned heads" }, this.pins.map(pin => h("figure", {}, pin.canvas(), h("figcaption", {}, pin.name, h("br"), h("span", { class: "soft" }, brief(pin.input, 26)),
      h("button", { class: "quiet", "aria-label": "Unpin " + pin.name, onclick: () => { this.pins = this.pins.filter(p => p !== pin); this.drawView(); } }, "✕")))));
  }

  async view_lens() {
    const found = await this.pass.ask("lens", { top: 5 });
    return lensTable(found, this.info(this.pass.output).tokens, { position: this.at.position, onposition: position => this.set({ position }) });
  }

  async view_change() {
    const { at, pass } = this, info = this.info(), heads = await pass.ask("heads", { kind: at.kind });
    this.effect.update(pass, this.changes.list, this.place());
    const tokens = this.info(pass.output).tokens;
    this.panel = changeView({ heads, kind: at.kind, info, changes: this.changes, causal: info.causal });
    return h("div", { class: "x-flow" }, h("div", { class: "x-main" }, this.panel.node),
      h("aside", { class: "x-says" }, h("h3", {}, "Answer", pass.predictions.length > 1 && " at a token"), pass.predictions.length > 1 && tokenRow(tokens, { picked: this.place(), label: "Where the answer is read", onpick: position => this.set({ position }) }), this.effect.node, this.panel.list));
  }

  async view_patch() {
    return patchView({ pass: this.pass, kind: this.own(), signal: this.signal, second: this.second, onsecond: text => { this.second = text; } });
  }

  async drawZoom() {
    const { at, signal } = this, asked = (this.zooming = {});
    if (at.layer === null || !["flow", "heads"].includes(at.view)) { fill(this.zoom); return; }
    try {
      const parts = [this.crumbs(), at.view === "flow" && !this.info().cross && await this.layerPart(), at.head !== null && await this.headPart(), at.head !== null && at.query !== null && at.key !== null && await this.cellPart()];
      if (asked !== this.zooming || signal.aborted) return;
      fill(this.zoom, parts);
      if (at.head !== null) this.paint();  // its colours and its size are those of its place in the page
    } catch (error) {
      if (error.name !== "AbortError" && asked === this.zooming) fill(this.zoom, problem(error));
    }
  }

  crumbs() {
    const { at } = this, info = this.info(), keys = info.keys || info.tokens;
    const link = (words, values) => h("button", { class: "quiet", onclick: () => this.set(values) }, words);
    return h("nav", { class: "x-crumbs", "aria-label": "Zoom" }, link("Model", { layer: null, head: null, query: null, key: null }), " › ", link("layer " + (at.layer + 1), { head: null, query: null, key: null }),
      at.head !== null && [" › ", link("head " + (at.head + 1), { query: null, key: null })],
      at.head !== null && at.query !== null && at.key !== null && [" › ", h("b", {}, brief(info.tokens[at.query].label), " → ", brief(keys[at.key].label))]);
  }

  async layerPart() {
    const { at, pass } = this, kind = this.own(), info = this.info(kind), cross = pass.kinds.cross && kind === pass.output;
    const [heads, other, neurons] = await Promise.all([pass.ask("heads", { kind }), cross ? pass.ask("heads", { kind: "cross" }) : null,
      pass.ask("neurons", { kind, layer: at.layer, position: at.position }).catch(error => { if (error.status === 400) return null; throw error; })]);
    return h("section", {}, h("h2", {}, `Layer ${at.layer + 1} at `, h("code", {}, seen(info.tokens[at.position].label))),
      block({ stack: this.stack(kind), norms: info.norms, position: at.position, layer: at.layer, heads, cross: other, neurons, causal: info.causal,
        onhead: (name, head) => this.set({ kind: name === "cross" ? "cross" : kind, head, query: null, key: null }) }));
  }

  async headPart() {
    const { at, pass } = this, info = this.info(), keys = info.keys || info.tokens, where = { kind: at.kind, layer: at.layer, head: at.head };
    const [packed, heads] = await Promise.all([pass.ask("map", where), pass.ask("heads", { kind: at.kind })]), map = unpack(packed);
    const stats = heads.stats.find(s => s.layer === at.layer && s.head === at.head), name = `${at.kind === pass.output ? "" : at.kind + " "}layer ${at.layer + 1}, head ${at.head + 1}`;
    const plane = h("div", { class: "x-plane" }), lines = h("div"), strengthBox = h("div");
    const over = pass.picture && info.grid, plain = "Pick a token on the left to see its lines alone.";
    const drawLines = () => fill(lines, over ? overPicture({ picture: pass.picture, grid: info.grid, map, tokens: info.tokens, picked: at.query, onquery: query => { at.query = query; at.key = null; this.remember(); drawLines(); } }) : headLines(map, { queries: info.tokens, keys, picked: at.query, onquery: query => { at.query = query; at.key = null; this.remember(); drawLines(); } }));
    const made = h("section", {}, h("h2", {}, "Head: " + name), headWords(stats),
      h("div", { class: "row" }, h("button", { onclick: () => this.pin(name, map, info.causal) }, "Pin"), pass.predictions && this.scaler(where)),
      h("div", { class: "x-two" }, h("div", {}, h("h3", {}, "Matrix"), h("p", { class: "soft" }, "Pick a cell to see its arithmetic."), plane), h("div", {}, h("h3", {}, over ? "Picture" : "Lines"), h("p", { class: "soft" }, over ? "Bright is what the marked patch looks at. Pick another patch." : plain), lines)), strengthBox);
    drawLines();
    this.paint = () => headMatrix(plane, map, { causal: info.causal, queries: info.tokens, keys, label: "Attention of " + name, oncell: (query, key) => this.set({ query, key }) });
    return made;
  }

  /** A slider that scales this head; its effect stands beside the flow. */
  scaler({ kind, layer, head }) {
    const found = this.changes.at(kind, layer, head), value = h("output", {}, "× " + (found?.factor ?? 1));
    const slider = h("input", { type: "range", min: 0, max: 3, step: 0.05, value: found?.factor ?? 1, "aria-label": "strength of this head",
      oninput: () => { value.textContent = "× " + slider.value; this.changes.set(kind, layer, head, +slider.value); } });
    return h("label", { class: "row" }, "Strength", slider, value);
  }

  pin(name, map, causal) {
    const { shape: [rows, columns], values } = map, input = this.pass.input;
    const canvas = () => { const made = h("canvas", { role: "img", "aria-label": `${name} for ${input}` }); painted(made, 150, 150, pen => mapPainter()(pen, values, rows, columns, { width: 150, height: 150, causal })); return made; };
    this.pins.push({ name, input, canvas });
    this.set({ view: "heads" });
  }

  async cellPart() {
    const { at, pass } = this, info = this.info(), keys = info.keys || info.tokens;
    const found = await pass.ask("cell", { kind: at.kind, layer: at.layer, head: at.head, query: at.query, at: at.key });
    return h("section", {}, h("h2", {}, "One cell: ", h("code", {}, seen(info.tokens[at.query].label)), " looks at ", h("code", {}, seen(keys[at.key].label))), arithmetic(found, info.tokens[at.query], keys[at.key], keys));
  }
}

/** Where a person wants to look first: at the answer, at the blank, at the last token. */
const firstPlace = (pass, info) => pass.predictions && pass.predictions.length === info.tokens.length ? pass.place : info.causal ? info.tokens.length - 1 : 0;

/** A table that a click on a column's name sorts. */
function sortable(head, rows) {
  const host = h("div");
  let by = 0, down = false;
  const value = cell => typeof cell === "string" && cell !== "" && !Number.isNaN(parseFloat(cell)) ? parseFloat(cell) : cell;
  const draw = () => {
    const sorted = [...rows].sort((a, b) => { const x = value(a[by]), y = value(b[by]); return (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y))) * (down ? -1 : 1); });
    fill(host, table(head.map((name, i) => name && h("button", { class: "quiet", onclick: () => { down = by === i ? !down : i > 1; by = i; draw(); } }, name)), sorted, { caption: "Heads", numeric: [2, 3, 4, 5, 6, 7, 8, 9] }));
  };
  draw();
  return host;
}
