// Draws cells for what is zoomed to; tables and flame graphs of what is selected; keys.
// Names reach the document as text nodes only.
(function () {
"use strict";
const SVG = "http://www.w3.org/2000/svg", HTML = "http://www.w3.org/1999/xhtml";
const svg = document.querySelector("svg.dtrace-heat");
const LEFT = 110, TOP = 24, WIDTH = 1080, HEIGHT = 320, COLUMNS = 540, ROWS = 160, LISTED = 25;
const SCALES = ["rows", "linear", "logarithmic"], ZONES = ["local time", "UTC", "since the start"];
let byRank = true, scale = 0, zone = 0, panels = [];

function element(name, attributes, words) {
  const e = document.createElementNS(SVG, name);
  for (const key in attributes) e.setAttribute(key, attributes[key]);
  if (words !== undefined) e.textContent = words;
  return e;
}

// What the data is: see data.rs.
function decode(bytes) {
  let at = 0;
  const utf8 = new TextDecoder();
  function number() {
    let value = 0, factor = 1;
    for (;;) {
      const byte = bytes[at++];
      value += (byte & 127) * factor;
      if (byte < 128) return value;
      factor *= 128;
    }
  }
  function text() {
    const length = number();
    at += length;
    return utf8.decode(bytes.subarray(at - length, at));
  }
  function list(one) { return Array.from({ length: number() }, one); }
  return list(function () {
    const p = { name: text(), title: text(), stacks: number() === 1, others: number(), merged: number(), first: number() };
    p.buckets = list(() => ({ label: text(), low: text(), high: text() }));
    p.wall = number();
    p.start = number();
    const count = number();
    p.begin = new Float64Array(count);
    p.end = new Float64Array(count);
    for (let i = 0, time = 0; i < count; i++) {
      p.begin[i] = time += number();
      p.end[i] = time += number();
    }
    p.names = list(text);
    p.keys = list(() => ({ texts: list(text), node: number() }));
    p.frames = list(text);
    p.nodes = list(() => [number(), number()]);
    const parts = [];
    for (let i = 0; i < 5; i++) {
      const length = number();
      parts.push(at);
      at += length;
    }
    const after = at;
    const next = n => { at = parts[n]; const value = number(); parts[n] = at; return value; };
    const size = bytes.length;
    const keys = [], buckets = [], counts = [];
    p.from = new Uint32Array(count + 1);
    for (let i = 0; i < count; i++) {
      let key = 0;
      for (let left = next(0); left > 0; left--) {
        key += next(1);
        let bucket = 0;
        for (let cells = next(2); cells > 0; cells--) {
          bucket += next(3);
          const odd = bytes[parts[4]] & 1, n = next(4);
          keys.push(key);
          buckets.push(bucket);
          counts.push(odd ? -(n + 1) / 2 : n / 2);
        }
      }
      p.from[i + 1] = keys.length;
    }
    at = Math.min(after, size);
    p.key = Uint32Array.from(keys);
    p.bucket = Uint32Array.from(buckets);
    p.count = Float64Array.from(counts);
    return p;
  });
}

async function data() {
  const text = atob(svg.querySelector("script.data").textContent.trim());
  const bytes = Uint8Array.from(text, c => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return decode(new Uint8Array(await new Response(stream).arrayBuffer()));
}

function thousands(n) { return String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ","); }

function keyName(panel, n) {
  const key = panel.p.keys[n];
  const stack = key.node ? [panel.p.frames[panel.p.nodes[key.node][1]].slice(1)] : [];
  return key.texts.concat(stack).join(", ") || "all values";
}

// A moment: microseconds since the begin of the first column.
function when(panel, time) {
  const p = panel.p;
  if (zone === 2) return ((p.start + time) / 1e6).toFixed(3) + " s";
  const date = new Date((p.wall + time) / 1000);
  if (zone === 1) return date.toISOString().replace("T", " ");
  const two = n => String(n).padStart(2, "0");
  return date.getFullYear() + "-" + two(date.getMonth() + 1) + "-" + two(date.getDate()) + " " + two(date.getHours()) + ":" +
    two(date.getMinutes()) + ":" + two(date.getSeconds()) + "." + String(date.getMilliseconds()).padStart(3, "0");
}

function range(panel, from, to) {
  const all = panel.p.buckets, low = all[from].low, high = all[to].high;
  if (low === "") return high === "" ? "all values" : "up to " + high;
  return high === "" ? "from " + low : low === high ? low : low + " to " + high;
}

// What is shown: columns of so many intervals, rows of so many buckets, and their sums.
function view(panel) {
  const p = panel.p, [a, b] = panel.zoom, rows = Math.min(ROWS, p.buckets.length);
  const each = Math.max(1, Math.ceil((b - a) / COLUMNS)), columns = Math.ceil((b - a) / each);
  const all = new Float64Array(columns * rows), own = new Float64Array(columns * rows);
  for (let i = a; i < b; i++) {
    const x = Math.floor((i - a) / each);
    for (let c = p.from[i]; c < p.from[i + 1]; c++) {
      const y = Math.floor(p.bucket[c] * rows / p.buckets.length);
      all[y * columns + x] += p.count[c];
      if (p.key[c] === panel.key) own[y * columns + x] += p.count[c];
    }
  }
  panel.view = { each: each, columns: columns, rows: rows, all: all, own: own };
  panel.edges = edges(panel);
}

function firstOf(panel, row) { return Math.ceil(row * panel.p.buckets.length / panel.view.rows); }

// Where rows begin, from the bottom, in parts of the height.
function edges(panel) {
  const rows = panel.view.rows, even = Array.from({ length: rows + 1 }, (_, i) => i / rows);
  if (scale === 0) return even;
  const all = panel.p.buckets, value = [];
  for (let row = 0; row < rows; row++) {
    const bucket = all[firstOf(panel, row)];
    value.push(bucket.low === "" ? null : Number(bucket.low));
  }
  const last = all[all.length - 1];
  value.push(last.high === "" ? null : Number(last.high) + 1);
  // What has no end is as large as its neighbour.
  if (value[0] === null) value[0] = rows > 1 ? 2 * value[1] - (value[2] === null ? value[1] + 1 : value[2]) : 0;
  if (value[rows] === null) value[rows] = rows > 1 ? 2 * value[rows - 1] - value[rows - 2] : value[0] + 1;
  const place = scale === 1 ? v => v : v => Math.sign(v) * Math.log2(1 + Math.abs(v));
  const low = place(value[0]), high = place(value[rows]);
  return high > low ? value.map(v => (place(v) - low) / (high - low)) : even;
}

function darkness(all) {
  const values = Float64Array.from(all.filter(v => v !== 0), Math.abs).sort();
  if (!byRank) {
    const most = values.length ? values[values.length - 1] : 1;
    return v => 0.1 + 0.9 * Math.abs(v) / most;
  }
  const ranks = new Map();
  for (const v of values) if (!ranks.has(v)) ranks.set(v, ranks.size + 1);
  return v => 0.1 + 0.9 * ranks.get(Math.abs(v)) / ranks.size;
}

function paint(panel) {
  const { columns, rows, all, own } = panel.view, dark = darkness(all), colors = new Uint8ClampedArray(all.length * 3);
  for (let i = 0; i < all.length; i++) {
    if (all[i] === 0) continue;
    const grey = 255 * (1 - dark(all[i])), share = panel.key < 0 ? 0 : Math.min(1, Math.abs(own[i] / all[i]));
    // The share of the selected key is red, as dark as the cell.
    colors[3 * i] = grey + share * (235 - grey) * (0.4 + 0.6 * (1 - grey / 255));
    colors[3 * i + 1] = colors[3 * i + 2] = grey * (1 - 0.75 * share);
  }
  const canvas = document.createElementNS(HTML, "canvas");
  canvas.width = columns;
  canvas.height = HEIGHT;
  const context = canvas.getContext("2d"), image = context.createImageData(columns, HEIGHT);
  for (let row = 0; row < rows; row++) {
    const bottom = Math.round(HEIGHT * panel.edges[row]), top = Math.max(bottom + 1, Math.round(HEIGHT * panel.edges[row + 1]));
    for (let y = bottom; y < top && y < HEIGHT; y++) {
      for (let x = 0; x < columns; x++) {
        if (all[row * columns + x] === 0) continue;
        const to = ((HEIGHT - 1 - y) * columns + x) * 4, from = 3 * (row * columns + x);
        image.data.set(colors.subarray(from, from + 3), to);
        image.data[to + 3] = 255;
      }
    }
  }
  context.putImageData(image, 0, 0);
  panel.group.querySelector(".cells").setAttribute("href", canvas.toDataURL());
}

function axes(panel) {
  const group = panel.group.querySelector(".axes"), [a, b] = panel.zoom, p = panel.p;
  group.replaceChildren();
  let free = Infinity;
  for (let row = 0; row < panel.view.rows; row++) {
    const y = TOP + HEIGHT * (1 - panel.edges[row]);
    if (y > free - 14 || y < TOP + 8) continue;
    free = y;
    group.append(element("text", { x: LEFT - 6, y: y - 2, "text-anchor": "end" }, p.buckets[firstOf(panel, row)].label));
  }
  const ticks = zone === 2 ? 8 : 4;
  for (let n = 0; n <= ticks; n++) {
    // Columns are as wide as others, however long they are.
    const at = a + (b - a) * n / ticks, column = Math.min(b - 1, Math.floor(at));
    const time = p.begin[column] + (p.end[column] - p.begin[column]) * (at - column);
    const anchor = n === 0 ? "start" : n === ticks ? "end" : "middle";
    group.append(element("text", { x: LEFT + WIDTH * n / ticks, y: TOP + HEIGHT + 16, "text-anchor": anchor }, when(panel, time)));
  }
}

// The keys of a selection with their sums: intervals [a, b), buckets [low, high].
function sums(panel, s) {
  const p = panel.p, all = new Map();
  for (let c = p.from[s.a]; c < p.from[s.b]; c++) {
    if (p.bucket[c] < s.low || p.bucket[c] > s.high) continue;
    all.set(p.key[c], (all.get(p.key[c]) || 0) + p.count[c]);
  }
  return Array.from(all).sort((x, y) => y[1] - x[1] || x[0] - y[0]);
}

function whole(panel) { return { a: panel.zoom[0], b: panel.zoom[1], low: 0, high: panel.p.buckets.length - 1 }; }

function describe(panel, s, total) {
  const p = panel.p;
  return when(panel, p.begin[s.a]) + " to " + when(panel, p.end[s.b - 1]) + ", " + range(panel, s.low, s.high) + ": " + thousands(total);
}

function details(panel) {
  const live = panel.group.querySelector(".live"), s = panel.selected || whole(panel);
  const all = sums(panel, s), total = all.reduce((sum, one) => sum + one[1], 0);
  live.replaceChildren();
  panel.cursorMark = element("rect", { class: "cursor", visibility: "hidden" });
  live.append(panel.cursorMark);
  if (panel.selected) {
    const left = x => LEFT + WIDTH * Math.min(1, Math.max(0, (x - panel.zoom[0]) / (panel.zoom[1] - panel.zoom[0])));
    const low = panel.edges[rowOf(panel, s.low)], high = panel.edges[rowOf(panel, s.high) + 1];
    live.append(element("rect", { class: "range", x: left(s.a), width: Math.max(1, left(s.b) - left(s.a)),
      y: TOP + HEIGHT * (1 - high), height: Math.max(1, HEIGHT * (high - low)) }));
  }
  panel.status = element("text", { class: "dim status", role: "status", "aria-live": "polite", x: LEFT, y: TOP + HEIGHT + 36 });
  live.append(panel.status);
  live.append(element("text", { class: "selection", x: LEFT, y: TOP + HEIGHT + 56 },
    (panel.selected ? "Selected: " : "All: ") + describe(panel, s, total)));
  let y = TOP + HEIGHT + 64;
  const rows = panel.p.stacks ? [] : all.slice(0, LISTED);
  if (panel.p.stacks) y = flame(panel, live, y, all);
  for (const [key, count] of rows) {
    const row = element("g", { class: key === panel.key ? "row chosen" : "row", role: "button", tabindex: 0 });
    const share = total > 0 ? Math.min(1, Math.max(0, count / total)) : 0;
    row.append(element("rect", { x: LEFT, y: y, width: WIDTH, height: 17 }));
    row.append(element("rect", { class: "bar", x: LEFT, y: y + 1, width: 200 * share, height: 15 }));
    row.append(element("text", { x: LEFT + 150, y: y + 13, "text-anchor": "end" }, thousands(count)));
    row.append(element("text", { class: "name", x: LEFT + 210, y: y + 13 }, keyName(panel, key)));
    const choose = () => { panel.key = panel.key === key ? -1 : key; draw(panel); };
    row.addEventListener("click", choose);
    row.addEventListener("keydown", e => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); choose(); } });
    live.append(row);
    y += 18;
  }
  if (!panel.p.stacks && all.length > rows.length) {
    live.append(element("text", { class: "dim", x: LEFT + 210, y: y + 13 }, "and " + thousands(all.length - rows.length) + " more"));
    y += 18;
  }
  panel.height = y + 24;
  place();
}

