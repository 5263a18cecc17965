"""A dataset that is cut into chunks, and each chunk's columns, read when they are needed.

The chunks of Parquet files are rows of these files. Rows of any other format are parsed once, into
a file per chunk. Either way a manifest in the folder of the source says where the cuts are.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from ...operators import DataError
from ...operators.columns import beginnings, column_of, find_path, is_list
from ...operators.errors import suggest
from .datafile import DataFile
from .files import read_checked, write_checked
from .json_types import without_marks
from .parquet import RowRange, read_range
from .remote import AnyPath
from .schemas import conform, unify

# --- Which columns of the files of a dataset are read, and what they are called -------

SUFFIX = "__dj__suffix__"
"""The column that tells from what kind of file a row comes."""


class Selection(NamedTuple):
    """Columns of files, and the names that they get."""

    # pairs of the name in the files, or a path such as `response.body.choices`, and the name that
    # it gets; None: all, as they are
    names: tuple[tuple[str, str], ...] | None = None
    with_suffix: bool = False  # whether the rows get the column `SUFFIX`, where a file has none

    @property
    def columns(self) -> list[str] | None:
        """What files are asked for; None: all columns."""
        return None if self.names is None else self.columns_of(new for _, new in self.names)

    def columns_of(self, names: Iterable[str]) -> list[str]:
        """What files are asked for to get these columns: of a path all in which it may begin."""
        if self.names is None:
            return list(names)
        old = {new: old for old, new in self.names}
        return list(
            dict.fromkeys(each for name in names for each in beginnings(old.get(name, name)))
        )

    def of(self, table: pa.Table, suffix: str) -> pa.Table:
        """The selected columns of a table of a file, those of them that it has."""
        if self.names is not None:
            found = {}
            for path, name in self.names:
                values = find_path(table, path)
                if values is not None:
                    found[_field_at(table.schema, path).with_name(name)] = values
            if found:
                table = pa.table(list(found.values()), schema=pa.schema(list(found)))
            else:  # A table without columns would have no rows.
                table = pa.table({self.names[0][1]: pa.nulls(table.num_rows)})
        if self.with_suffix and SUFFIX not in table.column_names:
            table = table.append_column(SUFFIX, pa.repeat(suffix, table.num_rows))
        return table

    def schema(self, schema: pa.Schema, suffix: str) -> pa.Schema:
        """The schema of the selected columns of a file, given its own."""
        return self.of(schema.empty_table(), suffix).schema if len(schema) else schema

    def renamed(self, names: Iterable[str]) -> list[str]:
        """What columns of the files are called, those of them that are selected."""
        if self.names is None:
            return list(names)
        new = dict(self.names)
        return [new[name] for name in names if name in new]

    def missing(self, table: pa.Table) -> list[str]:
        """The selected columns, as files call them, that a table of a file lacks."""
        return [path for path, _ in self.names or () if find_path(table, path) is None]


def not_there(path: str, columns: Collection[str], dataset: object) -> DataError:
    """The error for a selected column that is in no file."""
    right = suggest(path, columns) or f"there are: {', '.join(sorted(columns))}"
    column = column_of(path, columns)
    if column is not None:
        right = f"name a field of column '{column}'"
    return DataError(f"{dataset} has no column '{path}', which `columns` selects", right)


def _field_at(fields: Iterable[pa.Field], path: str) -> pa.Field:
    """The field of a schema at a path that it has, with its metadata."""
    there = {field.name: field for field in fields}
    name = column_of(path, there)
    assert name is not None
    return _within(there[name], path[len(name) + 1 :])


def _within(field: pa.Field, path: str) -> pa.Field:
    kind = field.type
    if not path or pa.types.is_null(kind):
        return field
    if is_list(kind):
        return pa.field(field.name, pa.list_(_within(kind.value_field, path)))
    return _field_at(kind, path)


# --- Source ---------------------------------------------------------------------------

_MANIFEST = "schema.arrow"
_ROWS, _RANGES, _FILES = b"rows", b"ranges", b"files"


class InFiles(NamedTuple):
    """Chunks that are rows of Parquet files."""

    files: tuple[DataFile, ...]  # of the dataset
    ranges: tuple[tuple[RowRange, ...], ...]  # of each chunk, its rows of these
    selection: Selection  # the columns that are read, under the names that they get

    def read(self, chunk: int, schema: pa.Schema) -> pa.Table:
        """Some columns of a chunk."""
        tables = []
        for part in self.ranges[chunk]:
            file = self.files[part.file]
            found = read_range(file, part, self.selection.columns_of(schema.names))
            # A table without columns has no rows.
            if not found.num_columns:
                found = pa.table({"": pa.nulls(part.rows)})
            tables.append(conform(self.selection.of(found, file.suffix), schema))
        return pa.concat_tables(tables)


class Source(NamedTuple):
    """A dataset, cut into chunks."""

    folder: AnyPath  # named by the content; the manifest and, where rows were parsed, the chunks
    rows: tuple[int, ...]  # rows of each chunk
    schema: pa.Schema  # one schema for all of them
    in_files: InFiles | None = None  # where the chunks are rows of Parquet files
    # the names and rows of the files, where all rows of all files are read
    files: tuple[tuple[str, int], ...] = ()

    def first_row(self, chunk: int) -> int:
        """The number, from 0, of the first row of a chunk."""
        return sum(self.rows[:chunk])

    def place(self, row: int) -> str:
        """What to call a row, given its number from 0: with several files, `row 3 of b.jsonl`."""
        if len(self.files) > 1:
            for name, rows in self.files:
                if row < rows:
                    return f"row {row + 1} of {name}"
                row -= rows
        return f"row {row + 1}"

    def chunk(self, index: int, columns: Iterable[str] | None = None) -> pa.Table:
        """One chunk, its columns brought to the common schema.

        Raises:
            DataError: a Parquet file has changed since the dataset was opened.
            DamagedError: the file of a chunk is damaged.
        """
        schema = self.schema
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        if self.in_files is not None:
            return self.in_files.read(index, schema)
        return conform(read_checked(self.folder / chunk_name(index)), schema)

    def columns(self, index: int) -> ChunkColumns:
        """The columns of a chunk, each of which is read once it is asked for."""
        return ChunkColumns(self, index)


class ChunkColumns(Mapping[str, pa.ChunkedArray]):
    """The columns of a chunk by name, each read when it is asked for."""

    def __init__(self, source: Source, chunk: int) -> None:
        self.schema, self.num_rows = source.schema, source.rows[chunk]
        self._source, self._chunk = source, chunk
        self._read: dict[str, pa.ChunkedArray] = {}

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        if name not in self._read:
            if self._source.in_files is None:  # Mapped from disk: all cost no more than one.
                table = self._source.chunk(self._chunk)
            else:
                table = self._source.chunk(self._chunk, [name])
            self._read.update(zip(table.column_names, table.columns, strict=True))
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.schema.names)

    def __len__(self) -> int:
        return len(self.schema)


def chunk_name(index: int) -> str:
    """File name of a chunk in any step's folder."""
    return f"{index:06d}.arrow"


