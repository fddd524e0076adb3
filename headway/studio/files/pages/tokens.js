// Tokens: one text through several tokenizers; merges step by step; tokenizers trained here; vocabularies; languages.

import { post } from "../api.js";
import { h, fill, count, empty, field, number, problem, style, table } from "../dom.js";
import { LANGUAGES, SAMPLE } from "../parts/languages.js";
import { mergePlayer } from "../parts/merges.js";
import { picker } from "../parts/picker.js";
import { bars } from "../parts/results.js";
import { visible } from "../parts/tokens.js";

export const title = "Tokens";

const VIEWS = [["compare", "Compare"], ["merges", "Merges"], ["train", "Train one here"], ["vocabulary", "Vocabulary"], ["languages", "Languages"]];
const MOST = 4, WAIT = 250, FIRST = "Tokenizers split unbelievably: naïve cafés, 3.14159, 東京 and 🙂 too.";
const kept = { text: FIRST, training: SAMPLE, kind: "bpe", size: 400, lower: false };  // while the studio is open in this tab

export async function show(host, { query, signal }) {
  await style("playground");  // the box for models, tabs and bars look the same there
  await style("tokens");
  const names = [...new Set(query.getAll("tokenizer").length ? query.getAll("tokenizer") : ["bytes"])].slice(0, MOST);
  let view = VIEWS.some(([key]) => key === query.get("view")) ? query.get("view") : "compare", leave = new AbortController();
  const body = h("div"), chips = h("ul", { class: "chips", "aria-label": "tokenizers" }), tabs = h("div", { class: "row tabs", role: "group", "aria-label": "views" });
  const pick = picker({ label: "Add a tokenizer: of a run, a folder, a model", signal, only: model => model.group !== "Presets",
    onpick: name => { pick.querySelector("input").value = ""; add(name); } });
  signal.addEventListener("abort", () => leave.abort());
  fill(host, h("div", { class: "playground tokenizers" }, h("h1", {}, "Tokens"), h("p", { class: "lead" }, "Models read pieces of text, not letters or words. Here is how a text becomes such pieces, and where they come from."),
    h("div", { class: "row choice" }, pick, h("button", { onclick: () => add("bytes") }, "Add bytes")), chips, tabs, body));

  function add(name) {
    if (!names.includes(name)) { names.unshift(name); names.length = Math.min(MOST, names.length); }
    draw();
  }
  function draw(to = view) {
    view = to;
    leave.abort();
    leave = new AbortController();
    const address = new URLSearchParams([...names.map(name => ["tokenizer", name]), ["view", view]]);
    history.replaceState(null, "", "/tokens?" + address);
    fill(chips, names.map(name => h("li", {}, name, h("button", { class: "quiet", "aria-label": "leave out " + name, onclick: () => { names.splice(names.indexOf(name), 1); draw(); } }, "✕"))));
    fill(tabs, VIEWS.map(([key, label]) => h("button", { "aria-pressed": String(key === view), onclick: () => draw(key) }, label)));
    if (!names.length && view !== "train") fill(body, empty("Add a tokenizer above, or train one here.", h("button", { onclick: () => draw("train") }, "Train one here")));
    else fill(body, PAGES[view]({ names, signal: leave.signal, add, draw }));
  }
  draw();
}

/** What several tokenizers say, each in its place; one that fails does not stop the others. */
async function each(names, host, signal, ask) {
  const cards = names.map(name => h("section", { class: "card", "aria-label": name }, h("h2", {}, name), h("div", { class: "soft" }, "…")));
  if (host.children.length !== names.length) fill(host, cards);
  await Promise.all(names.map(async (name, i) => {
    let found;
    try { found = await ask(name); } catch (error) { if (signal.aborted) return; found = problem(error); }
    if (!signal.aborted) host.children[i]?.replaceWith(h("section", { class: "card", "aria-label": name }, h("h2", {}, name), found));
  }));
}

function box(label, key, rows, onchange) {
  const area = h("textarea", { rows, spellcheck: "false", oninput: () => { kept[key] = area.value; onchange?.(); } });
  area.value = kept[key];
  return field(label, area);
}

const PAGES = { compare, merges, train, vocabulary, languages };

