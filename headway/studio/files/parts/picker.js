// A box to choose a model: type to search among runs, packages, models on this disk and presets, or name a folder.

import { get } from "../api.js";
import { h, fill } from "../dom.js";

const SHOWN = 60;

/** A combobox; onpick(name) is called when a model is chosen. `optional` adds a way to choose none. */
export function picker({ label, value = "", onpick, signal, only = () => true }) {
  const id = "p" + Math.random().toString(36).slice(2, 9);
  const list = h("ul", { id: id + "-list", role: "listbox", "aria-label": label, class: "picker-list", hidden: true });
  const box = h("input", { id, type: "text", role: "combobox", "aria-expanded": "false", "aria-controls": list.id,
    "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false", value, placeholder: "a run, a folder, a model …" });
  let loading = null, shown = [], at = -1, turn = 0;

  const close = () => { turn++; list.hidden = true; at = -1; box.setAttribute("aria-expanded", "false"); box.removeAttribute("aria-activedescendant"); };
  const choose = name => { box.value = name; close(); onpick(name); };

  async function open(words) {
    const mine = ++turn, all = (await (loading ||= get("/api/playground/models", signal))).models.filter(only);
    if (mine !== turn) return;  // somebody has typed on, or left
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    shown = all.filter(m => wanted.every(w => (m.name + " " + m.about + " " + m.group).toLowerCase().includes(w))).slice(0, SHOWN);
    let group = "";
    fill(list, shown.map((m, i) => [
      m.group !== group && h("li", { class: "picker-group", role: "presentation" }, group = m.group),
      h("li", { id: `${id}-${i}`, role: "option", "aria-selected": "false",
        onmousedown: event => { event.preventDefault(); choose(m.name); } }, h("span", {}, m.name), h("small", {}, m.about))]),
      !shown.length && h("li", { class: "picker-group", role: "presentation" }, words
        ? "Enter loads the folder or model of this name" : "No runs yet. Type the name of a model folder."));
    list.hidden = false;
    box.setAttribute("aria-expanded", "true");
    mark(-1);
  }
  function mark(i) {
    at = i;
    for (const option of list.querySelectorAll("[role=option]")) option.setAttribute("aria-selected", String(option.id === `${id}-${i}`));
    const found = i < 0 ? null : document.getElementById(`${id}-${i}`);
    if (found) { box.setAttribute("aria-activedescendant", found.id); found.scrollIntoView({ block: "nearest" }); }
    else box.removeAttribute("aria-activedescendant");
  }
  const show = words => open(words).catch(() => { loading = null; close(); });
  box.addEventListener("focus", () => { box.select(); show(""); });
  box.addEventListener("click", () => list.hidden && show(""));
  box.addEventListener("input", () => show(box.value));
  box.addEventListener("blur", close);
  box.addEventListener("keydown", event => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) { show(""); return; }
      mark(Math.max(0, Math.min(shown.length - 1, at + (event.key === "ArrowDown" ? 1 : -1))));
    } else if (event.key === "Enter") {
      event.preventDefault();
      const name = at >= 0 ? shown[at].name : box.value.trim();
      if (name) choose(name);
    } else if (event.key === "Escape") close();
  });
  return h("div", { class: "picker" }, h("label", { for: id }, label), box, list);
}
