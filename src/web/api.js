// api.js - asks the server. The key goes as a header, lives in this tab's sessionStorage, and is never in an
// address: the one that the page was opened with loses it at once.

const KEY = "plateau-key";
let changes = 0;

// Null: the text has a broken escape.
export function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

// What a server may have as a key; a header could not carry other texts.
export function isKey(text) {
  return text !== null && /^[\x21-\x7e]{1,1024}$/.test(text);
}

// The key in the address, which loses it. Null: none, or a text that is not a key.
function keyOfAddress() {
  const found = /^#key=([^&]*)/.exec(location.hash);
  if (!found) return null;
  history.replaceState(null, "", location.pathname);
  const key = decoded(found[1]);
  return isKey(key) ? key : null;
}

// A link's key is taken where the tab has none. It replaces another one only if `ask` resolves to true: the maker of
// a link could otherwise have its reader act with a key of theirs. Resolves to true if the key has changed.
export async function takeKey(ask) {
  const key = keyOfAddress();
  if (!key || key === currentKey() || (currentKey() && !(await ask()))) return false;
  setKey(key);
  return true;
}

export function currentKey() {
  return sessionStorage.getItem(KEY);
}

export function setKey(key) {
  changes += 1;
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

// How often the key has changed: what was fetched before may be another's.
export function keyChanges() {
  return changes;
}

function headers(body) {
  const all = {};
  const key = sessionStorage.getItem(KEY);
  if (key) all.authorization = `Bearer ${key}`;
  if (body !== undefined) all["content-type"] = "application/json";
  return all;
}

export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function refusalOf(reply) {
  let message = `The server answered ${reply.status}.`;
  try {
    const body = await reply.json();
    message = body.error.message || message;
  } catch { /* it has no words of its own */ }
  return new Refusal(reply.status, message);
}

// The reply, once its header is there; a Refusal for a status of 400 and more.
export async function send(method, path, body, signal) {
  const reply = await fetch(path, {
    method, signal, headers: headers(body), cache: "no-store", credentials: "omit", redirect: "error",
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (!reply.ok) throw await refusalOf(reply);
  return reply;
}

export async function get(path) {
  const signal = AbortSignal.timeout(10000);
  return (await send("GET", path, undefined, signal)).json();
}

export async function order(method, path) {
  return (await send(method, path)).json();
}

// The path of a model's order; an id may have slashes.
export function modelPath(id, action) {
  return `/v1/models/${encodeURIComponent(id)}/${action}`;
}
