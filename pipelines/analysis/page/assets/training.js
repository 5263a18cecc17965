/* Curves of a training run, and what changed from one of its steps to another. */

const CURVES = [
  ["Validation", /^(rejuice\/validation\/.*(mean|pass|maj)@\d+|val-core\/.*\/(acc|reward)\/mean@\d+)$/, "share"],
  ["Reward", /^(rejuice\/reward.*|critic\/score\/mean)$/, "number"],
  ["Pass rate and mixed groups", /^rejuice\/(pass_rate|mixed_groups)$/, "share"],
  ["Tokens", /^(rejuice\/response_tokens|response_length\/mean)$/, "length"],
  ["Entropy", /^actor\/(entropy|entropy_loss)$/, "number"],
  ["KL divergence", /^actor\/(kl_loss|ppo_kl)$/, "number"],
  ["Gradient norm", /^actor\/grad_norm$/, "number"],
  ["Clipped share", /^actor\/pg_clipfrac$/, "share"],
  ["Updates left out", /^rejuice\/nan_steps$/, "count"],
  ["Rows", /^rejuice\/(rows_.*|dropped\/.*)$/, "count"],
  ["Seconds", /^timing_s\/(step|gen|update_actor|testing|adv)$/, "seconds"],
];

function trainingSection() {
  const { curves, sets } = HEAD;
  if (!curves.length && sets.every(({ step }) => step === null)) return null;
  const runs = curves.map(({ run, points }) => [run, new Map(points.map((point) => [point.step, point]))]);
  const names = [...new Set(curves.flatMap(({ points }) => points.flatMap((point) => Object.keys(point))))];
  const panels = CURVES.map(([title, pattern, kind]) => {
    const own = names.filter((name) => pattern.test(name)).map((name) => [name.replace(/^rejuice\//, ""), name]);
    const note = title === "Validation" ? "Bars are 95% intervals of the means, by their prompts." : "";
    return stepsPanel(title, note, runs, own, (point, name) => point[name] ?? null, kind, endsOf);
  });
  panels.push(...figuresOverSteps(sets.filter(({ step, kind }) => step !== null && kind === "answers")));
  return section("training", "Training", ...panelGrid(...panels));
}

/** The ends of the 95% interval of a mean on a validation set; null where there are none. */
function endsOf(point, name) {
  const stem = /^(rejuice\/validation\/.+\/mean)@\d+$/.exec(name)?.[1];
  const [low, high] = [point[`${stem}_low`] ?? null, point[`${stem}_high`] ?? null];
  return low === null || high === null ? null : [low, high];
}

function changeSection() {
  return HEAD.sets.filter(({ step }) => step !== null).length > 1 ? section("changed", "Why did it change?", changePanel()) : null;
}

/** A line for each name in each run, over the training steps; null without any.
 *
 * `runs` has a name and a Map by step for each run, `names` a label and a name for each line, and
 * `ends` gives an interval of a value, or null. */
function stepsPanel(title, note, runs, names, value, kind, ends = () => null) {
  const x = [...new Set(runs.flatMap(([, points]) => [...points.keys()]))].sort((a, b) => a - b);
  const series = names.flatMap(([label, name]) => runs.map(([run, points]) => ({
    name: run ? `${label} (${run})` : label,
    values: x.map((step) => (points.has(step) ? value(points.get(step), name) : null)),
    ends: x.map((step) => (points.has(step) ? ends(points.get(step), name) : null)),
  }))).filter(({ values }) => values.some((each) => each !== null));
  return series.length ? linePanel(title, note, x, series, "step", kind) : null;
}

/** Figures of the sets in the page, one point for each training step of each run. */
function figuresOverSteps(sets) {
  if (sets.length < 2) return [];
  const runs = [...new Set(sets.map(({ run }) => run))].map((run) =>
    [run, new Map(sets.filter((each) => each.run === run).map(({ step, figures }) => [step, figures]))]);
  const slugs = [...new Set(sets.flatMap(({ figures }) => figures.funnel.flatMap(({ dropped }) => Object.keys(dropped))))];
  const components = [...new Set(sets.flatMap(({ components: own }) => own))];
  const groups = [["all right", "all_right"], ["mixed", "mixed"], ["all wrong", "all_wrong"], ["without signal", "without_signal"]];
  const dropped = (figures, slug) => figures.funnel.reduce((n, each) => n + (each.dropped[slug] || 0), 0);
  const both = (name) => [name, name];
  return [
    stepsPanel("Dropped rows over steps", "By reason.", runs, slugs.map(both), dropped, "count"),
    stepsPanel("Groups over steps", "Shares of the groups of a step.", runs, groups,
      ({ groups: own }, name) => (own.groups && own[name] !== null ? own[name] / own.groups : null), "share"),
    stepsPanel("Variance shares over steps", "What the advantages were made of.", runs, components.map(both),
      (figures, name) => figures.components[name]?.variance_share ?? null, "share"),
  ];
}

/** Why did it change: two steps, and which components moved. */
function changePanel() {
  const own = HEAD.sets.map((each, at) => ({ at, each })).filter(({ each }) => each.step !== null);
  const choice = (chosen) => {
    const select = make("select", {}, ...own.map(({ at, each }) => make("option", { value: String(at), text: each.name })));
    select.value = String(own[chosen].at);
    return select;
  };
  const answers = own.map(({ each }, at) => [each.kind, at]).filter(([kind]) => kind === "answers").map(([, at]) => at);
  const from = choice(answers[0] ?? 0), to = choice(answers[answers.length - 1] ?? own.length - 1);
  const place = make("div");
  let run = 0;
  const fill = async () => {
    const own = run += 1;
    const [a, b] = await Promise.all([loadedSet(Number(from.value)), loadedSet(Number(to.value))]);
    const found = [...changeTables(a, b), ...await newResponses(a, b)];
    if (own === run) place.replaceChildren(...found);
  };
  from.addEventListener("change", fill);
  to.addEventListener("change", fill);
  fill();
  return make("div", { class: "panel", id: "change" }, make("div", {}, make("label", { text: "From " }, from), make("label", { text: " to " }, to)), place);
}

/** Rows that are kept and have a reward, from `start` to `end`. */
function rewardedRows({ columns }, start, end) {
  const rows = [];
  for (let row = start; row < end; row += 1) if (columns.fate[row] < 0 && !Number.isNaN(columns.reward[row])) rows.push(row);
  return rows;
}

/** Mean of a column over them; null without any. A component that is not summed adds 0. */
function meanOf(set, name, rows) {
  const values = set.columns[name];
  const at = (row) => (values && !Number.isNaN(values[row]) ? values[row] : 0);
  return rows.length ? rows.reduce((sum, row) => sum + at(row), 0) / rows.length : null;
}

/** Mean reward by the place of the prompt in the page, which is the same for all sets. */
function byPrompt(set) {
  const found = new Map();
  for (let group = 0; group < set.head.groups; group += 1) {
    const mean = meanOf(set, "reward", rewardedRows(set, set.groupsAt[group], set.end(group)));
    if (mean !== null) found.set(set.prompts[group], { excerpt: set.excerpts[group], mean });
  }
  return found;
}

function changeTables(a, b) {
  const names = [...new Set([...a.head.components, ...b.head.components])];
  const difference = (x, y) => (x === null || y === null ? null : y - x);
  const ofBoth = [a, b].map((set) => [set, rewardedRows(set, 0, set.head.rows)]);
  const columns = [["reward", "reward"], ...names.map((name) => [name, `contribution_${name}`])];
  const rows = columns.map(([label, column]) => {
    const [before, after] = ofBoth.map(([set, own]) => meanOf(set, column, own));
    return [label, before, after, difference(before, after)];
  });
  const others = byPrompt(b);
  const shared = [...byPrompt(a)].filter(([prompt]) => others.has(prompt))
    .map(([prompt, { excerpt, mean }]) => [excerpt, mean, others.get(prompt).mean, others.get(prompt).mean - mean])
    .sort((x, y) => Math.abs(y[3]) - Math.abs(x[3])).slice(0, 12);
  return [make("p", { class: "hint", text: "Mean reward of the rows that are kept, and what each component "
    + "adds to it: the differences of the components add up to that of the reward." }),
  figureTable(["mean", "before", "after", "difference"], rows),
  shared.length ? make("h3", { text: "Prompts in both that moved most" }) : null,
  shared.length ? figureTable(["prompt", "before", "after", "difference"], shared) : null].filter(Boolean);
}

const MOST_COMPARED = 20000;

/** How often each response occurs in a set, by its text without differences of case and spaces. */
async function responseCounts(set) {
  const counts = new Map();
  for (let at = 0; at < set.head.texts.length; at += 1) {
    for (const group of await set.block(at)) {
      for (const { response } of group ? group.rows : []) {
        if (typeof response !== "string") continue;
        const text = response.toLowerCase().replace(/\s+/g, " ").trim();
        const own = counts.get(text) || { response, n: 0 };
        own.n += 1;
        counts.set(text, own);
      }
    }
  }
  return counts;
}

/** Responses that are frequent in b, and are not in a. */
async function newResponses(a, b) {
  if (a.head.rows + b.head.rows > MOST_COMPARED) return [];
  if ([a, b].some(({ head }) => head.with_texts < head.rows)) {
    return [make("p", { class: "quiet", text: "Texts are left out of this page: new responses are found by rejuice diff." })];
  }
  const [before, after] = await Promise.all([responseCounts(a), responseCounts(b)]);
  const rows = [...after].filter(([text, { n }]) => n >= 3 && !before.has(text))
    .sort((x, y) => y[1].n - x[1].n).slice(0, 10)
    .map(([, { response, n }]) => [n, response.length > 200 ? `${response.slice(0, 200)}…` : response]);
  if (!rows.length) return [make("p", { class: "quiet", text: "No response is new and frequent (3 times or more)." })];
  return [make("h3", { text: "Responses that are new and frequent" }), figureTable([["times", "count"], "response"], rows)];
}
