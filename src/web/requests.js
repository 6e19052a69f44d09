// requests.js - requests under way, and the last ones that ended or were refused: how long each phase took.

import { get, keyChanges, order } from "./api.js";
import { el, keyed, shorten, text } from "./dom.js";
import { act } from "./act.js";
import { bytes, clock, count, plural, rate, seconds } from "./format.js";

const RUNNING_SHOWN = 50, ENDED_SHOWN = 12, ENDED_KEPT = 200;
const DOING = {
  receiving: "arriving", preparing: "preparing", loading: "waiting for the model", media: "decoding images", queued: "queued",
  fetching: "fetching from SSD", encoding: "encoding images", prefilling: "reading", decoding: "writing", parked: "parked",
  paused: "paused: its client does not read", preempted: "preempted", sending: "sending",
};
const PHASES = [["receiving", "Received"], ["preparing", "Prepared"], ["media", "Images"], ["loading", "Waited for the model"], ["queued", "Queued"],
  ["prefilling", "Prompt read"], ["decoding", "Answer written"], ["sending", "Rest sent"]];
const ENDS = { stop: "done", length: "cut at max tokens", left: "client left", aborted: "stopped", client_too_slow: "client read too slowly", queue_timeout: "waited too long", memory_short: "no memory", lease_refused: "session refused", agents_full: "no place for its agent", shutdown: "model unloaded", error: "failed" };

// ---- under way ----

export function openRequests() {
  const body = el("tbody", {}), more = el("p", { class: "soft" });
  const table = el("table", {}, el("thead", {}, el("tr", {},
    ...["Model", "Who", "Doing"].map((t) => el("th", { scope: "col" }, t)), el("th", { scope: "col" }, "Prompt"),
    ...["Written", "Memory", "Age"].map((t) => el("th", { scope: "col", class: "n" }, t)), el("th", { scope: "col" }, el("span", { class: "hidden" }, "Stop")))), body);
  const node = el("section", { class: "card", id: "requests" }, el("h2", {}, "Requests"), table, more);

  function make(request) {
    const bar = el("i", {}), cells = {};
    const row = el("tr", { "data-request": request.id });
    for (const name of ["model", "who", "doing", "prompt", "written", "memory", "age", "stop"])
      row.append((cells[name] = el("td", { class: ["written", "memory", "age"].includes(name) ? `n ${name}` : name })));
    cells.words = el("span", { class: "num" });
    cells.prompt.append(el("span", { class: "progress", "aria-hidden": "true" }, bar), cells.words);
    const stop = el("button", { type: "button", class: "btn small", title: `DELETE /v1/requests/${request.id}`, "aria-label": `Stop request ${request.id.slice(0, 8)}` }, "Stop");
    stop.addEventListener("click", () => act(stop, () => order("DELETE", `/v1/requests/${request.id}`), () => "The request was stopped."));
    cells.stop.append(stop);
    row.cells_ = { ...cells, bar };
    return row;
  }

  function update(row, r) {
    const c = row.cells_;
    text(c.model, r.model ? shorten(r.model, 28) : "–");
    c.model.title = r.model || "";
    text(c.who, shorten(whoOf(r), 22));
    c.who.title = `${r.key === "-" ? "no key" : r.key}, ${r.client}, ${r.route}`;
    text(c.doing, (DOING[r.phase] || r.phase) + (r.images ? `, ${plural(r.images, "image", "images")}` : ""));
    const done = r.phase === "prefilling" ? r.progress : r.tokens > 0 ? 1 : r.progress;
    c.bar.style.width = `${Math.round(Math.min(1, done) * 100)}%`;
    text(c.words, r.prompt_tokens ? count(r.prompt_tokens) + (r.cached_tokens ? `, ${Math.round((100 * r.cached_tokens) / r.prompt_tokens)} % found` : "") : "");
    text(c.written, count(r.tokens));
    text(c.memory, bytes(r.bytes));
    text(c.age, r.age_seconds < 60 ? `${Math.floor(r.age_seconds)} s` : seconds(r.age_seconds));
  }

  function show(now) {
    const oldestFirst = [...now.requests].sort((a, b) => b.age_seconds - a.age_seconds || (a.id < b.id ? -1 : 1));
    keyed(body, oldestFirst.slice(0, RUNNING_SHOWN), (r) => r.id, make, update);
    const left = now.active_requests + now.waiting_requests - Math.min(now.requests.length, RUNNING_SHOWN);
    text(more, now.requests.length === 0 ? "No request is under way." : left > 0 ? `and ${count(left)} more` : "");
    table.hidden = now.requests.length === 0;
  }

  return { node, show };
}

