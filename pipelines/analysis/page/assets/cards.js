/* A group: its prompt, and a card for each response with its whole path. */

const EVIDENCE = "evidence of steps", TOKENS = "tokens of the response";
const IN_COLUMNS = new Set(["verdict", "finish_reason", "reward", "advantage"]);
const KNOWN = new Set(["response_id", "response", "extracted_answer", "turns", EVIDENCE, TOKENS]);
const RULES = { think: "after </think>", answer_tag: "in <answer>", boxed: "last box", marked_line: "marked line", bare: "the text is an answer and nothing else",
  keyword: "behind a keyword", last_line: "last line", last_number: "last number" };
const NO_RULE = { unclosed_think: "no answer: the text ends inside <think>", gives_up: "no answer: the text gives up" };
const NAMED = { raw_answer: "judge's answer, raw", raw_failure: "judge's failure, raw", nearest_response_id: "nearest in the group",
  nearest_cosine: "its cosine", mean_cosine: "mean cosine to the group", repeats: "repeats" };

/** What `rejuice explain PATH` calls a group: `row 4` of the dataset, else the start of its prompt_id. */
function rowName(set, group, texts = null) {
  const numbers = rowNumbers(set, group);
  if (!numbers) return texts ? `prompt ${String(texts.prompt_id).slice(0, 8)}` : "added row";
  const [first, last] = numbers;
  return first === last ? `row ${first}` : `rows ${first} to ${last}`;  // As it is given to the command.
}

/** The first and the last number of a group's rows; null where they are from no row of the dataset. */
function rowNumbers(set, group) {
  let [first, last] = [Infinity, 0];
  for (let row = set.groupsAt[group]; row < set.end(group); row += 1) {
    const number = Math.abs(set.columns.row[row]);
    if (number && number < first) first = number;
    if (number > last) last = number;
  }
  return last ? [first, last] : null;
}

function groupCards(set, group, texts, mask) {
  const first = set.groupsAt[group];
  const rows = orderedRows(set, group);
  const cards = make("div", { class: "cards" }, ...rows.map((row) => card(set, row, texts ? texts.rows[row - first] : {}, mask)));
  const title = make("h3", { text: rowName(set, group, texts), title: texts ? plainLine(`prompt_id ${texts.prompt_id}`) : "" });
  const step = (text, by) => {
    const button = make("button", { type: "button", class: "small", text });
    button.addEventListener("click", () => nextGroup(by));
    return button;
  };
  const heading = make("div", { class: "group-head" }, title, make("span", { class: "quiet",
    text: correctOf(set, rows) }),
  step("Previous", -1), step("Next", 1), texts?.rows.some((row) => row[TOKENS]) ? shadeChoice() : null);
  if (!texts) return [heading, make("p", { text: "The texts of this group are not in this page; its figures are." }), cards];
  const reference = texts.reference === null || texts.reference === undefined ? null
    : make("p", { class: "reference" }, make("span", { class: "quiet", text: "reference " }), make("bdi", { text: texts.reference }));
  return [heading, make("div", { class: "prompt" }, textBox(promptText(texts.prompt))), reference, cards].filter(Boolean);
}

function correctOf(set, rows) {
  const responses = rows.filter((row) => set.columns.length[row] >= 0).length;
  if (!responses) return "no response";
  const right = rows.filter((row) => set.slug("verdict", row) === "correct").length;
  return `${shown(responses, "count")} ${responses === 1 ? "response" : "responses"}, ${shown(right, "count")} correct`;
}

/** The choice whether tokens are shaded, with what the shades mean. */
function shadeChoice() {
  const box = make("input", { type: "checkbox", checked: !document.body.classList.contains("unshaded") });
  box.addEventListener("change", () => document.body.classList.toggle("unshaded", !box.checked));
  return make("label", { class: "shades" }, box, "ln p of tokens, 0 ", make("span", { class: "scale" }), ` ${-MOST_SHADED / 100} or less`);
}

/** Rows of a group, the best reward first. */
function orderedRows(set, group) {
  const rows = [];
  for (let row = set.groupsAt[group]; row < set.end(group); row += 1) rows.push(row);
  const reward = (row) => (Number.isNaN(set.columns.reward[row]) ? -Infinity : set.columns.reward[row]);
  return rows.sort((a, b) => (reward(b) > reward(a)) - (reward(b) < reward(a)) || a - b);
}

