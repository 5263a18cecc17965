"""Which groups of earlier steps train again."""

import numpy as np
import pyarrow as pa
import pytest

from rejuice.operators import RecipeError, build
from rejuice.operators.selector.replay_selector import ReplaySelector


def rows(groups):
    """Groups: name, age (None: of the present step), log ratio of each response, rewards."""
    made = [
        {
            "prompt_id": name,
            "replayed_from": None if age is None else 10 - age,
            "policy_age": age,
            "response_logprobs": [-1.0, -2.0],
            "policy_logprobs": None if ratio is None else [-1.0 + ratio, -2.0 + ratio],
            "reward": reward,
        }
        for name, age, ratios, rewards in groups
        for ratio, reward in zip(ratios, rewards, strict=True)
    ]
    schema = pa.schema(
        [
            ("prompt_id", pa.string()), ("replayed_from", pa.int64()), ("policy_age", pa.int64()),
            ("response_logprobs", pa.list_(pa.float32())), ("policy_logprobs", pa.list_(pa.float32())),
            ("reward", pa.float64()),
        ]
    )  # fmt: skip
    return pa.Table.from_pylist(made, schema)


def left(table, **fields):
    change = ReplaySelector(**fields).apply(table)
    kept = table.filter(change.reasons.is_null()) if change.reasons is not None else table
    return kept["prompt_id"].unique().to_pylist()


def test_offline_there_is_nothing_to_replay():
    table = pa.table({"prompt_id": ["a", "a", "b"], "reward": [1.0, 0.0, 1.0]})
    change = ReplaySelector(keep=1).apply(table)
    assert change.reasons is None
    assert {each.null_count for each in change.columns.values()} == {3}


def test_the_newest_come_first_and_of_a_step_the_greatest_spread():
    table = rows(
        [
            ("old", 2, [0, 0], [1, 0]),
            ("narrow", 1, [0, 0], [1, 0.5]),
            ("wide", 1, [0, 0], [1, 0]),
            ("own", None, [None, None], [1, 1]),
        ]
    )
    assert left(table, keep=1) == ["wide", "own"]
    assert left(table, keep=2) == ["narrow", "wide", "own"]
    assert left(table) == ["old", "narrow", "wide", "own"]


def test_a_group_with_a_response_outside_the_range_is_dropped_whole():
    table = rows(
        [
            ("near", 1, [0.1, -0.1], [1, 0]),
            ("far", 1, [0.1, -0.8], [1, 0]),
            ("unknown", 1, [0.1, None], [1, 0]),
        ]
    )
    change = ReplaySelector(ratio_range=(0.5, 2)).apply(table)
    assert change.reasons.to_pylist() == [None, None, *["ratio_out_of_range"] * 4]
    ratios = [np.exp([0.2, -0.2, 0.2, -1.6, 0.2]), np.exp([0.1, -0.1, 0.1, -0.8, 0.1])]
    for name, expected in zip(("importance_ratio", "mean_token_ratio"), ratios, strict=True):
        found = change.columns[name].to_pylist()
        assert found[:5] == pytest.approx(expected.tolist(), rel=1e-6)
        assert found[5] is None


def test_a_ratio_of_many_tokens_is_finite():
    table = rows([("a", 1, [-300.0, 300.0], [1, 0])])
    change = ReplaySelector(ratio_range=(1e-9, 1e9)).apply(table)
    assert np.isfinite(change.columns["importance_ratio"].to_numpy()).all()


@pytest.mark.parametrize("given", [[2, 3], [0, 2], [1.5, 1]])
def test_a_range_that_leaves_out_the_present_policy_is_refused(given):
    with pytest.raises(RecipeError, match="ratio_range"):
        build(ReplaySelector, {"ratio_range": given})


def test_it_says_where_a_row_comes_from():
    row = {"replayed_from": 7, "policy_age": 3, "mean_token_ratio": 1.0834}
    line = ReplaySelector().explain(row)["sampled"]
    assert line == "by step 7, 3 steps before; mean token ratio 1.083"
    assert ReplaySelector().explain({"replayed_from": None}) == {}
