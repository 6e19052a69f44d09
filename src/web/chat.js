// chat.js - try a model: images, text files, parameters, Stop, Markdown. Nothing is kept on the server; this
// browser keeps the conversations.

import { order, send } from "./api.js";
import { openConversations } from "./conversations.js";
import { el, keyed, shorten, text, toast } from "./dom.js";
import { bytes, count, seconds } from "./format.js";
import { find, list } from "./keep.js";
import { markdown } from "./markdown.js";

const IMAGE_BYTES = 20 << 20, TEXT_BYTES = 1 << 20, DRAW_MS = 80, SAVE_MS = 3000;
const OPEN = "plateau-chat"; // the conversation of this tab
const PARAMETERS = [
  ["temperature", "Temperature", { min: 0, max: 2, step: 0.05, placeholder: "model's" }],
  ["top_p", "Top-p", { min: 0, max: 1, step: 0.01, placeholder: "model's" }],
  ["top_k", "Top-k", { min: 0, max: 1000, step: 1, placeholder: "model's" }],
  ["max_tokens", "Max tokens", { min: 1, max: 1000000, step: 1, placeholder: "rest" }],
  ["seed", "Seed", { min: 0, max: 2 ** 53, step: 1, placeholder: "random" }],
];

// ---- the stream ----

