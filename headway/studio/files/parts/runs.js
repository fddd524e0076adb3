// What the pages of runs share: how a run looks in a list, and what can be done with it.

import { get, post } from "../api.js";
import { duration, h, notice } from "../dom.js";

/** Where the page of a run is; the run of a comparison has a name of two parts. */
export const placeOf = name => "/run/" + name.split("/").map(encodeURIComponent).join("/");

/** How a run is doing. */
export function badge(status, starting = false) {
  return h("span", { class: "status " + (starting ? "running" : status) }, starting && status !== "running" ? "starting" : status);
}

/** When something was: the time of today, or the day. */
export function when(seconds) {
  if (!seconds) return "–";
  const then = new Date(1000 * seconds), ago = Date.now() / 1000 - seconds;
  if (ago >= 0 && ago < 3600) return ago < 90 ? "just now" : Math.round(ago / 60) + " min ago";
  const today = then.toDateString() === new Date().toDateString();
  return today ? then.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" })
    : then.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: then.getFullYear() === new Date().getFullYear() ? undefined : "numeric" });
}

/** How long a run has trained, and of one that trains how long it will take. */
export function timeOf(run) {
  const left = run.status === "running" && run.share > .02 && run.share < 1 ? run.seconds * (1 - run.share) / run.share : 0;
  return duration(run.seconds) + (left > 5 ? ` (${duration(left)} left)` : "");
}

/** The best value of the metric that a run goes by, with the name of the metric. */
export const goalOf = run => !run.goal || run.goal === "valid" ? "validation loss" : run.goal.replaceAll("_", " ");

const failed = error => notice(error.message + (error.hint ? " – " + error.hint : ""), { bad: true, seconds: 10 });

/** Ask a run to save and end. */
export const stop = name => post("/api/runs/stop", { name })
  .then(() => notice(`${name} saves its state and ends`)).catch(failed);

/** Train a run further, and say so if that fails. */
export async function resume(name, steps = null) {
  try {
    const { job } = await post("/api/runs/resume", steps ? { name, steps } : { name });
    notice(`${name} starts again: this takes a few seconds`);
    for (;;) {
      await new Promise(done => setTimeout(done, 1500));
      const found = await get("/api/runs/resumed?job=" + job);
      if (found.code === null) continue;
      if (found.code && !found.stopped) notice(`${name}: ${found.error || found.output.trim().split("\n").at(-1) || "the command failed"}`, { bad: true, seconds: 20 });
      return;
    }
  } catch (error) {
    failed(error);
  }
}

/** Delete a run; the message that says so brings it back. */
export async function discard(name, then = () => {}) {
  try {
    const { ticket } = await post("/api/runs/delete", { name });
    notice(`${name} is deleted`, { undo: () => post("/api/runs/restore", { ticket }).then(() => notice(`${name} is back`)).catch(failed) });
    then();
  } catch (error) {
    failed(error);
  }
}

/** A button that copies a text. */
export function copyButton(text, label = "Copy") {
  const made = h("button", { class: "quiet", onclick: async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
      made.textContent = "Copied";
    } catch {
      notice("the browser does not let this page copy: select the text instead", { bad: true });
    }
    setTimeout(() => { made.textContent = label; }, 1500);
  } }, label);
  return made;
}
