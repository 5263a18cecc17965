/* The browser of samples: filters and search, a list of groups, and below it the one that is open. */

const samples = { set: null, mask: null, found: null, words: "", groups: [], open: -1, table: null, run: 0 };

const LISTED = 6;
const PASS_RATE = 3, SPREAD = 7;  // Places in a line of the list.
const KEYS_HINT = "Keys: j and k for the next and the previous group, / to search, ? for all.";

function samplesSection() {
  return section("samples", "Samples", filterForm(samples.set),
    make("p", { class: "hint", id: "matches", role: "status" }),
    samples.set.head.note ? make("p", { class: "hint", text: samples.set.head.note }) : null,
    make("div", { id: "list-place" }), make("div", { id: "group", tabIndex: -1 }));
}

function field(label, control) {
  return make("label", {}, label, control);
}

function choiceOf(name, options) {
  const select = make("select", { name });
  for (const [value, text] of options) {
    const option = make("option", { value });
    addText(option, text);
    select.append(option);
  }
  return select;
}

function slugOptions(set, name) {
  return [["", "any"], ...set.slugs[name].map((slug, at) => [String(at + 1), slug || "none"])];
}

const NAMED_FILTERS = new Set(["verdict", "reason", "finish_reason"]);  // Each has a choice of its own.
const PLACES = new Set(["row", "fate"]);

function filterForm(set) {
  const { columns, steps } = set.head;
  const numbers = columns.filter(({ name, slugs }) => !slugs.length && !PLACES.has(name)).map(({ name }) => name);
  const figures = [...new Set(["reward", "advantage", "length", ...numbers])];
  const fates = [["", "any"], ["-1", "kept"], ["dropped", "dropped"], ...steps.map(({ number, name }) => [String(number), `dropped by ${number === BY_TRAINING ? "" : `${number} `}${name}`])];
  const form = make("form", { class: "filters", id: "filters" },
    field("Search in texts", make("input", { type: "search", name: "words", id: "search" })),
    field("Verdict", choiceOf("verdict", slugOptions(set, "verdict"))),
    field("Fate", choiceOf("fate", fates)),
    field("Reason", choiceOf("reason", slugOptions(set, "reason"))),
    field("Finish", choiceOf("finish_reason", slugOptions(set, "finish_reason"))),
    field("Column", choiceOf("column", [["", "any"], ...columns.filter(({ name, slugs }) => slugs.length && !NAMED_FILTERS.has(name)).map(({ name }) => [name, name])])),
    field("is", choiceOf("value", [["", "any"]])),
    field("Figure", choiceOf("figure", figures.map((name) => [name, name]))),
    field("from", make("input", { type: "number", step: "any", name: "least" })),
    field("to", make("input", { type: "number", step: "any", name: "most" })),
    make("label", { class: "inline" }, make("input", { type: "checkbox", name: "failures", id: "failures" }), "reward missing"),
    make("button", { type: "reset", text: "Clear" }));
  form.addEventListener("submit", (event) => { event.preventDefault(); applyFilters(); });
  const values = () => form.value.replaceChildren(...choiceOf("value", form.column.value ? slugOptions(set, form.column.value) : [["", "any"]]).children);
  form.addEventListener("change", ({ target }) => { if (target === form.column) values(); applyFilters(); });
  form.addEventListener("reset", () => setTimeout(() => { values(); applyFilters(); }));
  return form;
}

/** The rows that pass the form, a Uint8Array; a search in the texts is done before. */
function passing(set, form, found) {
  const { columns, head } = set;
  const number = (name) => (form[name].value === "" ? null : Number(form[name].value));
  const [verdict, reason, finish] = ["verdict", "reason", "finish_reason"].map(number);
  const fate = form.fate.value === "dropped" ? "dropped" : number("fate");
  const [least, most] = [number("least"), number("most")];
  const figure = columns[form.figure.value], column = columns[form.column.value], value = column ? number("value") : null;
  const missing = head.components.map((name) => columns[`reward_${name}_missing`]);
  const mask = new Uint8Array(head.rows);
  for (let row = 0; row < head.rows; row += 1) {
    const own = columns.fate[row];
    mask[row] = Number((found === null || found[row])
      && (verdict === null || columns.verdict[row] === verdict - 1)
      && (fate === null || (fate === "dropped" ? own >= 0 : own === fate))
      && (reason === null || columns.reason[row] === reason - 1)
      && (finish === null || columns.finish_reason[row] === finish - 1)
      && (value === null || column[row] === value - 1)
      && (least === null || figure[row] >= least)
      && (most === null || figure[row] <= most)
      && (!form.failures.checked || missing.some((column) => column[row] > 0)));
  }
  return mask;
}

