// Elements of a page. Text is always set as text: nothing that a model, a file or a user wrote is read as HTML.

/** h("button", {class: "quiet", onclick: f}, "Stop") makes an element; null and false children are left out. */
export function h(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  set(made, props);
  append(made, children);
  return made;
}

/** The same for an element of SVG. */
export function svg(tag, props = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(made, props);
  append(made, children);
  return made;
}

function set(made, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) made.style.setProperty(key, each);
    else if (name === "value" && "value" in made) made.value = value;
    else made.setAttribute(name === "class" ? "class" : name, value === true ? "" : value);
  }
}

function append(made, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    made.append(child instanceof Node ? child : String(child));
  }
}

/** Replace what an element holds. */
export function fill(made, ...children) {
  made.replaceChildren();
  append(made, children);
  return made;
}

/** The style sheet of a page, pages/NAME.css: linked once, and there when the promise is kept. */
export function style(name) {
  const href = `/files/pages/${name}.css`;
  if (document.querySelector(`link[href="${href}"]`)) return Promise.resolve();
  return new Promise(done => document.head.append(h("link", { rel: "stylesheet", href, onload: done, onerror: done })));
}

/** A labelled field: h.label around a control, with an explanation below it. */
export function field(label, control, help = "") {
  control.id ||= "f" + Math.random().toString(36).slice(2, 9);
  const note = help && h("small", { id: control.id + "-help" }, help);
  if (note) control.setAttribute("aria-describedby", note.id);
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control, note);
}

/** A text in which `…` are words of code. */
export const prose = text => text.split("`").map((part, i) => i % 2 ? h("code", {}, part) : part);

/** A table with a head; rows are lists of cells (text, numbers or nodes). */
export function table(head, rows, { caption = "", label = caption, numeric = [] } = {}) {
  const look = i => numeric.includes(i) ? "number" : null;
  return h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label || "table" }, h("table", {},
    caption && h("caption", {}, caption),
    h("thead", {}, h("tr", {}, head.map((name, i) => h("th", { scope: "col", class: look(i) }, name)))),
    h("tbody", {}, rows.map(row => h("tr", {}, row.map((cell, i) =>
      i ? h("td", { class: look(i) }, cell) : h("th", { scope: "row", class: look(i) }, cell)))))));
}

/** What a page shows where there is nothing yet: a sentence, and what to do. */
export function empty(text, ...todo) {
  return h("div", { class: "empty" }, h("p", {}, text), todo);
}

/** A message that goes by itself; `undo` adds a button instead of a question before the act. */
export function notice(text, { undo = null, seconds = undo ? 10 : 5, bad = false } = {}) {
  const box = document.getElementById("notes");
  const made = h("div", { class: bad ? "notice bad" : "notice" }, h("span", {}, text),
    undo && h("button", { onclick: () => { made.remove(); undo(); } }, "Undo"),
    h("button", { class: "quiet", "aria-label": "Close", onclick: () => made.remove() }, "✕"));
  box.append(made);
  setTimeout(() => made.remove(), 1000 * seconds);
  return made;
}

/** An error as a page shows it: what happened, what to do, its code. */
export function problem(error) {
  return h("div", { class: "problem", role: "alert" }, h("p", {}, error.message),
    error.hint && h("p", { class: "hint" }, error.hint), error.code && h("small", {}, error.code));
}

export const number = (v, digits = 4) => v === null || v === undefined || !Number.isFinite(+v) ? "–"
  : (+v).toLocaleString("en-GB", { maximumSignificantDigits: digits });
export const count = v => v === null || v === undefined ? "–" : Math.round(v).toLocaleString("en-GB");
/** A number with its noun: 1 row, 2,000 rows. */
export const counted = (v, nouns) => `${count(v)} ${v === 1 ? nouns.replace(/s$/, "") : nouns}`;
export const bytes = v => { let i = 0; while (v >= 1000 && i < 4) { v /= 1000; i++; } return number(v, 3) + " " + ["B", "kB", "MB", "GB", "TB"][i]; };
export function duration(s) {
  if (s === null || s === undefined) return "–";
  if (s < 60) return number(s, 3) + " s";
  return s < 3600 ? Math.floor(s / 60) + " min " + Math.round(s % 60) + " s" : Math.floor(s / 3600) + " h " + Math.round(s % 3600 / 60) + " min";
}
