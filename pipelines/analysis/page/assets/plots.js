/* Plots by plotly.js, each with the same figures as a table. Drawn when they come into view. */

// Okabe and Ito's colours, which people with any colour vision can tell apart.
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999"];
const drawn = new Map();

function colourOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function layoutOf(layout) {
  const axis = { gridcolor: colourOf("--line"), zerolinecolor: colourOf("--line"), automargin: true };
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colourOf("--ink"), family: "system-ui, sans-serif", size: 12 },
    margin: { l: 48, r: 12, t: 8, b: 40 },
    colorway: COLOURS,
    bargap: 0.04,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, traceorder: "normal" },
    ...layout,
    xaxis: { ...axis, ...layout.xaxis },
    yaxis: { ...axis, ...layout.yaxis },
  };
}

async function drawInto(place, traces, layout) {
  const Plotly = await library("plotly");
  drawn.set(place, { traces, layout });
  await Plotly.react(place, traces, layoutOf(layout), { responsive: true, displayModeBar: false });
  place.dataset.drawn = "1";
}

const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) {
      watcher.unobserve(target);
      drawInto(target, target.traces, target.layout);
    }
  }
}, { rootMargin: "200px" });

/** Draw again what is on the page, after a change of colours. */
async function redraw() {
  for (const [place, { traces, layout }] of drawn) {
    if (place.isConnected) await drawInto(place, traces, layout);
    else drawn.delete(place);
  }
}

/** Printed, every plot is there, and as wide as a page: they are drawn for screens, and when seen. */
const PRINTED_PX = 680;
addEventListener("beforeprint", () => {
  for (const place of document.querySelectorAll(".plot")) {
    globalThis.Plotly?.react(place, place.traces, { ...layoutOf(place.layout), width: PRINTED_PX });
  }
});
addEventListener("afterprint", redraw);

const AXES = { count: ",d", share: ".1~%", length: ",", number: ",.4~g", seconds: ",.4~g" };
const HOVER = { count: ",d", share: ".1%", length: ",.1f", number: ".3f", seconds: ",.2f" };

/** A grid of panels; of figures without a plot, which say little, only a line that opens. */
function panelGrid(...panels) {
  const found = panels.filter(Boolean), flat = found.filter((each) => each.tagName === "DETAILS");
  return [make("div", { class: "grid" }, ...found.filter((each) => !flat.includes(each))),
    flat.length ? make("div", { class: "flat" }, ...flat) : null];
}

/** What stands for a plot of values that are all the same: a line, and its table. */
function flatFigure(title, note, headings, rows) {
  const found = make("details", {}, make("summary", { text: `${title}: ${note}` }), figureTable(headings, rows));
  found.dataset.figure = title;
  return found;
}

/** A panel with a plot and its figures as a table. */
function plotPanel(title, note, traces, layout, headings, rows) {
  const place = make("div", { class: "plot" });
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", title);
  place.traces = traces;
  place.layout = layout;
  watcher.observe(place);
  const table = make("details", {}, make("summary", { text: "as a table" }), figureTable(headings, rows));
  table.dataset.figure = title;
  return make("div", { class: "panel" }, make("h3", { text: title }),
    note ? make("div", { class: "hint", text: note }) : null, place, table);
}

function histogramPanel(title, note, { edges, counts }, xTitle, kind, yTitle = "responses") {
  if (!counts.length) return null;
  const rows = counts.map((count, at) => [edges[at], edges[at + 1], count]);
  const headings = [["from", kind], ["to", kind], [yTitle, "count"]];
  const filled = counts.map((count, at) => at).filter((at) => counts[at]);
  if (filled.length < 2) {
    const at = filled[0] ?? 0;
    return flatFigure(title, `${shown((edges[at] + edges[at + 1]) / 2, kind)} in all ${shown(counts[at], "count")} ${yTitle}`, headings, rows);
  }
  const centres = counts.map((_, at) => (edges[at] + edges[at + 1]) / 2);
  const widths = counts.map((_, at) => edges[at + 1] - edges[at] || 1);
  const trace = { type: "bar", x: centres, y: counts, width: widths,
    hovertemplate: `%{x:${HOVER[kind]}}: %{y:,d}<extra></extra>` };
  return plotPanel(title, note, [trace], { xaxis: { title: { text: plain(xTitle) }, tickformat: AXES[kind] },
    yaxis: { title: { text: yTitle }, tickformat: ",d" } }, headings, rows);
}

