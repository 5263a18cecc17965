"""Every trap of the published self-verification pipeline, by its name, where a recipe would meet it.

Each recipe runs twice, on the same rows: as `rejuice run` does it, in chunks, and as training does
it, on all groups of a step. Rows, decisions and notes must be the same before anything is asserted.
"""

import collections
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators import DataError, get
from rejuice.operators.columns import MESSAGES, component
from rejuice.operators.registry import build
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.report import read_decisions
from rejuice.pipelines.recipe.recipe import load
from rejuice.pipelines.recipe.steps import Step, step_names
from rejuice.trainer.verl.curation import curate

VERDICTS = {"c": "correct", "w": "wrong_answer", "n": "no_answer", "t": "timeout", "e": "verifier_error"}  # fmt: skip
ASK = {"self_verification_mapper": {"candidates": "all"}}
BALANCE = "label_balance_selector"


def balance(**fields):
    return {BALANCE: {"column": "label", "positive": "Yes", **fields}}


def graded(*groups, questions=None):
    """Responses to prompts, as words such as `c18`: the letter of the verdict, then the answer."""
    rows = []
    for g, group in enumerate(groups):
        question = f"question {g}" if questions is None else questions[g]
        for k, word in enumerate(group.split()):
            rows.append(
                {
                    "prompt_id": f"prompt-{g:04d}",
                    "prompt": [{"role": "user", "content": question}],
                    "reference": "18",
                    "response_id": f"r{g:04d}.{k}",
                    "response": f"It is {word[1:]}.",
                    "verdict": VERDICTS[word[0]],
                    "extracted_answer": word[1:].replace("_", " ") or None,
                }
            )
    return rows


def steps_of(process):
    """The steps of a recipe."""
    pairs = [next(iter(step.items())) for step in process]
    names = step_names([name for name, _ in pairs])
    return [
        Step(at, step_name, build(get(name), fields))
        for at, (step_name, (name, fields)) in enumerate(zip(names, pairs, strict=True), 1)
    ]


def table_of(rows):
    text = [(name, pa.string()) for name in rows[0] if name != "prompt"]
    return pa.Table.from_pylist(rows, schema=pa.schema([*text, ("prompt", MESSAGES)]))


class Outcome:
    """What a recipe made of rows."""

    def __init__(self, rows, notes, decisions):
        self.rows, self.notes, self.decisions = rows, notes, decisions
        self.verify_rows = [row for row in rows if row["task"] == "verify"]
        self.labels = collections.Counter(row["label"] for row in self.verify_rows)
        self.generated = [row["response_id"] for row in rows if row["task"] == "generate"]

    def note(self, name, step=BALANCE):
        return self.notes[f"{step}/{name}"]


def in_training(process, rows):
    """What the recipe makes of the groups of a training step."""
    found = curate(steps_of(process), table_of(rows))
    return Outcome(found.table.to_pylist(), found.notes, found.decisions.to_pylist())


@pytest.fixture
def through(recipe_file, tmp_path):
    """What a recipe makes of rows, both ways."""
    runs = iter(range(100))

    def run(process, rows, chunk_rows=64):
        training = in_training(process, rows)
        export = tmp_path / f"run-{next(runs)}" / "out.parquet"
        path = recipe_file(process, rows, export_path=str(export))
        report = engine.run(load(path), chunk_rows=chunk_rows)
        offline = pq.read_table(export).to_pylist()
        assert offline == training.rows
        notes = {f"{s.step}/{k}": value for s in report.steps for k, value in s.notes.items()}
        assert notes == training.notes
        decisions = read_decisions(export.with_suffix(".run")).to_pylist()
        assert decisions == training.decisions
        return Outcome(offline, notes, decisions)

    return run


# --- the traps


def test_trap_balance_is_exact_when_spares_run_out(through):
    """Published: all-right prompts fill up the target, until Yes outnumbers No."""
    rows = graded("c1 w2", "c3 c4 w5", *["c6 c7 c8"] * 20, "w9")
    found = through([ASK, balance(target=40)], rows)
    # Three wrong answers in all: three right ones with them, and not one more.
    assert found.labels == {"Yes": 3, "No": 3}
    assert found.note("positive_found") == 63
    assert found.note("negative_found") == 3
    assert (found.note("asked"), found.note("short_of_target")) == (40, 34)
    reasons = collections.Counter(each["reason"] for each in found.decisions)
    assert reasons == {"over_ratio": 60}


