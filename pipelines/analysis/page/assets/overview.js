/* The sections with figures of a set. */

function section(id, title, ...children) {
  return make("section", { id }, make("h2", { text: title }), ...children);
}

function tile(value, label, note = "") {
  return make("div", { class: "tile" }, make("b", { text: shown(value) }), make("span", { text: label }),
    note ? make("div", { class: "hint", text: note }) : null);
}

function share(part, whole) {
  return whole ? `${(100 * part / whole).toFixed(1)}%` : "";
}

function overviewSection({ head, columns }) {
  const { groups, funnel } = head.figures;
  const kept = columns.fate.reduce((n, fate) => n + (fate < 0), 0);
  const tiles = make("div", { class: "tiles" },
    tile(head.rows, "rows after sampling"),
    tile(kept, "kept", share(kept, head.rows)),
    tile(groups.groups, "groups with responses"),
    tile(groups.all_right, "groups all right", share(groups.all_right, groups.groups)),
    tile(groups.mixed, "groups mixed", share(groups.mixed, groups.groups)),
    tile(groups.all_wrong, "groups all wrong", share(groups.all_wrong, groups.groups)),
    tile(groups.ungraded, "groups not graded", share(groups.ungraded, groups.groups)),
    tile(groups.without_signal, "groups without signal", share(groups.without_signal, groups.groups)));
  const reasons = [...new Set(funnel.flatMap(({ dropped }) => Object.keys(dropped)))];
  const names = funnel.map(({ step }, at) => `${at + 1} ${step}`);
  const series = [{ name: "rows out", values: funnel.map(({ rows_out: n }) => n) },
    ...reasons.map((name) => ({ name, values: funnel.map(({ dropped }) => dropped[name] || 0) }))];
  const plot = barPanel("Funnel", "Rows that each step let through, and those that it dropped, by reason.",
    names, series, { barmode: "stack" });
  plot.querySelector(".plot").style.height = `${120 + 24 * names.length}px`;
  const rates = histogramPanel("Pass rates", "Groups by the share of right responses among the graded.",
    groups.pass_rates, "pass rate");
  return section("overview", "Overview", tiles, make("div", { class: "grid" }, plot, rates));
}

function rewardsSection({ head }) {
  const { components, correlation, correlation_within: within } = head.figures;
  const names = Object.keys(components);
  if (!names.length) return section("rewards", "Rewards", make("p", { text: "No component in this set." }));
  const rows = names.map((name) => {
    const each = components[name];
    const missing = Object.entries(each.missing).map(([slug, n]) => `${slug} ${n}`).join(", ");
    return [name, each.n, each.mean, each.std, ...(each.quantiles.length ? each.quantiles : Array(7).fill(null)),
      missing || "0", each.variance_share, each.mass_share, each.dominant_groups];
  });
  const headings = ["component", "n", "mean", "std", "min", "5%", "25%", "50%", "75%", "95%", "max",
    "missing", "variance share", "mass share", "dominant in groups"];
  const table = make("div", { class: "panel" }, make("h3", { text: "Components" }),
    make("div", { class: "hint", text: "Variance share: of the advantages of kept rows; shares add up to 1, "
      + "and one below 0 works against the others. Mass share: of the weights in front of grad log p." }),
    figureTable(headings, rows));
  table.dataset.figure = "Components";
  const shares = barPanel("What advantages are made of", "", names, [
    { name: "variance share", values: names.map((name) => components[name].variance_share) },
    { name: "mass share", values: names.map((name) => components[name].mass_share) }], { barmode: "group" });
  const histograms = names.map((name) =>
    histogramPanel(`Values of ${name}`, "", components[name].histogram, name));
  return section("rewards", "Rewards", table, make("p"), signsPanel(), make("p"), make("div", { class: "grid" }, shares,
    heatmapPanel("Correlation", "Pearson's r, over rows that have both.", names, correlation),
    heatmapPanel("Correlation within groups", "After the group's mean is taken off.", names, within),
    ...histograms));
}

