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

/** What prompts can be ordered by: names of columns, and what of them is compared. */
function comparedFigures(a, b) {
  const components = a.head.components.filter((name) => b.head.components.includes(name));
  const lengths = a.head.figures.length_unit === b.head.figures.length_unit ? [["length", "mean length"]] : [];
  // Advantages of a group mostly add up to 0: their size is compared.
  return [["reward", "mean reward"], ...components.map((name) => [`reward_${name}`, `mean ${name}`]),
    ["advantage", "mean size of the advantage"], ...lengths];
}

function comparedMean(set, group, name) {
  const column = set.columns[name];
  let sum = 0, known = 0;
  for (let row = set.groupsAt[group]; row < set.end(group); row += 1) {
    const value = name === "advantage" ? Math.abs(column[row]) : column[row];
    if (Number.isNaN(value) || (name === "length" && value < 0)) continue;
    sum += value;
    known += 1;
  }
  return known ? sum / known : null;
}

/** Prompts of both, those whose figure differs most first; where it is not known, by their order. */
function sharedPrompts(a, b, name) {
  const groups = new Map([...b.prompts].map((prompt, group) => [prompt, group]));
  const hasResponse = (set, group) => orderedRows(set, group).some((row) => set.columns.length[row] >= 0);
  return [...a.prompts].map((prompt, group) => [group, groups.get(prompt)]).filter(([one, other]) => other !== undefined && hasResponse(a, one) && hasResponse(b, other))
    .map(([one, two]) => {
      const means = [comparedMean(a, one, name), comparedMean(b, two, name)];
      return { one, two, means, difference: means.includes(null) ? null : means[1] - means[0] };
    }).sort((x, y) => Math.abs(y.difference ?? 0) - Math.abs(x.difference ?? 0) || x.one - y.one);
}

function fillPair(place, a, b) {
  let shared = sharedPrompts(a, b, "reward");
  if (!shared.length) { place.append(make("p", { text: "No prompt is in both." })); return; }
  const figure = choiceOf("pair-figure", comparedFigures(a, b));
  const select = make("select", { id: "pair-prompt" });
  const cards = make("div", { class: "sides" });
  const open = async () => {
    const { one, two } = shared[Number(select.value)];
    const [x, y] = await Promise.all([a.texts(one), b.texts(two)]);
    const prompt = x || y ? textBox(promptText((x || y).prompt)) : null;
    cards.replaceChildren(...[prompt, pairSide("A", a, one, x), pairSide("B", b, two, y)].filter(Boolean));
  };
  const list = () => {
    shared = sharedPrompts(a, b, figure.value);
    select.replaceChildren(...shared.slice(0, MOST_LISTED).map(({ one, means, difference }, at) =>
      make("option", { value: String(at), text: `${rowName(a, one)}: ${shown(means[0])}, ${shown(means[1])} (${signed(difference)}) ${a.excerpts[one]}` })));
    return open();
  };
  figure.addEventListener("change", list);
  select.addEventListener("change", open);
  const most = shared.length > MOST_LISTED ? `, ${MOST_LISTED} of ${shown(shared.length, "count")}` : "";
  place.append(make("label", { class: "wide" }, "Compare prompts by", figure),
    make("label", { class: "wide" }, `Prompt, with that figure in A and in B: the greatest difference first${most}`, select), cards);
  return list();
}

function pairSide(name, set, group, texts) {
  const first = set.groupsAt[group], rows = orderedRows(set, group);
  return make("div", { class: "side" }, make("h3", { text: `${name}: ${rowName(set, group, texts)}, ${correctOf(set, rows)}` }),
    ...rows.map((row) => card(set, row, texts ? texts.rows[row - first] : {}, null)));
}
