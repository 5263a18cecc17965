"""Read a dataset as chunks of whole groups, kept as Arrow files.

JSON lines, Parquet and Arrow come in, a file or a folder of them. They are copied once into chunks
that later steps map into memory, under a key made of the content, so an unchanged file is read
once whatever is done with it.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq
import xxhash

from ..operators import DataError, Groups
from .commit import read_arrow, write_arrow

SUFFIXES = (".jsonl", ".json", ".parquet", ".arrow")
_BLOCK = 16 << 20


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
        return conform(read_arrow(self.folder / chunk_name(index)), self.schema)


def chunk_name(index: int) -> str:
    """File name of a chunk in any step's folder."""
    return f"{index:06d}.arrow"


def dataset_files(path: Path) -> list[Path]:
    """The files of a dataset path.

    Raises:
        DataError: nothing there, or nothing that can be read.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist", "set dataset_path to a file or a folder of files")
    files = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path} holds no dataset file", f"one of {', '.join(SUFFIXES)} is needed")
    for file in files:
        if file.suffix not in SUFFIXES:
            raise DataError(
                f"{file} is not a dataset file", f"one of {', '.join(SUFFIXES)} is needed"
            )
    return files


def peek_schema(path: Path) -> pa.Schema:
    """The schema of a dataset, from its first file's head: enough to check a recipe against."""
    files = dataset_files(path)
    for file in files:
        for table in _batches(file, block=1 << 20, rows=1):
            return table.schema
    raise _empty(files)


def fingerprint(files: Sequence[Path]) -> str:
    """Content hash of the files: names and places do not matter."""
    digest = xxhash.xxh3_128()
    for file in files:
        digest.update(file.suffix.encode())
        with file.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()


