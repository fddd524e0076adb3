// Learn: a tour of the transformer, on a tiny model that is trained here in less than a minute.

import { follow, post } from "../api.js";
import { lineChart } from "../chart.js";
import { fill, h, number, problem, style } from "../dom.js";
import LESSONS from "../parts/lessons.js";
import { runPass } from "../parts/pass.js";

export const title = "Learn";
const FIRST = { id: "start", title: "A model you can see through" };
const ALL = [FIRST, ...LESSONS];

export async function show(host, { signal }) {
  await Promise.all([style("xray"), style("learn")]);
  let here = Math.max(0, ALL.findIndex(each => "#" + each.id === location.hash)), state = null, tour = null;
  const nav = h("ol", { class: "x-steps" }), page = h("div", { class: "x-lesson" });
  host.append(h("div", { class: "x-page" }, h("nav", { "aria-label": "Lessons" }, nav), page));

  const go = i => {
    if (i < 0 || i >= ALL.length || (i && !tour)) return;
    here = i;
    history.replaceState(null, "", "#" + ALL[i].id);
    draw();
    page.querySelector("h1").focus();
    scrollTo({ top: 0 });
  };
  document.addEventListener("keydown", event => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, textarea, select, [role=group], [role=application], canvas, [tabindex='0']:not(h1)")) return;
    const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (way) go(here + way);
  }, { signal });

  function draw() {
    fill(nav, ALL.map((each, i) => h("li", {}, h("button", { "aria-current": i === here ? "step" : null, disabled: i > 0 && !tour, title: each.title, onclick: () => go(i) },
      h("span", { class: "hidden-visually" }, each.title), h("span", { "aria-hidden": "true" }, i + 1)))));
    const back = h("button", { disabled: here === 0, onclick: () => go(here - 1) }, "Back"), next = h("button", { class: "main", disabled: here === ALL.length - 1 || !tour, onclick: () => go(here + 1) }, "Next");
    const foot = h("div", { class: "row x-foot" }, back, next, h("span", { class: "soft" }, `${here + 1} of ${ALL.length}`));
    if (here === 0) { drawStart(foot); return; }
    const lesson = ALL[here], picture = h("div", { class: "x-picture" }, h("p", { class: "soft" }, "…"));
    const sentence = h("input", { type: "text", value: tour.sentence, "aria-label": "The sentence", spellcheck: "false" });
    const form = h("form", { class: "row x-sentence", onsubmit: async event => {
      event.preventDefault();
      try { tour = await tourOf(tour.pass.model, sentence.value); draw(); } catch (error) { if (error.name !== "AbortError") fill(picture, problem(error)); }
    } }, sentence, h("button", {}, "Run"));
    fill(page, h("div", { class: "x-words" }, h("h1", { tabindex: "-1" }, lesson.title), lesson.words.map(text => h("p", {}, text)), h("p", { class: "x-try" }, h("b", {}, "Try: "), lesson.todo), foot), h("div", { class: "x-stage" }, form, picture));
    Promise.resolve().then(() => lesson.draw(picture, tour)).catch(error => { if (error.name !== "AbortError" && !signal.aborted) fill(picture, problem(error)); });
  }

  /** The first page: what is coming, and the training of the model. */
  const chart = h("div"), status = h("p", { role: "status" });
  let curve = null;
  function drawStart(foot) {
    const ready = state && state.status === "finished", going = state && state.status === "running";
    fill(page, h("div", { class: "x-words" }, h("h1", { tabindex: "-1" }, FIRST.title),
      h("p", {}, "This tour follows one sentence through a transformer, from letters to the next word. Every number you will see is real: it comes from a small model that is trained on this machine, now."),
      h("p", {}, "It learns from 6,000 made-up stories of two facts and two questions, such as this one:"), h("blockquote", { class: "mono" }, state ? state.example : "…"),
      h("p", {}, "To answer, it has to look back into the story. Nobody tells it how; it only ever learns to predict the next word."),
      !ready && h("button", { class: "main", disabled: going, onclick: train }, going ? "Training …" : "Train it"), foot),
    h("div", { class: "x-stage" }, status, chart));
  }
  async function train() {
    try { update(await post("/api/learn/train", {}, signal)); } catch (error) { if (error.name !== "AbortError") fill(status, problem(error)); }
  }
  async function tourOf(model, text) {
    const run = words => runPass(model, { input: words }, signal), [pass, card] = await Promise.all([run(text), post("/api/xray/model", { model }, signal)]);
    return { pass, run, state, signal, sentence: text, info: pass.kinds.decoder, tokens: pass.kinds.decoder.tokens, stack: card.parts.find(p => p.part === "stack"), vocab: card.parts.find(p => p.vocab).vocab };
  }
  async function update(found, error) {
    if (error) { fill(status, problem(error)); return; }
    const before = state;
    state = found;
    const losses = found.losses || [];
    const last = losses.length ? `, loss ${number(losses.at(-1), 3)}` : "";
    if (found.status === "failed") fill(status, problem({ message: "the training stopped", hint: found.error }));
    else status.textContent = { none: "The model has not been trained yet. It takes less than a minute.", running: losses.length ? `Step ${found.steps.at(-1)} of ${found.total}${last}` : "Starting …",
      finished: `Trained: ${found.run}, ${found.total} steps${last}.`, }[found.status];
    if (losses.length > 1) {
      const spec = { title: "Loss of the tour's model", axis: "step", whole: true, controls: false, extent: [1, found.total], panels: [{ key: "loss", title: "loss", tall: true,
        series: [{ name: "training", x: found.steps, y: losses, look: "train" }, { name: "validation", x: found.valid.map(v => v[0]), y: found.valid.map(v => v[1]), look: "valid", dots: true }] }] };
      if (curve) curve.update(spec); else curve = lineChart(chart, spec);
    }
    if (found.status === "finished" && !tour) tour = await tourOf(found.run, found.sentence);
    if (!before || before.status !== found.status) draw();
  }
  if (here) fill(page, h("p", { class: "soft", role: "status" }, "Loading …")); else draw();
  follow("/api/learn/events", signal, (found, error) => update(found, error).catch(failed => {
    if (failed.name !== "AbortError") { here = 0; draw(); fill(status, problem(failed)); }
  }));
}