/** Bars of several series over names; the names are of operators, and not to be trusted. */
function barPanel(title, note, names, series, kind, layout = {}) {
  const labels = names.map(plain);
  const traces = series.map(({ name, values }) => ({
    type: "bar", orientation: "h", y: labels, x: values, name: plain(name),
    hovertemplate: `%{x:${HOVER[kind]}}<extra></extra>`,
  }));
  const rows = names.map((each, at) => [each, ...series.map(({ values }) => values[at])]);
  const panel = plotPanel(title, note, traces, { xaxis: { tickformat: AXES[kind] },
    yaxis: { type: "category", autorange: "reversed" }, showlegend: series.length > 1, ...layout },
  ["", ...series.map(({ name }) => [name, kind])], rows);
  panel.querySelector(".plot").style.height = `${100 + 24 * Math.max(names.length, 3)}px`;
  return panel;
}

/** Correlations of components: a map with its numbers, or for up to three a table of the pairs. */
function correlationPanels(names, whole, within) {
  const pairs = names.flatMap((a, at) => names.slice(at + 1).map((b, after) => [at, at + 1 + after]))
    .filter(([a, b]) => whole[a][b] !== null || within[a][b] !== null);
  if (!pairs.length) return [];
  if (names.length > 3) {
    return [heatmapPanel("Correlation", "Pearson's r, over rows that have both.", names, whole),
      heatmapPanel("Correlation within groups", "After the group's mean is taken off.", names, within)];
  }
  const rows = pairs.map(([a, b]) => [`${names[a]}, ${names[b]}`, whole[a][b], within[a][b]]);
  const panel = make("div", { class: "panel" }, make("h3", { text: "Correlation of components" }),
    make("div", { class: "hint", text: "Pearson's r over rows that have both; within groups, after the group's mean is taken off." }),
    figureTable(["components", "over all rows", "within groups"], rows));
  panel.dataset.figure = "Correlation";
  return [panel];
}

function heatmapPanel(title, note, names, values) {
  const labels = names.map(plain);
  const trace = { type: "heatmap", x: labels, y: labels, z: values, zmin: -1, zmax: 1,
    texttemplate: "%{z:.2f}", textfont: { color: "#1b1f24" },
    colorscale: [[0, "#d55e00"], [0.5, "#f7f7f7"], [1, "#56b4e9"]],
    hovertemplate: "%{x}, %{y}: %{z:.3f}<extra></extra>" };
  const rows = names.map((each, at) => [each, ...values[at]]);
  return plotPanel(title, note, [trace],
    { xaxis: { type: "category" }, yaxis: { type: "category", autorange: "reversed" } },
    ["", ...names], rows);
}

/** Lines over x; those that never change, or repeat another, are in the table only, and without others there is no plot. */
function linePanel(title, note, x, series, xTitle, kind) {
  const changes = ({ values }) => new Set(values.filter((each) => each !== null)).size > 1;
  const hasEnds = ({ ends }) => ends?.some(Boolean);
  const headings = [[xTitle, "count"], ...series.flatMap((each) =>
    [[each.name, kind], ...(hasEnds(each) ? [["95% from", kind], ["to", kind]] : [])])];
  const rows = x.map((step, at) => [step, ...series.flatMap((each) =>
    [each.values[at], ...(hasEnds(each) ? each.ends[at] ?? [null, null] : [])])]);
  const lines = series.filter(changes);
  const drawnLines = [...new Map(lines.map((each) => [each.values.map((value) => value?.toPrecision(5)).join(), each]).reverse()).values()].reverse();
  if (!drawnLines.length) {
    const values = series.map(({ name, values: own }) => `${name} ${shown(own.find((each) => each !== null), kind)}`);
    return flatFigure(title, `the same throughout: ${values.join(", ")}`, headings, rows);
  }
  const traces = drawnLines.map(({ name, values, ends }) => ({
    type: "scatter", mode: x.length > 60 ? "lines" : "lines+markers", connectgaps: true, x, y: values, name: plain(name),
    hovertemplate: `%{x}: %{y:${HOVER[kind]}}<extra></extra>`,
    ...(hasEnds({ ends }) ? { error_y: { type: "data", symmetric: false, thickness: 1, width: 3,
      array: values.map((value, at) => (ends[at] ? ends[at][1] - value : null)),
      arrayminus: values.map((value, at) => (ends[at] ? value - ends[at][0] : null)) } } : {}),
  }));
  const ticks = x.length > 10 ? {} : { tickvals: x };
  return plotPanel(title, note, traces,
    { xaxis: { title: { text: xTitle }, ...ticks }, yaxis: { tickformat: AXES[kind] }, showlegend: true },
    headings, rows);
}
