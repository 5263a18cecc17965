"""Write the curated dataset: Parquet, Arrow or JSON lines, chunk by chunk, then one rename.

A path without a suffix is a folder of Parquet files, with a list of them that is written last:

    outputs/curated/part-00000.parquet
    outputs/curated/part-00001.parquet
    outputs/curated/_manifest.json
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from ...operators import DataError, RecipeError
from ...operators.arrow_compute import pc
from ...operators.disk import NotAFileError
from ...operators.json_text import parse_json
from .files import (
    PARTS_LIST,
    DataFile,
    is_folder,
    is_part,
    open_input,
    read_file,
    run_folder,
    write_file,
    written,
)
from .parquet import schema_metadata
from .read import Dataset
from .remote import AnyPath, RemotePath, to_path
from .schemas import conform, without_empty
from .spec import DatasetSpec, files_of

# --- Helper columns -------------------------------------------------------------------
# Helper columns: what steps keep beside the rows for other steps, and what an export has of it.
#
#     __dj__stats__            what filters have computed of a row: its statistics, by name
#     __dj__meta__             what tagging operators have found in it: its tags, by name
#     __dj__hash and others    what deduplicators have compared
#
# They go from step to step and are dropped at the export, unless the recipe keeps them. Statistics
# and tags are a JSON text for each row, Arrow's type `arrow.json`: so Hugging Face stores what
# begins as an empty dictionary. In a dataset of the user's they may be structs.

STATS = "__dj__stats__"
META = "__dj__meta__"
KINDS = {STATS: "statistic", META: "tag"}
"""What an entry of each column is called."""
HASHES = ("__dj__hash", "__dj__minhash", "__dj__simhash", "__dj__imagehash", "__dj__videohash")


def exported(names: Iterable[str], *, keep_stats: bool, keep_hashes: bool) -> list[str]:
    dropped = {*(() if keep_stats else KINDS), *(() if keep_hashes else HASHES)}
    return [name for name in names if name not in dropped]


def filled(table: pa.Table) -> pa.Table:
    """The table with no statistics and no tags where it has a null instead of them.

    Rows that a later step adds have none yet, and some operators look into all of them.
    """
    for name in KINDS:
        column = table[name] if name in table.column_names else None
        if column is None or not column.null_count:
            continue
        if pa.types.is_struct(column.type):
            parts = [pc.struct_field(column, at) for at in range(column.type.num_fields)]
            whole = [part.combine_chunks() for part in parts]
            if whole:
                names = [field.name for field in column.type]
                table = with_column(table, name, pa.StructArray.from_arrays(whole, names))
        elif isinstance(column.type, pa.JsonType):
            known = pc.fill_null(column.cast(pa.string()), "{}")
            table = with_column(table, name, known.cast(pa.json_()))
    return table


def with_column(table: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    if name not in table.column_names:
        return table.append_column(name, column)
    return table.set_column(table.column_names.index(name), name, column)


# --- Written --------------------------------------------------------------------------
# Which columns of a dataset steps have written: they may be computed again, all others are kept.
#
# An export as Parquet or Arrow says so in the metadata of its schema, wherever it is moved, and so
# does a table that is read from it. Of any other export, the report in its run folder says it.

_KEY, _FROM = b"rejuice.written", b"rejuice.computed_from"


def mark_written(
    schema: pa.Schema, names: Iterable[str], origins: Mapping[str, Iterable[str]] | None = None
) -> pa.Schema:
    """The schema, with a mark at those of its columns that steps have written."""
    marked = sorted(set(names) & set(schema.names))
    metadata = {**(schema.metadata or {}), _KEY: json.dumps(marked)}
    if origins:
        known = {name: sorted(origins[name]) for name in marked if name in origins}
        metadata[_FROM] = json.dumps(known)
    return schema.with_metadata(metadata)


class WrittenByRuns(NamedTuple):
    columns: frozenset[str] = frozenset()  # that steps have written
    # by column that steps have written, those from which it was computed
    origins: Mapping[str, frozenset[str]] = MappingProxyType({})


def written_columns(dataset: AnyPath | DatasetSpec) -> frozenset[str]:
    return written_of(dataset).columns


def written_of(dataset: AnyPath | DatasetSpec) -> WrittenByRuns:
    spec = DatasetSpec.of(dataset)
    if not spec.paths or len(spec.paths) < len(spec.parts):
        return WrittenByRuns()  # A dataset of the hub is no export.
    of_parts = zip(spec.paths, spec.parts, strict=True)
    found = [each for path, part in of_parts for each in _of_files(path, part.split or spec.split)]
    renamed = spec.selection.renamed
    origins = defaultdict[str, frozenset[str]](frozenset)
    for each in found:  # A column may come of other ones in each file.
        for name, of in each.origins.items():
            for new in renamed([name]):
                origins[new] |= frozenset(renamed(of))
    columns = frozenset.intersection(*(each.columns for each in found))
    return WrittenByRuns(frozenset(renamed(columns)), dict(origins))


def _of_files(path: AnyPath, split: str | None) -> Iterator[WrittenByRuns]:
    reported = _reported(path)
    try:
        files = files_of(path, split=split)
    except DataError:
        yield WrittenByRuns(reported)  # `dj-process` reads formats that we do not, such as CSV.
        return
    for file in files:
        marked = _marked(file)
        columns = marked.columns or (frozenset() if file == path else _reported(file))
        yield marked._replace(columns=columns | reported)


def _marked(file: AnyPath) -> WrittenByRuns:
    metadata: Mapping[bytes, bytes] = {}
    if file.suffix == ".parquet":
        metadata = schema_metadata(DataFile.of(file))
    elif file.suffix == ".arrow":
        with suppress(pa.ArrowInvalid), open_input(file) as source:
            # An export is no stream.
            metadata = pa.ipc.open_file(source).schema.metadata or {}
    # It is anybody's text, and says nothing where it is not as `mark_written` writes it.
    with suppress(ValueError, TypeError, AttributeError):
        columns = parse_json(metadata.get(_KEY, b"[]"))
        origins = parse_json(metadata.get(_FROM, b"{}")).items()
        return WrittenByRuns(
            frozenset(name for name in columns if isinstance(name, str)),
            {name: frozenset(map(str, of)) for name, of in origins},
        )
    return WrittenByRuns()


def _reported(export_path: AnyPath) -> frozenset[str]:
    try:
        report = parse_json(read_file(run_folder(export_path) / "report.json"))
        # The dataset of a run may differ from its export in nothing but the suffix.
        if to_path(str(report["export_path"])).name != export_path.name:
            return frozenset()
        written = [step["written"] for step in report["steps"]]
        return frozenset(str(name) for names in written for name in names)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return frozenset()  # There is none, or it is damaged.


# --- Write ----------------------------------------------------------------------------

Write = Callable[[pa.Table], None]
_CACHE = ".rejuice"
"""Readers of datasets skip files whose names begin with `_`."""


def default_cache(export_path: AnyPath) -> Path:
    """Beside the export or, where that is in an object store, in the working directory."""
    return Path() / _CACHE if isinstance(export_path, RemotePath) else export_path.parent / _CACHE


def parts_of(export_path: AnyPath) -> list[AnyPath]:
    """The files of an export that is a folder, in the order of their rows.

    They are those of its list, which is written last: whatever else is in the folder of an object
    store may be of a run that has not ended.
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
    parts = [{"file": name, "rows": n} for name, n in rows.items()]
    content = json.dumps({"rows": sum(rows.values()), "parts": parts}, indent=1)
    write_file(folder / PARTS_LIST, f"{content}\n")


