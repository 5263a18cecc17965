"""Arrow files that appear complete: each is written under a temporary name, then renamed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pyarrow as pa

from ...operators import DataError

FORMAT = 1
"""Part of every cache key of a run: raise it when datasets are read, or chunks and commits written,
in another way."""


def write_arrow(path: Path, table: pa.Table) -> None:
    """Write an Arrow file under a temporary name, then rename it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(path)
    try:
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def temporary_path(path: Path) -> Path:
    """A name beside `path` that no other process and no other thread uses."""
    return path.with_name(f".{path.name}.{os.getpid()}.{threading.get_native_id()}")


def read_arrow(path: Path, *, mapped: bool = True) -> pa.Table:
    """An Arrow file as a table, over mapped memory or in memory.

    Raises:
        DataError: the file is damaged.
    """
    try:
        with pa.memory_map(str(path)) if mapped else pa.OSFile(str(path)) as source:
            return pa.ipc.open_file(source).read_all()
    except pa.ArrowInvalid:
        raise DataError(f"{path} is damaged", "remove it and run again") from None
