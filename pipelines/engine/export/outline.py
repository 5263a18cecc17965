"""What an export will be: its parts and its schema, from the commits of all chunks.

Each chunk is looked at by a worker, which reads all of its commits: the checksum of a commit is of
all its bytes. What it returns of a chunk is small.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ....operators import Groups, OperatorError
from ...dataset.run_folder import is_folder
from ...dataset.written import mark_written, written_of
from ...recipe.computed_from import computed_from
from ...recipe.head import Head
from ..frame import Frame
from ..plan import Plan
from ..workers.local import Workers
from .parts import ExportPart, cut_parts, one_part


class Outline(NamedTuple):
    """The parts of an export, and the schema of each of them."""

    parts: list[ExportPart]
    schema: pa.Schema


class _OfChunk(NamedTuple):
    """What an export takes from a chunk.

    Attributes:
        schema: of its rows after the last step.
        written: the columns that steps wrote.
        sizes_G: int64, rows of each of its groups; empty where the export is one file.
    """

    schema: pa.Schema
    written: frozenset[str]
    sizes_G: NDArray[np.int64]


def outline(plan: Plan, workers: Workers) -> Outline:
    """The parts and the schema of the export of a run, all of whose steps are committed.

    Raises:
        OperatorError: a column has types that do not go together.
        DamagedError: a commit is not as it was saved.
    """
    head = plan.recipe.head
    work = partial(_of_chunk, plan)
    found = dict(workers.map((), work, len(plan.source.rows)))
    chunks = [found[chunk] for chunk in range(len(found))]
    if is_folder(head.export_path):
        parts = cut_parts([each.sizes_G for each in chunks], head.max_rows_per_file)
    else:
        parts = [one_part(len(chunks))]
    before = written_of(head.dataset_spec)
    written = before.columns.union(*(each.written for each in chunks))
    schema = _schema(head, [each.schema for each in chunks])
    origins = computed_from(plan.steps, plan.source.schema.names, before.origins)
    return Outline(parts, mark_written(schema, written, origins))


def _of_chunk(plan: Plan, chunk: int) -> _OfChunk:
    frame = plan.frame_before(chunk, None)
    in_parts = is_folder(plan.recipe.head.export_path)
    sizes_G = _group_sizes(frame) if in_parts else np.zeros(0, np.int64)
    return _OfChunk(frame.schema, frozenset(frame.written_columns), sizes_G)


def _group_sizes(frame: Frame) -> NDArray[np.int64]:
    """Rows of each group; where there are no groups, each row is one."""
    if "prompt_id" not in frame.column_names:
        return np.ones(frame.num_rows, np.int64)
    return Groups.of(frame.select(["prompt_id"])).sizes_G


def _schema(head: Head, chunks: list[pa.Schema]) -> pa.Schema:
    """The schema of the export, from those of the chunks."""
    # A chunk that lost its last row early lacks columns of later steps: the others give the order.
    fullest = sorted(chunks, key=len, reverse=True)
    try:
        schema = pa.unify_schemas(fullest, promote_options="permissive")
    except pa.ArrowTypeError as error:
        found = f"a step wrote a column in two types: {error}"
        raise OperatorError(found, "let it write one type always") from None
    return pa.schema([schema.field(name) for name in head.exported(schema.names)])
