"""The advantage of GDPO: by hand, as TRL has it, and what becomes of what is missing."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators import DataError, RecipeError, build
from rejuice.operators.check import check_operator, run
from rejuice.operators.mapper.gdpo_advantage_mapper import GdpoAdvantageMapper
from rejuice.operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper

WEIGHTS = {"accuracy": 1.0, "format": 0.5}


def table(*groups, missing=()):
    """Groups of (accuracy, format); in the rows `missing` the format could not be graded."""
    rows = [(f"p{g}", *values) for g, group in enumerate(groups) for values in group]
    reasons = ["timeout" if row in missing else None for row in range(len(rows))]
    return pa.table(
        {
            "prompt_id": pa.array([row[0] for row in rows], pa.string()),
            "reward_accuracy": pa.array([row[1] for row in rows], pa.float64()),
            "reward_format": pa.array([row[2] for row in rows], pa.float64()),
            "reward_format_missing": pa.array(reasons, pa.string()),
            "verdict": pa.array(["correct" if row[1] else "wrong_answer" for row in rows]),
        }
    )


def change(rows, **fields):
    return check_operator(GdpoAdvantageMapper(**{"weights": WEIGHTS, **fields}), rows)


def advantages(rows, **fields):
    return change(rows, **fields).columns["advantage"].to_pylist()


def test_two_components_by_hand():
    # Accuracy 1, 0 has deviation sqrt(1/2), so +-0.7071; format 1, 1 has none and adds 0. In the
    # other group format 0, 1 adds half of -+0.7071. All squares: 2 (0.5 + 0.5 / 4) = 1.25 over 3.
    rows = table([(1, 1), (0, 1)], [(1, 0), (1, 1)])
    half = math.sqrt(0.5)
    expected = np.array([half, -half, -half / 2, half / 2]) / math.sqrt(1.25 / 3)
    assert advantages(rows) == pytest.approx(expected.tolist(), abs=1e-5)


def test_equal_sums_differ_by_what_is_rare_in_the_group():
    # What the paper is about: with weights of 1, a right answer without the format and a wrong one
    # with it have the same reward, and under GRPO the same advantage.
    group = [(1, 0), (0, 1), (0, 1), (0, 1)]
    rows = table(group, [(1, 1), (0, 0)])
    reward = pa.array([sum(each) for each in [*group, (1, 1), (0, 0)]], pa.float64())
    plain = GrpoAdvantageMapper().apply(rows.append_column("reward", reward)).columns["advantage"]
    assert plain[:4].to_pylist() == [0.0] * 4
    weighted = advantages(rows, weights={"accuracy": 2.0, "format": 1.0})
    assert weighted[0] > 0 > weighted[1] == weighted[2] == weighted[3]


def test_equal_rewards_have_no_advantage_at_all():
    got = advantages(table([(0.1, 0.3)] * 3, [(1, 0), (0, 0.3)]))
    assert got[:3] == [0.0] * 3
    assert got[3] > 0 > got[4]


def test_a_scale_of_a_component_changes_nothing():
    rows = [[(1, 0.2), (0, 0.7), (1, 0.1)], [(0, 0.4), (1, 0.3)]]
    scaled = [[(a, 100 * f) for a, f in group] for group in rows]
    one, other = (advantages(table(*each), epsilon=1e-12) for each in (rows, scaled))
    assert one == pytest.approx(other, abs=1e-9)


def test_a_closed_gate_is_a_value_of_0():
    gated = advantages(table([(1, 5), (1, 3), (0, 4)]), gates={"format": "only_correct"})
    assert gated == pytest.approx(advantages(table([(1, 5), (1, 3), (0, 0)])))


@pytest.mark.parametrize(
    ("on_missing", "reasons"),
    [
        ("drop_row", [None, "missing_component", None, None, None]),
        ("drop_group", ["missing_component"] * 3 + [None] * 2),
        ("group_mean", [None] * 5),
    ],
)
def test_what_becomes_of_a_missing_component(on_missing, reasons):
    rows = table([(1, 1), (0, 9), (0, 0)], [(1, 0), (0, 1)], missing=[1])
    found = change(rows, on_missing=on_missing)
    assert found.reasons.to_pylist() == reasons
    advantage = found.columns["advantage"].to_pylist()
    assert [value is None for value in advantage] == [reason is not None for reason in reasons]
    if on_missing == "drop_row":  # Not in the statistics of the other component either.
        without = table([(1, 1), (0, 0)], [(1, 0), (0, 1)])
        assert [advantage[0], *advantage[2:]] == advantages(without)
    if on_missing == "group_mean":
        filled = table([(1, 1), (0, 0.5), (0, 0)], [(1, 0), (0, 1)])
        assert advantage == advantages(filled)


def test_a_missing_component_ends_the_run_by_default():
    message = r"^reward_format is missing \(timeout\) for response 1 of prompt 'p0'"
    with pytest.raises(DataError, match=message):
        run(GdpoAdvantageMapper(weights=WEIGHTS), table([(1, 1), (0, 0)], missing=[1]))


def test_a_group_of_one_is_dropped():
    found = change(
        table([(1, 1)], [(1, 0), (0, 1)], [(1, 1), (0, 0)], missing=[4]), on_missing="drop_row"
    )
    assert found.reasons.to_pylist() == (
        ["group_of_one", None, None, "group_of_one", "missing_component"]
    )


def test_a_gate_without_a_weight_is_an_error():
    with pytest.raises(RecipeError, match=r"^gates contain 'style', which has no weight$"):
        build(GdpoAdvantageMapper, {"weights": WEIGHTS, "gates": {"style": "only_correct"}})


VALUES = st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0])
GROUPS = st.lists(
    st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=6), min_size=1, max_size=5
)


def by_trl(groups, epsilon=1e-4):
    """float64[N]: as TRL's GRPOTrainer computes `normalize_then_sum`, in numpy."""
    summed_N = np.concatenate(
        [
            ((values - values.mean(0)) / (values.std(0, ddof=1) + epsilon)) @ list(WEIGHTS.values())
            for values in map(np.array, groups)
        ]
    )
    return (summed_N - summed_N.mean()) / (summed_N.std(ddof=1) + epsilon)


@given(GROUPS)
@settings(max_examples=50)
def test_it_agrees_with_a_loop_over_groups_as_trl_has_it(groups):
    found = GdpoAdvantageMapper(weights=WEIGHTS, epsilon=1e-4)
    got = run(found, table(*groups)).columns["advantage"].to_numpy(zero_copy_only=False)
    np.testing.assert_allclose(got, by_trl(groups), atol=1e-9)
