"""A journal holds whole entries, whenever its process ends."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators import Change
from rejuice.pipelines.engine.journal import Entry, Journal, entries, journals

EXPANDED = Change(
    {"text": pa.array(["a", None]), "ids": pa.array([[1], []], pa.list_(pa.int32()))},
    pa.array([None], pa.string()),
    np.array([0, 0]),
)
DROPPED = EXPANDED._replace(
    columns={name: column.slice(0, 0) for name, column in EXPANDED.columns.items()},
    reasons=pa.array(["gone"]),
    parents=np.zeros(0, np.int64),
)
NOTED = Change({"x": pa.array([1.5])}, pa.array([None], pa.string()), None, ("text",), {"n": 2.0})
CHANGES = [EXPANDED, DROPPED, NOTED, EXPANDED]


def same(one, other):
    assert one[0] == other[0]
    assert one.seconds == other.seconds
    for mine, theirs in zip(one.change, other.change, strict=True):
        if isinstance(mine, np.ndarray):
            assert mine.tolist() == theirs.tolist()
        else:
            assert mine == theirs


@pytest.fixture
def path(tmp_path):
    return tmp_path / "chunk.arrow"


def written(path):
    made = [Entry(row, change, row / 2) for row, change in enumerate(CHANGES)]
    with Journal(path) as journal:
        for entry in made:
            journal.add(entry)
    return made


def test_entries_come_back_as_they_were(path):
    made = written(path)
    assert [entry.row for entry in entries(path)] == [0, 1, 2, 3]
    for one, other in zip(made, entries(path), strict=True):
        same(one, other)
    assert len(journals(path)) == 3  # Another schema, another file.


def test_an_entry_is_there_before_the_journal_is_closed(path):
    journal = Journal(path)
    journal.add(Entry(5, EXPANDED, 0.0))
    assert [entry.row for entry in entries(path)] == [5]
    journal.close()


def test_a_journal_that_goes_on_is_another_file(path):
    written(path)
    with Journal(path) as journal:
        journal.add(Entry(9, NOTED, 0.0))
    assert [entry.row for entry in entries(path)] == [0, 1, 2, 3, 9]


def test_there_is_none(path):
    assert list(entries(path)) == []
    with Journal(path):
        pass
    assert journals(path) == []


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_was_cut_off_the_whole_entries_are_left(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("journal") / "chunk.arrow"
    with Journal(path) as journal:
        sizes = []
        for row in range(4):
            journal.add(Entry(row, EXPANDED, 0.0))
            sizes.append(journals(path)[0].stat().st_size)
    (file,) = journals(path)
    whole = file.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    file.write_bytes(whole[:cut])
    assert [entry.row for entry in entries(path)] == [r for r in range(4) if sizes[r] <= cut]


def test_a_failed_write_is_reported(path, tmp_path):
    journal = Journal(tmp_path / "no such folder" / "chunk.arrow")
    with pytest.raises(OSError, match="no such folder"):
        journal.add(Entry(0, NOTED, 0.0))
    journal.close()
