// dom.js - elements from values. Text is always a text node, so that no name, line or answer becomes markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || (value === false && !name.startsWith("aria-"))) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(node.style, value);
    else node.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function el(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

export function text(node, value) {
  const wanted = String(value);
  if (node.textContent !== wanted) node.textContent = wanted;
}

// A figure with its raw value beside the words.
export function figure(name) {
  return el("span", { "data-figure": name, class: "num" });
}

export function setFigure(node, value, words) {
  if (node.dataset.value !== String(value)) node.dataset.value = String(value);
  text(node, words);
}

// Makes the children of `parent` those of `items`: kept by key, so that the focus stays where it is.
export function keyed(parent, items, keyOf, make, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let node = old.get(key);
    old.delete(key);
    if (!node) {
      node = make(item);
      node.dataset.key = key;
    }
    if (node === at) at = at.nextElementSibling;
    else parent.insertBefore(node, at);
    update(node, item);
  }
  for (const node of old.values()) node.remove();
}

export function toast(words, level) {
  const place = document.getElementById("toast");
  const node = el("p", { "data-level": level || "ok" }, words);
  place.append(node);
  setTimeout(() => node.remove(), 8000);
}

// Asks once. Resolves to true or false.
export function ask(question, consequence, action) {
  return new Promise((resolve) => {
    const dialog = el("dialog", { "aria-label": question },
      el("h2", {}, question), el("p", {}, consequence),
      el("form", { method: "dialog", class: "row" },
        el("button", { class: "btn", value: "no" }, "Cancel"),
        el("button", { class: "btn strong", value: "yes" }, action)));
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes");
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

// Asks for a line of text. Resolves to it, or to null.
export function askText(question, value, action) {
  return new Promise((resolve) => {
    const before = document.activeElement;
    const input = el("input", { name: "text", value, maxlength: 200, "aria-label": question, required: true });
    const dialog = el("dialog", { "aria-label": question }, el("h2", {}, question),
      el("form", { method: "dialog" }, input, el("div", { class: "row" },
        el("button", { class: "btn", type: "button", onclick: () => dialog.close("no") }, "Cancel"), el("button", { class: "btn strong", value: "yes" }, action))));
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes" ? input.value : null);
      dialog.remove();
      // The caret went with the line: without this the element that had the focus takes no keys.
      before?.blur();
      before?.focus();
    });
    document.body.append(dialog);
    dialog.showModal();
    input.select();
  });
}

// A long name keeps its beginning and its end; the title has all of it.
export function shorten(name, most) {
  if (name.length <= most) return name;
  const half = Math.floor((most - 1) / 2);
  return `${name.slice(0, half)}…${name.slice(name.length - half)}`;
}
