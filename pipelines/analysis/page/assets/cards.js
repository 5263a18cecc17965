/* A group side by side: its prompt, and a card for each response with its whole path. */

const EVIDENCE = "evidence of steps";
const IN_COLUMNS = new Set(["verdict", "finish_reason", "reward", "advantage"]);
const KNOWN = new Set(["response_id", "response", "extracted_answer", "turns", EVIDENCE]);
const RULES = { think: "after </think>", answer_tag: "in <answer>", boxed: "last box", marked_line: "marked line", bare: "the text is an answer and nothing else",
  keyword: "behind a keyword", last_line: "last line", last_number: "last number" };
const NO_RULE = { unclosed_think: "no answer: the text ends inside <think>", gives_up: "no answer: the text gives up" };
const NAMED = { raw_answer: "judge's answer, raw", raw_failure: "judge's failure, raw", nearest_response_id: "nearest in the group",
  nearest_cosine: "its cosine", mean_cosine: "mean cosine to the group", repeats: "repeats" };

function groupCards(set, group, texts, mask) {
  const first = set.groupsAt[group];
  const heading = make("h3", { text: `Group ${group}` });
  if (!texts) {
    return [heading, make("p", { text: "The texts of this group are not in this page; its figures are." }),
      ...orderedRows(set, group).map((row) => card(set, row, {}, mask))];
  }
  const reference = texts.reference === null || texts.reference === undefined ? null
    : make("p", {}, make("b", { text: "Reference " }), make("bdi", { text: texts.reference }));
  return [heading, make("p", { class: "quiet", text: `prompt_id ${texts.prompt_id}` }),
    make("details", { open: true }, make("summary", { text: "Prompt as templated" }), textBox(promptText(texts.prompt))),
    reference, ...orderedRows(set, group).map((row) => card(set, row, texts.rows[row - first], mask))].filter(Boolean);
}

/** Rows of a group, the best reward first. */
function orderedRows(set, group) {
  const rows = [];
  for (let row = set.groupsAt[group]; row < set.end(group); row += 1) rows.push(row);
  const reward = (row) => (Number.isNaN(set.columns.reward[row]) ? -Infinity : set.columns.reward[row]);
  return rows.sort((a, b) => (reward(b) > reward(a)) - (reward(b) < reward(a)) || a - b);
}

function card(set, row, texts, mask) {
  const { columns, head } = set;
  const verdict = set.slug("verdict", row);
  const kind = verdict === "correct" ? "right" : verdict === "wrong_answer" || verdict === "no_answer" ? "wrong" : "other";
  const sign = { right: "✓", wrong: "✗", other: "?" }[kind];
  const reason = set.slug("reason", row);
  const fate = columns.fate[row] < 0 ? make("span", { text: "kept" })
    : make("span", { class: "dropped", text: `dropped: ${reason}` });
  const title = make("h4", {}, make("b", { text: `${sign} ${verdict || "not graded"}` }),
    make("span", { text: `reward ${shown(columns.reward[row])}` }),
    make("span", { text: `advantage ${shown(columns.advantage[row])}` }),
    make("span", { text: columns.length[row] < 0 ? "no response" : `${shown(columns.length[row])} ${head.figures.length_unit}` }), fate);
  const article = make("article", { class: `card ${kind}${mask && !mask[row] ? " outside" : ""}` }, title);
  article.dataset.row = row;
  article.dataset.response = texts.response_id ?? "";
  if (texts.response_id !== undefined) article.append(make("div", { class: "quiet", text: `response_id ${texts.response_id}` }));
  if (texts.turns) article.append(turnList(texts.turns));
  if (texts.response !== undefined) article.append(textBox(texts.response, answerSpan(texts)));
  if (texts.extracted_answer !== undefined) article.append(make("div", {}, make("b", { text: "Extracted answer " }), make("bdi", { text: texts.extracted_answer })));
  article.append(evidenceList(set, texts), componentTable(set, row), pathOf(set, row, texts), otherTexts(set, texts));
  return article;
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
      item.append(make("div", { class: "dropped", text: `dropped: ${reason} (${step.reasons[reason] || "not explained"})` }));
    }
    list.append(item);
  }
  return make("details", {}, make("summary", { text: "Path through the steps" }), list);
}

/** The value of a column in a row, as a text; null where it has none. */
function valueOf(set, row, texts, name) {
  const inColumns = IN_COLUMNS.has(name) || name.startsWith("reward_");
  if (inColumns && set.slugs[name]) return set.slug(name, row) || null;
  const numbers = inColumns ? set.columns[name] : undefined;
  if (numbers) return Number.isNaN(numbers[row]) ? null : shown(numbers[row], 4);
  const text = texts[name];
  if (text === undefined || name === "response" || name === "turns") return null;
  const whole = typeof text === "number" ? shown(text, 4) : String(text);
  return whole.length > 300 ? `${whole.slice(0, 300)}… (${whole.length} characters)` : whole;
}

function turnList(turns) {
  const list = make("ol", { class: "path" });
  for (const pairs of turns) {
    const turn = Object.fromEntries(pairs);
    const item = make("li", {}, make("b", { text: turn.role || "turn" }));
    if (turn.text !== undefined) item.append(textBox(turn.text));
    if (turn.tool !== undefined) item.append(make("div", { text: `calls ${turn.tool} ${turn.arguments || ""}` }));
    if (turn.observation !== undefined) item.append(make("div", { class: "quiet", text: "observation" }), textBox(turn.observation));
    if (turn.status !== undefined) item.append(make("div", { class: "quiet", text: turn.status }));
    list.append(item);
  }
  return make("details", { open: true }, make("summary", { text: `${turns.length} turns` }), list);
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
