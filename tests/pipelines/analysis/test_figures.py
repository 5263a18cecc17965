"""Figures of a set against plain arithmetic, and the values of rows that a step dropped or added."""

from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest

from rejuice.operators import Change, Operator
from rejuice.operators.groups import Groups
from rejuice.operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from rejuice.operators.mapper.reward_sum_mapper import RewardSumMapper
from rejuice.pipelines.analysis.figures import (
    component_advantages,
    correlation,
    group_figures,
    headline,
    histogram,
    row_figures,
    set_figures,
)
from rejuice.pipelines.analysis.rows import KEPT, row_table
from rejuice.pipelines.analysis.written import WrittenValues
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.engine.steps import AppliedStep, StepResult, iterate_steps, run_step
from rejuice.pipelines.recipe.steps import Step, number_steps


def rewarded(seed, groups=30, n=6, **fields):
    """Rows with two components after the sum and the advantage."""
    rng = np.random.default_rng(seed)
    rows = groups * n
    right_N = rng.random(rows) < 0.5
    missing_N = rng.random(rows) < 0.1
    reasons = pa.array(["timeout"] * rows, mask=~missing_N)
    table = pa.table(
        {
            "prompt_id": np.repeat([f"p{g}" for g in range(groups)], n),
            "response_id": [f"r{at}" for at in range(rows)],
            "response": ["abc"] * rows,
            "verdict": np.where(right_N, "correct", "wrong_answer"),
            "reward_accuracy": pa.array(right_N.astype(float)),
            "reward_accuracy_missing": pa.nulls(rows, pa.string()),
            "reward_style": pa.array(rng.random(rows), mask=missing_N),
            "reward_style_missing": reasons,
        }
    )
    weights = {"weights": {"accuracy": 1.0, "style": 0.3}, "on_missing": "group_mean", **fields}
    steps = number_steps([RewardSumMapper.model_validate(weights), GrpoAdvantageMapper()])
    frame = Frame.of(table)
    return row_table(frame, iterate_steps(steps, frame, run_step))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"gates": {"style": "only_correct"}},
        {"on_missing": "drop_row"},
        {"on_missing": "drop_group"},
    ],
)
def test_contributions_add_up_to_the_reward_to_the_bit(seed, fields):
    table = rewarded(seed, **fields).table
    reward_N = np.asarray(table["reward"])
    added_N = (
        0.0 + np.asarray(table["contribution_accuracy"]) + np.asarray(table["contribution_style"])
    )
    known_N = np.isfinite(reward_N)
    assert added_N[known_N].tobytes() == reward_N[known_N].tobytes()


def test_the_share_of_tokens_that_is_masked_is_over_rows_that_are_left():
    rows = rewarded(0, groups=1)
    table = rows.table
    for name, values in {
        "masked_tokens": [0.5, None, 0.25, 0.0, 1.0, 0.0],
        "loss_weight": [None, 0.0, 1.0, 0.5, None, None],
        "fate": [KEPT] * 4 + [1] * 2,
    }.items():
        at = table.column_names.index(name)
        table = table.set_column(at, name, pa.array(values, table[name].type))
    assert set_figures(rows._replace(table=table), ()).masked == (0.5 + 1 + 0.25 + 0) / 4
    assert set_figures(rows, ()).masked == 0


@pytest.mark.parametrize("seed", range(5))
def test_parts_of_an_advantage_add_up_to_it(seed):
    rows = rewarded(seed)
    parts = component_advantages(rows)
    advantage_N = np.asarray(rows.table["advantage"])
    known_N = np.isfinite(advantage_N)
    np.testing.assert_allclose(sum(parts.values())[known_N], advantage_N[known_N], atol=1e-9)
    figures = set_figures(rows, ())
    shares = [each.variance_share for each in figures.components.values()]
    assert sum(shares) == pytest.approx(1)
    assert sum(each.mass_share for each in figures.components.values()) == pytest.approx(1)


