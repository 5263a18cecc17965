"""Changes to parts of the rows, and to all of them."""

import numpy as np
import pyarrow as pa

from rejuice.operators import Change
from rejuice.operators.change import concatenate, split


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
