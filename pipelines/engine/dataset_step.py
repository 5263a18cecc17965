"""Steps of dataset scope: each chunk writes a digest, the digests are decided in shards.

    chunk ──write_digest──> digest, a file for each shard ──┐
    chunk ──write_digest──> digest                        ──┼─ decide_shard, for each shard
    ...                                                     │  its file of all digests
    commit of each chunk <──commit_decisions── decisions <──┘

Rows that must be decided together, see `Operator.shard`, are in one shard. There are as many shards
as it takes for one to fit into some memory; a small dataset is one. Shards are independent of each
other, so they may be decided one after another, which is what keeps memory bounded, or side by
side. A killed run resumes at the shards that are missing.

    exact_deduplicator-52c0…/digest-000003-0001-of-0004.arrow     chunk 3, the second of four shards
    exact_deduplicator-52c0…/decided-0001-of-0004.arrow
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate
from math import prod
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...operators import ResumableOperator
from ...operators.check import check_shard, shard_values
from ...operators.groups import mix
from ...operators.operator import interleave, split
from ..dataset.files import read_checked, write_checked
from ..dataset.remote import AnyPath
from ..recipe.steps import Step
from .commit import load, save
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

SHARD_BYTES = 128 << 20
"""A shard has about so much in digests and what is computed of them, unless more rows must be
decided together."""
_WORKING_BYTES = 64
"""Per row, beside its digest: row numbers, hashes, an order of them, reasons."""
_TEXT_BYTES = 64
"""What a value in a digest takes whose type has no width."""
_MUCH_BYTES = 1 << 30
"""Where a step that cannot be sharded needs more, that is reported first."""
_REQUESTS = 16
"""So many digests in a store are read at a time."""
_ROW, _SECONDS = "__row__", b"seconds"
_DIGEST = re.compile(r"digest-(\d+)-(\d+)-of-(\d+)[.]arrow")


class Shard(NamedTuple):
    """Rows that are decided together."""

    number: int
    of: int  # how many there are


class Digests(NamedTuple):
    """What a step keeps of all chunks."""

    folder: AnyPath
    shards: tuple[int, ...]  # of each chunk, in how many files its rows are

    @classmethod
    def of(cls, plan: Plan, step: Step) -> Digests:
        """The digests in the folder of a step.

        Raises:
            FileNotFoundError: that of a chunk is missing.
        """
        folder, shards = plan.folder(step), dict[int, int]()
        for path in folder.glob("digest-*"):
            if found := _DIGEST.fullmatch(path.name):
                shards[int(found[1])] = int(found[3])
        chunks = range(len(plan.source.rows))
        if missing := [chunk for chunk in chunks if chunk not in shards]:
            raise FileNotFoundError(f"{folder} has no digest of chunk {missing[0]}")
        return cls(folder, tuple(shards[chunk] for chunk in chunks))

    def all_shards(self) -> list[Shard]:
        """The shards; one, where the digests of chunks are of different types."""
        same = set(self.shards)
        count = same.pop() if len(same) == 1 else 1
        return [Shard(number, count) for number in range(count)]

    def read(self, chunk: int, shard: Shard) -> pa.Table:
        """What is kept of the rows of a chunk that are in a shard, in their order.

        Raises:
            DamagedError: it is not as it was written.
            FileNotFoundError: another run has removed it.
        """
        own = self.shards[chunk]
        if own == shard.of:
            return read_checked(_digest_path(self.folder, chunk, shard))
        numbers = range(own)
        parts = [read_checked(_digest_path(self.folder, chunk, Shard(n, own))) for n in numbers]
        return pa.concat_tables(parts).sort_by(_ROW)

    def read_all(self, shard: Shard) -> list[pa.Table]:
        """What `read` gives of each chunk; many at a time from a store, where most is waiting."""
        with ThreadPoolExecutor(_REQUESTS) as pool:
            return list(pool.map(partial(self.read, shard=shard), range(len(self.shards))))


def _digest_path(folder: AnyPath, chunk: int, shard: Shard) -> AnyPath:
    return folder / f"digest-{chunk:06d}-{shard.number:04d}-of-{shard.of:04d}.arrow"


def write_digest(plan: Plan, step: Step, frame: Frame, chunk: int) -> None:
    """Write what a step keeps of a chunk, unless it is there."""
    folder = plan.folder(step)
    found = [_DIGEST.fullmatch(path.name) for path in folder.glob(f"digest-{chunk:06d}-*")]
    if any(match and len(found) == int(match[3]) for match in found):
        return
    start = time.perf_counter()
    with prefix_errors_with_file(plan.recipe, step), prefix_errors_with_step(step):
        table = digest(step.operator, frame)
        with attribute_operator_errors(step.operator):
            values_N = shard_values(step.operator, table)
    count = 1 if values_N is None else _count_shards(table.schema, _most_rows(plan, step))
    rows_N = np.arange(table.num_rows, dtype=np.int32)
    shard_N = np.zeros_like(rows_N) if values_N is None else mix(values_N) % np.uint64(count)
    seconds = f"{time.perf_counter() - start}".encode()
    table = table.append_column(_ROW, pa.array(rows_N))
    for number in range(count):
        part = table if count == 1 else table.filter(pa.array(shard_N == number))
        part = part.replace_schema_metadata({_SECONDS: seconds if number == 0 else b"0"})
        write_checked(_digest_path(folder, chunk, Shard(number, count)), part)


def _most_rows(plan: Plan, step: Step) -> int:
    """Most rows before a step, of which every chunk must know the same number."""
    before = (each.operator for each in plan.steps_before(step))
    made = (each.largest_result()[0] for each in before if isinstance(each, ResumableOperator))
    return prod(made, start=sum(plan.source.rows))


def _count_shards(schema: pa.Schema, rows: int) -> int:
    per_row = sum(map(_width, schema.types)) + _WORKING_BYTES
    return max(1, -(-rows * per_row // SHARD_BYTES))


def _width(kind: pa.DataType) -> int:
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size * _width(kind.value_type))
    try:
        return int(kind.bit_width + 7) // 8
    except ValueError:
        return _TEXT_BYTES


def run_dataset_step(plan: Plan, step: Step, workers: Workers, progress: Progress) -> None:
    """Decide a step from the digests of all chunks, and commit it."""
    try:
        digests = Digests.of(plan, step)
        shards = digests.all_shards()
        if len(shards) == 1:
            decisions = [_decide(plan, step, shards[0], progress)]
        else:
            with progress.task(step.name, len(shards)) as task:
                work = partial(_decide_nth, plan, step, shards)
                for _ in workers.map([step], work, len(shards)):
                    task(1)
            decisions = [load(decision_path(plan, step, shard)) for shard in shards]
        commit_decisions(plan, step, shards, decisions)
    except FileNotFoundError:
        # Another run on this cache may have been faster, and have cleared its digests away.
        if not plan.is_done(step):
            raise


def decision_path(plan: Plan, step: Step, shard: Shard) -> AnyPath:
    """Where the decision about a shard is kept until all of them are made."""
    return plan.folder(step) / f"decided-{shard.number:04d}-of-{shard.of:04d}.arrow"


def decide_shard(plan: Plan, step: Step, shard: Shard) -> None:
    """Decide a shard and keep the decision at `decision_path`, unless it is there.

    Raises:
        FileNotFoundError: a digest is missing.
    """
    path = decision_path(plan, step, shard)
    if not path.exists():
        save(path, _decide(plan, step, shard))


def commit_decisions(
    plan: Plan, step: Step, shards: Sequence[Shard], decisions: Sequence[StepResult]
) -> None:
    """Commit each chunk's part of the decisions, and clear digests and decisions away."""
    digests = Digests.of(plan, step)
    kept = [digests.read_all(shard) for shard in shards]  # Mapped: their row numbers are read.
    parts = [
        split(decision.change, _starts(tables))
        for tables, decision in zip(kept, decisions, strict=True)
    ]
    seconds = sum(float(table.schema.metadata[_SECONDS]) for tables in kept for table in tables)
    seconds += sum(each.seconds for each in decisions)
    for chunk, changes in enumerate(zip(*parts, strict=True)):
        change = changes[0]
        if len(shards) > 1:
            change = interleave(changes, [np.asarray(tables[chunk][_ROW]) for tables in kept])
        rows = sum(tables[chunk].num_rows for tables in kept)
        result = StepResult.of(change, rows, seconds if chunk == 0 else 0.0)
        if step.operator.where is not None:  # Else nothing of the chunk is read again.
            with prefix_errors_with_file(plan.recipe, step):
                result = whole_result(step, plan.frame_before(chunk, step), result)
        save(plan.path(step, chunk), result)
    for path in plan.folder(step).glob("d*-of-*.arrow"):
        path.unlink(missing_ok=True)


