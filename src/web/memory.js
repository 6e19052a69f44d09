// memory.js - memory by owner against the ceiling, and over time.

import { get } from "./api.js";
import { stack } from "./chart.js";
import { el, figure, keyed, setFigure, shorten, svg, text } from "./dom.js";
import { bytes, clock, seconds } from "./format.js";

const HUES = 6;
const PARTS = [["fixed", "weights and tables"], ["active", "in use by requests"], ["kept", "kept for later requests"]];
const UNACCOUNTED = 32 << 20; // as the alert has it

// ---- by owner ----

export function openMemory() {
  const used = figure("memory.used_bytes"), limit = figure("memory.limit_bytes"), zero = el("span", {}, "0"), end = el("span", {});
  const bar = el("div", { class: "bar", role: "img" }), aside = el("span", {}), body = el("tbody", {});
  const devices = el("div", { class: "devices" }), sum = el("p", { class: "soft sum" });
  const chips = Object.fromEntries([["unaccounted_bytes", "Unaccounted"], ["pending_trim_bytes", "Waiting to go back"], ["resident_bytes", "The system counts"], ["peak_bytes", "Peak"]]
    .map(([name, words]) => [name, { node: figure(`memory.${name}`), words }]));
  const node = el("section", { class: "card memory", id: "memory" }, el("h2", {}, "Memory by owner"),
    el("div", { class: "big" }, used, " ", el("small", {}, "in use of ", limit, " ceiling")), bar,
    el("div", { class: "scale" }, zero, aside, end),
    el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Owner"), ...["Now", "Peak", "Limit"].map((t) => el("th", { scope: "col", class: t === "Now" ? "n" : "n wide" }, t)))), body),
    devices,
    el("div", { class: "chips" }, Object.values(chips).map((c) => el("span", {}, `${c.words} `, c.node))), sum);

  // A slice of the bar, and a row of the table, for each part.
  function partsOf(memory) {
    const all = [];
    memory.owners.forEach((o, i) => {
      const hue = i % HUES;
      all.push({ key: `owner ${o.id}`, words: shorten(o.id, 40), title: o.id, used: o.used_bytes, peak: o.peak_bytes, limit: o.limit_bytes, name: "owner.used_bytes" });
      for (const [part, words] of PARTS) all.push({ key: `${part} ${o.id}`, words, used: o[`${part}_bytes`], hue: `hue${hue} ${part}`, sub: true });
    });
    all.push({ key: "server", words: "the server itself", used: memory.server_bytes, hue: "server", name: "memory.server_bytes" });
    return all;
  }

  function makeRow(part) {
    const value = part.name ? figure(part.name) : el("span", { class: "num" });
    const cells = [el("td", {}), el("td", { class: "n" }, value), el("td", { class: "n wide" }), el("td", { class: "n wide" })];
    const words = el("span", {});
    cells[0].append(part.hue ? el("i", { class: `swatch ${part.hue}`, "aria-hidden": "true" }) : "", words);
    return Object.assign(el("tr", { class: part.sub ? "sub" : "" }, cells), { cells_: cells, words_: words, value_: value });
  }

  function updateRow(row, part) {
    text(row.words_, part.words);
    row.title = part.title || "";
    setFigure(row.value_, part.used, bytes(part.used));
    text(row.cells_[2], part.peak === undefined ? "" : bytes(part.peak));
    text(row.cells_[3], part.limit === undefined || part.limit === null ? "" : bytes(part.limit));
  }

  function show(now) {
    const m = now.memory, ceiling = m.limit_bytes || m.reserved_bytes, set = Math.max(0, m.reserved_bytes - m.used_bytes);
    const parts = partsOf(m), slices = parts.filter((p) => p.hue && p.used > 0);
    setFigure(used, m.used_bytes, bytes(m.used_bytes));
    setFigure(limit, m.limit_bytes, m.limit_bytes ? bytes(m.limit_bytes) : "no");
    keyed(bar, [...slices, { key: "aside", used: set, hue: "hatch" }], (p) => p.key, (p) => el("span", { class: p.hue }), (slice, p) => {
      slice.style.width = `${(100 * p.used) / ceiling}%`;
      slice.title = p.key === "aside" ? `set aside: ${bytes(p.used)}` : `${p.key}: ${bytes(p.used)}`;
    });
    bar.setAttribute("aria-label", `${bytes(m.used_bytes)} in use, ${bytes(set)} set aside, ceiling ${bytes(ceiling)}`);
    text(aside, `hatched: ${bytes(set)} set aside for what models and requests may still need`);
    text(end, bytes(ceiling));
    keyed(body, parts, (p) => p.key, makeRow, updateRow);
    for (const [name, chip] of Object.entries(chips)) setFigure(chip.node, m[name], bytes(m[name]));
    const less = m.unaccounted_bytes < 0, big = m.unaccounted_bytes > UNACCOUNTED || m.unaccounted_bytes + m.untouched_bytes < -UNACCOUNTED;
    chips.unaccounted_bytes.node.dataset.level = big ? "warn" : "ok";
    text(sum, `Unaccounted: the system counts ${bytes(m.resident_bytes)}, which is ${bytes(Math.abs(m.unaccounted_bytes))} ${less ? "less" : "more"} than the ${bytes(m.accounted_bytes)} of the accounts and the allocator. ${less ? `Reserved memory that was never touched does not count, ${bytes(m.untouched_bytes)} of open connections at most. ` : ""}${big ? "More than 32 MiB is a fault." : "Up to 32 MiB either way is not a fault."}`);
    chips.resident_bytes.node.title = "Resident and swapped memory of the process, without mapped files";
    keyed(devices, m.devices, (d) => d.domain, () => el("p", {}), (p, d) => text(p, `${d.domain}: ${bytes(d.used_bytes)} of ${bytes(d.limit_bytes)}, ${bytes(d.reserved_bytes)} reserved${d.others_bytes === undefined ? "" : `; other programs hold ${bytes(d.others_bytes)}, ${bytes(d.free_bytes)} free`}`));
  }

  return { node, show };
}

