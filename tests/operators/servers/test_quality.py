import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators.servers.verdict import WRITTEN, quality_columns, reward_of


@given(st.lists(st.floats(1, 5), min_size=1, max_size=9))
def test_the_reward_is_the_published_formula(means):
    mean_N = np.array(means)
    published_N = (mean_N / 5 - 0.2) / 0.8 - 0.5
    assert reward_of(mean_N) == pytest.approx(published_N, abs=1e-15)
    assert np.all(np.abs(reward_of(mean_N)) <= 0.5)


def test_a_row_with_a_reason_has_nothing_else():
    scores = {"a": np.array([5.0, 5.0]), "b": np.array([4.0, 4.0])}
    columns = quality_columns(scores, pa.array([None, "scorer_error"], pa.string()))
    assert tuple(columns) == WRITTEN
    assert {name: column.to_pylist() for name, column in columns.items()} == {
        "quality": [{"a": 5.0, "b": 4.0}, None],
        "quality_score": [0.9, None],
        "reward_quality": [0.375, None],
        "reward_quality_missing": [None, "scorer_error"],
    }


def test_no_rows_have_the_same_types():
    some = quality_columns({"a": np.ones(1)}, pa.nulls(1, pa.string()))
    none = quality_columns({"a": np.ones(0)}, pa.nulls(0, pa.string()))
    assert [c.type for c in none.values()] == [c.type for c in some.values()]
    assert {len(column) for column in none.values()} == {0}
