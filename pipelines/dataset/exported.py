"""Read the rows of an export: a file, or a folder of parts. It may have no row."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from ...operators import DataError
from .arrow_files import read_arrow
from .files import open_input
from .read import Dataset
from .remote import AnyPath, RemotePath
from .run_folder import is_folder
from .write import parts_of


def exported_rows(export: AnyPath, *, mapped: bool = True) -> pa.Table:
    """The rows of an export.

    Args:
        export: a file, or a folder of parts.
        mapped: whether they may stay on disk until they are used; then it must not be removed.

    Raises:
        DataError: it is gone, damaged or not finished, or lacks a part.
    """
    in_parts = is_folder(export)
    parts = parts_of(export) if in_parts else [export]
    for part in parts if in_parts else ():
        if not part.is_file():
            raise DataError(f"{export} lacks {part.name}", "run its recipe again")
    if export.suffix == ".arrow" and export.is_file():
        return _checked(read_arrow(export, mapped=mapped), export)
    if in_parts or (export.suffix == ".parquet" and export.is_file()):
        import pyarrow.parquet as pq  # It loads clients of object stores.

        try:
            tables = []
            for part in parts:
                with open_input(part, mapped=mapped) as source:
                    tables.append(pq.read_table(source))
            return _checked(pa.concat_tables(tables), export)
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError):
            raise DataError(f"{export} is damaged", "run it again") from None
    if export.is_file() and not export.stat().st_size:
        return pa.table({})
    if isinstance(export, RemotePath):
        with TemporaryDirectory(prefix="rejuice-") as folder:
            copy = Path(folder) / export.name
            copy.write_bytes(export.read_bytes())
            return Dataset(copy).table()
    return Dataset(export).table()


def _checked(table: pa.Table, export: AnyPath) -> pa.Table:
    """The rows; damaged offsets would end the process where they are used."""
    try:
        table.validate(full=True)
    except (pa.ArrowException, UnicodeDecodeError):
        raise DataError(f"{export} is damaged", "run it again") from None
    return table
