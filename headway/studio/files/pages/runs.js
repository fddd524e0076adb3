// Runs: all runs of the folder, live.

import { follow } from "../api.js";
import { sparkline } from "../chart.js";
import { bytes, count, empty, fill, h, number, problem, style } from "../dom.js";
import { badge, copyButton, discard, goalOf, placeOf, resume, stop, timeOf, when } from "../parts/runs.js";

export const title = "Runs";

const MOST = 8;  // curves that can still be told apart
const COLUMNS = [  // key, title, class, value to sort by
  ["name", "name", "", run => run.name], ["status", "status", "", run => run.status], ["task", "task", "", run => run.task || ""],
  ["curve", "loss curve", "curve", null], ["steps", "steps", "number", run => run.steps], ["loss", "loss", "number", run => run.loss],
  ["best", "best", "number", run => run.best], ["seconds", "time", "number", run => run.seconds],
  ["bytes", "size", "number", run => run.bytes], ["written", "when", "number", run => run.written || 0],
];

export function show(host, { signal, go, query }) {
  style("runs");
  const runs = new Map(), rows = new Map(), chosen = new Set(), order = { key: "written", up: false };
  let status = "", words = query.get("q") || "";

  const folder = h("p", { class: "lead" }), list = h("div"), body = h("tbody"), counted = h("span", { class: "soft", role: "status" });
  const search = h("input", { type: "search", placeholder: "Filter by name, task, status", "aria-label": "Filter", value: words,
    oninput: () => { words = search.value; arrange(); } });
  const kinds = h("div", { class: "row kinds", role: "group", "aria-label": "Status" });
  const compare = h("button", { class: "main", disabled: true, onclick: () => go("/compare?" + new URLSearchParams([...chosen].map(name => ["run", name]))) }, "Compare");
  const heads = COLUMNS.map(([key, name, look, by]) => h("th", { scope: "col", class: look || null }, by
    ? h("button", { class: "quiet sort", onclick: () => { order.up = order.key === key ? !order.up : key === "name"; order.key = key; arrange(); } }, name) : name));
  const table = h("div", { class: "wide" }, h("table", { class: "runs" }, h("caption", { class: "hidden-visually" }, "All runs"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, h("span", { class: "hidden-visually" }, "choose")), heads, h("th", { scope: "col" }, h("span", { class: "hidden-visually" }, "actions")))), body));
  const tools = h("div", { class: "row tools" }, search, kinds, counted, h("span", { class: "grow" }), compare, h("a", { class: "button", href: "/new" }, "New run"));
  fill(host, h("h1", {}, "Runs"), folder, list);

  function row(run) {
    const box = h("input", { type: "checkbox", "aria-label": "Compare " + run.name, onchange: () => {
      box.checked ? chosen.add(run.name) : chosen.delete(run.name);
      choose();
    } });
    const cells = Object.fromEntries(COLUMNS.map(([key, , look]) => [key, h(key === "name" ? "th" : "td", { class: look || null, scope: key === "name" ? "row" : null })]));
    const actions = h("td", { class: "actions" });
    fill(cells.name, h("a", { href: placeOf(run.name) }, run.name));
    return { node: h("tr", {}, h("td", {}, box), COLUMNS.map(([key]) => cells[key]), actions), box, cells, actions, state: "", shape: "" };
  }
  function draw(run) {
    if (!rows.has(run.name)) rows.set(run.name, row(run));
    const { cells, actions, box } = rows.get(run.name), seen = rows.get(run.name), state = run.status + run.starting;
    const set = (key, text) => { if (cells[key].textContent !== text) cells[key].textContent = text; };
    box.disabled = run.status === "unread" || !run.steps;
    set("task", run.task || "–");
    set("steps", run.status === "running" && run.share ? `${count(run.steps)} (${Math.floor(100 * run.share)} %)` : count(run.steps));
    set("loss", number(run.loss));
    set("best", number(run.best));
    cells.best.title = goalOf(run);
    set("seconds", timeOf(run));
    set("bytes", run.bytes === undefined ? "–" : bytes(run.bytes));
    set("written", when(run.written));
    if (state !== seen.state) {
      seen.state = state;
      fill(cells.status, run.status === "unread" ? h("span", { class: "soft" }, "reading …") : badge(run.status, run.starting));
      cells.status.title = run.problem || "";
      const act = (name, what, does) => h("button", { class: "quiet", "aria-label": `${name} ${run.name}`, title: what, onclick: does }, name);
      fill(actions, run.status === "running" ? act("Stop", "Save and end", () => stop(run.name))
        : [["stopped", "diverged"].includes(run.status) && run.checkpoints.length > 0 && !run.starting && act("Resume", "Train further from the last checkpoint", () => resume(run.name)),
          !run.starting && run.status !== "unread" && act("Delete", "Delete the run; this can be undone", () => discard(run.name))]);
    }
    const shape = JSON.stringify(run.curve || []);
    if (shape !== seen.shape) {
      seen.shape = shape;
      fill(cells.curve, sparkline(run.curve || [], { label: `loss of ${run.name}` }));
    }
  }
  function arrange() {
    const [, , , by] = COLUMNS.find(([key]) => key === order.key), asked = words.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = run => (!status || run.status === status) && asked.every(word => `${run.name} ${run.task} ${run.status}`.toLowerCase().includes(word));
    const known = v => v !== null && v !== undefined && v === v;
    const shown = [...runs.values()].filter(fits).sort((a, b) => {
      const [x, y] = [by(a), by(b)];
      if (!known(x) || !known(y)) return known(y) - known(x);
      return (x < y ? -1 : x > y ? 1 : 0) * (order.up ? 1 : -1) || (a.name < b.name ? -1 : 1);
    });
    const nodes = shown.map(run => rows.get(run.name).node);
    if (nodes.length !== body.children.length || nodes.some((node, i) => body.children[i] !== node)) {
      const focused = document.activeElement;
      body.replaceChildren(...nodes);
      if (body.contains(focused)) focused.focus();
    }
    COLUMNS.forEach(([key], i) => key === order.key ? heads[i].setAttribute("aria-sort", order.up ? "ascending" : "descending") : heads[i].removeAttribute("aria-sort"));
    const found = [...new Set([...runs.values()].map(run => run.status))].filter(each => each !== "unread").sort();
    const pressed = ["", ...found].map(each => [each, each || "all", [...runs.values()].filter(run => !each || run.status === each).length]);
    if (kinds.dataset.shown !== JSON.stringify([pressed, status])) {
      kinds.dataset.shown = JSON.stringify([pressed, status]);
      fill(kinds, found.length > 1 && pressed.map(([each, name, n]) => h("button", { class: "quiet", "aria-pressed": String(each === status), onclick: () => { status = each; arrange(); } }, `${name} ${n}`)));
    }
    counted.textContent = asked.length || status ? `${shown.length} of ${runs.size}` : "";
  }
  function choose() {
    compare.disabled = chosen.size < 2 || chosen.size > MOST;
    compare.textContent = chosen.size > MOST ? `At most ${MOST} runs` : chosen.size ? `Compare ${chosen.size}` : "Compare";
    compare.title = chosen.size < 2 ? "Choose two runs or more" : "";
  }

  follow("/api/runs/events", signal, (found, error) => {
    if (error) { fill(list, problem(error)); return; }
    for (const [name, run] of Object.entries(found.runs)) {
      if (run) { runs.set(name, run); draw(run); continue; }
      runs.delete(name);
      rows.delete(name);
      chosen.delete(name);
    }
    if (!folder.textContent) fill(folder, h("code", {}, found.folder), " ", copyButton(found.folder, "Copy path"));
    choose();
    arrange();
    if (!runs.size) fill(list, empty("There are no runs here yet.", h("p", {}, h("a", { class: "button", href: "/new" }, "Start one")), h("p", {}, "or in a terminal: ", h("code", {}, "headway train tiny"))));
    else if (!list.contains(table)) fill(list, tools, table);
  });
}
