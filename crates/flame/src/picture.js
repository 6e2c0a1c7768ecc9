// Draws the frames of a picture for the window and for what is zoomed to; search, details, keys.
// Names of frames reach the document as text nodes and as attributes of text only.
(function () {
"use strict";
const SVG = "http://www.w3.org/2000/svg", HTML = "http://www.w3.org/1999/xhtml";
const svg = document.querySelector("svg.dtrace-flame");
const data = JSON.parse(svg.querySelector("script.data").textContent);
const MOST = 30000;
const ROW = data.row, PAD = data.pad;
let width = 1200, flip = false, old = false, pattern = null, current = 0, chosen = -1;

// Each profile as columns: the depth, frame, value of each node, where it begins, its end, its parent.
const panels = data.panels.map(function (p, number) {
  const step = p.compared ? 4 : 3, count = p.nodes.length / step;
  const of = at => Float64Array.from({ length: count }, (_, i) => p.nodes[i * step + at]);
  const panel = {
    p: p, number: number, count: count, zoom: 0, hits: null, below: null,
    depth: of(0), frame: of(1), now: of(2), before: p.compared ? of(3) : null,
    parent: new Int32Array(count), end: new Int32Array(count).fill(count),
    group: svg.querySelector('.panel[data-panel="' + number + '"] .frames'), drawn: []
  };
  const open = [];
  for (let i = 0; i < count; i++) {
    while (open.length > panel.depth[i]) panel.end[open.pop()] = i;
    panel.parent[i] = open.length ? open[open.length - 1] : -1;
    open.push(i);
  }
  panel.greatest = 0;
  if (p.compared) {
    for (let i = 1; i < count; i++) {
      if (panel.frame[i] >= 0) panel.greatest = Math.max(panel.greatest, Math.abs(change(panel, i)));
    }
  }
  panel.values = panel.now;
  place(panel);
  return panel;
});

function share(part, all) { return all > 0 ? part / all : 0; }

function change(panel, i) {
  return share(panel.now[i], panel.now[0]) - share(panel.before[i], panel.before[0]);
}

// Where each node begins, in units of its values.
function place(panel) {
  const next = new Float64Array(panel.p.rows + 2);
  panel.begin = new Float64Array(panel.count);
  for (let i = 0; i < panel.count; i++) {
    const d = panel.depth[i];
    panel.begin[i] = next[d];
    next[d] += panel.values[i];
    next[d + 1] = panel.begin[i];
  }
}

function name(panel, i) {
  const frame = panel.frame[i];
  if (frame === -2) {
    const n = panel.p.folded[i].count;
    return n.toLocaleString("en-US") + (n === 1 ? " small frame" : " small frames");
  }
  return frame < 0 ? "all" : panel.p.frames[frame].slice(2);
}

function word(panel, i) {
  const frame = panel.frame[i];
  const words = { u: " (process)", i: " (process, inlined)", p: " (process, interpreted)", k: " (kernel)", y: " (key)" };
  return frame < 0 ? "" : words[panel.p.frames[frame][0]] || "";
}

function percent(part, all) { return (100 * share(part, all)).toFixed(2) + " %"; }

function about(panel, i) {
  let own = panel.now[i];
  for (let j = i + 1; j < panel.end[i]; j = panel.end[j]) own -= panel.now[j];
  const number = n => n.toLocaleString("en-US");
  let text = name(panel, i) + word(panel, i) + ": " + number(panel.now[i]) + ", " + percent(panel.now[i], panel.now[0]);
  if (panel.zoom > 0 && i > panel.zoom && i < panel.end[panel.zoom]) text += ", " + percent(panel.now[i], panel.now[panel.zoom]) + " of what is shown";
  if (own > 0 && own < panel.now[i]) text += "; in itself " + number(own);
  if (panel.p.compared) text += "; before: " + number(panel.before[i]) + ", " + percent(panel.before[i], panel.before[0]);
  return text;
}

function kind(panel, i) {
  const frame = panel.frame[i];
  if (frame === -2) return "o";
  if (frame < 0) return "a";
  if (!panel.p.compared) return panel.p.frames[frame].slice(0, 2).trim();
  const d = change(panel, i), part = panel.greatest > 0 ? Math.abs(d) / panel.greatest : 0;
  if (part < 0.01) return "s";
  return (d > 0 ? "m" : "l") + Math.min(4, Math.max(1, Math.ceil(part * 4)));
}

function element(tag, attributes, parent) {
  const e = document.createElementNS(SVG, tag);
  for (const key in attributes) e.setAttribute(key, attributes[key]);
  if (parent) parent.appendChild(e);
  return e;
}

function label(text, space) {
  const at = text.indexOf("`"), short = at < 0 ? text : text.slice(at + 1);
  let left = Math.floor((space - 6) / data.character);
  if (left < 3) return "";
  const size = c => c.codePointAt(0) < 128 ? 1 : 2;
  const letters = Array.from(short);
  if (letters.reduce((sum, c) => sum + size(c), 0) <= left) return short;
  left -= 2;
  let out = "";
  for (const c of letters) {
    if (left < size(c)) break;
    left -= size(c);
    out += c;
  }
  return out + "\u2026";
}

function y(panel, depth) {
  return panel.p.top + (flip ? depth : panel.p.rows - 1 - depth) * ROW;
}

function box(panel, i, x, w, cls, text) {
  const g = element("g", { "class": "f " + cls }, null), top = y(panel, panel.depth[i]);
  element("rect", { x: x.toFixed(2), y: top, width: w.toFixed(2), height: ROW - 1 }, g);
  const frame = panel.frame[i];
  if (panel.p.compared && frame >= 0 && !/hit|^o/.test(cls)) {
    const letter = panel.p.frames[frame][0];
    if ("uipk".includes(letter)) {
      element("rect", { "class": letter === "k" ? "edge-k" : "edge-u", x: x.toFixed(2), y: top + ROW - 4, width: w.toFixed(2), height: 3 }, g);
    }
  }
  if (text) element("text", { x: (x + 3).toFixed(2), y: top + 11 }, g).textContent = text;
  g.dataset.node = i;
  return g;
}

function draw(panel) {
  const all = width - 2 * PAD, zoom = panel.zoom, scale = share(all, panel.values[zoom]);
  const out = document.createDocumentFragment();
  const hit = i => panel.hits && panel.frame[i] >= 0 && panel.hits[panel.frame[i]];
  const cls = i => hit(i) ? "hit" : kind(panel, i);
  for (let i = panel.parent[zoom]; i >= 0; i = panel.parent[i]) {
    out.appendChild(box(panel, i, PAD, all, cls(i) + " outer", label(name(panel, i), all)));
  }
  let least = data.least;
  const widths = [];
  for (let i = zoom; i < panel.end[zoom]; i++) {
    if (panel.values[i] * scale >= least) widths.push(panel.values[i] * scale);
  }
  if (widths.length > MOST) least = widths.sort((a, b) => b - a)[MOST];
  let run = null;
  const flush = function () {
    if (run && run.to - run.from >= data.least) {
      const g = box(panel, run.node, run.from, run.to - run.from, run.hit ? "o hit" : "o", "");
      g.dataset.run = run.count;
      out.appendChild(g);
    }
    run = null;
  };
  for (let i = zoom; i < panel.end[zoom];) {
    const x = PAD + (panel.begin[i] - panel.begin[zoom]) * scale, w = panel.values[i] * scale;
    if (w >= least && (panel.frame[i] !== -2 || w > 2 * data.character)) {
      flush();
      const own = panel.frame[i] === -2 && panel.below && panel.below[i] ? "o hit" : cls(i);
      out.appendChild(box(panel, i, x, w, own, label(name(panel, i), w)));
      i++;
      continue;
    }
    if (!run || run.depth !== panel.depth[i] || Math.abs(run.to - x) > 1e-6) {
      flush();
      run = { node: i, depth: panel.depth[i], from: x, to: x, count: 0, hit: false };
    }
    run.to = x + w;
    run.count += panel.frame[i] === -2 ? panel.p.folded[i].count : 1;
    run.hit = run.hit || !!(panel.below && panel.below[i]);
    i = panel.end[i];
  }
  flush();
  panel.group.replaceChildren(out);
  tip.style.visibility = "hidden";
  mark();
}

function mark() {
  svg.querySelectorAll(".f.chosen").forEach(g => g.classList.remove("chosen"));
  if (chosen < 0) return;
  const g = panels[current].group.querySelector('[data-node="' + chosen + '"]');
  if (g) g.classList.add("chosen");
}

function drawAll() { panels.forEach(draw); remember(); }

// The regular expression is tried on each name once, not on each node.
function search(text) {
  let expression = null;
  input.classList.remove("wrong");
  try { expression = text ? new RegExp(text) : null; } catch (e) { input.classList.add("wrong"); say("Not a regular expression: " + e.message); return; }
  pattern = expression ? text : null;
  let found = 0, names = 0;
  const parts = [];
  panels.forEach(function (panel) {
    panel.hits = panel.below = null;
    if (!expression) return;
    panel.hits = Uint8Array.from(panel.p.frames, f => expression.test(f.slice(2)) ? 1 : 0);
    panel.below = new Uint8Array(panel.count);
    let sum = 0, until = 0, folded = 0;
    for (let i = panel.count - 1; i >= 0; i--) {
      const frame = panel.frame[i];
      if (frame >= 0 && panel.hits[frame]) panel.below[i] = 1;
      if (frame === -2 && panel.p.folded[i].frames.some(f => panel.hits[f])) panel.below[i] = 1;
      if (panel.below[i] && panel.parent[i] >= 0) panel.below[panel.parent[i]] = 1;
    }
    for (let i = 0; i < panel.count; i++) {
      if (i < until) continue;
      const frame = panel.frame[i];
      if (frame >= 0 && panel.hits[frame]) { sum += panel.now[i]; until = panel.end[i]; found++; }
      if (frame === -2 && panel.below[i]) { folded += panel.now[i]; found++; }
    }
    names += panel.hits.reduce((a, b) => a + b, 0);
    let part = panel.p.name + " " + percent(sum, panel.now[0]);
    if (folded > 0) part += " and at most " + percent(folded, panel.now[0]) + " in folded frames";
    parts.push(part);
  });
  drawAll();
  say(expression ? (found ? names + (names === 1 ? " name matches: " : " names match: ") + parts.join("; ") : "Nothing matches.") : "");
}

function say(text) { status.textContent = text; }

function zoomTo(panel, i) {
  if (panel.frame[i] === -2) return;
  panel.zoom = panel.values[i] > 0 ? i : 0;
  current = panel.number;
  chosen = panel.zoom;
  draw(panel);
  remember();
  say(panel.zoom > 0 ? about(panel, panel.zoom) : "");
}

function reset() {
  panels.forEach(p => { p.zoom = 0; });
  chosen = -1;
  input.value = "";
  search("");
}

// The address of the page is a link to what is shown.
function remember() {
  const parts = [];
  if (pattern) parts.push("s=" + encodeURIComponent(pattern));
  panels.forEach(p => { if (p.zoom > 0) parts.push("z=" + p.number + "." + p.zoom); });
  try { history.replaceState(null, "", parts.length ? "#" + parts.join("&") : location.pathname + location.search); } catch (e) { /* a viewer without an address */ }
}

function recall() {
  for (const part of location.hash.slice(1).split("&")) {
    const at = part.indexOf("="), key = part.slice(0, at), value = part.slice(at + 1);
    if (key === "z") {
      const [p, i] = value.split(".").map(Number);
      if (panels[p] && Number.isInteger(i) && i > 0 && i < panels[p].count) panels[p].zoom = i;
    }
    if (key === "s") { try { input.value = decodeURIComponent(value); } catch (e) { /* not a search */ } }
  }
}

// Tools.
const tools = element("foreignObject", { "class": "tools", y: 8, height: 30 }, svg);
const bar = document.createElementNS(HTML, "div");
bar.className = "bar";
tools.appendChild(bar);
const input = document.createElementNS(HTML, "input");
input.type = "search";
input.placeholder = "search: a regular expression";
input.setAttribute("aria-label", "Search names of frames by a regular expression");
input.maxLength = 1000;
bar.appendChild(input);
function button(text, help, action) {
  const b = document.createElementNS(HTML, "button");
  b.textContent = text;
  b.title = help;
  b.type = "button";
  b.addEventListener("click", action);
  bar.appendChild(b);
  return b;
}
button("Reset", "No zoom and no search (r)", reset);
button("Flip", "The root at the top, or at the bottom (i)", turn);
const sides = panels.some(p => p.p.compared) ? button("Before", "Widths of the profile before, or of the one now (b)", swap) : null;
const status = svg.querySelector(".status");
const tip = element("g", { "class": "tip" }, svg);
const tipBox = element("rect", { rx: 3, height: 22 }, tip);
const tipText = element("text", { x: 6, y: 15 }, tip);

function turn() { flip = !flip; drawAll(); }

function swap() {
  old = !old;
  panels.forEach(function (p) {
    p.values = old && p.before ? p.before : p.now;
    p.zoom = 0;
    place(p);
  });
  if (sides) sides.textContent = old ? "Now" : "Before";
  drawAll();
  say(old ? "Widths are those before." : "Widths are those now.");
}

function frameOf(event) {
  const g = event.target.closest ? event.target.closest(".panel .f") : null;
  if (!g || g.dataset.node === undefined) return null;
  return { panel: panels[Number(g.closest(".panel").dataset.panel)], node: Number(g.dataset.node), run: g.dataset.run };
}

function describe(f) {
  if (f.run === undefined) return about(f.panel, f.node);
  const n = Number(f.run);
  return n.toLocaleString("en-US") + (n === 1 ? " frame" : " frames") + " too narrow to draw: zoom in";
}

svg.addEventListener("click", function (event) {
  const f = frameOf(event);
  if (!f) return;
  svg.focus();
  const up = f.panel.parent[f.node];
  zoomTo(f.panel, f.run === undefined ? f.node : Math.max(up, 0));
});

svg.addEventListener("mousemove", function (event) {
  const f = frameOf(event);
  if (!f) { tip.style.visibility = "hidden"; return; }
  const text = describe(f), view = svg.getBoundingClientRect();
  say(text);
  const most = Math.max(20, Math.floor((width - 40) / data.character));
  tipText.textContent = text.length > most ? text.slice(0, most - 1) + "\u2026" : text;
  const w = tipText.textContent.length * data.character + 12;
  tipBox.setAttribute("width", w);
  const scale = width / view.width;
  const x = (event.clientX - view.left) * scale, top = (event.clientY - view.top) * scale;
  tip.setAttribute("transform", "translate(" + Math.max(2, Math.min(x + 12, width - w - 4)) + "," + (top > 60 ? top - 30 : top + 18) + ")");
  tip.style.visibility = "visible";
});
svg.addEventListener("mouseleave", function () { tip.style.visibility = "hidden"; });

let timer = 0;
input.addEventListener("input", function () { clearTimeout(timer); timer = setTimeout(() => search(input.value), 120); });
input.addEventListener("keydown", function (event) {
  event.stopPropagation();
  if (event.key === "Enter") search(input.value);
  if (event.key === "Escape") { input.value = ""; search(""); svg.focus(); }
});

// The neighbours of a frame among those that are wide enough to be drawn.
function step(panel, i, key) {
  const wide = j => panel.values[j] / (panel.values[panel.zoom] || 1) * width >= data.least && panel.frame[j] !== -2;
  const up = flip ? "ArrowDown" : "ArrowUp", down = flip ? "ArrowUp" : "ArrowDown";
  if (i < 0) return panel.zoom;
  if (key === down) return Math.max(panel.parent[i], 0);
  if (key === up) {
    let best = -1;
    for (let j = i + 1; j < panel.end[i]; j = panel.end[j]) {
      if (wide(j) && (best < 0 || panel.values[j] > panel.values[best])) best = j;
    }
    return best < 0 ? i : best;
  }
  const parent = panel.parent[i];
  if (parent < 0) return i;
  let last = -1, seen = false;
  for (let j = parent + 1; j < panel.end[parent]; j = panel.end[j]) {
    if (j === i) { if (key === "ArrowLeft") return last < 0 ? i : last; seen = true; continue; }
    if (!wide(j)) continue;
    if (seen) return j;
    last = j;
  }
  return i;
}

document.addEventListener("keydown", function (event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !panels.length) return;
  if (event.target.closest && event.target.closest(".bar")) return;
  const panel = panels[current];
  switch (event.key) {
    case "ArrowUp": case "ArrowDown": case "ArrowLeft": case "ArrowRight":
      chosen = step(panel, chosen, event.key);
      mark();
      say(about(panel, chosen));
      break;
    case "Enter": case " ": if (chosen >= 0) zoomTo(panel, chosen); break;
    case "Escape": zoomTo(panel, 0); break;
    case "n": current = (current + 1) % panels.length; chosen = panels[current].zoom; mark(); say(about(panels[current], chosen)); break;
    case "/": input.focus(); break;
    case "r": reset(); break;
    case "i": turn(); break;
    case "b": if (sides) swap(); break;
    default: return;
  }
  event.preventDefault();
});

function resize() {
  const height = Number(svg.getAttribute("height"));
  // Without the vertical scrollbar, which would cover the last button. Some browsers know no such width of a root that is SVG.
  const view = window.visualViewport;
  const whole = view ? Math.floor(view.width * view.scale) : window.innerWidth;
  width = Math.max(700, document.documentElement.clientWidth || whole);
  svg.setAttribute("width", width);
  svg.setAttribute("viewBox", "0 0 " + width + " " + height);
  tools.setAttribute("x", width * 0.58);
  tools.setAttribute("width", width * 0.42 - PAD);
  const warning = svg.querySelector(".warning rect");
  if (warning) warning.setAttribute("width", width - 2 * PAD);
  drawAll();
}
// What has drawn before the script is replaced, with its titles: they would cover the details.
svg.classList.add("live");
recall();
resize();
if (input.value) search(input.value);
window.addEventListener("resize", resize);
})();
