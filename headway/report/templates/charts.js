(() => {
  const source = document.getElementById("series"), charts = document.querySelector(".charts");
  if (!source || !charts) return;
  const data = JSON.parse(source.textContent), areas = [...charts.querySelectorAll(".area")];
  const axis = charts.querySelector(".axis"), reset = document.getElementById("reset");
  let low = data.low, high = data.high, step = null, from = null;
  const part = at => (at - low) / (high - low);
  const say = v => v.toLocaleString("en-GB", { maximumSignificantDigits: 4 });
  const brief = v => v >= 1e6 ? say(v / 1e6) + "M" : v >= 1e4 ? say(v / 1e3) + "k" : say(v);
  const add = (area, name) => area.querySelector("." + name) ||
    area.appendChild(Object.assign(document.createElement("div"), { className: name }));

  function near(xs, at) {  // the last point at or before a step
    let a = 0, b = xs.length - 1;
    while (a < b) { const m = (a + b + 1) >> 1; if (xs[m] <= at) a = m; else b = m - 1; }
    return a;
  }
  function point(at) {
    step = Math.min(high, Math.max(low, Math.round(at)));
    for (const area of areas) add(area, "cursor").style.left = 100 * part(step) + "%";
    for (const panel of charts.querySelectorAll(".panel")) {
      const words = [];
      for (const s of data.series) if (s.panel === panel.dataset.key && s.x.length && s.x[0] <= step) {
        const y = s.y[near(s.x, step)];
        if (y !== null) words.push(s.name + " " + say(y));
      }
      panel.querySelector(".value").textContent = "step " + say(step) + (words.length ? ": " + words.join(", ") : "");
    }
  }
  function leave() {
    step = null;
    for (const cursor of charts.querySelectorAll(".cursor")) cursor.remove();
    for (const value of charts.querySelectorAll(".value")) value.textContent = "";
  }
  function zoom(a, b) {
    low = a; high = b;
    const left = 1000 * (a - data.low) / (data.high - data.low), width = 1000 * (b - a) / (data.high - data.low);
    for (const area of areas) {
      const svg = area.querySelector("svg");
      if (svg) svg.setAttribute("viewBox", left + " 0 " + width + " 100");
    }
    for (const mark of charts.querySelectorAll(".mark")) {
      mark.style.left = 100 * part(+mark.dataset.at) + "%";
      mark.hidden = part(+mark.dataset.at) < 0 || part(+mark.dataset.at) > 1;
    }
    const raw = (b - a) / 5, ten = 10 ** Math.floor(Math.log10(raw));
    const size = Math.max(1, ten * [1, 2, 5, 10].find(f => ten * f >= raw));
    axis.replaceChildren();
    for (let t = Math.ceil(a / size) * size; t <= b; t += size) {
      const label = axis.appendChild(document.createElement("span"));
      label.textContent = brief(t);
      label.style.left = 100 * part(t) + "%";
    }
    reset.hidden = a === data.low && b === data.high;
    leave();
  }
  for (const area of areas) {
    const at = event => {
      const box = area.getBoundingClientRect();
      return low + (high - low) * Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    };
    area.addEventListener("pointerdown", event => { from = at(event); area.setPointerCapture(event.pointerId); });
    area.addEventListener("pointermove", event => {
      point(at(event));
      if (from === null) return;
      const a = part(Math.min(from, at(event))), b = part(Math.max(from, at(event)));
      Object.assign(add(area, "brush").style, { left: 100 * a + "%", width: 100 * (b - a) + "%" });
    });
    const stop = event => {
      const brush = area.querySelector(".brush"), start = from;
      from = null;
      if (!brush) return;
      brush.remove();
      const ends = [start, at(event)].map(Math.round).sort((a, b) => a - b);
      if (event.type === "pointerup" && ends[1] - ends[0] >= 2) zoom(...ends);
    };
    area.addEventListener("pointerup", stop);
    area.addEventListener("pointercancel", stop);
    area.addEventListener("pointerleave", () => { if (from === null) leave(); });
    area.addEventListener("dblclick", () => zoom(data.low, data.high));
  }
  charts.tabIndex = 0;
  charts.addEventListener("keydown", event => {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (way) point((step === null ? low : step) + way * Math.max(1, Math.round((high - low) / 100)));
    else if (event.key === "Escape") zoom(data.low, data.high);
    else return;
    event.preventDefault();
  });
  charts.addEventListener("blur", leave);
  reset.addEventListener("click", () => zoom(data.low, data.high));
  for (const hint of document.querySelectorAll(".scripted")) hint.hidden = false;
})();