// The stacks of a selection below the rest of their keys, the outermost frame at the top.
function flame(panel, live, top, all) {
  const p = panel.p, root = { sum: 0, below: new Map() };
  for (const [key, count] of all) {
    if (count <= 0) continue;
    const path = [], texts = p.keys[key].texts;
    for (let n = p.keys[key].node; n > 0; n = p.nodes[n][0]) path.push(p.frames[p.nodes[n][1]]);
    if (texts.length > 0) path.push("y" + texts.join(", "));
    let at = root;
    for (at.sum += count; path.length > 0; at.sum += count) {
      const frame = path.pop();
      if (!at.below.has(frame)) at.below.set(frame, { sum: 0, below: new Map() });
      at = at.below.get(frame);
    }
  }
  const open = [[root, "", LEFT, -1]];
  let bottom = top;
  while (open.length > 0) {
    const [node, text, x, depth] = open.pop(), width = WIDTH * node.sum / (root.sum || 1);
    if (width < 0.5) continue;
    if (depth >= 0) {
      const name = text.slice(1), y = top + 17 * depth, frame = element("g", { class: "frame " + text[0] });
      frame.append(element("title", {}, name + ": " + thousands(node.sum)));
      frame.append(element("rect", { x: x, y: y, width: width, height: 16 }));
      const fits = Math.floor((width - 6) / 7.25), short = name.slice(name.indexOf("`") + 1);
      if (fits > 2) frame.append(element("text", { x: x + 3, y: y + 12 }, short.length > fits ? short.slice(0, fits - 1) + "…" : short));
      live.append(frame);
      bottom = Math.max(bottom, y + 17);
    }
    let from = x;
    for (const [frame, below] of node.below) {
      open.push([below, frame, from, depth + 1]);
      from += WIDTH * below.sum / (root.sum || 1);
    }
  }
  return bottom;
}

