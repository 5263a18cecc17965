"""Steps of dataset scope: each chunk writes a digest, the digests are decided in shards.

    chunk ──write_digest──> digest, its rows sorted by bucket ──┐
    chunk ──write_digest──> digest                            ──┼─ decide_shard, for each shard
    ...                                                         │  a range of buckets of all digests
    commit of each chunk <──commit_decisions── decisions <──────┘

A bucket is a hash of what `Operator.shard` gives for a row, so rows that must be decided together
are in one bucket. A shard is a range of buckets whose digests, and what deciding takes beside them,
fit into some memory; a small dataset is one shard. Shards are independent of each other, so they
may be decided one after another, which is what keeps memory bounded, or side by side. A killed run
resumes at the shards that are missing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...operators import Operator
from ...operators.change import interleave, split
from ...operators.check import check_shard, shard_values
from ...operators.groups import Array, mix
from ..apply.frame import Frame
from ..apply.operator_call import attribute_operator_errors, decide, digest
from ..apply.steps import StepResult, prefix_errors_with_step
from ..filesystem.checked import read_checked, write_checked
from ..filesystem.remote import AnyPath
from ..recipe.steps import Step
from .commit import load, save
from .located_errors import prefix_errors_with_file
from .plan import Plan
from .progress import Progress
from .workers.local import Workers

BUCKETS = 1024
SHARD_BYTES = 128 << 20
"""A shard has at most so much in digests and what is computed of them, unless one bucket of it has
more."""
_WORKING_BYTES = 64
"""Per row, beside its digest: row numbers, hashes, an order of them, reasons."""
_MUCH_BYTES = 1 << 30
"""Where a step that cannot be sharded needs more, that is reported first."""

_SECONDS = b"seconds"
_ENDS = b"bucket_ends"
_ROW = "__chunk_row__"


class Shard(NamedTuple):
    """A range of buckets whose rows are decided together."""

    first: int
    stop: int


ALL_ROWS = Shard(0, BUCKETS)


class _Digest(NamedTuple):
    """What a step keeps of a chunk.

    Attributes:
        table: a row for each row of the chunk.
        rows_N: int32, the row of the chunk for each of them; None: they are in its order.
        ends_B: int64[BUCKETS + 1], how many rows come before each bucket, and all of them.
        seconds: that it took.
    """

    table: pa.Table
    rows_N: pa.ChunkedArray | None
    ends_B: Array
    seconds: float

    @classmethod
    def read(cls, path: AnyPath) -> _Digest:
        if isinstance(path, Path):
            # The checksum reads all of a mapped file, and what was read counts as memory of this
            # process until it is unmapped. Checked once, the file is not read again.
            read_checked(path)
        table = read_checked(path)
        seconds = float(table.schema.metadata[_SECONDS])
        ends = table.schema.metadata.get(_ENDS)
        table = table.replace_schema_metadata()
        if ends is None:
            ends_B = np.full(BUCKETS + 1, table.num_rows)
            ends_B[0] = 0
            return cls(table, None, ends_B, seconds)
        rows_N = table[_ROW]
        return cls(table.drop_columns([_ROW]), rows_N, np.frombuffer(ends, "<i8"), seconds)

    def within(self, shard: Shard) -> slice:
        """The rows of a shard."""
        return slice(int(self.ends_B[shard.first]), int(self.ends_B[shard.stop]))

    def rows_of(self, shard: Shard) -> pa.Table:
        """The digest of these rows."""
        rows = self.within(shard)
        return self.table.slice(rows.start, rows.stop - rows.start)

    @property
    def bytes_B(self) -> Array:
        """Memory for the rows of each bucket, float64[BUCKETS]."""
        per_row = self.table.nbytes / max(1, self.table.num_rows) + _WORKING_BYTES
        bytes_B: Array = np.diff(self.ends_B) * per_row
        return bytes_B


def write_digest(plan: Plan, step: Step, frame: Frame, chunk: int) -> None:
    """Write what a step keeps of a chunk, unless it is there.

    Args:
        plan: of the run.
        step: of dataset scope.
        frame: the chunk before it.
        chunk: its number.

    Raises:
        RejuiceError: what the operator raised.
    """
    path = plan.digest_path(step, chunk)
    if path.exists():
        return
    start = time.perf_counter()
    with prefix_errors_with_file(plan.recipe, step), prefix_errors_with_step(step):
        table = digest(step.operator, frame)
        table, ends = _by_bucket(step.operator, table)
    seconds = f"{time.perf_counter() - start}".encode()
    write_checked(path, table.replace_schema_metadata({_SECONDS: seconds, **ends}))


def _by_bucket(operator: Operator, table: pa.Table) -> tuple[pa.Table, dict[bytes, bytes]]:
    """A digest sorted by bucket, and where the buckets end; as it is without shards."""
    with attribute_operator_errors(operator):
        values_N = shard_values(operator, table)
    if values_N is None:
        return table, {}
    bucket_N = (mix(values_N) >> np.uint64(64 - BUCKETS.bit_length() + 1)).astype(np.uint16)
    rows_N = pa.array(np.argsort(bucket_N, kind="stable"), pa.int32())
    ends_B = np.cumsum([0, *np.bincount(bucket_N, minlength=BUCKETS)])
    table = table.take(rows_N).append_column(_ROW, rows_N)
    return table, {_ENDS: ends_B.astype("<i8").tobytes()}


def run_dataset_step(plan: Plan, step: Step, workers: Workers, progress: Progress) -> None:
    """Decide a step from the digests of all chunks, and commit it.

    Args:
        plan: of the run.
        step: of dataset scope; the digests of all chunks are written.
        workers: decide shards.
        progress: where it is shown.

    Raises:
        RejuiceError: what the operator raised.
    """
    try:
        digests = list(_digests(plan, step))
        shards = _cut(digests, SHARD_BYTES)
        _tell_memory(step, digests, progress)
        if len(shards) == 1:
            decisions = [_decide(plan, step, shards[0], digests)]
        else:
            with progress.task(step.name, sum(each.table.num_rows for each in digests)) as task:
                work = partial(_decide_nth, plan, step, shards)
                for at, _ in workers.map([step], work, len(shards)):
                    task(_starts(digests, shards[at])[-1])
            decisions = [load(decision_path(plan, step, shard)) for shard in shards]
        commit_decisions(plan, step, shards, decisions, digests)
    except FileNotFoundError:
        # Another run on this cache may have been faster, and have cleared its digests away.
        if not plan.is_done(step):
            raise


def shards_of(plan: Plan, step: Step, most_bytes: int | None = None) -> list[Shard]:
    """The shards of a step, whose digests are all written.

    Args:
        plan: of the run.
        step: of dataset scope.
        most_bytes: for a shard, as far as its buckets allow. None: `SHARD_BYTES`.

    Raises:
        FileNotFoundError: a digest is missing.
    """
    return _cut(list(_digests(plan, step)), most_bytes or SHARD_BYTES)


def decision_path(plan: Plan, step: Step, shard: Shard) -> AnyPath:
    """Where the decision about a shard is kept until all of them are made."""
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
        save(path, _decide(plan, step, shard, list(_digests(plan, step))))


def commit_decisions(
    plan: Plan,
    step: Step,
    shards: Sequence[Shard],
    decisions: Sequence[StepResult],
    digests: Sequence[_Digest] | None = None,
) -> None:
    """Commit each chunk's part of the decisions, and clear digests and decisions away.

    Args:
        plan: of the run.
        step: of dataset scope.
        shards: all of them.
        decisions: about each.
        digests: of each chunk; None: they are read.
    """
    digests = list(_digests(plan, step)) if digests is None else digests
    parts = [
        split(decision.change, _starts(digests, shard))
        for shard, decision in zip(shards, decisions, strict=True)
    ]
    seconds = sum(each.seconds for each in digests) + sum(each.seconds for each in decisions)
    for chunk, (kept, changes) in enumerate(zip(digests, zip(*parts, strict=True), strict=True)):
        change = changes[0]
        if kept.rows_N is not None:
            rows_N = np.asarray(kept.rows_N)
            change = interleave(changes, [rows_N[kept.within(shard)] for shard in shards])
        result = StepResult.of(change, kept.table.num_rows, seconds if chunk == 0 else 0.0)
        save(plan.path(step, chunk), result)
    for chunk in range(len(digests)):
        plan.digest_path(step, chunk).unlink(missing_ok=True)
    # Of all shards, those of an earlier run that was killed included.
    for path in plan.digest_path(step, 0).parent.glob("decided-*"):
        path.unlink(missing_ok=True)


def _cut(digests: Sequence[_Digest], most_bytes: int) -> list[Shard]:
    if any(each.rows_N is None for each in digests):
        return [ALL_ROWS]
    bytes_B = np.sum([each.bytes_B for each in digests], axis=0)
    first, size, shards = 0, 0.0, []
    for bucket, more in enumerate(bytes_B.tolist()):
        if size and size + more > most_bytes:
            shards.append(Shard(first, bucket))
            first, size = bucket, 0.0
        size += more
    return [*shards, Shard(first, BUCKETS)]


def _decide_nth(plan: Plan, step: Step, shards: Sequence[Shard], at: int) -> None:
    decide_shard(plan, step, shards[at])


def _decide(plan: Plan, step: Step, shard: Shard, digests: Sequence[_Digest]) -> StepResult:
    start = time.perf_counter()
    tables = [each.rows_of(shard) for each in digests]
    rows = sum(table.num_rows for table in tables)
    with prefix_errors_with_file(plan.recipe, step), prefix_errors_with_step(step):
        change = decide(step.operator, tables)
        if any(each.rows_N is not None for each in digests):
            check_shard(step.operator, change)
    return StepResult(change, rows, time.perf_counter() - start, {})


def _digests(plan: Plan, step: Step) -> Iterator[_Digest]:
    for chunk in range(len(plan.source.rows)):
        yield _Digest.read(plan.digest_path(step, chunk))


def _starts(digests: Sequence[_Digest], shard: Shard) -> list[int]:
    """The first row of each chunk in a shard, and the end of the last one."""
    rows = [each.within(shard) for each in digests]
    return list(accumulate((each.stop - each.start for each in rows), initial=0))


def _tell_memory(step: Step, digests: Sequence[_Digest], progress: Progress) -> None:
    """Report how much memory a step needs that decides about all rows together, if it is much."""
    size = sum(float(each.bytes_B.sum()) for each in digests if each.rows_N is None)
    if size > _MUCH_BYTES:
        rows = sum(each.table.num_rows for each in digests)
        progress.tell(
            f"step {step.number} {step.name} decides about all {rows:,} rows together: it needs at "
            f"least {size / 2**30:.1f} GiB of memory"
        )