def write_chunks(folder: AnyPath, chunks: Iterable[pa.Table], rows_of_files: Sequence[int]) -> bool:
    """Write a file per chunk, and then the manifest; False if there is none."""
    rows, schema = list[int](), pa.schema([])
    for chunk in chunks:
        schema = unify([schema, chunk.schema])
        write_checked(folder / chunk_name(len(rows)), chunk)
        rows.append(chunk.num_rows)
    if rows:
        files = json.dumps(rows_of_files)
        _write_manifest(folder, without_marks(schema), {_ROWS: json.dumps(rows), _FILES: files})
    return bool(rows)


def write_ranges(
    folder: AnyPath,
    schema: pa.Schema,
    ranges: Sequence[Sequence[RowRange]],
    rows_of_files: Sequence[int],
) -> None:
    """Write the manifest of chunks that are rows of Parquet files."""
    rows = [sum(part.rows for part in chunk) for chunk in ranges]
    values = {_ROWS: rows, _RANGES: ranges, _FILES: rows_of_files}
    _write_manifest(folder, schema, {key: json.dumps(value) for key, value in values.items()})


def read_source(folder: AnyPath, files: Sequence[DataFile], selection: Selection) -> Source | None:
    """The source of a folder; None where a file of it is missing.

    Raises:
        DamagedError: the manifest is damaged.
    """
    manifest = folder / _MANIFEST
    if not manifest.exists():
        return None
    schema = read_checked(manifest).schema
    rows = tuple(json.loads(schema.metadata[_ROWS]))
    ranges = json.loads(schema.metadata.get(_RANGES, b"null"))
    counts = json.loads(schema.metadata.get(_FILES, b"[]"))
    names = tuple(zip(map(str, files), counts, strict=True)) if counts else ()
    schema = schema.remove_metadata()
    if ranges is not None:
        of_chunks = tuple(tuple(RowRange(*part) for part in chunk) for chunk in ranges)
        return Source(folder, rows, schema, InFiles(tuple(files), of_chunks, selection), names)
    there = {path.name for path in folder.iterdir()}
    # A chunk that was damaged is removed, wherever that is found: it is read again.
    complete = all(chunk_name(chunk) in there for chunk in range(len(rows)))
    return Source(folder, rows, schema, files=names) if complete else None


def _write_manifest(folder: AnyPath, schema: pa.Schema, values: Mapping[bytes, str]) -> None:
    # It is written last: a folder without one is incomplete. Only an Arrow file keeps a schema
    # exactly, so the manifest is one.
    write_checked(folder / _MANIFEST, schema.with_metadata(dict(values)).empty_table())