async function applyFilters() {
  const set = samples.set, form = document.getElementById("filters"), words = form.words.value.trim();
  const run = samples.run += 1;
  const status = document.getElementById("matches");
  if (words !== samples.words) {
    status.textContent = words ? "Searching …" : "";
    const found = words ? await set.search(words, () => run !== samples.run) : null;
    if (run !== samples.run) return;
    [samples.found, samples.words] = [found, words];
  }
  samples.mask = passing(set, form, samples.found);
  let rows = 0;
  const shownGroups = [];
  for (let group = 0; group < set.head.groups; group += 1) {
    let n = 0;
    for (let row = set.groupsAt[group]; row < set.end(group); row += 1) n += samples.mask[row];
    if (n) shownGroups.push(listLine(set, group, n));
    rows += n;
  }
  // The list is ordered by one column; of equal ones, those with the lower pass rate are first.
  shownGroups.sort((a, b) => (a[PASS_RATE] ?? -1) - (b[PASS_RATE] ?? -1));
  samples.table.clear().rows.add(shownGroups).draw();
  status.textContent = `${shown(rows, "count")} of ${shown(set.head.rows, "count")} rows in ${shown(shownGroups.length, "count")} groups. ${KEYS_HINT}`;
  status.dataset.rows = rows;
  status.dataset.groups = shownGroups.length;
}

/** A line of the list: group, its number, excerpt, pass rate, matching rows, kept, mean reward, spread. */
function listLine(set, group, n) {
  const { verdict, fate, reward } = set.columns;
  const right = set.slugs.verdict.indexOf("correct");
  const wrong = ["wrong_answer", "no_answer"].map((slug) => set.slugs.verdict.indexOf(slug));
  let rights = 0, graded = 0, kept = 0, sum = 0, squares = 0, known = 0;
  for (let row = set.groupsAt[group]; row < set.end(group); row += 1) {
    rights += verdict[row] === right;
    graded += verdict[row] === right || wrong.includes(verdict[row]);
    kept += fate[row] < 0;
    if (!Number.isNaN(reward[row])) { sum += reward[row]; squares += reward[row] ** 2; known += 1; }
  }
  const mean = known ? sum / known : null;
  const spread = known ? Math.sqrt(Math.max(0, squares / known - mean ** 2)) : null;
  return [group, rowNumbers(set, group)?.[0] ?? null, set.excerpts[group], graded ? rights / graded : null, n, kept, mean, spread];
}

async function showList() {
  const { jQuery } = await library("tables");
  const DataTable = jQuery.fn.dataTable;
  const table = make("table", { id: "list", class: "display compact" });
  document.getElementById("list-place").replaceChildren(table);
  const text = DataTable.render.text();
  const wide = !matchMedia("(max-width: 900px)").matches;
  const column = (title, kind, more = {}) => ({ title, ...more,
    // Numbers stay numbers for sorting; what a cell shows is always a text node, made here.
    createdCell: (td, value) => { td.replaceChildren(); addText(td, typeof value === "number" ? shown(value, kind) : value ?? "–"); },
    render: (value, type) => (type === "display" ? text.display(value === null ? "" : value) : value === null ? -Infinity : value) });
  samples.table = new DataTable(table, {
    data: [], autoWidth: false, deferRender: true, pageLength: LISTED, lengthChange: false, searching: false,
    order: [[SPREAD, "desc"]], layout: { topStart: null, topEnd: null, bottomStart: "info", bottomEnd: "paging" },
    columns: [{ visible: false }, column("Row", "count"), column("Prompt", "count", { className: "excerpt" }), column("Pass rate", "share"),
      column("Rows", "count", { visible: wide }), column("Kept", "count", { visible: wide }),
      column("Reward", "number"), column("sd", "number", { visible: wide })],
    createdRow: (line, data) => {
      line.tabIndex = 0;
      line.dataset.group = data[0];
      line.addEventListener("click", () => openGroup(data[0], true));
    },
  });
  await applyFilters();
}

/** Groups in the order of the list, on all of its pages. */
function listedGroups() {
  return samples.table.rows({ order: "applied" }).data().toArray().map((line) => line[0]);
}

/** Open a group below the list, and show its line; with `focus`, go to it where it is out of sight. */
async function openGroup(group, focus = false) {
  samples.open = group;
  const set = samples.set, place = document.getElementById("group");
  const texts = await set.texts(group);
  if (samples.open !== group || samples.set !== set) return;
  place.replaceChildren(...groupCards(set, group, texts, samples.mask));
  place.dataset.group = group;
  if (!document.querySelector(`#list tbody tr[data-group="${group}"]`)) {  // It is on another page of the list.
    const at = listedGroups().indexOf(group);
    if (at >= 0) samples.table.page(Math.floor(at / samples.table.page.len())).draw("page");
  }
  for (const line of document.querySelectorAll("#list tbody tr")) {
    line.classList.toggle("open", Number(line.dataset.group) === group);
  }
  writeHash();
  const { top } = place.getBoundingClientRect();
  if (focus && (top < 0 || top > innerHeight * 0.7)) place.scrollIntoView();
}

/** Open the first group of the list, unless one is open. */
async function openFirst() {
  const first = document.querySelector("#list tbody tr")?.dataset.group;
  if (samples.open < 0 && first !== undefined) await openGroup(Number(first));
}

function closeGroup() {
  samples.open = -1;
  document.getElementById("group").replaceChildren();
  delete document.getElementById("group").dataset.group;
  document.querySelector("#list tr.open")?.classList.remove("open");
  writeHash();
}

function nextGroup(by) {
  const listed = listedGroups();
  if (!listed.length) return;
  const at = listed.indexOf(samples.open);
  const next = at < 0 ? 0 : Math.min(Math.max(at + by, 0), listed.length - 1);
  document.getElementById("group").scrollIntoView();
  openGroup(listed[next], true);
}