function whoOf(r) {
  return r.key === "-" ? r.client.replace(/:\d+$/, "") : r.key;
}

// ---- ended and refused ----

function millis(ms) {
  return ms === null ? "–" : ms < 10 ? `${ms.toFixed(1)} ms` : seconds(ms / 1000);
}

function waitedMs(r) {
  return r.phases.media + r.phases.loading + r.phases.queued;
}

function speedOf(r) {
  return r.tokens > r.choices && r.phases.decoding > 0 ? (1000 * (r.tokens - r.choices)) / r.phases.decoding : null;
}

const isRefused = (r) => r.status !== null;
const endOf = (r) => (r.untold ? `and ${count(r.untold)} more refused` : isRefused(r) ? `${r.status} ${r.code || "refused"}` : ENDS[r.end] || r.end || "–");
const isLost = (r) => r.cache_miss !== null;
const FILTERS = [["all", () => true], ["refused", isRefused], ["slow to begin", (r) => r.first_token_ms > 2000], ["prefix lost", isLost]];

// Why the prefix cache had less than an earlier turn of the conversation could have left.
const CAUSES = { pages: "another sequence needed the pages", limit: "the cache was full", other_caches: "other models' caches had more use for the memory", model: "a model needed the memory", pressure: "the machine ran short of memory", images: "images needed the memory", cleared: "an administrator cleared the cache", unload: "the model was unloaded", unrecorded: "there is no record of when" };
const FOR = { own: "the same key or client", another_tenant: "another key or client" };
function lossOf(m) {
  if (m.part === "evicted") return `prefix evicted: ${CAUSES[m.cause] || m.cause}${m.for ? `, for ${FOR[m.for] || shorten(m.for, 24)}` : ""}`;
  if (m.part === "unknown") return m.cause === "restart" ? "no turn known since the restart" : "no turn of it known any more";
  return m.part === "rendering" ? "prefix lost: the template wrote it in another way" : `prefix lost at ${m.part}`;
}
function lossWhole(m) {
  const where = [m.at, m.within ? `between characters ${count(m.character)} and ${count(m.character + m.within)}` : null].filter(Boolean).join(", ");
  return `${lossOf(m)[0].toUpperCase()}${lossOf(m).slice(1)}${where ? ` (${where})` : ""}${m.side ? `, changed by the ${m.side}` : ""}${m.cause && m.cause !== "unrecorded" ? `, ${plural(m.seconds, "second", "seconds")} before` : ""}. ${count(m.cache_missed_input_tokens)} tokens were computed again.`;
}

// Name, class and value of each column.
const COLUMNS = [
  ["Ended", "when", (r) => clock(r.ended, true)], ["Who", "who", (r) => shorten(whoOf(r), 20)],
  ["Model", "model", (r) => (r.model ? shorten(r.model, 24) : "–")], ["Route", "route", (r) => shorten(r.action.replace(/^POST \/v1/, ""), 26)],
  ["Waited", "n waited", (r) => (r.prompt_tokens ? millis(waitedMs(r)) : "")], ["Prompt", "n prompt", (r) => (r.prompt_tokens ? count(r.prompt_tokens) : "")],
  ["Found", "n found", (r) => (r.prompt_tokens ? count(r.cached_tokens) : "")], ["Read", "n read", (r) => (r.prompt_tokens ? count(r.prompt_tokens - r.cached_tokens) : "")],
  ["First token", "n first", (r) => (r.prompt_tokens ? millis(r.first_token_ms) : "")], ["Tokens/s", "n speed", (r) => (r.prompt_tokens ? rate(speedOf(r)) : "")],
  ["Written", "n written", (r) => (r.prompt_tokens ? count(r.tokens) : "")], ["End", "end", (r) => (isLost(r) ? `${endOf(r)}; ${lossOf(r.cache_miss).split(":")[0]}` : endOf(r))],
];

