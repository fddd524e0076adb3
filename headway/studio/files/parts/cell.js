// The arithmetic of one cell of an attention map, step by step with the numbers of this input.

import { h, number } from "../dom.js";
import { percent } from "./bars.js";
import { seen } from "./labels.js";
import { strip } from "./maps.js";

const say = v => v === null ? "–∞" : number(v, 3);
const word = token => h("b", { class: "mono" }, seen(token.label));

/** c: what the server says of a cell; from, to: the tokens of the query and the key; keys: all tokens of the row. */
export function arithmetic(c, from, to, keys) {
  const most = Math.max(1e-9, ...c.q.map(Math.abs), ...c.k.map(Math.abs)), width = c.q.length;
  const total = c.scores.reduce((sum, s) => s === null ? sum : sum + Math.exp(s - (c.score ?? 0)), 0);
  const step = (title, text, ...more) => h("li", {}, h("h4", {}, title), h("p", {}, text), more);
  return h("ol", { class: "x-cell" },
    step("Query", ["What ", word(from), ` looks for in this head: ${width} numbers.`], strip(c.q, { scale: most, label: "query vector" })),
    step("Key", ["What ", word(to), " offers to be found by."], strip(c.k, { scale: most, label: "key vector" })),
    step("Dot product", [`Multiply them number by number, and add: `, h("b", {}, say(c.dot)), "."], strip(c.products, { label: "products of query and key" })),
    step("Scale", [`${say(c.dot)} × ${say(c.scale)} = `, h("b", {}, say(c.scaled)), Math.abs(c.scale - width ** -0.5) < 1e-6
      ? `. The factor is 1/√${width}: without it, long vectors would give scores so large that softmax saturates.` : ". This family has a factor of its own."]),
    !c.visible ? step("Mask", [word(to), " comes after ", word(from), ". A model that predicts the next token must not see it: the score becomes –∞, and the weight 0."])
      : c.bias !== null && Math.abs(c.bias) > 1e-4 && step("Bias", [`The distance of the two adds ${say(c.bias)}: `, h("b", {}, say(c.score)), "."]),
    step("Softmax", c.visible ? [`e to the power of each score, divided by their sum, so that the row adds up to 1. Here the share is 1 / ${say(total)} = `, h("b", {}, percent(c.weight)), "."]
      : "The weight is 0; the others of the row add up to 1.", row(c, keys)),
    step("Value", ["What ", word(to), " hands over if it is found."], strip(c.value, { label: "value vector" })),
    step("Weighted", [`${percent(c.weight)} of the value. The values of all keys are added up this way, and a matrix maps the sum to what the head adds to `, word(from),
      `. The part of `, word(to), " is a vector of length ", h("b", {}, say(c.contribution_norm)), "."],
    strip(c.weighted, { label: "weighted value", scale: Math.max(1e-9, ...c.value.map(Math.abs)) })));
}

/** All weights of the row, as bars. */
function row(c, keys) {
  const most = Math.max(1e-9, ...c.row);
  return h("div", { class: "x-row", role: "group", tabindex: "0", "aria-label": "weights of the row: " + keys.map((t, i) => `${t.label} ${percent(c.row[i] ?? 0)}`).slice(0, 64).join(", ") },
    keys.slice(0, 64).map((token, i) => h("span", { class: i === c.key ? "picked" : "", title: `${seen(token.label)}: score ${say(c.scores[i])}, weight ${percent(c.row[i])}` },
      h("i", { style: { height: 100 * c.row[i] / most + "%" } }), h("small", {}, seen(token.label)))));
}
