// chart.js - SVG by hand: a sparkline, and areas on each other under a ceiling.

import { svg } from "./dom.js";
import { bytes, clock, day } from "./format.js";

const isNumber = (x) => x !== null && x !== undefined && !Number.isNaN(x);

// Pieces of [x, y] without the gaps.
function pieces(values, x, y) {
  const found = [];
  let piece = null;
  values.forEach((value, i) => {
    if (!isNumber(value)) {
      piece = null;
      return;
    }
    if (!piece) found.push((piece = []));
    piece.push([x(i), y(value)]);
  });
  return found;
}

const point = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;

function linePath(points) {
  return points.length === 1 ? `M${point(points[0])}h1` : `M${points.map(point).join("L")}`;
}

export function sparkline(node, values, joined) {
  const shown = joined ? carry(values) : values;
  const top = Math.max(...shown.filter(isNumber), 1e-9);
  const x = (i) => (i / Math.max(shown.length - 1, 1)) * 300;
  const y = (value) => 58 - (value / top) * 52;
  const parts = [];
  for (const piece of pieces(shown, x, y)) {
    const line = linePath(piece);
    parts.push(svg("path", { class: "area", d: `${line}V60H${piece[0][0].toFixed(1)}Z` }), svg("path", { class: "line", d: line }));
  }
  node.replaceChildren(...parts);
}

// Figures that come now and then stay until the next one.
function carry(values) {
  let last = null;
  return values.map((value) => (last = isNumber(value) ? value : last));
}

function niceStep(top, parts) {
  let step = 1;
  while (top / step > parts) step *= 2;
  return step;
}

function timeLabels(from, step, count) {
  const all = [];
  const span = step * count;
  const every = [15, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 21600, 86400, 5 * 86400].find((e) => span / e <= 7) || 6 * 86400;
  const zone = new Date(from * 1000).getTimezoneOffset() * 60;
  for (let t = Math.ceil((from - zone) / every) * every + zone; t < from + span; t += every)
    all.push([t, every >= 86400 ? day(t) : clock(t, every < 60)]);
  return all;
}

// areas: [{name, values}] from the ground up; line: values; ceiling: bytes or null.
export function stack(node, { areas, line, ceiling, from, step, width, height }) {
  const left = 64, right = 10, top = 18, bottom = 26;
  const count = areas[0].values.length;
  const sums = areas[0].values.map((_, i) => areas.reduce((sum, a) => sum + (a.values[i] || 0), 0));
  const most = Math.max(...sums, ...line.filter(isNumber), 1);
  const near = isNumber(ceiling) && ceiling < most * 4;
  const limit = (near ? Math.max(ceiling, most) : most) * 1.06;
  const x = (i) => left + ((i + 0.5) / count) * (width - left - right);
  const y = (value) => height - bottom - (value / limit) * (height - top - bottom);
  const parts = [];
  for (let at = 0, each = niceStep(limit, 4); at <= limit; at += each)
    parts.push(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(at), y2: y(at) }),
      svg("text", { class: "axis", x: left - 8, y: y(at) + 4, "text-anchor": "end" }, bytes(at)));
  for (const [t, words] of timeLabels(from, step, count)) {
    const at = x((t - from) / step - 0.5);
    if (at > left + 14 && at < width - right - 14)
      parts.push(svg("text", { class: "axis", x: at, y: height - 7, "text-anchor": "middle" }, words));
  }
  let below = new Array(count).fill(0);
  for (const area of areas) {
    const above = below.map((b, i) => (isNumber(area.values[i]) ? b + area.values[i] : null));
    for (const run of runs(above)) {
      const upper = run.map((i) => point([x(i), y(above[i])]));
      const lower = run.map((i) => point([x(i), y(below[i])])).reverse();
      if (run.length === 1) upper.push(point([x(run[0]) + 2, y(above[run[0]])]));
      parts.push(svg("path", { class: `part ${area.name}`, d: `M${upper.join("L")}L${lower.join("L")}Z` }));
    }
    below = above.map((a, i) => (a === null ? below[i] : a));
  }
  for (const piece of pieces(line, x, y)) parts.push(svg("path", { class: "resident", d: linePath(piece) }));
  if (near)
    parts.push(svg("line", { class: "ceiling", x1: left, x2: width - right, y1: y(ceiling), y2: y(ceiling) }),
      svg("text", { class: "axis", x: width - right, y: y(ceiling) - 5, "text-anchor": "end" }, "ceiling"));
  node.setAttribute("viewBox", `0 0 ${width} ${height}`);
  node.replaceChildren(...parts);
}

function runs(values) {
  const found = [];
  let run = null;
  values.forEach((value, i) => {
    if (value === null) {
      run = null;
      return;
    }
    if (!run) found.push((run = []));
    run.push(i);
  });
  return found;
}
