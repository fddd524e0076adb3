// The lessons of the tour: one idea each, with one live picture of the tour's own model and one thing to try.

import { post } from "../api.js";
import { lineChart } from "../chart.js";
import { field, fill, h, number, problem, table } from "../dom.js";
import { bars, percent } from "./bars.js";
import { block } from "./block.js";
import { arithmetic } from "./cell.js";
import { changeList, effect } from "./change.js";
import { flow } from "./flow.js";
import { headLines, headMatrix } from "./head.js";
import { headGrid } from "./heads.js";
import { brief, seen, tokenRow } from "./labels.js";
import { lensTable } from "./lens.js";
import { strip, unpack } from "./maps.js";

const KIND = "decoder";
const word = token => h("b", { class: "mono" }, seen(token.label));
const last = tour => tour.tokens.length - 1;

/** The head and the key that the last token looks at most, where that key is the answer: what the tour shows of attention. */
async function telling(tour) {
  const { thumbs } = await tour.pass.ask("heads", { kind: KIND }), { shape: [layers, heads, rows, columns], values } = unpack(thumbs);
  const answer = tour.pass.predictions[last(tour)][0].label, places = tour.tokens.map((t, i) => t.label === answer ? i : -1).filter(i => i >= 0);
  let best = { layer: layers - 1, head: 0, key: 0, weight: -1 };
  for (let layer = 0; layer < layers; layer++) for (let head = 0; head < heads; head++) for (const key of places.length ? places : tour.tokens.keys()) {
    const weight = values[((layer * heads + head) * rows + rows - 1) * columns + key];
    if (weight > best.weight) best = { layer, head, key, weight };
  }
  return best;
}

/** A row of tokens with something below that depends on the picked one. */
function picking(host, tour, label, draw, first = last(tour)) {
  const row = h("div"), below = h("div");
  const pick = async i => {
    fill(row, tokenRow(tour.tokens, { picked: i, label, onpick: j => { pick(j); row.querySelectorAll("button")[j].focus(); } }));
    try { await draw(below, i); } catch (error) { if (error.name !== "AbortError") fill(below, problem(error)); }
  };
  fill(host, row, below);
  return pick(first);
}

