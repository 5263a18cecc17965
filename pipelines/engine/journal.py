"""A journal of changes to single rows: each is on disk as soon as it is added.

A journal is an Arrow stream, one record batch for each row: its columns are what was written, its
metadata the rest of the change. A batch takes one write of 0.05 ms, where a file of its own would
take 1 ms. A process that is killed may leave half a batch at the end, which is no row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ...operators import Change
from .commit import pack, unpack

_META = b"rejuice"
_BUFFER = 1 << 16


class Entry(NamedTuple):
    """A row, what was done to it, and the seconds since the entry before."""

    row: int
    change: Change
    seconds: float


class Journal:
    """Appends entries to a new file of a folder.

    Args:
        path: journals are called after it: `<stem>-0.journal`, `<stem>-1.journal`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._schema: pa.Schema | None = None
        self._sink: Any = None
        self._writer: Any = None

    def add(self, entry: Entry) -> None:
        """Append an entry; it is there when this returns.

        Raises:
            OSError: it could not be written.
        """
        batch = pa.record_batch(pack(entry.change))
        if batch.schema != self._schema:
            self.close()
            number = max(map(_number, journals(self._path)), default=-1) + 1
            name = f"{self._path.stem}-{number}.journal"
            # A buffer, or each of a batch's many small parts would be a write of its own.
            self._sink = pa.output_stream(str(self._path.with_name(name)), buffer_size=_BUFFER)
            self._writer = pa.ipc.new_stream(self._sink, batch.schema)
            self._schema = batch.schema
        reasons, without = entry.change.reasons, entry.change.without
        meta = {
            "row": entry.row,
            "seconds": entry.seconds,
            "reason": None if reasons is None else reasons[0].as_py(),
            "without": without,
            "notes": dict(entry.change.notes),
        }
        self._writer.write_batch(batch, custom_metadata={_META: json.dumps(meta)})
        self._sink.flush()

    def close(self) -> None:
        """Close the file."""
        if self._sink is not None:
            self._sink.close()  # Not the writer, which would write once more, to a full disk too.
            self._sink = self._schema = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def journals(path: Path) -> list[Path]:
    """The journals that are called after `path`, the oldest first."""
    return sorted(path.parent.glob(f"{path.stem}-*.journal"), key=_number)


def _number(journal: Path) -> int:
    return int(journal.stem.rpartition("-")[2])


def entries(path: Path) -> Iterator[Entry]:
    """What was added to the journals that are called after `path`."""
    for journal in journals(path):
        with pa.OSFile(str(journal)) as source:
            try:
                reader = pa.ipc.open_stream(source)
                while True:
                    yield _entry(*reader.read_next_batch_with_custom_metadata())
            except (StopIteration, pa.ArrowInvalid, OSError):
                continue  # The end, or half a batch.


def _entry(batch: pa.RecordBatch, metadata: Any) -> Entry:
    meta = json.loads(metadata[_META])
    columns, parents = unpack(batch)
    change = Change(
        columns,
        pa.array([meta["reason"]], pa.string()),
        parents,
        tuple(meta["without"]),
        meta["notes"],
    )
    return Entry(meta["row"], change, meta["seconds"])
