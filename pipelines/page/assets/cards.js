/* A group side by side: its prompt, and a card for each response with its whole path. */

const KNOWN = new Set(["response_id", "response", "extracted_answer", "turns"]);

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
  if (texts.response_id !== undefined) article.append(make("div", { class: "quiet", text: `response_id ${texts.response_id}` }));
  if (texts.turns) article.append(turnList(texts.turns));
  if (texts.response !== undefined) article.append(textBox(texts.response, answerSpan(texts)));
  if (texts.extracted_answer !== undefined) article.append(make("div", {}, make("b", { text: "Extracted answer " }), make("bdi", { text: texts.extracted_answer })));
  article.append(componentTable(set, row), pathOf(set, row, texts), otherTexts(set, texts));
  return article;
}

/** Where the extracted answer stands in the response: its last occurrence there, or null. */
function answerSpan({ response, extracted_answer: answer, found_at: at }) {
  if (typeof at === "string" && /^\d+:\d+$/.test(at)) return at.split(":").map(Number);
  if (typeof answer !== "string" || !answer) return null;
  const start = String(response).lastIndexOf(answer);
  return start < 0 ? null : [start, start + answer.length];
}

function componentTable(set, row) {
  const rows = set.head.components.map((name) => [name, set.columns[name][row],
    set.slug(`${name}_missing`, row) || "", set.columns[`contribution_${name}`][row]])
    .filter(([, value, missing]) => !Number.isNaN(value) || missing);
  return rows.length ? figureTable(["component", "value", "missing", "adds to the reward"], rows) : make("div");
}

/** What each step wrote in this row, until it was dropped or kept. */
function pathOf(set, row, texts) {
  const end = set.columns.fate[row];
  const list = make("ol", { class: "path" });
  for (const step of set.head.steps) {
    if (end >= 0 && step.number > end) break;
    const item = make("li", { value: step.number }, make("b", { text: step.name }));
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
  const component = name.startsWith("reward_") ? name.slice("reward_".length) : name;
  if (set.slugs[component]) return set.slug(component, row) || null;
  const numbers = set.columns[component];
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

/** Evidence and whatever else steps wrote as text: a judge's raw answer, the nearest response. */
function otherTexts(set, texts) {
  const written = new Set(set.head.steps.flatMap(({ writes }) => writes));
  const others = Object.entries(texts).filter(([name, value]) => !KNOWN.has(name)
    && (typeof value === "string" && (value.length > 300 || !written.has(name))));
  if (!others.length) return make("div");
  const blocks = others.flatMap(([name, value]) => [make("div", { class: "quiet", text: name }), textBox(value)]);
  return make("details", {}, make("summary", { text: "More of this row" }), ...blocks);
}