const LESSONS = [
  { id: "tokens", title: "Text becomes tokens",
    words: ["A model reads numbers, not letters. A tokenizer cuts a text into tokens from a fixed list, the vocabulary, and writes down the number of each.",
      "This model has a word for each token. Large models use pieces of words, so that any text can be written with some tens of thousands of them."],
    todo: "Change the sentence. Use a word that the model has never seen, such as your own name: it becomes <unk>, the unknown token.",
    draw(host, tour) {
      fill(host, tokenRow(tour.tokens, { label: "Tokens", onpick: () => {} }), table(["position", "token", "number"], tour.tokens.map((t, i) => [i + 1, seen(t.label), t.id]), { caption: "What the model reads", numeric: [0, 2] }),
        h("details", {}, h("summary", {}, `The words of these stories (${tour.state.words.length})`), h("p", { class: "mono soft" }, tour.state.words.join(" "))));
    } },
  { id: "embedding", title: "A token becomes a vector",
    words: ["Each token of the vocabulary has a row of 64 numbers, its embedding. Training has set every one of them.",
      "Blue is above zero, orange below. No single number means anything by itself; what counts is which vectors point the same way."],
    todo: "Tokens that are used alike have learned to point the same way: compare hugo with emma. Then write two cities into the sentence and pick one of them.",
    async draw(host, tour) {
      const found = await tour.pass.ask("embeddings", { kind: KIND }), cosine = (a, b) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
      const dot = (a, b) => a.reduce((sum, v, i) => sum + v * b[i], 0), most = Math.max(...found.token.flat().map(Math.abs)) * 0.7;
      await picking(host, tour, "Tokens", (below, i) => fill(below, h("div", { class: "x-strips" }, tour.tokens.map((t, j) => [h("span", { class: j === i ? "mono picked" : "mono" }, seen(t.label)),
        strip(found.token[j], { label: "embedding of " + t.label, scale: most, cell: 6, height: 16 }), h("span", { class: "number" }, cosine(found.token[i], found.token[j]).toFixed(2))])),
      h("p", { class: "soft" }, "On the right: the cosine with ", word(tour.tokens[i]), "; 1 is the same direction, 0 none in common.")), 0);
    } },
  { id: "positions", title: "A place becomes a vector, too",
    words: ["Attention, which comes next, does not know order: for it, a sentence is a bag of vectors. “The food was bad, not good” would be the same as “good, not bad”.",
      "So each position has a vector of its own, which is added to that of the token. Other models rotate queries and keys by an angle that depends on the position, or punish distance."],
    todo: "Pick the same word at two places, such as a name that comes twice. Token vectors are equal, sums are not.",
    async draw(host, tour) {
      const found = await tour.pass.ask("embeddings", { kind: KIND }), most = Math.max(...found.sum.flat().map(Math.abs)) * 0.7;
      const line = (name, values) => [h("span", {}, name), strip(values, { label: name, scale: most, cell: 7, height: 24 }), h("span")];
      await picking(host, tour, "Tokens", (below, i) => fill(below, h("div", { class: "x-strips" }, line("token", found.token[i]), found.position && line(`+ position ${i + 1}`, found.position[i]), line("= what goes in", found.sum[i]))), 0);
    } },
  { id: "attention", title: "Attention: tokens look at tokens",
    words: ["Now every token may look at the others and take something from them. Think of a table to look things up in: each token asks with a query, offers itself with a key, and hands over a value.",
      "The look-up is fuzzy: a token gets a mean of all values, weighted by how well each key fits its query. The weights are never negative and add up to 1."],
    todo: "Pick a token on the left. Where does the question mark look, and why is that a good place?",
    async draw(host, tour) {
      const best = await telling(tour), map = unpack(await tour.pass.ask("map", { kind: KIND, layer: best.layer, head: best.head }));
      const draw = picked => fill(host, h("p", { class: "soft" }, `Layer ${best.layer + 1}, head ${best.head + 1}. Lines go from who looks to what is looked at.`), headLines(map, { queries: tour.tokens, keys: tour.tokens, picked, onquery: draw }));
      draw(last(tour));
    } },
  { id: "arithmetic", title: "The arithmetic of one weight",
    words: ["How well does a key fit a query? Their dot product says: multiply number by number and add. It is divided by √16, as there are 16 numbers: otherwise scores grow with the width of a head, softmax saturates, and its gradient vanishes.",
      "Softmax turns the scores of a row into weights. The value is taken in proportion."],
    todo: "Pick another token to be looked at. Follow its score through the steps.",
    async draw(host, tour) {
      const best = await telling(tour), from = last(tour);
      await picking(host, tour, "The token that is looked at", async (below, i) => {
        const c = await tour.pass.ask("cell", { kind: KIND, layer: best.layer, head: best.head, query: from, at: i });
        fill(below, h("p", { class: "soft" }, word(tour.tokens[from]), " looks at ", word(tour.tokens[i]), `, in head ${best.head + 1} of layer ${best.layer + 1}.`), arithmetic(c, tour.tokens[from], tour.tokens[i], tour.tokens));
      }, best.key);
    } },
  { id: "mask", title: "No looking ahead",
    words: ["This model predicts the next token at every position at once. If a token could see those after it, it would copy the answer and learn nothing.",
      "So scores of later keys are set to –∞ before softmax: their weight is exactly 0, and the others still add up to 1. That is the causal mask, the empty corner of the matrix. Models that only read, such as BERT, have none."],
    todo: "Walk over the matrix with the pointer or the arrow keys. Each row adds up to 100 %; the first row has nowhere else to look.",
    async draw(host, tour) {
      const best = await telling(tour), map = unpack(await tour.pass.ask("map", { kind: KIND, layer: best.layer, head: best.head }));
      headMatrix(host, map, { causal: true, queries: tour.tokens, keys: tour.tokens, label: `Attention of layer ${best.layer + 1}, head ${best.head + 1}` });
    } },
  { id: "heads", title: "Many heads look for different things",
    words: ["One look is not enough. Each layer has 4 heads, each with queries, keys and values of its own, 16 wide. What they bring is put side by side, and one more matrix mixes it.",
      "In models that have read much text, some heads look at the token before, some at the same word earlier on, some at the end of the last sentence."],
    todo: "Click a head to take it away, once more to bring it back. Which ones does the answer hang on?",
    async draw(host, tour) {
      const heads = await tour.pass.ask("heads", { kind: KIND }), moved = effect(tour.signal);
      const changes = changeList(() => { grid.redraw(); moved.update(tour.pass, changes.list, last(tour)); });
      const grid = headGrid(heads, { causal: true, side: 72, changed: (l, i) => changes.at(KIND, l, i)?.factor ?? null,
        onpick: (l, i) => { const found = changes.at(KIND, l, i); found ? changes.drop(found) : changes.set(KIND, l, i, 0); } });
      moved.update(tour.pass, changes.list, last(tour));
      fill(host, grid, h("h3", {}, "Next after ", h("code", {}, seen(tour.tokens[last(tour)].label))), moved.node);
    } },
  { id: "feed-forward", title: "Feed-forward: each token alone",
    words: ["After tokens have looked around, each one is worked on by itself: 64 numbers become 256, those below zero are almost cut off (the activation, GELU), and 256 become 64 again.",
      "Without this step, attention could only mix what is there. Here the model can make something new of it. Most of a model's weights are in this part."],
    todo: "Pick tokens and watch which of the 256 neurons are active. Do words of one kind share some?",
    async draw(host, tour) {
      await picking(host, tour, "Tokens", async (below, i) => {
        const layers = await Promise.all([0, 1].map(layer => tour.pass.ask("neurons", { kind: KIND, layer, position: i })));
        fill(below, layers.map((n, layer) => [h("h3", {}, "Layer " + (layer + 1)), strip(n.values, { label: "neurons of layer " + (layer + 1), cell: 3, height: 26 }),
          h("p", { class: "soft" }, `${percent(n.active)} are above 0. The strongest: `, n.top.slice(0, 5).map(t => `${t.neuron} (${number(t.value, 2)})`).join(", "), ".")]));
      });
    } },
  { id: "block", title: "A block: add, do not replace",
    words: ["Attention and feed-forward together are a block. Neither replaces the vector of a token: what it finds is added. This is the residual connection, and it keeps a straight way open, for the token on its way up and for the gradient on its way down.",
      "Before each part a norm brings the vector to a fixed length, so that deep stacks stay stable. (The first transformers had it after each part.)"],
    todo: "Pick tokens: which part adds more to which of them?",
    async draw(host, tour) {
      const heads = await tour.pass.ask("heads", { kind: KIND });
      await picking(host, tour, "Tokens", async (below, i) => {
        const neurons = await tour.pass.ask("neurons", { kind: KIND, layer: 0, position: i });
        fill(below, block({ stack: tour.stack, norms: tour.info.norms, position: i, layer: 0, heads, neurons, causal: true, onhead: () => {} }));
      });
    } },
  { id: "stack", title: "Blocks on blocks",
    words: ["Blocks are stacked: 2 here, 12 in the smallest GPT-2, 96 in GPT-3. Each works with what those below it have found, so that a token knows of more and more of the text the higher it gets.",
      "The last vector of each position goes through the head, a matrix with a row for each token of the vocabulary, and softmax: the probability of every next token."],
    todo: "Pick a token to see where it looks in each layer. The table below asks the head after each layer: when does the answer appear?",
    async draw(host, tour) {
      const [embeddings, lens] = await Promise.all([tour.pass.ask("embeddings", { kind: KIND }), tour.pass.ask("lens", { top: 5 })]);
      const draw = async position => {
        const looks = await tour.pass.ask("looks", { kind: KIND, position });
        fill(host, flow(tour.info, { name: "decoder", room: 640, position, layer: null, looks, embeddings, entry: "→ 64", exit: "→ " + tour.vocab, onposition: draw, onlayer: () => {} }), h("div", { class: "x-gap" }), lensTable(lens, tour.tokens, { position, onposition: draw }));
      };
      await draw(last(tour));
    } },
  { id: "loss", title: "How wrong is it? The loss",
    words: ["At each position the model has given a probability p to the token that does come next. Its loss there is –ln p: 0 if it was sure and right, 0.7 for a coin's toss, large if it was sure and wrong.",
      "The mean over all positions is what training makes small. Some of it can never go away: nobody can know which name comes first."],
    todo: "Write a story that contradicts itself, and see which token surprises the model.",
    draw(host, tour) {
      const p = tour.pass.probabilities.slice(1), losses = p.map(v => -Math.log(Math.max(v, 1e-6))), mean = losses.reduce((a, b) => a + b, 0) / losses.length, most = Math.max(...losses);
      fill(host, h("div", { class: "x-losses", role: "group", tabindex: "0", "aria-label": "loss of each token" }, p.map((v, i) => h("span", { title: `p = ${percent(v)}` }, h("small", {}, losses[i].toFixed(2)), h("i", { style: { height: Math.max(1, 100 * losses[i] / most) + "%" } }), h("small", { class: "mono" }, brief(tour.tokens[i + 1].label, 9))))),
        h("p", {}, "Mean loss: ", h("b", {}, number(mean, 3)), `. The perplexity is e to the power of it, ${number(Math.exp(mean), 3)}: on average, as unsure as if it had to choose between so many tokens.`),
        h("details", {}, h("summary", {}, "As a table"), table(["after", "comes", "p", "loss"], p.map((v, i) => [seen(tour.tokens[i].label), seen(tour.tokens[i + 1].label), percent(v), number(losses[i], 3)]), { caption: "Loss of each token", numeric: [2, 3] })));
    } },
  { id: "training", title: "A training step",
    words: ["Here is a new model of the same shape, with random weights. A step: take 32 stories, compute the loss, then its gradient: for each of 100,000 weights, how the loss would change if that weight grew. Move every weight a little the other way. That is all.",
      "The learning rate says how little. Too small takes forever, too large throws away what was learned."],
    todo: "Take one step, then ten at a time. First it learns which words are frequent, then which kind of word comes next. To look back at the story takes it some hundreds more. Then start anew with the learning rate at 0.5.",
    async draw(host, tour) {
      const rate = h("input", { type: "range", min: -4, max: 0, step: 0.1, value: -2 }), told = h("output", {}), chart = h("div"), right = h("div"), bad = h("div");
      const lr = () => 10 ** +rate.value, say = () => { told.textContent = number(lr(), 2); };
      rate.addEventListener("input", say);
      say();
      let curve = null, buttons = [];
      const teach = async (steps, fresh = false) => {
        for (const each of buttons) each.disabled = true;
        try {
          const found = await post("/api/learn/teach", { model: tour.pass.model, input: tour.sentence, steps, lr: lr(), fresh }, tour.signal);
          const spec = { title: "Loss of the new model", axis: "step", whole: true, controls: false, panels: [{ key: "loss", title: "loss", tall: true, series: [{ name: "loss", x: found.losses.map((_, i) => i + 1), y: found.losses, look: "train" }] }] };
          if (found.losses.length < 2) { fill(chart, h("p", { class: "soft" }, found.losses.length ? `Loss ${number(found.losses[0], 4)}. With ${tour.vocab} tokens, pure guessing has ln ${tour.vocab} = ${number(Math.log(tour.vocab), 3)}.` : "No step yet.")); curve = null; }
          else if (curve) curve.update(spec); else curve = lineChart(chart, spec);
          const norms = Object.entries(found.norms);
          fill(right, h("h3", {}, "Its next word after the sentence"), bars(found.answers), norms.length > 0 && h("div", {}, h("h3", {}, "Length of the last gradient"), bars(norms.map(([label, probability]) => ({ label, probability })), { plain: true })));
          fill(bad);
        } catch (error) { if (error.name !== "AbortError") fill(bad, problem(error)); }
        for (const each of buttons) each.disabled = false;
      };
      buttons = [["One step", 1], ["Ten steps", 10]].map(([name, steps]) => h("button", { class: "main", onclick: () => teach(steps) }, name));
      buttons.push(h("button", { onclick: () => teach(0, true) }, "Start anew"));
      fill(host, h("div", { class: "row" }, buttons, h("label", { class: "row" }, "Learning rate", rate, told)), bad, h("div", { class: "columns x-gap" }, chart, right));
      await teach(0);
    } },
  { id: "generate", title: "One token after the other",
    words: ["To write, the model predicts the next token, one is chosen, appended, and everything runs again. Nothing else is behind a chat.",
      "Always the likeliest token is called greedy. Or one is drawn by its probability, with a temperature: below 1 the likely ones win more often, above 1 the others get their chance. Keys and values of earlier tokens do not change, so real programs keep them: the KV cache."],
    todo: "Let it write a few tokens greedily, then draw with a high temperature.",
    async draw(host, tour) {
      const heat = h("input", { type: "range", min: 0.1, max: 3, step: 0.1, value: 1 }), told = h("output", {}, "1"), out = h("div"), start = tour.tokens.length;
      let text = tour.sentence, pass = tour.pass;
      heat.addEventListener("input", () => { told.textContent = heat.value; });
      const append = async label => {
        try {
          pass = await tour.run(text + " " + label);
          text += " " + label;
          draw();
        } catch (error) { if (error.name !== "AbortError") out.append(problem(error)); }
      };
      const drawn = () => {
        const rows = pass.predictions.at(-1), weights = rows.map(r => r.probability ** (1 / +heat.value)), total = weights.reduce((a, b) => a + b, 0);
        let left = Math.random() * total;
        return rows[Math.max(0, weights.findIndex(w => (left -= w) <= 0))].label;
      };
      const draw = () => fill(out, tokenRow(pass.kinds[KIND].tokens, { label: "The text so far", onpick: () => {}, shades: pass.kinds[KIND].tokens.map((_, i) => i >= start ? { background: "var(--tint)" } : {}) }), bars(pass.predictions.at(-1), { onpick: row => append(row.label) }));
      fill(host, h("div", { class: "row" }, h("button", { class: "main", onclick: () => append(pass.predictions.at(-1)[0].label) }, "Take the likeliest"), h("button", { onclick: () => append(drawn()) }, "Draw one"), h("label", { class: "row" }, "Temperature", heat, told),
        h("button", { class: "quiet", onclick: () => { text = tour.sentence; pass = tour.pass; draw(); } }, "From the start")), out);
      draw();
    } },
  { id: "next", title: "Where to go from here",
    words: ["You have seen a decoder: it reads from left to right and predicts what comes next, like GPT. An encoder, like BERT, sees both sides and is trained to fill blanks; it classifies, tags and searches. An encoder–decoder has one stack for each and attention between them (cross-attention); it translates and summarises.",
      "Pictures and sounds go through the same blocks: patches of an image and slices of a spectrogram become vectors, and are tokens from then on."],
    todo: "Everything you saw works with any model of yours.",
    draw(host, tour) {
      const link = (href, name, text) => h("li", {}, h("a", { href }, name), " – ", text), model = encodeURIComponent(tour.pass.model);
      fill(host, h("ul", { class: "x-links" }, link(`/xray?model=${model}&input=${encodeURIComponent(tour.sentence)}`, "X-ray", "the same views without the words, for this model and all others"), link("/playground?model=" + model, "Playground", "let models write, classify, translate"),
        link("/tokens", "Tokens", "how tokenizers cut the same text"), link("/new", "New run", "train a model on data of your own"), link("/run/" + model, "The run of this tour", "its curves, its samples, its recipe")));
    } },
];

export default LESSONS;
