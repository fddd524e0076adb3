// Data: look at a dataset before training on it.

import { h, fill, problem, style } from "../dom.js";
import { seenSamples } from "../parts/seen.js";
import { short, source } from "../parts/source.js";
import { numbers, sections } from "../parts/survey.js";
import { work } from "../parts/work.js";

export const title = "Data";

const article = noun => /^[aeiou]/i.test(noun) ? "an" : "a";

export function show(host, { query, signal, go }) {
  style("data");
  const asked = { path: query.get("path") || "", valid: query.get("valid") || "", column: query.get("column") || "", encoding: query.get("encoding") || "utf-8" };
  const found = h("div"), progress = h("div");
  let turn = new AbortController();
  signal.addEventListener("abort", () => turn.abort());
  const from = source({ value: asked.path, signal, named: path => { Object.assign(asked, { path, column: "", valid: "" }); look(); } });
  host.append(h("h1", {}, "Data"), h("p", { class: "lead" }, "See what is in your data, what headway takes it for, and what a model would read of it."), from.host, progress, found);
  if (asked.path) look();

  async function look() {
    turn.abort();
    turn = new AbortController();
    const mine = turn.signal, named = Object.entries(asked).filter(([key, value]) => value && !(key === "encoding" && value === "utf-8"));
    history.replaceState(null, "", "/data?" + new URLSearchParams(named));
    fill(found);
    try {
      await work(progress, "/api/data/look", asked, mine, survey => fill(found, result(survey, mine)));
    } catch (error) {
      if (!mine.aborted) fill(found, problem(error), guess(`${error.message} ${error.hint}`));
    }
  }

  /** A button that reads the data in the encoding that an error names. */
  function guess(text) {
    const encoding = /data\.encoding=([\w-]+)/.exec(text || "");
    return encoding && h("p", {}, h("button", { onclick: () => { asked.encoding = encoding[1]; look(); } }, `Read as ${encoding[1]}`));
  }

  function result(survey, mine) {
    const again = change => { Object.assign(asked, change); look(); };
    return h("div", {}, h("h2", { class: "named" }, short(asked.path)), numbers(survey), h("div", { class: "two" }, fits(survey, mine), compare(survey, again)),
      sections(survey, { onrole: column => again({ column }) }));
  }

  function fits(survey, mine) {
    if (!survey.recipe) return h("section", { class: "card" }, h("h3", {}, "No task fits"),
      h("p", { class: "soft" }, survey.facts.choices ? "These are multiple-choice questions: a language model is evaluated on them." : "No task of headway can use these rows as they are. The bad rows below say why."),
      guess((survey.facts.bad_lines || [])[0]), survey.facts.choices && h("code", {}, `headway eval MODEL ${asked.path} task=choices`), h("p", {}, h("a", { href: "/new" }, "Choose a task yourself")));
    const to = "/new?" + new URLSearchParams([["recipe", survey.recipe], ...survey.words.map(word => ["set", word])]);
    const sight = h("div"), wait = h("div"), button = h("button", { onclick: () => look(0) }, "Show what the model will see");
    const look = async first => {
      button.disabled = true;
      try {
        await work(wait, "/api/new/rehearse", { recipe: survey.recipe, words: survey.words, first, measure: false }, mine, part => {
          if (part.seen) fill(sight, h("h2", {}, "What the model will see"), seenSamples(part.seen, look));
        });
      } catch (error) {
        if (!mine.aborted) fill(sight, problem(error));
      }
      button.disabled = false;
    };
    return [h("section", { class: "card fits" }, h("h3", {}, "It fits ", survey.task.title),
      h("p", { class: "soft" }, `Training gives ${article(survey.task.noun)} ${survey.task.noun}, by the recipe ${survey.recipe}.`),
      h("div", { class: "row" }, h("a", { class: "button main", href: to }, "Train on this"), button), wait), h("div", { class: "across" }, sight)];
  }

  function compare(survey, again) {
    if (survey.kind !== "rows" || (survey.facts.columns.length && !survey.facts.column)) return null;
    const valid = h("input", { type: "text", value: asked.valid, spellcheck: "false", id: "valid-path", placeholder: "validation data" });
    return h("section", { class: "card" }, h("h3", {}, "Overlap with other data"),
      h("p", { class: "soft" }, "How much of the validation or test data is also in these?"),
      h("form", { class: "row", onsubmit: event => { event.preventDefault(); again({ valid: valid.value.trim() }); } },
        h("label", { for: valid.id, class: "hidden-visually" }, "Path of the other data"), valid, h("button", {}, "Compare")));
  }
}
