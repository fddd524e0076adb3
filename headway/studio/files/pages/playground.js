// Playground: choose a model and try what it does. The model's task decides the form; the answer's shape the picture.

import { get, post } from "../api.js";
import { h, fill, count, empty, number, problem, style } from "../dom.js";
import { beamTree } from "../parts/beams.js";
import { copies } from "../parts/copies.js";
import { form } from "../parts/fields.js";
import { output } from "../parts/output.js";
import { picker } from "../parts/picker.js";
import { results } from "../parts/results.js";
import { legend, tokenView } from "../parts/tokens.js";

export const title = "Playground";

const MAIN = { sampling: ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"], beam: ["width", "max_tokens", "n_best", "length_penalty"] };
const HISTORY = "headway-tried", KEPT = 40;

export async function show(host, { query, signal }) {
  await style("playground");
  const state = { models: [], mode: query.get("mode") || "", signal, again: null };
  const what = h("div", { class: "about" }), body = h("div"), tabs = h("div", { class: "row tabs", role: "group", "aria-label": "what to try" });
  const tried = h("details", { class: "card tried" });
  const first = picker({ label: "Model", value: query.get("model") || "", signal, onpick: name => choose(0, name) });
  const second = picker({ label: "Beside it", value: query.get("with") || "", signal, onpick: name => choose(1, name) });
  const beside = h("div", { class: "row", hidden: !query.get("with") }, second,
    h("button", { onclick: () => { beside.hidden = true; more.hidden = false; state.models.length = 1; open(); } }, "Only one model"));
  const more = h("button", { hidden: Boolean(query.get("with")), onclick: () => { beside.hidden = false; more.hidden = true; second.querySelector("input").focus(); } }, "Put a second model beside it");
  fill(host, h("div", { class: "playground" }, h("h1", {}, "Playground"), h("p", { class: "lead" }, "Try a trained model: it continues, answers, labels, translates, listens or draws, whatever it was trained for."),
    h("div", { class: "row choice" }, first, more, beside), what, tabs, body, tried));

  async function choose(i, name) {
    fill(body, h("p", { class: "soft", role: "status" }, `loading ${name} …`));
    try {
      const model = await get("/api/playground/model?name=" + encodeURIComponent(name), signal);
      state.models[i] = model;
      if (i === 1 && !state.models[0]) state.models = [model];
      open();
    } catch (error) { if (!signal.aborted) fill(body, problem(error)); }
  }

  /** Draw everything for the models that are chosen. */
  function open() {
    const models = state.models, [model] = models;
    const address = new URLSearchParams({ model: model.name, ...(models[1] && { with: models[1].name }), ...(state.mode && { mode: state.mode }) });
    history.replaceState(null, "", "/playground?" + address);
    fill(what, models.map(model => about(model, models.length > 1)));
    const shared = model.modes.filter(mode => models.every(other => other.modes.some(each => key(each) === key(mode))));
    if (!shared.length) {
      fill(tabs);
      fill(body, empty(models[1] ? "These two models have nothing in common to try." : `${model.name} has nothing to try: ` +
        (reads(model) ? "no task of headway fits it." : "its weights are random, and it has no tokenizer."),
        h("p", {}, "Train it: ", h("code", {}, `headway train lm model.from=${model.name}`)), h("a", { href: "/new" }, "New run")));
      return;
    }
    const mode = shared.find(each => key(each) === state.mode) || shared[0];
    fill(tabs, shared.length > 1 && shared.map(each => h("button", { "aria-pressed": String(each === mode),
      onclick: () => { state.mode = key(each); open(); } }, each.title)));
    const given = state.again;
    state.again = null;
    fill(body, PANELS[mode.kind](mode, { models, signal, given, remember }));
  }

  function remember(entry) {
    const list = [{ ...entry, model: state.models[0].name }, ...past().filter(each => JSON.stringify(each.given) !== JSON.stringify(entry.given))].slice(0, KEPT);
    try { sessionStorage.setItem(HISTORY, JSON.stringify(list)); } catch { /* the tab's store is full: the history stays as it was */ }
    history_();
  }
  function history_() {
    const list = past();
    const open_ = tried.open;
    fill(tried, h("summary", {}, `Tried in this tab: ${list.length}`), h("ol", {}, list.map(each => h("li", {},
      h("button", { class: "quiet", onclick: () => { state.mode = each.mode; state.again = each.given; first.querySelector("input").value = each.model;
        state.models[0]?.name === each.model ? open() : choose(0, each.model); } }, h("span", {}, each.input), h("small", { class: "soft" }, `${each.model} · ${each.output}`))))),
      list.length > 0 && h("button", { onclick: () => { sessionStorage.removeItem(HISTORY); history_(); } }, "Forget them"));
    tried.open = open_;
    tried.hidden = !list.length;
  }
  history_();
  if (query.get("model")) {
    await choose(0, query.get("model"));
    if (query.get("with") && state.models[0]) await choose(1, query.get("with"));
  } else fill(body, empty("Choose a model above: a run of yours, a folder, a model on this disk.", h("p", {}, "Nothing trained yet? ", h("a", { href: "/new" }, "Start a run"), " – the tiny recipe takes a minute.")));
}

const key = mode => mode.task || mode.kind;
function past() { try { return JSON.parse(sessionStorage.getItem(HISTORY) || "[]"); } catch { return []; } }
const short = (text, most = 80) => [...String(text)].length > most ? [...String(text)].slice(0, most).join("") + " …" : String(text);

function about(model, named) {
  return h("p", { class: "facts" }, named && h("strong", {}, model.name), h("span", {}, model.noun), model.facts.map(([name, value]) =>
    h("span", {}, h("small", { class: "soft" }, name), " ", typeof value === "number" ? (name === "parameters" ? size(value) : count(value)) : value)),
    h("a", { href: "/xray?model=" + encodeURIComponent(model.name) }, "X-ray"), reads(model) && h("a", { href: "/tokens?tokenizer=" + encodeURIComponent(model.name) }, "Tokens"),
    model.run && h("a", { href: "/run/" + encodeURIComponent(model.name) }, "Run"));
}
const reads = model => model.facts.some(([name]) => name === "vocabulary");
const size = v => v < 1e6 ? number(v / 1e3, 3) + " k" : v < 1e9 ? number(v / 1e6, 3) + " M" : number(v / 1e9, 3) + " G";

/** The settings of generation: the usual ones open, all others in a fold, each with its explanation. */
function settings(kind, own, signal, given) {
  const host = h("div", { class: "settings card" }, h("h2", {}, "Settings"));
  const made = { changed: () => given || {} };
  get("/api/playground/settings", signal).then(all => {
    const fields = all[kind].map(f => ({ ...f, value: own[f.name] })), names = MAIN[kind], built = form(fields);
    if (given) built.set(given);
    host.append(...names.map(name => built.node(name)), h("details", {}, h("summary", {}, "All settings"),
      fields.filter(f => !names.includes(f.name)).map(f => built.node(f.name))));
    made.changed = built.changed;
  }).catch(error => { if (!signal.aborted) host.append(problem(error)); });
  return { node: host, changed: () => made.changed() };
}

const runs = (button, act) => event => {  // Ctrl+Enter starts, from any field
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !button.disabled) { event.preventDefault(); act(); }
};
const columns = (models, inside) => h("div", { class: "beside", "data-count": models.length }, models.map((model, i) =>
  h("section", { class: "card", "aria-label": model.name }, models.length > 1 && h("h2", {}, model.name), inside[i])));

