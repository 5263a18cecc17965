"""Changes to parts of the rows, and to all of them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import Change
from rejuice.operators.operator import concatenate, split


def test_failed_rows_and_messages_survive_a_split():
    change = Change(
        {"x": pa.array(range(6))}, notes={"n": 2.0}, logged={"a": 3}, failed=np.array([1, 4, 5])
    )
    parts = list(split(change, [0, 2, 4, 6]))
    assert [part.failed.tolist() for part in parts] == [[1], [], [0, 1]]
    assert [part.logged for part in parts] == [{"a": 3}, {}, {}]
    whole = concatenate(parts, [2, 2, 2])
    assert whole.failed.tolist() == [1, 4, 5]
    assert (whole.logged, whole.notes) == ({"a": 3}, {"n": 2.0})
    assert concatenate([part._replace(failed=None) for part in parts], [2, 2, 2]).failed is None


@pytest.mark.parametrize("kind", [list, pa.array, np.array])
def test_parents_of_any_kind_are_put_together(kind):
    parts = [Change(parents=kind([0, -1, 1])), Change(), Change(parents=kind([0]))]
    assert concatenate(parts, [2, 1, 1]).parents.tolist() == [0, -1, 1, 2, 3]


@pytest.mark.slow
@given(sizes=st.lists(st.integers(0, 3), min_size=1, max_size=8), data=st.data())
def test_some_parts_of_a_split_are_those_of_all(sizes, data):
    rows = len(sizes)
    only = data.draw(st.sets(st.integers(0, rows - 1)))
    parents = np.repeat(np.arange(rows), sizes)
    change = Change(
        {"x": pa.array(range(len(parents)))},
        pa.array([None if size else "none" for size in sizes], pa.string()),
        parents,
        notes={"n": 1.0},
        logged={"a": 3},
        failed=np.flatnonzero(np.array(sizes) == 1),
    )
    every = [plain(part) for part in split(change, range(rows + 1))]
    some = [plain(part) for part in split(change, range(rows + 1), only)]
    assert some == [every[number] for number in sorted(only)]


def plain(change):
    columns = {name: column.to_pylist() for name, column in change.columns.items()}
    arrays = change.reasons.to_pylist(), change.parents.tolist(), change.failed.tolist()
    return columns, arrays, change.notes, change.logged
