// The page: a panel a metric, a line a key, with its band. All that it shows was released.
"use strict";

const MOST = 600; // ticks that are drawn; the last ones
const SVG = "http://www.w3.org/2000/svg";
const EDGE = { left: 52, right: 12, top: 8, bottom: 24 };

const ticks = [];
let about = null;
let draws = [];

function make(parent, tag, attributes = {}, text = null) {
  const inSvg = tag === "svg" || parent.namespaceURI === SVG;
  const made = inSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== null) made.textContent = text;
  parent.append(made);
  return made;
}

// Numbers, as people read them.

function said(value, unit) {
  if (unit === "%") return `${(100 * value).toFixed(1)} %`;
  if (unit === "s") return `${value.toFixed(3)} s`;
  return Math.round(value).toLocaleString("en");
}

function between(low, high, unit) {
  const name = unit === "" ? "" : ` ${unit}`;
  const bare = (value) => said(value, unit).replace(name, "");
  return `${bare(low)} to ${bare(high)}${name}`;
}

function steps(low, high, most) {
  const rough = (high - low) / most || 1;
  const ten = 10 ** Math.floor(Math.log10(rough));
  const step = ten * [1, 2, 5, 10].find((factor) => factor * ten >= rough);
  const found = [];
  for (let at = Math.ceil(low / step); at * step <= high; at += 1) found.push(at * step);
  return found;
}

function clock(micros) {
  return new Date(micros / 1000).toLocaleTimeString("en-GB");
}

// One panel

function points(shown, key, column) {
  return shown.map((tick) => ({
    end: tick.end,
    value: tick.values[key][column],
    low: tick.lows[key][column],
    high: tick.highs[key][column],
    note: tick.notes[key][column],
  }));
}

function runs(row, name) {
  // What is known without a gap between: "too small" stays empty.
  const found = [[]];
  for (const point of row) {
    if (point[name] === null) found.push([]);
    else found[found.length - 1].push(point);
  }
  return found.filter((run) => run.length > 0);
}

function extent(rows) {
  const known = rows.flat().filter((point) => point.value !== null);
  const values = known.map((point) => point.value);
  const bands = known.filter((point) => point.low !== null);
  const widths = bands.map((point) => point.high - point.low).sort((a, b) => a - b);
  const usual = 3 * (widths[Math.floor(widths.length / 2)] ?? 0); // wider bands leave the picture
  for (const band of bands) {
    if (band.high - band.low <= usual) values.push(band.low, band.high);
  }
  if (values.length === 0) return [0, 1];
  const low = Math.min(...values);
  const high = Math.max(...values);
  const room = (high - low || Math.abs(high) || 1) * 0.05;
  return [low - room, high + room];
}

function panel(parent, column) {
  const { title, unit } = about.panels[column];
  const box = make(parent, "section", { class: "panel" });
  make(box, "h2", {}, title);
  const svg = make(box, "svg", { role: "img", "aria-label": `${title}, by service, with bands` });
  const table = make(box, "table");
  const cells = about.keys.map((key, place) => {
    const row = make(table, "tr", { class: `key${place % 6}` });
    const head = make(row, "th", { scope: "row" });
    make(head, "span", { class: "swatch" });
    head.append(key);
    return [make(row, "td", {}, "-"), make(row, "td")];
  });
  return () => {
    const shown = ticks.slice(-MOST);
    const rows = about.keys.map((_, key) => points(shown, key, column));
    draw(svg, rows, shown, unit);
    rows.forEach((row, key) => {
      const last = row[row.length - 1];
      const [value, interval] = cells[key];
      value.textContent = last.value === null ? last.note : said(last.value, unit);
      interval.textContent = last.low === null ? "" : between(last.low, last.high, unit);
    });
  };
}

