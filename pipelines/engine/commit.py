"""Commits: what one step did to one chunk, in one file, put in place by one rename.

A commit's columns are what the step wrote. Its schema metadata carries the rest of the change:
which rows it dropped and why, what was taken away, notes, seconds. Nothing else is stored of a
step, so a chain of commits is as small as what the steps did.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa

from ...operators import Change
from ...operators.columns import flat
from ...operators.disk import HEADER_BYTES, Header
from ...operators.groups import Array
from ..dataset.files import (
    LINK,
    DamagedError,
    check_is_folder,
    checked_header,
    damaged,
    owner,
    read_content,
    table_in,
    write_checked,
    write_file,
)
from ..dataset.remote import AnyPath
from .retries import counter_of, retry_count, write_retry_count
from .steps import StepResult

_PARENT = "__parent__"
_META = b"rejuice"
_FAILED = b"failed_rows"
_LINKED = re.compile(r"(kept-[\w-]+)/([0-9a-f]{32}[.]arrow)")
"""What a link names: nothing outside the cache."""


def save(path: AnyPath, commit: StepResult, retries: int = 0) -> None:
    """Write a commit; it is there whole or not at all."""
    write_checked(path, as_table(commit, retries))


def load(path: AnyPath, *, mapped: bool = True) -> StepResult:
    """Read a commit; mapped, its columns stay on disk until they are used.

    Raises:
        DamagedError: it is not as it was saved; or the counter of the retries is gone, and is
            there again.
        FileNotFoundError: there is none.
    """
    return _load(path, read_content(path, mapped=mapped))


def load_or_target(path: AnyPath) -> StepResult | AnyPath:
    """What `load` gives of a commit, or `target_of` of a link; the file is read once.

    Raises:
        DamagedError: see `load`.
        FileNotFoundError: there is none.
    """
    content = read_content(path)
    return _target(path, content) or _load(path, content)


def _load(path: AnyPath, content: pa.Buffer) -> StepResult:
    table = table_in(path, content)
    check_retries(path, table.schema)
    return of_table(table)


class RetriesGoneError(DamagedError):
    """The counter of a step's retries was gone, and is there again; the commit itself is whole."""


def check_retries(path: AnyPath, schema: pa.Schema) -> None:
    """Check that the retries are counted after which a commit was written.

    Else later steps would find what they made of the failures. The counter is put right.

    Raises:
        RetriesGoneError: they were not.
    """
    retries = json.loads(schema.metadata[_META]).get("retries", 0)
    if not retries or (counter := counter_of(path.parent, retries)).exists():
        return
    if retry_count(path.parent) < retries:
        write_retry_count(path.parent, retries)
        raise RetriesGoneError(f"{counter} was gone, and is there again", "run again", path=path)


def link(path: AnyPath, target: AnyPath) -> None:
    """Put a record in place that names a chunk in another folder of the cache."""
    payload = f"{target.parent.name}/{target.name}".encode()
    write_file(path, Header.of(owner(path), LINK, [payload]).packed() + payload)


def target_of(path: AnyPath) -> AnyPath | None:
    """The chunk that `link` named, in the same cache; None: the file is a commit itself.

    Raises:
        DamagedError: it is not as it was written.
        FileNotFoundError: there is none.
    """
    return _target(path, read_content(path))


def _target(path: AnyPath, content: pa.Buffer) -> AnyPath | None:
    header = checked_header(path, content)
    if header is None:
        raise damaged(path)
    if header.kind != LINK:
        return None
    found = _LINKED.fullmatch(bytes(content[HEADER_BYTES:]).decode("ascii", "replace"))
    if found is None:
        raise damaged(path)
    folder = path.parent.parent / found[1]
    check_is_folder(folder)
    return folder / found[2]


def as_table(commit: StepResult, retries: int = 0) -> pa.Table:
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
        "retries": retries,
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