function signsPanel() {
  if (!HEAD.signs.length) return null;
  const rows = HEAD.signs.map((sign) => [sign.name, sign.set || "all rows",
    sign.p === null ? null : sign.p.toFixed(4), sign.effect,
    sign.alarm ? "alarm" : "", sign.reason]);
  const panel = make("div", { class: "panel" }, make("h3", { text: "Signs of reward hacking" }),
    make("div", { class: "hint", text: "What the reward goes with, against permuted groups: of clean runs, at most 1 in "
      + "100 has an alarm. Their rows: rejuice audit PATH --rows NAME_WITH_UNDERSCORES." }),
    figureTable(["sign", "set", "p", "effect", "alarm", "why not"], rows));
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
    figureTable(["verdict", "rows", "mean", "5%", "median", "95%"], rows));
  const silent = `Groups without signal (all advantages 0 or none): ${shown(groups.without_signal)} of `
    + `${shown(groups.groups)} (${share(groups.without_signal, groups.groups)}).`;
  return section("lengths", "Lengths and advantages", make("div", { class: "grid" },
    histogramPanel(`Lengths (${unit})`, "", lengths, unit),
    histogramPanel("Advantages", silent, advantages, "advantage"), byVerdict));
}

function mapSection(set) {
  const { columns, head } = set;
  if (!columns.map_x) return null;
  const LOOKS = { correct: ["circle", "#009e73"], wrong_answer: ["x", "#d55e00"], no_answer: ["square", "#e69f00"], "": ["diamond", "#999999"] };
  const traces = set.slugs.verdict.map((slug, at) => {
    const rows = [];
    columns.map_x.forEach((x, row) => { if (!Number.isNaN(x) && columns.verdict[row] === at) rows.push(row); });
    return { type: "scatter", mode: "markers", name: plain(slug || "not graded"), rows,
      x: rows.map((row) => columns.map_x[row]), y: rows.map((row) => columns.map_y[row]),
      marker: { size: 7, opacity: 0.7, symbol: (LOOKS[slug] || ["cross"])[0], color: (LOOKS[slug] || ["", "#cc79a7"])[1] },
      hovertemplate: "%{x:.2f}, %{y:.2f}<extra></extra>" };
  }).filter(({ rows }) => rows.length);
  const n = traces.reduce((sum, { rows }) => sum + rows.length, 0);
  const panel = plotPanel("Map of responses",
    `${shown(n)} of ${shown(head.rows)} responses by their n-grams, on the two directions in which they `
    + "differ most. A click opens the group.", traces, { showlegend: true }, ["verdict", "responses"],
    traces.map(({ name, rows }) => [name, rows.length]));
  const place = panel.querySelector(".plot");
  place.style.height = "460px";
  place.whenDrawn = () => place.on("plotly_click", ({ points }) => {
    const row = points[0].data.rows[points[0].pointIndex];
    openGroup(set.groupOf[row], true);
  });
  return section("map", "Map", panel);
}

function timeSection({ head }) {
  const { funnel } = head.figures;
  if (head.step !== null) {
    return section("time", "Time", make("p", { text: "Training keeps no seconds of single steps; those of "
      + "sampling and of the update are among its curves, below." }));
  }
  const rows = funnel.map((each) => [each.step, each.seconds, each.cached ? "yes" : "no", each.retried,
    Object.entries(each.notes).map(([name, n]) => `${name} ${shown(n)}`).join(", ")]);
  const table = make("div", { class: "panel" }, make("h3", { text: "Steps" }),
    figureTable(["step", "seconds", "from the cache", "rows retried", "notes"], rows));
  return section("time", "Time", make("div", { class: "grid" },
    barPanel("Seconds", "", funnel.map(({ step }, at) => `${at + 1} ${step}`),
      [{ name: "seconds", values: funnel.map(({ seconds }) => seconds) }]), table));
}
