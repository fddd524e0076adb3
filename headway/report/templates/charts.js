// Charts, in a report and in the studio. A report holds curves that the server has drawn: here they answer a pointer and
// keys. The studio imports this file as /files/chart.js and draws from values.

const WIDTH = 1000, HEIGHT = 100, DOTS = 60, ROWS = 40, CELLS = 64;
const LOOKS = ["train", "valid", "lr", "norm", "rate", "train second", "valid second", "lr second"];

const SVG = ["http:", "", "www.w3.org", "2000", "svg"].join("/"); // a name; a report holds no address, not even one like it

const say = v => v === null || v === undefined || !Number.isFinite(v) ? "–"
  : v.toLocaleString("en-GB", Number.isInteger(v) ? {} : { maximumSignificantDigits: 4 });
const brief = v => Math.abs(v) >= 1e9 ? say(v / 1e9) + "G" : Math.abs(v) >= 1e6 ? say(v / 1e6) + "M" : Math.abs(v) >= 1e4 ? say(v / 1e3) + "k" : say(v);

/** The look of the i-th of several curves: a colour, then a kind of dash. */
export const lookOf = i => LOOKS[i % LOOKS.length];

function make(tag, props, ...children) {
  const drawn = ["svg", "path", "rect", "title"].includes(tag);
  const made = drawn ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false));
  return made;
}

/** The index of the last point at or before a place. */
function near(xs, at) {
  let a = 0, b = xs.length - 1;
  while (a < b) { const m = (a + b + 1) >> 1; if (xs[m] <= at) a = m; else b = m - 1; }
  return a;
}

function ticks(low, high, most = 5, whole = false) {
  if (!(high > low)) return [low];
  const raw = (high - low) / most, ten = 10 ** Math.floor(Math.log10(raw));
  const size = Math.max(whole ? 1 : 0, ten * [1, 2, 5, 10].find(f => ten * f >= raw * (1 - 1e-9))), found = [];
  for (let i = Math.ceil(low / size - 1e-9); i * size <= high + size * 1e-9; i++) found.push(+(i * size).toPrecision(12));
  return found;
}

function logTicks(low, high) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high)), every = Math.ceil((last - first + 1) / 6);
  for (const factors of [[1], [1, 2, 5]]) {
    const found = [];
    for (let p = first; p <= last; p++)
      if (p % every === 0) for (const f of factors) { const t = f * 10 ** p; if (low <= t && t <= high) found.push(t); }
    if (found.length >= 3) return found;
  }
  return ticks(low, high, 4);
}

function drawAxis(axis, low, high, whole, name = brief) {
  axis.replaceChildren(...ticks(low, high, axis.clientWidth && axis.clientWidth < 420 ? 3 : 6, whole).map(t => {
    const label = make("span", {}, name(t));
    label.style.left = 100 * (t - low) / (high - low || 1) + "%";
    return label;
  }));
}

/**
 * Lets a pointer and keys walk along a group of areas on one axis, and zoom.
 *
 * `draw(low, high)` shows a part of the axis, `read(at)` the values at a place; at null it hides them. Drag to zoom,
 * double click or Escape to see all; arrows walk, with Shift they pan; + and - zoom.
 */