const SIGNS = { right: "✓", wrong: "✗", other: "?" };

/** A response in a few lines; what its values rest on, and its path, are folded. */
function card(set, row, texts, mask) {
  const { columns, head } = set;
  const verdict = set.slug("verdict", row);
  const kind = verdict === "correct" ? "right" : verdict === "wrong_answer" || verdict === "no_answer" ? "wrong" : "other";
  const fate = columns.fate[row] < 0 ? make("span", { class: "fate", text: "kept" })
    : make("span", { class: "fate dropped", text: `dropped: ${set.slug("reason", row)}` });
  const title = make("h4", {}, make("b", { text: `${SIGNS[kind]} ${verdict || "not graded"}` }), fate);
  const figures = [["reward", shown(columns.reward[row])], ["advantage", signed(columns.advantage[row])],
    [head.figures.length_unit, columns.length[row] < 0 ? "–" : shown(columns.length[row], "count")]];
  const article = make("article", { class: `card ${kind}${mask && !mask[row] ? " outside" : ""}` }, title,
    make("div", { class: "numbers" }, ...figures.map(([name, value]) => make("span", {}, `${name} `, make("b", { text: value })))));
  article.dataset.row = row;
  article.dataset.response = texts.response_id ?? "";
  if (texts.response_id !== undefined) title.title = plainLine(`response_id ${texts.response_id}`);
  if (texts.turns) article.append(turnsPreview(texts.turns));
  else if (texts.response !== undefined) article.append(responseBox(texts));
  const terms = set.head.components.map((name) => [name, set.columns[`contribution_${name}`][row]]).filter(([, value]) => !Number.isNaN(value));
  if (terms.length) article.append(make("div", { class: "numbers terms" }, "reward = ", ...terms.map(([name, value]) => make("span", {}, `${name} `, make("b", { text: signed(value) })))));
  if (texts.extracted_answer !== undefined) article.append(make("div", { class: "numbers" }, "answer ", make("bdi", { text: texts.extracted_answer })));
  article.append(cardDetails(set, row, texts));
  return article;
}

function responseBox(texts) {
  return texts.response === undefined ? "" : textBox(texts.response, answerSpan(texts), texts[TOKENS]);
}

function cardDetails(set, row, texts) {
  const evidence = texts[EVIDENCE]?.length ? ", evidence" : "";
  const summary = make("summary", { text: `Details: components${evidence}, path through the steps` });
  const rests = make("div", {}, ...(texts.turns ? [turnList(texts.turns), responseBox(texts)] : []), componentTable(set, row), evidenceList(set, texts));
  const path = make("div", {}, make("h5", { text: "Path through the steps" }), pathOf(set, row, texts), otherTexts(set, texts));
  const id = texts.response_id === undefined ? null : make("div", { class: "quiet", text: `response_id ${texts.response_id}` });
  return make("details", {}, summary, id, make("div", { class: "columns" }, rests, path));
}

/** Where the extracted answer stands in the response, or null: as the rule found it, else its last occurrence. */
function answerSpan({ response, extracted_answer: answer, [EVIDENCE]: evidence }) {
  if (typeof answer !== "string" || !answer) return null;
  const whole = String(response);
  const found = new Map((evidence || []).map(({ name, text }) => [name, text]));
  if (found.has("found_at")) {
    const [start, end] = found.get("found_at").split(":").map(Number);
    const characters = [...whole];  // They are counted as Python counts them.
    const span = [start, end].map((at) => characters.slice(0, at).join("").length);
    if (whole.slice(...span) === answer) return span;
  }
  if (found.has("found_by")) return null;  // It was rewritten.
  const start = whole.lastIndexOf(answer);
  return start < 0 ? null : [start, start + answer.length];
}

/** What the values of a row rest on, by step: the rule of its answer, a judge's words, the nearest response. */
function evidenceList(set, texts) {
  const entries = texts[EVIDENCE] || [];
  if (!entries.length) return make("div");
  const names = new Map(set.head.steps.map(({ number, name }) => [number, name]));
  const list = make("dl", { class: "evidence" });
  let last = null;
  for (const { step, name, text } of entries) {
    if (name === "found_at") continue;
    if (step !== last) list.append(make("dt", { text: names.get(step) || `step ${step}` }));
    last = step;
    list.append(evidenceItem(name, text, entries));
  }
  return list;
}

