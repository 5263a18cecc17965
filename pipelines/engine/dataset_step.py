"""Steps of dataset scope: each chunk writes a digest, the digests are decided in shards.

    chunk ──write_digest──> digest ──┐
    chunk ──write_digest──> digest ──┼─ decide_shard, for each shard: its rows of all digests
    ...                              │
    commit of each chunk <──commit_decisions── decisions

Rows that must be decided together, see `Operator.shard`, are in one shard. There are as many shards
as it takes for one to fit into some memory; a small dataset is one. Shards are independent of each
other, so they may be decided one after another, which is what keeps memory bounded, or side by
side. A killed run resumes at the shards that are missing.

    exact_deduplicator-52c0…/digest-000003.arrow            chunk 3
    exact_deduplicator-52c0…/decided-0001-of-0004.arrow     the second of four shards
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa

from ...operators.check import check_shard, shard_values
from ...operators.groups import Array, mix
from ...operators.operator import interleave, split
from ..dataset.files import read_checked, write_checked
from ..dataset.remote import AnyPath
from ..recipe.steps import Step
from .frame import Frame
from .plan import Plan, load, save
from .progress import Progress
from .steps import (
    StepResult,
    attribute_operator_errors,
    decide,
    digest,
    prefix_errors_with_step,
    whole_result,
)
from .workers import Workers

SHARD_BYTES = 128 << 20
"""A shard has about so much in digests and what is computed of them, unless more rows must be
decided together."""
_WORKING_BYTES = 64
"""Per row, beside its digest: row numbers, hashes, an order of them, reasons."""
_MUCH_BYTES = 1 << 30
"""Where a step that cannot be sharded needs more, that is reported first."""
_REQUESTS = 16
"""So many digests in a store are read at a time."""
_SECONDS = b"seconds"
_SHARD = "__shard__"
"""The column of a digest with a hash of each row's `Operator.shard`, where there are shards."""


def _digest_path(plan: Plan, step: Step, chunk: int) -> AnyPath:
    return plan.folder(step) / f"digest-{chunk:06d}.arrow"


def write_digest(plan: Plan, step: Step, frame: Frame, chunk: int) -> None:
    """Write what a step keeps of a chunk, unless it is there."""
    path = _digest_path(plan, step, chunk)
    if path.exists():
        return
    start = time.perf_counter()
    with prefix_errors_with_step(step, plan.recipe):
        table = digest(step.operator, frame)
        with attribute_operator_errors(step.operator):
            values_N = shard_values(step.operator, table)
        if values_N is not None:
            table = table.append_column(_SHARD, pa.array(mix(values_N)))
    seconds = f"{time.perf_counter() - start}".encode()
    write_checked(path, table.replace_schema_metadata({_SECONDS: seconds}))


def read_digests(plan: Plan, step: Step) -> Iterator[pa.Table]:
    """Yield the digests of all chunks, of which few are in memory at a time."""
    paths = [_digest_path(plan, step, chunk) for chunk in range(len(plan.source.rows))]
    with ThreadPoolExecutor(_REQUESTS) as pool:
        for at in range(0, len(paths), _REQUESTS):
            yield from pool.map(read_checked, paths[at : at + _REQUESTS])


def run_dataset_step(plan: Plan, step: Step, workers: Workers, progress: Progress) -> None:
    try:
        digests: Iterable[pa.Table] = read_digests(plan, step)
        count = count_shards(plan, step, progress)
        if count == 1:
            digests = list(digests)
            decisions = [_decide(plan, step, digests)]
        else:
            with progress.task(step.name, count) as task:
                work = partial(decide_shard, plan, step, count)
                for _ in workers.map([step], work, count):
                    task(1)
            decisions = [load(_decision_path(plan, step, count, n)) for n in range(count)]
        commit_decisions(plan, step, digests, decisions)
    except FileNotFoundError:
        # Another run on this cache may have been faster, and have cleared its digests away.
        if not plan.is_done(step):
            raise


def count_shards(plan: Plan, step: Step, progress: Progress) -> int:
    """In how many shards a step is decided, by the sizes of the files of its digests."""
    paths = [_digest_path(plan, step, chunk) for chunk in range(len(plan.source.rows))]
    with ThreadPoolExecutor(_REQUESTS) as pool:
        size: int = sum(pool.map(lambda path: path.stat().st_size, paths))
    rows = sum(plan.source.rows)
    size += rows * _WORKING_BYTES
    if size > SHARD_BYTES and all(_SHARD in d.column_names for d in read_digests(plan, step)):
        return -(-size // SHARD_BYTES)
    if size > _MUCH_BYTES:
        progress.tell(
            f"step {step.number} {step.name} decides about all {rows:,} rows together: it needs at "
            f"least {size / 2**30:.1f} GiB of memory"
        )
    return 1


def _shards_of(digest: pa.Table, count: int) -> Array:
    """The shard of each row of a digest, int32[N]."""
    if count == 1:
        return np.zeros(digest.num_rows, np.int32)
    return (np.asarray(digest[_SHARD]) % np.uint64(count)).astype(np.int32)


def _decision_path(plan: Plan, step: Step, count: int, number: int) -> AnyPath:
    return plan.folder(step) / f"decided-{number:04d}-of-{count:04d}.arrow"


def decide_shard(plan: Plan, step: Step, count: int, number: int) -> None:
    """Decide one of so many shards and keep the decision, unless it is there."""
    path = _decision_path(plan, step, count, number)
    if not path.exists():
        save(path, _decide(plan, step, read_digests(plan, step), count, number))


def _decide(
    plan: Plan, step: Step, tables: Iterable[pa.Table], count: int = 1, number: int = 0
) -> StepResult:
    start = time.perf_counter()
    with prefix_errors_with_step(step, plan.recipe):
        if count > 1:
            tables = (t.filter(pa.array(_shards_of(t, count) == number)) for t in tables)
        own = [t.select([name for name in t.column_names if name != _SHARD]) for t in tables]
        change = decide(step.operator, own)
        if count > 1:
            check_shard(step.operator, change)
    rows = sum(table.num_rows for table in own)
    return StepResult(change, rows, time.perf_counter() - start)


def commit_decisions(
    plan: Plan, step: Step, digests: Iterable[pa.Table], decisions: Sequence[StepResult]
) -> None:
    """Commit each chunk's part of the decisions about all shards, and clear the files away."""
    count, shards, seconds = len(decisions), list[Array](), sum(d.seconds for d in decisions)
    for table in digests:
        shards.append(_shards_of(table, count))
        seconds += float(table.schema.metadata[_SECONDS])
    counts = [np.bincount(shard_N, minlength=count) for shard_N in shards]
    starts = np.cumsum([np.zeros(count, int), *counts], axis=0)
    parts = [split(each.change, starts[:, n].tolist()) for n, each in enumerate(decisions)]
    for chunk, (changes, shard_N) in enumerate(zip(zip(*parts, strict=True), shards, strict=True)):
        change = changes[0]
        if count > 1:
            change = interleave(changes, [np.flatnonzero(shard_N == n) for n in range(count)])
        result = StepResult(change, len(shard_N), seconds if chunk == 0 else 0.0)
        if step.operator.where is not None:  # Else nothing of the chunk is read again.
            frame, taken = plan.frame_before(chunk, step), result.seconds
            result = whole_result(step, frame, change, seconds=taken, recipe=plan.recipe)
        save(plan.path(step, chunk), result)
    for path in plan.folder(step).glob("d*.arrow"):
        path.unlink(missing_ok=True)
