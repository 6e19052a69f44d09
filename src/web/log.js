// log.js - the last lines of the log, newest first.

import { get } from "./api.js";
import { el, keyed, text } from "./dom.js";
import { clock } from "./format.js";

const KEPT = 300, SHOWN = 120;
const CHANGES = /event=(audit|model_|load|idle_unload|setting|reload|ready|stopping|memory_pressure|trimmed)/;
const FILTERS = [["all", () => true], ["changes", (l) => CHANGES.test(l.text) || l.level !== "info"], ["trouble", (l) => !["info", "debug"].includes(l.level)]];

function parse(line) {
  const found = /^(\S+Z) level=\w+ event=(\S+) ?(.*)$/.exec(line.text);
  return found ? { time: clock(Date.parse(found[1]) / 1000, true), event: found[2], rest: found[3] } : { time: "", event: "", rest: line.text };
}

export function openLog() {
  let lines = [], last = 0, asking = false, filter = FILTERS[0];
  const list = el("ol", { class: "log", tabindex: "0", "aria-label": "Log lines, newest first" });
  const empty = el("p", { class: "soft" }, "No such line.");
  const buttons = FILTERS.map((f) => el("button", { type: "button", "aria-pressed": f === filter, onclick: () => {
    filter = f;
    buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(FILTERS[i] === f)));
    draw();
  } }, f[0]));
  const node = el("section", { class: "card", id: "log" }, el("h2", {}, "Log", el("span", { class: "tools segments", role: "group", "aria-label": "Lines" }, buttons)), list, empty);

  function make(line) {
    const p = parse(line);
    const item = el("li", { "data-level": line.level, title: line.text }, el("time", {}, p.time), el("b", {}, p.event), el("span", {}, p.rest));
    return item;
  }

  function draw() {
    const wanted = lines.filter(filter[1]).slice(-SHOWN).reverse();
    keyed(list, wanted, (l) => l.number, make, () => {});
    empty.hidden = wanted.length > 0;
  }

  async function fetchLines() {
    asking = true;
    try {
      const reply = await get(`/api/log?after=${last}`);
      lines = [...lines, ...reply.lines].slice(-KEPT);
      last = reply.last;
      draw();
    } catch { /* the poll says when the server is gone */ }
    asking = false;
  }

  return {
    node,
    show(now) {
      if (now.log_last < last) { // another server
        lines = [];
        last = 0;
      }
      if (!asking && now.log_last !== last) fetchLines();
    },
  };
}
