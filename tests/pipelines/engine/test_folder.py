"""The folder of kept rows: its keys, its counter of retries, and what becomes of damaged files."""

import numpy as np
import pyarrow as pa
import pytest
from filelock import FileLock

from rejuice.operators import Change
from rejuice.pipelines.dataset.files import DamagedError
from rejuice.pipelines.engine import paid_rows as kept_folder
from rejuice.pipelines.engine import paid_rows as kept_journal
from rejuice.pipelines.engine import paid_rows_format as kept_chunk
from rejuice.pipelines.engine.commit import (
    RetriesGoneError,
    count_retry,
    counts_retries,
    retry_count,
)
from rejuice.pipelines.engine.paid_rows import (
    KeptRows,
    chunk_path,
    chunks,
    journalled,
    journals,
    rewrite_without,
    row_keys,
)
from rejuice.pipelines.engine.steps import StepResult

TABLE = pa.table({"x": ["a", "b", None]})
# What these rows have always been kept under: another key would lose what was paid for.
KEYS = [
    "d45532ac69cace2aac5769854379158e",
    "f297cba4f914d2f69158b960132738b8",
    "1db874c694424df9f48ff8a76d821ef7",
]


def finished(folder, table=TABLE):
    """A folder with a finished chunk; gives the chunk and its keys."""
    keys = row_keys(table)
    whole = chunk_path(folder, keys)
    change = Change({"y": pa.array([f"{value}!" for value in table["x"].to_pylist()])})
    kept_chunk.save(whole, StepResult.of(change, table.num_rows), keys)
    KeptRows(folder).add(whole, keys)
    return whole, keys


def found(folder, keys):
    """What is found of rows with these keys, as part of other chunks."""
    rows = KeptRows(folder).find(folder / "another.arrow", keys, range(len(keys)))
    return {row: entry.change.columns["y"].to_pylist() for row, entry in rows.items()}


def test_the_key_of_a_row_stays_what_it_is():
    assert row_keys(TABLE) == KEYS


def test_rows_are_found_in_another_chunk(tmp_path):
    _, keys = finished(tmp_path)
    assert found(tmp_path, ["0" * 32, *keys[::-1]]) == {1: ["None!"], 2: ["b!"], 3: ["a!"]}


def test_a_row_of_two_chunks_is_found_once(tmp_path):
    finished(tmp_path)
    _, keys = finished(tmp_path, TABLE.slice(1, 1))
    assert found(tmp_path, keys) == {0: ["b!"]}


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone"])
def test_damaged_keys_are_written_again(tmp_path, damage, caplog):
    whole, keys = finished(tmp_path)
    file = whole.with_suffix(".keys")
    content = file.read_bytes()
    flipped = content[:40] + bytes([content[40] ^ 0x80]) + content[41:]
    file.write_bytes({"flip": flipped, "cut": content[:50]}.get(damage, b""))
    if damage == "gone":
        file.unlink()
    assert list(chunks(tmp_path)) == [(whole, keys)]
    assert file.read_bytes() == content
    assert caplog.text == ""


def test_damaged_keys_of_a_chunk_that_has_none(tmp_path, caplog):
    whole, keys = finished(tmp_path)
    whole.unlink()  # As where only a journal is there.
    file = whole.with_suffix(".keys")
    file.write_text("nonsense")
    assert list(chunks(tmp_path)) == []
    lost = "its rows are found again only where the same rows are a chunk"
    assert [each.getMessage() for each in caplog.records] == [f"{file} is damaged: {lost}"]
    KeptRows(tmp_path).add(whole, keys)
    assert list(chunks(tmp_path)) == [(whole, keys)]