function draw(panel) {
  view(panel);
  paint(panel);
  axes(panel);
  details(panel);
}

function place() {
  let y = Number(svg.dataset.top);
  for (const panel of panels) {
    panel.group.setAttribute("transform", "translate(0," + y + ")");
    y += panel.height || 400;
  }
  svg.setAttribute("height", y);
  svg.setAttribute("viewBox", "0 0 1200 " + y);
}

function rowOf(panel, bucket) { return Math.floor(bucket * panel.view.rows / panel.p.buckets.length); }

function cellAt(panel, event) {
  const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(panel.plot.getScreenCTM().inverse());
  const v = panel.view, x = (point.x - LEFT) / WIDTH, y = 1 - (point.y - TOP) / HEIGHT;
  let row = panel.edges.findIndex((edge, i) => i > 0 && edge > y) - 1;
  if (row < 0) row = y <= 0 ? 0 : v.rows - 1;
  return [Math.min(v.columns - 1, Math.max(0, Math.floor(x * (panel.zoom[1] - panel.zoom[0]) / v.each))), row];
}

// The selection between two cells.
function between(panel, one, other) {
  const v = panel.view, [x1, y1] = one, [x2, y2] = other, a = panel.zoom[0] + Math.min(x1, x2) * v.each;
  const b = Math.min(panel.zoom[1], panel.zoom[0] + (Math.max(x1, x2) + 1) * v.each);
  const low = firstOf(panel, Math.min(y1, y2)), high = firstOf(panel, Math.max(y1, y2) + 1) - 1;
  return { a: a, b: b, low: low, high: Math.max(low, high) };
}