def test_accuracy_is_over_prompts_and_pass_at_k_over_all_subsets():
    rights = [[1, 0, 0, 0, 0], [1, 1, 0], [0, 0, 0, 0], [1]]
    table = pa.table(
        {
            "prompt_id": [f"p{g}" for g, own in enumerate(rights) for _ in own] + ["added"],
            "response_id": [f"r{at}" for at in range(14)],
            "response": [*["a"] * 13, None],
            "verdict": [("wrong_answer", "correct")[x] for own in rights for x in own] + [None],
            "advantage": [1.0, *[0.0] * 12, None],
        }
    )
    rows = row_table(Frame.of(table), ())
    found = headline(rows)
    # A prompt that a step added without a response counts in no figure, of a difference neither.
    assert row_figures(rows).silent == 0.75
    assert group_figures(rows).groups == found.prompts
    assert found[:3] == (4, (1, 5), 4)
    rates = [np.mean(own) for own in rights]
    assert found.accuracy.mean == pytest.approx(np.mean(rates))
    assert 0 < found.accuracy.low < found.accuracy.mean < found.accuracy.high < 1
    expected = {
        k: np.mean([np.mean([any(x) for x in combinations(own, k)]) for own in rights if len(own) >= k])
        for k in (1, 2, 4, 5)
    }  # fmt: skip
    assert found.pass_at == pytest.approx(expected)
    none = headline(row_table(Frame.of(table.slice(13)), ()))
    assert none == (0, (0, 0), 0, None, {})


def test_a_component_without_weight_is_looked_at_all_the_same():
    seen = {"reward_seen": [0.5, 1.5], "reward_seen_missing": pa.nulls(2, pa.string())}
    table = pa.table(
        {"prompt_id": ["a", "a"], "response_id": ["1", "2"], "response": ["a", "b"], **seen}
    )
    rows = row_table(Frame.of(table), ())
    figures = set_figures(rows, ()).components["seen"]
    assert (figures.n, figures.mean) == (2, 1.0)
    assert np.isnan(figures.variance_share)


def test_a_histogram_of_one_value_has_one_bin():
    assert histogram(np.array([2.0, 2.0])) == ((2.0, 2.0), (2,))
    assert histogram(np.array([])) == ((), ())
    assert sum(histogram(np.arange(100.0)).counts) == 100


def test_correlation_is_over_rows_that_have_both():
    first, second = np.array([1.0, 2, 3, np.nan]), np.array([2.0, 4, 6, 9])
    found = correlation([first, second, np.ones(4)])
    np.testing.assert_allclose(found[:2, :2], 1)
    assert np.isnan(found[2]).all()


class Scripted(Operator):
    """Does what it is given."""

    def apply(self, table):
        raise NotImplementedError


def test_values_of_dropped_and_of_added_rows():
    frame, applied = Frame.of(pa.table({"prompt_id": ["a", "a", "b"], "n": [1, 2, 3]})), []
    changes = [
        Change({"seen": pa.array([10, 20, 30])}, pa.array([None, "bad", None])),
        Change({"n": pa.array([4, 0, 5])}, parents=np.array([0, -1, 1])),
        Change({"seen": pa.array([11, 12, 13])}, pa.array([None, None, "late"])),
    ]
    for number, change in enumerate(changes, 1):
        step = Step(number, f"step_{number}", Scripted.model_construct())
        after = frame.after(change)
        applied.append(AppliedStep(step, frame, StepResult(change, frame.num_rows), after))
        frame = after
    values = WrittenValues.of(applied[0].before, applied)
    assert values.rows == 4
    assert values.last("n").to_pylist() == [4, 2, 5, 0]
    assert values.last("seen").to_pylist() == [11, 20, 13, 12]
    assert values.last("prompt_id").to_pylist() == ["a", "a", "b", None]
    assert values.written.keys() == {"seen", "n"}
    assert values.last("other").to_pylist() == [None] * 4


def test_rows_without_a_prompt_are_groups_of_one():
    rows = row_table(Frame.of(pa.table({"text": ["a", "b", "c"]})), ())
    assert rows.groups.sizes_G.tolist() == [1, 1, 1]
    assert isinstance(rows.groups, Groups)