def test_trap_nothing_is_truncated_before_it_is_shuffled(through):
    """Published: the first prompts fill the target, so that late ones are never judged."""
    groups = [f"c{g} w{g + 1000}" for g in range(300)]
    process = [ASK, balance(target=60)]
    found = through(process, graded(*groups), chunk_rows=100)
    assert found.labels == {"Yes": 30, "No": 30}
    places = [int(row["judged_response_id"][1:5]) for row in found.verify_rows]
    # Uniform places: mean 149.5, standard error 300 / sqrt(12 * 60) = 11.
    assert abs(np.mean(places) - 149.5) < 4 * 11
    assert max(places) > 250
    # Whatever the order of the prompts, the same ones are chosen.
    rows = graded(*groups)
    backwards = [row for at in range(len(rows) - 2, -1, -2) for row in rows[at : at + 2]]
    again = in_training(process, backwards)
    assert {row["prompt_id"] for row in again.verify_rows} == {
        row["prompt_id"] for row in found.verify_rows
    }


@pytest.mark.slow
def test_trap_no_randomness_is_without_a_seed(through):
    """Published: the choice is another one at each start."""
    rows = graded(*["c1 c2 c3 w4 w5 w6"] * 20)

    def chosen(seed, state, chunk_rows):
        random.seed(state)
        np.random.seed(state)
        process = [
            {"self_verification_mapper": {"seed": seed}},
            balance(target=12, seed=seed),
        ]
        return [row["judged_response_id"] for row in through(process, rows, chunk_rows).verify_rows]

    one = chosen(1, 10, 6)
    assert one == chosen(1, 20, 1000)
    assert one != chosen(2, 10, 6)


def test_trap_nothing_is_oversampled_in_silence(through):
    """Published: what is short of the target is filled up with copies."""
    rows = graded("c1 c2 w3", "c4 w5 w6")
    found = through([ASK, balance(target=100)], rows)
    assert found.labels == {"Yes": 3, "No": 3}
    assert (found.note("asked"), found.note("short_of_target")) == (100, 94)
    assert len({row["prompt_id"] for row in found.verify_rows}) == 6
    assert len({row["judged_response_id"] for row in found.verify_rows}) == 6
    assert found.generated == [row["response_id"] for row in rows]


def test_trap_the_same_question_and_answer_is_judged_once(through):
    """Published: eight responses with one answer are eight equal verification prompts."""
    rows = graded("c18 c18 c18 c_18 w7 w7_ c18 w7", "c18 w7")
    found = through([ASK, balance()], rows)
    assert found.labels == {"Yes": 2, "No": 2}
    messages = [row["prompt"][0]["content"] for row in found.verify_rows]
    assert len(set(messages)) == 4
    assert found.note("distinct_candidates", "self_verification_mapper") == 4


def test_trap_the_same_question_under_two_ids_is_judged_once_after_a_deduplicator(through):
    rows = graded("c18 w7", "c18 w7", "c18 w7", questions=["again", "other", "again"])
    deduplicated = {"exact_deduplicator": {"unit": "prompt"}}
    found = through([deduplicated, ASK, balance()], rows)
    messages = [row["prompt"][0]["content"] for row in found.verify_rows]
    assert len(messages) == len(set(messages)) == 4
    # Without it they are there twice, as the documentation of the operator says.
    found = through([ASK, balance()], rows)
    messages = [row["prompt"][0]["content"] for row in found.verify_rows]
    assert (len(messages), len(set(messages))) == (6, 4)


def test_trap_the_pass_rate_is_that_of_the_rows_that_are_valid(through):
    """Published: right / group size, so that with a dropped row no prompt is ever all right."""
    rows = graded("c1 c2 n", "c1 c2 t3", "w1 e2 n", "c1 w2 n", "n t1")
    valid = {"column_value_filter": {"column": "verdict", "keep": ["correct", "wrong_answer"]}}
    rate = {"pass_rate_filter": {"min": 0.01, "max": 0.99}}
    found = through([valid, rate, ASK, balance()], rows)
    assert found.generated == ["r0003.0", "r0003.1"]
    reasons = collections.Counter(each["reason"] for each in found.decisions)
    assert reasons == {"value_not_kept": 7, "too_easy": 4, "too_hard": 1}
    # What could not be graded counts neither way where it is still there; no answer is a wrong one.
    found = through([rate, ASK, balance()], rows)
    assert sorted({name[:5] for name in found.generated}) == ["r0000", "r0003"]
    # And what is made of all of them: all right, all wrong, mixed and ungraded prompts.
    found = through([ASK, balance()], rows)
    kinds = ("all_right", "all_wrong", "mixed", "ungraded")
    step = "self_verification_mapper"
    assert [found.note(f"{kind}_prompts", step) for kind in kinds] == [2, 1, 1, 1]


