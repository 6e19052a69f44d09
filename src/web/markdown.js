// markdown.js - the Markdown of answers as nodes: paragraphs, headings, lists, quotes, tables, code, bold,
// italics, links. Markup in an answer stays text, images are not loaded, and a link has its address beside
// it. Nothing nests deeper than DEPTH.

import { el, toast } from "./dom.js";

const DEPTH = 6, REACH = 4000;
const LINK = /^https?:\/\/[^\s<>"]+$/i;

// ---- within a line ----

const INLINE = [
  [/^`([^`]+)`/, (m) => el("code", {}, m[1])],
  [/^\*\*(?=\S)([\s\S]*?\S)\*\*/, (m, deeper) => el("strong", {}, deeper(m[1]))],
  [/^__(?=\S)([\s\S]*?\S)__(?!\w)/, (m, deeper) => el("strong", {}, deeper(m[1]))],
  [/^\*(?=[^\s*])([^*]*[^\s*])\*/, (m, deeper) => el("em", {}, deeper(m[1]))],
  [/^~~(?=\S)([\s\S]*?\S)~~/, (m, deeper) => el("s", {}, deeper(m[1]))],
  [/^!?\[([^\]]*)\]\(([^()\s]+)\)/, (m, deeper) => link(m[1], m[2], m[0], deeper)],
];

function link(words, address, whole, deeper) {
  if (whole.startsWith("!") || !LINK.test(address)) return whole;
  const shown = words && words !== address ? [deeper(words), " ", el("span", { class: "soft" }, `(${address})`)] : [address];
  return el("a", { href: address, rel: "noreferrer noopener nofollow", target: "_blank" }, ...shown);
}

// Ends of the pairs whose inside may be anything. Each is looked for once, and not at every beginning: an answer of
// beginnings alone would take the square of its length.
const ENDS = { "**": /\S\*\*/g, __: /\S__(?!\w)/g, "~~": /\S~~/g };

function endsOf(line) {
  const next = {};
  return (pair, at) => {
    if (!(next[pair] >= at + 2)) {
      ENDS[pair].lastIndex = at + 2;
      next[pair] = ENDS[pair].exec(line)?.index ?? Infinity;
    }
    return next[pair] - at < REACH;
  };
}

function inline(line, depth) {
  const parts = [], ends = endsOf(line);
  let plain = "", at = 0;
  const deeper = (inner) => (depth < DEPTH ? inline(inner, depth + 1) : [inner]);
  while (at < line.length) {
    const rest = line.slice(at, at + REACH), pair = rest.slice(0, 2);
    const rule = "`*_~[!".includes(rest[0]) && (!ENDS[pair] || ends(pair, at)) ? INLINE.map(([pattern, make]) => [pattern.exec(rest), make]).find(([m]) => m) : null;
    if (rule && !(rest.startsWith("_") && /\w/.test(line[at - 1] || ""))) {
      parts.push(plain, rule[1](rule[0], deeper));
      plain = "";
      at += rule[0][0].length;
    } else {
      plain += line[at];
      at += 1;
    }
  }
  parts.push(plain);
  return parts.flat().filter((part) => part !== "");
}

// ---- blocks ----

function codeBlock(lines, language) {
  const code = el("code", {}, lines.join("\n"));
  const copy = el("button", { type: "button", class: "btn small" }, "Copy");
  copy.addEventListener("click", () => navigator.clipboard?.writeText(code.textContent).then(() => toast("Copied."), () => {}));
  return el("div", { class: "codeblock" }, el("div", { class: "codehead" }, el("span", {}, language), copy), el("pre", { tabindex: "0" }, code));
}

const cellsOf = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const startsBlock = (line) => /^(#{1,6}\s|```|~~~|>|\s*([-*+]|\d{1,9}[.)])\s)/.test(line);

function takeFence(lines, at) {
  const fence = /^\s*(```+|~~~+)\s*([\w+#.-]*)/.exec(lines[at]);
  const inside = [];
  let i = at + 1;
  while (i < lines.length && !lines[i].trim().startsWith(fence[1])) inside.push(lines[i++]);
  return [codeBlock(inside, fence[2]), i + 1];
}

function takeList(lines, at, depth) {
  const first = ITEM.exec(lines[at]), ordered = /\d/.test(first[2]);
  const list = ordered ? el("ol", { start: parseInt(first[2], 10) }) : el("ul", {});
  let i = at;
  while (i < lines.length) {
    const item = ITEM.exec(lines[i]);
    if (!item || item[1].length !== first[1].length || /\d/.test(item[2]) !== ordered) break;
    const inner = [item[3]], indent = item[1].length + 2;
    i += 1;
    while (i < lines.length && (lines[i].trim() === "" ? /^\s{2,}\S/.test(lines[i + 1] || "") : lines[i].search(/\S/) >= indent)) inner.push(lines[i++].slice(indent));
    list.append(el("li", {}, inner.length === 1 ? inline(inner[0], depth) : blocks(inner, depth + 1)));
  }
  return [list, i];
}

function takeTable(lines, at, depth) {
  const head = cellsOf(lines[at]), rows = [];
  let i = at + 2;
  while (i < lines.length && lines[i].includes("|")) rows.push(cellsOf(lines[i++]));
  return [el("div", { class: "tablewrap", tabindex: "0" }, el("table", {}, el("thead", {}, el("tr", {}, head.map((c) => el("th", {}, inline(c, depth))))),
    el("tbody", {}, rows.map((r) => el("tr", {}, r.slice(0, head.length).map((c) => el("td", {}, inline(c, depth)))))))), i];
}

function takeQuote(lines, at, depth) {
  const inner = [];
  let i = at;
  while (i < lines.length && lines[i].startsWith(">")) inner.push(lines[i++].replace(/^> ?/, ""));
  return [el("blockquote", {}, blocks(inner, depth + 1)), i];
}

function takeParagraph(lines, at, depth) {
  const inner = [lines[at]];
  let i = at + 1;
  while (i < lines.length && lines[i].trim() !== "" && !startsBlock(lines[i])) inner.push(lines[i++]);
  return [el("p", {}, inline(inner.join("\n"), depth)), i];
}

function blocks(lines, depth) {
  const found = [];
  let at = 0;
  if (depth > DEPTH) return [el("p", {}, lines.join("\n"))];
  while (at < lines.length) {
    const line = lines[at], heading = /^(#{1,6})\s+(.*)$/.exec(line);
    let node = null;
    if (line.trim() === "") at += 1;
    else if (heading) [node, at] = [el(`h${Math.min(6, heading[1].length + 2)}`, {}, inline(heading[2], depth)), at + 1];
    else if (/^\s*(```|~~~)/.test(line)) [node, at] = takeFence(lines, at);
    else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) [node, at] = [el("hr", {}), at + 1];
    else if (line.startsWith(">")) [node, at] = takeQuote(lines, at, depth);
    else if (ITEM.test(line)) [node, at] = takeList(lines, at, depth);
    else if (line.includes("|") && /^[\s|:-]*-[\s|:-]*$/.test(lines[at + 1] || "") && lines[at + 1].includes("|")) [node, at] = takeTable(lines, at, depth);
    else [node, at] = takeParagraph(lines, at, depth);
    if (node) found.push(node);
  }
  return found;
}

export function markdown(source) {
  return blocks(source.replace(/\r\n?/g, "\n").split("\n"), 0);
}
