"""A frame against the plainest model there is: a list of dicts."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators import Change, DataError
from rejuice.operators.operator import surviving_rows
from rejuice.pipelines.engine.frame import Frame, GroupStarts, check_contiguous

VALUES = {
    pa.int64(): st.none() | st.integers(-5, 5),
    pa.string(): st.none() | st.text("ab", max_size=2),
    pa.list_(pa.struct([("k", pa.int64())])): st.none()
    | st.lists(st.fixed_dictionaries({"k": st.none() | st.integers(0, 3)}), max_size=2),
}
NAMES = ["a", "b", "c", "d"]


@st.composite
def columns(draw, length, names):
    """Columns of some length, some of them in several pieces."""
    made = {}
    for name in names:
        kind = draw(st.sampled_from(list(VALUES)))
        values = draw(st.lists(VALUES[kind], min_size=length, max_size=length))
        column = pa.array(values, kind)
        at = draw(st.integers(0, length))
        cut = pa.chunked_array([column.slice(0, at), column.slice(at)], type=kind)
        made[name] = draw(st.sampled_from([column, cut]))
    return made


@st.composite
def changes(draw, n, names):
    """A change that `checked` would pass: writes, drops, takes away, and expands rows."""
    written = draw(st.lists(st.sampled_from(NAMES), unique=True))
    without = tuple(draw(st.lists(st.sampled_from(names), unique=True))) if names else ()
    dropped = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    reasons = pa.array(["slug" if x else None for x in dropped], pa.string())
    if not draw(st.booleans()):
        if draw(st.booleans()):
            reasons = None
        return Change(draw(columns(n, written)), reasons, None, without)
    children = [0 if gone else draw(st.integers(1, 3)) for gone in dropped]
    parents = [row for row, k in enumerate(children) for _ in range(k)]
    for _ in range(draw(st.integers(0, 2))):
        parents.insert(draw(st.integers(0, len(parents))), -1)
    made = draw(columns(len(parents), written))
    return Change(made, reasons, np.array(parents, np.int64), without)


def model_after(rows, names, change):
    """The same, one row at a time. A row is (source row, values)."""
    written = {name: column.to_pylist() for name, column in change.columns.items()}
    kept = [name for name in names if name not in change.without]
    after = [*kept, *(name for name in written if name not in kept)]
    parents = range(len(rows)) if change.parents is None else change.parents
    out = []
    for at, parent in enumerate(parents):
        source, old = rows[parent] if parent >= 0 else (-1, dict.fromkeys(names))
        row = {name: written[name][at] if name in written else old[name] for name in after}
        stays = change.parents is not None or change.reasons is None
        if stays or change.reasons[at].as_py() is None:
            out.append((source, row))
    return out, after


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_changes_give_what_a_list_of_dicts_gives(data):
    n = data.draw(st.integers(0, 5))
    table = pa.table(data.draw(columns(n, ["a", "b"])))
    frame, names = Frame.of(table), ["a", "b"]
    rows = list(enumerate(table.to_pylist()))
    for _ in range(data.draw(st.integers(1, 4))):
        change = data.draw(changes(len(rows), names))
        frame = frame.after(change)
        rows, names = model_after(rows, names, change)
        assert frame.num_rows == frame.table().num_rows == len(rows)
        assert frame.column_names == frame.schema.names == names
        assert frame.table().schema == frame.schema
        assert frame.source_rows.tolist() == [source for source, _ in rows]
        if names:
            assert frame.table().to_pylist() == [row for _, row in rows]


def test_a_new_row_without_a_parent_is_null_where_nothing_was_written():
    frame = Frame.of(pa.table({"a": [1, 2], "b": ["x", "y"]}))
    parents = np.array([-1, 0, 1, -1])
    change = Change({"b": pa.array(["n", "x", "y", "m"])}, parents=parents)
    after = frame.after(change).after(Change(parents=np.array([0, 1, 3]), reasons=None))
    assert after.table().to_pylist() == [
        {"a": None, "b": "n"},
        {"a": 1, "b": "x"},
        {"a": None, "b": "m"},
    ]
    assert after.source_rows.tolist() == [-1, 0, -1]


def test_a_row_is_added_where_no_row_is_left():
    frame = Frame.of(pa.table({"a": [1]})).after(Change(reasons=pa.array(["gone"])))
    added = frame.after(Change({"b": pa.array([2])}, parents=np.array([-1])))
    assert added.table().to_pylist() == [{"a": None, "b": 2}]


def test_a_frame_is_not_changed_by_what_comes_after():
    frame = Frame.of(pa.table({"a": [1, 2]}))
    frame.after(Change({"a": pa.array([7, 8])}, pa.array([None, "gone"])))
    assert frame.table().to_pydict() == {"a": [1, 2]}


def test_a_table_without_columns_still_has_rows():
    frame = Frame.of(pa.table({"a": [1, 2, 3]}))
    assert frame.select([]).num_rows == 3
    bare = frame.after(Change(reasons=pa.array([None, "x", None]), without=("a",)))
    assert (bare.table().num_rows, bare.table().column_names) == (2, [])


def test_each_column_is_selected_once_and_must_exist():
    frame = Frame.of(pa.table({"a": [1], "b": [2]}))
    assert frame.select(["b", "a", "b"]).column_names == ["b", "a"]
    with pytest.raises(DataError, match=r"column .c. is missing"):
        frame.select(["c"])


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        (Change(), None),
        (Change(reasons=pa.array([None, None], pa.string())), None),
        (Change(reasons=pa.array(["x", None])), [1]),
        (Change(reasons=pa.chunked_array([["x"], ["x"]])), []),
        (Change(reasons=pa.array(["x", None]), parents=np.array([1, 1])), [1, 1]),
    ],
)
def test_surviving_rows(change, rows):
    found = surviving_rows(change, 2)
    assert found is None if rows is None else found.tolist() == rows


def test_an_untouched_column_is_not_copied():
    table = pa.table({"wide": ["x" * 100], "a": [1]})
    after = Frame.of(table).after(Change({"a": pa.array([2])}))
    assert after.select(["wide"])["wide"].chunk(0).buffers()[2].address == (
        table["wide"].chunk(0).buffers()[2].address
    )


def test_rows_without_a_prompt_are_no_group():
    frame = Frame.of(pa.table({"prompt_id": [None, "p", None, None, "q", None]}))
    found = GroupStarts.of(frame, 10)
    assert found.rows_G.tolist() == [11, 14]
    check_contiguous([found])
