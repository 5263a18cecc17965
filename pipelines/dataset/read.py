"""Open a dataset, and cut it into chunks of whole groups, kept as Arrow files.

A dataset is a file of JSON lines, Parquet or Arrow, or a folder of such files. Its rows are copied
once into chunks that later steps map into memory. The chunks' folder is named by a hash of the
content, so an unchanged dataset is read once, whatever is done with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from ...operators import DataError, Groups
from . import json_lines
from .arrow_files import FORMAT
from .checked import read_checked, write_checked

SUFFIXES = (".jsonl", ".json", ".parquet", ".arrow")
SUFFIX = "__dj__suffix__"
"""The column in which Data-Juicer's loader tells from what kind of file a row comes."""
_BLOCK = 16 << 20
_CHUNK_BYTES = 256 << 20
"""Chunks of long rows have fewer rows: Arrow concatenates at most 2 GB of text."""
_HEAD = 1 << 20
_FIRST_ROWS = 1_000
_MANIFEST = "schema.arrow"
_ROWS = b"rows"


class Source(NamedTuple):
    """A dataset on disk, cut into chunks.

    Attributes:
        folder: where the chunks are.
        rows: rows of each chunk.
        schema: one schema for all of them.
    """

    folder: Path
    rows: tuple[int, ...]
    schema: pa.Schema

    def chunk(self, index: int) -> pa.Table:
        """One chunk, its columns mapped from disk and brought to the common schema."""
        return conform(read_checked(self.folder / chunk_name(index)), self.schema)


class Dataset:
    """A dataset that is opened once: each question is answered from its files at most once.

        dataset = Dataset(path)             # nothing is read yet
        dataset.first_rows                  # the head of one file: enough for most checks
        dataset.schema                      # of all rows
        dataset.chunks(cache, chunk_rows=65_536, group_by=("prompt_id",))

    Args:
        path: a file or a folder of files.
        suffixes: which files of a folder are read, such as `.jsonl`; empty: all that can be.
        with_suffix: whether the rows get the column `SUFFIX`, where a file has none.

    Each of its answers raises a DataError, which names file and line, where there is nothing to
    read, a line is broken, schemas do not go together or there are no rows.
    """

    def __init__(
        self, path: Path, suffixes: Sequence[str] = (), *, with_suffix: bool = False
    ) -> None:
        self.path = path
        self.suffixes = suffixes
        self.with_suffix = with_suffix

    @cached_property
    def files(self) -> list[Path]:
        """Its files, by name."""
        return dataset_files(self.path, self.suffixes)

    @cached_property
    def first_rows(self) -> pa.Table:
        """The first rows, at most 1,000 of them and of one file."""
        for file in self.files:
            for table in self._batches(file, block=_HEAD, rows=_FIRST_ROWS):
                return table.slice(0, _FIRST_ROWS)
        raise _empty(self.files)

    @property
    def first_schema(self) -> pa.Schema:
        """The schema of the first rows. A column may first turn up further down."""
        return self.first_rows.schema

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of all rows."""
        return _unify([table.schema for table in self._all_batches()])

    @cached_property
    def fingerprint(self) -> str:
        """Hash of its content."""
        return fingerprint(self.files)

    def chunks(self, cache: Path, *, chunk_rows: int, group_by: Sequence[str]) -> Source:
        """Its chunks, from the cache or cut now.

        Args:
            cache: the folder in which the folder of chunks is.
            chunk_rows: rows per chunk, about: a chunk ends where a group ends.
            group_by: consecutive rows that agree in these columns stay together.
        """
        made_of = [FORMAT, self.fingerprint, chunk_rows, sorted(group_by)]
        made_of += [SUFFIX] if self.with_suffix else []
        key = xxhash.xxh3_64_hexdigest(json.dumps(made_of).encode())
        folder = cache / f"source-{key}"
        source = _cut_before(folder)
        if source is None:
            _read_into(folder, self.files, self._all_batches(), chunk_rows, group_by)
            source = _cut_before(folder)
            assert source is not None
        return source

    def table(self) -> pa.Table:
        """All its rows, in memory."""
        tables = list(self._all_batches())
        if not any(table.num_rows for table in tables):
            raise _empty(self.files)
        schema = _unify([table.schema for table in tables])
        return pa.concat_tables([conform(table, schema) for table in tables])

    def _all_batches(self) -> Iterator[pa.Table]:
        schema = pa.schema([])
        for file in self.files:
            for table in self._batches(file):
                try:
                    schema = _unify([schema, table.schema])
                except pa.ArrowTypeError:
                    raise _mixed(file, schema, table.schema) from None
                yield table

    def _batches(
        self, file: Path, *, block: int = _BLOCK, rows: int = 65_536
    ) -> Iterator[pa.Table]:
        for table in _batches(file, block, rows):
            if self.with_suffix and SUFFIX not in table.column_names:
                known = pa.repeat(file.suffix, table.num_rows)
                yield table.append_column(SUFFIX, known)
            else:
                yield table


def chunk_name(index: int) -> str:
    """File name of a chunk in any step's folder."""
    return f"{index:06d}.arrow"


