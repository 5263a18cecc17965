"""Steps of dataset scope: each chunk writes a digest, the digests are decided in shards.

    chunk ──write_digest──> digest, its rows sorted by bucket ──┐
    chunk ──write_digest──> digest                            ──┼─ decide_shard, for each shard
    ...                                                         │  a range of buckets of all digests
    commit of each chunk <──commit_decisions── decisions <──────┘

A shard is a range of buckets, see `Digest`, whose digests, and what deciding takes beside
them, fit into some memory; a small dataset is one shard. Nothing else is read to decide it. Shards
are independent of each other, so they may be decided one after another, which is what keeps memory
bounded, or side by side. A killed run resumes at the shards that are missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from ...operators import Operator
from ...operators.check import check_shard, shard_values
from ...operators.groups import Array, mix
from ...operators.operator import interleave, split
from ..dataset.remote import AnyPath, RemotePath
from ..recipe.steps import Step
from .commit import Sections, arrow_stream, load, save, write_sections
from .frame import Frame
from .plan import Plan
from .progress import Progress
from .steps import (
    StepResult,
    attribute_operator_errors,
    decide,
    digest,
    prefix_errors_with_file,
    prefix_errors_with_step,
    whole_result,
)
from .workers import Workers

# --- Digest file ----------------------------------------------------------------------
# What steps of dataset scope keep of chunks, in files of which a range of buckets is read alone.
#
#     rows of the first buckets | rows of the next buckets | ... | their numbers in the chunk
#
# A bucket is a hash of what `Operator.shard` gives for a row, so rows that must be decided together
# are in one bucket. Each part of a file is a section, see `commit.py`.

BUCKETS = 1024
_PART_BYTES = 32 << 10
"""A part has at most so much, unless one bucket of it has more. Smaller ones take longer to parse
and have a longer index; of larger ones more is read that is not of the shard."""
_WORKING_BYTES = 64
"""Per row, beside its digest: row numbers, hashes, an order of them, reasons."""

_SECONDS = b"seconds"
_BYTES = b"bytes"
_SCHEMA = b"schema"
_BUCKET_ENDS = b"bucket_ends"
_PART_ENDS = b"part_ends"


class Shard(NamedTuple):
    """A range of buckets whose rows are decided together."""

    first: int
    stop: int


ALL_ROWS = Shard(0, BUCKETS)


class Digest(NamedTuple):
    """What a step keeps of a chunk."""

    sections: Sections  # its file
    schema: pa.Schema  # of the digest
    part_ends: list[int]  # the bucket after the last one of each part
    ends_B: Array  # int32[BUCKETS + 1], how many rows come before each bucket, and all of them
    table_bytes: int  # of all rows, in memory
    seconds: float  # that it took

    @classmethod
    def open(cls, path: AnyPath) -> Digest:
        """Read all but the rows.

        Raises:
            DamagedError: what was read is not as it was written.
            FileNotFoundError: there is none.
        """
        sections = Sections.open(path)
        metadata = sections.metadata
        return cls(
            sections,
            pa.ipc.read_schema(pa.py_buffer(metadata[_SCHEMA])),
            np.frombuffer(metadata[_PART_ENDS], "<i4").tolist(),
            np.frombuffer(metadata[_BUCKET_ENDS], "<i4"),
            int(metadata[_BYTES]),
            float(metadata[_SECONDS]),
        )

    @property
    def num_rows(self) -> int:
        """Rows of the chunk."""
        return int(self.ends_B[-1])

    @property
    def is_sharded(self) -> bool:
        """Whether the rows are in order of their buckets; else they are in that of the chunk."""
        return len(self.sections.checksums) > len(self.part_ends)

    @property
    def bytes_B(self) -> Array:
        """Memory for the rows of each bucket, float64[BUCKETS]."""
        per_row = self.table_bytes / max(1, self.num_rows) + _WORKING_BYTES
        bytes_B: Array = np.diff(self.ends_B) * per_row
        return bytes_B

    def within(self, shard: Shard) -> slice:
        """Return the rows of a shard."""
        return slice(int(self.ends_B[shard.first]), int(self.ends_B[shard.stop]))

    def rows_of(self, shard: Shard) -> pa.Table:
        """Return the digest of these rows: mapped if they are of one part on disk, else in memory.

        Raises:
            DamagedError: a part of it is not as it was written.
            FileNotFoundError: the file has been removed since it was opened.
        """
        rows = self.within(shard)
        if rows.start == rows.stop:
            return self.schema.empty_table()
        ends_P = self.ends_B[self.part_ends]
        first = int(np.searchsorted(ends_P, rows.start, side="right"))
        last = int(np.searchsorted(ends_P, rows.stop))
        parts = self.sections.read(first, last + 1)
        table = pa.concat_tables(pa.ipc.open_stream(part).read_all() for part in parts)
        before = int(ends_P[first - 1]) if first else 0
        table = table.slice(rows.start - before, rows.stop - rows.start)
        # Operators loop over chunks. A shard of many parts is small: see `cut`.
        return table if len(parts) == 1 else table.combine_chunks()

    def chunk_rows(self) -> Array | None:
        """Return the row of the chunk for each row, int32[N]; None: they are in its order.

        Raises:
            DamagedError: they are not as they were written.
            FileNotFoundError: the file has been removed since it was opened.
        """
        if not self.is_sharded:
            return None
        parts = len(self.part_ends)
        (section,) = self.sections.read(parts, parts + 1)
        return np.frombuffer(section, "<i4")


def save_digest(path: AnyPath, table: pa.Table, bucket_N: Array | None, seconds: float) -> None:
    """Write the digest of a chunk."""
    if bucket_N is None:
        ends_B = np.array([0, *[table.num_rows] * BUCKETS])
        parts, numbers = [ALL_ROWS], []
    else:
        rows_N = np.argsort(bucket_N, kind="stable").astype("<i4")
        table = table.take(pa.array(rows_N))
        ends_B = np.cumsum([0, *np.bincount(bucket_N, minlength=BUCKETS)])
        parts, numbers = _parts(table, ends_B), [rows_N.tobytes()]
    table = table.replace_schema_metadata()
    starts = [int(ends_B[part.first]) for part in parts]
    tables = (
        table.slice(start, int(ends_B[part.stop]) - start)
        for start, part in zip(starts, parts, strict=True)
    )
    metadata = {
        _SECONDS: f"{seconds}".encode(),
        _BYTES: f"{table.nbytes}".encode(),
        _SCHEMA: table.schema.serialize().to_pybytes(),
        _BUCKET_ENDS: ends_B.astype("<i4").tobytes(),
        _PART_ENDS: np.array([part.stop for part in parts], "<i4").tobytes(),
    }
    write_sections(path, [*map(arrow_stream, tables), *numbers], metadata)


def cut(bytes_B: Iterable[float], most_bytes: float) -> list[Shard]:
    """Ranges of buckets that have at most so many bytes; a bucket that has more is alone."""
    first, size, ranges = 0, 0.0, []
    for bucket, more in enumerate(bytes_B):
        if size and more and size + more > most_bytes:
            ranges.append(Shard(first, bucket))
            first, size = bucket, 0.0
        size += more
    return [*ranges, Shard(first, BUCKETS)]


def _parts(table: pa.Table, ends_B: Array) -> list[Shard]:
    if any(pa.types.is_dictionary(kind) for kind in table.schema.types):
        return [ALL_ROWS]  # Else each part would have the whole dictionary.
    per_row = table.nbytes / max(1, table.num_rows)
    return cut((np.diff(ends_B) * per_row).tolist(), _PART_BYTES)


# --- Dataset step ---------------------------------------------------------------------

SHARD_BYTES = 128 << 20
"""A shard has at most so much in digests and what is computed of them, unless one bucket of it has
more."""
_MUCH_BYTES = 1 << 30
"""Where a step that cannot be sharded needs more, that is reported first."""
_REQUESTS = 16
"""So many digests in a store are read at a time."""

S = TypeVar("S")
T = TypeVar("T")


def write_digest(plan: Plan, step: Step, frame: Frame, chunk: int) -> None:
    """Write what a step keeps of a chunk, unless it is there.

    Raises:
        RejuiceError: what the operator raised.
    """
    path = plan.digest_path(step, chunk)
    if path.exists():
        return
    start = time.perf_counter()
    with prefix_errors_with_file(plan.recipe, step), prefix_errors_with_step(step):
        table = digest(step.operator, frame)
        bucket_N = _buckets(step.operator, table)
    save_digest(path, table, bucket_N, time.perf_counter() - start)


def _buckets(operator: Operator, table: pa.Table) -> Array | None:
    """Return the bucket of each row, uint16[N]; None: there are no shards."""
    with attribute_operator_errors(operator):
        values_N = shard_values(operator, table)
    if values_N is None:
        return None
    bucket_N: Array = (mix(values_N) >> np.uint64(64 - BUCKETS.bit_length() + 1)).astype(np.uint16)
    return bucket_N


def run_dataset_step(plan: Plan, step: Step, workers: Workers, progress: Progress) -> None:
    """Decide a step from the digests of all chunks, and commit it.

    Raises:
        RejuiceError: what the operator raised.
    """
    try:
        digests = _digests(plan, step)
        shards = _cut(digests, SHARD_BYTES)
        _tell_memory(step, digests, progress)
        if len(shards) == 1:
            decisions = [_decide(plan, step, shards[0], digests)]
        else:
            with progress.task(step.name, sum(each.num_rows for each in digests)) as task:
                work = partial(_decide_nth, plan, step, shards)
                for at, _ in workers.map([step], work, len(shards)):
                    task(_starts(digests, shards[at])[-1])
            decisions = [load(decision_path(plan, step, shard)) for shard in shards]
        commit_decisions(plan, step, shards, decisions, digests)
    except FileNotFoundError:
        # Another run on this cache may have been faster, and have cleared its digests away.
        if not plan.is_done(step):
            raise


def decision_path(plan: Plan, step: Step, shard: Shard) -> AnyPath:
    """Return where the decision about a shard is kept until all of them are made."""
    name = f"decided-{shard.first:04d}-{shard.stop:04d}.arrow"
    return plan.digest_path(step, 0).with_name(name)


def decide_shard(plan: Plan, step: Step, shard: Shard) -> None:
    """Decide a shard and keep the decision at `decision_path`, unless it is there.

    Raises:
        RejuiceError: what the operator raised.
        FileNotFoundError: a digest is missing.
    """
    path = decision_path(plan, step, shard)
    if not path.exists():
        save(path, _decide(plan, step, shard, _digests(plan, step)))


def commit_decisions(
    plan: Plan,
    step: Step,
    shards: Sequence[Shard],
    decisions: Sequence[StepResult],
    digests: Sequence[Digest] | None = None,
) -> None:
    """Commit each chunk's part of the decisions, and clear digests and decisions away."""
    digests = _digests(plan, step) if digests is None else digests
    parts = [
        split(decision.change, _starts(digests, shard))
        for shard, decision in zip(shards, decisions, strict=True)
    ]
    seconds = sum(each.seconds for each in digests) + sum(each.seconds for each in decisions)
    for chunk, (kept, changes) in enumerate(zip(digests, zip(*parts, strict=True), strict=True)):
        change = changes[0]
        rows_N = kept.chunk_rows()
        if rows_N is not None:
            change = interleave(changes, [rows_N[kept.within(shard)] for shard in shards])
        result = StepResult.of(change, kept.num_rows, seconds if chunk == 0 else 0.0)
        if step.operator.where is not None:  # Else nothing of the chunk is read again.
            with prefix_errors_with_file(plan.recipe, step):
                result = whole_result(step, plan.frame_before(chunk, step), result)
        save(plan.path(step, chunk), result)
    # Those of an earlier run that was killed included: of other shards, or of version 0.5.
    for path in plan.digest_path(step, 0).parent.iterdir():
        if path.name.startswith(("digest-", "decided-")):
            path.unlink(missing_ok=True)


