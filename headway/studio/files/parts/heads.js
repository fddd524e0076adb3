// All heads of a kind: a grid of small pictures, one row for each layer. The pointer or the arrow keys enlarge one.

import { h } from "../dom.js";
import { mapPainter, painted, unpack } from "./maps.js";

/** The grid. `changed(layer, head)` is the factor of a changed head, else null; `redraw()` asks it again. */
export function headGrid({ thumbs, stats }, { causal, picked, onpick, changed = () => null, side = null }) {
  const { shape: [layers, heads, rows, columns], values } = unpack(thumbs), size = side ?? Math.max(24, Math.min(84, Math.floor(880 / heads) - 6, Math.floor(1000 / layers)));
  const step = size + 6, left = 30, canvas = h("canvas", { tabindex: "0", role: "application",
    "aria-label": `${layers} layers of ${heads} heads. Arrow keys go from head to head, Enter opens one.` });
  const at = h("div", { class: "enlarged" }), big = h("canvas", { role: "img" }), words = h("output", {});
  let here = picked ?? { layer: 0, head: 0 };
  const one = (layer, head) => values.subarray((layer * heads + head) * rows * columns, (layer * heads + head + 1) * rows * columns);

  const draw = painted(canvas, left + heads * step, 18 + layers * step, pen => {
    const paint = mapPainter(), style = getComputedStyle(document.documentElement), ink = name => style.getPropertyValue(name).trim();
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = ink("--soft");
    pen.textAlign = "center";
    for (let i = 0; i < heads; i++) pen.fillText(i + 1, left + i * step + size / 2, 12);
    for (let l = 0; l < layers; l++) {
      pen.fillStyle = ink("--soft");
      pen.fillText(l + 1, 14, 18 + l * step + size / 2 + 4);
      for (let i = 0; i < heads; i++) {
        const x = left + i * step, y = 18 + l * step, factor = changed(l, i);
        paint(pen, one(l, i), rows, columns, { x, y, width: size, height: size, causal });
        const on = here.layer === l && here.head === i;
        pen.strokeStyle = ink(on ? "--accent" : factor !== null ? "--warm" : "--edge");
        pen.lineWidth = on || factor !== null ? 2 : 1;
        pen.strokeRect(x - 0.5, y - 0.5, size + 1, size + 1);
        if (factor === 0) { pen.beginPath(); pen.moveTo(x, y); pen.lineTo(x + size, y + size); pen.moveTo(x + size, y); pen.lineTo(x, y + size); pen.stroke(); }
      }
    }
  });
  const show = () => {
    const { layer, head } = here, found = stats.find(s => s.layer === layer && s.head === head);
    painted(big, 180, 180, pen => mapPainter()(pen, one(layer, head), rows, columns, { width: 180, height: 180, causal }));
    big.setAttribute("aria-label", `layer ${layer + 1}, head ${head + 1}`);
    words.textContent = `Layer ${layer + 1}, head ${head + 1} looks at ${found ? found.looks_at : "…"}.`;
  };
  const go = (layer, head) => {
    if (layer < 0 || head < 0 || layer >= layers || head >= heads) return;
    here = { layer, head };
    draw();
    show();
  };
  const under = event => [Math.floor((event.offsetY - 18) / step), Math.floor((event.offsetX - left) / step)];
  canvas.addEventListener("pointermove", event => { const [l, i] = under(event); if (l !== here.layer || i !== here.head) go(l, i); });
  canvas.addEventListener("click", event => { const [l, i] = under(event); if (l >= 0 && i >= 0 && l < layers && i < heads) onpick(l, i); });
  canvas.addEventListener("keydown", event => {
    const way = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (way) go(here.layer + way[0], here.head + way[1]);
    else if (event.key === "Enter" || event.key === " ") onpick(here.layer, here.head);
    else return;
    event.preventDefault();
  });
  at.append(big, words);
  show();
  return Object.assign(h("div", { class: "head-grid" }, h("div", { class: "wide", tabindex: "-1" }, canvas), at), { redraw: draw });
}