def dataset_files(path: Path, suffixes: Sequence[str] = ()) -> list[Path]:
    """The files of a dataset path, by name.

    Args:
        path: a file or a folder of files.
        suffixes: which of them are read; empty: all of `SUFFIXES`.

    Raises:
        DataError: nothing there, or nothing that can be read.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist", "set dataset_path to a file or a folder of files")
    known = suffixes or SUFFIXES
    files = [path]
    if path.is_dir():  # The list of the parts of an export begins with `_`, as those of others do.
        inside = (p for p in path.iterdir() if not p.name.startswith(("_", ".")))
        files = sorted(p for p in inside if p.suffix in known)
    needed = f"one of {', '.join(known)} is needed"
    if not files:
        raise DataError(f"{path} holds no dataset file", needed)
    for file in files:
        if file.suffix not in known:
            raise DataError(f"{file} is not a dataset file", needed)
    return files


def fingerprint(files: Sequence[Path]) -> str:
    """Hash of the content of files and of their formats; their names and places do not matter."""
    digest = xxhash.xxh3_128()
    for file in files:
        digest.update(file.suffix.encode())
        with file.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()


def prepare(path: Path, cache: Path, *, chunk_rows: int, group_by: Sequence[str]) -> Source:
    """`Dataset(path).chunks(...)`, for those who ask nothing else of the dataset."""
    return Dataset(path).chunks(cache, chunk_rows=chunk_rows, group_by=group_by)


def read_all(path: Path, suffixes: Sequence[str] = (), *, with_suffix: bool = False) -> pa.Table:
    """`Dataset(…).table()`, for those who ask nothing else of the dataset."""
    return Dataset(path, suffixes, with_suffix=with_suffix).table()


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the columns and types of `schema`; columns that it lacks are null."""
    if table.schema.equals(schema):
        return table
    columns = []
    for field in schema:
        if field.name in table.column_names:
            # Where one file has integers and another has floats, large integers are rounded, as
            # Arrow does within a file.
            rounds = pa.types.is_floating(field.type)
            columns.append(table[field.name].cast(field.type, safe=not rounds))
        else:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
    return pa.table(columns, schema=schema)


def _cut_before(folder: Path) -> Source | None:
    """The chunks in a folder; None where some are missing: the manifest is the last to be written,
    and a chunk that was damaged is removed."""
    if not (folder / _MANIFEST).exists():
        return None
    schema = read_checked(folder / _MANIFEST).schema
    rows = json.loads(schema.metadata[_ROWS])
    if not all((folder / chunk_name(chunk)).exists() for chunk in range(len(rows))):
        return None
    return Source(folder, tuple(rows), schema.remove_metadata())


def _read_into(
    folder: Path,
    files: Sequence[Path],
    batches: Iterator[pa.Table],
    chunk_rows: int,
    group_by: Sequence[str],
) -> None:
    rows: list[int] = []
    schema = pa.schema([])
    for chunk in _chunked(batches, chunk_rows, group_by):
        schema = _unify([schema, chunk.schema])
        write_checked(folder / chunk_name(len(rows)), chunk)
        rows.append(chunk.num_rows)
    if not rows:
        raise _empty(files)
    # Only an Arrow file keeps a schema exactly, so the manifest is one.
    manifest = schema.with_metadata({_ROWS: json.dumps(rows)})
    write_checked(folder / _MANIFEST, manifest.empty_table())


def _empty(files: Sequence[Path]) -> DataError:
    names = ", ".join(str(file) for file in files)
    return DataError(f"{names} is empty", "a dataset needs at least one row")