def judgements_of(verify_rows, *letters_of_rows):
    """The rows of a second sampling: of each verification prompt, so many responses."""
    texts = {"y": r"I agree. \boxed{Yes}", "n": r"I do not. \boxed{No}", "-": "I cannot tell."}
    return [
        {**row, "response_id": f"{row['prompt_id']}.{k}", "response": texts[letter]}
        for row, letters in zip(verify_rows, letters_of_rows, strict=True)
        for k, letter in enumerate(letters)
    ]


REWARD_JUDGEMENTS = [
    {"judgement_reward_mapper": {}},
    {"reward_sum_mapper": {"task": "verify", "weights": {"verification": 1.0}}},
    {"grpo_advantage_mapper": {}},
]


def judged_table(found, rows, letters_of_rows, accuracy=None):
    """What comes into the steps after the second sampling: answers and judgements."""
    reward = dict(zip((row["response_id"] for row in rows), accuracy or [], strict=False))
    judged = iter(judgements_of(found.verify_rows, *letters_of_rows))
    groups = collections.defaultdict(list)
    for row in judged:
        groups[row["prompt_id"]].append(row)
    out = []
    for row in found.rows:
        out += groups[row["prompt_id"]] if row["task"] == "verify" else [row]
    table = table_of(out)
    values = np.array([reward.get(row["response_id"], np.nan) for row in out])
    missing = pa.array(["no_response" if np.isnan(v) else None for v in values], pa.string())
    columns = {
        **component("accuracy", values, missing),
        "reward": pa.array(values, from_pandas=True),
    }
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


def test_trap_a_malformed_judgement_is_a_reward_of_0_and_not_missing(through):
    """As published and intended: not to judge is an error of the policy, not of a verifier."""
    rows = graded("c18 w7")
    found = through([{"self_verification_mapper": {}}, balance()], rows)
    table = judged_table(found, rows, ["yy--", "nyn-"], [1.0, 0.0])
    after = curate(steps_of(REWARD_JUDGEMENTS), table)
    out = [row for row in after.table.to_pylist() if row["task"] == "verify"]
    assert [row["label"] for row in out] == ["Yes"] * 4 + ["No"] * 4
    assert [row["reward_verification"] for row in out] == [1, 1, 0, 0, 1, 0, 1, 0]
    assert {row["reward_verification_missing"] for row in out} == {None}
    assert [row["judgement"] for row in out] == ["Yes", "Yes", None, None, "No", "Yes", "No", None]
    # It counts in the group: were it missing, the first one would have nothing to learn from.
    spread = 1 / np.sqrt(3)
    expected = np.array([0.5, 0.5, -0.5, -0.5] * 1) / (spread + 1e-6)
    assert [row["advantage"] for row in out[:4]] == pytest.approx(expected)
    assert after.notes["judgement_reward_mapper/malformed"] == 3
    assert after.decisions.num_rows == 0


def test_trap_generation_and_verification_rewards_never_meet_in_one_advantage(through):
    rows = graded("c18 w7 c18", "w7 w8 c18")
    found = through([{"self_verification_mapper": {}}, balance()], rows)
    letters_of_rows = ["yn", "ny", "yy-", "nnny"]
    accuracy = [1.0, 0.0, 1.0, 0.0, 0.25, 1.0]
    table = judged_table(found, rows, letters_of_rows, accuracy)
    both = curate(steps_of(REWARD_JUDGEMENTS), table).table
    # Each task alone has the same rewards and advantages: neither group knows of the other.
    for task in ("generate", "verify"):
        of_task = pa.array([row == task for row in table["task"].to_pylist()])
        alone = curate(steps_of(REWARD_JUDGEMENTS), table.filter(of_task)).table
        kept = both.filter(pa.array([row == task for row in both["task"].to_pylist()]))
        for name in ("reward", "advantage"):
            assert alone[name].to_pylist() == kept[name].to_pylist()
            assert None not in kept[name].to_pylist()
    out = both.to_pylist()
    by_task = {t: [row for row in out if row["task"] == t] for t in ("generate", "verify")}
    assert [row["reward"] for row in by_task["generate"]] == accuracy
    assert {row["reward_verification_missing"] for row in by_task["generate"]} == {"other_task"}
    rewards = [row["reward_verification"] for row in by_task["verify"]]
    assert [row["reward"] for row in by_task["verify"]] == rewards
    groups = {(row["prompt_id"], row["task"]) for row in out}
    assert len(groups) == len({prompt for prompt, _ in groups}) == 2 + 4