// Objects of the events, as they come.
async function* eventsOf(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

// Files stand before what is asked about them, each between fences that it does not have itself.
function textOf(message) {
  const parts = (message.files || []).map(({ name, text: content }) => {
    const fence = "`".repeat(Math.max(3, ...[...content.matchAll(/`+/g)].map((m) => m[0].length + 1)));
    return `${name}:\n${fence}\n${content}\n${fence}`;
  });
  return [...parts, message.text].filter(Boolean).join("\n\n");
}

function contentOf(message) {
  const pictures = (message.images || []).filter((p) => p.url);
  if (!pictures.length) return textOf(message);
  return [...pictures.map((p) => ({ type: "image_url", image_url: { url: p.url } })), { type: "text", text: textOf(message) }];
}

function asSent(messages, system) {
  const all = messages.filter((m) => m.text || m.images?.length || m.files?.length).map((m) => ({ role: m.role, content: contentOf(m) }));
  return system.trim() ? [{ role: "system", content: system }, ...all] : all;
}

const newId = () => crypto.randomUUID?.() || `${Date.now()}-${Math.random()}`;

function titleOf(messages) {
  const first = messages[0];
  return (first?.text.trim().split("\n")[0] || first?.files?.[0]?.name || first?.images?.[0]?.name || "Untitled").slice(0, 80);
}

export function openChat(place) {
  let messages = [], images = [], files = [], running = null, models = [], lastDraw = 0, lastSave = 0;
  let id = newId(), named = null;

  // ---- its parts ----

  const model = el("select", { id: "chat-model" }), note = el("p", { class: "soft", id: "chat-note" });
  const system = el("textarea", { id: "chat-system", rows: 3, placeholder: "none" });
  const inputs = Object.fromEntries(PARAMETERS.map(([name, , range]) => [name, el("input", { id: `chat-${name}`, type: "number", inputmode: "decimal", ...range })]));
  const thinking = el("select", { id: "chat-thinking" }, ...["model's", "on", "off"].map((t) => el("option", {}, t)));
  const talk = el("div", { class: "talk", role: "log", "aria-label": "Conversation", tabindex: "0" });
  const input = el("textarea", { id: "chat-input", rows: 3, placeholder: "Ask something. Enter sends, Shift+Enter makes a line.", "aria-label": "Your message" });
  const file = el("input", { type: "file", multiple: true, hidden: true, "aria-label": "Images and text files" });
  const attach = el("button", { type: "button", class: "btn", onclick: () => file.click() }, "Attach");
  const go = el("button", { class: "btn strong", id: "chat-send" }, "Send");
  const stop = el("button", { type: "button", class: "btn strong", id: "chat-stop", hidden: true }, "Stop");
  const strip = el("div", { class: "strip" });
  const field = (id, words, control) => el("div", { class: "field" }, el("label", { for: id }, words), control);
  const form = el("form", { class: "composer" }, strip, input, el("div", { class: "row" }, attach, file, el("span", { class: "grow" }), stop, go));
  const conversations = openConversations({ current, open: openConversation, api: asSent });
  place.append(el("aside", { class: "card settings" }, el("h2", {}, "Try a model"), field("chat-model", "Model", model), note, field("chat-system", "System", system),
    el("div", { class: "grid2" }, PARAMETERS.map(([name, words]) => field(`chat-${name}`, words, inputs[name])), field("chat-thinking", "Thinking", thinking)), conversations.node),
  el("section", { class: "card conversation" }, talk, form));

  // ---- images and files ----

  async function addText(each) {
    const content = each.size <= TEXT_BYTES ? await each.text() : "";
    if (each.size > TEXT_BYTES) toast(`${each.name} has ${bytes(each.size)}; ${bytes(TEXT_BYTES)} is the limit.`, "bad");
    else if (/[\0\ufffd]/.test(content)) toast(`${each.name || "That"} is neither a text nor a PNG, JPEG, WebP or GIF.`, "bad");
    else files.push({ name: each.name || "text", text: content });
    drawStrip();
  }

  function addFiles(added) {
    for (const each of added) {
      if (!/^image\/(png|jpeg|webp|gif)$/.test(each.type)) addText(each);
      else if (!takesImages()) toast(`${model.value} does not read images.`, "bad");
      else if (each.size > IMAGE_BYTES) toast(`${each.name} has ${bytes(each.size)}; ${bytes(IMAGE_BYTES)} is the limit.`, "bad");
      else {
        const reader = new FileReader();
        reader.onload = () => {
          images.push({ name: each.name || "image", url: reader.result });
          drawStrip();
        };
        reader.readAsDataURL(each);
      }
    }
  }

  function drawStrip() {
    const remove = (all, i) => el("button", { type: "button", class: "btn small", "aria-label": `Remove ${all[i].name}`, onclick: () => { all.splice(i, 1); drawStrip(); } }, "×");
    strip.replaceChildren(...images.map((p, i) => el("figure", {}, imageOf(p), remove(images, i))), ...files.map((f, i) => el("span", { class: "chip" }, f.name, remove(files, i))));
  }
  file.addEventListener("change", () => { addFiles(file.files); file.value = ""; });
  input.addEventListener("paste", (event) => { if (event.clipboardData.files.length) { event.preventDefault(); addFiles(event.clipboardData.files); } });
  place.addEventListener("dragover", (event) => event.preventDefault());
  place.addEventListener("drop", (event) => { event.preventDefault(); addFiles(event.dataTransfer.files); });

  // ---- the talk ----

  function imageOf(p) {
    return p.url ? el("img", { src: p.url, alt: p.name }) : el("span", { class: "chip" }, `${p.name} (not kept)`);
  }

  function attached(m) {
    if (!m.images?.length && !m.files?.length) return null;
    return el("div", { class: "strip" }, (m.images || []).map(imageOf), (m.files || []).map((f) => el("span", { class: "chip", title: bytes(f.text.length) }, f.name)));
  }

  function makeMessage(m) {
    const body = el("div", { class: "body" }), reasoning = el("div", { class: "reasoning-text" }), facts = el("p", { class: "facts soft" });
    const fold = el("details", { class: "reasoning", hidden: true }, el("summary", {}, "Reasoning"), reasoning);
    const tools = el("div", { class: "row tools" });
    const button = (words, work) => tools.append(el("button", { type: "button", class: "btn small", onclick: work }, words));
    button("Copy", () => navigator.clipboard?.writeText(m.text).then(() => toast("Copied."), () => {}));
    if (m.role === "user") button("Edit", () => edit(m));
    else button("Again", () => again(m));
    const node = el("article", { class: `message ${m.role}`, "aria-label": m.role === "user" ? "You" : "Model" }, attached(m), fold, body, facts, tools);
    return Object.assign(node, { parts_: { body, fold, reasoning, facts, tools } });
  }

  function updateMessage(node, m) {
    const p = node.parts_;
    if (node.shown_ === m.text + m.reasoning + m.facts + m.error + m.over) return;
    node.shown_ = m.text + m.reasoning + m.facts + m.error + m.over;
    if (m.role === "user") text(p.body, m.text);
    else p.body.replaceChildren(...markdown(m.text), ...(m.error ? [el("p", { class: "error", role: "alert" }, m.error)] : []));
    p.fold.hidden = !m.reasoning;
    text(p.reasoning, m.reasoning);
    text(p.facts, m.facts);
    p.tools.hidden = !m.over;
    node.dataset.over = m.over;
  }

  function draw() {
    const low = talk.scrollHeight - talk.scrollTop - talk.clientHeight < 60;
    keyed(talk, messages, (m) => m.id, makeMessage, updateMessage);
    if (low) talk.scrollTop = talk.scrollHeight;
    lastDraw = performance.now();
  }

  function edit(m) {
    if (running) return;
    messages = messages.slice(0, messages.indexOf(m));
    input.value = m.text;
    images = (m.images || []).filter((p) => p.url);
    files = m.files || [];
    drawStrip();
    draw();
    input.focus();
  }

  function again(m) {
    if (running) return;
    messages = messages.slice(0, messages.indexOf(m));
    answer();
  }

  // ---- conversations ----

  function current() {
    return { id, title: named || titleOf(messages), model: model.value, system: system.value, messages, name: (title) => { named = title; } };
  }

  // Shows a kept one, or a new one.
  function openConversation(kept, head) {
    if (running) {
      toast("Stop the answer first.", "bad");
      return;
    }
    id = kept?.id || newId();
    named = head?.title || null;
    sessionStorage.setItem(OPEN, id);
    messages = (kept?.messages || []).map((m) => ({ ...m, over: true }));
    if (kept) system.value = kept.system || "";
    if (kept && models.some((m) => m.id === kept.model)) model.value = kept.model;
    sayModel();
    draw();
    talk.scrollTop = talk.scrollHeight;
    conversations.draw();
    input.focus();
  }

  function save() {
    lastSave = performance.now();
    sessionStorage.setItem(OPEN, id);
    return conversations.save();
  }

  // ---- asking ----

  function bodyOf() {
    const body = { model: model.value, stream: true, stream_options: { include_usage: true }, messages: asSent(messages, system.value) };
    for (const [name] of PARAMETERS) if (inputs[name].value !== "") body[name] = Number(inputs[name].value);
    if (thinking.value !== "model's") body.chat_template_kwargs = { enable_thinking: thinking.value === "on" };
    return body;
  }

  function take(m, event, began) {
    const delta = event.choices?.[0]?.delta || {};
    if (event.error) throw new Error(event.error.message);
    if ((delta.content || delta.reasoning_content || delta.reasoning) && !m.first) m.first = performance.now();
    m.text += delta.content || "";
    m.reasoning += delta.reasoning_content || delta.reasoning || "";
    if (event.choices?.[0]?.finish_reason) m.end = event.choices[0].finish_reason;
    if (event.usage) m.usage = event.usage;
    m.facts = factsOf(m, began);
  }

  function factsOf(m, began) {
    const all = [], u = m.usage;
    if (u) {
      const cached = u.prompt_tokens_details?.cached_tokens || 0;
      all.push(`prompt ${count(u.prompt_tokens)} tokens${cached ? ` (${count(cached)} found)` : ""}`, `answer ${count(u.completion_tokens)}`);
    }
    if (m.first) all.push(`first token ${seconds((m.first - began) / 1000)}`);
    if (u && m.first && u.completion_tokens > 1) all.push(`${((u.completion_tokens - 1) / Math.max(0.001, (performance.now() - m.first) / 1000)).toFixed(1)} tokens/s`);
    if (m.end === "length") all.push("cut at max tokens");
    if (m.end === "repetition") all.push("ended at a loop");
    return all.join(" · ");
  }

  async function answer() {
    const body = bodyOf(), began = performance.now(), abort = new AbortController();
    const m = { id: newId(), role: "assistant", text: "", reasoning: "", facts: "", error: "", over: false };
    messages.push(m);
    running = { abort, id: null };
    stop.hidden = false;
    go.hidden = true;
    draw();
    save();
    try {
      const reply = await send("POST", "/v1/chat/completions", body, abort.signal);
      running.id = reply.headers.get("x-request-id");
      for await (const event of eventsOf(reply)) {
        take(m, event, began);
        if (performance.now() - lastDraw > DRAW_MS) draw();
        if (performance.now() - lastSave > SAVE_MS) save();
      }
    } catch (error) {
      if (abort.signal.aborted) m.facts = [m.facts, "stopped"].filter(Boolean).join(" · ");
      else m.error = error.message;
    }
    m.over = true;
    running = null;
    stop.hidden = true;
    go.hidden = false;
    draw();
    save();
    input.focus();
  }

  // The text stays; the server ends the request, and does so as well when the connection closes.
  stop.addEventListener("click", () => {
    if (!running) return;
    const { abort, id } = running;
    abort.abort();
    if (id) order("DELETE", `/v1/requests/${id}`).catch(() => {});
  });

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (running || (!input.value.trim() && images.length === 0 && files.length === 0)) return;
    messages.push({ id: newId(), role: "user", text: input.value, images, files, reasoning: "", facts: "", error: "", over: true });
    input.value = "";
    images = [];
    files = [];
    drawStrip();
    answer();
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });

  // ---- models ----

  function takesImages() {
    return models.find((each) => each.id === model.value)?.images;
  }

  function sayModel() {
    const m = models.find((each) => each.id === model.value);
    if (!m) text(note, "");
    else if (m.state === "ready") text(note, m.images ? "Ready; it reads images." : "Ready; text only.");
    else text(note, m.load_seconds ? `Not loaded: the first answer waits about ${seconds(m.load_seconds)} for it.` : "Not loaded: the first answer waits until it is.");
  }
  model.addEventListener("change", sayModel);

  function update(now) {
    models = now.models.filter((m) => !m.replica_of && m.chat !== false && (m.use === undefined || m.use === "generate"));
    keyed(model, models, (m) => m.id, (m) => el("option", { value: m.id }), (option, m) => text(option, shorten(m.id, 60)));
    sayModel();
  }

  // A reload comes back to its conversation.
  const before = sessionStorage.getItem(OPEN);
  if (before)
    Promise.all([find(before), list()]).then(([kept, heads]) => {
      if (kept && !messages.length && !running) openConversation(kept, heads.find((h) => h.id === before));
    }, () => {});

  return {
    update,
    show(now, wanted) {
      update(now);
      if (wanted && wanted !== place.dataset.wanted && models.some((m) => m.id === wanted)) {
        place.dataset.wanted = wanted;
        model.value = wanted;
        sayModel();
      }
    },
  };
}
