// What a run needs, before it starts: settings chosen by its data, memory, time, and what its model will see.

import { bytes, count, counted, duration, fill, h, number, problem } from "../dom.js";
import { seenSamples } from "./seen.js";
import { work } from "./work.js";

/** `later(state, wait)` works it out again after a while; `chosen(settings)` hears what was chosen. */
export function estimate({ signal, chosen }) {
  const wait = h("div"), said = h("div"), sight = h("div");
  let turn = new AbortController(), timer = 0;
  signal.addEventListener("abort", stop);

  function stop() {
    clearTimeout(timer);
    turn.abort();
    turn = new AbortController();
    fill(wait);
  }

  function later(state, ms) {
    stop();
    const mine = turn.signal, asked = { recipe: state.recipe, words: state.words, large: false };
    timer = setTimeout(() => find(asked, mine), ms);
  }

  async function find(asked, mine) {
    const found = {};
    fill(said);
    try {
      await work(wait, "/api/new/rehearse", asked, mine, part => {
        Object.assign(found, part);
        if (part.chosen && Object.keys(part.chosen).length) chosen(part.chosen);
        if (part.seen) fill(sight, samples(part.seen, asked, mine));
        fill(said, told(found), found.large && h("p", {}, `${bytes(found.large)} of data: reading all of them takes a while. `,
          h("button", { onclick: () => find({ ...asked, large: true }, mine) }, "Work out memory and time")));
      });
    } catch (error) {
      if (!mine.aborted) fill(said, told(found), problem(error));
    }
  }

  function samples(seen, asked, mine) {
    const host = h("div"), more = async first => {
      try {
        await work(wait, "/api/new/rehearse", { ...asked, first, measure: false }, mine, part => { if (part.seen) fill(host, seenSamples(part.seen, more)); });
      } catch (error) {
        if (!mine.aborted) fill(host, problem(error));
      }
    };
    fill(host, seenSamples(seen, more));
    return h("details", { class: "sight", open: sight.querySelector("details")?.open }, h("summary", {}, "What the model will see"), host);
  }

  return { host: h("div", {}, wait, said), sight, later, stop };
}

function told({ facts, time, line }) {
  if (!facts) return null;
  const rows = [], add = (name, value, more = "") => value && rows.push(h("div", {}, h("dt", {}, name), h("dd", {}, value, more && h("small", {}, " " + more))));
  const memory = facts.memory, data = facts.data;
  const seconds = facts.minutes ? 60 * facts.minutes : time && time.seconds;
  add("time", seconds ? (facts.minutes ? "" : "about ") + duration(Math.max(1, Math.round(seconds))) : time === null || memory && memory.step > 3e9 ? "not measured" : "…", time ? `${number(1000 * time.step_seconds, 2)} ms a step on this machine` : "");
  add("steps", facts.steps ? count(facts.steps) : time ? "about " + count(time.steps) : "", `of ${count(facts.batch)} samples` + (facts.epochs ? `, ${number(facts.epochs, 3)} epochs` : ""));
  add("model", memory && `${short(memory.parameters)} parameters`, memory && memory.trained < memory.parameters ? `${short(memory.trained)} of them trained` : "");
  add("memory", memory && "at least " + bytes(memory.step), memory ? memory.parts : "only loading the model can tell");
  add("on disk", memory && bytes(memory.checkpoint), "each checkpoint");
  add("data", data.samples !== undefined && counted(data.samples, "samples"), [data.tokens && `${count(data.tokens)} tokens`, data.vocab && `vocabulary ${count(data.vocab)}`,
    data.labels && counted(data.labels, "labels"), data.valid_samples && `${count(data.valid_samples)} held out`, data.bad_rows && counted(data.bad_rows, "bad rows") + " left out"].filter(Boolean).join(", "));
  return h("div", {}, h("dl", { class: "facts" }, rows), line && h("p", { class: "soft chosen" }, "Chosen for ", line), data.cut > 0 && h("p", { class: "soft" }, `${counted(data.cut, "texts")} longer than data.length: cut there.`));
}

const short = n => n >= 1e9 ? number(n / 1e9, 3) + " billion" : n >= 1e6 ? number(n / 1e6, 3) + " million" : count(n);