function compare({ names, signal }) {
  const host = h("div", { class: "several" });
  let timer = 0, turn = 0;
  const ask = () => { const mine = ++turn; each(names, host, signal, async name => pieces(await post("/api/tokens/split", { tokenizer: name, text: kept.text }, signal), () => mine === turn)); };
  ask();
  return [box("Text", "text", 3, () => { clearTimeout(timer); timer = setTimeout(ask, WAIT); }), host];
}

/** A text as pieces with visible spaces; the line below explains the piece under the pointer or the focus. */
function pieces(found) {
  const told = h("p", { class: "piece-told mono soft", role: "status" }, "Point at a piece, or move with the arrow keys.");
  let current = 0;
  const explain = (token, i) => fill(told, `id ${token.id} · `, token.unknown ? "unknown to this vocabulary · " : "", token.inserted ? "added by the tokenizer" : `bytes ${token.bytes} · characters ${token.start}–${token.end}`, ` · in the vocabulary ${token.piece}`);
  const made = found.tokens.map((token, i) => h("span", { class: `piece look${i % 4}` + (token.unknown ? " unknown" : "") + (token.inserted ? " inserted" : ""), role: "button", tabindex: i ? "-1" : "0",
    "aria-label": `${visible(token.text)}, id ${token.id}`, onmouseenter: () => explain(token, i), onfocus: () => { current = i; explain(token, i); } }, visible(token.text)));
  const keys = event => {
    const to = { ArrowLeft: current - 1, ArrowRight: current + 1, Home: 0, End: made.length - 1 }[event.key];
    if (to === undefined || !made.length) return;
    made[current].setAttribute("tabindex", "-1");
    current = Math.max(0, Math.min(made.length - 1, to));
    made[current].setAttribute("tabindex", "0");
    made[current].focus();
    event.preventDefault();
  };
  const letters = [...kept.text].length;
  return [h("p", { class: "figures" }, figure(found.of_text, "tokens"), figure(found.of_text ? number(letters / found.of_text, 3) : "–", "characters per token"),
    figure(found.of_text ? number(found.bytes / found.of_text, 3) : "–", "bytes per token"), figure(found.vocabulary, "in the vocabulary"), found.unknown > 0 && figure(found.unknown, "unknown")),
    h("div", { class: "pieces", role: "group", "aria-label": "pieces", onkeydown: keys }, made), told,
    h("details", {}, h("summary", {}, "As a table"), table(["place", "id", "piece", "bytes", "characters"],
      found.tokens.map((t, i) => [i, t.id, visible(t.text), t.bytes, t.inserted ? "–" : `${t.start}–${t.end}`]), { caption: "tokens of " + found.name, numeric: [0, 1] }))];
}
const figure = (value, name) => h("span", {}, h("strong", {}, typeof value === "number" ? count(value) : value), " ", h("small", { class: "soft" }, name));

function merges({ names, signal, draw }) {
  const host = h("div", { class: "several one" });
  let timer = 0;
  const ask = () => { fill(host); each(names, host, signal, async name => {
    const found = await post("/api/tokens/merges", { tokenizer: name, text: kept.text }, signal);
    return found.none ? splits(name, found) : mergePlayer(found, { signal });
  }); };
  ask();
  return [h("p", { class: "soft" }, "Byte pair encoding starts from single characters and merges the most frequent pair, again and again. A tokenizer that was trained here shows the merges of its training text; others show those of this text."),
    box("Text", "text", 3, () => { clearTimeout(timer); timer = setTimeout(ask, 2 * WAIT); }), host,
    h("p", {}, h("button", { onclick: () => draw("train") }, "Train one and watch it"))];
}

/** For tokenizers without merges: each word with its pieces; unigram models also say how likely a way to split is. */
function splits(name, { none, words }) {
  const scored = words.some(word => word.scores.length), sum = list => list.reduce((a, b) => a + b, 0).toFixed(2);
  return [h("p", { class: "soft" }, none + "."), table(["word", "pieces", ...(scored ? ["score", "second best", "score"] : [])],
    words.map(word => [visible(word.text), word.pieces.map(visible).join(" · "), ...(scored ? [word.scores.length ? sum(word.scores) : "–", word.other.map(visible).join(" · ") || "–", word.other.length ? word.other_score.toFixed(2) : "–"] : [])]),
    { caption: scored ? `The likeliest way to split each word, by the log-probabilities that ${name} has for its pieces` : `Each word and its pieces, by ${name}`, numeric: scored ? [2, 4] : [] })];
}