function explore(group, { low, high, whole = true, draw, read }) {
  const full = { low, high }, view = { low, high };
  let at = null, from = null;
  const areas = () => group.querySelectorAll(".area");
  const place = x => 100 * (x - view.low) / (view.high - view.low) + "%";
  const round = x => whole ? Math.round(x) : x;
  const add = (area, name) => area.querySelector("." + name) || area.appendChild(make("div", { class: name }));
  const least = () => whole ? 2 : (full.high - full.low) / 1e6;

  function point(x) {
    at = Math.min(view.high, Math.max(view.low, round(x)));
    for (const area of areas()) add(area, "cursor").style.left = place(at);
    read(at);
  }
  function leave() {
    at = null;
    for (const cursor of group.querySelectorAll(".cursor")) cursor.remove();
    read(null);
  }
  function zoom(a, b) {
    a = Math.max(full.low, a); b = Math.min(full.high, b);
    if (b - a < Math.min(least(), full.high - full.low)) return;
    Object.assign(view, { low: a, high: b });
    leave();
    draw(a, b);
  }
  const all = () => zoom(full.low, full.high);
  function scale(factor) {
    const middle = at ?? (view.low + view.high) / 2;
    zoom(round(middle - (middle - view.low) * factor), round(middle + (view.high - middle) * factor));
  }
  function pan(share) {
    const wide = view.high - view.low, a = Math.min(full.high - wide, Math.max(full.low, round(view.low + share * wide)));
    zoom(a, a + wide);
  }
  const under = (area, event) => {
    const box = area.getBoundingClientRect();
    return view.low + (view.high - view.low) * Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };
  group.addEventListener("pointerdown", event => {
    const area = event.target.closest(".area");
    if (!area || event.button) return;
    from = { area, x: under(area, event) };
    area.setPointerCapture(event.pointerId);
  });
  group.addEventListener("pointermove", event => {
    const area = from ? from.area : event.target.closest(".area");
    if (!area) { if (at !== null) leave(); return; }
    const x = under(area, event);
    point(x);
    if (!from) return;
    const brush = add(area, "brush"), ends = [from.x, x].sort((a, b) => a - b);
    brush.style.left = place(ends[0]);
    brush.style.width = 100 * (ends[1] - ends[0]) / (view.high - view.low) + "%";
  });
  const stop = event => {
    if (!from) return;
    const { area, x } = from, brush = area.querySelector(".brush");
    from = null;
    if (!brush) return;
    brush.remove();
    const [a, b] = [x, under(area, event)].map(round).sort((a, b) => a - b);
    if (event.type === "pointerup" && b - a > (view.high - view.low) / 200) zoom(a, b);
  };
  group.addEventListener("pointerup", stop);
  group.addEventListener("pointercancel", stop);
  group.addEventListener("pointerleave", () => { if (!from) leave(); });
  group.addEventListener("dblclick", event => { if (event.target.closest(".area")) all(); });
  group.addEventListener("keydown", event => {
    if (event.target !== group || event.ctrlKey || event.metaKey || event.altKey) return;
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key], size = (view.high - view.low) / 100;
    if (way && event.shiftKey) pan(way / 10);
    else if (way) point((at ?? view.low) + way * (whole ? Math.max(1, Math.round(size)) : size));
    else if (event.key === "Home" || event.key === "End") point(event.key === "Home" ? view.low : view.high);
    else if (event.key === "+" || event.key === "=") scale(.5);
    else if (event.key === "-") scale(2);
    else if (event.key === "Escape") all();
    else return;
    event.preventDefault();
  });
  group.addEventListener("blur", leave);
  group.tabIndex = 0;
  return {
    view, all,
    get zoomed() { return view.low !== full.low || view.high !== full.high; },
    get at() { return at; },
    point, leave,
    /** The axis has grown, or is another one. A part that is shown stays where it is. */
    extend(low, high, whole_ = whole) {
      const stays = this.zoomed && whole_ === whole && view.low >= low && view.high <= high;
      whole = whole_;
      Object.assign(full, { low, high });
      if (!stays) Object.assign(view, full);
    },
  };
}

/** The curves of a report: their SVG is stretched to the part that is shown. */
function enhance(source) {
  const section = source.closest("section"), charts = section && section.querySelector(".charts");
  if (!charts) return;
  const data = JSON.parse(source.textContent), reset = section.querySelector("#reset");
  const axis = charts.querySelector(".axis"), wide = data.high - data.low;
  const walk = explore(charts, { low: data.low, high: data.high, draw, read });

  function read(at) {
    for (const panel of charts.querySelectorAll(".panel")) {
      const words = [];
      for (const s of at === null ? [] : data.series) if (s.panel === panel.dataset.key && s.x.length && s.x[0] <= at) {
        const y = s.y[near(s.x, at)];
        if (y !== null) words.push(s.name + " " + say(y));
      }
      panel.querySelector(".value").textContent = at === null ? "" : "step " + say(at) + (words.length ? ": " + words.join(", ") : "");
    }
  }
  function draw(low, high) {
    for (const drawn of charts.querySelectorAll(".area > svg"))
      drawn.setAttribute("viewBox", [WIDTH * (low - data.low) / wide, 0, WIDTH * (high - low) / wide, HEIGHT].join(" "));
    for (const mark of charts.querySelectorAll(".mark")) placeMark(mark, low, high);
    drawAxis(axis, low, high, true);
    reset.hidden = !walk.zoomed;
  }
  reset.addEventListener("click", walk.all);
  for (const hint of document.querySelectorAll(".scripted")) hint.hidden = false;
}