function labelled(label, control) {
  control.id ||= "q" + Math.random().toString(36).slice(2, 9);
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control);
}

const PANELS = { generate, chat, beams, score, task };

function generate(mode, { models, signal, given, remember }) {
  const text = h("textarea", { rows: 4 }), go = h("button", { class: "main", onclick: run }, "Generate"), stop = h("button", { disabled: true, onclick: () => outs.forEach(o => o.stop()) }, "Stop");
  text.value = given?.text ?? "";
  const set = settings("sampling", mode.settings, signal, given?.settings);
  const copy = copies(() => ({ model: models[0].name, kind: "generate", text: text.value, settings: set.changed() }));
  const outs = models.map(model => output(model.name, { signal, onstart: busy, onend: busy }));
  const shown = h("div", { hidden: true }, legend(), columns(models, outs.map(o => o.node)),
    h("p", { class: "soft" }, "Point at a token, or move with the arrow keys, to see what else was likely. Open it to go on from there."));
  function busy() { const any = outs.some(o => o.busy); stop.disabled = !any; }
  async function run() {
    shown.hidden = false;
    copy.fresh();
    const body = { text: text.value, settings: set.changed() };
    await Promise.all(outs.map(o => o.start(body)));
    if (!signal.aborted) remember({ mode: key(mode), input: short(text.value || "(from nothing)"), output: short(outs[0].text), given: body });
  }
  return h("div", { class: "try", onkeydown: runs(go, run) }, h("div", { class: "work" }, labelled("Text to continue", text),
    h("div", { class: "row" }, go, stop, h("small", { class: "soft" }, "Ctrl+Enter")), shown, copy.node), set.node);
}