function train({ signal, add, draw }) {
  const KINDS = [["bpe", "byte pair encoding: merges of frequent neighbours"], ["wordpiece", "WordPiece: BERT's words and ##continuations"], ["unigram", "Unigram: the most probable subwords"],
    ["words", "whole words"], ["chars", "single characters"], ["bytes", "bytes: nothing to learn"]];
  const kind = h("select", { onchange: () => { kept.kind = kind.value; sized(); } }, KINDS.map(([key, name]) => h("option", { value: key }, name)));
  const size = h("input", { type: "number", min: 0, max: 50000, class: "short", value: kept.size, oninput: () => { kept.size = +size.value; } });
  const lower = h("input", { type: "checkbox", onchange: () => { kept.lower = lower.checked; } }), wrong = h("div"), go = h("button", { class: "main", onclick: run }, "Train");
  kind.value = kept.kind;
  lower.checked = kept.lower;
  const sized = () => { size.disabled = ["chars", "bytes"].includes(kind.value); };
  sized();
  async function run() {
    go.disabled = true;
    fill(wrong);
    try {
      const made = await post("/api/tokens/train", { kind: kind.value, text: kept.training, size: size.disabled ? 0 : +size.value, lower: lower.checked }, signal);
      add(made.name);
      draw(kind.value === "bpe" ? "merges" : "compare");
    } catch (error) { if (!signal.aborted) fill(wrong, problem(error)); }
    go.disabled = false;
  }
  const small = field("Lower case", lower);
  small.classList.add("switch");
  return [box("Text to train on", "training", 10), h("div", { class: "row train" }, field("Kind", kind), field("Vocabulary size", size, "with bpe and unigram, 256 of them are bytes"), small, go), wrong,
    h("p", { class: "soft" }, "A text of your own shows more: paste an article, code, or another language. The tokenizer stays in memory until the studio stops.")];
}

function vocabulary({ names, signal }) {
  const host = h("div", { class: "several" }), words = h("input", { type: "search", placeholder: "a piece, or an id", oninput: () => { clearTimeout(timer); timer = setTimeout(ask, WAIT); } });
  let timer = 0;
  const ask = () => each(names, host, signal, async name => {
    const found = await post("/api/tokens/vocabulary", { tokenizer: name, query: words.value }, signal);
    return [h("p", { class: "soft" }, `${count(found.found)} of ${count(found.of)} entries` + (found.found > found.rows.length ? `, the first ${found.rows.length}` : "")),
      h("div", { class: "scroll" }, table(["id", "piece", "in the file"], found.rows.map(row => [row.id, visible(row.text), row.piece]), { caption: "entries of " + name, numeric: [0] }))];
  });
  ask();
  return [field("Search the vocabulary", words), host];
}

function languages({ names, signal }) {
  const host = h("div", { class: "several" });
  each(names, host, signal, async name => {
    const { counts } = await post("/api/tokens/count", { tokenizer: name, texts: LANGUAGES.map(([, , text]) => text) }, signal);
    const base = counts[0].tokens || 1, most = Math.max(...counts.map(each => each.tokens));
    const said = ({ tokens, unknown }) => unknown ? `${count(tokens)}, ${unknown} unknown` : `${count(tokens)} · ${(tokens / base).toFixed(1)}×`;
    return bars(LANGUAGES.map(([language], i) => [language, counts[i].tokens, said(counts[i])]), "tokens of the same sentence, and how many times as many as in English", { most, unit: "tokens" });
  });
  return [h("p", { class: "soft" }, "The same sentence costs some languages several times as many tokens: a tokenizer serves the languages that it was trained on. More tokens mean a shorter memory, more time, and a higher price."),
    host, h("details", {}, h("summary", {}, "The sentences"), h("ul", {}, LANGUAGES.map(([language, code, text]) => h("li", {}, language + ": ", h("span", { lang: code, dir: "auto" }, text)))))];
}