def prepare(path: Path, cache: Path, *, chunk_rows: int, group_by: Sequence[str]) -> Source:
    """Chunks of the dataset, from the cache or read now.

    Args:
        path: a file or a folder of files.
        cache: where chunks are kept.
        chunk_rows: rows per chunk, about: a chunk ends where a group ends.
        group_by: consecutive rows that agree in these columns stay together.

    Raises:
        DataError: a broken line, mixed schemas, no rows; the message names file and line.
    """
    files = dataset_files(path)
    key = xxhash.xxh3_64_hexdigest(
        json.dumps([fingerprint(files), chunk_rows, sorted(group_by)]).encode()
    )
    folder = cache / f"source-{key}"
    manifest = folder / "schema.arrow"
    if not manifest.exists():
        _read_into(folder, files, chunk_rows, group_by)
    table = read_arrow(manifest)
    return Source(folder, tuple(table["__rows__"].to_pylist()), _schema_of(table))


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the columns and types of `schema`; what it lacks is null."""
    if table.schema.equals(schema):
        return table
    columns = []
    for field in schema:
        if field.name in table.column_names:
            # Where one file has whole numbers and another has not, large ones are rounded, as
            # Arrow does within a file.
            rounds = pa.types.is_floating(field.type)
            columns.append(table[field.name].cast(field.type, safe=not rounds))
        else:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
    return pa.table(columns, schema=schema)


def _read_into(
    folder: Path, files: Sequence[Path], chunk_rows: int, group_by: Sequence[str]
) -> None:
    rows: list[int] = []
    schema = pa.schema([])
    for chunk in _cut(_all_batches(files), chunk_rows, group_by):
        schema = _unify([schema, chunk.schema])
        write_arrow(folder / chunk_name(len(rows)), chunk)
        rows.append(chunk.num_rows)
    if not rows:
        raise _empty(files)
    # The manifest comes last: a folder without one is not finished. A schema can only be kept
    # exactly as an Arrow file's own, so the manifest is an Arrow file too.
    fields = [pa.field("__rows__", pa.int64()), *schema]
    columns = [pa.array(rows), *(pa.nulls(len(rows), field.type) for field in schema)]
    write_arrow(folder / "schema.arrow", pa.table(columns, schema=pa.schema(fields)))


def _schema_of(manifest: pa.Table) -> pa.Schema:
    return manifest.schema.remove(manifest.schema.get_field_index("__rows__"))


def _all_batches(files: Sequence[Path]) -> Iterator[pa.Table]:
    schema = pa.schema([])
    for file in files:
        for table in _batches(file):
            try:
                schema = _unify([schema, table.schema])
            except pa.ArrowTypeError:
                raise _mixed(file, schema, table.schema) from None
            yield table


def _empty(files: Sequence[Path]) -> DataError:
    names = ", ".join(str(file) for file in files)
    return DataError(f"{names} is empty", "a dataset needs at least one row")


def _batches(file: Path, *, block: int = _BLOCK, rows: int = 65_536) -> Iterator[pa.Table]:
    if file.suffix not in (".parquet", ".arrow"):
        yield from _json_batches(file, block)
        return
    try:
        is_parquet = file.suffix == ".parquet"
        for table in _parquet_batches(file, rows) if is_parquet else _arrow_batches(file):
            yield _plain(file, table)
    except pa.ArrowInvalid as error:
        found = f"{file} is not {file.suffix[1:].title()}: {error}"
        raise DataError(" ".join(found.split()), "write it again") from None


def _plain(file: Path, table: pa.Table) -> pa.Table:
    """The table without encodings that are only about storage: all chunks share one file each."""
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
    with pq.ParquetFile(file) as parquet:
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


def _json_batches(file: Path, size: int) -> Iterator[pa.Table]:
    line = 1
    with file.open("rb") as stream:
        while block := stream.read(size):
            block += stream.readline()
            if block.strip():
                yield _parse_json(file, block, line)
            line += block.count(b"\n")


def _parse_json(file: Path, block: bytes, first_line: int) -> pa.Table:
    options = pj.ReadOptions(block_size=len(block))
    try:
        block.decode()  # Arrow does not look whether texts are UTF-8.
        table = pj.read_json(io.BytesIO(block), read_options=options)
        # Arrow takes a text such as "2020-01-01" for a point in time. JSON has none: it is text.
        schema = pa.schema([field.with_type(_timeless(field.type)) for field in table.schema])
        if schema.equals(table.schema):
            return table
        texts = pj.ParseOptions(explicit_schema=schema)
        return pj.read_json(io.BytesIO(block), read_options=options, parse_options=texts).select(
            table.column_names
        )
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        broken = _broken_line(file, block, first_line)
        raise broken or _refused(file, block, first_line, error) from None


def _refused(file: Path, block: bytes, first_line: int, error: Exception) -> DataError:
    """What Arrow does not take although each line by itself is JSON."""
    found = re.fullmatch(r"JSON parse error: (.*?)\.? in row (\d+)", str(error), re.DOTALL)
    if found is None:
        return DataError(f"{file} is not JSON lines: {error}", "give one object per line")
    lines = [n for n, raw in enumerate(block.split(b"\n"), first_line) if raw.strip()]
    where = f"{file}, line {lines[min(int(found[2]), len(lines) - 1)]}"
    return DataError(found[1][0].lower() + found[1][1:], "mend or remove the line", where=where)


def _timeless(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_timeless(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_timeless(field.type)) for field in kind])
    return kind


def _broken_line(file: Path, block: bytes, first_line: int) -> DataError | None:
    """Find the line that the fast parser could not take, and say what is wrong with it."""
    types: dict[str, tuple[str, int]] = {}
    for number, raw in enumerate(block.split(b"\n"), first_line):
        if not raw.strip():
            continue
        where = f"{file}, line {number}"
        try:
            row = json.loads(raw)
        except ValueError as error:
            return DataError(f"not JSON ({error})", "mend or remove the line", where=where)
        if not isinstance(row, dict):
            return DataError(
                f"{type(row).__name__} instead of an object",
                "give one object per line",
                where=where,
            )
        for name, value in row.items():
            kind = _json_kind(value)
            before, seen = types.setdefault(name, (kind, number)) if kind else (kind, number)
            if kind != before:
                return DataError(
                    f"column '{name}' is {kind}, but {before} in line {seen}",
                    "give the column one type",
                    where=where,
                )
    return None


def _json_kind(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    return {"str": "a string", "list": "a list", "dict": "an object"}[type(value).__name__]


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


def _cut(
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
        for at in _cuts(table, chunk_rows, group_by):
            yield table.slice(begin, at - begin)
            begin = at
        rest = table.slice(begin)
    if rest is not None and rest.num_rows:
        yield rest


def _cuts(table: pa.Table, chunk_rows: int, group_by: Sequence[str]) -> list[int]:
    """Rows to cut at: the last group start within each `chunk_rows`, else the first after it."""
    names = [name for name in group_by if name in table.column_names]
    starts = np.arange(table.num_rows)
    if names:
        starts = np.unique(np.concatenate([Groups.of_column(table[n]).starts_G for n in names]))
    cuts = [0]
    # The last group of the table may go on in the next batch, so nothing after its start is cut.
    while len(starts) and starts[-1] - cuts[-1] >= chunk_rows:
        within = int(np.searchsorted(starts, cuts[-1] + chunk_rows, side="right")) - 1
        if starts[within] <= cuts[-1]:
            within += 1
        cuts.append(int(starts[within]))
    return cuts[1:]
