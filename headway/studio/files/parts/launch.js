// The start of a run: a button, then how it begins, and the run's page as soon as there is one.

import { post, stream } from "../api.js";
import { fill, h, problem } from "../dom.js";

/** `plan()` gives recipe and words; `ready(on)` says whether they can be started. */
export function launch({ signal, go, plan }) {
  const said = h("div", { role: "status" });
  const button = h("button", { class: "main start", disabled: true, onclick: begin }, "Start training");

  async function begin() {
    const { recipe, words } = plan();
    button.disabled = true;
    fill(said);
    try {
      const { job, error } = await post("/api/new/start", { recipe, words });
      if (error) throw error;
      await watch(job);
    } catch (error) {
      if (!signal.aborted) fill(said, problem(error));
    }
    button.disabled = false;
  }

  async function watch(job) {
    const stop = h("button", { onclick: () => post(`/api/new/job/${job}/stop`) }, "Stop"), last = h("span", {}, "starting …");
    fill(said, h("div", { class: "row" }, last, stop));
    for await (const now of stream(`/api/new/job/${job}/events`, { signal })) {
      if (now.run) { go("/run/" + encodeURIComponent(now.run)); return; }
      last.textContent = now.output.trim().split("\n").at(-1).slice(0, 200) || "starting …";
      if (now.code === null) {
        if (now.folder) { fill(said, h("p", {}, "The run is in ", h("code", {}, now.folder), ", outside the folder that this studio shows.")); return; }
        continue;
      }
      if (now.stopped) fill(said, h("p", { class: "soft" }, "Stopped before it began."));
      else if (now.code) fill(said, problem({ message: (now.error || `it ended with exit code ${now.code}`).replace(/^error\[\w+\]: /, "") }),
        h("details", {}, h("summary", {}, "All that it printed"), h("pre", {}, now.output)));
      return;
    }
  }

  return { host: h("div", {}, button, said), ready(on) { button.disabled = !on; } };
}
