"""A store whose answers break off in the middle: one line, and the next run finishes."""

import io
import json
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from breaking_proxy import breaking_proxy

from rejuice.operators import DataError
from rejuice.pipelines.dataset import remote
from rejuice.pipelines.dataset.remote import to_path
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load

PROCESS = [{"pass_rate_filter": {"min": 0.1}}, {"exact_deduplicator": {}}]
PARTS = 6
"""A run is broken off in each of so many parts of it."""


@pytest.fixture
def proxy(s3, monkeypatch):
    monkeypatch.setattr(remote, "_ATTEMPTS", 1)  # Else the client tries again for seconds,
    monkeypatch.setattr(remote, "_WAIT_S", 0)  # and the next run waits for the one before it.
    with breaking_proxy(s3) as proxy:
        yield proxy


@pytest.fixture
def folder(proxy):
    """A folder in the store; what is asked of it goes through the proxy."""
    query = f"endpoint_override=127.0.0.1:{proxy.server_port}&scheme=http"
    return to_path(f"s3://rollouts/{uuid.uuid4().hex}?{query}")


def as_parquet(rows):
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=20)
    return sink.getvalue()


def as_jsonl(rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows.to_pylist()).encode()


def as_gzip(rows):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "gzip") as stream:
        stream.write(as_jsonl(rows))
    return sink.getvalue().to_pybytes()


def check_broken_off(error, path):
    """The error is one line, which names a file of the store, and calls none damaged."""
    assert str(error).startswith(str(path).partition("?")[0])
    found = str(error).partition("scheme=http cannot be ")[2]
    done, _, right = found.partition(": ")
    assert done in ("read", "written", "listed", "removed")
    assert right == "the store cannot be reached; check the network and the endpoint"


@pytest.mark.slow
def test_dataset_cache_and_export_in_a_store_that_breaks_off(proxy, folder, recipe_file, rollouts):
    rows = rollouts(10)
    path, dataset = recipe_file(PROCESS, rows.to_pylist()), folder / "rows.parquet"
    dataset.write_bytes(as_parquet(rows))

    def run(name):
        export = folder / name / "curated.parquet"
        recipe = load(path, {"dataset_path": str(dataset), "export_path": str(export)})
        engine.run(recipe, chunk_rows=40, cache=folder / name / "cache")
        return export.read_bytes()

    proxy.break_after(None)
    right, requests = run("whole"), proxy.requests
    assert requests > 10 * PARTS
    for part in range(PARTS):
        proxy.break_after(requests * part // PARTS + part)
        with pytest.raises(DataError) as error:
            run(f"part-{part}")
        check_broken_off(error.value, folder)
        proxy.break_after(None)
        assert run(f"part-{part}") == right


@pytest.mark.parametrize(
    ("name", "content"),
    [("rows.parquet", as_parquet), ("rows.jsonl", as_jsonl), ("rows.jsonl.gz", as_gzip)],
)
def test_a_dataset_whose_bytes_break_off_is_not_called_damaged(
    proxy, folder, recipe_file, rollouts, name, content
):
    rows = rollouts(30)
    path, dataset = recipe_file(PROCESS, rows.to_pylist()), folder / name
    dataset.write_bytes(content(rows))
    recipe = load(path, {"dataset_path": str(dataset)})
    for whole in range(3, 8):
        proxy.break_after(whole)
        with pytest.raises(DataError) as error:
            engine.run(recipe)
        check_broken_off(error.value, dataset)
