"""Read a file of any format that datasets have, table by table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from . import json_lines, parquet
from .datafile import DataFile, errors_of_format
from .files import open_input
from .json_types import is_too_deep, too_deep
from .schemas import decoded

BLOCK = 16 << 20
"""Bytes of a file of JSON lines that are parsed at once."""


def read_batches(
    file: DataFile,
    *,
    block: int | None = None,
    rows: int = 65_536,
    workers: int = 1,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.Table]:
    """Tables of a file, in order; each has its own schema.

    Args:
        file: of the dataset.
        block: bytes of JSON lines per table, about; by default `BLOCK`.
        rows: rows of a Parquet file per table, at most.
        workers: threads that parse JSON lines.
        columns: those that are read, as far as the file has them; None: all of them.

    Raises:
        DataError: it is damaged or not of its format, or a column is nested too deeply; names the
            line of a file of lines.
    """
    for table in _batches(file, block or BLOCK, rows, workers, columns):
        for field in table.schema:
            if is_too_deep(field.type):
                raise too_deep(field.name, str(file))
        yield table


def _batches(
    file: DataFile, block: int, rows: int, workers: int, columns: Sequence[str] | None
) -> Iterator[pa.Table]:
    if file.suffix == ".parquet":
        yield from parquet.read_batches(file, rows=rows, columns=columns)
    elif file.suffix == ".arrow":
        yield from _arrow_batches(file, columns)
    else:
        yield from json_lines.batches(file, block, workers=workers, columns=columns)


def _arrow_batches(file: DataFile, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    with errors_of_format(file, "Arrow"), open_input(file.path, mapped=True) as source:
        # Hugging Face datasets write the stream format, most others the file format.
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        opened = pa.ipc.open_file if is_file else pa.ipc.open_stream
        reader = opened(source)
        if columns is not None:
            there = [i for i, name in enumerate(reader.schema.names) if name in columns]
            source.seek(0)
            reader = opened(source, options=pa.ipc.IpcReadOptions(included_fields=there))
        if is_file:
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            batches = iter(reader)
        for batch in batches:
            # Before anything is done with it: damaged offsets would abort the process.
            batch.validate(full=True)
            yield decoded(file, pa.Table.from_batches([batch]))


def column_names(file: DataFile) -> list[str]:
    """The names of the columns of a file; of one of JSON lines those of its first lines."""
    if file.suffix == ".parquet":
        return list(parquet.read_schema(file).names)
    if file.suffix == ".arrow":
        return next((table.column_names for table in _arrow_batches(file, None)), [])
    return json_lines.first_keys(file, BLOCK)