def _decide_nth(plan: Plan, step: Step, shards: Sequence[Shard], at: int) -> None:
    decide_shard(plan, step, shards[at])


def _decide(plan: Plan, step: Step, shard: Shard, progress: Progress | None = None) -> StepResult:
    start = time.perf_counter()
    tables = [table.drop_columns([_ROW]) for table in Digests.of(plan, step).read_all(shard)]
    rows = sum(table.num_rows for table in tables)
    if progress is not None:
        _tell_memory(step, tables, progress)
    with prefix_errors_with_file(plan.recipe, step), prefix_errors_with_step(step):
        change = decide(step.operator, tables)
        if shard.of > 1:
            check_shard(step.operator, change)
    return StepResult(change, rows, time.perf_counter() - start, {})


def _starts(tables: Sequence[pa.Table]) -> list[int]:
    """The first row of each chunk in a shard, and the end of the last one."""
    return list(accumulate((table.num_rows for table in tables), initial=0))


def _tell_memory(step: Step, tables: Sequence[pa.Table], progress: Progress) -> None:
    """Report how much memory a step needs that decides about all rows together, if it is much."""
    rows = sum(table.num_rows for table in tables)
    size = sum(table.nbytes for table in tables) + rows * _WORKING_BYTES
    if size > _MUCH_BYTES:
        progress.tell(
            f"step {step.number} {step.name} decides about all {rows:,} rows together: it needs at "
            f"least {size / 2**30:.1f} GiB of memory"
        )