function placeMark(mark, low, high) {
  const share = (+mark.dataset.at - low) / (high - low);
  mark.style.left = 100 * share + "%";
  mark.hidden = share < 0 || share > 1;
}

/** A moving average around each point, made twice, as `runs.events.smooth` does. */
function smoothed(y, window) {
  const mean = (values, wide) => {
    const sums = [0], counts = [0];
    values.forEach((v, i) => { sums.push(sums[i] + (v ?? 0)); counts.push(counts[i] + (v === null ? 0 : 1)); });
    return values.map((_, i) => {
      const a = Math.max(0, i - ((wide - 1) >> 1)), b = Math.min(values.length, i + (wide >> 1) + 1), n = counts[b] - counts[a];
      return n ? (sums[b] - sums[a]) / n : null;
    });
  };
  const first = (window >> 1) + 1;
  return mean(mean(y, first), window - first + 1);
}

/** The lowest and highest value on the vertical axis. A spike of more than four times the 99th percentile is cut off. */
function span(lines, low, high, log) {
  let bottom = Infinity, top = -Infinity;
  for (const { x, y, band } of lines) {
    for (const values of [y, ...(band || [])]) {
      const seen = values.filter((v, i) => v !== null && Number.isFinite(v) && (!log || v > 0) && x[i] >= low && x[i] <= high);
      if (!seen.length) continue;
      const sorted = Float64Array.from(seen).sort(), usual = sorted[Math.floor(.99 * (sorted.length - 1))], most = sorted.at(-1);
      bottom = Math.min(bottom, sorted[0]);
      top = Math.max(top, most <= 4 * usual || usual <= 0 ? most : usual);
    }
  }
  if (bottom === Infinity) return null;
  if (!(top > bottom)) [bottom, top] = log ? [bottom / 1.1, bottom * 1.1] : [bottom - (Math.abs(bottom) || 1) * .1, bottom + (Math.abs(bottom) || 1) * .1];
  const margin = log ? (top / bottom) ** .04 : (top - bottom) * .04;
  return log ? [bottom / margin, top * margin] : [bottom - margin, top + margin];
}

/**
 * Curves in panels over one axis, with events above and tables below.
 *
 * `spec`: `title`, `axis` (its name), `whole` (the axis counts), `panels`: [{key, title, series, log, tall, say}] or, for a
 * single panel, these keys themselves; `series`: [{name, x, y, look, band: [low, high], noisy, dots}] with null for a
 * gap; a `shadow` is drawn, but neither named nor read; `events`: [{kind, name, sign, at: [x …], rule}]; `extent`: both
 * ends of the axis; `controls: false` leaves out scale and smoothing. Curves that are `noisy` are smoothed here, unless
 * `onview({low, high, smooth})` is given: then who is called brings new values. Returns `update(spec)`, which keeps what
 * is shown, the row of `controls`, and `view`.
 */
