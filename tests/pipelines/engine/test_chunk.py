"""The rows of the undamaged batches of a damaged chunk are found, exactly as they were."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators import Change
from rejuice.operators.disk import records_in
from rejuice.operators.operator import concatenate
from rejuice.pipelines.dataset.files import DamagedError
from rejuice.pipelines.engine import paid_rows_format as kept_chunk
from rejuice.pipelines.engine.paid_rows_format import load
from rejuice.pipelines.engine.steps import StepResult

ROWS = 40
KEYS = [f"{row:032x}" for row in range(ROWS)]
TEXT, IDS = pa.string(), pa.list_(pa.int32())


def expanded(rng, row):
    """The change of a row: several samples, or none at all."""
    n = 0 if row % 7 == 3 else rng.randint(1, 4)
    texts = [None if rng.random() < 0.2 else "é" * rng.randint(0, 30) for _ in range(n)]
    ids = [list(range(rng.randint(0, 9))) for _ in range(n)]
    columns = {"text": pa.array(texts, TEXT), "ids": pa.array(ids, IDS)}
    reasons = pa.array([None if n else "gone"], TEXT)
    return Change(columns, reasons, np.zeros(n, np.int64))


def scored(rng, row):
    """The change of a row that stays one row, of which some failed."""
    failed = np.zeros(1, np.int64) if row % 5 == 0 else np.zeros(0, np.int64)
    columns = {"score": pa.array([rng.random()]), "text": pa.array([f"{row} " * 20])}
    return Change(columns, pa.array([None], TEXT), failed=failed)


def as_values(change):
    columns = {name: column.to_pylist() for name, column in change.columns.items()}
    parents = None if change.parents is None else change.parents.tolist()
    failed = None if change.failed is None else change.failed.tolist()
    reasons = [] if change.reasons is None else change.reasons.to_pylist()
    reasons = reasons if any(reasons) else []  # Reasons that drop nothing are no reasons.
    return columns, reasons, parents, failed


def placed(folder, content):
    """A file with this content, under the name that the chunk has."""
    path = folder / "kept-x" / "chunk.arrow"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def batches_of(path):
    return len(list(records_in(memoryview(path.read_bytes())))) - 1


@pytest.fixture(scope="module", params=[expanded, scored])
def chunk(request, tmp_path_factory):
    """A file of several batches, and the values of its rows."""
    rng = random.Random(1)
    changes = [request.param(rng, row) for row in range(ROWS)]
    path = tmp_path_factory.mktemp("chunks") / "kept-x" / "chunk.arrow"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_chunk, "_BATCH_BYTES", 400)
        result = StepResult.of(concatenate(changes, [1] * ROWS), ROWS, 1.5)
        kept_chunk.save(path, result, KEYS)
    return path, [as_values(change) for change in changes], result


def test_it_is_read_as_a_commit(chunk):
    path, _, result = chunk
    found = load(path)
    assert as_values(found.change) == as_values(result.change)
    assert (found.rows_in, found.seconds, found.summary) == (ROWS, 1.5, result.summary)
    assert kept_chunk.keys_of(path) == KEYS
    assert batches_of(path) > 5


def test_everything_is_good_of_what_is_not_damaged(chunk):
    path, values, _ = chunk
    found = [(row, as_values(change)) for row, change in kept_chunk.undamaged_rows(path)]
    assert found == list(enumerate(values))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_whatever_is_damaged_what_is_found_is_right(chunk, tmp_path_factory, data):
    path, values, _ = chunk
    content = bytearray(path.read_bytes())
    start = data.draw(st.integers(0, len(content) - 1))
    damage = data.draw(st.sampled_from(["flip", "zeros", "cut", "more"]))
    if damage == "flip":
        content[start] ^= 1 << data.draw(st.integers(0, 7))
    elif damage == "zeros":
        stop = min(len(content), start + data.draw(st.integers(1, 4096)))
        content[start:stop] = bytes(stop - start)
    elif damage == "cut":
        content = content[:start]
    else:
        content += content[start:][:4096]
    damaged = placed(tmp_path_factory.mktemp("damaged"), content)
    for row, change in kept_chunk.undamaged_rows(damaged):
        assert as_values(change) == values[row]
    assert kept_chunk.keys_of(damaged) in (KEYS, None)


@pytest.mark.parametrize("chunk", [expanded], indirect=True)
def test_damaged_offsets_do_not_end_the_process(chunk, tmp_path):
    """Arrow takes lists to begin where their offsets are, and aborts if that is outside."""
    path, values, _ = chunk
    content = path.read_bytes()
    _, offsets, *_ = load(path).change.columns["ids"].chunk(0).buffers()
    begin = content.index(offsets.to_pybytes())
    for at in range(begin, begin + offsets.size):
        damaged = bytearray(content)
        damaged[at] ^= 1 << 6
        file = placed(tmp_path, damaged)
        for row, change in kept_chunk.undamaged_rows(file):
            assert as_values(change) == values[row]


def test_values_under_a_damaged_name_are_not_taken(chunk, tmp_path):
    path, *_ = chunk
    content = path.read_bytes()
    at = content.find(b"text")
    while at >= 0:
        damaged = placed(tmp_path / f"{at}", content[:at] + b"texT" + content[at + 4 :])
        assert all("text" in each.columns for _, each in kept_chunk.undamaged_rows(damaged))
        at = content.find(b"text", at + 1)
    assert len(list(tmp_path.iterdir())) >= 2, "each record has the schema"


def test_one_damaged_value_costs_one_batch(chunk, tmp_path):
    path, *_ = chunk
    content = bytearray(path.read_bytes())
    text = "é".encode() * 5 if b"\xc3\xa9" * 5 in content else b"20 20 20"
    content[content.index(text)] ^= 1
    damaged = placed(tmp_path, content)
    lost = set(range(ROWS)) - {row for row, _ in kept_chunk.undamaged_rows(damaged)}
    assert 1 <= len(lost) <= 2 * ROWS / batches_of(path)


def test_a_chunk_without_rows(tmp_path):
    path = tmp_path / "chunk.arrow"
    change = Change({"text": pa.array([], TEXT)}, None, np.zeros(0, np.int64))
    kept_chunk.save(path, StepResult.of(change, 0), [])
    assert load(path).change.columns["text"].to_pylist() == []
    assert list(kept_chunk.undamaged_rows(path)) == []
    assert kept_chunk.keys_of(path) == []


def test_more_bytes_at_the_end_do_not_matter(chunk, tmp_path):
    path, values, _ = chunk
    damaged = placed(tmp_path, path.read_bytes() + b"nine more")
    assert as_values(load(damaged).change) == as_values(load(path).change)
    assert len(list(kept_chunk.undamaged_rows(damaged))) == len(values)


def test_a_chunk_that_is_cut_off_keeps_what_is_before_the_cut(chunk, tmp_path):
    path, values, _ = chunk
    content = path.read_bytes()
    damaged = placed(tmp_path, content[:-1])
    with pytest.raises(DamagedError):
        load(damaged)
    found = dict(kept_chunk.undamaged_rows(damaged))
    assert ROWS - 2 * ROWS / batches_of(path) <= len(found) < ROWS
    assert {row: as_values(change) for row, change in found.items()} == dict(
        enumerate(values[: len(found)])
    )


def test_nothing_of_another_chunk_is_taken(chunk, tmp_path):
    path, *_ = chunk
    other = tmp_path / "another.arrow"
    other.write_bytes(path.read_bytes())
    with pytest.raises(DamagedError):
        load(other)
    assert list(kept_chunk.undamaged_rows(other)) == []
    assert kept_chunk.keys_of(other) is None
