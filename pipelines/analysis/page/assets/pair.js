/* Two runs side by side: their headline figures, and the responses to the same prompts. */

const MOST_LISTED = 60;

function pairSection() {
  if (!HEAD.pair || HEAD.pair.sets.some((at) => !HEAD.sets[at])) return null;
  const place = make("div", { id: "pair" });
  const found = section("both", "Side by side", pairFigures(), place);
  Promise.all(HEAD.pair.sets.map(loadedSet)).then(([a, b]) => fillPair(place, a, b));
  return found;
}

function pairFigures() {
  const { sets, prompts, change: { reward, kept, length, by_chance: chance }, command } = HEAD.pair;
  const heads = sets.map((at) => HEAD.sets[at]);
  const [a, b] = heads.map(({ figures: { headline } }) => headline);
  const line = (label, kind, one, two) => [[label, one, two, one === null || two === null ? null : two - one],
    ["", kind, kind, kind === "share" ? "points" : kind]];
  const silent = heads.map(({ figures: { groups } }) => (groups.groups ? groups.without_signal / groups.groups : null));
  const mean = ({ accuracy }) => (accuracy ? accuracy.mean : null);
  const units = heads.map(({ figures }) => figures.length_unit);
  // Lengths in tokens and in characters have no difference.
  const lengthLine = units[0] === units[1] ? line(`mean length, ${units[0]}`, "length", ...length)
    : [[`mean length, ${units.join(" and ")}`, ...length, null], ["", "length", "length", "length"]];
  const passes = Object.keys(a.pass_at).filter((k) => k in b.pass_at);
  const lines = [line("prompts", "count", a.prompts, b.prompts), line("accuracy", "share", mean(a), mean(b)),
    ...passes.filter((k) => k !== "1").map((k) => line(`pass@${k}`, "share", a.pass_at[k], b.pass_at[k])),
    line("mean reward of kept rows", "number", ...reward), line("kept rows", "count", ...kept),
    lengthLine, line("groups without signal", "share", ...silent)];
  const table = figureTable(["", "A", "B", "B less A"], lines.map(([each]) => each), lines.map(([, kind]) => kind));
  const interval = ({ accuracy }) => (accuracy ? `${shown(accuracy.mean, "share")} (95%: ${intervalText(accuracy)})` : "–");
  const known = chance.every((each) => each !== null);
  const notes = [`A is ${heads[0].name}, accuracy ${interval(a)}.`, `B is ${heads[1].name}, accuracy ${interval(b)}.`,
    `${shown(prompts[0], "count")} prompts are in both, ${shown(prompts[1], "count")} only in A, ${shown(prompts[2], "count")} only in B.`,
    known ? `95% interval of the difference of the mean reward, from the spread between groups: ${signed(chance[0])} to ${signed(chance[1])}.` : ""];
  const panel = make("div", { class: "panel columns" }, table, make("div", {}, ...notes.filter(Boolean).map((text) => make("p", { text })),
    make("p", {}, "All differences: ", commandBox(command))));
  panel.dataset.figure = "Side by side";
  return panel;
}

/** Prompts of both, those whose mean reward differs most first; where no rewards are known, by their order. */
function sharedPrompts(a, b) {
  const groups = new Map([...b.prompts].map((prompt, group) => [prompt, group]));
  const hasResponse = (set, group) => orderedRows(set, group).some((row) => set.columns.length[row] >= 0);
  const mean = (set, group) => {
    const rows = Array.from({ length: set.end(group) - set.groupsAt[group] }, (_, at) => set.groupsAt[group] + at);
    const known = rows.map((row) => set.columns.reward[row]).filter((value) => !Number.isNaN(value));
    return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
  };
  return [...a.prompts].map((prompt, group) => [group, groups.get(prompt)]).filter(([one, other]) => other !== undefined && hasResponse(a, one) && hasResponse(b, other))
    .map(([one, two]) => {
      const means = [mean(a, one), mean(b, two)];
      return { one, two, means, difference: means.includes(null) ? 0 : means[1] - means[0] };
    }).sort((x, y) => Math.abs(y.difference) - Math.abs(x.difference) || x.one - y.one);
}

function fillPair(place, a, b) {
  const shared = sharedPrompts(a, b);
  if (!shared.length) { place.append(make("p", { text: "No prompt is in both." })); return; }
  const select = make("select", { id: "pair-prompt" }, ...shared.slice(0, MOST_LISTED).map(({ one, means, difference }, at) =>
    make("option", { value: String(at), text: `${rowName(a, one)}: ${shown(means[0])}, ${shown(means[1])} (${signed(difference)}) ${a.excerpts[one]}` })));
  const cards = make("div", { class: "sides" });
  const open = async () => {
    const { one, two } = shared[Number(select.value)];
    const [x, y] = await Promise.all([a.texts(one), b.texts(two)]);
    const prompt = x || y ? textBox(promptText((x || y).prompt)) : null;
    cards.replaceChildren(...[prompt, pairSide("A", a, one, x), pairSide("B", b, two, y)].filter(Boolean));
  };
  select.addEventListener("change", open);
  const label = make("label", { class: "wide" }, `Prompt, with the mean reward in A and B: the greatest difference first${
    shared.length > MOST_LISTED ? `, ${MOST_LISTED} of ${shown(shared.length, "count")}` : ""}`, select);
  place.append(label, cards);
  return open();
}

function pairSide(name, set, group, texts) {
  const first = set.groupsAt[group], rows = orderedRows(set, group);
  return make("div", { class: "side" }, make("h3", { text: `${name}: ${rowName(set, group, texts)}, ${correctOf(set, rows)}` }),
    ...rows.map((row) => card(set, row, texts ? texts.rows[row - first] : {}, null)));
}
