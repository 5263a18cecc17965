/* The sections with figures of a set. */

function section(id, title, ...children) {
  return make("section", { id }, make("h2", { text: title }), ...children.filter(Boolean));
}

function tile(value, label, whole = 0, title = "") {
  const share = whole && value !== null ? make("span", { class: "hint", text: ` ${shown(value / whole, "share")}` }) : null;
  return make("div", { class: "tile", title }, make("b", { text: shown(value, "count") }), share, make("div", { text: label }));
}

function maskedTile(share) {
  return make("div", { class: "tile", title: "The mean over the rows that are kept: these tokens do not train." },
    make("b", { text: shown(share, "share") }), make("div", { text: "of a response's tokens masked" }));
}

const NOT_ON_FILE = "Not known: the rows that were dropped are not on file.";

/** Rows as they were sampled, those that later steps added, and those that are kept; or those that are left. */
function rowTiles({ rows, figures: { sampled } }, { fate }) {
  if (sampled === null) return [tile(rows, "rows that are left", 0, "The rows that were dropped are not on file.")];
  const kept = fate.reduce((n, each) => n + (each < 0), 0);
  const added = rows - sampled;
  return [tile(sampled, "rows after sampling"), added ? tile(added, "rows added by later steps") : null,
    tile(kept, added ? "kept of all rows" : "kept", rows)];
}

function overviewSection({ head, columns }) {
  const { groups, funnel, masked } = head.figures;
  const tiles = make("div", { class: "tiles" },
    ...rowTiles(head, columns),
    tile(groups.groups, "groups with responses"),
    tile(groups.all_right, "groups all right", groups.groups),
    tile(groups.mixed, "groups mixed", groups.groups),
    tile(groups.all_wrong, "groups all wrong", groups.groups),
    groups.ungraded ? tile(groups.ungraded, "groups not graded", groups.groups) : null,
    tile(groups.without_signal, "groups without signal", groups.groups, groups.without_signal === null ? NOT_ON_FILE : ""),
    masked ? maskedTile(masked) : null);
  const rates = histogramPanel("Pass rates", "Groups by the share of right responses among the graded.",
    groups.pass_rates, "pass rate", "share", "groups");
  return section("overview", "Overview", tiles, ...panelGrid(funnelPanel(funnel), rates), sourcesPanel(head.figures.sources));
}

function sourcesPanel(sources) {
  const names = Object.keys(sources || {});
  if (!names.length) return null;
  // Only where training samples ahead.
  const ages = names.some((name) => sources[name].policy_age !== null);
  const rows = names.map((name) => {
    const each = sources[name];
    const age = ages ? [each.policy_age, each.too_old] : [];
    return [name, each.prompts, each.responses, each.pass_rate, each.reward, ...age];
  });
  const ageColumns = ages ? ["policy age", ["too old", "count"]] : [];
  const panel = make("div", { class: "panel" }, make("h3", { text: "By source" }),
    make("div", { class: "hint", text: "The pass rate is the mean over prompts of the share of right responses." }),
    figureTable(["data_source", ["prompts", "count"], ["responses", "count"], ["pass rate", "share"], "reward", ...ageColumns], rows));
  panel.dataset.figure = "By source";
  return panel;
}

/** Of a step with a condition, how many rows it is about. */
function appliedTo({ matched, rows_in: rows }) {
  return matched === null || matched === undefined ? "" : ` (${shown(matched, "count")} of ${shown(rows, "count")} rows)`;
}

function funnelPanel(funnel) {
  const reasons = [...new Set(funnel.flatMap(({ dropped }) => Object.keys(dropped)))];
  const names = funnel.map((each, at) => `${at + 1} ${each.step}${appliedTo(each)}`);
  const series = [{ name: "rows out", values: funnel.map(({ rows_out: n }) => n) },
    ...reasons.map((name) => ({ name, values: funnel.map(({ dropped }) => dropped[name] || 0) }))];
  if (!reasons.length && new Set(series[0].values).size < 2) {
    return names.length ? flatFigure("Funnel", `no step added or dropped any of ${shown(series[0].values[0], "count")} rows`,
      ["", ["rows out", "count"]], names.map((each, at) => [each, series[0].values[at]])) : null;
  }
  return barPanel("Funnel", "Rows that each step let through, and those that it dropped, by reason.",
    names, series, "count", { barmode: "stack" });
}

function rewardsSection({ head }) {
  const { components, correlation, correlation_within: within } = head.figures;
  const names = Object.keys(components);
  if (!names.length) return section("rewards", "Rewards", make("p", { text: "No component in this set." }), signsPanel());
  const shares = ["variance_share", "mass_share"].map((key) => names.map((name) => components[name][key]));
  const isSplit = names.length > 1 && shares.some((own) => own.some((each) => each !== null));
  const made = isSplit ? barPanel("What advantages are made of", "", names, [
    { name: "variance share", values: shares[0] }, { name: "mass share", values: shares[1] }], "share", { barmode: "group" }) : null;
  const histograms = names.map((name) =>
    histogramPanel(`Values of ${name}`, "", components[name].histogram, name, "number"));
  return section("rewards", "Rewards", signsPanel(), componentsPanel(names, components),
    ...panelGrid(made, ...correlationPanels(names, correlation, within), ...histograms));
}

