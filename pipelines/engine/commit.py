"""Commits: what one step did to one chunk, in one Arrow file, put in place by one rename.

A commit's columns are what the step wrote. Its schema metadata carries the rest of the change:
which rows it dropped and why, what was taken away, notes, seconds. Nothing else is stored of a
step, so a chain of commits is as small as what the steps did.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from ...operators import Change
from ...operators.columns import flat
from ...operators.disk import sync, temporary_path
from ...operators.groups import Array
from ..apply.steps import StepResult
from ..filesystem.checked import DamagedError, damaged, read_checked, write_checked
from ..filesystem.files import write_file
from ..filesystem.remote import AnyPath, RemotePath

_PARENT = "__parent__"
_META = b"rejuice"
_FAILED = b"failed_rows"
_LINK = "rejuice-link "
"""How a link begins in an object store, where it is a file with the relative path."""
_LINK_BYTES = 4096


def save(path: AnyPath, commit: StepResult) -> None:
    """Write a commit; it is there whole or not at all."""
    write_checked(path, as_table(commit))


def load(path: AnyPath, *, mapped: bool = True) -> StepResult:
    """Read a commit; mapped, its columns stay on disk until they are used.

    Raises:
        DamagedError: it is not as it was saved.
    """
    try:
        table = read_checked(path, mapped=mapped)
    except DamagedError:
        target = _target(path)
        if target is None:
            raise
        return load(target, mapped=mapped)
    try:
        return of_table(table)
    except (LookupError, TypeError, ValueError):  # Of version 0.4, which wrote no checksum.
        raise damaged(path) from None


def link(path: AnyPath, target: AnyPath) -> None:
    """Put a commit in place that is a link to another file of the cache."""
    relative = os.path.relpath(str(target), str(path.parent))
    if isinstance(path, RemotePath):
        write_file(path, f"{_LINK}{relative}")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(path)
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(relative)
    temporary.replace(path)
    sync(path.parent)


def _target(path: AnyPath) -> AnyPath | None:
    """What a file in a store is a link to; None: it is none, or what it links to is gone."""
    if not isinstance(path, RemotePath) or path.stat().st_size > _LINK_BYTES:
        return None
    text = path.read_bytes().decode("utf-8", "replace")
    if not text.startswith(_LINK):
        return None
    key = os.path.normpath(f"{path.parent.key}/{text.removeprefix(_LINK)}")
    target = replace(path, key=key)
    return target if target.is_file() else None


def as_table(commit: StepResult) -> pa.Table:
    """A commit as it is in its file: columns and metadata."""
    change = commit.change
    rows, slugs, codes = _dropped(change)
    meta = {
        "rows_in": commit.rows_in,
        "seconds": commit.seconds,
        "summary": commit.summary,
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
    return pa.table(pack(change)).replace_schema_metadata(schema_meta)


def of_table(table: pa.Table) -> StepResult:
    """The commit of which `as_table` made a table."""
    meta = json.loads(table.schema.metadata[_META])
    rows = np.frombuffer(table.schema.metadata[b"dropped_rows"], "<i4")
    codes = np.frombuffer(table.schema.metadata[b"dropped_slugs"], "<i4")
    reasons = None
    if len(rows):
        at_N = np.full(meta["rows_in"], -1, np.int32)
        at_N[rows] = codes
        reasons = pa.array(meta["slugs"], pa.string()).take(pa.array(at_N, mask=at_N < 0))
    columns, parents = unpack(table)
    kept = table.schema.metadata.get(_FAILED)
    failed = None if kept is None else np.frombuffer(kept, "<i4").astype(np.int64)
    # Version 0.4 recorded no messages.
    logged = meta.get("logged", {})
    without = tuple(meta["without"])
    change = Change(columns, reasons, parents, without, meta["notes"], logged, failed)
    return StepResult(change, meta["rows_in"], meta["seconds"], meta["summary"])


def pack(change: Change) -> dict[str, pa.Array]:
    """What a change writes, and its parents as a column beside it."""
    columns = {name: flat(column) for name, column in change.columns.items()}
    if change.parents is not None:
        columns[_PARENT] = pa.array(change.parents, pa.int32())
    return columns


def unpack(table: pa.Table | pa.RecordBatch) -> tuple[dict[str, Any], Array | None]:
    """The columns and the parents that `pack` put together."""
    columns = dict(zip(table.schema.names, table.columns, strict=True))
    parents = columns.pop(_PARENT, None)
    return columns, None if parents is None else np.asarray(parents).astype(np.int64)


def _dropped(change: Change) -> tuple[np.ndarray[Any, Any], list[str], np.ndarray[Any, Any]]:
    if change.reasons is None:
        return np.zeros(0, np.int32), [], np.zeros(0, np.int32)
    encoded = flat(change.reasons).dictionary_encode()
    rows = np.flatnonzero(np.asarray(encoded.is_valid()))
    codes = np.asarray(encoded.indices.fill_null(-1))[rows]
    return rows, encoded.dictionary.to_pylist(), codes
