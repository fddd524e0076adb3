// A form from a description of its fields: each {name, label, kind, value, help, …} becomes a labelled control.

import { h, field, notice } from "../dom.js";

const MOST = 40e6;  // bytes of a file: the studio takes bodies up to 64 MB, and base64 is a third longer

/** Controls for fields. `values()` has what was filled in; `changed()` only what differs from the given values. */
export function form(fields, given = {}) {
  const controls = new Map(fields.map(f => [f.name, control(f, f.name in given ? given[f.name] : f.value)]));
  const values = () => Object.fromEntries([...controls].map(([name, c]) => [name, c.value()]));
  return {
    node: name => controls.get(name).node,
    nodes: () => [...controls.values()].map(c => c.node),
    values,
    changed: () => Object.fromEntries(Object.entries(values()).filter(([name, value]) => !same(value, controls.get(name).start))),
    uploads: () => [...controls].filter(([, c]) => c.upload && c.upload()).map(([name]) => name),
    named: () => Object.fromEntries([...controls].map(([name, c]) => [name, (c.upload && c.upload()) || c.value()])),
    set: more => { for (const [name, value] of Object.entries(more)) controls.get(name)?.set(value); },
    focus: () => controls.values().next().value?.node.querySelector("input, textarea, select")?.focus(),
  };
}

const same = (a, b) => JSON.stringify(a ?? null) === JSON.stringify(b ?? null);

function control(f, value) {
  const made = { integer: numeric, number: numeric, choice, switch: toggle, image: file, sound: file, list: listed }[f.kind] || written;
  const found = made(f, value);
  return { start: found.value(), ...found };
}

function written(f, value) {
  const tall = f.kind !== "line", text = typeof value === "string" ? value : value ? JSON.stringify(value) : "";
  const box = tall ? h("textarea", { rows: f.kind === "text" ? 3 : 5, class: f.kind === "text" || f.kind === "lines" ? null : "mono" })
    : h("input", { type: "text" });
  box.value = text;
  const read = () => {  // a table or a graph may be JSON
    const typed = box.value, start = typed.trim()[0];
    if (f.kind !== "table" && f.kind !== "graph" || (start !== "{" && start !== "[")) return typed;
    try { return JSON.parse(typed); } catch { return typed; }
  };
  const drop = (f.kind === "table" || f.kind === "graph") && h("input", { type: "file", "aria-label": "read a file for " + f.label,
    onchange: async event => { const [one] = event.target.files; if (one) box.value = await one.text(); } });
  const node = field(cap(f.label) + (f.needed === null ? " (if it reads two)" : ""), box, f.help || "");
  if (drop) node.append(h("div", { class: "soft" }, "or a file: ", drop));
  return { node, value: read, set: v => { box.value = typeof v === "string" ? v : JSON.stringify(v); } };
}

function numeric(f, value) {
  const whole = f.kind === "integer", step = whole ? 1 : "any";
  const box = h("input", { type: "number", step, min: f.least, max: f.most, class: "short" });
  box.value = value ?? "";
  const read = () => box.value === "" ? (value === "" ? "" : null) : +box.value;
  let node;
  if (f.slide) {
    const slider = h("input", { type: "range", min: f.least ?? 0, max: f.slide, step: f.slide / 100, "aria-label": f.label + ", slider" });
    slider.value = value ?? 0;
    slider.addEventListener("input", () => { box.value = +(+slider.value).toFixed(3); });
    box.addEventListener("input", () => { slider.value = box.value; });
    node = field(cap(f.label), box, f.help || "");
    node.insertBefore(h("div", { class: "slide" }, slider), node.querySelector("small"));
    node.querySelector(".slide").append(box);
  } else node = field(cap(f.label), box, f.help || "");
  return { node, value: read, set: v => { box.value = v ?? ""; box.dispatchEvent(new Event("input")); } };
}

function choice(f, value) {
  const box = h("select", {}, f.choices.map((each, i) => h("option", { value: i }, String(each))));
  const set = v => { box.value = Math.max(0, f.choices.findIndex(each => each === v)); };
  set(value);
  return { node: field(cap(f.label), box, f.help || ""), value: () => f.choices[+box.value], set };
}

function toggle(f, value) {
  const box = h("input", { type: "checkbox" });
  box.checked = Boolean(value);
  const node = field(cap(f.label), box, f.help || "");
  node.classList.add("switch");
  return { node, value: () => box.checked, set: v => { box.checked = Boolean(v); } };
}

/** A setting that is a list: JSON, or words with commas between them. */
function listed(f, value) {
  const shown = v => v === null || v === undefined ? "" : v.every?.(each => typeof each !== "object") ? v.join(", ") : JSON.stringify(v);
  const box = h("input", { type: "text", class: "mono" });
  box.value = shown(value);
  const read = () => {
    const typed = box.value.trim();
    if (!typed) return value === null || value === undefined ? null : [];
    if (typed.startsWith("[")) try { return JSON.parse(typed); } catch { return typed; }
    return typed.split(",").map(each => each.trim()).map(each => each !== "" && Number.isFinite(+each) ? +each : each);
  };
  return { node: field(cap(f.label), box, f.help || ""), value: read, set: v => { box.value = shown(v); } };
}

/** An image or a sound: a file of this machine, or the name of one that headway makes. */
function file(f, value) {
  const box = h("input", { type: "file", accept: f.kind === "image" ? "image/*" : "audio/*" });
  const name = h("input", { type: "text", "aria-label": f.label + " that headway makes" });
  name.value = value || "";
  const seen = h("div", { class: "preview" });
  let data = "", shown = "", url = "";
  box.addEventListener("change", () => {
    const [one] = box.files;
    URL.revokeObjectURL(url);
    seen.replaceChildren();
    data = shown = "";
    if (!one) return;
    if (one.size > MOST) { notice(`${one.name} has more than ${MOST / 1e6} MB`, { bad: true }); box.value = ""; return; }
    const reader = new FileReader();
    reader.onload = () => { data = reader.result; shown = one.name; };
    reader.readAsDataURL(one);
    url = URL.createObjectURL(one);
    seen.append(f.kind === "image" ? h("img", { src: url, alt: one.name }) : h("audio", { src: url, controls: true }));
  });
  const node = field(cap(f.label), box, f.help || "");
  node.append(h("div", { class: "row soft" }, "or made by headway: ", name), seen);
  return { node, value: () => data || name.value.trim(), upload: () => shown, set: v => { name.value = v; } };
}

const cap = text => text.charAt(0).toUpperCase() + text.slice(1);
