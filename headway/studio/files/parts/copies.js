// "Copy as": what was tried as a command, as Python, and as a request to headway serve.

import { post } from "../api.js";
import { h, fill, notice, problem } from "../dom.js";

const NAMES = [["command", "Command"], ["python", "Python"], ["curl", "curl, for headway serve"]];

/** A fold whose texts are made when it is opened; `request()` says what was tried. */
export function copies(request) {
  const host = h("div", { class: "copies" });
  const fold = h("details", { class: "card", ontoggle: () => fold.open && fresh() }, h("summary", {}, "Copy as command, Python or curl"), host);
  async function fresh() {
    try {
      const found = await post("/api/playground/copies", request());
      fill(host, NAMES.map(([key, name]) => h("section", { "aria-label": name },
        h("div", { class: "row" }, h("h2", {}, name), h("button", { onclick: () => copy(found[key]) }, "Copy")), h("pre", { tabindex: "0" }, found[key].trimEnd()))));
    } catch (error) { fill(host, problem(error)); }
  }
  return { node: fold, fresh: () => fold.open && fresh() };
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    notice("Copied.");
  } catch { notice("This browser does not let a page copy: select the text.", { bad: true }); }
}
