// What one model generates: its tokens as they come, forks and the way back, a button to stop.

import { stream, ApiError } from "../api.js";
import { h, fill, number, problem } from "../dom.js";
import { tokenView, percent } from "./tokens.js";

const ENDS = { stop: "the model ended the text", length: "reached the most tokens" };

/** One text of one model. `onstart` and `onend` tell the page whether something runs; `onfork` comes before a fork. */
export function output(model, { signal, onstart = () => {}, onend = () => {}, onfork = () => {} }) {
  const view = tokenView({ label: `tokens of ${model}`, onfork: fork });
  const bar = h("div", { class: "row branches" }), state = h("p", { class: "soft stats", role: "status" }), wrong = h("div");
  let branches = [], at = -1, running = null, settings = {};

  /** Start a new text: the body of a request. */
  function start(body) {
    branches = [];
    settings = body.settings;
    return run(body, { tokens: [], parent: null });
  }
  function fork(i, token) {
    const old = branches[at], kept = old.tokens.slice(0, i);
    onfork();
    return run({ ids: [...old.prompt, ...kept.map(each => each.id)], forced: token && token.id, settings },
      { tokens: kept, prompt: old.prompt, parent: at, where: i, forced: token });
  }
  async function run(body, branch) {
    stop();
    const own = running = new AbortController(), end = () => own.abort();
    signal.addEventListener("abort", end);
    at = branches.push(branch) - 1;
    show();
    onstart();
    let began = 0, fresh = 0;
    fill(state, "starting … the first text of a model takes longest");
    try {
      for await (const event of stream("/api/playground/generate", { body: { model, ...body }, signal: own.signal })) {
        if (event.error) throw new ApiError(400, event.error);
        if (event.prompt) { branch.prompt ||= event.prompt; continue; }
        if (event.forced !== undefined) put(branch, { ...branch.forced, text: event.forced, forced: true });
        if (event.token) { put(branch, event.token); fresh++; }
        if (event.finish) branch.finish = event.finish;
        began ||= performance.now();
        const seconds = (performance.now() - began) / 1000;
        if (event.token && seconds > .2) branch.rate = (fresh - 1) / seconds;
        if (branches[at] === branch) told(branch);
      }
    } catch (error) {
      if (error.name === "AbortError") branch.finish = "stopped"; else fill(wrong, problem(error));
    } finally {
      signal.removeEventListener("abort", end);
      if (running === own) { running = null; onend(); }
      if (branch.finish === "stop" && branches[at] === branch) view.ended();
      if (branches[at] === branch) told(branch);
    }
  }
  function put(branch, token) {
    branch.tokens.push(token);
    if (branches[at] === branch) view.add(token);
  }
  function show() {
    const branch = branches[at];
    fill(wrong);
    view.set(branch.tokens);
    told(branch);
    fill(bar, branches.length > 1 && [
      h("button", { disabled: branch.parent === null, onclick: () => pick(branch.parent) }, "← Back"),
      branches.map((each, i) => h("button", { "aria-pressed": String(i === at), onclick: () => pick(i),
        "aria-label": i ? `branch ${i + 1}, from branch ${each.parent + 1} at token ${each.where + 1}` : "branch 1" }, i + 1))]);
  }
  function pick(i) { stop(); at = i; show(); if (branches[at].finish === "stop") view.ended(); }
  function told(branch) {
    const known = branch.tokens.filter(each => each.p !== undefined), mean = known.reduce((sum, each) => sum + each.p, 0) / known.length;
    fill(state, [branch.tokens.length === 1 ? "1 token" : `${branch.tokens.length} tokens`, branch.rate && `${number(branch.rate, 3)} tokens/s`, known.length && `mean probability ${percent(mean)}`,
      ENDS[branch.finish] || branch.finish].filter(Boolean).join(" · "));
  }
  function stop() { running?.abort(); }
  return {
    node: h("div", { class: "output" }, bar, view.node, wrong, state),
    start, stop,
    get text() { return at < 0 ? "" : branches[at].tokens.map(each => each.text || "").join(""); },
    get busy() { return running !== null; },
  };
}