def test_trap_one_sum_over_both_tasks_is_an_error(through):
    rows = graded("c18 w7")
    found = through([{"self_verification_mapper": {}}, balance()], rows)
    table = judged_table(found, rows, ["y", "n"], [1.0, 0.0])
    weights = {"accuracy": 1.0, "verification": 1.0}
    process = [REWARD_JUDGEMENTS[0], {"reward_sum_mapper": {"weights": weights}}]
    with pytest.raises(DataError, match=r"reward_accuracy is missing \(no_response\)"):
        curate(steps_of(process), table)
    process[1]["reward_sum_mapper"]["weights"] = dict(reversed(weights.items()))
    with pytest.raises(DataError, match=r"reward_verification is missing \(other_task\)"):
        curate(steps_of(process), table)


# --- what the judgements are good for


def test_judgements_that_are_true_find_the_right_answer_whatever_the_majority(through):
    rows = graded("w7 w7 w7 c18 c_18", "c18 w7 w8 n", "w7 w8", "c1 c1")
    found = through([ASK], rows)
    letters_of_rows = ["yyy" if row["label"] == "Yes" else "n-" for row in found.verify_rows]
    table = judged_table(found, rows, letters_of_rows)
    process = [REWARD_JUDGEMENTS[0], {"self_verified_vote_mapper": {}}, {"verification_filter": {}}]
    voted = curate(steps_of(process[:2]), table)
    out = [row for row in voted.table.to_pylist() if row["task"] == "generate"]
    won = [row["response_id"] for row in out if row["voted"]]
    # Where no answer is right all count nothing, and the majority stands: here the first.
    assert won == ["r0000.3", "r0000.4", "r0001.0", "r0002.0", "r0003.0", "r0003.1"]
    assert [row["majority"] for row in out[:5]] == [True, True, True, False, False]
    assert voted.notes["self_verified_vote_mapper/voted_differently"] == 1
    left = curate(steps_of(process), table).table.to_pylist()
    kept = [row["response_id"] for row in left if row["task"] == "generate"]
    right = [row["response_id"] for row in rows if row["verdict"] in ("correct", "no_answer")]
    assert kept == right


# --- adversarial mixes: exactly as configured, or the shortfall is stated

MIXES = {
    "all right": ["c1 c2 c3"] * 8,
    "all wrong": ["w1 w2 w3"] * 8,
    "one prompt dominates": [" ".join(f"c{k} w{k + 500}" for k in range(40)), *["c1 w2"] * 4],
    "one prompt dominates with one label": [" ".join(f"w{k}" for k in range(60)), *["c1 w2"] * 4],
    "duplicates only": ["c1 c1 c1 c1 w2 w2 w2"] * 5,
    "duplicates of one answer": ["c1 c1 c1", "w1 w1"] * 4,
    "nothing is graded": ["n t1 e2", "n n"],
    "graded both ways": ["c1 w1 c1 w1"] * 5,
}
DISTINCT = {  # Yes and No that there are to choose from.
    "all right": (24, 0),
    "all wrong": (0, 24),
    "one prompt dominates": (44, 44),
    "one prompt dominates with one label": (4, 64),
    "duplicates only": (5, 5),
    "duplicates of one answer": (4, 4),
    "nothing is graded": (0, 0),
    "graded both ways": (0, 0),
}


