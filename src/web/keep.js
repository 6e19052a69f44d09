// keep.js - the chat's conversations, in this browser's IndexedDB. Nothing of them goes anywhere.
//
// A head has what the list and its search need, a body the messages. At most MOST conversations and BYTES in all:
// beyond that the oldest ones go. A conversation of more than OWN_BYTES keeps the names of its images only.

const MOST = 200, BYTES = 64 << 20, OWN_BYTES = 16 << 20, SEARCHED = 64 << 10;
let opened = null;

function asked(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function database() {
  opened = opened || (async () => {
    const request = indexedDB.open("plateau", 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("heads", { keyPath: "id" });
      request.result.createObjectStore("bodies", { keyPath: "id" });
    };
    return asked(request);
  })();
  return opened;
}

// Runs `work` in one transaction; resolves when it is written.
async function inside(mode, work) {
  const transaction = (await database()).transaction(["heads", "bodies"], mode);
  const over = new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = transaction.onerror = () => reject(transaction.error);
  });
  const result = await work(transaction.objectStore("heads"), transaction.objectStore("bodies"));
  await over;
  return result;
}

const newestFirst = (a, b) => b.changed - a.changed;

export async function list() {
  return (await inside("readonly", (heads) => asked(heads.getAll()))).sort(newestFirst);
}

export function find(id) {
  return inside("readonly", (heads, bodies) => asked(bodies.get(id)));
}

function withoutImages(messages) {
  return messages.map((m) => ({ ...m, images: (m.images || []).map(({ name }) => ({ name, url: null })) }));
}

// The names of conversations that had to go for it.
export function put({ id, title, model, system, messages }) {
  let kept = messages.map(({ id: own, role, text, reasoning, images, files, facts, error }) => ({ id: own, role, text, reasoning, images, files, facts, error }));
  let bytes = JSON.stringify(kept).length;
  if (bytes > OWN_BYTES) bytes = JSON.stringify((kept = withoutImages(kept))).length;
  const words = [title, ...kept.map((m) => m.text)].join("\n").toLowerCase().slice(0, SEARCHED);
  return inside("readwrite", async (heads, bodies) => {
    heads.put({ id, title, model, bytes, words, changed: Date.now() });
    bodies.put({ id, model, system, messages: kept });
    const gone = [];
    let sum = 0;
    (await asked(heads.getAll())).sort(newestFirst).forEach((head, i) => {
      sum += head.bytes;
      if (head.id === id || (i < MOST && sum <= BYTES)) return;
      heads.delete(head.id);
      bodies.delete(head.id);
      gone.push(head.title);
    });
    return gone;
  });
}

export function rename(id, title) {
  return inside("readwrite", async (heads) => {
    const head = await asked(heads.get(id));
    if (head) heads.put({ ...head, title, words: `${title.toLowerCase()}\n${head.words}`.slice(0, SEARCHED) });
  });
}

export function drop(id) {
  return inside("readwrite", (heads, bodies) => {
    heads.delete(id);
    bodies.delete(id);
  });
}

export function dropAll() {
  return inside("readwrite", (heads, bodies) => {
    heads.clear();
    bodies.clear();
  });
}
