// Work that the server does for one page: its progress, and what it finds.

import { ApiError, stream } from "../api.js";
import { bytes, count, fill, h } from "../dom.js";

/** Post `body`, show the progress in `host`, and hand on what is found. Throws what went wrong. */
export async function work(host, path, body, signal, found) {
  const begun = performance.now();
  fill(host, doing([], 0));
  try {
    for await (const value of stream(path, { body, signal })) {
      if (value.doing) fill(host, doing(value.doing, (performance.now() - begun) / 1000));
      if ("found" in value) found(value.found);
      if (value.error) throw new ApiError(400, value.error);
      if (value.done) return;
    }
    throw new ApiError(0, { message: "the connection broke before the work was done", hint: "try again" });
  } finally {
    if (!signal.aborted) fill(host);
  }
}

function doing(bars, seconds) {
  const some = bars.length ? bars : [{ label: "starting", done: 0, total: null, unit: "" }];
  return h("div", { class: "doing" }, some.slice(-2).map(bar => h("div", {},
    h("progress", { max: bar.total || null, value: bar.total ? Math.min(bar.done, bar.total) : undefined, "aria-label": bar.label }),
    h("span", {}, bar.label, bar.done ? " · " + amount(bar) : " …", seconds > 3 ? ` · ${Math.round(seconds)} s` : ""))));
}

const amount = ({ done, total, unit }) => (unit === "bytes" ? bytes : count)(done) + (total ? " of " + (unit === "bytes" ? bytes : count)(total) : "")
  + (unit && unit !== "bytes" ? " " + unit : "");