function chat(mode, { models, signal, given, remember }) {
  const says = h("textarea", { rows: 2 }), system = h("textarea", { rows: 2 }), send = h("button", { class: "main", onclick: run }, "Send");
  const stop = h("button", { disabled: true, onclick: () => talks.forEach(t => t.turns.at(-1)?.out.stop()) }, "Stop");
  const clear = h("button", { onclick: () => talks.forEach(t => { t.turns.forEach(turn => turn.out.stop()); t.turns = []; draw(t); }) }, "Start again");
  const set = settings("sampling", mode.settings, signal, given?.settings);
  const talks = models.map(model => ({ model, turns: [], host: h("div", { class: "talk", role: "log", "aria-label": "conversation with " + model.name }) }));
  const copy = copies(() => ({ model: models[0].name, kind: "chat", messages: history(talks[0]).slice(0, -1).length ? history(talks[0]).slice(0, -1) : [{ role: "user", content: says.value }], settings: set.changed() }));
  says.value = given?.says ?? "";
  const history = talk => [...(system.value.trim() ? [{ role: "system", content: system.value }] : []),
    ...talk.turns.flatMap(turn => [{ role: "user", content: turn.says }, { role: "assistant", content: turn.out.text }])];
  function draw(talk) {
    fill(talk.host, talk.turns.length ? talk.turns.map(turn => [h("p", { class: "said" }, turn.says), turn.out.node])
      : h("p", { class: "soft" }, "Say something. The model sees the whole conversation each time."));
  }
  const busy = () => { stop.disabled = !talks.some(t => t.turns.some(turn => turn.out.busy)); };
  async function run() {
    const line = says.value.trim();
    if (!line) { says.focus(); return; }
    says.value = "";
    await Promise.all(talks.map(talk => {
      const messages = [...history(talk), { role: "user", content: line }];
      const turn = { says: line, out: output(talk.model.name, { signal, onstart: busy, onend: busy, onfork: () => {  // what came after a fork was said to another answer
        talk.turns = talk.turns.slice(0, talk.turns.indexOf(turn) + 1); draw(talk); } }) };
      talk.turns.push(turn);
      draw(talk);
      return turn.out.start({ messages, settings: set.changed() });
    }));
    copy.fresh();
    if (!signal.aborted) remember({ mode: key(mode), input: short(line), output: short(talks[0].turns.at(-1)?.out.text || ""), given: { says: line, settings: set.changed() } });
  }
  talks.forEach(draw);
  const enter = event => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.target === says) { event.preventDefault(); run(); } };
  return h("div", { class: "try", onkeydown: enter }, h("div", { class: "work" }, legend(), columns(models, talks.map(t => t.host)),
    labelled("Your message", says), h("div", { class: "row" }, send, stop, clear, h("small", { class: "soft" }, "Enter sends, Shift+Enter starts a new line")),
    h("details", {}, h("summary", {}, "System message"), labelled("How the model should behave, if it was trained with such messages", system)), copy.node), set.node);
}

