"""Which answers are judged, against the post-processing that was published.

`published` is written from its description, traps included. What it decides without chance must be
the same here; what it draws must be drawn as often; where we differ on purpose a test shows it.
"""

import collections
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verdict_letters import VERDICTS

from rejuice.operators import DataError, RecipeError
from rejuice.operators.check import check_operator, run
from rejuice.operators.columns import MESSAGES
from rejuice.operators.mapper.self_verification_mapper import SelfVerificationMapper
from rejuice.operators.registry import build
from rejuice.operators.selector.label_balance_selector import LabelBalanceSelector
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.engine.steps import run_in_memory


def table(*groups):
    """Each group is words such as `c18`: the letter of the verdict, then the answer."""
    words = [(str(g), word) for g, group in enumerate(groups) for word in group.split()]
    texts = {
        "prompt_id": [g for g, _ in words],
        "response_id": [f"r{at}" for at in range(len(words))],
        "reference": ["ref"] * len(words),
        "response": [f"I say {word[1:]}" for _, word in words],
        "verdict": [VERDICTS[word[0]] for _, word in words],
        "extracted_answer": [word[1:] or None for _, word in words],
    }
    arrays = {name: pa.array(values, pa.string()) for name, values in texts.items()}
    chats = [[{"role": "user", "content": f"question {g}"}] for g, _ in words]
    return pa.table({**arrays, "prompt": pa.array(chats, MESSAGES)})


def verification(rows):
    return [row for row in rows if row["task"] == "verify"]


BALANCE = {"column": "label", "positive": "Yes", "spare": "spare"}


def published(groups, rng):
    """The firsts, the spares and the final choice, each as (prompt, answer, label)."""
    firsts, spares = {"Yes": [], "No": []}, {"Yes": [], "No": []}
    valid = {
        g: [word for word in group.split() if word[0] in "cw"] for g, group in enumerate(groups)
    }
    valid = {g: words for g, words in valid.items() if words}
    half = len(valid) // 2
    for g, words in valid.items():
        of = {"Yes": [w for w in words if w[0] == "c"], "No": [w for w in words if w[0] == "w"]}
        if of["Yes"] and of["No"]:
            for label, there in of.items():
                firsts[label].append((g, there.pop(rng.randrange(len(there)))[1:], label))
                if there:
                    spares[label].append((g, rng.choice(there)[1:], label))
        elif of["Yes"]:
            spares["Yes"].append((g, rng.choice(of["Yes"])[1:], "Yes"))
    final = []
    for label in ("No", "Yes"):
        pool, chosen = spares[label], list(firsts[label])
        chosen += rng.sample(pool, min(max(half - len(chosen), 0), len(pool)))
        if pool and len(chosen) < half:
            chosen += rng.choices(pool, k=half - len(chosen))  # The same ones again.
        final += chosen[:half]  # Late prompts are cut off.
    rng.shuffle(final)
    return firsts, spares, final


def ours(groups, target=None, seed=0, **fields):
    """The same of our operators."""
    source = table(*groups)
    answer_of = dict(_columns(source, "response_id", "extracted_answer"))
    prompt_of = dict(_columns(source, "response_id", "prompt_id"))
    asking = SelfVerificationMapper(spares=1, seed=seed, **fields)
    rows = verification(run_in_memory([asking], source).to_pylist())
    balance = LabelBalanceSelector(target=target, seed=seed, **BALANCE)
    kept = verification(run_in_memory([asking, balance], source).to_pylist())

    def named(row):
        response = row["judged_response_id"]
        return int(prompt_of[response]), answer_of[response], row["label"]

    firsts = [named(row) for row in rows if not row["spare"]]
    spares = [named(row) for row in rows if row["spare"]]
    return firsts, spares, [named(row) for row in kept]


def _columns(source, *names):
    return zip(*(source[name].to_pylist() for name in names), strict=True)


def by_prompt(choice):
    """How many of each prompt and label."""
    return collections.Counter((g, label) for g, _, label in choice)


DIFFERENT = st.lists(st.sampled_from("ccwwn"), min_size=1, max_size=8).map(
    lambda letters: " ".join(f"{letter}{at}" for at, letter in enumerate(letters))
)


