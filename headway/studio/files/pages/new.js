// New run: what can be trained; then one run in three forms that stay in step, its estimate, its start.

import { get } from "../api.js";
import { fill, h, style } from "../dom.js";
import { source } from "../parts/source.js";
import { editor } from "../parts/editor.js";

export const title = "New run";

const KINDS = { text: "Text", story: "Text", image: "Images", class: "Images", sound: "Sound", table: "Tables and series", graph: "Graphs" };

export async function show(host, { query, signal, go }) {
  style("data");
  style("new");
  if (query.get("from")) {
    const found = await get("/api/new/from/" + encodeURIComponent(query.get("from")), signal);
    return editor(host, { ...found, from: query.get("from") }, { signal, go });
  }
  const named = query.get("recipe") || query.get("task");
  if (named) {
    const words = [...query].filter(([key]) => key.includes(".")).map(([key, value]) => `${key}=${value}`);
    return editor(host, { recipe: named, words: [...query.getAll("set"), ...words] }, { signal, go });
  }
  const cards = await get("/api/new/cards", signal);
  const list = h("div"), all = h("div");
  const search = h("input", { type: "search", placeholder: "search", "aria-label": "Search tasks and recipes", oninput: draw });
  host.append(h("h1", {}, "New run"), h("p", { class: "lead" }, "Begin with your data, and headway says what they fit; or with a task, which learns from made-up data at first."),
    source({ signal, named: path => go("/data?" + new URLSearchParams({ path })), label: "Path of your data" }).host,
    h("div", { class: "row apart" }, h("h2", {}, "Tasks"), search), list, all);
  draw();

  function draw() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = texts => words.every(word => texts.join(" ").toLowerCase().includes(word));
    const tasks = cards.tasks.filter(task => fits([task.name, task.title, task.noun, task.doc, task.takes, task.learns, task.made_up, task.recipe]));
    const recipes = cards.recipes.filter(each => fits([each.name, each.title, each.task, each.task_title, each.data, each.model]));
    fill(list, Object.entries(group(tasks)).map(([kind, some]) => h("section", { class: "kind" }, h("h3", {}, kind), h("div", { class: "cards" }, some.map(card)))),
      !tasks.length && h("p", { class: "soft" }, "No task has these words."));
    fill(all, h("h2", {}, "Recipes"), recipes.length ? h("details", { open: words.length > 0 }, h("summary", {}, `${recipes.length} recipes, with what they reach`),
      h("ul", { class: "recipes" }, recipes.map(line))) : h("p", { class: "soft" }, "No recipe has these words."));
  }
}

function group(tasks) {
  const found = {};
  for (const task of tasks) (found[KINDS[task.takes] || task.takes] ||= []).push(task);
  return found;
}

const card = task => {
  const data = KINDS[task.learns] && task.learns !== "story" ? task.learns === "text" ? "texts" : `${task.learns}s` : "data", [, input] = /^"([^"]{8,})"/.exec(task.tries) || [];
  return h("a", { class: "card task", href: "/new?recipe=" + encodeURIComponent(task.recipe) },
    h("b", {}, task.title), h("span", {}, task.doc), h("small", {}, `learns from ${task.made_up}, or from your ${data}`), input && h("q", {}, input));
};

const line = each => h("li", {}, h("a", { href: "/new?recipe=" + encodeURIComponent(each.name) }, each.name), h("span", {}, each.title),
  h("small", {}, [each.task_title, each.time, each.score && "score: " + each.score].filter(Boolean).join(" · ")));
