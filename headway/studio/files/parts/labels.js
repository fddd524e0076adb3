// Tokens as people read them: spaces and line ends are shown, one of a row of tokens can be picked.

import { h } from "../dom.js";

const SHOWN = { " ": "·", "\n": "↵", "\t": "⇥", "\r": "␍" };

/** A token with its spaces made visible. */
export const seen = label => label === "" ? "∅" : label.replace(/^ | $|[\n\t\r]/g, c => SHOWN[c]);

/** The same, cut to a length. */
export const brief = (label, most = 12) => { const all = [...seen(label)]; return all.length > most ? all.slice(0, most - 1).join("") + "…" : all.join(""); };

/** A row of tokens as buttons. Arrow keys go from one to the next. */
export function tokenRow(tokens, { picked = null, onpick, label, shades = null }) {
  const made = h("div", { class: "x-tokens", role: "group", "aria-label": label });
  const buttons = tokens.map((token, i) => h("button", {
    class: "x-token" + (token.special ? " special" : ""), "aria-pressed": String(i === picked), tabindex: i === (picked ?? 0) ? "0" : "-1",
    title: token.id === null || token.id === undefined ? "" : "token " + token.id, style: shades ? shades[i] : {},
    onclick: () => onpick(i) }, seen(token.label)));
  made.append(...buttons);
  made.addEventListener("keydown", event => {
    const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key], here = buttons.indexOf(document.activeElement);
    if (!way || here < 0) return;
    event.preventDefault();
    const next = buttons[(here + way + buttons.length) % buttons.length];
    buttons[here].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  return made;
}
