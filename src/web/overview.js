// overview.js - the dashboard: one sentence, memory, rates, requests, models, caches, log, how to connect.

import { act, changed } from "./act.js";
import { modelPath, order } from "./api.js";
import { sparkline } from "./chart.js";
import { openConnect } from "./connect.js";
import { ask, el, figure, keyed, setFigure, shorten, svg, text, toast } from "./dom.js";
import { bytes, clock, count, plural, rate, seconds } from "./format.js";
import { openLog } from "./log.js";
import { openMemory, openTimeline } from "./memory.js";
import { openPull } from "./pull.js";
import { openEnded, openRequests } from "./requests.js";

const MODELS_SHOWN = 12;
const UNLOADED = { admin: "by order", ttl: "was idle", pressure: "memory ran short", device_lost: "its device failed", shutdown: "the server ended" };

function whyUnloaded({ reason, for: other }) {
  return reason === "made_room" ? `made room for ${other || "another model"}` : UNLOADED[reason] || reason;
}

// ---- the sentence ----

function openVerdict() {
  const title = el("h1", {}), line = el("p", {}), list = el("ul", { class: "attention" });
  const keyWords = el("span", {}), hint = el("p", { class: "hint", hidden: true }, keyWords, "On the server's machine ", el("code", {}, "plateau open"), " opens this page with the admin key; the button Key takes one by hand.");
  const node = el("div", { class: "verdict", id: "verdict" }, el("span", { class: "dot", "aria-hidden": "true" }), el("div", {}, title, line, hint, list));

  function say(level, words, more) {
    node.dataset.level = level;
    text(title, words);
    text(line, more);
  }

  function sentence(now) {
    const worst = (now.attention || []).find((a) => a.level === "bad") || (now.attention || [])[0];
    if (now.status === "loading") return ["busy", "Models are loading"];
    if (now.status === "draining") return ["warn", "The server is ending"];
    if (now.status === "failed") return ["bad", now.reason || "The server has failed"];
    if (now.key_unknown) return ["bad", "The key of this tab is not one of this server"];
    if (worst) return [worst.level, worst.what];
    if (now.status === "stuck") return ["bad", `${now.model} makes no progress`];
    const failed = now.models.find((m) => m.state === "failed");
    if (failed) return ["warn", `${failed.id} could not be loaded`];
    return ["ok", "All is well"];
  }

  function show(now) {
    const ready = now.models.filter((m) => m.state === "ready").length;
    const [level, words] = sentence(now);
    const facts = [`${ready} of ${plural(now.models.length, "model", "models")} ready`,
      `${count(now.active_requests)} running, ${count(now.waiting_requests)} waiting`, `up ${seconds(now.uptime_seconds).replaceAll(" ", "\u00a0")}`];
    if (!now.admin) facts.push("your own requests");
    say(level, words, facts.join(" · "));
    hint.hidden = now.admin;
    text(keyWords, now.key_unknown ? "You see what everyone sees. " : "Memory, all requests, caches and the log need the admin key. ");
    keyed(list, now.attention || [], (a) => a.id, () => el("li", {}), (item, a) => {
      item.dataset.level = a.level;
      text(item, `${a.what}${a.model ? `: ${a.model}` : ""}, since ${clock(a.since)}. ${a.do}`);
    });
  }

  return { node, show, lost: (since) => say("bad", `No answer since ${clock(since / 1000, true)}`, "The figures below are the last ones. The page goes on asking.") };
}

// ---- rates ----