// ---- over time ----

const RANGES = [["5m", "5 min"], ["1h", "1 h"], ["24h", "24 h"], ["7d", "7 days"], ["30d", "30 days"]];
const AREAS = [["server", "the server"], ["fixed", "weights and tables"], ["active", "in use by requests"], ["kept", "caches"]];
const VERDICTS = { flat: "flat", rising: "rising", falling: "falling", unknown: "too early to say" };
const POINTS = 300;

export function openTimeline() {
  let range = "5m", shown = null, recent = null, ceiling = null, asked = 0, asking = false;
  const verdict = el("span", { class: "verdict-words" }), graph = svg("svg", { class: "timeline", role: "img" });
  const buttons = RANGES.map(([name, words]) => el("button", { type: "button", "aria-pressed": name === range, onclick: () => choose(name) }, words));
  const legend = el("p", { class: "legend" }, AREAS.map(([name, words]) => el("span", {}, el("i", { class: `swatch part ${name}`, "aria-hidden": "true" }), words)),
    el("span", {}, el("i", { class: "swatch resident", "aria-hidden": "true" }), "what the system counts"));
  const node = el("section", { class: "card timeline-card", id: "timeline" }, el("h2", {}, "Memory over time ", verdict, el("span", { class: "tools segments", role: "group", "aria-label": "Range" }, buttons)), graph, legend);
  new ResizeObserver(draw).observe(node);

  function choose(name) {
    range = name;
    RANGES.forEach(([each], i) => buttons[i].setAttribute("aria-pressed", String(each === name)));
    shown = name === "5m" ? recent : null;
    asked = 0;
    refresh();
  }

  function sayTrend(trend) {
    // A change over five minutes is not twelve times that in an hour.
    const [change, time] = range === "5m" ? [trend.bytes_per_hour / 12, "in 5 min"] : [trend.bytes_per_hour, "an hour"];
    const per = `${Math.abs(change) < 0.5 ? "0 B" : (change > 0 ? "+" : "") + bytes(change)} ${time}`;
    text(verdict, trend.verdict === "unknown" ? VERDICTS.unknown : `${VERDICTS[trend.verdict]}: ${per}`);
    verdict.dataset.verdict = trend.verdict;
    verdict.dataset.value = trend.bytes_per_hour;
    verdict.title = "Resident memory without caches and models: a line through its least values over the range";
  }

  function draw() {
    if (!shown || node.hidden) return;
    const width = Math.max(280, Math.min(1400, node.clientWidth - 40)), height = width < 500 ? 190 : 250;
    const s = shown.series;
    stack(graph, { areas: AREAS.map(([name]) => ({ name, values: s[`memory_${name}`].mean })), line: s.memory_resident.mean, ceiling, from: shown.from, step: shown.step_seconds, width, height });
    const last = s.memory_used.mean.filter((x) => x !== null).at(-1);
    graph.setAttribute("aria-label", `Memory over ${range}, ${verdict.textContent}; now ${bytes(last)}`);
  }

  async function refresh() {
    if (asking) return;
    asking = true;
    const wanted = range;
    try {
      const history = await get(`/api/history?range=${wanted}`);
      asked = Date.now();
      if (wanted === "5m") recent = history;
      if (wanted === range) {
        shown = history;
        sayTrend(history.trend);
        draw();
      }
    } catch { /* the poll says when the server is gone */ }
    asking = false;
    if (wanted !== range) refresh();
  }

  // The last five minutes go on from one answer with what each poll brings.
  function extend(now) {
    const second = Math.floor(now.time - recent.from);
    const behind = second - (POINTS - 1);
    if (behind <= 0) return;
    const m = now.memory, sum = (part) => m.owners.reduce((all, o) => all + o[`${part}_bytes`], 0);
    const values = { memory_used: m.used_bytes, memory_server: m.server_bytes, memory_fixed: sum("fixed"), memory_active: sum("active"), memory_kept: sum("kept"), memory_resident: m.resident_bytes,
      generated_tokens: now.rates.generated_tokens, prefill_tokens: now.rates.prefill_tokens, cached_tokens: now.rates.cached_tokens, first_token_seconds: now.rates.first_tokens ? now.rates.first_token_p50_seconds : null };
    for (const [name, series] of Object.entries(recent.series)) {
      // A poll that comes a little late leaves no gap.
      for (let i = 1; i < Math.min(behind, POINTS); i++) series.mean.push(behind <= 3 ? series.mean.at(-1) : null);
      series.mean.push(values[name] ?? null);
      series.mean.splice(0, series.mean.length - POINTS);
    }
    recent.from += behind;
  }

  function show(now) {
    ceiling = now.memory.limit_bytes;
    if (recent) extend(now);
    else if (range !== "5m") get("/api/history?range=5m").then((h) => { recent = h; }, () => {});
    const every = range === "5m" ? 30000 : Math.max(30000, (shown?.step_seconds || 0) * 500);
    if (!shown || Date.now() - asked > Math.min(every, 300000)) refresh();
    else if (range === "5m") draw();
  }

  return { node, show, recent: () => recent?.series };
}
