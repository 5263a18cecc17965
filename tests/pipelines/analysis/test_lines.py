"""Lines follow rows through any changes, as a plain list of rows would."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import Change
from rejuice.pipelines.analysis.written import Lines


@st.composite
def changes(draw):
    """How many rows there are at first, and changes to them, each with a column of numbers."""
    first = rows = draw(st.integers(0, 6))
    made = []
    for step in range(draw(st.integers(0, 4))):
        parents = reasons = None
        if draw(st.booleans()):
            numbers = draw(st.lists(st.integers(0, rows - 1), max_size=8)) if rows else []
            added = draw(st.integers(0, 2))
            parents = np.array([*sorted(numbers), *[-1] * added], np.int64)
        else:
            words = draw(st.lists(st.sampled_from([None, "why"]), min_size=rows, max_size=rows))
            reasons = pa.array(words, pa.string())
        n = rows if parents is None else len(parents)
        columns = {"x": pa.array(np.arange(n) + 100 * (step + 1), pa.int64())}
        made.append(Change(columns, reasons, parents))
        rows = n if reasons is None else reasons.null_count
    return first, made


@pytest.mark.slow
@given(changes())
def test_a_line_has_what_was_last_written_to_its_row(made):
    first, steps = made
    lines, plain = Lines(first), [{"x": at} for at in range(first)]
    lines.write(np.arange(first), "x", pa.array(np.arange(first), pa.int64()))
    current = list(range(first))
    for change in steps:
        values = change.columns["x"].to_pylist()
        before = lines.current_N
        lines.follow(change)
        if change.parents is None:
            lines.write(before, "x", change.columns["x"])
            for line, value in zip(current, values, strict=True):
                plain[line]["x"] = value
            kept = change.reasons.is_null().to_pylist()
            current = [line for line, keep in zip(current, kept, strict=True) if keep]
        else:
            lines.write(lines.current_N, "x", change.columns["x"])
            current = _children(plain, current, change.parents.tolist())
            for line, value in zip(current, values, strict=True):
                plain[line]["x"] = value
        assert lines.current_N.tolist() == current
    assert lines.column("x", pa.int64()).to_pylist() == [row["x"] for row in plain]


def _children(plain, current, parents):
    """The line of each child: its parent's for the first, else a new one that begins like it."""
    found, taken = [], set()
    for parent in parents:
        if parent >= 0 and parent not in taken:
            taken.add(parent)
            found.append(current[parent])
            continue
        plain.append(dict(plain[current[parent]]) if parent >= 0 else {"x": None})
        found.append(len(plain) - 1)
    return found


def test_a_column_has_the_type_in_which_it_was_written():
    lines = Lines(3)
    lines.write(np.array([0]), "why", pa.nulls(1))
    lines.write(np.array([2]), "why", pa.array(["timeout"]))
    assert lines.column("why").equals(pa.array([None, None, "timeout"]))
    assert lines.column("never", pa.float64()).null_count == 3
    assert lines.names == ["why"]
