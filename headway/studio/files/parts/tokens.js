// Tokens of a text, coloured by their probability; each shows what else was likely, and one can go on from there.

import { h, fill } from "../dom.js";

const SCALE = [[.8, "≥ 80 %"], [.5, "≥ 50 %"], [.2, "≥ 20 %"], [.05, "≥ 5 %"], [0, "less"]];  // as in the terminal
const level = p => p === undefined ? 0 : SCALE.findIndex(([least]) => p >= least);
export const percent = p => p === undefined ? "–" : p >= .9995 ? "100 %" : p < .0005 ? "< 0.1 %" : (100 * p).toFixed(1) + " %";
export const visible = text => text.replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥") || "∅";

/** What the colours and underlines mean. */
export function legend() {
  return h("p", { class: "token-legend" }, "probability of a token: ",
    SCALE.map(([, name], i) => [h("span", { class: "token p" + i }, name), " "]));
}

/** A text that grows token by token. onfork(index, token) goes on from a token; without it, tokens only explain. */
export function tokenView({ onfork = null, label = "generated tokens" } = {}) {
  const host = h("div", { class: "tokens", role: "group", "aria-label": label + "; arrow keys move, Enter opens" });
  const card = h("div", { class: "alternatives", hidden: true });
  const node = h("div", { class: "token-view" }, host, card);
  let tokens = [], pinned = -1, current = 0, leaving = 0;

  function add(token) {
    const i = tokens.push(token) - 1, text = token.text ?? token.label;
    const open = () => pinned === i ? close() : pin(i);
    const made = h("span", { role: "button", class: "token p" + level(token.p) + (token.forced ? " forced" : ""), tabindex: i ? "-1" : "0",
      "aria-label": `${visible(token.label)}, ${percent(token.p)}`,
      onmouseenter: () => pinned < 0 && show(i), onmouseleave: () => { leaving = setTimeout(() => pinned < 0 && hide(), 120); },
      onfocus: () => { current = i; if (pinned !== i) { pinned = -1; show(i); } },
      onclick: open, onkeydown: event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); event.stopPropagation(); open(); } } },
      text.includes("\n") ? text.replaceAll("\n", "↵\n") : text || h("span", { class: "soft" }, token.end ? "■" : "·"));
    host.append(made);
  }
  function show(i) {
    clearTimeout(leaving);
    const token = tokens[i], best = token.best || [];
    const seen = best.some(each => each.id === token.id) || token.p === undefined ? best : [...best, token];
    fill(card, h("p", {}, h("code", {}, visible(token.label)), " ", token.p === undefined ? "the first token is given" : percent(token.p),
      token.share !== undefined && Math.abs(token.share - token.p) > .0005 && h("small", { class: "soft" }, ` · drawn with ${percent(token.share)}`)),
      h("ul", {}, seen.map(each => h("li", {}, h(onfork ? "button" : "div", { class: "alternative" + (each.id === token.id ? " taken" : ""),
        "aria-label": onfork ? `go on with ${visible(each.label)}, ${percent(each.p)}` : null,
        onclick: onfork && (() => { close(); onfork(i, each); }) },
        h("span", { class: "meter", style: { width: Math.max(1, 100 * each.p) + "%" } }),
        h("code", {}, visible(each.label)), h("span", { class: "number" }, percent(each.p)))))),
      onfork && h("button", { class: "again", onclick: () => { close(); onfork(i, null); } }, "Draw again from here"));
    card.hidden = false;
    const place = host.children[i], box = node.getBoundingClientRect(), own = place.getClientRects()[0] || place.getBoundingClientRect();
    card.style.top = own.bottom - box.top + 4 + "px";
    card.style.left = Math.max(0, Math.min(own.left - box.left, box.width - card.offsetWidth)) + "px";
    card.classList.toggle("pinned", pinned === i);
  }
  const hide = () => { card.hidden = true; };
  function pin(i) { pinned = i; show(i); card.querySelector("button")?.focus(); }
  function close() { const was = pinned; pinned = -1; hide(); if (was >= 0) host.children[was]?.focus({ preventScroll: true }); hide(); }
  function move(i) {
    host.children[current]?.setAttribute("tabindex", "-1");
    current = Math.max(0, Math.min(tokens.length - 1, i));
    host.children[current].setAttribute("tabindex", "0");
    host.children[current].focus();
  }
  host.addEventListener("keydown", event => {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (way) move(current + way);
    else if (event.key === "Home") move(0);
    else if (event.key === "End") move(tokens.length - 1);
    else return;
    event.preventDefault();
  });
  node.addEventListener("keydown", event => { if (event.key === "Escape") close(); });
  card.addEventListener("keydown", event => {
    const all = [...card.querySelectorAll("button")], here = all.indexOf(document.activeElement);
    const way = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (way && all.length) { all[(here + way + all.length) % all.length].focus(); event.preventDefault(); }
  });
  node.addEventListener("focusout", event => { if (!node.contains(event.relatedTarget)) { pinned = -1; hide(); } });
  return {
    node, add,
    get tokens() { return tokens; },
    /** The last token ended the text, and is no part of it. */
    ended() { const last = tokens.at(-1); if (last && !last.text) { last.end = true; fill(host.lastChild, h("span", { class: "soft" }, "■")); } },
    set(list) { tokens = []; pinned = -1; current = 0; hide(); host.replaceChildren(); list.forEach(add); },
  };
}