export function openEnded() {
  let all = [], last = 0, asking = false, filter = FILTERS[0], whole = false, changes = 0;
  const open = new Set();
  const body = el("tbody", {}), none = el("p", { class: "soft" });
  const table = el("table", {}, el("thead", {}, el("tr", {}, COLUMNS.map(([name, c]) => el("th", { scope: "col", class: c }, name)))), body);
  const rest = el("button", { type: "button", class: "btn small", onclick: () => { whole = !whole; draw(); } });
  const buttons = FILTERS.map((f) => el("button", { type: "button", "aria-pressed": f === filter, onclick: () => {
    filter = f;
    buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(FILTERS[i] === f)));
    draw();
  } }, f[0]));
  const node = el("section", { class: "card", id: "ended" }, el("h2", {}, "Last requests", el("span", { class: "tools segments", role: "group", "aria-label": "Which requests" }, buttons)), table, none, rest);

  function make(r) {
    const when = el("button", { type: "button", class: "link", "aria-expanded": "false", title: "Shows the phases" }, COLUMNS[0][2](r));
    const row = el("tr", { "data-ended": r.number, "data-refused": String(isRefused(r)) },
      COLUMNS.map(([, c, value], i) => el("td", { class: c }, i === 0 ? when : value(r))));
    row.addEventListener("click", (event) => {
      if (event.target !== when && getSelection().toString()) return;
      if (!open.delete(r.first)) open.add(r.first);
      draw();
    });
    return Object.assign(row, { when_: when });
  }

  function makeDetail(r) {
    const sum = PHASES.reduce((ms, [name]) => ms + r.phases[name], 0);
    const bar = el("div", { class: "bar phases", "aria-hidden": "true" }, PHASES.map(([name, words]) => el("span", { class: `phase ${name}`, style: { width: `${(100 * r.phases[name]) / (sum || 1)}%` }, title: `${words}: ${millis(r.phases[name])}` })));
    const facts = PHASES.filter(([name]) => r.phases[name] > 0 || (r.prompt_tokens && ["queued", "prefilling", "decoding"].includes(name)))
      .map(([name, words]) => el("li", {}, el("i", { class: `swatch phase ${name}`, "aria-hidden": "true" }), `${words} `, el("b", { class: "num" }, millis(r.phases[name]))));
    const about = [["Id", r.id], ["Request", r.action], ["Key of", r.key === "-" ? null : r.key], ["Client", r.client], ["Model", r.model], ["Prompt", r.prompt_tokens ? `${count(r.prompt_tokens)}, found ${count(r.cached_tokens)}` : null],
      ["Written", r.prompt_tokens ? count(r.tokens) : null], ["Choices", r.choices > 1 ? r.choices : null], ["Field", r.param]]
      .filter(([, value]) => value).map(([name, value]) => el("span", {}, `${name} `, el("b", { class: "num" }, String(value))));
    return el("tr", { class: "detail" }, el("td", { colspan: COLUMNS.length },
      r.untold ? el("p", {}, `${count(r.untold)} requests of this client, refused within a minute. The last of them:`) : null,
      r.message ? el("p", { class: "said" }, r.message) : null, isLost(r) ? el("p", { class: "said" }, lossWhole(r.cache_miss)) : null, r.prompt_tokens ? bar : null, el("ul", { class: "steps" }, facts, el("li", {}, "In all ", el("b", { class: "num" }, millis(sum)))),
      el("p", { class: "about soft" }, about)));
  }

  function draw() {
    const wanted = all.filter(filter[1]).reverse(), shown = wanted.slice(0, whole ? ENDED_KEPT : ENDED_SHOWN);
    const rows = shown.flatMap((r) => (open.has(r.first) ? [{ r, key: r.number }, { r, key: `phases ${r.number}`, detail: true }] : [{ r, key: r.number }]));
    keyed(body, rows, (row) => row.key, (row) => (row.detail ? makeDetail(row.r) : make(row.r)), (line, row) => line.when_?.setAttribute("aria-expanded", String(open.has(row.r.first))));
    table.hidden = shown.length === 0;
    text(none, shown.length ? "" : all.length ? "No such request." : "No request has ended yet.");
    rest.hidden = wanted.length <= ENDED_SHOWN;
    text(rest, whole ? "Show fewer" : `Show all ${count(wanted.length)}`);
  }

  async function fetchNew() {
    asking = true;
    try {
      for (let more = true; more;) {
        const began = changes, reply = await get(`/api/requests?after=${last}`);
        if (began !== changes) break;
        const again = new Set(reply.requests.map((r) => r.first)); // a record that counts comes again when it has risen
        all = [...all.filter((r) => !again.has(r.first)), ...reply.requests].slice(-ENDED_KEPT);
        last = reply.requests.at(-1)?.number ?? reply.last;
        more = reply.more;
      }
      draw();
    } catch { /* the poll says when the server is gone */ }
    asking = false;
  }

  draw();
  return {
    node,
    show(now) {
      if (keyChanges() !== changes || now.requests_last < last) { // another view, or another server
        changes = keyChanges();
        all = [];
        last = 0;
        open.clear();
        draw();
      }
      if (!asking && now.requests_last > last) fetchNew();
    },
  };
}