function componentsPanel(names, components) {
  const rows = names.map((name) => {
    const each = components[name];
    const missing = Object.entries(each.missing).map(([slug, n]) => `${slug} ${shown(n, "count")}`).join(", ");
    return [name, each.n, each.mean, each.std, ...(each.quantiles.length ? each.quantiles : Array(7).fill(null)),
      missing || 0, each.variance_share, each.mass_share];
  });
  const headings = ["component", ["n", "count"], "mean", "sd", "min", "5%", "25%", "50%", "75%", "95%", "max",
    ["missing", "count"], ["variance share", "share"], ["mass share", "share"]];
  const panel = make("div", { class: "panel" }, make("h3", { text: "Components" }),
    make("div", { class: "hint", text: "Variance share: of the advantages of kept rows; shares add up to 100%, "
      + "and one below 0 works against the others. Mass share: of the weights in front of grad log p." }),
    figureTable(headings, rows));
  panel.dataset.figure = "Components";
  return panel;
}

function signsPanel() {
  if (!HEAD.signs.length) return null;
  const headings = ["sign", "set", "p", "effect", "", ""];
  const rows = HEAD.signs.map((sign) => [sign.name, sign.set || "all rows",
    sign.p === null ? null : sign.p < 0.0001 ? "<0.0001" : sign.p.toFixed(4), sign.effect, sign.alarm ? "alarm" : "", sign.reason]);
  const place = figureTable(headings, rows);
  const table = place.firstChild;
  // A result in memory has no file that a command could name.
  const withCommands = HEAD.signs.some((sign) => sign.command);
  if (withCommands) table.tHead.rows[0].append(make("th", { text: "its rows" }));
  HEAD.signs.forEach((sign, at) => {
    table.tBodies[0].rows[at].classList.toggle("alarm", sign.alarm);
    if (withCommands) table.tBodies[0].rows[at].append(make("td", {}, commandBox(sign.command)));
  });
  const panel = make("div", { class: "panel", id: "signs" }, make("h3", { text: "Signs of reward hacking" }),
    make("div", { class: "hint", text: "What the reward goes with, against permuted groups: of clean runs, at most 1 in "
      + "100 has an alarm. A sign is a correlation, not proof: read its rows." }), place);
  panel.dataset.figure = "Signs";
  return panel;
}

function lengthsSection({ head, columns, slugs }) {
  const { lengths, advantages, groups, length_unit: unit } = head.figures;
  const kinds = slugs.verdict.map((slug, at) => ({ slug: slug || "not graded", at }));
  const rows = kinds.map(({ slug, at }) => {
    const own = [];
    columns.verdict.forEach((verdict, row) => {
      if (verdict === at && columns.length[row] >= 0) own.push(columns.length[row]);
    });
    own.sort((a, b) => a - b);
    const quantile = (q) => (own.length ? own[Math.round(q * (own.length - 1))] : null);
    const mean = own.length ? own.reduce((sum, n) => sum + n, 0) / own.length : null;
    return [slug, own.length, mean, quantile(0.05), quantile(0.5), quantile(0.95)];
  }).filter((row) => row[1]);
  const byVerdict = make("div", { class: "panel" }, make("h3", { text: `Length by verdict (${unit})` }),
    figureTable(["verdict", ["rows", "count"], ["mean", "length"], ["5%", "count"], ["median", "count"], ["95%", "count"]], rows));
  const silent = groups.without_signal === null ? "" : `Groups without signal (all advantages 0 or none): ${shown(groups.without_signal, "count")} of `
    + `${shown(groups.groups, "count")}${groups.groups ? ` (${shown(groups.without_signal / groups.groups, "share")})` : ""}.`;
  return section("lengths", "Lengths and advantages", ...panelGrid(
    histogramPanel(`Lengths (${unit})`, "", lengths, unit, "count"), rows.length > 1 ? byVerdict : null,
    histogramPanel("Advantages", silent, advantages, "advantage", "number")));
}

function timeSection({ head }) {
  const { funnel } = head.figures;
  // Training keeps no seconds of single steps; those of sampling and of the update are among its curves.
  if (head.step !== null || !funnel.length) return null;
  const whole = funnel.reduce((sum, { seconds }) => sum + seconds, 0);
  const rows = funnel.map((each, at) => [`${at + 1} ${each.step}`, each.seconds, whole ? each.seconds / whole : null, each.cached ? "yes" : "no", each.retried,
    Object.entries(each.notes).map(([name, n]) => `${name} ${shown(n, Number.isInteger(n) ? "count" : "number")}`).join(", ")]);
  const table = make("div", { class: "panel" }, figureTable(["step", ["seconds", "seconds"], ["share", "share"], "from the cache", ["rows retried", "count"], "notes"], rows));
  table.dataset.figure = "Time";
  return section("time", "Time", table);
}
