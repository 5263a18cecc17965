"""What is asked of an object store to open a dataset: little, and nothing twice."""

import random
import string

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from object_store import Answers, object_store

from rejuice.pipelines.dataset import parquet
from rejuice.pipelines.dataset.files import DataFile
from rejuice.pipelines.dataset.read import Dataset
from rejuice.pipelines.dataset.remote import to_path
from rejuice.pipelines.dataset.spec import DatasetSpec, files_of
from rejuice.pipelines.dataset.write import mark_written, written_columns


@pytest.fixture(scope="module")
def table():
    """Rows with long responses, and a long prompt for each eight of them."""
    letters, rows = random.Random(0), range(4000)
    return pa.table(
        {
            "prompt": [f"{row // 8} {'x' * 500}" for row in rows],
            "messages": [[{"role": "user", "content": f"{row // 8}?"}] for row in rows],
            "response": ["".join(letters.choices(string.ascii_letters, k=2000)) for _ in rows],
            "reward": [float(row % 7) for row in rows],
        }
    )


@pytest.fixture(scope="module")
def answers(s3):
    return Answers()


@pytest.fixture(scope="module")
def bucket(answers):
    """A folder in a store of its own, whose answers are counted."""
    with object_store("counted", answers=answers) as address:
        host = address.removeprefix("http://")
        yield to_path(f"s3://counted/data?endpoint_override={host}&scheme=http")


@pytest.fixture(scope="module")
def long(bucket, table):
    """A file of two row groups of 4 MB each."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=2000)
    path = bucket / "long" / "a.parquet"
    path.write_bytes(sink.getvalue())
    return DataFile.of(path)


@pytest.mark.slow
def test_two_pages_of_a_column_are_fetched_to_know_how_large_its_rows_are(long, answers, table):
    """A page has 1 MB, if there is so much, and there are two row groups."""
    assert long.size > 8_000_000
    answers.clear()
    layout = parquet.RowGroups.of([long])
    assert answers.bytes < 2 * 2_500_000
    assert layout.size == pytest.approx(table.nbytes, rel=0.2)


@pytest.mark.slow
def test_the_first_rows_are_those_of_one_row_group(long, answers, monkeypatch):
    monkeypatch.setattr(parquet, "_TOGETHER_BYTES", 1 << 20)
    dataset = Dataset(long.path)
    answers.clear()
    assert dataset.first_rows.num_rows == 1000
    assert answers.bytes < 5_000_000


@pytest.mark.slow
def test_rows_of_a_store_are_those_of_the_file(long, table):
    assert Dataset(long.path).table().equals(table)


@pytest.fixture(scope="module")
def many(bucket):
    """Three folders of four files each, which say what steps have written."""
    rows = pa.table({"n": [1], "score": [2.0]})
    sink = pa.BufferOutputStream()
    pq.write_table(rows.cast(mark_written(rows.schema, ["score"])), sink)
    for number in range(12):
        path = bucket / "many" / str(number % 3) / f"{number}.parquet"
        path.write_bytes(sink.getvalue())
    return bucket / "many"


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["*/*.parquet", "**", "**/*.parquet"])
def test_a_pattern_lists_each_folder_once(many, answers, pattern):
    answers.clear()
    assert len(files_of(many / pattern)) == 12
    # Four folders; whether there is a file of that name, and whether the folder is an export whose
    # run has not ended, in two requests each.
    assert len(answers.requests) <= 8
    answers.clear()
    assert DatasetSpec.of(many / pattern).exists()
    assert len(answers.requests) <= 8


def test_each_footer_is_read_once(many, answers):
    def footers():
        return [each for each in answers.requests if each.startswith("GET") and "parquet" in each]

    answers.clear()
    assert written_columns(many / "*/*.parquet") == {"score"}
    assert len(footers()) == 12
    answers.clear()
    assert Dataset(many / "*/*.parquet").schema.names == ["n", "score"]
    assert footers() == []


@pytest.mark.slow
def test_rows_are_as_large_in_a_store_as_on_disk(long, table, tmp_path):
    """Chunks are cut by it: a copy of a dataset is cut as the dataset is."""
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=2000)
    size = parquet.RowGroups.of([DataFile.of(path)]).size
    assert size == parquet.RowGroups.of([long]).size
