/* The page: its sections, keys, colours, and what its address remembers. */

const HASH = /^#(?:set=(\d{1,6}))?(?:&group=(\d{1,9}))?(?:&theme=(dark|light))?$/;
const KEYS = [["j, k", "next, previous group"], ["Enter", "open the group of the focused line"], ["Esc", "close the group"],
  ["/", "search in texts"], ["[, ]", "previous, next set"], ["f", "only rows whose reward is missing"], ["?", "these keys"]];
const MOST_NUMBERED = 9;
const sets = new Map();
let current = 0;

function loadedSet(at) {
  if (!sets.has(at)) sets.set(at, new SetData(HEAD.sets[at]).load());
  return sets.get(at);
}

function writeHash() {
  const group = samples.open >= 0 ? `&group=${samples.open}` : "";
  history.replaceState(null, "", `#set=${current}${group}&theme=${document.documentElement.dataset.theme}`);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.documentElement.classList.toggle("dark", theme === "dark");
  document.getElementById("theme").textContent = theme === "dark" ? "Light" : "Dark";
  redraw();
}

function fillIndex() {
  const index = document.getElementById("index");
  const sections = [...document.querySelectorAll("main > section")];
  index.replaceChildren(...sections.map((each, at) => {
    const button = make("button", { type: "button", text: `${at + 1} ${each.querySelector("h2").textContent}` });
    button.addEventListener("click", () => each.scrollIntoView());
    return button;
  }));
}

function recipeSection() {
  if (!HEAD.recipe) return null;
  return section("recipe", "Recipe", make("details", {}, make("summary", { text: "as it ran" }), textBox(HEAD.recipe)));
}

/** The sections in their order: what the page is about, samples, and the others. */
function sectionsOf(set) {
  const [first, ...others] = [pairSection(), trainingSection(), overviewSection(set)].filter(Boolean);
  return [first, samplesSection(), ...others, rewardsSection(set), lengthsSection(set), timeSection(set),
    changeSection(), recipeSection()].filter(Boolean);
}

async function showSet(at, group = -1) {
  current = at;
  const main = document.getElementById("main");
  samples.open = -1;
  samples.run += 1;
  if (!HEAD.sets.length) {
    fillHeader(null);
    main.replaceChildren(...[trainingSection(), recipeSection()].filter(Boolean));
    fillIndex();
    document.documentElement.dataset.ready = "1";
    return;
  }
  const set = await loadedSet(at);
  if (current !== at) return;  // Another was asked for in the meantime.
  samples.set = set;
  [samples.mask, samples.found, samples.words] = [null, null, ""];
  const banner = document.getElementById("banner");
  banner.hidden = !set.head.banner;
  addText(replaced("banner"), set.head.banner);
  document.getElementById("set").value = String(at);
  fillHeader(set.head);
  main.replaceChildren(...sectionsOf(set));
  fillIndex();
  await showList();
  document.documentElement.dataset.ready = "1";
  if (group >= 0 && group < set.head.groups) await openGroup(group, true);
  else await openFirst();
}

function fillSets() {
  const select = document.getElementById("set");
  HEAD.sets.forEach((each, at) => {
    const option = make("option", { value: String(at) });
    addText(option, each.name || HEAD.title);
    select.append(option);
  });
  document.getElementById("set-choice").hidden = HEAD.sets.length < 2;
  select.addEventListener("change", () => showSet(Number(select.value)).then(writeHash));
}

/** The keys, as many of them for sections as the page has. */
function showKeys() {
  const sections = Math.min(MOST_NUMBERED, document.querySelectorAll("main > section").length);
  const ofSections = [sections > 1 ? `1 to ${sections}` : "1", "go to a section"];
  replaced("keys").append(make("h2", { text: "Keys" }), figureTable(["key", ""], [...KEYS, ofSections]),
    make("form", { method: "dialog" }, make("button", { text: "Close" })));
  document.getElementById("keys").showModal();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target instanceof Element && event.target.matches("input, select, textarea");
  if (typing) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const sections = document.querySelectorAll("main > section");
  const { key } = event;
  const form = document.getElementById("filters");
  if (key === "?") showKeys();
  else if (/^[1-9]$/.test(key) && sections[key - 1]) sections[key - 1].scrollIntoView();
  else if (key === "[" && current > 0) showSet(current - 1).then(writeHash);
  else if (key === "]" && current + 1 < HEAD.sets.length) showSet(current + 1).then(writeHash);
  else if (!form) return;
  else if (key === "j" || key === "k") nextGroup(key === "j" ? 1 : -1);
  else if (key === "Enter" && event.target.dataset?.group && event.target.closest("#list")) openGroup(Number(event.target.dataset.group), true);
  else if (key === "Escape" && !document.getElementById("keys").open) closeGroup();
  else if (key === "/") { event.preventDefault(); form.scrollIntoView(); form.words.focus(); }
  else if (key === "f") { form.failures.checked = !form.failures.checked; applyFilters(); }
}

async function start() {
  const [, set, group, theme] = HASH.exec(location.hash) || [];
  setTheme(theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  addText(replaced("title"), HEAD.title);
  document.title = HEAD.title;
  document.getElementById("theme").addEventListener("click", () => {
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    writeHash();
  });
  document.getElementById("help").addEventListener("click", showKeys);
  document.addEventListener("keydown", onKey);
  fillSets();
  await showSet(set && Number(set) < HEAD.sets.length ? Number(set) : HEAD.opens_at, group === undefined ? -1 : Number(group));
}

function replaced(id) {
  const node = document.getElementById(id);
  node.replaceChildren();
  return node;
}

start().catch((error) => {
  document.documentElement.dataset.ready = "failed";
  console.error(error);
  addText(replaced("banner"), `This page could not be shown: ${error}`);
  document.getElementById("banner").hidden = false;
});
