"""Write the curated dataset: Parquet, Arrow or JSON lines, chunk by chunk, then one rename.

A path without a suffix is a folder of Parquet files, with a list of them that is written last:

    outputs/curated/part-00000.parquet
    outputs/curated/part-00001.parquet
    outputs/curated/_manifest.json
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from ...operators import DataError, RecipeError
from ...operators.disk import NotAFileError
from ...operators.json_text import parse_json
from .arrow_types import without_empty
from .files import read_file, write_file, written
from .remote import AnyPath, RemotePath
from .run_folder import PART, PART_SUFFIX, is_folder
from .schemas import conform
from .spec import DatasetSpec

Write = Callable[[pa.Table], None]
_CACHE = ".rejuice"
PARTS_LIST = "_manifest.json"
"""Readers of datasets skip files whose names begin with `_`."""


def default_cache(export_path: AnyPath) -> Path:
    """Where the results of a run are kept unless another place is given: `.rejuice`.

    It is beside the export or, where that is in an object store, in the working directory.
    """
    return Path() / _CACHE if isinstance(export_path, RemotePath) else export_path.parent / _CACHE


def parts_of(export_path: AnyPath) -> list[AnyPath]:
    """The files of an export that is a folder, in the order of their rows.

    They are those of its list, which is written last: whatever else is in the folder of an object
    store may be of a run that has not ended.

    Raises:
        DataError: there is no list, so the export is not finished; or it is damaged.
    """
    parts_list = export_path / PARTS_LIST
    try:
        listed = parse_json(read_file(parts_list))["parts"]
        return [export_path / str(part["file"]) for part in listed]
    except FileNotFoundError:
        found = f"{export_path} is not a finished export: it lacks {PARTS_LIST}"
    except (ValueError, LookupError, TypeError, NotAFileError):
        found = f"{parts_list} is damaged"
    raise DataError(found, "run its recipe again")


def write_parts_list(folder: AnyPath, rows: Mapping[str, int]) -> None:
    """Write the list of the parts of an export, the last of its files.

    Args:
        folder: with the parts.
        rows: of each part, by the name of its file, in order.
    """
    parts = [{"file": name, "rows": n} for name, n in rows.items()]
    content = json.dumps({"rows": sum(rows.values()), "parts": parts}, indent=1)
    write_file(folder / PARTS_LIST, f"{content}\n")


def check_export_path(recipe: Path, export_path: AnyPath, dataset: AnyPath | DatasetSpec) -> None:
    """Refuse an unknown format, and an export that would overwrite the dataset or other files.

    Raises:
        RecipeError: any of them.
    """
    if not export_path.name or not (is_folder(export_path) or export_path.suffix in _WRITERS):
        known = ", ".join(_WRITERS)
        raise RecipeError(
            f"export_path {export_path} has no known format",
            f"end it in {known}, or name a folder, without a dot",
        )
    if is_folder(export_path):
        _check_folder(export_path)
    if DatasetSpec.of(dataset).clashes(export_path):
        raise RecipeError(
            f"export_path {export_path} would write over the dataset, or into its folder",
            "give another export_path",
            where=str(recipe),
        )


def _check_folder(export_path: AnyPath) -> None:
    """Refuse a folder with anything that is no part of an export: it is going to be replaced."""
    if not export_path.exists():
        return
    if not export_path.is_dir():
        known = ", ".join(_WRITERS)
        raise RecipeError(
            f"export_path {export_path} is a file without a suffix",
            f"name a folder, or a file that ends in {known}",
        )
    every: Iterable[AnyPath] = export_path.iterdir()
    for path in sorted(every, key=str):
        is_part = path.name.startswith(f"{PART}-") and path.suffix == PART_SUFFIX
        if not is_part and path.name != PARTS_LIST:
            raise RecipeError(
                f"export_path {export_path} is a folder with other files, such as {path.name}",
                "name a folder that is empty or does not exist",
            )


@contextmanager
def writer(path: AnyPath, schema: pa.Schema) -> Iterator[Write]:
    """A function that appends tables to `path`; the file appears when all are written."""
    with written(path) as temporary, _WRITERS[path.suffix](temporary, schema) as write:
        yield write


@contextmanager
def _parquet(path: Path, schema: pa.Schema) -> Iterator[Write]:
    import pyarrow.parquet as pq  # It loads clients of object stores, which `check` does not need.

    wanted = pa.schema([field.with_type(without_empty(field.type)) for field in schema])
    wanted = wanted.with_metadata(schema.metadata)
    with pq.ParquetWriter(path, wanted, compression="zstd") as parquet:
        yield lambda table: parquet.write_table(conform(table, wanted))


@contextmanager
def _arrow(path: Path, schema: pa.Schema) -> Iterator[Write]:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as stream:
        yield stream.write_table


@contextmanager
def _jsonl(path: Path, schema: pa.Schema) -> Iterator[Write]:
    # orjson writes dates as ISO 8601 and nan as null: JSON has neither.
    json = [field.name for field in schema if isinstance(field.type, pa.JsonType)]
    if json:  # Read as Data-Juicer reads its own: its parser rounds the last bit of a number.
        from datasets import Json

        decode = Json().decode_example
    with path.open("wb") as stream:

        def write(table: pa.Table) -> None:
            for batch in table.to_batches(max_chunksize=10_000):
                try:
                    rows = batch.to_pylist()
                except (OverflowError, ValueError) as error:  # A date after the year 9999.
                    right = "leave the column out, or write .parquet"
                    raise DataError(f"JSON cannot hold a value: {error}", right) from None
                for row in rows if json else ():
                    row.update({name: decode(row[name]) for name in json})
                stream.writelines(
                    orjson.dumps(row, _as_json, orjson.OPT_APPEND_NEWLINE) for row in rows
                )

        yield write


def _as_json(value: Any) -> str:
    """A value that JSON lacks: bytes, such as of an image, as base64; others as Python's text."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


_WRITERS = {".parquet": _parquet, ".arrow": _arrow, ".jsonl": _jsonl}
