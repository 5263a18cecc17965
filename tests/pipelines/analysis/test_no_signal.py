"""Why no group has a signal: the likeliest cause, whatever parts the rows come in."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators import ColumnRangeFilter, GroupStatsMapper, Mapper, PassRateFilter
from rejuice.operators.columns import component
from rejuice.operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from rejuice.operators.mapper.reward_sum_mapper import RewardSumMapper
from rejuice.pipelines.analysis.funnel import GradedPart, WrongExample, no_signal
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.engine.steps import iterate_steps, run_step
from rejuice.pipelines.recipe.steps import number_steps

ACCURACY = {"correct": 1.0, "wrong_answer": 0.0, "no_answer": 0.0}


class LetterMapper(Mapper):
    """The verdict that the first letter of a response stands for; accuracy is missing for t."""

    def reads(self):
        return ("response",)

    def writes(self):
        return ("verdict", "extracted_answer", "reward_accuracy", "reward_accuracy_missing")

    def map(self, table):
        names = {"c": "correct", "w": "wrong_answer", "n": "no_answer", "t": "timeout"}
        texts = table["response"].to_pylist()
        slugs = [names[text[0]] for text in texts]
        values = np.array([ACCURACY.get(slug, 0.0) for slug in slugs])
        why = pa.array([slug if slug == "timeout" else None for slug in slugs], pa.string())
        answers = pa.array([text[1:].strip() or None for text in texts], pa.string())
        found = component("accuracy", values, why)
        return {"verdict": pa.array(slugs, pa.string()), "extracted_answer": answers, **found}


SUM = RewardSumMapper(weights={"accuracy": 1.0}, on_missing="drop_row")
IGNORING = RewardSumMapper(weights={"accuracy": 0.0}, on_missing="drop_row")
STEPS = (LetterMapper(), SUM, GrpoAdvantageMapper())
RATED = (LetterMapper(), GroupStatsMapper())


def rows(groups, references=(), ends=()):
    """A table with a group for each text, whose letters or words are the responses."""
    words = [text.split("|") if "|" in text else list(text) for text in groups]
    prompts = [f"p{at}" for at, each in enumerate(words) for _ in each]
    responses = [word for each in words for word in each]
    return pa.table(
        {
            "prompt_id": prompts,
            "response": responses,
            "reference": pa.array([*references, *["7"] * len(prompts)][: len(prompts)]),
            "finish_reason": pa.array([*ends, *["stop"] * len(prompts)][: len(prompts)]),
        }
    )


def found(table, steps=STEPS, sizes=None):
    """The finding of a table, in parts of so many rows."""
    parts, at = [], 0
    for size in sizes or [table.num_rows]:
        frame = Frame.of(table.slice(at, size))
        parts.append(GradedPart.of(iterate_steps(number_steps(list(steps)), frame, run_step)))
        at += size
    return no_signal(parts)


@pytest.mark.parametrize(
    ("groups", "steps", "cause"),
    [
        (["ww", "ww"], STEPS, "wrong_answer"),
        (["wn", "ww"], STEPS, "wrong_answer"),
        (["nw", "nn"], STEPS, "no_answer"),
        (["cc", "cct"], STEPS, "correct"),
        (["cc", "ww"], STEPS, "same_verdict"),
        (["c", "w"], STEPS, "group_of_one"),
        (["tt", "tt"], STEPS, "missing"),
        (["ct", "wt"], STEPS, "missing"),
        (["cw", "ww"], (LetterMapper(), IGNORING, GrpoAdvantageMapper()), "weights"),
        # Without an advantage, rewards decide; without rewards, verdicts.
        (["ww", "w"], STEPS[:2], "wrong_answer"),
        (["cc", "w"], STEPS[:1], "same_verdict"),
        (["tt"], STEPS[:1], "missing"),
        # What a filter drops later was graded all the same.
        (["ww"], (*RATED, PassRateFilter(min=0.1), *STEPS[1:]), "wrong_answer"),
        (["wc", "ww", "cc"], (*RATED, PassRateFilter(max=0.1), *STEPS[1:]), "dropped"),
    ],
)
def test_the_likeliest_cause(groups, steps, cause):
    assert found(rows(groups), steps).cause == cause


@pytest.mark.parametrize(
    ("groups", "steps"),
    [
        (["cw", "ww"], STEPS),
        (["ww", "cw"], STEPS[:2]),
        (["ww", "cw"], STEPS[:1]),
        (["c", "w"], STEPS[:2]),  # Nothing is compared.
        (["c", "w"], STEPS[:1]),
        (["ww"], ()),
        ([], STEPS),
    ],
)
def test_a_signal_or_nothing_that_decides_is_no_finding(groups, steps):
    assert found(rows(groups), steps) is None


def test_an_advantage_of_zero_although_rewards_differ():
    class ZeroMapper(Mapper):
        def writes(self):
            return ("advantage",)

        def map(self, table):
            return {"advantage": pa.array([0.0] * table.num_rows)}

    finding = found(rows(["cw"]), (*STEPS[:2], ZeroMapper()))
    assert finding.cause == "advantage"
    assert finding.steps["advantage"] == "zero_mapper"


def test_rewards_of_groups_that_are_dropped_before_the_advantage():
    keep = ColumnRangeFilter(column="reward", min=0.5)
    steps = (*STEPS[:2], keep, GrpoAdvantageMapper())
    assert found(rows(["cw", "ccw"]), steps).cause == "dropped"


def test_the_figures_by_hand():
    table = rows(["cc", "ww", "nn|no idea", "w9|tt"], ends=["stop"] * 4 + ["length"] * 4)
    finding = found(table, (LetterMapper(), IGNORING, GrpoAdvantageMapper()))
    assert finding.verdicts == {"wrong_answer": 3, "correct": 2, "no_answer": 2, "timeout": 1}
    assert finding.missing == ("accuracy", "timeout", 1)
    assert (finding.all_right, finding.all_wrong, finding.reward) == (1, 3, 0.0)
    assert finding.example == WrongExample("7", "9")
    assert (finding.response, finding.cut_off) == ("nn", 2)


def test_the_example_is_one_whose_reference_holds_more_than_an_answer():
    references = ["6", "so it is 7", "so it is 8"]
    finding = found(rows(["w5|w7|w8"], references))
    assert finding.example == WrongExample("so it is 7", "7")


@pytest.mark.parametrize(
    ("reference", "answer", "holds_more"),
    [
        ("sum #### 8", "9", True),
        (r"so \boxed{8}", "9", True),
        ("worked solution, so it is 1", "1", True),
        ("first he sells half of them and then the rest", "1", True),
        ("8 apples", "8", False),
        ("1/2", "1", False),
        ("12, 13", "12", False),
        (r"\frac{1}{2} \text{ or } 3", "3", False),
        ("The Battle of Hastings", "1066", False),
        ("8", "8", False),
    ],
)
def test_a_reference_that_holds_more_than_an_answer(reference, answer, holds_more):
    assert WrongExample(reference, answer).holds_more is holds_more


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.sampled_from(["ww", "wn", "nn", "w1|w2|w7", "tw"]), min_size=1, max_size=8),
    st.data(),
)
def test_the_finding_is_the_same_in_whatever_parts_the_groups_come(groups, data):
    table = rows(groups, [f"it is {at}" for at in range(4)])
    sizes = [len(text.split("|")) if "|" in text else len(text) for text in groups]
    cuts = data.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))
    parts = [0]
    for size, begins in zip(sizes, cuts, strict=True):
        parts[-1] += size
        if begins:
            parts.append(0)
    assert found(table, sizes=[size for size in parts if size]) == found(table)


def test_parts_after_one_with_a_signal_are_not_read():
    def parts():
        frame = Frame.of(rows(["cw"]))
        yield GradedPart.of(iterate_steps(number_steps(list(STEPS)), frame, run_step))
        pytest.fail("it was read")

    assert no_signal(parts()) is None