function evidenceItem(name, text, entries) {
  if (name === "found_by" && NO_RULE[text.split(", ").pop()]) return make("dd", { text: NO_RULE[text.split(", ").pop()] });
  if (name === "found_by") {
    const place = entries.find((each) => each.name === "found_at");
    const rules = text.split(", ").map((rule) => RULES[rule] || rule).join(", ");
    const where = place ? `characters ${place.text.replace(":", " to ")}` : "not literally in the response";
    return make("dd", {}, make("span", { class: "quiet", text: "answer found by " }), make("bdi", { text: rules }),
      make("span", { class: "quiet", text: `, ${where}` }));
  }
  const item = make("dd", { class: name }, make("span", { class: "quiet", text: `${NAMED[name] || name} ` }));
  if (name.startsWith("raw_")) item.append(textBox(text));
  else item.append(make("bdi", { text }));
  if (name === "nearest_response_id" || name === "repeats") {
    const show = make("button", { type: "button", class: "small", text: "show" });
    show.addEventListener("click", () => showCard(text));
    item.append(show);
  }
  return item;
}

/** Scroll to the card of a response of the open group; a response of another group has none. */
function showCard(id) {
  const found = [...document.querySelectorAll("#group article.card")].find((each) => each.dataset.response === id);
  if (!found) return;
  found.tabIndex = -1;
  found.focus();
  found.scrollIntoView({ block: "nearest" });
}

function componentTable(set, row) {
  const rows = set.head.components.map((name) => [name, set.columns[`reward_${name}`][row],
    set.slug(`reward_${name}_missing`, row) || "", set.columns[`contribution_${name}`][row]])
    .filter(([, value, missing]) => !Number.isNaN(value) || missing);
  return rows.length ? figureTable(["component", "value", "missing", "adds to the reward"], rows) : make("div");
}

const BY_TRAINING = 0;  // The fate of a row that no step of the recipe dropped, but training itself.

/** What each step wrote in this row, until it was dropped or kept. */
function pathOf(set, row, texts) {
  const end = set.columns.fate[row];
  const list = make("ol", { class: "path" });
  for (const step of set.head.steps) {
    if (step.number === BY_TRAINING && end !== BY_TRAINING) continue;
    if (end > BY_TRAINING && step.number > end) break;
    const item = make("li", step.number === BY_TRAINING ? {} : { value: step.number }, make("b", { text: step.name }));
    const written = step.writes.map((name) => [name, valueOf(set, row, texts, name)]).filter(([, value]) => value !== null);
    for (const [name, value] of written) item.append(make("div", {}, make("span", { class: "quiet", text: `${name} ` }), make("bdi", { text: value })));
    if (step.number === end) {
      const reason = set.slug("reason", row);
      item.append(make("div", { class: "dropped", text: `dropped: ${reason}${step.reasons[reason] ? ` (${step.reasons[reason]})` : ""}` }));
    }
    list.append(item);
  }
  return list;
}

/** The value of a column in a row, as a text; null where it has none. */
function valueOf(set, row, texts, name) {
  const inColumns = IN_COLUMNS.has(name) || name.startsWith("reward_");
  if (inColumns && set.slugs[name]) return set.slug(name, row) || null;
  const numbers = inColumns ? set.columns[name] : undefined;
  if (numbers) return Number.isNaN(numbers[row]) ? null : shown(numbers[row]);
  const text = texts[name];
  if (text === undefined || name === "response" || name === "turns") return null;
  const whole = typeof text === "number" ? shown(text, Number.isInteger(text) ? "count" : "number") : String(text);
  return whole.length > 300 ? `${whole.slice(0, 300)}… (${shown(whole.length, "count")} characters)` : whole;
}

/** Whatever else steps wrote as text. */
function otherTexts(set, texts) {
  const written = new Set(set.head.steps.flatMap(({ writes }) => writes));
  const others = Object.entries(texts).filter(([name, value]) => !KNOWN.has(name)
    && (typeof value === "string" && (value.length > 300 || !written.has(name))));
  if (!others.length) return make("div");
  const blocks = others.flatMap(([name, value]) => [make("div", { class: "quiet", text: name }), textBox(value)]);
  return make("details", {}, make("summary", { text: "More of this row" }), ...blocks);
}
