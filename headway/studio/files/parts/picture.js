// Attention over a picture: the patches that one position looks at stay bright.

import { fill, h } from "../dom.js";
import { percent } from "./bars.js";
import { painted, unpack } from "./maps.js";

const SIDE = 340;

/** picture: bytes as the server packs them; grid: rows, columns and leading positions of the patches; map: of one head. */
export function overPicture({ picture, grid, map, tokens, picked, onquery }) {
  const { shape: [channels, high, wide], values } = unpack(picture), scale = SIDE / Math.max(high, wide), width = wide * scale, height = high * scale;
  const { values: weights, shape: [, keys] } = map, query = picked ?? 0, told = h("output", { class: "soft" });
  const small = document.createElement("canvas"), pixels = new ImageData(wide, high);
  small.width = wide;
  small.height = high;
  for (let i = 0; i < wide * high; i++) {
    for (let c = 0; c < 3; c++) pixels.data[4 * i + c] = 255 * values[(channels === 1 ? 0 : c) * wide * high + i];
    pixels.data[4 * i + 3] = 255;
  }
  small.getContext("2d").putImageData(pixels, 0, 0);
  const box = [width / grid.columns, height / grid.rows], canvas = h("canvas", { tabindex: "0", role: "application", "aria-label": "The picture; arrow keys move from patch to patch, Enter looks from there." });
  const most = Math.max(1e-9, ...Array.from({ length: grid.rows * grid.columns }, (_, i) => weights[query * keys + grid.leading + i]));
  let here = Math.max(0, query - grid.leading);
  const draw = painted(canvas, width, height, pen => {
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, 0, 0, width, height);
    for (let i = 0; i < grid.rows * grid.columns; i++) {
      const x = i % grid.columns * box[0], y = Math.floor(i / grid.columns) * box[1];
      pen.fillStyle = `rgb(0 0 0 / ${0.82 * (1 - weights[query * keys + grid.leading + i] / most)})`;
      pen.fillRect(x, y, box[0] + 0.5, box[1] + 0.5);
      if (i === here || i === query - grid.leading) {
        pen.strokeStyle = i === query - grid.leading ? "#f0965a" : "#ffffff";
        pen.lineWidth = 2;
        pen.strokeRect(x + 1, y + 1, box[0] - 2, box[1] - 2);
      }
    }
  });
  const point = i => {
    if (i < 0 || i >= grid.rows * grid.columns) return;
    here = i;
    told.textContent = `Patch ${tokens[grid.leading + i].label}: ${percent(weights[query * keys + grid.leading + i])} of the attention`;
    draw();
  };
  const under = event => Math.min(grid.rows - 1, Math.floor(event.offsetY / box[1])) * grid.columns + Math.min(grid.columns - 1, Math.floor(event.offsetX / box[0]));
  canvas.addEventListener("pointermove", event => point(under(event)));
  canvas.addEventListener("click", event => onquery(grid.leading + under(event)));
  canvas.addEventListener("keydown", event => {
    const way = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.columns, ArrowDown: grid.columns }[event.key];
    if (way) point(here + way);
    else if (event.key === "Enter") onquery(grid.leading + here);
    else return;
    event.preventDefault();
  });
  const leading = tokens.slice(0, grid.leading).map((token, i) => h("button", { "aria-pressed": String(i === query), onclick: () => onquery(i) }, token.label));
  return fill(h("div"), leading.length > 0 && h("div", { class: "row" }, "From ", leading), canvas, h("p", {}, told));
}
