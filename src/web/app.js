// app.js - which page is shown, the key, the colours, and the poll that feeds all of it.

import { currentKey, decoded, get, isKey, Refusal, setKey, takeKey } from "./api.js";
import { ask, el, text, toast } from "./dom.js";
import { openChat } from "./chat.js";
import { openOverview } from "./overview.js";

const $ = (id) => document.getElementById(id);
const QUICK_MS = 1000, SLOW_MS = 5000, CALM_POLLS = 30;

let calm = 0;      // polls in a row in which nothing moved
let timer = null;
let last = null;   // the last overview
let lostSince = null;

async function takeLink() {
  const changed = await takeKey(() => ask("Use the key of this link?", "This tab has another key. With the link's key the page acts as the owner of that one.", "Use it"));
  if (changed && last) wake();
}

takeLink();
const overview = openOverview($("overview"));
const chat = openChat($("chat"));

// ---- colours ----

const THEME = "plateau-theme";
function showTheme() {
  const chosen = localStorage.getItem(THEME);
  if (chosen) document.documentElement.dataset.theme = chosen;
}
$("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  localStorage.setItem(THEME, now === "dark" ? "light" : "dark");
  showTheme();
});
showTheme();

// ---- the key ----

function askForKey(why) {
  const gate = $("gate");
  const input = el("input", { type: "password", id: "key", autocomplete: "off", spellcheck: "false", required: true });
  const form = el("form", { class: "card gate" },
    el("h1", {}, "This server asks for a key"),
    el("p", {}, why),
    el("label", { for: "key" }, "API key or admin key"),
    el("div", { class: "row" }, input, el("button", { class: "btn strong" }, "Open")),
    el("p", { class: "soft" }, "The key stays in this tab and goes to this server only. On the server's machine ", el("code", {}, "plateau open"),
      " opens this page with the admin key."));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const key = input.value.trim();
    if (isKey(key)) setKey(key);
    else toast("A key has visible ASCII characters only.", "bad");
    wake();
  });
  gate.replaceChildren(form);
  gate.hidden = false;
  input.focus();
}

$("key-button").addEventListener("click", () => {
  if (!$("gate").hidden) {
    $("gate").hidden = true;
    route();
    return;
  }
  $("overview").hidden = $("chat").hidden = true;
  askForKey(last && !last.admin ? "With the admin key the page shows memory, all requests, the log, and the buttons." : "Enter another key.");
});

// ---- pages ----

function route() {
  const isChat = location.hash.startsWith("#chat");
  for (const link of document.querySelectorAll("nav a"))
    if (link.dataset.page === (isChat ? "chat" : "overview")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  const open = last !== null && $("gate").hidden;
  $("overview").hidden = !open || isChat;
  $("chat").hidden = !open || !isChat;
  if (open && isChat) chat.show(last, decoded(location.hash.slice(6)));
}
addEventListener("hashchange", () => {
  takeLink();
  route();
  wake();
});

// ---- the poll ----

function connection(state) {
  if (document.body.dataset.connection !== state) document.body.dataset.connection = state;
}

function moved(a, b) {
  return !a || a.requests.length > 0 || b.requests.length > 0 || a.status !== b.status ||
    a.memory?.used_bytes !== b.memory?.used_bytes || JSON.stringify(a.models.map((m) => m.state)) !== JSON.stringify(b.models.map((m) => m.state));
}

function show(now) {
  calm = moved(last, now) ? 0 : calm + 1;
  last = now;
  lostSince = null;
  connection("ok");
  text($("where"), location.host);
  text($("version"), now.version);
  document.title = now.requests.length ? `Plateau (${now.active_requests + now.waiting_requests})` : "Plateau";
  overview.show(now);
  chat.update(now);
  if ($("overview").hidden && $("chat").hidden && !$("key")?.isConnected) route();
}

function fail(error) {
  if (error instanceof Refusal && error.status === 401) {
    const had = currentKey() !== null;
    setKey(null);
    last = null;
    $("overview").hidden = $("chat").hidden = true;
    if ($("gate").hidden) askForKey(had ? error.message : "Without one it shows nothing.");
    else if (had) toast(error.message, "bad");
    connection("closed");
    return false;
  }
  lostSince = lostSince || Date.now();
  connection("lost");
  overview.lost(lostSince);
  return true;
}

async function poll() {
  clearTimeout(timer);
  timer = null;
  if (document.hidden) return;
  let again = true;
  try {
    const now = await get("/api/overview");
    if (document.activeElement !== $("key")) $("gate").hidden = true;
    show(now);
    if ($("gate").hidden) route();
  } catch (error) {
    again = fail(error);
  }
  if (again && timer === null) timer = setTimeout(poll, calm >= CALM_POLLS ? SLOW_MS : QUICK_MS);
}

function wake() {
  calm = 0;
  $("key")?.blur();
  poll();
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) wake(); });
document.addEventListener("plateau-changed", wake);
poll();
