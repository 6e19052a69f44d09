// conversations.js - the list of the chat's conversations: search, rename, export, delete.

import { ask, askText, el, keyed, shorten, text, toast } from "./dom.js";
import { clock, day, plural } from "./format.js";
import * as keep from "./keep.js";

function download(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function markdownOf({ title, system, messages }) {
  const parts = [`# ${title}`];
  if (system) parts.push("## System", system);
  for (const m of messages) {
    parts.push(m.role === "user" ? "## You" : "## Model");
    for (const image of m.images || []) parts.push(`*Image: ${image.name}*`);
    for (const file of m.files || []) parts.push(`*File: ${file.name}*`);
    parts.push(m.text);
  }
  return `${parts.join("\n\n")}\n`;
}

// The conversation that is shown is the caller's: `current()` has its id, title, system and messages; `open` shows
// another one, null a new one; `api` writes messages as the API takes them.
export function openConversations({ current, open, api }) {
  let heads = [], usable = true;
  const search = el("input", { type: "search", id: "chat-search", placeholder: "Search", "aria-label": "Search conversations", autocomplete: "off" });
  const items = el("ul", { class: "conversations" }), note = el("p", { class: "soft" });
  const button = (words, work, more) => el("button", { type: "button", class: "btn small", onclick: work, ...more }, words);
  const all = button("Delete all", dropAll);
  const node = el("section", { class: "chats" }, el("h3", {}, "Conversations"), search, items, note,
    el("div", { class: "row wrap" }, button("New", () => open(null), { id: "chat-new" }), button("Markdown", saveMarkdown, { title: "Downloads this conversation" }), button("JSON", saveJson, { title: "Downloads this conversation as the API takes it" }), all));

  function make(head) {
    const title = el("button", { type: "button", class: "title", onclick: async () => open(await keep.find(head.id), item.head_) });
    const when = el("span", { class: "soft num" });
    const item = el("li", {}, title, when, el("span", { class: "row tools" }, button("Rename", () => rename(item.head_)), button("Delete", () => drop(item.head_))));
    return Object.assign(item, { parts_: { title, when } });
  }

  function draw() {
    const wanted = search.value.trim().toLowerCase(), shown = heads.filter((h) => h.words.includes(wanted)), id = current().id;
    keyed(items, shown, (h) => h.id, make, (item, h) => {
      item.head_ = h;
      text(item.parts_.title, shorten(h.title, 60));
      item.parts_.title.title = h.title;
      text(item.parts_.when, Date.now() - h.changed < 86400000 ? clock(h.changed / 1000) : day(h.changed / 1000));
      item.dataset.current = h.id === id;
      item.parts_.title.setAttribute("aria-current", String(h.id === id));
    });
    search.hidden = heads.length < 2;
    all.hidden = heads.length === 0;
    text(note, !usable ? "This browser keeps no conversations." : heads.length === 0 ? "Kept in this browser only." : shown.length ? "" : "None has these words.");
  }

  // What fails here, such as a private window without a store, costs the list and not the chat.
  async function refresh() {
    try {
      heads = await keep.list();
      usable = true;
    } catch {
      usable = false;
    }
    draw();
  }

  async function save() {
    const now = current();
    if (!now.messages.length) return;
    try {
      const gone = await keep.put(now);
      if (gone.length) toast(`${plural(gone.length, "old conversation", "old conversations")} made room: ${shorten(gone[0], 40)}.`);
    } catch (error) {
      if (usable) toast(`This conversation is not kept: ${error.message || error}`, "bad");
    }
    await refresh();
  }

  async function rename(head) {
    const title = (await askText("Rename the conversation", head.title, "Rename"))?.trim().slice(0, 200);
    if (!title) return;
    await keep.rename(head.id, title);
    if (head.id === current().id) current().name(title);
    refresh();
  }

  async function drop(head) {
    if (!(await ask(`Delete "${shorten(head.title, 60)}"?`, "It is in this browser only, and cannot come back.", "Delete"))) return;
    await keep.drop(head.id);
    if (head.id === current().id) open(null);
    refresh();
  }

  async function dropAll() {
    if (!(await ask(`Delete ${plural(heads.length, "conversation", "all conversations")}?`, `${plural(heads.length, "conversation is", "conversations are")} in this browser only, and cannot come back.`, "Delete all"))) return;
    await keep.dropAll();
    open(null);
    refresh();
  }

  function saveMarkdown() {
    download("chat.md", "text/markdown", markdownOf(current()));
  }

  function saveJson() {
    const { title, model, messages, system } = current();
    download("chat.json", "application/json", JSON.stringify({ title, model, messages: api(messages, system) }, null, 1));
  }

  search.addEventListener("input", draw);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  refresh();
  return { node, save, draw };
}