function openTiles() {
  const names = [
    ["Writing", "rates.generated_tokens", "tokens/s", "generated_tokens"],
    ["First token", "rates.first_token_seconds", "median", "first_token_seconds"],
    ["Reading prompts", "rates.prefill_tokens", "tokens/s", "prefill_tokens"],
    ["Found in cache", "rates.cached_ratio", "of prompts", "cached_tokens"],
  ];
  const tiles = names.map(([title, name, unit, series]) => {
    const value = figure(name), note = el("p", { class: "soft" });
    const line = svg("svg", { class: "spark", viewBox: "0 0 300 60", preserveAspectRatio: "none", "aria-hidden": "true" });
    return { value, note, line, series, node: el("section", { class: `card tile ${series}` }, el("h2", {}, title), el("div", { class: "big" }, value, " ", el("small", {}, unit)), note, line) };
  });
  const node = el("div", { class: "tiles" }, tiles.map((t) => t.node));

  function show(now, history) {
    const r = now.rates;
    const prompt = now.models.reduce((sum, m) => sum + m.prompt_tokens, 0), cached = now.models.reduce((sum, m) => sum + m.cached_tokens, 0);
    const share = prompt > 0 ? cached / prompt : null;
    setFigure(tiles[0].value, r.generated_tokens, rate(r.generated_tokens));
    text(tiles[0].note, `${count(now.active_requests)} running, ${count(now.waiting_requests)} waiting`);
    setFigure(tiles[1].value, r.first_token_p50_seconds, seconds(r.first_token_p50_seconds));
    text(tiles[1].note, r.first_tokens ? `95 of 100 within ${seconds(r.first_token_p95_seconds)}, last 5 minutes` : "none in the last 5 minutes");
    setFigure(tiles[2].value, r.prefill_tokens, rate(r.prefill_tokens));
    text(tiles[2].note, "computed; found ones not counted");
    setFigure(tiles[3].value, share, share === null ? "–" : `${Math.round(share * 100)} %`);
    text(tiles[3].note, `${count(cached)} of ${count(prompt)} tokens`);
    if (history)
      for (const tile of tiles) sparkline(tile.line, history[tile.series].mean, tile.series === "first_token_seconds");
  }

  return { node, show };
}

// ---- models ----

