// The merges of byte pair encoding, one after another: play, back and next; the pair that is merged stands out.

import { h, fill, count } from "../dom.js";
import { visible } from "./tokens.js";

const WORDS = 240, SPEED = 450, LISTED = 12;

/** A player for a history of merges: words as pieces with counts, merges as [left, right, count, tokens]. */
export function mergePlayer({ words, tokens, merges, read }, { signal }) {
  const shown = [...words].sort((a, b) => b[1] - a[1]).slice(0, WORDS);
  let at = 0, state = shown.map(([pieces]) => pieces), timer = 0;
  const host = h("div", { class: "merge-words", "aria-label": "words as pieces", role: "group" });
  const told = h("p", { class: "merge-now", role: "status" }), list = h("ol", { class: "merge-list" });
  const slider = h("input", { type: "range", min: 0, max: merges.length, value: 0, "aria-label": "merges done", oninput: () => { pause(); go(+slider.value); } });
  const play = h("button", { class: "main", onclick: () => timer ? pause() : start() }, "Play");
  const back = h("button", { onclick: () => { pause(); go(at - 1); } }, "← Back"), next = h("button", { onclick: () => { pause(); go(at + 1); } }, "Next →");
  const name = piece => visible(read[piece] ?? piece);

  function step(pieces, [left, right]) {
    const made = [];
    for (let i = 0; i < pieces.length; i++) {
      if (pieces[i] === left && pieces[i + 1] === right) { made.push(left + right); i++; } else made.push(pieces[i]);
    }
    return made;
  }
  function go(to) {
    to = Math.max(0, Math.min(merges.length, to));
    if (to < at) { at = 0; state = shown.map(([pieces]) => pieces); }
    for (; at < to; at++) state = state.map(pieces => pieces.length > 1 ? step(pieces, merges[at]) : pieces);
    draw();
  }
  function draw() {
    const coming = merges[at], fresh = at ? merges[at - 1] : null, made = fresh && fresh[0] + fresh[1];
    fill(host, shown.map(([, times], w) => h("span", { class: "word" }, state[w].map((piece, i) => h("span", {
      class: "piece" + (piece === made ? " fresh" : "") + (coming && ((piece === coming[0] && state[w][i + 1] === coming[1]) || (piece === coming[1] && state[w][i - 1] === coming[0])) ? " coming" : "") },
      name(piece))), times > 1 && h("small", { class: "soft" }, "×" + count(times)))));
    const now = at ? merges[at - 1][3] : tokens;
    fill(told, h("strong", {}, `Merge ${at} of ${merges.length}`), ` · ${count(now)} tokens`, fresh && [" · made ", h("code", {}, name(made))],
      coming ? [" · next: ", h("code", {}, name(coming[0])), " + ", h("code", {}, name(coming[1])), `, which stands there ${count(coming[2])} ${coming[2] === 1 ? "time" : "times"}`] : " · no pair is left that this tokenizer merges");
    const from = Math.max(0, at - LISTED);
    fill(list, merges.slice(from, at).reverse().map(([left, right, times], i) => h("li", { value: at - i },
      h("code", {}, name(left)), " + ", h("code", {}, name(right)), " → ", h("code", {}, name(left + right)), h("small", { class: "soft" }, ` ×${count(times)}`))));
    slider.value = at;
    back.disabled = !at;
    next.disabled = at >= merges.length;
    if (at >= merges.length) pause();
  }
  function start() {
    if (at >= merges.length) go(0);
    timer = setInterval(() => go(at + Math.max(1, Math.round(merges.length / 400))), SPEED);
    fill(play, "Pause");
  }
  function pause() { clearInterval(timer); timer = 0; fill(play, "Play"); }
  signal.addEventListener("abort", pause);
  const keys = event => {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!way || event.target === slider) return;
    pause();
    go(at + way);
    event.preventDefault();
  };
  draw();
  return h("div", { class: "merges", onkeydown: keys }, h("div", { class: "row" }, play, back, next, slider), told,
    h("div", { class: "merge-view" }, h("div", {}, host, words.length > WORDS && h("p", { class: "soft" }, `the ${WORDS} most frequent of ${count(words.length)} words`)), h("div", {}, h("h3", {}, "Merges so far"), list)));
}