function beams(mode, { models, signal, given, remember }) {
  const text = h("textarea", { rows: 3 }), go = h("button", { class: "main", onclick: run }, "Search"), hosts = models.map(() => h("div"));
  text.value = given?.text ?? "";
  const set = settings("beam", mode.settings, signal, given?.settings), shown = h("div", { hidden: true }, columns(models, hosts));
  const copy = copies(() => ({ model: models[0].name, kind: "beams", text: text.value, settings: chosen() }));
  const chosen = () => ({ max_tokens: mode.settings.max_tokens, n_best: mode.settings.n_best, ...set.changed() });
  async function run() {
    shown.hidden = false;
    copy.fresh();
    const body = { text: text.value, settings: chosen() };
    await each(models, hosts, go, signal, async model => beamTree(await post("/api/playground/beams", { model: model.name, ...body }, signal)));
    if (!signal.aborted) remember({ mode: key(mode), input: short(text.value), output: "beam search", given: body });
  }
  return h("div", { class: "try", onkeydown: runs(go, run) }, h("div", { class: "work" }, labelled("Text to continue", text), h("div", { class: "row" }, go), shown, copy.node), set.node);
}

function score(mode, { models, signal, given, remember }) {
  const text = h("textarea", { rows: 4 }), go = h("button", { class: "main", onclick: run }, "Score"), hosts = models.map(() => h("div"));
  text.value = given?.text ?? "";
  const copy = copies(() => ({ model: models[0].name, kind: "score", text: text.value })), shown = h("div", { hidden: true }, legend(), columns(models, hosts));
  async function run() {
    shown.hidden = false;
    copy.fresh();
    await each(models, hosts, go, signal, async model => {
      const found = await post("/api/playground/score", { model: model.name, text: text.value }, signal), view = tokenView({ label: "tokens of the text" });
      view.set(found.tokens);
      return [h("p", { class: "verdict" }, `perplexity ${number(found.perplexity)}`), h("p", { class: "soft" },
        `${found.tokens.length} tokens · log-probability ${number(found.log_probability)} · ${number(found.bits_per_byte, 3)} bits per byte`), view.node];
    });
    if (!signal.aborted) remember({ mode: key(mode), input: short(text.value), output: "score", given: { text: text.value } });
  }
  return h("div", { class: "try narrow", onkeydown: runs(go, run) }, h("div", { class: "work" }, labelled("Text to score", text), h("div", { class: "row" }, go), shown, copy.node));
}

function task(mode, { models, signal, given, remember }) {
  const built = form(mode.fields, given || {}), go = h("button", { class: "main", onclick: run }, "Run"), hosts = models.map(() => h("div"));
  const own = ["input", "pair", "context", "image", "sound"], options = mode.fields.filter(f => !own.includes(f.name));
  const shown = h("div", { hidden: true }, columns(models, hosts));
  const copy = copies(() => ({ model: models[0].name, kind: "task", task: mode.task, form: built.named(), uploads: built.uploads() }));
  async function run() {
    shown.hidden = false;
    copy.fresh();
    const filled = built.values();
    let line = "";
    await each(models, hosts, go, signal, async (model, i) => {
      const found = await post("/api/playground/predict", { model: model.name, task: mode.task, form: filled }, signal);
      if (!i) [line = ""] = found.lines;
      return [results(found, filled), h("p", { class: "soft stats" }, `${number(1000 * found.seconds, 3)} ms`)];
    });
    const kept = Object.fromEntries(Object.entries(filled).filter(([name]) => !built.uploads().includes(name)));
    if (!signal.aborted) remember({ mode: key(mode), input: short(Object.values(built.named())[0]), output: short(line), given: kept });
  }
  return h("div", { class: "try" + (options.length ? "" : " narrow"), onkeydown: runs(go, run) }, h("div", { class: "work" },
    mode.fields.filter(f => own.includes(f.name)).map(f => built.node(f.name)), h("div", { class: "row" }, go, h("small", { class: "soft" }, "Ctrl+Enter")), shown, copy.node),
    options.length > 0 && h("div", { class: "settings card" }, h("h2", {}, "Options"), options.map(f => built.node(f.name))));
}

/** Ask every model, and show each answer, or its error, in its place. */
async function each(models, hosts, button, signal, ask) {
  button.disabled = true;
  await Promise.all(models.map(async (model, i) => {
    fill(hosts[i], h("p", { class: "soft", role: "status" }, "working …"));
    try { fill(hosts[i], await ask(model, i)); } catch (error) { if (!signal.aborted) fill(hosts[i], problem(error)); }
  }));
  button.disabled = false;
}
