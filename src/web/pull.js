// pull.js - fetches a model of the hub: its name, the progress of the pull, and its end.

import { Refusal, send } from "./api.js";
import { ask, el, figure, setFigure, shorten, text, toast } from "./dom.js";
import { bytes, seconds } from "./format.js";

const PHASES = { list: "reading the list of files", headers: "reading headers", fetch: "fetching", check: "checking sums", serve: "looking at the model" };

function percent(pull) {
  return pull.bytes_total ? Math.floor((100 * pull.bytes) / pull.bytes_total) : 0;
}

function facts(pull) {
  const words = [PHASES[pull.phase] || pull.phase];
  if (pull.phase === "fetch") words.push(`${bytes(pull.bytes)} of ${bytes(pull.bytes_total)}`);
  if (pull.bytes_per_second) words.push(`${bytes(pull.bytes_per_second)}/s`, `${seconds(pull.seconds_left)} left`);
  if (pull.trying_again) words.push(`trying again: ${pull.trying_again}`);
  if (pull.plan) words.push(`serving takes at least ${bytes(pull.plan.floor_bytes)}`);
  return words.join(" · ");
}

function ending(pull) {
  if (pull.state === "done") {
    const here = `${pull.model} is in the hub's cache: ${bytes(pull.bytes)} in ${seconds(pull.seconds)}.`;
    return pull.served ? `${here} It is served as ${pull.served}; its first request loads it.` : `${here} It is not served: ${pull.not_served}.`;
  }
  if (pull.state === "failed") return `${pull.model} was not pulled: ${pull.error}.`;
  return `The pull of ${pull.model} was stopped at ${percent(pull)} %. Pull it again to go on from there.`;
}

export function openPull(changed) {
  const input = el("input", { id: "pull-name", placeholder: "ORG/NAME", autocomplete: "off", spellcheck: "false", required: true, maxlength: "200" });
  const start = el("button", { class: "btn", title: "POST /api/models/pull" }, "Pull");
  const form = el("form", { class: "row" }, el("label", { for: "pull-name" }, "Pull a model of the hub"), input, start);
  const name = el("b", {}), value = figure("pull.bytes"), note = el("span", { class: "soft" }), bar = el("i", {});
  const stop = el("button", { type: "button", class: "btn small", title: "DELETE /api/models/pull" }, "Cancel");
  const running = el("div", { class: "cache pulling" }, el("p", {}, name, " ", value, note, stop), el("span", { class: "progress full", "aria-hidden": "true" }, bar));
  const last = el("p", { class: "soft", role: "status" });
  const node = el("div", { id: "pull" }, form, running, last);
  let now = null;

  async function order() {
    start.disabled = true;
    try {
      await send("POST", "/api/models/pull", { model: input.value.trim() });
      input.value = "";
    } catch (error) {
      toast(error instanceof Refusal ? error.message : String(error), "bad");
    }
    start.disabled = false;
    changed();
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    order();
  });
  stop.addEventListener("click", async () => {
    if (!(await ask(`Stop the pull of ${shorten(now.model, 60)}?`, "What was fetched stays: the next pull goes on from there.", "Stop"))) return;
    try {
      await send("DELETE", "/api/models/pull");
    } catch (error) {
      toast(error.message, "bad");
    }
    changed();
  });

  function show(pull) {
    now = pull;
    node.hidden = !pull;
    if (!pull) return;
    const runs = pull.state === "running" || pull.state === "cancelling";
    node.dataset.state = pull.state;
    form.hidden = runs;
    running.hidden = !runs;
    text(last, runs || pull.state === "none" ? "" : ending(pull));
    if (!runs) return;
    text(name, shorten(pull.model, 40));
    name.title = pull.model;
    setFigure(value, pull.bytes, `${percent(pull)} %`);
    text(note, pull.state === "cancelling" ? "stopping" : facts(pull));
    stop.disabled = pull.state === "cancelling";
    bar.style.width = `${percent(pull)}%`;
  }

  return { node, show };
}
