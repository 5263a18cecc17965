"""A journal holds whole entries, whenever its process ends."""

import threading
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators import Change
from rejuice.operators.disk import MAGIC
from rejuice.pipelines.engine import paid_rows as journal_module
from rejuice.pipelines.engine.paid_rows import Entry, Journal, Syncer, entries, journals

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
FAILED = Change(
    {"x": pa.array([2.5])},
    pa.array([None], pa.string()),
    logged={"no answer": 3},
    failed=np.array([0]),
)
CHANGES = [EXPANDED, DROPPED, NOTED, FAILED]


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
    assert len(journals(path)) == 1


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


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of a journal of 12 entries, and where each of them ends."""
    path, ends = tmp_path_factory.mktemp("whole") / "kept-x" / "chunk.arrow", []
    path.parent.mkdir()
    with Journal(path) as journal:
        for row in range(12):
            journal.add(Entry(row, CHANGES[row % len(CHANGES)], row / 2))
            ends.append(journals(path)[0].stat().st_size)
    return journals(path)[0].read_bytes(), ends


def reread(content, folder):
    """What is found in a journal with these bytes."""
    path = folder / "kept-x" / "chunk.arrow"
    path.parent.mkdir(exist_ok=True)
    path.with_name("chunk-0.journal").write_bytes(content)
    return list(entries(path))


def check_found(found, rows):
    assert [entry.row for entry in found] == rows
    for entry in found:
        same(entry, Entry(entry.row, CHANGES[entry.row % len(CHANGES)], entry.row / 2))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_was_cut_off_the_whole_entries_are_left(tmp_path_factory, whole, data):
    content, ends = whole
    cut = data.draw(st.integers(0, len(content)))
    found = reread(content[:cut], tmp_path_factory.mktemp("cut"))
    check_found(found, [row for row, end in enumerate(ends) if end <= cut])


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_whatever_is_damaged_the_other_entries_are_found(tmp_path_factory, whole, data):
    """Flipped bits, a zeroed page, bytes that are gone or too many: the entries before and after
    are as they were."""
    content, ends = whole
    start = data.draw(st.integers(0, len(content) - 1))
    damage = data.draw(st.sampled_from(["flip", "zeros", "hole", "garbage"]))
    length = 1 if damage == "flip" else data.draw(st.integers(1, 4096))
    stop = min(len(content), start + length)
    if damage == "flip":
        new = bytes([content[start] ^ (1 << data.draw(st.integers(0, 7)))])
    elif damage == "zeros":
        new = bytes(stop - start)
    else:
        new = b"" if damage == "hole" else data.draw(st.binary(min_size=1, max_size=50))
    damaged = content[:start] + new + content[stop:]
    found = reread(damaged, tmp_path_factory.mktemp("damaged"))
    each = enumerate(pairwise([0, *ends]))
    check_found(found, [row for row, (begin, end) in each if content[begin:end] in damaged])


def test_damage_is_logged_and_half_an_entry_is_not(tmp_path, whole, caplog):
    content, ends = whole
    reread(content[:-5], tmp_path)
    assert caplog.text == ""
    reread(content[: ends[1]] + content[ends[1] + 1 :], tmp_path)
    file = tmp_path / "kept-x" / "chunk-0.journal"
    line = f"{file} is damaged: what is lost of it is computed again"
    assert [record.getMessage() for record in caplog.records] == [line]


def test_a_magic_inside_an_entry_is_none(path):
    odd = Change({"x": pa.array([MAGIC * 40])}, pa.array([None], pa.string()))
    with Journal(path) as journal:
        for row in range(3):
            journal.add(Entry(row, odd, 0.0))
    (file,) = journals(path)
    content = file.read_bytes()
    size = len(content) // 3
    file.write_bytes(content[:size] + b"?" + content[size + 1 :])
    assert [entry.row for entry in entries(path)] == [0, 2]


class _Refused:
    """A journal whose disk takes nothing more."""

    def __init__(self):
        self.tried = threading.Event()

    def sync(self):
        self.tried.set()
        raise OSError(28, "No space left on device")


def test_what_the_disk_refuses_later_is_raised_wherever_a_journal_is_used():
    refused = _Refused()
    with Syncer(every_s=0.001) as opened:
        opened.written(refused)
        assert refused.tried.wait(60)
        with pytest.raises(OSError, match="No space left"):
            opened.forget(refused)  # Waits for the round to end.
        with pytest.raises(OSError, match="No space left"):
            opened.written(refused)


def test_what_the_disk_has_refused_once_is_raised_when_the_journal_is_closed(path, monkeypatch):
    """After its last entry, and although the system has nothing to report any more."""
    failed, synced = threading.Event(), []

    def sync(number):
        if not failed.is_set():
            failed.set()
            raise OSError(5, "Input/output error")
        synced.append(number)

    monkeypatch.setattr(journal_module.os, "fsync", sync)
    monkeypatch.setattr(journal_module, "sync", lambda folder: None)
    with Syncer(every_s=0.001) as opened:
        journal = Journal(path, opened)
        journal.add(Entry(0, NOTED, 0.0))
        assert failed.wait(60)
        with pytest.raises(OSError, match="Input/output error"):
            journal.close()
    assert len(synced) == 1, "it was closed all the same"


def test_whatever_goes_wrong_in_the_thread_is_raised():
    class Broken(_Refused):
        def sync(self):
            self.tried.set()
            raise RuntimeError("a bug")

    broken = Broken()
    with Syncer(every_s=0.001) as opened:
        opened.written(broken)
        assert broken.tried.wait(60)
        with pytest.raises(RuntimeError, match="a bug"):
            opened.forget(broken)


def test_what_was_written_is_synced_once_a_round(path, monkeypatch):
    synced = threading.Semaphore(0)
    calls = []

    def sync(number):
        calls.append(number)
        synced.release()

    monkeypatch.setattr(journal_module.os, "fsync", sync)
    with Syncer(every_s=0.001) as opened, Journal(path, opened) as journal:
        for row in range(3):
            journal.add(Entry(row, NOTED, 0.0))
        assert synced.acquire(timeout=60)
        assert 1 <= len(calls) <= 3
    assert len(calls) >= 2  # Once more when it is closed.


def test_a_failed_write_is_reported(path, tmp_path):
    journal = Journal(tmp_path / "no such folder" / "chunk.arrow")
    with pytest.raises(OSError, match="no such folder"):
        journal.add(Entry(0, NOTED, 0.0))
    journal.close()


def test_a_journal_of_another_chunk_is_not_taken(tmp_path, whole, caplog):
    """As where one is copied, or renamed, into the place of another."""
    content, _ = whole
    path = tmp_path / "kept-x" / "another.arrow"
    path.parent.mkdir()
    journal = path.with_name("another-0.journal")
    journal.write_bytes(content)
    assert list(entries(path)) == []
    line = f"{journal} is damaged: what is lost of it is computed again"
    assert [record.getMessage() for record in caplog.records] == [line]