export function lineChart(host, spec) {
  const state = { log: false, smooth: 0.025, hidden: new Set() };
  const group = make("div", { class: "charts", role: "group" }), controls = make("div", { class: "controls" });
  const tables = make("div", { class: "tables" }), rails = make("div", { class: "rails" }), stage = make("div");
  const axis = make("div", { class: "axis", "aria-hidden": "true" }), axisName = make("p", { class: "axis-name" });
  group.append(rails, stage, axis, axisName);
  host.replaceChildren(controls, group, tables);
  let panels = [], built = "", walk = null, waiting = 0;
  const allPanels = () => (spec.panels || [{ key: "chart", ...spec }]).filter(panel => panel.series.some(s => s.x.length));

  const reset = make("button", { type: "button", hidden: true, onclick: () => walk.all() }, "Show all");
  const scale = make("input", { type: "checkbox", onchange: () => { state.log = scale.checked; draw(); } });
  const slider = make("input", { type: "range", min: 0, max: 20, step: .5, value: 2.5, oninput: () => {
    state.smooth = slider.value / 100;
    if (spec.onview) tell(); else draw();
  } });
  const scaleField = make("label", {}, scale, "logarithmic"), slideField = make("label", {}, "smoothing", slider);
  controls.append(scaleField, slideField, reset);

  function extent() {
    let low = Infinity, high = -Infinity;
    for (const panel of allPanels()) for (const { x } of panel.series) if (x.length) { low = Math.min(low, x[0]); high = Math.max(high, x.at(-1)); }
    if (spec.extent) [low, high] = spec.extent;
    if (low === Infinity) return [0, 1];
    return high > low ? [low, high] : [low, low + 1];
  }
  function lines(panel) {
    return panel.series.filter(s => !state.hidden.has(s.name)).flatMap((s, i) => {
      const line = { look: lookOf(panel.series.indexOf(s)), ...s };
      const window = s.noisy && !spec.onview ? Math.round(state.smooth * s.x.length) : 0;
      return window < 2 ? [line] : [{ ...line, look: line.look + " raw", shadow: true }, { ...line, y: smoothed(s.y, window) }];
    });
  }
  function tell() {
    clearTimeout(waiting);
    waiting = setTimeout(() => spec.onview({ ...walk.view, smooth: state.smooth, zoomed: walk.zoomed }), 120);
  }
  const shown = (low, high) => { draw(); if (spec.onview) tell(); };
  function read(at) {
    for (const { panel, value, drawn } of panels) {
      const words = at === null ? [] : drawn.filter(line => !line.shadow && line.x.length && line.x[0] <= at)
        .map(line => [line.name, line.y[near(line.x, at)]]).filter(([, y]) => y !== null && y !== undefined)
        .map(([name, y]) => (drawn.filter(line => !line.shadow).length > 1 || !panel.title ? name + " " : "") + (panel.say || say)(y));
      value.textContent = at === null ? "" : `${spec.axis || "x"} ${spec.sayX ? spec.sayX(at) : say(at)}` + (words.length ? ": " + words.join(", ") : "");
    }
  }

  function build() {
    panels = allPanels().map(panel => {
      const value = make("output", { class: "value" }), legend = make("span", { class: "legend" });
      const paper = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
      const plot = make("div", { class: "plot" }, make("div", { class: "area" }, paper));
      const details = make("details", { ontoggle: () => fillTable(panel.key) }, make("summary", {}, `${panel.title || spec.title || "Values"} as a table`));
      stage.append(make("figure", { class: "panel" + (panel.tall ? " tall" : "") }, make("figcaption", {}, make("b", {}, panel.title || ""), legend, value), plot));
      tables.append(details);
      return { panel, value, legend, paper, plot, details, drawn: [], looks: "" };
    });
  }
  function fillTable(key) {
    const { panel, details, drawn } = panels.find(each => each.panel.key === key);
    if (!details.open) { details.querySelector("div")?.remove(); return; }
    const every = drawn.filter(line => !line.shadow && line.x.length), places = [...new Set(every.flatMap(line => [...line.x]))].sort((a, b) => a - b);
    const count = Math.min(ROWS, places.length), chosen = Array.from({ length: count }, (_, i) => places[Math.round(i * (places.length - 1) / Math.max(1, count - 1))]);
    const rows = [...new Set(chosen)].map(at => [(spec.sayX || say)(at), ...every.map(line => line.x[0] <= at ? (panel.say || say)(line.y[near(line.x, at)]) : "–")]);
    details.querySelector("div")?.remove();
    details.append(plainTable([spec.axis || "x", ...every.map(line => line.name)], rows, panel.title || spec.title));
  }
  function drawLegend(each) {
    const named = each.panel.series.filter(s => !s.shadow), looks = JSON.stringify([named.map((s, i) => [s.name, s.look || lookOf(i)]), [...state.hidden]]);
    if (looks === each.looks) return;
    each.looks = looks;
    each.legend.replaceChildren(...(named.length < 2 && !named[0].dots ? [] : named.map((s, i) => make("button", {
      type: "button", class: "key", "aria-pressed": String(!state.hidden.has(s.name)), title: "Show or hide",
      onclick: () => { state.hidden.has(s.name) ? state.hidden.delete(s.name) : state.hidden.add(s.name); draw(); },
    }, make("svg", { class: "swatch", viewBox: "0 0 24 8", "aria-hidden": "true" }, make("path", { class: "line " + (s.look || lookOf(i)), d: "M0 4H24" })), s.name))));
  }
  function draw() {
    const { low, high } = walk.view, across = x => WIDTH * (x - low) / (high - low);
    for (const each of panels) {
      const drawn = each.drawn = lines(each.panel), log = state.log && each.panel.log, ends = span(drawn, low, high, log);
      drawLegend(each);
      for (const label of each.plot.querySelectorAll(".y")) label.remove();
      each.paper.replaceChildren();
      each.paper.setAttribute("aria-label", describe(each.panel, drawn));
      if (!ends) continue;
      const [bottom, top] = log ? ends.map(Math.log) : ends, part = v => ((log ? Math.log(v) : v) - bottom) / (top - bottom);
      const up = v => v === null || !Number.isFinite(v) || (log && v <= 0) ? null : Math.min(2 * HEIGHT, Math.max(-HEIGHT, HEIGHT * (1 - part(v))));
      const marks = log ? logTicks(...ends) : ticks(...ends, 5);
      for (const t of marks) {
        const label = make("span", { class: "y", "aria-hidden": "true" }, brief(t));
        label.style.bottom = 100 * part(t) + "%";
        each.plot.append(label);
      }
      each.paper.append(make("path", { class: "grid", d: marks.map(t => `M0 ${up(t).toFixed(1)}H${WIDTH}`).join("") }));
      for (const event of spec.events || []) if (event.rule)
        each.paper.append(make("path", { class: "rule " + event.kind, d: event.at.map(x => `M${across(x).toFixed(1)} 0V${HEIGHT}`).join("") }));
      for (const line of drawn) {
        const first = line.x.length ? near(line.x, low) : 0, last = Math.min(line.x.length, near(line.x, high) + 2);
        const path = values => {
          let d = "", pen = "M";
          for (let i = first; i < last; i++) {
            const y = up(values[i]);
            if (y === null) { pen = "M"; continue; }
            d += pen + across(line.x[i]).toFixed(1) + " " + y.toFixed(1);
            pen = "L";
          }
          return d;
        };
        if (line.band) {
          const points = [...line.band[1].map((v, i) => [i, v]), ...line.band[0].map((v, i) => [i, v]).reverse()].filter(([, v]) => up(v) !== null);
          each.paper.append(make("path", { class: "band " + line.look, d: points.map(([i, v], k) => (k ? "L" : "M") + across(line.x[i]).toFixed(1) + " " + up(v).toFixed(1)).join("") + "Z" }));
        }
        const d = path(line.y);
        each.paper.append(make("path", { class: "line " + line.look, d }));
        if ((line.dots || last - first < 3) && last - first <= DOTS && d)
          each.paper.append(make("path", { class: "dot " + line.look, d: d.replace(/[ML]([^ML]+)/g, "M$1h0") }));
      }
      if (each.details.open) fillTable(each.panel.key);
    }
    for (const mark of rails.querySelectorAll(".mark")) placeMark(mark, low, high);
    drawAxis(axis, low, high, spec.whole, spec.sayX);
    reset.hidden = !walk.zoomed;
  }
  function describe(panel, drawn) {
    const words = drawn.filter(line => !line.shadow).map(line => {
      const known = [...line.y].filter(v => v !== null && Number.isFinite(v));
      return known.length ? `${line.name} from ${say(known[0])} to ${say(known.at(-1))}` : `${line.name}: no value`;
    });
    return `${panel.title || spec.title || "Curves"} over ${spec.axis || "x"}: ${words.join("; ")}. The values are in a table below.`;
  }
  function update(next) {
    Object.assign(spec, next);
    const [low, high] = extent(), key = allPanels().map(panel => panel.key + (panel.tall ? "+" : "")).join(" ");
    group.setAttribute("aria-label", `${spec.title || "Curves"}. Arrows walk along the curves, plus and minus zoom, Escape shows all.`);
    axisName.textContent = spec.axis || "";
    scaleField.hidden = !allPanels().some(panel => panel.log);
    slideField.hidden = !allPanels().some(panel => panel.series.some(s => s.noisy));
    controls.hidden = spec.controls === false;
    if (walk) walk.extend(low, high, Boolean(spec.whole));
    else walk = explore(group, { low, high, whole: Boolean(spec.whole), draw: shown, read });
    if (key !== built) { stage.replaceChildren(); tables.replaceChildren(); build(); built = key; }
    else allPanels().forEach((panel, i) => { panels[i].panel = panel; });
    rails.replaceChildren(...(spec.events || []).map(event => make("div", { class: "rail" }, make("span", { class: "y" }, event.name),
      make("div", { class: "area" }, event.at.map(x => make("span", { class: "mark " + event.kind, "data-at": x, title: `${event.name}, ${spec.axis} ${say(x)}` }, event.sign))))));
    draw();
    if (walk.at !== null) walk.point(walk.at);
  }
  update(spec);
  return { update, controls, get view() { return { ...walk.view, smooth: state.smooth, zoomed: walk.zoomed }; } };
}

