"""Commits: what one step did to one chunk, in one file, put in place by one rename.

A commit's columns are what the step wrote. Its schema metadata carries the rest of the change:
which rows it dropped and why, what was taken away, notes, seconds. Nothing else is stored of a
step, so a chain of commits is as small as what the steps did.
"""

from __future__ import annotations

import json
import re
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from ...operators import Change
from ...operators.columns import flat
from ...operators.groups import Array
from ..dataset.files import read_checked, write_checked, write_file
from ..dataset.remote import AnyPath
from .steps import StepResult

_PARENT = "__parent__"
_META = b"rejuice"
_FAILED = b"failed_rows"


def save(path: AnyPath, commit: StepResult) -> None:
    write_checked(path, as_table(commit))


def load(path: AnyPath, *, mapped: bool = True) -> StepResult:
    """Read a commit; mapped, its columns stay on disk until they are used."""
    return of_table(read_checked(path, mapped=mapped))


def as_table(commit: StepResult) -> pa.Table:
    """A commit as it is in its file: columns and metadata."""
    change = commit.change
    rows, slugs, codes = _dropped(change)
    meta = {
        "rows_in": commit.rows_in,
        "seconds": commit.seconds,
        "notes": {name: float(figure) for name, figure in change.notes.items()},
        "logged": dict(change.logged),
        "without": change.without,
        "slugs": slugs,
    }
    schema_meta = {
        _META: json.dumps(meta).encode(),
        b"dropped_rows": rows.astype("<i4").tobytes(),
        b"dropped_slugs": codes.astype("<i4").tobytes(),
    }
    if change.failed is not None:
        schema_meta[_FAILED] = change.failed.astype("<i4").tobytes()
    columns = {name: flat(column) for name, column in change.columns.items()}
    if change.parents is not None:
        columns[_PARENT] = pa.array(change.parents, pa.int32())
    return pa.table(columns).replace_schema_metadata(schema_meta)


def of_table(table: pa.Table) -> StepResult:
    """The commit of which `as_table` made a table."""
    schema_meta = table.schema.metadata
    meta = json.loads(schema_meta[_META])
    rows = np.frombuffer(schema_meta[b"dropped_rows"], "<i4")
    reasons = None
    if len(rows):
        at_N = np.full(meta["rows_in"], -1, np.int32)
        at_N[rows] = np.frombuffer(schema_meta[b"dropped_slugs"], "<i4")
        reasons = pa.array(meta["slugs"], pa.string()).take(pa.array(at_N, mask=at_N < 0))
    columns = dict(zip(table.schema.names, table.columns, strict=True))
    parents = columns.pop(_PARENT, None)
    kept = schema_meta.get(_FAILED)
    change = Change(
        columns,
        reasons,
        None if parents is None else np.asarray(parents).astype(np.int64),
        tuple(meta["without"]),
        meta["notes"],
        meta["logged"],
        None if kept is None else np.frombuffer(kept, "<i4").astype(np.int64),
    )
    return StepResult(change, meta["rows_in"], meta["seconds"])


def _dropped(change: Change) -> tuple[Array, list[str], Array]:
    if change.reasons is None:
        return np.zeros(0, np.int32), [], np.zeros(0, np.int32)
    encoded = flat(change.reasons).dictionary_encode()
    rows = np.flatnonzero(np.asarray(encoded.is_valid()))
    codes = np.asarray(encoded.indices.fill_null(-1))[rows]
    return rows, encoded.dictionary.to_pylist(), codes


# --- How often failures of a step were computed again ---------------------------------
# Each retry has a file in the step's folder, whose name says what was retried: there no damage to
# its content matters. The results of a retry are in a folder of their own, so that exports of
# before it stay as they are, and the keys of later steps depend on it.
#
#     llm_verify_mapper-77b1…/000000.arrow, retry-1-missing
#     llm_verify_mapper-77b1…-1/000000.arrow

_RETRY = re.compile(r"retry-(\d+)-(missing|dropped)")
Retried = Literal["missing", "dropped"]


class Retries(NamedTuple):
    """What was retried of a step."""

    times: int = 0  # how often something was
    # which of them was the last one of what was missing, and of what was dropped; 0: none
    missing: int = 0
    dropped: int = 0

    @classmethod
    def of(cls, folder: AnyPath) -> Retries:
        """What the folder of a step says."""
        last = {"missing": 0, "dropped": 0}
        for path in folder.glob("retry-*"):
            if match := _RETRY.fullmatch(path.name):
                last[match[2]] = max(last[match[2]], int(match[1]))
        return cls(max(last.values()), **last)


def count_retry(folder: AnyPath, what: Retried) -> None:
    write_file(folder / f"retry-{Retries.of(folder).times + 1}-{what}", "")


def counts_retry(file: AnyPath) -> bool:
    """Whether a file in the folder of a step counts a retry."""
    return _RETRY.fullmatch(file.name) is not None


def arrow_stream(table: pa.Table) -> pa.Buffer:
    """A table by itself, with its schema: `pa.ipc.open_stream` reads it without a copy."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
