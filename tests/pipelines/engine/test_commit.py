"""What is committed is what is read back."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rejuice.operators import Change, DataError
from rejuice.pipelines.dataset.write import writer
from rejuice.pipelines.engine.plan import Retries, count_retry, counts_retry, load, save
from rejuice.pipelines.engine.steps import StepResult

MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))


def round_trip(path, change, rows_in, seconds=0.5):
    save(path, StepResult(change, rows_in, seconds))
    return load(path)


def values(change):
    return {name: column.to_pylist() for name, column in change.columns.items()}


def test_everything_of_a_commit_comes_back(tmp_path):
    change = Change(
        {
            "text": pa.array(["a", None, "ü\x00"]),
            "prompt": pa.array([[{"role": "user", "content": None}], [], None], MESSAGES),
            "score": pa.array([float("inf"), None, -0.0]),
            "big": pa.array([2**63 - 1, -(2**63), None]),
        },
        pa.array(["too_long", None, None, "too_short"]),
        np.array([-1, 1, 2]),
        ("old", "older"),
        {"shortfall": 3.0},
        {"WARNING no answer": 2},
        np.array([1, 3]),
    )
    commit = round_trip(tmp_path / "deep" / "c.arrow", change, 4, 1.25)
    assert values(commit.change) == values(change)
    types = {name: column.type for name, column in change.columns.items()}
    assert {name: column.type for name, column in commit.change.columns.items()} == types
    assert commit.change.reasons.equals(change.reasons)
    assert commit.change.parents.tolist() == [-1, 1, 2]
    assert commit.change.parents.dtype == np.int64
    assert (commit.change.without, commit.change.notes) == (("old", "older"), {"shortfall": 3.0})
    assert (commit.change.logged, commit.change.failed.tolist()) == (change.logged, [1, 3])
    assert (commit.rows_in, commit.seconds) == (4, 1.25)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.none() | st.sampled_from(["too_long", "no_text", "no_answer"])), st.data())
def test_any_reasons_come_back(tmp_path, reasons, data):
    at = data.draw(st.integers(0, len(reasons)))
    pieces = pa.chunked_array([reasons[:at], reasons[at:]], pa.string())
    found = round_trip(tmp_path / "c.arrow", Change(reasons=pieces), len(reasons)).change.reasons
    # Reasons that drop nothing are no reasons.
    assert (found.to_pylist() if found is not None else None) == (reasons if any(reasons) else None)


@pytest.mark.parametrize("rows", [0, 2])
def test_a_change_without_columns(tmp_path, rows):
    commit = round_trip(tmp_path / "c.arrow", Change(), rows)
    assert commit.change.columns == {}
    assert commit.change.reasons is None
    assert commit.change.parents is None
    assert commit.rows_in == rows


def test_no_rows_at_all(tmp_path):
    change = Change({"a": pa.array([], MESSAGES)}, None, np.zeros(0, np.int64))
    commit = round_trip(tmp_path / "c.arrow", change, 0)
    assert values(commit.change) == {"a": []}
    assert commit.change.columns["a"].type == MESSAGES
    assert commit.change.parents.tolist() == []


def test_every_row_dropped_by_a_change_that_expands(tmp_path):
    change = Change({}, pa.array(["gone", "gone"]), np.zeros(0, np.int64))
    commit = round_trip(tmp_path / "c.arrow", change, 2)
    assert commit.change.reasons.to_pylist() == ["gone", "gone"]
    assert commit.change.parents.tolist() == []


def test_columns_in_pieces_and_slices(tmp_path):
    words = pa.array(["n" * 10_000, "a", "b", "a", "n" * 10_000])
    pieces = pa.chunked_array([words.slice(1, 1), words.slice(2, 2)])
    dictionary = pa.chunked_array([pa.array(["x", "y"]).dictionary_encode(), pa.array(["z"]).dictionary_encode()])  # fmt: skip
    change = Change({"a": pieces, "b": words.slice(1, 3), "c": dictionary})
    path = tmp_path / "c.arrow"
    found = values(round_trip(path, change, 3).change)
    assert found == {"a": ["a", "b", "a"], "b": ["a", "b", "a"], "c": ["x", "y", "z"]}
    assert path.stat().st_size < 5_000, "only the rows of a slice are written"


def test_notes_may_be_numbers_of_numpy(tmp_path):
    notes = {"n": np.int64(3), "share": np.float32(0.5)}
    assert round_trip(tmp_path / "c.arrow", Change(notes=notes), 1).change.notes == {"n": 3, "share": 0.5}  # fmt: skip


def test_a_commit_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "c.arrow"
    save(path, StepResult(Change({"a": pa.array([1])}), 1))
    before = path.read_bytes()
    with pytest.raises(TypeError):
        save(path, StepResult(Change(notes={"n": None}), 1))
    unwritable = pa.table({"a": pa.chunked_array([pa.array(["x"]).dictionary_encode(), pa.array(["y"]).dictionary_encode()])})  # fmt: skip
    with pytest.raises(pa.ArrowInvalid), writer(path, unwritable.schema) as write:
        write(unwritable)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["c.arrow"]


def test_the_same_commit_is_the_same_bytes(tmp_path):
    change = Change({"a": pa.array([1, None])}, pa.array([None, "x"]), notes={"n": 1})
    files = [tmp_path / folder / "step" / "000000.arrow" for folder in "xy"]
    for file in files:
        save(file, StepResult(change, 2))
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("left", [0, 100, -10])
def test_a_damaged_file_is_named(tmp_path, left):
    path = tmp_path / "c.arrow"
    save(path, StepResult(Change({"a": pa.array([1])}), 1))
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(DataError) as caught:
        load(path)
    assert str(caught.value) == f"{path} is damaged; remove it and run again"


def test_retries_are_counted_by_names_alone(tmp_path):
    assert Retries.of(tmp_path) == (0, 0, 0)
    for what, counted in (("dropped", (1, 0, 1)), ("missing", (2, 2, 1)), ("dropped", (3, 2, 3))):
        count_retry(tmp_path, what)
        for file in tmp_path.iterdir():
            file.write_bytes(b"whatever")
        assert Retries.of(tmp_path) == counted
    assert all(map(counts_retry, tmp_path.iterdir()))