function plainTable(head, rows, title = "") {
  const made = make("table", {}, make("thead", {}, make("tr", {}, head.map(name => make("th", { scope: "col" }, String(name))))),
    make("tbody", {}, rows.map(row => make("tr", {}, row.map((cell, i) => make(i ? "td" : "th", i ? { class: "number" } : { scope: "row" }, String(cell)))))));
  return make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": (title || "values") + ", table" }, made);
}

/** Bars in a table of names and values: [{name, value, look, said}]. The longest bar is the greatest value, or `most`. */
export function barChart(host, rows, { title = "", head = ["", "", "value"], most = 0 } = {}) {
  const top = most || Math.max(...rows.map(row => Math.abs(row.value) || 0), 0) || 1;
  host.replaceChildren(make("div", { class: "charts" }, make("table", { class: "bars" }, title && make("caption", {}, title),
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, head[0] || make("span", { class: "hidden-visually" }, "name")),
      make("th", { scope: "col" }, head[1] || make("span", { class: "hidden-visually" }, "bar")), make("th", { scope: "col", class: "number" }, head[2]))),
    make("tbody", {}, rows.map(row => {
      const bar = make("div", { class: row.look || null });
      bar.style.width = Math.min(100, 100 * Math.abs(row.value || 0) / top) + "%";
      return make("tr", {}, make("th", { scope: "row" }, String(row.name)), make("td", { class: "bar", "aria-hidden": "true" }, bar),
        make("td", { class: "number" }, row.said ?? say(row.value)));
    })))));
}

