"""Read a file of any format that datasets have, table by table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from ..filesystem.files import open_input
from . import json_lines, parquet
from .datafile import DataFile, errors_of_format
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
        columns: of a Parquet file, those that are read, in this order; None: all of them.

    Raises:
        DataError: it is damaged or not of its format; names the line of a file of lines.
    """
    if file.suffix == ".parquet":
        yield from parquet.read_batches(file, rows=rows, columns=columns)
    elif file.suffix == ".arrow":
        yield from _arrow_batches(file)
    else:
        yield from json_lines.batches(file, block or BLOCK, workers=workers)


def _arrow_batches(file: DataFile) -> Iterator[pa.Table]:
    with errors_of_format(file, "Arrow"), open_input(file.path, mapped=True) as source:
        # Hugging Face datasets write the stream format, most others the file format.
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        if is_file:
            reader = pa.ipc.open_file(source)
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            batches = iter(pa.ipc.open_stream(source))
        for batch in batches:
            # Before anything is done with it: damaged offsets would abort the process.
            batch.validate(full=True)
            yield decoded(file, pa.Table.from_batches([batch]))