@settings(max_examples=25)
@given(st.lists(DIFFERENT, min_size=1, max_size=10))
def test_firsts_and_spares_come_from_the_same_prompts_as_published(groups):
    """Answers that all differ: what is random is only which of a prompt's."""
    firsts, spares, final = published(groups, random.Random(0))
    found_firsts, found_spares, kept = ours(groups, target=max(2, 2 * (len(groups) // 2)))
    assert by_prompt(found_firsts) == by_prompt(firsts["Yes"] + firsts["No"])
    assert by_prompt(found_spares) == by_prompt(spares["Yes"] + spares["No"])
    # As many as published without its copies, of both labels as many as of the rarer.
    once = collections.Counter(label for *_, label in set(final))
    count = collections.Counter(label for *_, label in kept)
    assert count["Yes"] == count["No"]
    if len(groups) > 1 and all("c" in group or "w" in group for group in groups):
        assert count["Yes"] == min(once["Yes"], once["No"])
    assert len(set(kept)) == len(kept)


def test_the_target_is_met_with_spares_where_the_firsts_are_too_few():
    """8 mixed prompts, 8 all right, and 1 all wrong, which gives nothing: 16 of 17 are 8 and 8."""
    groups = [*["c1 c2 w3 w4"] * 6, *["c1 w2"] * 2, *["c1 c2"] * 8, "w1 w2"]
    without, _, kept = ours(groups, target=16)
    assert collections.Counter(label for *_, label in kept) == {"Yes": 8, "No": 8}
    assert set(kept) == set(without)  # The firsts were enough: no spare is asked about.
    _, _, kept = ours(groups, target=28)
    assert collections.Counter(label for *_, label in kept) == {"Yes": 14, "No": 14}
    assert set(without) < set(kept)
    # Spare wrong ones are of mixed prompts, and so are some of the spare right ones at most.
    assert {g for g, _, label in set(kept) - set(without) if label == "No"} == set(range(6))
    assert 16 not in {g for g, *_ in kept}


def test_no_answer_and_no_question_is_judged_twice_where_published_are_copies():
    groups = ["c1 c1 c1 w2 w2 w2"] * 8
    *_, final = published([*groups, *["w9"] * 8], random.Random(0))
    assert len(final) == 16
    assert len(set(final)) == 16
    _, spares, final = published([*groups, *["c9"] * 16], random.Random(0))
    assert max(collections.Counter(final).values()) > 1
    _, spares, kept = ours([*groups, *["c9"] * 16], target=24)
    assert [label for *_, label in spares] == ["Yes"] * 16  # The second answer 1 is no new prompt.
    assert len(set(kept)) == len(kept) == 16


def share(choice, label, answer):
    of_label = [each for each in choice if each[2] == label]
    return np.mean([each[1] == answer for each in of_label])


@pytest.mark.slow
def test_answers_are_drawn_as_often_as_responses_give_them_as_published():
    """The standard error over 1,000 prompts is 0.014."""
    groups = ["c1 c1 c1 c5 w2 w2 w2 w3"] * 1000
    firsts, *_ = published(groups, random.Random(0))
    for fields in ({}, {"over": "responses"}):  # It is the default.
        found, found_spares, _ = ours(groups, **fields)
        for label, often in (("Yes", "1"), ("No", "2")):
            assert share(firsts[label], label, often) == pytest.approx(0.75, abs=0.055)
            assert share(found, label, often) == pytest.approx(0.75, abs=0.055)
            # A second one with the same answer would be the same prompt; it is the other one here.
            first_of = {g: answer for g, answer, each in found if each == label}
            assert all(a != first_of[g] for g, a, each in found_spares if each == label)


def test_a_second_answer_is_drawn_as_published_where_that_draws_another():
    groups = ["c1 w2 w2 w2 w3 w3 w4"] * 2000
    firsts, spares, _ = published(groups, random.Random(0))
    wrong = {g: answer for g, answer, _ in firsts["No"]}
    other = [each for each in spares["No"] if wrong[each[0]] == "2" != each[1]]
    found, found_spares, _ = ours(groups)
    first = {g: answer for g, answer, label in found if label == "No"}
    ours_other = [each for each in found_spares if first[each[0]] == "2"]
    assert share(other, "No", "3") == pytest.approx(2 / 3, abs=0.08)
    assert share(ours_other, "No", "3") == pytest.approx(2 / 3, abs=0.08)


def test_over_distinct_every_answer_is_as_likely_however_often_it_is_given():
    groups = ["c1 c1 c1 c5 w2 w2 w2 w3 w4"] * 1000
    found, *_ = ours(groups, over="distinct")
    assert share(found, "Yes", "1") == pytest.approx(1 / 2, abs=0.055)
    for answer in "234":
        assert share(found, "No", answer) == pytest.approx(1 / 3, abs=0.055)


def test_spares_are_marked_and_counted():
    source = table("c1 c2 c3 w4", "c1 c2", "w1 w2", "c1 w1 n")
    change = check_operator(SelfVerificationMapper(spares=1), source)
    rows = Frame.of(source).after(change).table().to_pylist()
    spare = [(row["label"], row["spare"]) for row in verification(rows)]
    # The last prompt grades the answer 1 both ways.
    assert spare == [("Yes", False), ("Yes", True), ("No", False), ("Yes", True)]
    assert {row["spare"] for row in rows if row["task"] == "generate"} == {None}
    notes = {name: change.notes[name] for name in ("yes", "no", "spare_yes", "spare_no")}
    assert notes == {"yes": 3, "no": 1, "spare_yes": 2, "spare_no": 0}
    accounted = ("yes", "no", "unlabelled", "over_max_per_label", "unpaired")
    assert sum(change.notes[name] for name in accounted) == change.notes["distinct_candidates"]
    # 4 prompts with a graded response might give one of both: 2 of 8 did.
    assert change.notes["short_of_max_per_label"] == 6
    assert "spare" not in run(SelfVerificationMapper(), source).columns


@settings(max_examples=25)
@given(st.lists(DIFFERENT, min_size=1, max_size=6), st.integers(1, 3), st.integers(1, 3))
def test_the_notes_account_for_every_candidate_with_spares(groups, most, spares):
    operator = SelfVerificationMapper(max_per_label=most, spares=spares)
    notes = run(operator, table(*groups)).notes
    accounted = ("yes", "no", "unlabelled", "over_max_per_label", "unpaired")
    assert sum(notes[name] for name in accounted) == notes["distinct_candidates"]
    assert min(notes[name] for name in accounted) >= 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"spares": 1, "candidates": "all"},
            "candidates: all leaves no spares: it needs candidates: balanced",
        ),
        (
            {"carry": ["spare"]},
            "carry must not name 'spare', which verification rows set themselves",
        ),
        ({"over": "rows"}, "field 'over' is 'rows'; input should be 'responses' or 'distinct'"),
    ],
)
def test_fields_that_do_not_fit_are_one_plain_clause(fields, message):
    with pytest.raises(RecipeError) as error:
        build(SelfVerificationMapper, fields)
    assert str(error.value) == message


