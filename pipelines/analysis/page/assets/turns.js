/* The turns of a trajectory, as a conversation. */

const LONG_RESULT = 280;
const SIDES = { policy: "policy", tool: "tool" };

function turnList(turns) {
  return make("ol", { class: "turns" }, ...turns.map((pairs) => turnItem(Object.fromEntries(pairs))));
}

function turnItem(turn) {
  const body = make("div");
  if (turn.text !== undefined) body.append(textBox(turn.text));
  if (turn.tool !== undefined) body.append(make("div", { class: "call" }, make("b", { text: turn.tool }), make("code", { text: ` ${turn.arguments || ""}` })));
  if (turn.observation !== undefined) body.append(observation(turn.observation));
  const failed = turn.status !== undefined && turn.status !== "ok";
  if (failed) body.append(make("div", { class: "dropped", text: turn.status }));
  return make("li", { class: `turn ${SIDES[turn.role] || "model"}` }, make("b", { class: "role", text: turn.role || "turn" }), body);
}

/** What a call gave; folded where it is long. */
function observation(text) {
  if (text.length <= LONG_RESULT) return textBox(text);
  const first = plainLine(text.slice(0, 90));
  return make("details", {}, make("summary", { text: `${first}… (${shown(text.length, "count")} characters)` }), textBox(text));
}

const MOST_PREVIEWED = 4;

/** The first turns of a trajectory, a line for each: what was written, or what a call gave. */
function turnsPreview(turns) {
  const lines = turns.slice(0, MOST_PREVIEWED).map((pairs) => {
    const { role, text, tool, arguments: given, observation: gave } = Object.fromEntries(pairs);
    const words = text ?? gave ?? `${tool ?? ""} ${given ?? ""}`;
    return make("div", {}, make("span", { class: "quiet", text: `${role || "turn"} ` }), plainLine(words.slice(0, 200)));
  });
  const left = turns.length - lines.length;
  if (left > 0) lines.push(make("div", { class: "quiet", text: `and ${shown(left, "count")} more ${left === 1 ? "turn" : "turns"}` }));
  return make("div", { class: "preview" }, ...lines);
}
