// One run before it starts. The state is a recipe and words; form, TOML and command line are views of it, and edits go
// through the server, which reads recipes as training does.

import { get, post } from "../api.js";
import { count, counted, fill, h, notice, problem } from "../dom.js";
import { estimate } from "./estimate.js";
import { form } from "./form.js";
import { launch } from "./launch.js";
import { short, source } from "./source.js";
import { work } from "./work.js";

const WAIT = 700;

/** The editor of `{recipe, words}`; `from` is the run that they are of. */
export async function editor(host, { recipe, words, from = "", weights = [] }, { signal, go }) {
  const state = { recipe, words, chosen: {}, draft: null };
  let asked = 0, settings = null, understood = "", base = "";
  const title = h("h1", {}, recipe), lead = h("p", { class: "lead" }), fields = h("div"), errors = h("div"), data = h("div");
  const toml = h("textarea", { id: "toml", spellcheck: "false", rows: "18", class: "mono", onchange: () => edit({ kind: "toml", before: base, after: toml.value }, toml) });
  const line = h("textarea", { id: "command", spellcheck: "false", rows: "4", class: "mono", onchange: () => edit({ kind: "command", line: line.value }, line) });
  const tomlError = h("div", { role: "status" }), lineError = h("div", { role: "status" });
  const told = estimate({ signal, chosen: found => { state.chosen = found; refresh(); } });
  const start = launch({ signal, go, plan: () => state });
  const copy = control => h("button", { class: "quiet", onclick: () => navigator.clipboard.writeText(control.value).then(() => notice("copied")) }, "Copy");
  const from_data = source({ signal, value: "", button: "Use", label: "Path of training data", named: path => edit({ kind: "set", key: "data.train", value: path }) });
  const made_up = h("button", { type: "button", class: "link", onclick: () => edit({ kind: "set", key: "data.train", value: null }) }, "use made-up data again");
  host.append(h("p", { class: "crumb" }, h("a", { href: "/new" }, "New run"), " / ", recipe), title, lead,
    h("div", { class: "editor" },
      h("div", { class: "left" }, errors, h("section", {}, h("h2", {}, "Data"), from_data.host, data, told.sight), fields),
      h("aside", { class: "right", "aria-label": "The run" }, h("div", { class: "card" }, start.host, told.host),
        h("section", {}, h("div", { class: "row apart" }, h("h2", {}, h("label", { for: toml.id }, "TOML")), copy(toml)), toml, tomlError),
        h("section", {}, h("div", { class: "row apart" }, h("h2", {}, h("label", { for: line.id }, "Command")), copy(line)), line, lineError))));
  await refresh();

  /** Apply an edit; the form that it came from shows what is wrong with it. */
  async function edit(change, control = null) {
    const mine = ++asked;
    try {
      const found = await post("/api/new/draft", { recipe: state.recipe, words: state.words, chosen: {}, edit: change }, signal);
      if (mine !== asked) return;
      if (found.error) { wrong(found.error, change, control); return; }
      const fresh = found.task !== state.draft?.task;
      Object.assign(state, { recipe: found.recipe, words: found.words, chosen: {} });
      await shown(found, fresh, control === toml);
    } catch (error) {
      if (error.name !== "AbortError") fill(errors, problem(error));
    }
  }

  /** Show the state as it is, with what was chosen for it. */
  async function refresh() {
    const mine = ++asked, found = await post("/api/new/draft", { recipe: state.recipe, words: state.words, chosen: state.chosen }, signal);
    if (mine !== asked) return;
    if (found.error) {
      line.value = found.command || "";
      wrong(found.error, { kind: state.draft ? "set" : "all" }, null);
      if (!state.draft) fill(fields, unreadable(found.error.key));
      return;
    }
    state.words = found.words;
    await shown(found, found.task !== state.draft?.task);
  }

  /** What can be done about an address that is no run. */
  function unreadable(key) {
    const rest = state.words.filter(word => word.split("=")[0] !== key);
    return h("p", { class: "row" }, rest.length < state.words.length && h("button", { onclick: () => { state.words = rest; fill(errors); refresh(); } }, `Leave ${key} out`),
      h("a", { class: "button", href: "/new" }, "Choose a task"), h("span", { class: "soft" }, "or correct the command line"));
  }

  async function shown(draft, fresh, written = false) {
    state.draft = draft;
    for (const each of [errors, tomlError, lineError]) fill(each);
    if (fresh) {
      const [sections, cards] = await Promise.all([get("/api/new/settings/" + encodeURIComponent(draft.task), signal), get("/api/new/cards", signal)]);
      settings = form(sections, { edit });
      fill(fields, settings.host);
      get("/api/playground/models", signal).then(({ models }) => settings.offer("models", models.filter(each => each.group !== "Presets").map(each => each.name))).catch(() => {});
      const card = cards.tasks.find(each => each.name === draft.task), facts = cards.recipes.find(each => each.name === state.recipe);
      title.textContent = card ? card.title[0].toUpperCase() + card.title.slice(1) : draft.task;
      fill(lead, facts && facts.name !== card?.recipe ? facts.title : card?.doc, from && h("span", {}, " The recipe of ", h("a", { href: "/run/" + encodeURIComponent(from) }, from), ", which begins anew; or ",
        h("button", { type: "button", class: "link", onclick: () => { state.words = weights; state.chosen = {}; refresh(); } }, "begin with its weights"), "."));
      state.card = card;
    }
    settings.update(draft);
    if (document.activeElement !== toml || toml.value === base || written) base = toml.value = draft.toml;  // never under somebody's hands
    toml.rows = Math.min(40, Math.max(10, draft.toml.split("\n").length));
    line.value = draft.command;
    const path = draft.values["data.train"] || "";
    from_data.path.value = path;
    history.replaceState(null, "", "/new?" + new URLSearchParams([["recipe", state.recipe], ...state.words.map(word => ["set", word])]));
    start.ready(true);
    look(path, draft);
    if (!Object.keys(state.chosen).length) told.later(state, WAIT);
  }

  function wrong(error, change, control) {
    start.ready(false);
    told.stop();
    const shown = problem({ ...error, message: error.line && change.kind === "toml" && !/line \d/.test(error.message) ? `line ${error.line}: ${error.message}` : error.message });
    if (change.kind === "toml") {
      fill(tomlError, shown);
      if (error.line) { const at = toml.value.split("\n").slice(0, error.line - 1).join("\n").length + (error.line > 1); toml.setSelectionRange(at, at + (toml.value.split("\n")[error.line - 1] || "").length); }
    } else if (change.kind === "command") fill(lineError, shown);
    else if (!(settings && settings.wrong(error.key || change.key, error))) fill(errors, shown);
    if (control) control.setAttribute("aria-invalid", "true");
  }

  /** What was understood of the data, each path once. */
  async function look(path, draft) {
    for (const each of [toml, line]) each.removeAttribute("aria-invalid");
    const encoding = draft.values["data.encoding"], key = `${path} ${encoding} ${draft.values["data.bad_rows"]}`;
    if (key === understood) return;
    understood = key;
    const wait = h("div"), said = h("div");
    fill(data, wait, said);
    if (!path) { fill(data, h("p", { class: "soft" }, state.card ? `Nothing is named: it learns from ${state.card.made_up}.` : "")); return; }
    try {
      await work(wait, "/api/data/look", { path, encoding }, signal, found => {
        fill(said, summary(found, draft));
        settings.offer("columns", (found.facts.columns || []).map(each => each.name));
      });
    } catch (error) {
      if (!signal.aborted && key === understood) fill(said, problem(error));
    }
  }

  function summary({ kind, facts, roles = {}, task }, draft) {
    const rows = kind === "rows" ? facts.columns.length ? [counted(facts.rows, "rows")] : [counted(facts.texts, facts.unit)]
      : [counted(facts[kind], kind), ...Object.keys(facts.labels || {}).length ? [counted(Object.keys(facts.labels).length, "labels")] : []];
    const taken = Object.entries(roles).map(([column, [role]]) => h("span", {}, h("span", { class: "role" }, role), " ", column));
    const labels = (facts.columns || []).filter(column => roles[column.name]?.[0] === "label" && Object.keys(column.labels).length)
      .map(column => { const total = Object.values(column.labels).reduce((a, b) => a + b, 0), some = Object.entries(column.labels).slice(0, 5);
        return some.map(([name, n]) => `${name}: ${Math.round(100 * n / total)} %`).join(", ") + (Object.keys(column.labels).length > 5 ? " …" : ""); });
    const left_out = draft.values["data.bad_rows"] === "skip";
    return h("div", { class: "understood" }, h("div", { class: "row" }, h("b", {}, rows.join(", ")), taken, labels.map(text => h("span", { class: "soft" }, text)),
      h("a", { href: "/data?" + new URLSearchParams({ path: facts.spec }) }, "Look closer"), made_up),
    facts.bad > 0 && h("p", { class: left_out ? "soft" : "bad" }, `${counted(facts.bad, `bad ${kind === "images" || kind === "sounds" ? kind : "rows"}`)}, the first: `, h("code", {}, short(facts.bad_lines[0])), " ",
      left_out ? "They are left out." : h("button", { onclick: () => edit({ kind: "set", key: "data.bad_rows", value: "skip" }) }, "Leave them out")),
    task && task.name !== draft.task && h("p", { class: "soft" }, `These data look like ${task.title}: `,
      h("a", { href: "/new?" + new URLSearchParams([["recipe", task.name], ["set", "data.train=" + facts.spec]]) }, "train that instead"), "."));
  }
}
