"""What is asked of an object store to open a dataset: little, and nothing twice."""

import random
import string

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from object_store import Answers, object_store

from rejuice.pipelines.dataset import parquet
from rejuice.pipelines.dataset.datafile import DataFile
from rejuice.pipelines.dataset.read import Dataset
from rejuice.pipelines.dataset.spec import DatasetSpec, dataset_files
from rejuice.pipelines.dataset.written import mark_written, written_columns
from rejuice.pipelines.filesystem.remote import to_path


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


def test_responses_are_not_fetched_to_know_how_large_they_are(long, answers, table):
    assert long.size > 8_000_000
    answers.clear()
    layout = parquet.RowGroups.of([long])
    assert answers.bytes < 500_000
    assert layout.sizes[-1] == pytest.approx(table.nbytes, rel=0.2)


def test_the_first_rows_are_those_of_one_row_group(long, answers):
    dataset = Dataset(long.path)
    answers.clear()
    assert dataset.first_rows.num_rows == 1000
    assert answers.bytes < 5_000_000


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


@pytest.mark.parametrize("pattern", ["*/*.parquet", "**", "**/*.parquet"])
def test_a_pattern_lists_each_folder_once(many, answers, pattern):
    answers.clear()
    assert len(dataset_files(many / pattern)) == 12
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


ENCODED = [
    {},
    {"compression": "zstd"},
    {"version": "1.0"},
    {"dictionary_pagesize_limit": 1 << 30},
    {"use_dictionary": False},
    {"use_dictionary": False, "column_encoding": {"prompt": "DELTA_BYTE_ARRAY"}},
]


@pytest.mark.parametrize("options", ENCODED)
def test_the_size_of_rows_is_known_however_they_are_encoded(tmp_path, table, options):
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=1000, **options)
    sizes = parquet.RowGroups.of([DataFile.of(path)]).sizes
    assert len(sizes) == 5
    assert sizes[-1] == pytest.approx(table.nbytes, rel=0.2)