function draw(svg, rows, shown, unit) {
  const width = svg.clientWidth;
  const height = svg.clientHeight;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren();
  const [low, high] = extent(rows);
  const first = shown[0].end;
  const span = Math.max(shown[shown.length - 1].end - first, about.tick * 1e6);
  const inner = { width: width - EDGE.left - EDGE.right, height: height - EDGE.top - EDGE.bottom };
  const x = (end) => (EDGE.left + ((end - first) / span) * inner.width).toFixed(1);
  const y = (value) => {
    const inside = Math.min(Math.max(value, low), high);
    return (EDGE.top + ((high - inside) / (high - low)) * inner.height).toFixed(1);
  };
  for (const at of steps(low, high, 4)) {
    make(svg, "line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y(at), y2: y(at) });
    const place = { class: "axis", x: EDGE.left - 8, y: y(at), dy: "0.35em", "text-anchor": "end" };
    make(svg, "text", place, axis(at, unit));
  }
  const ends = [[first, "start"], [shown[shown.length - 1].end, "end"]];
  for (const [end, anchor] of shown.length > 1 ? ends : ends.slice(0, 1)) {
    const place = { class: "axis", x: x(end), y: height - 6, "text-anchor": anchor };
    make(svg, "text", place, clock(end));
  }
  rows.forEach((row, key) => {
    const group = make(svg, "g", { class: `key${key % 6}` });
    for (const run of runs(row, "low")) {
      const above = run.map((point) => `${x(point.end)},${y(point.high)}`);
      const below = run.map((point) => `${x(point.end)},${y(point.low)}`).reverse();
      make(group, "polygon", { class: "band", points: [...above, ...below].join(" ") });
    }
    for (const run of runs(row, "value")) {
      const curve = run.map((point) => `${x(point.end)},${y(point.value)}`);
      if (run.length > 1) make(group, "polyline", { class: "curve", points: curve.join(" ") });
      const last = run[run.length - 1];
      make(group, "circle", { class: "mark", cx: x(last.end), cy: y(last.value), r: 3 });
    }
  });
}

function axis(value, unit) {
  if (unit === "%") return `${+(100 * value).toFixed(1)} %`;
  if (unit === "s") return `${+value.toFixed(2)} s`;
  return (+value.toFixed(2) + 0).toLocaleString("en");
}

// The words

function words() {
  const { epsilon, delta, events, per_key: perKey, tick, confidence } = about;
  document.getElementById("promise").textContent =
    `Whoever sees all of this page, from first to last, can hardly tell whether any one person was ` +
    `in the log: the odds of any conclusion shift by a factor of at most e^${epsilon}, which is ` +
    `${Math.exp(epsilon).toFixed(2)}, but for a probability of ${delta}. That holds for all requests ` +
    `of a person together, and however often the page is watched.`;
  document.getElementById("shown").textContent =
    `Every ${tick} seconds, whatever happened, a private value of all requests since the start. At ` +
    `most ${events} requests of a person count, ${perKey} in one service, and the others are in no ` +
    `number here: what is estimated are these counts and means, not those of the whole log. A band ` +
    `holds the true value at a given time with probability ${100 * confidence} %, as to the noise; it ` +
    `does not cover what is left out. Where there is no line, too few requests count to say anything.`;
  const table = document.getElementById("parameters");
  for (const [name, text] of Object.entries(about.parameters)) {
    const row = make(table, "tr");
    make(row, "th", { scope: "row" }, name.replaceAll("_", " "));
    make(row, "td", {}, text);
  }
}

function status(text, bad = false) {
  const place = document.getElementById("status");
  place.textContent = text;
  place.className = bad ? "bad" : "";
}

// What comes

let waiting = false;

function redraw() {
  if (waiting || ticks.length === 0) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    for (const each of draws) each();
    document.body.dataset.ticks = String(ticks.length);
  });
}

function take(tick) {
  if (tick.step !== ticks.length + 1) return; // seen before
  ticks.push(tick);
  status(`tick ${tick.step} of ${about.horizon}, until ${clock(tick.end)}`);
  redraw();
}

async function begin() {
  about = await (await fetch("about.json")).json();
  words();
  const parent = document.getElementById("panels");
  draws = about.panels.map((_, column) => panel(parent, column));
  new ResizeObserver(redraw).observe(parent);
  const source = new EventSource("events");
  source.onmessage = (event) => take(JSON.parse(event.data));
  source.onerror = () => status(`not connected: what is below ends at tick ${ticks.length}`, true);
  source.addEventListener("over", () => {
    source.close();
    status(`over: all ${ticks.length} ticks are here`);
  });
}

begin().catch(() => status("the server does not answer", true));
