"""Our operators on an Arrow table, as `dj-process` runs them with its default executor.

Rows are worked on in pieces of whole groups, as in our engine: Arrow gathers at most 2 GB of text
at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...operators import Change, Groups, Operator, Scope
from ...operators.cache_key import cache_key_json, code_version
from ...operators.groups import Array
from ..data_juicer.tables import plain, rows_of
from ..dataset.write import filled
from ..engine.frame import Frame, GroupStarts, check_contiguous
from ..engine.plan import default_chunk_rows
from ..engine.report import AuditLog
from ..engine.steps import (
    RunStep,
    apply_steps,
    apply_to_digests,
    digest,
    known_change,
    prefix_errors_with_step,
    run_step,
)
from ..recipe.steps import Step


class Piece(NamedTuple):
    """Some rows of a dataset, and how many rows its table has before them."""

    frame: Frame
    first_row: int


def run(step: Step, dataset: Any, new_groups: bool) -> tuple[Any, AuditLog]:
    """Return the dataset after one step, and the audit log of that step.

    Args:
        step: the step.
        dataset: Data-Juicer's dataset before it.
        new_groups: rows may have moved since a step looked at groups: check that no
            prompt comes up twice.

    Raises:
        RejuiceError: what the operator raised.
    """
    made = pieces(dataset, default_chunk_rows([step.operator]))
    if new_groups:
        with prefix_errors_with_step(step):
            check_contiguous([GroupStarts.of(piece.frame, piece.first_row) for piece in made])
    log = AuditLog()
    tables = [
        apply_steps([step], piece.frame, run=run, log=log, first_row=piece.first_row).table()
        for piece, run in zip(made, _runs(step, made), strict=True)
    ]
    table = filled(pa.concat_tables(tables, promote_options="permissive"))
    if _is_saved(dataset):
        # Columns that no step wrote are still in the files of the checkpoint that the run goes on
        # from, and Data-Juicer writes its next checkpoint over them.
        table = _copied(table)
    return _wrapped(step.operator, dataset, table, log.step(step.name).written), log


def pieces(dataset: Any, size: int) -> list[Piece]:
    """The rows of a Hugging Face dataset, in pieces of about `size` rows and of whole groups."""
    table, rows = rows_of(dataset)
    frames = []
    for start, stop in pairwise(_cuts(table, rows, size)):
        part = rows[start:stop]
        low, high = (int(part[0]), int(part[-1]) + 1) if len(part) else (0, 0)
        frame = Frame.of(plain(table.slice(low, high - low)))
        if len(part) < high - low:
            frame = frame.after(Change(parents=part - low))
        frames.append(Piece(frame, low))
    return frames


def _runs(step: Step, made: Sequence[Piece]) -> Iterator[RunStep]:
    """Return how the step is run on each piece."""
    if step.operator.scope is not Scope.DATASET:
        return (partial(run_step, first_row=piece.first_row) for piece in made)
    with prefix_errors_with_step(step):
        digests = [digest(step.operator, piece.frame) for piece in made]
        changes = apply_to_digests(step.operator, digests)
    return (known_change(change) for change in changes)


def _cuts(table: pa.Table, rows: Array, size: int) -> list[int]:
    starts = np.arange(len(rows))
    if "prompt_id" in table.column_names:
        starts = Groups.of_column(table["prompt_id"].take(pa.array(rows))).starts_G
    at = np.searchsorted(starts, np.arange(size, len(rows), size))
    cuts = [int(start) for start in np.unique(starts[at[at < len(starts)]])]
    return [0, *cuts, len(rows)]


def _is_saved(dataset: Any) -> bool:
    """Return whether a dataset lies in a folder of `save_to_disk`, such as a checkpoint."""
    from datasets.config import DATASET_STATE_JSON_FILENAME

    folders = {Path(file["filename"]).parent for file in dataset.cache_files}
    return any((folder / DATASET_STATE_JSON_FILENAME).exists() for folder in folders)


def _copied(table: pa.Table) -> pa.Table:
    """Return the same table in memory of its own."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def _wrapped(operator: Operator, before: Any, table: pa.Table, written: set[str]) -> Any:
    from data_juicer.core.data import NestedDataset
    from datasets import Dataset, DatasetInfo, Features
    from datasets.fingerprint import Hasher
    from datasets.table import InMemoryTable

    features = Features.from_arrow_schema(table.schema)
    for name, feature in before.features.items():
        if name in features and name not in written:
            features[name] = feature  # An image or a class label is more than its Arrow type.
    # Made from what was done: Hugging Face would hash all rows, and caches the next steps by it.
    # private: datasets==5.2.0, tests/pipelines/dj_process/test_plugin.py::test_the_fingerprint_tells_configs_apart
    made_of = [before._fingerprint, cache_key_json(operator), code_version(type(operator))]
    return NestedDataset(
        Dataset(
            InMemoryTable(table.cast(features.arrow_schema)),
            info=DatasetInfo(features=features),
            fingerprint=Hasher.hash(made_of),
        )
    )
