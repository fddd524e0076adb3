// Two inputs: which activations, carried from the one into the other, carry the answer along.

import { post } from "../api.js";
import { field, fill, h, problem } from "../dom.js";
import { brief, seen } from "./labels.js";
import { heatTable } from "./lens.js";

export function patchView({ pass, kind, signal, second = "", onsecond }) {
  const other = h("textarea", { rows: 2, value: second || pass.input });
  const button = h("button", { class: "main" }, "Patch"), out = h("div", { "aria-live": "polite" });
  const info = pass.kinds[kind];
  button.addEventListener("click", async () => {
    button.disabled = true;
    onsecond(other.value);
    fill(out, h("p", { class: "soft" }, `${info.layers * info.tokens.length + info.layers * info.heads} runs of the model …`));
    try {
      const found = await post("/api/xray/patching", { model: pass.model, first: pass.input, second: other.value, kind }, signal);
      const columns = found.tokens[0].map((label, i) => brief(label, 9) + (label === found.tokens[1][i] ? "" : " / " + brief(found.tokens[1][i], 9)));
      const layers = found.positions.map((_, i) => "layer " + (i + 1));
      fill(out, h("p", {}, "In per cent of the way from ", h("b", {}, `“${seen(found.answers[0])}”`), " to ", h("b", {}, `“${seen(found.answers[1])}”`), ", read at position ", String(found.position + 1),
        ". 100 means that this one activation is enough to make the model answer as for the second input."),
      heatTable(found.positions, layers, columns, "The residual stream after a layer, at one position"),
      heatTable(found.heads, layers, Array.from({ length: info.heads }, (_, i) => "head " + (i + 1)), "One head, at all positions"));
    } catch (error) {
      if (error.name !== "AbortError") fill(out, problem(error));
    }
    button.disabled = false;
  });
  return h("div", {}, h("p", { class: "soft" }, "Write a second text of equally many tokens, with one word exchanged. Each activation of the second is then put into the run of the first, one at a time."),
    h("div", { class: "card" }, h("p", {}, h("span", { class: "soft" }, "First: "), pass.input), field("Second", other), h("p", {}, button)), out);
}
