"""Groups that a policy of too long ago has sampled."""

import pyarrow as pa
import pytest

from rejuice.operators.filter.policy_age_filter import PolicyAgeFilter

ROWS = pa.table({
    "prompt_id": ["a", "a", "b", "b", "c", "d"],
    "policy_age": pa.array([0, 1, 1, 2, None, 3]),
})  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "dropped"),
    [({}, [2, 3, 5]), ({"max_age": 0}, [0, 1, 2, 3, 5]), ({"max_age": 2}, [5]), ({"max_age": 3}, [])],
)  # fmt: skip
def test_whole_groups_are_dropped_by_their_oldest_response(fields, dropped):
    found = PolicyAgeFilter(**fields).decide(ROWS).to_pylist()
    assert {row: why for row, why in enumerate(found) if why} == dict.fromkeys(dropped, "too_old")


def test_without_ages_nothing_is_old():
    found = PolicyAgeFilter(max_age=0).decide(ROWS.drop_columns(["policy_age"]))
    assert found.null_count == len(found)