function openModels() {
  const body = el("tbody", {}), more = el("p", { class: "soft" });
  const heads = [["Model"], ["State"], ["Holds", "n"], ["Needs at least", "n wide"], ["Context", "n wide"], ["Written", "n wide"], ["Loaded in", "n wide"], ["Answers", "wide"]];
  const table = el("table", {}, el("thead", {}, el("tr", {}, heads.map(([t, c]) => el("th", { scope: "col", class: c }, t)), el("th", { scope: "col" }, el("span", { class: "hidden" }, "Actions")))), body);
  const pull = openPull(changed), leftAt = new Map(); // when each model was unloaded last
  const node = el("section", { class: "card", id: "models" }, el("h2", {}, "Models"), table, more, pull.node);

  async function unload(button, model) {
    if (!(await ask(`Unload ${model.id}?`, `Gives back about ${bytes(model.used_bytes)}. The next request for it loads it again, which took ${seconds(model.load_seconds)}.`, "Unload"))) return;
    act(button, () => order("POST", modelPath(model.id, "unload")), (r) => r.bytes_returned === undefined ? `${model.id} unloads when its requests have ended.` : `${model.id} gave back ${bytes(r.bytes_returned)}.`);
  }

  function make(model) {
    const row = el("tr", { "data-model": model.id });
    const cells = heads.map(([, c]) => el("td", { class: c }));
    const button = (words, title, work) => {
      const b = el("button", { type: "button", class: "btn small", title, "aria-label": `${words} ${model.id}` }, words);
      b.addEventListener("click", () => work(b, row.model_));
      return b;
    };
    const load = button("Load", "POST /v1/models/…/load", (b, m) => act(b, () => order("POST", modelPath(m.id, "load")), () => `${m.id} is loaded.`));
    const drop = button("Unload", "POST /v1/models/…/unload", unload);
    const stop = button("Stop", "POST /v1/models/…/unload", (b, m) => act(b, () => order("POST", modelPath(m.id, "unload")), () => `The load of ${m.id} was stopped.`));
    const pin = button("Pin", "Neither idle time nor other models unload it", (b, m) => act(b, () => order("POST", modelPath(m.id, m.pinned ? "unpin" : "pin")), () => `${m.id} is ${m.pinned ? "no longer pinned" : "pinned"}.`));
    const go = el("a", { class: "btn small", href: `#chat=${encodeURIComponent(model.id)}`, "aria-label": `Try ${model.id}` }, "Try it");
    row.append(...cells, el("td", { class: "actions" }, go, load, stop, drop, pin));
    Object.assign(row, { cells_: cells, buttons_: { load, stop, drop, pin, go } });
    return row;
  }

  function update(row, m) {
    const c = row.cells_, b = row.buttons_, ready = m.state === "ready" || m.state === "stuck";
    row.model_ = m;
    text(c[0], shorten(m.id, 36));
    c[0].title = m.id;
    text(c[1], m.state === "loading" ? `loading ${Math.round((m.progress || 0) * 100)} %` : m.state + (m.pinned ? ", pinned" : ""));
    c[1].dataset.state = m.state;
    c[1].title = m.reason || "";
    text(c[2], m.used_bytes ? bytes(m.used_bytes) : "–");
    text(c[3], m.needed_bytes ? bytes(m.needed_bytes) : "–");
    text(c[4], m.max_model_len ? count(m.max_model_len) : "–");
    text(c[5], m.generated_tokens === undefined ? "–" : count(m.generated_tokens));
    text(c[6], m.load_seconds ? seconds(m.load_seconds) : "–");
    const gone = m.state === "unloaded" && m.unloaded;
    text(c[7], gone ? whyUnloaded(gone) : m.exact === undefined ? (m.reason || "") : m.exact ? "exact" : "may vary");
    c[7].title = gone || m.exact === undefined ? "" : m.exact ? "The same tokens in any batch, with and without the cache" : "Faster; tokens may differ between batches";
    b.load.hidden = !row.admin_ || ready || m.state === "loading" || m.state === "draining";
    b.stop.hidden = !row.admin_ || m.state !== "loading";
    b.drop.hidden = !row.admin_ || !ready;
    b.drop.disabled = Boolean(m.pinned);
    b.pin.hidden = !row.admin_;
    text(b.pin, m.pinned ? "Unpin" : "Pin");
    b.go.hidden = m.chat === false;
  }

  // A model that another one pushed out says so once, also where its row is not seen.
  function tellGone(now) {
    for (const m of now.models) {
      const at = m.unloaded ? now.time - m.unloaded.seconds : 0, before = leftAt.get(m.id);
      if (before !== undefined && at > before + 1 && m.unloaded.reason === "made_room") toast(`${m.id} was unloaded: it ${whyUnloaded(m.unloaded)}.`);
      leftAt.set(m.id, at);
    }
  }

  function show(now) {
    tellGone(now);
    keyed(body, now.models.slice(0, MODELS_SHOWN), (m) => m.id, make, (row, m) => {
      row.admin_ = now.admin;
      update(row, m);
    });
    pull.show(now.pull);
    text(more, now.models.length > MODELS_SHOWN ? `and ${now.models.length - MODELS_SHOWN} more` : "");
  }

  return { node, show };
}

// ---- caches ----

const FULL = 0.95;

// What becomes of cached prefixes: the bar falls at once by many of them, which is not a fault.
function prefixesGo(host) {
  if (!host.bytes) return "";
  return host.bytes < FULL * host.limit_bytes ? "Prefixes stay for later prompts. Requests and models that need the memory get it, many prefixes at a time."
    : "Full: new prefixes take the place of those unused for longest, many at a time.";
}

