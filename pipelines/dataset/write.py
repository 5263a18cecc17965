"""Write the curated dataset: Parquet, Arrow or JSON lines, chunk by chunk, then one rename."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pyarrow as pa

from ...operators import RecipeError
from .files import written
from .remote import AnyPath
from .spec import DatasetSpec

Write = Callable[[pa.Table], None]


def run_folder(export_path: Path) -> Path:
    """The folder of an export's report and decisions: `curated.run` beside `curated.parquet`."""
    return export_path.with_suffix(".run")


def unfinished_run_folder(export_path: Path) -> Path:
    """The run folder under the name that it has until it is complete."""
    final = run_folder(export_path)
    return final.with_name(f".{final.name}")


def check_export_path(recipe: Path, export_path: AnyPath, dataset: AnyPath | DatasetSpec) -> None:
    """Refuse an unknown format, and an export that would overwrite the dataset.

    Raises:
        RecipeError: either of them.
    """
    if export_path.suffix not in _WRITERS:
        known = ", ".join(_WRITERS)
        raise RecipeError(f"export_path {export_path} has no known format", f"end it in {known}")
    if DatasetSpec.of(dataset).would_read(export_path):
        raise RecipeError(
            f"export_path {export_path} would write over the dataset, or into its folder",
            "give another export_path",
            where=str(recipe),
        )


@contextmanager
def writer(path: Path, schema: pa.Schema) -> Iterator[Write]:
    """A function that appends tables to `path`; the file appears when all are written."""
    with written(path) as temporary, _WRITERS[path.suffix](temporary, schema) as write:
        yield write


@contextmanager
def _parquet(path: Path, schema: pa.Schema) -> Iterator[Write]:
    import pyarrow.parquet as pq  # It loads clients of object stores, which `check` does not need.

    with pq.ParquetWriter(path, schema, compression="zstd") as parquet:
        yield parquet.write_table


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
                rows = batch.to_pylist()
                for row in rows if json else ():
                    row.update({name: decode(row[name]) for name in json})
                stream.writelines(orjson.dumps(r, str, orjson.OPT_APPEND_NEWLINE) for r in rows)

        yield write


_WRITERS = {".parquet": _parquet, ".arrow": _arrow, ".jsonl": _jsonl}
