"""How blocks of Ray are cut again; `test_plugin.py` runs it whole."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import Change
from rejuice.pipelines.engine.frame import Frame

pytest.importorskip("ray")
pytest.importorskip("data_juicer")
from rejuice.operators.operator import split
from rejuice.pipelines.dj_process import on_ray

pytestmark = pytest.mark.slow

ends_of = on_ray._ends


def block(ids):
    return pa.table({"prompt_id": pa.array(ids, pa.string())})


@given(
    st.lists(st.sampled_from(["a", "b", None]), max_size=12).map(
        lambda ids: [f"{i}{x}" if x else None for i, x in enumerate(ids)]
    ),
    st.lists(st.integers(1, 5), min_size=12, max_size=12),
    st.lists(st.integers(0, 40), max_size=8),
)
def test_every_block_holds_whole_groups_in_the_order_of_the_rows(groups, sizes, at):
    ids = [name for name, size in zip(groups, sizes, strict=False) for _ in range(size)]
    marks = [0, *sorted(min(x, len(ids)) for x in at), len(ids)]
    blocks = [ids[start:stop] for start, stop in pairwise(marks)]
    made = on_ray.cuts([ends_of(block(ids)) for ids in blocks if ids])
    blocks = [ids for ids in blocks if ids]
    out = [
        [x for part in parts for x in blocks[part.block][part.start : part.stop]] for parts in made
    ]
    assert [x for rows in out for x in rows] == ids
    assert all(out)
    for before, after in pairwise(out):
        assert before[-1] != after[0]


def test_without_the_column_of_groups_no_row_moves():
    made = on_ray.cuts([ends_of(pa.table({"text": ["x", "x"]}))] * 2)
    assert made == [[(0, 0, 2)], [(1, 0, 2)]]


@pytest.mark.parametrize("expands", [False, True])
def test_shares_of_a_change_are_the_change(expands):
    rows = pa.table({"a": [0, 1, 2, 3, 4, 5]})
    drop = pa.array([None, "x", None, None, "x", None], pa.string())
    if expands:
        parents = np.array([0, 0, 2, 3, 3, 5])
        change = Change({"new": pa.array(range(6))}, drop, parents)
    else:
        change = Change({"new": pa.array(range(6))}, drop, without=("a",))
    starts = [0, 2, 2, 5, 6]
    parts = split(change, starts)
    out = [
        Frame.of(rows.slice(start, stop - start)).after(share).table()
        for share, start, stop in zip(parts, starts, starts[1:], strict=False)
    ]
    assert pa.concat_tables(out).to_pylist() == Frame.of(rows).after(change).table().to_pylist()
