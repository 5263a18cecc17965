"""A digest of a chunk: any range of its buckets is what was written, and is checked alone."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rejuice.pipelines.dataset.files import DamagedError
from rejuice.pipelines.engine import dataset_step
from rejuice.pipelines.engine.dataset_step import ALL_ROWS, BUCKETS, Digest, Shard, cut, save_digest


def table_of(rows):
    names = [f"row {number}" for number in range(rows)]
    kinds = pa.array([name[-1] for name in names], pa.string()).dictionary_encode()
    lists = pa.array([[number] * (number % 3) for number in range(rows)], pa.list_(pa.int64()))
    return pa.table({"name": pa.array(names, pa.string()), "kind": kinds, "lists": lists})


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    buckets=st.lists(st.integers(0, BUCKETS - 1) | st.integers(500, 503), max_size=40),
    ends=st.tuples(st.integers(0, BUCKETS - 1), st.integers(1, BUCKETS)),
    with_dictionary=st.booleans(),
    part_bytes=st.integers(1, 2_000),
)
def test_any_range_of_buckets_is_read_as_it_was(
    tmp_path, buckets, ends, with_dictionary, part_bytes
):
    path, bucket_N = tmp_path / "digest", np.array(buckets, np.uint16)
    table = table_of(len(buckets))
    table = table if with_dictionary else table.drop_columns(["kind"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset_step, "_PART_BYTES", part_bytes)
        save_digest(path, table, bucket_N, 0.5)
    shard = Shard(min(ends), max(max(ends), min(ends) + 1))
    digest = Digest.open(path)
    order_N = np.argsort(bucket_N, kind="stable")
    wanted_N = [row for row in order_N if shard.first <= bucket_N[row] < shard.stop]
    assert digest.rows_of(shard).equals(table.take(pa.array(wanted_N, pa.int64())))
    assert digest.chunk_rows()[digest.within(shard)].tolist() == wanted_N
    assert (digest.num_rows, digest.seconds, digest.is_sharded) == (len(buckets), 0.5, True)


def test_a_digest_without_shards_is_in_the_order_of_the_chunk(tmp_path):
    table = table_of(9)
    save_digest(tmp_path / "digest", table, None, 0.0)
    digest = Digest.open(tmp_path / "digest")
    assert digest.rows_of(ALL_ROWS).equals(table)
    assert digest.chunk_rows() is None
    assert not digest.is_sharded


def test_rows_of_one_part_on_disk_are_mapped(tmp_path):
    table = pa.table({"x": np.arange(1 << 17)})
    save_digest(tmp_path / "digest", table, np.full(table.num_rows, 7), 0.0)
    before = pa.total_allocated_bytes()
    rows = Digest.open(tmp_path / "digest").rows_of(ALL_ROWS)
    assert pa.total_allocated_bytes() - before < table.nbytes / 10
    assert rows.num_rows == table.num_rows


def test_damage_is_found_by_those_who_read_it(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset_step, "_PART_BYTES", 1)
    path, bucket_N = tmp_path / "digest", np.repeat([3, 900], 5)
    save_digest(path, pa.table({"x": range(10)}), bucket_N, 0.0)
    right = path.read_bytes()
    ends = Digest.open(path).sections.ends
    assert len(ends) == 4
    low, high = Shard(0, 512), Shard(512, BUCKETS)
    readers = (
        lambda: Digest.open(path).rows_of(low),
        lambda: Digest.open(path).rows_of(high),
        lambda: Digest.open(path).chunk_rows(),
    )
    for damaged, at in enumerate(ends[:-1]):
        path.write_bytes(right[:at] + bytes([right[at] ^ 1]) + right[at + 1 :])
        for number, read in enumerate(readers):
            if number == damaged:
                with pytest.raises(DamagedError, match="digest is damaged"):
                    read()
            else:
                read()


@pytest.mark.slow
@given(
    bytes_B=st.lists(st.integers(0, 9), min_size=BUCKETS, max_size=BUCKETS), most=st.integers(1, 30)
)
def test_ranges_are_all_buckets_and_as_large_as_may_be(bytes_B, most):
    ranges = cut(bytes_B, most)
    assert [bucket for each in ranges for bucket in range(*each)] == list(range(BUCKETS))
    sizes = [sum(bytes_B[each.first : each.stop]) for each in ranges]
    assert all(
        size <= most or sum(map(bool, bytes_B[each.first : each.stop])) == 1
        for size, each in zip(sizes, ranges, strict=True)
    )
    for size, following in zip(sizes, ranges[1:], strict=False):
        assert size + bytes_B[following.first] > most
