"use strict";
/* Text to nodes. Nothing of a row reaches the document in any other way than by text nodes. */

// Control, format (bidi, zero-width) and lone surrogate characters: shown by their code points.
const UNSEEN = /(?![\n\t])[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/gu;
const FOLDED_AT = 20000;

/** An element with properties, such as {class: "x", text: "y"}, and children. */
function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") node.className = value;
    else if (name === "text") addText(node, value);
    else node[name] = value;
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Add text to a node; a character that cannot be seen becomes a mark with its code point. */
function addText(node, text) {
  const whole = String(text);
  let at = 0;
  for (const match of whole.matchAll(UNSEEN)) {
    if (match.index > at) node.append(document.createTextNode(whole.slice(at, match.index)));
    const code = match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    const mark = document.createElement("span");
    mark.className = "ctl";
    mark.textContent = `U+${code}`;
    node.append(mark);
    at = match.index + match[0].length;
  }
  if (at < whole.length) node.append(document.createTextNode(whole.slice(at)));
}

/** A long text in a box: with a part of it marked, and folded where it is very long. */
function textBox(text, marked = null) {
  const box = make("pre", { class: "text", dir: "auto", tabIndex: 0 });
  const whole = String(text);
  const fill = (shown) => {
    box.replaceChildren();
    if (marked && marked[1] <= shown.length) {
      addText(box, shown.slice(0, marked[0]));
      box.append(make("mark", { text: shown.slice(marked[0], marked[1]) }));
      addText(box, shown.slice(marked[1]));
    } else addText(box, shown);
  };
  if (whole.length <= FOLDED_AT) {
    fill(whole);
    return box;
  }
  fill(whole.slice(0, FOLDED_AT));
  const more = make("button", { type: "button", text: `Show all ${whole.length.toLocaleString("en")} characters` });
  more.addEventListener("click", () => { fill(whole); more.remove(); });
  return make("div", {}, box, more);
}

/** Text for plotly, which reads a kind of HTML in labels: escaped, on one line, not too long. */
function plain(text) {
  const line = String(text).replace(UNSEEN, "\ufffd").replace(/\s+/g, " ");
  const short = line.length > 48 ? `${line.slice(0, 47)}…` : line;
  return short.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

/** A number as a person reads it. */
function shown(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** A table of figures: headings, and rows of numbers and texts. */
function figureTable(headings, rows) {
  const isNumber = headings.map((_, at) => rows.some((row) => typeof row[at] === "number"));
  const cell = (tag, value, at) =>
    make(tag, { class: isNumber[at] ? "number" : "", text: tag === "td" ? shown(value) : value });
  const head = make("tr", {}, ...headings.map((each, at) => cell("th", each, at)));
  const lines = rows.map((row) => make("tr", {}, ...row.map((each, at) => cell("td", each, at))));
  const table = make("table", { class: "figures" }, make("thead", {}, head), make("tbody", {}, ...lines));
  // Exact values, for whoever reads them out of the page.
  [...table.tBodies[0].rows].forEach((line, at) =>
    [...line.cells].forEach((each, column) => { each.dataset.value = String(rows[at][column]); }));
  return make("div", { class: "scroll" }, table);
}
