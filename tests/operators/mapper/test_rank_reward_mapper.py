import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import DataError
from rejuice.operators.check import check_operator
from rejuice.operators.mapper.rank_reward_mapper import RankRewardMapper


def rewards(*groups, **fields):
    rows = [(f"p{g}", value) for g, group in enumerate(groups) for value in group]
    table = pa.table(
        {
            "prompt_id": pa.array([row[0] for row in rows], pa.string()),
            "score": pa.array([row[1] for row in rows], pa.float64()),
        }
    )
    columns = check_operator(RankRewardMapper(column="score", **fields), table).columns
    return [column.to_pylist() for column in columns.values()]


def test_the_largest_has_1_and_equal_ones_share():
    # Places 0, 1.5, 1.5 and 3 of 3; and 1, 0 of 1.
    assert rewards([-4, 2, 2, 9], [0.5, 0.4])[0] == [0, 0.5, 0.5, 1, 1, 0]
    assert rewards([-4, 2, 9], order="descending")[0] == [1, 0.5, 0]


def test_where_all_are_equal_each_has_one_half():
    assert rewards([3.3] * 5)[0] == [0.5] * 5
    assert rewards([3.3] * 5, order="descending")[0] == [0.5] * 5


@pytest.mark.parametrize("missing", [None, float("nan"), float("inf")])
def test_what_has_no_number_is_missing_and_not_ranked(missing):
    values, reasons = rewards([5, missing, 7, 6], [1, missing])
    assert values == [0, None, 1, 0.5, None, None]
    assert reasons == [None, "no_value", None, None, "group_too_small", "no_value"]


def test_a_component_of_another_name():
    table = pa.table({"prompt_id": ["a", "a"], "score": [1, 2]})
    found = RankRewardMapper(column="score", component="judged").apply(table)
    assert set(found.columns) == {"reward_judged", "reward_judged_missing"}


def test_a_column_without_numbers_is_an_error():
    with pytest.raises(DataError, match=r"^column 'score' is string, not numeric"):
        RankRewardMapper(column="score").apply(pa.table({"prompt_id": ["a"], "score": ["good"]}))


@given(st.lists(st.lists(st.integers(-3, 3), min_size=2, max_size=7), min_size=1, max_size=4))
def test_it_is_the_share_of_others_below_and_half_of_those_that_are_equal(groups):
    expected = [
        (np.sum(np.less(group, own)) + (np.sum(np.equal(group, own)) - 1) / 2) / (len(group) - 1)
        for group in groups
        for own in group
    ]
    assert rewards(*groups)[0] == pytest.approx(expected)
