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

/** A long text in a box: with a part of it marked, its tokens shaded, and folded where it is very long. */
function textBox(text, marked = null, tokens = null) {
  const box = make("pre", { class: "text", dir: "auto", tabIndex: 0 });
  const whole = String(text);
  const fill = (end) => {
    box.replaceChildren();
    const add = tokens ? shadedText(whole, tokens) : (node, from, to) => addText(node, whole.slice(from, to));
    if (marked && marked[1] <= end) {
      const mark = make("mark");
      add(box, 0, marked[0]);
      add(mark, ...marked);
      box.append(mark);
      add(box, marked[1], end);
    } else add(box, 0, end);
  };
  if (whole.length <= FOLDED_AT) {
    fill(whole.length);
    return box;
  }
  fill(FOLDED_AT);
  const more = make("button", { type: "button", text: `Show all ${shown(whole.length, "count")} characters` });
  more.addEventListener("click", () => { fill(whole.length); more.remove(); });
  return make("div", {}, box, more);
}

const LEAST_SHADED = 5, MOST_SHADED = 500;  // Hundredths of -ln p: 5 is p = 0.95, 500 is p = 0.007.

/** What adds a part of a text, each token with a shade for its log-probability; those of weight 0 are struck out. */
function shadedText(text, { lengths, logprobs, weights }) {
  const ends = [];
  lengths.reduce((end, length) => { ends.push(end + length); return end + length; }, 0);
  return (node, from, to) => {
    ends.forEach((end, at) => {
      const [start, stop] = [Math.max(from, end - lengths[at]), Math.min(to, end)];
      if (start >= stop) return;
      const surprise = -logprobs[at];
      const weight = weights ? weights[at] : 100;
      if (surprise < LEAST_SHADED && weight === 100) { addText(node, text.slice(start, stop)); return; }
      const token = make("span", { class: weight ? "token" : "token masked", text: text.slice(start, stop),
        title: `${weight === 100 ? "" : `weight ${shown(weight / 100, "length")}, `}ln p ${shown(logprobs[at] / 100, "length")}, p ${shown(Math.exp(logprobs[at] / 100), "share")}` });
      token.style.setProperty("--shade", Math.min(1, surprise / MOST_SHADED).toFixed(3));
      node.append(token);
    });
    const last = ends.length ? ends[ends.length - 1] : 0;
    if (last < to) addText(node, text.slice(Math.max(from, last), to));
  };
}

/** A text on one line for a tooltip, without characters that cannot be seen. */
function plainLine(text) {
  return String(text).replace(UNSEEN, "\ufffd").replace(/\s+/g, " ");
}

/** Text for plotly, which reads a kind of HTML in labels: escaped, on one line, not too long. */
function plain(text) {
  const line = String(text).replace(UNSEEN, "\ufffd").replace(/\s+/g, " ");
  const short = line.length > 48 ? `${line.slice(0, 47)}…` : line;
  return short.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

// One format everywhere: counts have separators, shares are in percent, rewards have three decimals.
const DECIMALS = { count: 0, length: 1, number: 3, seconds: 2 };

/** A number as a person reads it: a `count`, a `share`, `points` between shares, a `length`, `seconds`, or any `number`. */
function shown(value, kind = "number") {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (typeof value !== "number") return String(value);
  if (kind === "points") return `${decimals(100 * value, 1)} points`;
  if (kind === "share") return `${decimals(100 * value, 1)}%`;
  return decimals(value, DECIMALS[kind]);
}

function decimals(value, digits) {
  const text = value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return /^-[0.]+$/.test(text) ? text.slice(1) : text;
}

/** A number with its sign. */
function signed(value, kind = "number") {
  return value > 0 ? `+${shown(value, kind)}` : shown(value, kind);
}

/** A table of figures: headings, each with the kind of its numbers (`["rows", "count"]`), and rows.
 *
 * Where numbers of a column differ in kind, `kinds` has those of each row. */
function figureTable(headings, rows, kinds = null) {
  const [labels, own] = [0, 1].map((at) => headings.map((each) => (Array.isArray(each) ? each[at] : [each, "number"][at])));
  const isNumber = headings.map((_, at) => rows.some((row) => typeof row[at] === "number"));
  const cell = (tag, text, at) => make(tag, { class: isNumber[at] ? "number" : "", text });
  const head = make("tr", {}, ...labels.map((each, at) => cell("th", each, at)));
  const lines = rows.map((row, line) => make("tr", {}, ...row.map((each, at) => cell("td", shown(each, kinds ? kinds[line][at] : own[at]), at))));
  const table = make("table", { class: "figures" }, make("thead", {}, head), make("tbody", {}, ...lines));
  // Exact values, for whoever reads them out of the page.
  [...table.tBodies[0].rows].forEach((line, at) =>
    [...line.cells].forEach((each, column) => { each.dataset.value = String(rows[at][column]); }));
  return make("div", { class: "scroll" }, table);
}

/** A command to copy: a click selects it, and a button puts it on the clipboard. */
function commandBox(command) {
  const code = make("code", { text: command });
  const button = make("button", { type: "button", class: "small", text: "Copy" });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command);
      button.textContent = "Copied";
    } catch { getSelection().selectAllChildren(code); }
  });
  return make("span", { class: "command" }, code, button);
}