def check_export_path(recipe: Path, export_path: AnyPath, dataset: AnyPath | DatasetSpec) -> None:
    """Refuse an unknown format, and an export that would overwrite the dataset or other files."""
    known = ", ".join(_WRITERS)
    if not export_path.name or not (is_folder(export_path) or export_path.suffix in _WRITERS):
        raise RecipeError(
            f"export_path {export_path} has no known format",
            f"end it in {known}, or name a folder, without a dot",
        )
    if is_folder(export_path) and export_path.exists():
        if not export_path.is_dir():
            raise RecipeError(
                f"export_path {export_path} is a file without a suffix",
                f"name a folder, or a file that ends in {known}",
            )
        every: Iterable[AnyPath] = export_path.iterdir()
        for path in sorted(every, key=str):
            if not is_part(path) and path.name != PARTS_LIST:  # It is going to be replaced.
                raise RecipeError(
                    f"export_path {export_path} is a folder with other files, such as {path.name}",
                    "name a folder that is empty or does not exist",
                )
    if DatasetSpec.of(dataset).clashes(export_path):
        raise RecipeError(
            f"export_path {export_path} would write over the dataset, or into its folder",
            "give another export_path",
            where=str(recipe),
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
    with path.open("wb") as stream:

        def write(table: pa.Table) -> None:
            for batch in table.to_batches(max_chunksize=10_000):
                try:
                    rows = batch.to_pylist()
                except (OverflowError, ValueError) as error:  # A date after the year 9999.
                    right = "leave the column out, or write .parquet"
                    raise DataError(f"JSON cannot hold a value: {error}", right) from None
                for row in rows if json else ():
                    # Arrow's own parser rounds the last bit of a number.
                    row.update({n: row[n] and orjson.loads(row[n]) for n in json})
                stream.writelines(
                    orjson.dumps(row, _as_json, orjson.OPT_APPEND_NEWLINE) for row in rows
                )

        yield write


def _as_json(value: Any) -> str:
    """A value that JSON lacks: bytes, such as of an image, as base64; others as Python's text."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


_WRITERS = {".parquet": _parquet, ".arrow": _arrow, ".jsonl": _jsonl}


# --- Read the rows of an export: a file, or a folder of parts. It may have no row -----


def exported_rows(export: AnyPath, *, mapped: bool = True) -> pa.Table:
    in_parts = is_folder(export)
    parts = parts_of(export) if in_parts else [export]
    for part in parts if in_parts else ():
        if not part.is_file():
            raise DataError(f"{export} lacks {part.name}", "run its recipe again")
    if not in_parts and (export.suffix == ".jsonl" or not export.is_file()):
        is_empty = export.is_file() and not export.stat().st_size
        return pa.table({}) if is_empty else Dataset(export).table()
    import pyarrow.parquet as pq  # It loads clients of object stores.

    try:
        tables = []
        for part in parts:
            with open_input(part, mapped=mapped) as source:
                is_arrow = export.suffix == ".arrow"
                found = pa.ipc.open_file(source).read_all() if is_arrow else pq.read_table(source)
                tables.append(found)
        table = pa.concat_tables(tables)
        table.validate(full=True)  # Damaged offsets would end the process where they are used.
        return table
    except FileNotFoundError:
        raise
    except (pa.ArrowException, UnicodeDecodeError, OSError):
        raise DataError(f"{export} is damaged", "run it again") from None