function show(panel, cell) {
  const s = between(panel, cell, cell), v = panel.view, mark = panel.cursorMark, [a, b] = panel.zoom;
  const at = cell[1] * v.columns + cell[0], all = sums(panel, s), total = all.reduce((sum, one) => sum + one[1], 0);
  const own = panel.key < 0 ? "" : " (" + keyName(panel, panel.key) + ": " + thousands(v.own[at]) + ")";
  panel.status.textContent = describe(panel, s, total) + own;
  mark.setAttribute("x", LEFT + WIDTH * (s.a - a) / (b - a));
  mark.setAttribute("width", Math.max(2, WIDTH * (s.b - s.a) / (b - a)));
  mark.setAttribute("y", TOP + HEIGHT * (1 - panel.edges[cell[1] + 1]));
  mark.setAttribute("height", Math.max(2, HEIGHT * (panel.edges[cell[1] + 1] - panel.edges[cell[1]])));
  mark.setAttribute("visibility", "visible");
}

function select(panel, s) {
  panel.selected = s;
  details(panel);
}

function zoom(panel, by) {
  const count = panel.p.begin.length, [a, b] = panel.zoom, s = panel.selected;
  if (by === 0) panel.zoom = [0, count];
  else if (by > 0 && s && s.b - s.a < b - a) panel.zoom = [s.a, s.b];
  else {
    const length = Math.min(count, Math.max(1, Math.round((b - a) * (by > 0 ? 0.5 : 2))));
    const from = Math.min(count - length, Math.max(0, Math.round((a + b - length) / 2)));
    panel.zoom = [from, from + length];
  }
  panel.cursor = null;
  draw(panel);
}

