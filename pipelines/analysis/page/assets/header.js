/* What the page is about: recipe, model, date, and the headline figures of the set that is shown. */

const HOW = "Mean accuracy over prompts, of the responses as they were sampled. The 95% interval takes prompts as "
  + "independent, and not the responses to one of them: Wilson's, for as many independent responses as have the variance of the prompts.";

function fact(label, value, note = "", title = "") {
  return make("div", { class: "fact", title }, make("dt", { text: label }), make("dd", {},
    make("span", { text: value }), note ? make("small", { text: note }) : null));
}

/** `200 × 8`; responses from the fewest to the most where prompts differ. */
function promptsByResponses({ prompts, responses: [fewest, most] }) {
  return `${shown(prompts, "count")} × ${shown(fewest, "count")}${most > fewest ? ` to ${shown(most, "count")}` : ""}`;
}

function intervalText({ low, high }) {
  return `${shown(low, "share")} to ${shown(high, "share")}`;
}

/** Show the facts of the run that a set is of, and its headline. */
function fillHeader(head) {
  const of = head?.run ? HEAD.runs.find(({ path }) => path === head.run) : HEAD.runs[0];
  const { recipe, model, date } = of || {};
  const found = [["recipe", recipe], ["model", model], ["date", date]].filter(([, value]) => value)
    .map(([label, value]) => fact(label, value));
  const points = HEAD.curves.find(({ run }) => run === (head?.run ?? ""))?.points ?? [];
  replaced("facts").append(...found, ...validationFact(points), ...(head ? headlineFacts(head) : []));
}

/** Accuracy on held-out prompts at the first and the last validation, where there is one set of them. */
function validationFact(points) {
  const of = (point) => Object.keys(point).map((name) => /^(rejuice\/validation\/.+\/mean)@\d+$/.exec(name)).find(Boolean);
  const known = points.filter(of);
  if (!known.length) return [];
  const [first, last] = [known[0], known[known.length - 1]];
  const [name, stem] = of(last);
  const accuracies = [first, last].map((point) => shown(point[name] ?? null, "share"));
  const interval = { low: last[`${stem}_low`] ?? null, high: last[`${stem}_high`] ?? null };
  return [fact(`validation, step ${shown(first.step, "count")} to ${shown(last.step, "count")}`, accuracies.join(" → "), `95%: ${intervalText(interval)}`, HOW)];
}

function headlineFacts({ kind, step, figures: { headline } }) {
  const { prompts, graded, accuracy, pass_at: passes } = headline;
  const facts = prompts ? [fact("prompts × responses", promptsByResponses(headline))] : [];
  if (!accuracy) return facts;
  const over = `95%: ${intervalText(accuracy)}, over ${shown(graded, "count")} prompts`;
  facts.push(fact(`${kind === "judgements" ? "right judgements" : "accuracy"}${step === null ? "" : `, step ${shown(step, "count")}`}`, shown(accuracy.mean, "share"), over, HOW));
  const estimator = "The chance that one of k responses is right: the unbiased estimator of Chen et al. 2021, mean over prompts.";
  const values = Object.values(passes).map((value) => shown(value, "share")).join(", ");
  return [...facts, fact(`pass@${Object.keys(passes).join(", ")}`, values, "", estimator)];
}
