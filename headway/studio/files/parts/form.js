// The settings of a run as a form: the few that most runs want, then all of them by section, with meaning and range.

import { fill, h, prose } from "../dom.js";

const FEW = ["data.valid", "model.from", "model.depth", "train.lr", "seed"];
const BUDGETS = ["steps", "epochs", "minutes"];
const BY = { you: "set by you", recipe: "by the recipe", chosen: "chosen for these data" };
const OFFERS = { "model.from": "models", ...Object.fromEntries(["text", "pair", "label", "image", "sound", "time"].map(name => ["data." + name, "columns"])) };
const NAMES = { "": "General", data: "Data", model: "Model", train: "Training" };

/** Sections of settings as the server describes them; `edit(change)` is called for each change. */
export function form(sections, { edit }) {
  const fields = {}, every = sections.flatMap(section => section.settings), known = Object.fromEntries(every.map(each => [each.key, each]));
  const add = (setting, made) => { (fields[setting.key] ||= []).push(made); return made.host; };
  const kind = h("select", { "aria-label": "The run ends after", onchange: () => budget(amount.value) }, BUDGETS.map(name => h("option", { value: name }, name)));
  const amount = h("input", { type: "text", inputmode: "decimal", id: "budget", onchange: () => budget(amount.value) });
  const budgetNote = h("small", {}), budgetWrong = h("small", { class: "bad", role: "alert" });
  const budget = value => value.trim() && edit({ kind: "set", key: "train." + kind.value, value: value.trim() });
  const found = h("p", { class: "soft", role: "status" });
  const search = h("input", { type: "search", placeholder: "search all settings", "aria-label": "Search all settings", oninput: () => filter(search.value) });
  const parts = sections.filter(section => section.settings.length).map(section => {
    const rows = section.settings.map(setting => ({ setting, host: add(setting, field(setting, edit)) }));
    const host = h("details", { class: "section" }, h("summary", {}, h("b", {}, NAMES[section.name] || section.name), " ", h("span", {}, prose(section.doc))), rows.map(row => row.host));
    return { host, rows };
  });
  const host = h("div", {}, h("section", {}, h("h2", {}, "The run"), h("div", { class: "few" },
    h("div", { class: "field" }, h("label", { for: amount.id }, "Train for"), h("div", { class: "pair" }, amount, kind), budgetNote, budgetWrong),
    FEW.filter(key => known[key]).map(key => add(known[key], field(known[key], edit, true))))),
  h("section", {}, h("div", { class: "row apart" }, h("h2", {}, "All settings"), search), found, parts.map(part => part.host)));
  const lists = Object.fromEntries(["models", "columns"].map(name => [name, h("datalist", { id: "offered-" + name })]));
  host.append(...Object.values(lists));
  return { host, update, wrong, offer: (name, values) => fill(lists[name], values.map(value => h("option", { value }))) };

  function filter(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const { host, rows } of parts) {
      let some = 0;
      for (const row of rows) {
        row.host.hidden = !words.every(word => `${row.setting.key} ${row.setting.doc} ${row.setting.values || ""}`.toLowerCase().includes(word));
        some += !row.host.hidden;
      }
      host.hidden = !some;
      host.open = words.length > 0 && some > 0;
      shown += some;
    }
    found.textContent = words.length ? shown ? `${shown} settings` : "No setting has these words." : "";
  }

  /** Show a draft: the values of all settings, and who has stated them. */
  function update({ values, stated, waits }) {
    for (const [key, some] of Object.entries(fields))
      for (const each of some) each.update(values[key], stated[key], waits && known[key].chosen && !stated[key]);
    const name = BUDGETS.find(each => values["train." + each] !== undefined) || "steps", unsaid = waits && !stated["train." + name];
    kind.value = name;
    amount.value = unsaid ? "" : text(values["train." + name]);
    amount.placeholder = unsaid ? "chosen by the data" : "";
    budgetNote.textContent = BY[stated["train." + name]] || "";
    fill(budgetWrong);
    amount.removeAttribute("aria-invalid");
  }

  /** Show an error at its field; false if there is none for it. */
  function wrong(key, error) {
    const some = fields[key] || [];
    for (const each of some) each.wrong(error);
    if (BUDGETS.includes((key || "").replace("train.", ""))) { fill(budgetWrong, error.message); amount.setAttribute("aria-invalid", "true"); return true; }
    if (some.length && !some.some(each => each.host.offsetParent)) some[0].host.closest("details").open = true;
    return some.length > 0;
  }
}

/** A value as it stands in a field. */
function text(value) {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.every(each => typeof each === "string") ? value.join(",") : JSON.stringify(value);
  return typeof value === "number" ? String(+value.toPrecision(12)) : String(value);
}

function field(setting, edit, brief = false) {
  const id = "s-" + (brief ? "few-" : "") + setting.key.replaceAll(".", "-"), help = id + "-help";
  const send = () => edit({ kind: "set", key: setting.key, value: control.value.trim() === "" ? null : control.value.trim() });
  const some = setting.choices.length > 0 && setting.key !== "task";
  const control = some
    ? h("select", { id, "aria-describedby": help, onchange: () => edit({ kind: "set", key: setting.key, value: control.value || null }) },
      setting.default === null && h("option", { value: "" }, "unset"), setting.choices.map(choice => h("option", { value: String(choice) }, String(choice))))
    : h("input", { type: "text", id, "aria-describedby": help, spellcheck: "false", autocomplete: "off", list: OFFERS[setting.key] && "offered-" + OFFERS[setting.key], onchange: send });
  const by = h("span", { class: "by" }), wrongText = h("small", { class: "bad", role: "alert" });
  const back = h("button", { type: "button", class: "quiet", title: "Take it back", "aria-label": `Take ${setting.key} back`, hidden: true, onclick: () => edit({ kind: "set", key: setting.key, value: null }) }, "↺");
  const range = setting.range || (setting.choices.length ? "" : setting.type), usual = setting.default === null || setting.default === "" ? "" : `default ${text(setting.default)}`;
  const host = h("div", { class: brief ? "field" : "setting" }, h("label", { for: id }, brief ? NAMED[setting.key] || setting.key : setting.key, by),
    h("div", { class: "pair" }, control, back), wrongText,
    h("small", { id: help }, prose(setting.doc), brief ? "" : h("span", { class: "soft" }, ` ${[range, usual].filter(Boolean).join(", ")}`)));
  return { host,
    update(value, stated, waits) {
      control.value = waits ? "" : text(value);
      if (!some) control.placeholder = waits ? "chosen by the data" : "unset";
      by.textContent = BY[stated] ? " · " + BY[stated] : "";
      back.hidden = stated !== "you";
      host.classList.toggle("stated", stated === "you");
      control.removeAttribute("aria-invalid");
      fill(wrongText);
    },
    wrong(error) {
      control.setAttribute("aria-invalid", "true");
      fill(wrongText, error.message, error.hint && ` — ${error.hint}`);
    } };
}

const NAMED = { "data.valid": "Validation data", "model.from": "Start from", "model.depth": "Blocks", "train.lr": "Learning rate", seed: "Seed" };