def _batches(file: Path, block: int, rows: int) -> Iterator[pa.Table]:
    if file.suffix not in (".parquet", ".arrow"):
        yield from json_lines.batches(file, block)
        return
    try:
        is_parquet = file.suffix == ".parquet"
        for table in _parquet_batches(file, rows) if is_parquet else _arrow_batches(file):
            yield _decoded(file, table)
    except pa.ArrowInvalid as error:
        found = f"{file} is not {file.suffix[1:].title()}: {error}"
        raise DataError(" ".join(found.split()), "write it again") from None


def _decoded(file: Path, table: pa.Table) -> pa.Table:
    """The table with its dictionaries and views as plain columns, so that batches have one type."""
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name in columns:
            raise DataError(f"{file} has two columns '{name}'", "rename one")
        kind = column.type
        if pa.types.is_dictionary(kind):
            column = column.cast(kind.value_type)
        elif pa.types.is_string_view(kind):
            column = column.cast(pa.string())
        columns[name] = column
    return pa.table(columns) if columns else table


def _parquet_batches(file: Path, rows: int) -> Iterator[pa.Table]:
    import pyarrow.parquet as pq  # It loads clients of object stores, which `check` does not need.

    # Buffered ahead, all batches that were read would stay in memory until the end.
    with pq.ParquetFile(file, pre_buffer=False) as parquet:
        groups = (parquet.metadata.row_group(i) for i in range(parquet.num_row_groups))
        size = sum(group.total_byte_size for group in groups)
        rows = _rows_within(rows, parquet.metadata.num_rows, size)
        for batch in parquet.iter_batches(batch_size=rows):
            yield pa.Table.from_batches([batch])


def _arrow_batches(file: Path) -> Iterator[pa.Table]:
    with pa.memory_map(str(file)) as source:
        # Hugging Face datasets write the stream format, most others the file format.
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        if is_file:
            reader = pa.ipc.open_file(source)
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            batches = iter(pa.ipc.open_stream(source))
        for batch in batches:
            yield pa.Table.from_batches([batch])


def _mixed(file: Path, schema: pa.Schema, other: pa.Schema) -> DataError:
    for field in other:
        if field.name in schema.names:
            before = schema.field(field.name).type
            try:
                _unify([pa.schema([(field.name, before)]), pa.schema([field])])
            except pa.ArrowTypeError:
                return DataError(
                    f"column '{field.name}' is {field.type}, but {before} in earlier rows",
                    "give the column one type",
                    where=str(file),
                )
    raise AssertionError("schemas that do not unify differ in a column")


def _unify(schemas: Sequence[pa.Schema]) -> pa.Schema:
    bare = [schema.remove_metadata() for schema in schemas]
    return pa.unify_schemas(bare, promote_options="permissive")


def _chunked(
    batches: Iterator[pa.Table], chunk_rows: int, group_by: Sequence[str]
) -> Iterator[pa.Table]:
    """Tables of about `chunk_rows` rows that end where a group ends."""
    rest: pa.Table | None = None
    for batch in batches:
        table = batch
        if rest is not None:
            schema = _unify([rest.schema, batch.schema])
            table = pa.concat_tables([conform(rest, schema), conform(batch, schema)])
        begin = 0
        most = _rows_within(chunk_rows, table.num_rows, table.nbytes)
        for at in _cut_rows(table, most, group_by):
            yield table.slice(begin, at - begin)
            begin = at
        rest = table.slice(begin)
    if rest is not None and rest.num_rows:
        yield rest


def _rows_within(most: int, rows: int, size: int) -> int:
    """At most `most` rows, and about as many as fit into a chunk if `rows` of them have `size`."""
    return min(most, max(1, rows * _CHUNK_BYTES // max(1, size)))


def _cut_rows(table: pa.Table, chunk_rows: int, group_by: Sequence[str]) -> list[int]:
    """Rows to cut at: the last group start within each `chunk_rows`, else the first after it."""
    names = [name for name in group_by if name in table.column_names]
    starts = np.arange(table.num_rows)
    if names:
        starts = np.unique(np.concatenate([Groups.of_column(table[n]).starts_G for n in names]))
    cuts = [0]
    # The last group of the table may continue in the next batch, so no cut comes after its start.
    while len(starts) and starts[-1] - cuts[-1] >= chunk_rows:
        within = int(np.searchsorted(starts, cuts[-1] + chunk_rows, side="right")) - 1
        if starts[within] <= cuts[-1]:
            within += 1
        cuts.append(int(starts[within]))
    return cuts[1:]