/** How often values fall between two edges: [{from, to, count}], with a table behind it. */
export function histogram(host, bins, { title = "", axis = "", sayX = brief } = {}) {
  if (!bins.length) { host.replaceChildren(); return; }
  const low = bins[0].from, high = bins.at(-1).to > low ? bins.at(-1).to : low + 1, top = Math.max(...bins.map(bin => bin.count), 1);
  const value = make("output", { class: "value" }), scale = make("div", { class: "axis", "aria-hidden": "true" });
  const said = bin => `${sayX(bin.from)} … ${sayX(bin.to)}: ${bin.count.toLocaleString("en-GB")}`;
  const columns = bins.map(bin => {
    const x = WIDTH * (bin.from - low) / (high - low), tall = HEIGHT * bin.count / top;
    return make("rect", { class: "column", x: x.toFixed(1), y: (HEIGHT - tall).toFixed(1), width: Math.max(1, WIDTH * (bin.to - bin.from) / (high - low) - 2).toFixed(1), height: tall.toFixed(1),
      onpointerenter: () => { value.textContent = said(bin); }, onpointerleave: () => { value.textContent = ""; } }, make("title", {}, said(bin)));
  });
  const plot = make("div", { class: "plot" }, make("div", { class: "area" },
    make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title || "Histogram"} over ${axis}; the values are in a table below.` }, columns)));
  for (const t of ticks(0, top, 3, true)) {
    const label = make("span", { class: "y", "aria-hidden": "true" }, brief(t));
    label.style.bottom = 100 * t / top + "%";
    plot.append(label);
  }
  host.replaceChildren(make("div", { class: "charts" }, make("figure", { class: "panel" }, make("figcaption", {}, make("b", {}, title), value), plot), scale, make("p", { class: "axis-name" }, axis)),
    make("div", { class: "tables" }, make("details", {}, make("summary", {}, `${title || "Histogram"} as a table`),
      plainTable(["from", "to", "count"], bins.map(bin => [sayX(bin.from), sayX(bin.to), bin.count.toLocaleString("en-GB")]), title))));
  drawAxis(scale, low, high, false, sayX);
}

/** A curve without axes, for a table; null where there are not two values. */
export function sparkline(values, { label = "" } = {}) {
  const known = values.map((v, i) => [i, v]).filter(([, v]) => v !== null && Number.isFinite(v));
  if (known.length < 2) return null;
  const ys = known.map(([, v]) => v), low = Math.min(...ys), high = Math.max(...ys), wide = values.length - 1;
  const d = known.map(([i, v], k) => (k ? "L" : "M") + (100 * i / wide).toFixed(1) + " " + (22 - 20 * (v - low) / (high - low || 1)).toFixed(1)).join("");
  return make("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": label || `from ${say(ys[0])} to ${say(ys.at(-1))}` }, make("path", { d }));
}

/**
 * A matrix of numbers as colours, for attention and confusion: rows × columns of `values`.
 *
 * Under the pointer, or under arrow keys, `said` shows a cell; `onpick(row, column)` is a click or Enter. `signed`: zero is
 * in the middle. `small`: a thumbnail without labels and table. `cell`: pixels of a cell. Returns `update(values)`.
 */
export function matrix(host, values, { rows = [], columns = [], label = "Matrix", low = null, high = null, signed = false,
  small = false, cell = 0, onpick = null, say: tell = say } = {}) {
  const canvas = make("canvas", { role: "img", "aria-label": label, tabindex: small ? null : "0" }), said = make("output", { class: "matrix-said" });
  const across = make("div", { class: "across", "aria-hidden": "true" }), down = make("div", { class: "down", "aria-hidden": "true" });
  const table = make("details", { ontoggle: () => fillTable() }, make("summary", {}, `${label} as a table`));
  let at = null, size = 1, height = 0, width = 0;
  const frame = make("div", { class: small ? "matrix small" : "matrix" }, ...(small ? [canvas] : [make("span"), across, down, canvas]));
  host.replaceChildren(frame, ...(small ? [] : [said, make("div", { class: "tables" }, table)]));

  function draw() {
    height = values.length;
    width = height ? values[0].length : 0;
    if (!width) return;
    size = cell || Math.max(small ? 1 : 5, Math.min(34, Math.floor((small ? 72 : Math.min(640, (host.clientWidth || 640) - 130)) / width)));
    const dense = Math.max(1, Math.ceil(devicePixelRatio || 1)), paint = canvas.getContext("2d"), look = getComputedStyle(host);
    canvas.width = width * size * dense; canvas.height = height * size * dense;
    canvas.style.width = width * size + "px"; canvas.style.height = height * size + "px";
    paint.scale(dense, dense);
    const seen = values.flatMap(row => [...row]).filter(v => v !== null && Number.isFinite(v));
    const bottom = low ?? (signed ? 0 : Math.min(0, ...[seen.reduce((a, b) => Math.min(a, b), 0)])), top = high ?? (seen.reduce((a, b) => Math.max(a, signed ? Math.abs(b) : b), 0) || 1);
    const [back, plus, minus] = ["--card", "--train", "--valid"].map(name => look.getPropertyValue(name).trim() || "#888");
    paint.fillStyle = back;
    paint.fillRect(0, 0, width * size, height * size);
    values.forEach((row, r) => row.forEach((v, c) => {
      if (v === null || !Number.isFinite(v)) return;
      paint.globalAlpha = Math.min(1, Math.max(0, signed ? Math.abs(v) / top : (v - bottom) / (top - bottom || 1)));
      paint.fillStyle = signed && v < 0 ? minus : plus;
      paint.fillRect(c * size, r * size, size, size);
    }));
    paint.globalAlpha = 1;
    if (at && !small) {
      paint.strokeStyle = look.getPropertyValue("--text").trim() || "#000";
      paint.strokeRect(at[1] * size + .5, at[0] * size + .5, size - 1, size - 1);
    }
  }
  function labels() {
    if (small) return;
    const short = text => { const t = String(text); return t.length > 14 ? t.slice(0, 13) + "…" : t; };
    const wide = names => Math.min(14, names.reduce((most, name) => Math.max(most, short(name).length), 0));
    down.style.height = height * size + "px"; down.style.width = rows.length && size >= 9 ? wide(rows) * .62 + "em" : "0";
    across.style.width = width * size + "px"; across.style.height = columns.length && size >= 9 ? wide(columns) * .52 + .8 + "em" : "0";
    down.replaceChildren(...(size < 9 ? [] : rows.map((name, r) => { const made = make("span", {}, short(name)); made.style.top = (r + .5) * size + "px"; return made; })));
    across.replaceChildren(...(size < 9 ? [] : columns.map((name, c) => { const made = make("span", {}, short(name)); made.style.left = (c + .6) * size + "px"; return made; })));
  }
  const words = (r, c) => `${rows[r] ?? r} → ${columns[c] ?? c}: ${tell(values[r][c])}`;
  function show(r, c) {
    at = r === null ? null : [Math.min(height - 1, Math.max(0, r)), Math.min(width - 1, Math.max(0, c))];
    said.textContent = at ? words(...at) : "";
    draw();
  }
  function fillTable() {
    table.querySelector(".wide")?.remove();
    if (!table.open) return;
    table.append(plainTable(["", ...Array.from({ length: Math.min(width, CELLS) }, (_, c) => columns[c] ?? c)],
      values.slice(0, CELLS).map((row, r) => [rows[r] ?? r, ...row.slice(0, CELLS).map(v => tell(v))]), label));
  }
  const under = event => { const box = canvas.getBoundingClientRect(); return [Math.floor((event.clientY - box.top) / size), Math.floor((event.clientX - box.left) / size)]; };
  if (!small) {
    canvas.addEventListener("pointermove", event => show(...under(event)));
    canvas.addEventListener("pointerleave", () => show(null));
    canvas.addEventListener("keydown", event => {
      const way = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (way) show(...(at ? [at[0] + way[0], at[1] + way[1]] : [0, 0]));
      else if (event.key === "Enter" && at && onpick) onpick(...at);
      else return;
      event.preventDefault();
    });
    canvas.addEventListener("blur", () => show(null));
  }
  if (onpick) canvas.addEventListener("click", event => onpick(...under(event)));
  const scheme = matchMedia("(prefers-color-scheme: dark)"), again = () => canvas.isConnected ? draw() : scheme.removeEventListener("change", again);
  scheme.addEventListener("change", again);
  draw();
  labels();
  return {
    update(next, more = {}) { values = next; ({ rows = rows, columns = columns } = more); at = null; draw(); labels(); if (table.open) fillTable(); },
    pick(r, c) { show(r, c); },
  };
}

const curves = document.getElementById("series");
if (curves) enhance(curves);
