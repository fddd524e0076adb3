// Numbers as colours: attention maps from the bytes that the server sends, strips of signed numbers, shades of table cells.

import { h, number } from "../dom.js";

/** Weights between 0 and 1, as the server packs them: 16-bit numbers, or bytes for small pictures. */
export function unpack({ shape, data }) {
  const text = atob(data), raw = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) raw[i] = text.charCodeAt(i);
  const size = shape.reduce((a, b) => a * b, 1), wide = raw.length === 2 * size, values = new Float32Array(size);
  for (let i = 0; i < size; i++) values[i] = wide ? (raw[2 * i] + 256 * raw[2 * i + 1]) / 65535 : raw[i] / 255;
  return { shape, values };
}

const schemes = matchMedia("(prefers-color-scheme: dark)");
const redrawn = new Set();  // what to draw again when light becomes dark
schemes.addEventListener("change", () => {
  for (const each of redrawn) each.canvas.isConnected ? each.draw() : redrawn.delete(each);
});

/** Colours of the page as [red, green, blue], for a canvas. */
export function colour(name) {
  const probe = document.createElement("canvas").getContext("2d");
  probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const hex = probe.fillStyle;
  return [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));
}

const mix = (a, b, part) => a.map((v, i) => Math.round(v + (b[i] - v) * part));
export const css = rgb => `rgb(${rgb.join(" ")})`;

/** Draw on a canvas at the screen's own resolution, and again when the colour scheme changes. */
export function painted(canvas, width, height, paint) {
  const draw = () => {
    const sharp = devicePixelRatio || 1;
    canvas.width = Math.round(width * sharp);
    canvas.height = Math.round(height * sharp);
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    const pen = canvas.getContext("2d");
    pen.scale(sharp, sharp);
    paint(pen);
  };
  redrawn.add({ canvas, draw });
  draw();
  return draw;
}

/** Paints maps into boxes of a canvas. The root of a weight is shown, so that small weights can be seen beside large ones. */
export function mapPainter() {
  const low = colour("--back"), high = colour("--accent"), word = rgb => (255 << 24 | rgb[2] << 16 | rgb[1] << 8 | rgb[0]) >>> 0;
  const ramp = Uint32Array.from({ length: 256 }, (_, i) => word(mix(low, high, Math.sqrt(i / 255)))), none = word(colour("--grid"));
  const small = document.createElement("canvas");
  return (pen, values, rows, columns, { x = 0, y = 0, width, height, causal = false }) => {
    const picture = new ImageData(columns, rows), cells = new Uint32Array(picture.data.buffer);
    for (let i = 0; i < rows * columns; i++) {
      const hidden = causal && i % columns > Math.floor(i / columns);
      cells[i] = hidden ? none : ramp[Math.round(255 * Math.min(1, values[i]))];
    }
    small.width = columns;
    small.height = rows;
    small.getContext("2d").putImageData(picture, 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, x, y, width, height);
  };
}

/** A strip of signed numbers: blue above zero, orange below; a value is told under the pointer. */
export function strip(values, { label, scale = null, height = 18, cell = null, names = null } = {}) {
  const most = scale ?? Math.max(1e-9, ...values.map(Math.abs)), count = values.length;
  const size = cell ?? Math.max(2, Math.min(22, Math.floor(420 / count)));
  const canvas = h("canvas", { class: "strip", role: "img", "aria-label": label });
  const told = h("output", { class: "told" });
  painted(canvas, count * size, height, pen => {
    const zero = colour("--back"), above = colour("--accent"), below = colour("--warm");
    values.forEach((v, i) => {
      pen.fillStyle = css(mix(zero, v >= 0 ? above : below, Math.min(1, Math.abs(v) / most)));
      pen.fillRect(i * size, 0, Math.ceil(size - (size > 6 ? 1 : 0)), height);
    });
  });
  canvas.addEventListener("pointermove", event => {
    const i = Math.min(count - 1, Math.max(0, Math.floor(event.offsetX / size)));
    told.textContent = (names ? names[i] : "number " + (i + 1)) + ": " + number(values[i], 3);
  });
  canvas.addEventListener("pointerleave", () => { told.textContent = ""; });
  return h("span", { class: "strip-box" }, canvas, told);
}

/** The shade of a table cell; never so dark that its text is hard to read. */
export function shade(part, name = "--accent") {
  return { background: `color-mix(in srgb, var(${name}) ${Math.round(45 * Math.min(1, Math.max(0, part)))}%, transparent)` };
}
