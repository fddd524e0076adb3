(() => {
  const source = document.getElementById("inspection");
  if (!source) return;
  const data = JSON.parse(source.textContent), $ = id => document.getElementById(id);
  const make = (tag, fields, ...inside) => {
    const made = Object.assign(document.createElement(tag), fields);
    made.append(...inside);
    return made;
  };
  const shown = text => text.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
  const percent = p => (100 * p).toFixed(p < 0.0995 ? 1 : 0) + " %";
  const kinds = Object.keys(data.kinds);
  let kind = data.start.kind, layer = data.start.layer, head = data.start.head, place = data.place, query = -1, look = "matrix";

  for (const [name, each] of Object.entries(data.kinds)) {
    const text = atob(each.maps), bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    each.bytes = bytes;
    each.columns = each.keys || each.tokens;
    each.name = name;
  }
  const weight = (each, l, h, q, k) => {
    const v = each.bytes[((l * each.heads + h) * each.tokens.length + q) * each.columns.length + k] / 255;
    return v * v;
  };
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const rgb = name => {
    const value = colour(name).replace("#", "");
    return [0, 2, 4].map(i => parseInt(value.slice(i, i + 2), 16));
  };

  function paint(canvas, each, l, h, cell) {
    const rows = each.tokens.length, columns = each.columns.length, back = rgb("--card"), front = rgb("--train");
    canvas.width = columns * cell;
    canvas.height = rows * cell;
    const image = new ImageData(columns, rows);
    for (let q = 0; q < rows; q++) for (let k = 0; k < columns; k++) {
      const v = Math.sqrt(weight(each, l, h, q, k)), at = 4 * (q * columns + k);
      for (let c = 0; c < 3; c++) image.data[at + c] = back[c] + (front[c] - back[c]) * v;
      image.data[at + 3] = 255;
    }
    const small = make("canvas", { width: columns, height: rows });
    small.getContext("2d").putImageData(image, 0, 0);
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, canvas.width, canvas.height);
  }

  function tokens() {
    const box = $("pieces");
    box.replaceChildren();
    for (const name of kinds) {
      const each = data.kinds[name];
      if (each.keys) continue;
      if (each.grid) { if (data.picture) box.append(picture(null)); continue; }
      if (kinds.length > 1) box.append(make("h3", { textContent: name }));
      const line = make("div", { className: "tokens" });
      each.tokens.forEach((text, i) => {
        const p = name === data.output && data.probabilities ? data.probabilities[i] : null;
        const button = make("button", { type: "button", textContent: shown(text), className: each.special[i] ? "special" : "" });
        if (p !== null && p !== undefined) {
          button.title = "probability " + percent(p);
          button.style.borderBottomColor = `color-mix(in srgb, var(--train) ${Math.round(100 * p)}%, var(--edge))`;
        }
        if (name === data.output) {
          button.setAttribute("aria-pressed", String(i === place));
          button.addEventListener("click", () => { place = i; query = kind === name || data.kinds[kind].keys ? i : query; tokens(); draw(); });
        }
        line.append(button);
      });
      box.append(line);
    }
    answers();
    lens();
  }

  function bars(box, rows) {
    box.replaceChildren();
    const most = Math.max(...rows.map(row => Math.abs(row[1])), 1e-9);
    for (const [text, value, told] of rows) {
      const bar = make("i", { className: value < 0 ? "against" : "" });
      bar.style.width = 100 * Math.abs(value) / most + "%";
      box.append(make("dt", {}, make("code", { textContent: shown(text) })), make("dd", { className: "number", textContent: told, style: "margin:0" }), make("dd", { style: "margin:0" }, bar));
    }
  }

  const at = rows => rows[rows.length === 1 ? 0 : Math.min(place, rows.length - 1)];

  function answers() {
    if (!data.predictions) return;
    const rows = at(data.predictions), one = data.predictions.length === 1;
    $("answers-at").textContent = one ? "Answers" : (data.causal ? "Answers after " : "Answers at ") + shown(data.kinds[data.output].tokens[place]);
    bars($("answers"), rows.map(([text, p]) => [text, p, data.number ? p.toPrecision(4) : percent(p)]));
  }

  function lens() {
    const table = $("lens");
    if (!table) return;
    const words = data.lens[0].length > 1 ? data.kinds[data.output].tokens.map(shown) : ["answer"];
    const line = make("tr", {}, make("th", { scope: "col" }), ...words.map(text => make("th", { scope: "col", textContent: text })));
    const body = data.lens.map((row, l) => make("tr", {}, make("th", { scope: "row", textContent: l ? "layer " + (l - 1) : "embeddings" }),
      ...row.map((cell, i) => {
        const [text, p] = cell[0], told = make("td", { textContent: shown(text), title: cell.map(([t, q]) => shown(t) + " " + percent(q)).join("\n") });
        told.style.background = `color-mix(in srgb, var(--train) ${Math.round(55 * Math.min(1, p))}%, transparent)`;
        told.className = row.length > 1 && i === place ? "here" : "";
        return told;
      })));
    table.replaceChildren(make("thead", {}, line), make("tbody", {}, ...body));
  }

  function grid() {
    const each = data.kinds[kind], box = $("heads");
    const cell = Math.max(2, Math.min(6, Math.floor(64 / Math.max(each.tokens.length, each.columns.length))));
    const size = Math.max(22, Math.min(64, Math.floor(420 / each.heads) - 4));
    box.style.gridTemplateColumns = `auto repeat(${each.heads}, ${size}px)`;
    box.replaceChildren(make("span"), ...Array.from({ length: each.heads }, (_, h) => make("span", { className: "top", textContent: h })));
    for (let l = 0; l < each.layers; l++) {
      box.append(make("span", { textContent: "layer " + l }));
      for (let h = 0; h < each.heads; h++) {
        const canvas = make("canvas"), stats = each.stats[l * each.heads + h];
        paint(canvas, each, l, h, cell);
        const button = make("button", { type: "button", title: `layer ${l} head ${h}: ${stats.looks_at}` }, canvas);
        button.style.height = size + "px";
        button.setAttribute("aria-label", button.title);
        button.dataset.at = l + "." + h;
        button.addEventListener("click", () => { layer = l; head = h; draw(); });
        box.append(button);
      }
    }
  }

  $("heads").addEventListener("keydown", event => {
    const way = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!way) return;
    const each = data.kinds[kind];
    layer = Math.min(each.layers - 1, Math.max(0, layer + way[0]));
    head = Math.min(each.heads - 1, Math.max(0, head + way[1]));
    draw();
    $("heads").querySelector(`[data-at="${layer}.${head}"]`).focus();
    event.preventDefault();
  });

  function draw() {
    const each = data.kinds[kind], stats = each.stats[layer * each.heads + head];
    for (const button of $("heads").querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.at === layer + "." + head));
    $("head-name").textContent = `${kind} layer ${layer} head ${head} looks at ${stats.looks_at}`;
    const shares = Object.entries(stats.shares).map(([name, share]) => name + " " + percent(share)).join(", ");
    $("head-stats").textContent = `entropy ${stats.entropy.toFixed(2)} nats, spreads over ${stats.keys.toFixed(1)} keys` +
      (stats.distance === null ? "" : `, mean distance ${stats.distance.toFixed(1)}`) + `; shares: ${shares}`;
    const picks = $("query");
    picks.replaceChildren(make("option", { value: -1, textContent: "all" }), ...each.tokens.map((text, i) => make("option", { value: i, textContent: i + " " + shown(text) })));
    if (query >= each.tokens.length) query = -1;
    picks.value = query;
    const pictured = each.grid && !each.keys;
    $("as-patches").hidden = !pictured;
    if (look === "patches" && !pictured) look = "matrix";
    for (const name of ["matrix", "lines", "patches"]) {
      $(name).hidden = look !== name;
      $("as-" + name).setAttribute("aria-pressed", String(look === name));
    }
    ({ matrix, lines, patches })[look](each);
    told(query < 0 ? "" : best(each, query));
  }

  const told = text => { $("told").textContent = text; };
  function best(each, q) {
    const row = each.columns.map((text, k) => [weight(each, layer, head, q, k), text, k]).sort((a, b) => b[0] - a[0]).slice(0, 4);
    return `${shown(each.tokens[q])} (${q}) looks at ` + row.filter(r => r[0] > 0.004).map(([w, text, k]) => `${shown(text)} (${k}) ${percent(w)}`).join(", ");
  }

  function matrix(each) {
    const rows = each.tokens.length, columns = each.columns.length;
    const cell = Math.max(3, Math.min(36, Math.floor(480 / Math.max(rows, columns))));
    const labelled = cell >= 9, longest = (texts, most) => Math.min(most, Math.max(...texts.map(text => shown(text).length)));
    const left = labelled ? 7 * longest(each.tokens, 13) + 12 : 4, top = labelled ? 6.2 * longest(each.columns, 10) + 16 : 4;
    const canvas = make("canvas"), map = make("canvas"), scale = window.devicePixelRatio || 1;
    paint(map, each, layer, head, cell);
    const wide = left + columns * cell + (labelled ? top / 2 : 2), high = top + rows * cell + 2;
    Object.assign(canvas, { width: wide * scale, height: high * scale });
    Object.assign(canvas.style, { width: wide + "px", height: high + "px" });
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.imageSmoothingEnabled = false;
    context.drawImage(map, left, top);
    context.strokeStyle = colour("--edge");
    context.strokeRect(left - .5, top - .5, columns * cell + 1, rows * cell + 1);
    context.font = "11px ui-monospace, Menlo, Consolas, monospace";
    context.textBaseline = "middle";
    if (labelled) {
      context.textAlign = "right";
      each.tokens.forEach((text, q) => {
        context.fillStyle = colour(q === query ? "--valid" : "--text");
        context.fillText(shown(text).slice(0, 13), left - 5, top + (q + .5) * cell);
      });
      context.textAlign = "left";
      context.fillStyle = colour("--text");
      each.columns.forEach((text, k) => {
        context.save();
        context.translate(left + (k + .5) * cell, top - 5);
        context.rotate(-Math.PI / 3);
        context.fillText(shown(text).slice(0, 10), 0, 0);
        context.restore();
      });
    }
    if (query >= 0) { context.strokeStyle = colour("--valid"); context.strokeRect(left - .5, top + query * cell - .5, columns * cell + 1, cell + 1); }
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Map of layer ${layer} head ${head}; choose a row above to hear its keys.`);
    const find = event => {
      const box = canvas.getBoundingClientRect();
      return [Math.floor((event.clientY - box.top - top) / cell), Math.floor((event.clientX - box.left - left) / cell)];
    };
    canvas.addEventListener("pointermove", event => {
      const [q, k] = find(event);
      if (q >= 0 && q < rows && k >= 0 && k < columns) told(`${shown(each.tokens[q])} (${q}) → ${shown(each.columns[k])} (${k}): ${percent(weight(each, layer, head, q, k))}`);
    });
    canvas.addEventListener("click", event => { const [q] = find(event); if (q >= 0 && q < rows) { query = q === query ? -1 : q; draw(); } });
    $("matrix").replaceChildren(canvas);
  }

  const svg = (tag, fields) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(fields)) made.setAttribute(name, value);
    return made;
  };
  function lines(each) {
    const step = 18, rows = each.tokens.length, columns = each.columns.length, high = Math.max(rows, columns) * step + 8;
    const box = svg("svg", { width: 640, height: high, role: "img", "aria-label": "Lines from each token to the keys that it looks at" });
    for (let q = 0; q < rows; q++) {
      if (query >= 0 && q !== query) continue;
      for (let k = 0; k < columns; k++) {
        const w = weight(each, layer, head, q, k);
        if (w < 0.02) continue;
        const a = q * step + 13, b = k * step + 13;
        box.append(svg("path", { d: `M170 ${a}C260 ${a} 260 ${b} 350 ${b}`, "stroke-opacity": w.toFixed(3), "stroke-width": query < 0 ? 2 : 3 }));
      }
    }
    each.tokens.forEach((text, q) => {
      const made = svg("text", { x: 162, y: q * step + 17, "text-anchor": "end", class: query >= 0 && q !== query ? "soft" : "" });
      made.textContent = shown(text).slice(0, 20);
      made.addEventListener("pointerenter", () => told(best(each, q)));
      made.addEventListener("click", () => { query = q === query ? -1 : q; draw(); });
      box.append(made);
    });
    each.columns.forEach((text, k) => {
      const made = svg("text", { x: 358, y: k * step + 17 });
      made.textContent = shown(text).slice(0, 38);
      box.append(made);
    });
    $("lines").replaceChildren(box);
  }

  function picture(cover) {
    const { grid, leading } = cover || {}, size = 320, canvas = make("canvas", { width: size, height: size });
    const context = canvas.getContext("2d"), image = data.picture;
    if (image) {
      const text = atob(image.bytes), pixels = new ImageData(image.width, image.height), area = image.width * image.height;
      for (let i = 0; i < area; i++) {
        for (let c = 0; c < 3; c++) pixels.data[4 * i + c] = text.charCodeAt(i + area * Math.min(c, image.channels - 1));
        pixels.data[4 * i + 3] = 255;
      }
      const small = make("canvas", { width: image.width, height: image.height });
      small.getContext("2d").putImageData(pixels, 0, 0);
      context.imageSmoothingEnabled = false;
      context.drawImage(small, 0, 0, size, size);
    }
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", cover ? "The picture, brighter where the head looks" : "The picture that the model reads");
    if (cover) {
      const high = size / grid.rows, wide = size / grid.columns, most = Math.max(...cover.row, 1e-9);
      cover.row.forEach((w, i) => {
        context.fillStyle = image ? `rgba(0,0,0,${0.85 * (1 - w / most)})` : `color-mix(in srgb, ${colour("--train")} ${100 * w / most}%, ${colour("--card")})`;
        context.fillRect((i % grid.columns) * wide, Math.floor(i / grid.columns) * high, wide, high);
      });
    }
    return canvas;
  }
  function patches(each) {
    const grid = each.grid, count = grid.rows * grid.columns, rows = each.tokens.map((_, q) => q).filter(q => query < 0 ? (grid.leading ? q === 0 : true) : q === query);
    const row = Array.from({ length: count }, (_, i) => rows.reduce((sum, q) => sum + weight(each, layer, head, q, grid.leading + i), 0) / rows.length);
    const canvas = picture({ grid, row });
    canvas.addEventListener("click", event => {
      const box = canvas.getBoundingClientRect(), x = Math.floor((event.clientX - box.left) / box.width * grid.columns);
      query = grid.leading + Math.floor((event.clientY - box.top) / box.height * grid.rows) * grid.columns + x;
      draw();
    });
    $("patches").replaceChildren(canvas);
  }

  for (const name of kinds) {
    const button = make("button", { type: "button", textContent: name });
    button.addEventListener("click", () => { kind = name; layer = head = 0; query = -1; start(); });
    $("kinds").append(button, " ");
  }
  for (const name of ["matrix", "lines", "patches"]) $("as-" + name).addEventListener("click", () => { look = name; draw(); });
  $("query").addEventListener("change", event => { query = +event.target.value; draw(); });
  function start() {
    [...$("kinds").children].forEach((button, i) => button.setAttribute("aria-pressed", String(kinds[i] === kind)));
    grid();
    draw();
  }
  for (const cell of document.querySelectorAll("table.heat td")) {
    const value = parseFloat(cell.textContent) || 0, share = Math.round(60 * Math.min(1, Math.abs(value)));
    cell.style.background = `color-mix(in srgb, var(${value < 0 ? "--valid" : "--train"}) ${share}%, transparent)`;
  }
  if (data.why) bars($("why"), data.why.tokens.map((text, i) => [text, data.why.values[i], data.why.values[i].toFixed(3)]));
  if (data.kinds[kind].grid && data.picture && !data.kinds[kind].keys) look = "patches";
  if (data.kinds[data.output].keys) look = "lines";  // hops look at whole sentences
  tokens();
  start();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { tokens(); start(); });
  for (const hint of document.querySelectorAll(".scripted")) hint.hidden = false;
})();