function listen(panel) {
  let start = null;
  const plot = panel.plot;
  plot.setAttribute("tabindex", 0);
  plot.setAttribute("role", "application");
  plot.setAttribute("aria-label", panel.p.title + ": arrows move, shift and arrows select a range, Enter selects, Escape selects all, + and - zoom");
  plot.addEventListener("pointerdown", e => { start = cellAt(panel, e); plot.setPointerCapture(e.pointerId); });
  plot.addEventListener("pointermove", function (e) {
    const cell = cellAt(panel, e);
    if (start && String(start) !== String(cell)) {
      panel.moved = true;
      // A range of time has all its buckets, unless the pointer moved up or down too.
      const rows = start[1] === cell[1] ? [[start[0], 0], [cell[0], panel.view.rows - 1]] : [start, cell];
      select(panel, between(panel, rows[0], rows[1]));
    }
    show(panel, cell);
  });
  plot.addEventListener("pointerup", function (e) {
    if (start && !panel.moved) select(panel, between(panel, start, cellAt(panel, e)));
    start = null;
    panel.moved = false;
  });
  plot.addEventListener("pointercancel", () => { start = null; panel.moved = false; });
  plot.addEventListener("pointerleave", () => panel.cursorMark.setAttribute("visibility", "hidden"));
  plot.addEventListener("keydown", function (e) {
    const v = panel.view, by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[e.key];
    if (by) {
      const old = panel.cursor || [0, 0];
      const cell = panel.cursor ? [Math.min(v.columns - 1, Math.max(0, old[0] + by[0])), Math.min(v.rows - 1, Math.max(0, old[1] + by[1]))] : old;
      if (!e.shiftKey) panel.anchor = cell;
      panel.cursor = cell;
      if (e.shiftKey) select(panel, between(panel, panel.anchor || cell, cell));
      show(panel, cell);
    } else if (e.key === "Enter") {
      const cell = panel.cursor || [0, 0];
      select(panel, between(panel, cell, cell));
      show(panel, cell);
    } else if (e.key === "Escape") select(panel, null);
    else if (e.key === "+" || e.key === "=") zoom(panel, 1);
    else if (e.key === "-") zoom(panel, -1);
    else if (e.key === "0") zoom(panel, 0);
    else return;
    e.preventDefault();
  });
}

