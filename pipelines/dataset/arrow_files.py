"""Arrow files that appear complete."""

from __future__ import annotations

import pyarrow as pa

from ...operators import DataError
from .files import open_input, written
from .remote import AnyPath

FORMAT = 4
"""Part of every cache key of a run: raise it when datasets are read, or chunks and commits written,
in another way."""


def write_arrow(path: AnyPath, table: pa.Table) -> None:
    """Write an Arrow file, which appears complete."""
    with (
        written(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)


def read_arrow(path: AnyPath, *, mapped: bool = True) -> pa.Table:
    """An Arrow file as a table, over mapped memory or in memory.

    Raises:
        DataError: the file is damaged.
    """
    try:
        with open_input(path, mapped=mapped) as source:
            return pa.ipc.open_file(source).read_all()
    except pa.ArrowInvalid:
        raise DataError(f"{path} is damaged", "remove it and run again") from None