function openCaches() {
  const rows = el("div", {});
  const clear = el("button", { type: "button", class: "btn small", title: "POST /api/hot-cache/clear" }, "Clear memory");
  const clearSsd = el("button", { type: "button", class: "btn small", title: "POST /api/ssd-cache/clear" }, "Clear SSD");
  const trim = el("button", { type: "button", class: "btn small", title: "POST /api/trim" }, "Return free memory");
  const node = el("section", { class: "card", id: "caches" }, el("h2", {}, "Caches", el("span", { class: "tools" }, trim, clear, clearSsd)), rows);
  let now = null;
  const gave = (r) => `Gave back ${bytes(r.bytes_reclaimed)}.` + (r.failed.length ? ` Not all: ${r.failed.map((f) => `${f.id} ${f.error}`).join(", ")}.` : "");

  clear.addEventListener("click", async () => {
    if (await ask("Clear the prefix cache?", `Gives back about ${bytes(now.caches.host.bytes)}. Prompts that come again are computed again.`, "Clear"))
      act(clear, () => order("POST", "/api/hot-cache/clear"), gave);
  });
  clearSsd.addEventListener("click", async () => {
    if (await ask("Clear the prefix cache on disk?", `Gives back about ${bytes(now.caches.ssd.bytes)} of disk.`, "Clear"))
      act(clearSsd, () => order("POST", "/api/ssd-cache/clear"), gave);
  });
  trim.addEventListener("click", () => act(trim, () => order("POST", "/api/trim"), gave));

  function show(overview) {
    now = overview;
    const { host, ssd, shared, images } = now.caches;
    clearSsd.hidden = !ssd;
    const all = [["Prefix cache", "caches.host_bytes", host.bytes, host.limit_bytes, `${count(host.hit_tokens)} tokens found`, prefixesGo(host)]];
    if (shared) all.push(["Shared", "caches.shared", shared.bytes, shared.limit_bytes, shared.off ? "off" : `${count(shared.reads)} reads, ${count(shared.writes)} writes`]);
    if (ssd) all.push(["On disk", "caches.ssd_bytes", ssd.bytes, ssd.limit_bytes, ssd.state === "off" ? "off" : `${count(ssd.hit_tokens)} tokens found`]);
    if (images.limit_bytes) all.push(["Images", "caches.images_bytes", images.bytes, images.limit_bytes, `${count(images.found)} found, ${count(images.encoded)} encoded`]);
    keyed(rows, all, (r) => r[0], (r) => {
      const value = figure(r[1]), limit = el("span", {}), note = el("span", { class: "soft" }), bar = el("i", {}), goes = el("p", { class: "goes" });
      return Object.assign(el("div", { class: "cache" }, el("p", {}, el("b", {}, r[0]), " ", value, " of ", limit, note), el("span", { class: "progress full", "aria-hidden": "true" }, bar), goes), { parts_: { value, limit, note, bar, goes } });
    }, (row, [, , used, limit, words, goes]) => {
      setFigure(row.parts_.value, used, bytes(used));
      text(row.parts_.limit, bytes(limit));
      text(row.parts_.note, words);
      text(row.parts_.goes, goes || "");
      row.parts_.bar.style.width = `${limit ? Math.min(100, (100 * used) / limit) : 0}%`;
    });
  }

  return { node, show };
}

// ---- all of it ----

export function openOverview(place) {
  const verdict = openVerdict(), memory = openMemory(), tiles = openTiles(), timeline = openTimeline();
  const requests = openRequests(), ended = openEnded(), models = openModels(), caches = openCaches(), log = openLog(), connect = openConnect();
  const adminOnly = [memory.node, tiles.node, timeline.node, caches.node, log.node];
  place.append(verdict.node, memory.node, tiles.node, timeline.node, requests.node, caches.node, ended.node, models.node, log.node, connect.node);

  return {
    show(now) {
      for (const node of adminOnly) node.hidden = !now.admin;
      verdict.show(now);
      requests.show(now);
      ended.show(now);
      models.show(now);
      connect.show(now);
      if (!now.admin) return;
      memory.show(now);
      timeline.show(now);
      tiles.show(now, timeline.recent());
      caches.show(now);
      log.show(now);
    },
    lost: verdict.lost,
  };
}