function tools() {
  const group = element("g", { class: "tools" });
  let x = 10;
  function button(words, act) {
    const e = element("text", { class: "button", role: "button", tabindex: 0, x: x, y: 66 }, words());
    const press = () => { act(); e.textContent = words(); panels.forEach(draw); };
    e.addEventListener("click", press);
    e.addEventListener("keydown", k => { if (k.key === "Enter" || k.key === " ") { k.preventDefault(); press(); } });
    group.append(e);
    x += 230;
  }
  button(() => "Darkness: " + (byRank ? "by rank" : "linear"), () => { byRank = !byRank; });
  button(() => "Values: " + SCALES[scale], () => { scale = (scale + 1) % SCALES.length; });
  button(() => "Times: " + ZONES[zone], () => { zone = (zone + 1) % ZONES.length; });
  button(() => "Zoom in", () => panels.forEach(p => zoom(p, 1)));
  button(() => "Zoom out", () => panels.forEach(p => zoom(p, 0)));
  svg.append(group);
}

// A link selects: #panel.from.to (intervals), #panel.from.to.low.high (buckets), with ;linear, ;utc, ;key=N.
function follow() {
  const [place, ...words] = decodeURIComponent(location.hash.slice(1)).split(";");
  for (const word of words) {
    if (word === "linear") byRank = false;
    if (word === "utc") zone = 1;
    if (word === "start") zone = 2;
    if (word.startsWith("scale=")) scale = Math.max(0, SCALES.indexOf(word.slice(6)));
    if (word.startsWith("key=")) panels.forEach(panel => { const n = Number(word.slice(4)); panel.key = panel.p.keys[n] ? n : -1; });
  }
  const [n, a, b, low, high] = place.split(".").map(Number), panel = panels[n];
  if (panel && a >= 0 && b > a && b <= panel.p.begin.length) {
    const last = panel.p.buckets.length - 1;
    panel.selected = { a: a, b: b, low: low >= 0 ? Math.min(low, last) : 0, high: high >= 0 ? Math.min(high, last) : last };
  }
}

data().then(function (all) {
  panels = all.map(function (p, n) {
    const group = svg.querySelector('.panel[data-panel="' + n + '"]');
    return { p: p, group: group, plot: group.querySelector(".plot"), zoom: [0, p.begin.length], key: -1, selected: null };
  });
  try { follow(); } catch (e) { /* no link of this page */ }
  tools();
  panels.forEach(panel => { listen(panel); draw(panel); });
  svg.classList.add("live");
}).catch(() => svg.append(element("text", { class: "warning", x: 10, y: 66 }, "This browser cannot read the numbers: there is only the picture")));
})();
