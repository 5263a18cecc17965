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
  if (!place.dataset.drawn && place.whenDrawn) place.whenDrawn();
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

function histogramPanel(title, note, { edges, counts }, xTitle) {
  if (!counts.length) return emptyPanel(title, "No row has a value.");
  const centres = counts.map((_, at) => (edges[at] + edges[at + 1]) / 2);
  const widths = counts.map((_, at) => edges[at + 1] - edges[at] || 1);
  const trace = { type: "bar", x: centres, y: counts, width: widths,
    hovertemplate: "%{x:.4g}: %{y}<extra></extra>" };
  const rows = counts.map((count, at) => [edges[at], edges[at + 1], count]);
  return plotPanel(title, note, [trace], { xaxis: { title: { text: plain(xTitle) } } },
    ["from", "to", "count"], rows);
}

/** Bars of several series over names; the names are of operators, and not to be trusted. */
function barPanel(title, note, names, series, layout = {}) {
  const labels = names.map(plain);
  const traces = series.map(({ name, values }) => ({
    type: "bar", orientation: "h", y: labels, x: values, name: plain(name),
    hovertemplate: "%{x:.4g}<extra></extra>",
  }));
  const rows = names.map((each, at) => [each, ...series.map(({ values }) => values[at])]);
  return plotPanel(title, note, traces,
    { yaxis: { type: "category", autorange: "reversed" }, showlegend: series.length > 1, ...layout },
    ["", ...series.map(({ name }) => name)], rows);
}

function heatmapPanel(title, note, names, values) {
  const labels = names.map(plain);
  const trace = { type: "heatmap", x: labels, y: labels, z: values, zmin: -1, zmax: 1,
    colorscale: [[0, "#d55e00"], [0.5, "#f7f7f7"], [1, "#0072b2"]],
    hovertemplate: "%{x}, %{y}: %{z:.3f}<extra></extra>" };
  const rows = names.map((each, at) => [each, ...values[at]]);
  return plotPanel(title, note, [trace],
    { xaxis: { type: "category" }, yaxis: { type: "category", autorange: "reversed" } },
    ["", ...names], rows);
}

function linePanel(title, note, x, series, xTitle) {
  const traces = series.map(({ name, values }) => ({
    type: "scatter", mode: x.length > 60 ? "lines" : "lines+markers", connectgaps: true, x, y: values, name: plain(name),
    hovertemplate: "%{x}: %{y:.4g}<extra></extra>",
  }));
  const rows = x.map((each, at) => [each, ...series.map(({ values }) => values[at])]);
  return plotPanel(title, note, traces,
    { xaxis: { title: { text: xTitle } }, showlegend: series.length > 1 },
    [xTitle, ...series.map(({ name }) => name)], rows);
}

function emptyPanel(title, text) {
  return make("div", { class: "panel" }, make("h3", { text: title }), make("p", { class: "quiet", text }));
}
