// Name data, or drop them: a field for a path, and a place for files, which are sent to the studio's own folder.

import { get, post, put } from "../api.js";
import { bytes, count, fill, h, notice, problem, style } from "../dom.js";

const MOST = 64 << 20, FILES = 20000;

/** A control that calls `named(path)`. It has `value`, and `recent` is offered below it. */
export function source({ value = "", named, signal, label = "Path of a file or folder", button = "Look" }) {
  style("data");
  const path = h("input", { type: "text", value, spellcheck: "false", autocomplete: "off", id: "source-path",
    placeholder: "reviews.csv · photos/ · \"corpus/*.txt\" · train.en,train.de" });
  const state = h("div", { role: "status" }), recent = h("div", { class: "chips", hidden: true });
  const files = h("input", { type: "file", multiple: true, hidden: true, tabindex: "-1" });
  const folder = h("input", { type: "file", webkitdirectory: true, hidden: true, tabindex: "-1" });
  const name = text => { path.value = text; if (text.trim()) named(text.trim()); };
  const sent = async list => {
    fill(state);
    try {
      name(await send(list, state, signal));
      fill(state);
    } catch (error) {
      if (error.name !== "AbortError") fill(state, problem(error));
    }
  };
  files.addEventListener("change", () => sent([...files.files].map(file => ({ file, name: file.name }))));
  folder.addEventListener("change", () => sent([...folder.files].map(file => ({ file, name: file.webkitRelativePath || file.name }))));
  const drop = h("div", { class: "drop" },
    h("form", { class: "row", onsubmit: event => { event.preventDefault(); name(path.value); } },
      h("label", { for: path.id, class: "hidden-visually" }, label), path, h("button", { class: "main" }, button)),
    h("p", {}, "or drop files or a folder here · ", h("button", { type: "button", class: "link", onclick: () => files.click() }, "choose files"), " · ",
      h("button", { type: "button", class: "link", onclick: () => folder.click() }, "choose a folder")),
    files, folder, recent, state);
  let inside = 0;
  const over = on => event => { event.preventDefault(); inside += on; drop.classList.toggle("over", inside > 0); };
  drop.addEventListener("dragenter", over(1));
  drop.addEventListener("dragleave", over(-1));
  drop.addEventListener("dragover", event => event.preventDefault());
  drop.addEventListener("drop", async event => {
    event.preventDefault();
    inside = 0;
    drop.classList.remove("over");
    sent(await dropped(event.dataTransfer));
  });
  get("/api/data/recent", signal).then(found => {
    recent.hidden = !found.length;
    fill(recent, h("span", { class: "soft" }, "used before:"), found.slice(0, 6).map(each =>
      h("button", { type: "button", class: "chip", title: each, onclick: () => name(each) }, short(each))));
  }).catch(() => {});
  return { host: drop, path };
}

/** The end of a long path. */
export const short = path => path.length <= 46 ? path : "…" + path.slice(-45);

/** Everything in what was dropped, with the paths inside dropped folders. */
async function dropped(transfer) {
  const found = [], entries = [...transfer.items].map(item => item.webkitGetAsEntry && item.webkitGetAsEntry()).filter(Boolean);
  if (!entries.length) return [...transfer.files].map(file => ({ file, name: file.name }));
  const walk = async entry => {
    if (found.length >= FILES) return;
    if (entry.isFile) {
      const file = await new Promise((done, fail) => entry.file(done, fail));
      if (!entry.name.startsWith(".")) found.push({ file, name: entry.fullPath.slice(1) });
      return;
    }
    const reader = entry.createReader();
    for (;;) {
      const some = await new Promise((done, fail) => reader.readEntries(done, fail));
      if (!some.length) return;
      for (const each of some) await walk(each);
    }
  };
  for (const entry of entries) await walk(entry);
  return found;
}

/** Send files one after the other; returns the path that names them all. */
async function send(list, state, signal) {
  if (!list.length) throw new Error("there is no file in it");
  if (list.length >= FILES) throw new Error(`there are ${count(FILES)} files or more in it: type the path of the folder instead`);
  const large = list.find(({ file }) => file.size > MOST);
  if (large) throw Object.assign(new Error(`${large.name} has ${bytes(large.file.size)}, and an upload at most ${bytes(MOST)}`),
    { hint: "type its path instead: the studio reads files of this machine where they are" });
  const { batch, folder } = await post("/api/data/batch", {}, signal);
  const bar = h("progress", { max: list.length, value: 0, "aria-label": "files sent" }), said = h("span");
  fill(state, h("div", { class: "doing" }, h("div", {}, bar, said)));
  const paths = [];
  for (const { file, name } of list) {
    said.textContent = `${count(paths.length)} of ${count(list.length)} files`;
    bar.value = paths.length;
    paths.push((await put(`/api/data/upload/${batch}/${name.split("/").map(encodeURIComponent).join("/")}`, file, signal)).path);
  }
  if (paths.length > 1) notice(`${count(paths.length)} files were copied to ${folder}`);
  const tops = new Set(paths.map(path => path.slice(folder.length + 1).split("/")[0]));
  return paths.length === 1 ? paths[0] : tops.size === 1 ? folder + "/" + [...tops][0] : folder;
}
