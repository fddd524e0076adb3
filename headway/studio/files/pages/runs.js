// Runs: all runs of the folder, live.

import { follow } from "../api.js";
import { count, duration, empty, fill, h, number, problem, table } from "../dom.js";

export const title = "Runs";

export function show(host, { signal }) {
  const list = h("div");
  host.append(h("h1", {}, "Runs"), list);
  follow("/api/runs/events", signal, (found, error) => {
    if (error) { fill(list, problem(error)); return; }
    if (!found.runs.length) {
      fill(list, empty(`There are no runs in ${found.folder} yet.`, h("p", {}, h("a", { class: "button", href: "/new" }, "Start one"))));
      return;
    }
    fill(list, table(["name", "status", "task", "steps", "loss", "best", "time"], found.runs.map(run => [
      h("a", { href: "/run/" + encodeURIComponent(run.name) }, run.name), h("span", { class: "status " + run.status }, run.status),
      run.task, count(run.steps), number(run.loss), number(run.best), duration(run.seconds)]), { numeric: [3, 4, 5, 6] }));
  });
}
