/* Curves of a training run, and what changed from one of its steps to another. */

const CURVES = [
  ["Validation", /^(rejuice\/validation\/.*(mean|pass|maj)@\d+|val-core\/.*\/(acc|reward)\/mean@\d+)$/],
  ["Reward", /^(rejuice\/reward.*|critic\/score\/mean)$/],
  ["Pass rate and mixed groups", /^rejuice\/(pass_rate|mixed_groups)$/],
  ["Rows", /^rejuice\/(rows_.*|dropped\/.*)$/],
  ["Tokens", /^(rejuice\/response_tokens|response_length\/mean)$/],
  ["Policy", /^actor\/(entropy|entropy_loss|grad_norm|kl_loss|ppo_kl|pg_clipfrac)$/],
  ["Seconds", /^timing_s\/(step|gen|update_actor|testing|adv)$/],
];

function trainingSection() {
  const { points, sets } = HEAD;
  if (!points.length && sets.every(({ step }) => step === null)) return null;
  const x = points.map(({ step }) => step);
  const names = [...new Set(points.flatMap((point) => Object.keys(point)))];
  const panels = CURVES.map(([title, pattern]) => {
    const own = names.filter((name) => pattern.test(name)).slice(0, 8);
    const series = own.map((name) => ({ name: name.replace(/^rejuice\//, ""), values: points.map((point) => point[name] ?? null) }));
    return own.length ? linePanel(title, "", x, series, "step") : null;
  });
  panels.push(...figuresOverSteps(sets.filter(({ step, kind }) => step !== null && kind === "answers")));
  const change = sets.filter(({ step }) => step !== null).length > 1 ? changePanel() : null;
  return section("training", "Training", change, make("div", { class: "grid" }, ...panels.filter(Boolean)));
}

/** Figures of the sets in the page, one point for each training step. */
function figuresOverSteps(sets) {
  if (sets.length < 2) return [];
  const x = sets.map(({ step }) => step);
  const panel = (title, note, names, value) => linePanel(title, note, x,
    names.map((name) => ({ name, values: sets.map(({ figures }) => value(figures, name)) })), "step");
  const slugs = [...new Set(sets.flatMap(({ figures }) => figures.funnel.flatMap(({ dropped }) => Object.keys(dropped))))];
  const components = [...new Set(sets.flatMap(({ components: own }) => own))];
  const groups = { all_right: "all right", mixed: "mixed", all_wrong: "all wrong", without_signal: "without signal" };
  const dropped = (figures, slug) => figures.funnel.reduce((n, each) => n + (each.dropped[slug] || 0), 0);
  return [
    slugs.length ? panel("Dropped rows over steps", "By reason.", slugs.slice(0, 8), dropped) : null,
    linePanel("Groups over steps", "Shares of the groups of a step.", x, Object.entries(groups).map(([name, label]) =>
      ({ name: label, values: sets.map(({ figures }) => (figures.groups.groups ? figures.groups[name] / figures.groups.groups : null)) })), "step"),
    components.length ? panel("Variance shares over steps", "What the advantages were made of.", components,
      (figures, name) => figures.components[name]?.variance_share ?? null) : null,
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
  const fill = async () => {
    const [a, b] = await Promise.all([loadedSet(Number(from.value)), loadedSet(Number(to.value))]);
    place.replaceChildren(...changeTables(a, b));
    place.append(...await newResponses(a, b));
  };
  from.addEventListener("change", fill);
  to.addEventListener("change", fill);
  fill();
  return make("div", { class: "panel", id: "change" }, make("h3", { text: "Why did it change?" }),
    make("div", {}, make("label", { text: "From " }, from), make("label", { text: " to " }, to)), place);
}

function meanOf(set, name) {
  let sum = 0, n = 0;
  const values = set.columns[name], rewards = set.columns.reward;
  for (let row = 0; values && row < values.length; row += 1) {
    if (!Number.isNaN(values[row]) && !Number.isNaN(rewards[row])) { sum += values[row]; n += 1; }
  }
  return n ? sum / n : null;
}

/** Mean reward by the excerpt of the prompt: steps share prompts, not places. */
function byPrompt(set) {
  const found = new Map();
  for (let group = 0; group < set.head.groups; group += 1) {
    const own = [...set.columns.reward.subarray(set.groupsAt[group], set.end(group))].filter((r) => !Number.isNaN(r));
    if (own.length) found.set(set.excerpts[group], { group, mean: own.reduce((s, r) => s + r, 0) / own.length });
  }
  return found;
}

function changeTables(a, b) {
  const names = [...new Set([...a.head.components, ...b.head.components])];
  const difference = (x, y) => (x === null || y === null ? null : y - x);
  const rows = ["reward", ...names.map((name) => `contribution_${name}`)].map((name) => {
    const [before, after] = [meanOf(a, name), meanOf(b, name)];
    return [name, before, after, difference(before, after)];
  });
  const others = byPrompt(b);
  const shared = [...byPrompt(a)].filter(([prompt]) => others.has(prompt))
    .map(([prompt, { mean }]) => [prompt, mean, others.get(prompt).mean, others.get(prompt).mean - mean])
    .sort((x, y) => Math.abs(y[3]) - Math.abs(x[3])).slice(0, 12);
  return [make("p", { class: "hint", text: "Mean of the rewards of the rows that have one, and of what each "
    + "component added to them: the differences of the components add up to that of the reward." }),
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
  const [before, after] = await Promise.all([responseCounts(a), responseCounts(b)]);
  const rows = [...after].filter(([text, { n }]) => n >= 3 && !before.has(text))
    .sort((x, y) => y[1].n - x[1].n).slice(0, 10)
    .map(([, { response, n }]) => [n, response.length > 200 ? `${response.slice(0, 200)}…` : response]);
  if (!rows.length) return [make("p", { class: "quiet", text: "No response is new and frequent (3 times or more)." })];
  return [make("h3", { text: "Responses that are new and frequent" }), figureTable(["times", "response"], rows)];
}