def _cut(digests: Sequence[Digest], most_bytes: int) -> list[Shard]:
    if not all(each.is_sharded for each in digests):
        return [ALL_ROWS]
    bytes_B = np.sum([each.bytes_B for each in digests], axis=0)
    return cut(bytes_B.tolist(), most_bytes)


def _decide_nth(plan: Plan, step: Step, shards: Sequence[Shard], at: int) -> None:
    decide_shard(plan, step, shards[at])


def _decide(plan: Plan, step: Step, shard: Shard, digests: Sequence[Digest]) -> StepResult:
    start = time.perf_counter()
    tables = _for_each(plan, lambda each: each.rows_of(shard), digests)
    rows = sum(table.num_rows for table in tables)
    with prefix_errors_with_file(plan.recipe, step), prefix_errors_with_step(step):
        change = decide(step.operator, tables)
        if any(each.is_sharded for each in digests):
            check_shard(step.operator, change)
    return StepResult(change, rows, time.perf_counter() - start, {})


def _digests(plan: Plan, step: Step) -> list[Digest]:
    paths = [plan.digest_path(step, chunk) for chunk in range(len(plan.source.rows))]
    return _for_each(plan, Digest.open, paths)


def _for_each(plan: Plan, read: Callable[[S], T], items: Sequence[S]) -> list[T]:
    """What is read of each; many at a time from a store, where most of the time is waiting."""
    if not isinstance(plan.cache, RemotePath):
        return [read(each) for each in items]
    with ThreadPoolExecutor(_REQUESTS) as pool:
        return list(pool.map(read, items))


def _starts(digests: Sequence[Digest], shard: Shard) -> list[int]:
    """Return the first row of each chunk in a shard, and the end of the last one."""
    rows = [each.within(shard) for each in digests]
    return list(accumulate((each.stop - each.start for each in rows), initial=0))


def _tell_memory(step: Step, digests: Sequence[Digest], progress: Progress) -> None:
    """Report how much memory a step needs that decides about all rows together, if it is much."""
    size = sum(float(each.bytes_B.sum()) for each in digests if not each.is_sharded)
    if size > _MUCH_BYTES:
        rows = sum(each.num_rows for each in digests)
        progress.tell(
            f"step {step.number} {step.name} decides about all {rows:,} rows together: it needs at "
            f"least {size / 2**30:.1f} GiB of memory"
        )