def test_a_damaged_chunk_keeps_its_good_rows(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(kept_chunk, "_BATCH_BYTES", 1)
    whole, keys = finished(tmp_path)
    before, _, after = whole.read_bytes().rpartition(b"b!")  # Once more in the padding of "a!".
    whole.write_bytes(before + b"c!" + after)
    with pytest.raises(DamagedError):
        found(tmp_path, keys)
    assert retry_count(tmp_path) == 1, "later steps would find what they made of the lost rows"
    line = f"{whole} is damaged: its rows are computed again, but for 2 that are undamaged"
    assert [each.getMessage() for each in caplog.records] == [line]
    assert not whole.exists()
    assert found(tmp_path, keys) == {0: ["a!"], 2: ["None!"]}


def unfinished(folder, rows):
    """A folder with a journal of these rows of a chunk; gives the chunk and the keys of all."""
    whole, keys = finished(folder)
    rewrite_without(whole, set(range(3)) - set(rows))
    return whole, keys


def commit(whole):
    """What another run does at the end of a chunk."""
    old = journals(whole)
    finished(whole.parent)
    for journal in old:
        journal.unlink()


WHOLE = {0: ["a!"], 1: ["b!"], 2: ["None!"]}


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_chunk_that_another_run_commits_during_the_search_is_found(tmp_path, monkeypatch, when):
    """Its journals are removed before they are listed, or before they are opened."""
    whole, keys = unfinished(tmp_path, {0, 1})
    assert found(tmp_path, keys) == {0: ["a!"], 1: ["b!"]}
    listed = kept_journal.journals

    def at_once(path):
        monkeypatch.setattr(kept_journal, "journals", listed)
        old = listed(path)
        commit(whole)
        return old if when == "after" else listed(path)

    monkeypatch.setattr(kept_journal, "journals", at_once)
    assert found(tmp_path, keys) == WHOLE


def test_a_chunk_that_another_run_takes_apart_during_the_search_is_found(tmp_path, monkeypatch):
    whole, keys = finished(tmp_path)
    load = kept_folder.load

    def at_once(path):
        monkeypatch.setattr(kept_folder, "load", load)
        kept_folder.take_apart(whole)
        return load(path)

    monkeypatch.setattr(kept_folder, "load", at_once)
    assert found(tmp_path, keys) == WHOLE


def test_a_damaged_chunk_that_another_run_has_is_not_waited_for(tmp_path):
    whole, keys = finished(tmp_path)
    whole.write_bytes(whole.read_bytes()[:-1])
    with FileLock(whole.with_suffix(".lock"), is_singleton=False):
        assert found(tmp_path, keys) == {}


def test_what_was_logged_stays_with_the_rows_that_stay(tmp_path):
    keys = row_keys(TABLE)
    whole = chunk_path(tmp_path, keys)
    change = Change(
        {"y": pa.array(["a!", None, "c!"])},
        notes={"n": 2.0},
        logged={"no answer": 1},
        failed=np.array([1]),
    )
    kept_chunk.save(whole, StepResult.of(change, 3), keys)
    rewrite_without(whole, {0})
    left = {row: entry.change for row, entry in journalled(whole).items()}
    assert [(row, c.notes, c.logged, c.failed.tolist()) for row, c in sorted(left.items())] == [
        (1, {"n": 2.0}, {"no answer": 1}, [0]),
        (2, {}, {}, []),
    ]
    rewrite_without(whole, {1})
    ((row, change),) = [(row, entry.change) for row, entry in journalled(whole).items()]
    assert (row, change.columns["y"].to_pylist(), change.failed.tolist()) == (2, ["c!"], [])


def test_retries_are_counted(tmp_path):
    assert retry_count(tmp_path) == 0
    for number in range(1, 12):
        count_retry(tmp_path)
        assert retry_count(tmp_path) == number


@pytest.mark.parametrize("content", ["3", "0"])
def test_the_counter_of_an_earlier_version_goes_on(tmp_path, content):
    (tmp_path / "generation").write_text(content)
    assert retry_count(tmp_path) == int(content)
    count_retry(tmp_path)
    assert retry_count(tmp_path) == int(content) + 1


@pytest.mark.parametrize("content", [b"", b"\xff", b"x", b"\0\0"])
def test_a_damaged_counter_is_a_number_that_no_run_had(tmp_path, content):
    (tmp_path / "generation").write_bytes(content)
    assert retry_count(tmp_path) == 1_000_000
    count_retry(tmp_path)
    assert retry_count(tmp_path) == 1_000_001


def test_whatever_is_in_the_files_of_the_counter_it_is_right(tmp_path):
    count_retry(tmp_path)
    count_retry(tmp_path)
    for file in tmp_path.iterdir():
        file.write_bytes(b"")
    assert retry_count(tmp_path) == 2
    assert all(map(counts_retries, tmp_path.iterdir()))


def test_a_counter_that_is_gone_is_there_again(tmp_path):
    keys = row_keys(TABLE)
    whole = chunk_path(tmp_path, keys)
    kept_chunk.save(whole, StepResult.of(Change({"y": pa.array([1, 2, 3])}), 3), keys, retries=2)
    with pytest.raises(RetriesGoneError, match="generation-2 was gone"):
        kept_folder.is_finished(whole)
    assert retry_count(tmp_path) == 2
    assert kept_folder.is_finished(whole)