def test_a_spare_is_kept_only_where_the_others_are_too_few():
    rows = pa.table(
        {
            "prompt_id": [str(at) for at in range(9)],
            "label": ["Yes"] * 5 + ["No"] * 3 + [None],
            "spare": [True, True, False, False, True, False, False, True, None],
        }
    )
    for target, spares in ((2, 0), (4, 0), (6, 2), (None, 2)):
        change = run(LabelBalanceSelector(target=target, **BALANCE), rows)
        kept = [
            row
            for row, reason in zip(rows.to_pylist(), change.reasons.to_pylist(), strict=True)
            if not reason
        ]
        assert sum(bool(row["spare"]) for row in kept) == spares
        assert kept[-1]["label"] is None


def test_of_a_prompt_over_its_cap_the_spares_go_first():
    rows = pa.table(
        {
            "prompt_id": ["p"] * 4,
            "label": ["Yes", "Yes", "No", "No"],
            "spare": [True, False, False, True],
        }
    )
    for seed in range(5):
        change = run(LabelBalanceSelector(max_per_prompt=1, seed=seed, **BALANCE), rows)
        assert change.reasons.to_pylist() == ["over_prompt_cap", None, None, "over_prompt_cap"]


def test_a_column_of_spares_is_boolean():
    rows = pa.table({"prompt_id": ["p"], "label": ["Yes"], "spare": ["no"]})
    with pytest.raises(DataError, match="column spare has string; a column of spares is true or f"):
        run(LabelBalanceSelector(**BALANCE), rows)