@pytest.mark.parametrize(("ratio", "target"), [((1, 1), 20), ((1, 3), 20), ((1, 1), None)])
@pytest.mark.parametrize("mix", MIXES)
def test_targets_are_balanced_exactly_or_the_shortfall_is_reported(through, mix, ratio, target):
    rows = graded(*MIXES[mix])
    # Once both ways is enough; a run with its files takes its time.
    made_of = through if ratio == (1, 3) else in_training
    found = made_of([ASK, balance(ratio=ratio, target=target)], rows)
    yes, no = DISTINCT[mix]
    assert (found.note("positive_found"), found.note("negative_found")) == (yes, no)
    times = min(yes // ratio[0], no // ratio[1])
    if target is not None:
        times = min(times, target // sum(ratio))
        assert found.note("asked") == target
        assert found.note("short_of_target") == target - times * sum(ratio)
    assert (found.labels["Yes"], found.labels["No"]) == (times * ratio[0], times * ratio[1])
    assert found.note("positive_kept") == found.labels["Yes"]
    assert found.note("negative_kept") == found.labels["No"]
    # What is not kept is booked, and no answer goes with it.
    assert len(found.decisions) == yes + no - len(found.verify_rows)
    assert found.generated == [row["response_id"] for row in rows]


@pytest.mark.parametrize("mix", MIXES)
def test_balanced_within_each_prompt_no_prompt_dominates(mix):
    rows = graded(*MIXES[mix])
    found = in_training([{"self_verification_mapper": {"max_per_label": 2}}, balance()], rows)
    assert (
        found.labels["Yes"] == found.labels["No"] == found.note("yes", "self_verification_mapper")
    )
    assert found.decisions == []
    prompt_of = {row["response_id"]: row["prompt_id"] for row in rows}
    counts = collections.Counter(
        (prompt_of[row["judged_response_id"]], row["label"]) for row in found.verify_rows
    )
    assert max(counts.values(), default=0) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("mix", MIXES)
def test_balanced_over_the_dataset_no_prompt_dominates_a_limit(through, mix, most):
    """Published: a prompt whose samples all differ is judged as often as it was sampled."""
    rows = graded(*MIXES[mix])
    process = [{"self_verification_mapper": {"candidates": "all", "max_per_label": most}}]
    made_of = through if most == 3 else in_training
    found = made_of([*process, balance(target=60)], rows)
    assert found.labels["Yes"] == found.labels["No"]
    prompt_of = {row["response_id"]: row["prompt_id"] for row in rows}
    counts = collections.Counter(
        (prompt_of[row["judged_response_id"]], row["label"]) for row in found.verify_rows
    )
    assert max(counts.values(), default=0) <= most
    # The notes report what the limit dropped, and what is missing.
    step = "self_verification_mapper"
    yes, no = DISTINCT[mix]
    chosen = found.note("yes", step) + found.note("no", step)
    assert found.note("over_max_per_label", step) == yes + no - chosen
    assert found.note("short_of_target") == 60 - len(found.verify_rows)


def test_without_a_limit_one_prompt_may_make_up_most_of_what_is_judged(through):
    rows = graded(*MIXES["one prompt dominates"])
    limited = {"self_verification_mapper": {"candidates": "all", "max_per_label": 2}}
    shares = []
    for first in (ASK, limited):
        found = through([first, balance()], rows)
        dominant = [
            row for row in found.verify_rows if row["judged_response_id"].startswith("r0000")
        ]
        shares.append((len(dominant), len(found.verify_rows)))
    assert shares == [(80, 88), (4, 12)]
    assert found.note("over_max_per_label", "self_verification_mapper") == 76


WORD = st.builds(str.__add__, st.sampled_from("ccwwnte"), st.sampled_from("123"))
GROUPS = st.lists(st.lists(WORD, min_size=1, max_size=8).map(" ".join), min_size=1, max_size=8)


@pytest.mark.slow
@settings(max_examples=40)
@given(GROUPS, st.tuples(st.integers(1, 3), st.integers(1, 3)), st.none() | st.integers(6, 30))
def test_targets_are_in_the_ratio_and_the_notes_count_them(groups, ratio, target):
    rows = graded(*groups)
    found = in_training([ASK, balance(ratio=ratio, target=target)], rows)
    label = {"c": "Yes", "w": "No"}
    answers = collections.defaultdict(set)
    for g, group in enumerate(groups):
        for word in group.split():
            if word[0] in label:
                answers[g, word[1:]].add(label[word[0]])
    there = collections.Counter(next(iter(x)) for x in answers.values() if len(x) == 1)
    assert (found.note("positive_found"), found.note("negative_found")) == (
        there["Yes"],
        there["No"],
    )
    common = np.gcd(*ratio)
    first, second = ratio[0] // common, ratio[1] // common
    times = min(there["Yes"] // first, there["No"] // second)
    if target is not None:
        times = min(times, target // (first + second))
        assert found.note("short_of_target") == target - len(found.verify_rows)
    assert (found.labels["Yes"], found.labels["No"]) == (times * first, times * second)
    verdict = {row["response_id"]: row["verdict"] for row in rows}
    truth = {"Yes": "correct", "No": "wrong_answer"}
    assert all(
        verdict[row["judged_response_id"]] == truth[row["label"]] for row in found.verify_rows
    )
    assert len({row["prompt_id"] for row in found.verify_rows}) == len(found.verify_rows)
    assert found.generated == list(verdict)
