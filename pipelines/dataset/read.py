"""Open a dataset, and cut it into chunks of whole groups.

A dataset is files of JSON lines, perhaps compressed, of Parquet or of Arrow: one, a folder, a
pattern, a list of these, or one of the hub. The rows of Parquet files stay where they are; others
are parsed once, into a file per chunk that later steps map into memory. The folder of the chunks is
named by a hash of the content, so an unchanged dataset is read once, whatever is done with it.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property, partial
from itertools import chain, islice, product
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from ...operators import DataError
from ...operators.disk import NotAFileError
from ...operators.json_text import parse_json
from . import json_lines, parquet
from .files import (
    FORMAT,
    DataFile,
    check_own_folder,
    errors_of_format,
    open_input,
    read_checked,
    read_file,
    write_checked,
    write_file,
)
from .parquet import GroupColumns, RowRange, chunked, read_range
from .remote import AnyPath
from .schemas import added, conform, decoded, is_too_deep, one_table, too_deep, unify, without_marks
from .spec import DatasetPart, DatasetSpec, Selection, not_there

# --- Content hash ---------------------------------------------------------------------
# Hashes of the content of files, kept beside the results of runs: an unchanged file is not read.
#
# A file counts as unchanged if its size and the time of its last change are the same. `rejuice run
# --verify` reads it again.

_NAME = "content-hashes.json"
_BLOCK = 16 << 20
_RECENT_NS = 2_000_000_000
"""A file may change twice within the resolution of its time: the hash of one so young is not
kept."""


class _Known(NamedTuple):
    size: int
    mtime_ns: int
    digest: str


def fingerprint(
    files: Sequence[DataFile], cache: AnyPath | None = None, *, verify: bool = False
) -> str:
    """Hash of the content of files and of their formats; their names and places do not matter."""
    kept = {} if cache is None else _kept(cache)
    found = dict[str, _Known]()
    digest = xxhash.xxh3_128()
    for file in files:
        name = str(file.path.absolute())
        known = None if verify else kept.get(name)
        if known is None or known[:2] != (file.size, file.mtime_ns):
            known = _Known(file.size, file.mtime_ns, _hash(file))
            if time.time_ns() - file.mtime_ns > _RECENT_NS:
                found[name] = known
        digest.update(f"{file.suffix} {known.digest}\n".encode())
    if cache is not None and found.items() - kept.items():
        cache.mkdir(parents=True, exist_ok=True)
        write_file(cache / _NAME, json.dumps({**kept, **found}, indent=0))
    return str(digest.hexdigest())


def _hash(file: DataFile) -> str:
    digest = xxhash.xxh3_128()
    with file.open() as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    file.check_unchanged()
    return str(digest.hexdigest())


def _kept(cache: AnyPath) -> dict[str, _Known]:
    with suppress(FileNotFoundError, NotAFileError, ValueError, TypeError, AttributeError):
        kept = parse_json(read_file(cache / _NAME))
        return {str(name): _Known(*entry) for name, entry in kept.items()}
    return {}


# --- Mixture --------------------------------------------------------------------------
# Mixtures of datasets: a path with weights, and rows by weight, as Data-Juicer 1.6.1 draws them.

_SEED = 42
"""Data-Juicer's own, `random_sample` of data_juicer/utils/sample.py."""


def parse_mixture(text: str) -> list[str]:
    """The paths of `0.5 a.jsonl 0.5 b.jsonl`, as Data-Juicer splits it, without their weights.

    The weights do nothing there either: they only matter where `dataset: {max_sample_num: …}` is.
    A quote that is not closed is a ValueError.
    """
    return [word for word in shlex.split(text) if not _is_number(word)]


def rows_by_weight(weights: Sequence[float], max_rows: int) -> list[int]:
    """How many rows of each dataset are taken, as Data-Juicer's `get_sample_numbers` counts."""
    share = np.array(weights, np.float64) / sum(weights)
    rows, left = [], max_rows
    for each in share:
        rows.append(min(int(np.ceil(max_rows * each)), left))
        left -= rows[-1]
    return rows


def sampled(read: Callable[[], Iterator[pa.Table]], rows: int) -> pa.Table | None:
    """Rows of a dataset, drawn with Data-Juicer's seed, in the order that it gives them.

    The dataset is read twice: once to count it, once for the rows that are taken. Only these are
    in memory. Where more rows are wanted than there are, some are taken several times; None where
    there are none.
    """
    total = sum(table.num_rows for table in read())
    if not total or not rows:
        return None
    wanted_N = np.arange(rows)
    if rows != total:  # As `datasets.Dataset.shuffle(seed)` shuffles.
        wanted_N = np.random.default_rng(_SEED).permutation(total)[wanted_N % total]
    order = np.argsort(wanted_N, kind="stable")
    sorted_N = wanted_N[order]
    taken, first = list[pa.Table](), 0
    for table in read():
        begin, end = np.searchsorted(sorted_N, [first, first + table.num_rows])
        if begin < end:
            taken.append(table.take(pa.array(sorted_N[begin:end] - first)))
        first += table.num_rows
    place = np.empty_like(order)
    place[order] = np.arange(rows)
    return one_table(taken).take(pa.array(place))


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


# --- Read a file of any format that datasets have, table by table ---------------------

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
    """Tables of a file, in order; each has its own schema."""
    if file.suffix == ".parquet":
        tables = parquet.read_batches(file, rows=rows, columns=columns)
    elif file.suffix == ".arrow":
        tables = _arrow_batches(file, columns)
    else:
        tables = json_lines.batches(file, block or BLOCK, workers=workers, columns=columns)
    for table in tables:
        if deep := next((field for field in table.schema if is_too_deep(field.type)), None):
            raise too_deep(deep.name, str(file))
        yield table


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
    if file.suffix == ".parquet":
        return list(parquet.read_schema(file).names)
    if file.suffix == ".arrow":
        return next((table.column_names for table in _arrow_batches(file, None)), [])
    return json_lines.first_keys(file, BLOCK)


# --- A dataset in chunks --------------------------------------------------------------
# The chunks of Parquet files are rows of these files. Rows of any other format are parsed once,
# into a file per chunk. Either way a manifest in the folder of the source says where the cuts are.

_MANIFEST = "schema.arrow"
_ROWS, _RANGES, _FILES, _OF = b"rows", b"ranges", b"files", b"of"


class Source(NamedTuple):
    folder: AnyPath  # named by the content; the manifest and, where rows were parsed, the chunks
    rows: tuple[int, ...]  # rows of each chunk
    schema: pa.Schema  # one schema for all of them
    # the names and rows of the files, where all rows of all files are read
    files: tuple[tuple[str, int], ...] = ()
    # of each chunk, its rows of Parquet files; None: the chunks are files of the folder
    in_files: tuple[tuple[RowRange, ...], ...] | None = None
    opened: tuple[DataFile, ...] = ()  # the files of the dataset
    selection: Selection = Selection()

    def first_row(self, chunk: int) -> int:
        return sum(self.rows[:chunk])

    def place(self, row: int) -> str:
        return place_of(row, self.files)

    def chunk(self, index: int, columns: Iterable[str] | None = None) -> pa.Table:
        schema = self.schema
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        if self.in_files is None:
            return conform(read_checked(self.folder / chunk_name(index)), schema)
        tables = []
        for part in self.in_files[index]:
            file = self.opened[part.file]
            found = read_range(file, part, self.selection.columns_of(schema.names))
            # A table without columns has no rows.
            if not found.num_columns:
                found = pa.table({"": pa.nulls(part.rows)})
            tables.append(conform(self.selection.of(found, file.suffix), schema))
        return pa.concat_tables(tables)

    def columns(self, index: int) -> Callable[[str], pa.ChunkedArray]:
        """What gives a column of a chunk by name, each of which is read once it is asked for."""
        if self.in_files is None:  # Mapped from disk: all cost no more than one.
            whole = cache(lambda: self.chunk(index))
            return lambda name: whole()[name]
        return cache(lambda name: self.chunk(index, [name])[name])


def place_of(row: int, files: Sequence[tuple[str, int]]) -> str:
    """What to call a row of files with so many rows: of several of them, `row 3 of b.jsonl`."""
    for name, rows in files if len(files) > 1 else ():
        if row < rows:
            return f"row {row + 1} of {name}"
        row -= rows
    return f"row {row + 1}"


def chunk_name(index: int) -> str:
    return f"{index:06d}.arrow"


def _write_manifest(folder: AnyPath, schema: pa.Schema, values: Mapping[bytes, object]) -> None:
    # It is written last: a folder without one is incomplete. Only an Arrow file keeps a schema
    # exactly, so the manifest is one.
    metadata = {key: json.dumps(value) for key, value in values.items()}
    write_checked(folder / _MANIFEST, schema.with_metadata(metadata).empty_table())


# --- Open a dataset, and cut it into chunks of whole groups ---------------------------

_FIRST_BYTES = 1 << 20
_FIRST_ROWS = 1_000
_FIRST_FILES = 8
_SMALL = 8 << 20
"""Bytes of a file all rows of which are read: a prompt may come up again anywhere."""


class Dataset:
    """A dataset that is opened once: each question is answered from its files at most once.

        dataset = Dataset(path)             # nothing is read yet
        dataset.first_rows                  # the head of one file: enough for most checks
        dataset.schema                      # of all rows
        dataset.chunks(cache, chunk_rows=65_536, group_by=("prompt_id",))

    Args:
        dataset: its path, or a specification of its files, rows and columns.
        workers: threads that parse JSON lines.
        verify: whether each file is hashed again, even if it has not changed as far as is known.

    Each of its answers raises a DataError, which names file and line, where there is nothing to
    read, a line is broken, schemas do not go together or there are no rows.
    """

    def __init__(
        self, dataset: AnyPath | DatasetSpec, *, workers: int = 1, verify: bool = False
    ) -> None:
        self.spec = DatasetSpec.of(dataset)
        self.workers = workers
        self.verify = verify

    @cached_property
    def files(self) -> list[DataFile]:
        return [file for files in self._parts for file in files]

    @cached_property
    def _parts(self) -> list[list[DataFile]]:
        found, seen = list[list[DataFile]](), dict[AnyPath, DatasetPart]()
        for part in self.spec.parts:
            paths = self.spec.files(part)
            for path in () if self.spec.repeats else paths:  # So that no row is read twice.
                if same := seen.get(path.resolve()):
                    by = f"by {same} and by {part}" if str(same) != str(part) else "twice"
                    raise DataError(f"{path} is read {by}", "let dataset_path name each file once")
                seen[path.resolve()] = part
            found.append([DataFile.of(path) for path in paths])
        return found

    def is_small(self) -> bool:
        """Whether it is a single file that is there, all rows of which are quickly read."""
        if not self.spec.exists() or self.spec.max_rows is not None:
            return False
        return len(self.files) == 1 and self.files[0].size <= _SMALL

    @cached_property
    def first_rows(self) -> pa.Table:
        """The first rows of the first files that have any: at most 1,000 each, of eight files.

        A column may first turn up further down.
        """
        return pa.concat_tables([table for _, table in self.first_tables])

    @cached_property
    def first_tables(self) -> list[tuple[DataFile, pa.Table]]:
        self._check_selection()
        found, schema = list[tuple[DataFile, pa.Table]](), pa.schema([])
        for file in self.files:
            for table in self._first_batch(file):
                rows = self.spec.selection.of(table.slice(0, _FIRST_ROWS), file.suffix)
                schema = added(schema, rows.schema, file)
                found.append((file, rows))
            if len(found) == _FIRST_FILES:
                break
        if not found:
            raise _empty(self.files)
        schema = without_marks(schema)
        return [(file, conform(rows, schema)) for file, rows in found]

    @cached_property
    def schema(self) -> pa.Schema:
        self._check_selection()
        schema = pa.schema([])
        for file in self.files:
            if file.suffix == ".parquet":
                of_file: Iterable[pa.Schema] = [parquet.read_schema(file)]
            else:
                of_file = (table.schema for table in self._read(file))
            for each in of_file:
                schema = added(schema, self.spec.selection.schema(each, file.suffix), file)
        return without_marks(schema)

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.files, self.spec.cache, verify=self.verify)

    def chunks(self, cache: AnyPath, *, chunk_rows: int, group_by: GroupColumns) -> Source:
        rows, columns = self._rows_of_parts, sorted(group_by, key=tuple)
        made_of = [FORMAT, self.fingerprint, chunk_rows, columns, self.spec.selection]
        made_of += [rows, list(map(len, self._parts))] if rows is not None else []
        folder = cache / f"source-{xxhash.xxh3_64_hexdigest(json.dumps(made_of).encode())}"
        check_own_folder(folder)
        found = self.chunks_in(folder)
        if found is None:
            self._check_selection()
            self._cut(folder, chunk_rows, group_by)
            found = self.chunks_in(folder)
        assert found is not None
        return found

    def chunks_in(self, folder: AnyPath) -> Source | None:
        """The chunks of a folder; None where one is missing, or they are not of this dataset."""
        manifest = folder / _MANIFEST
        if not manifest.exists():
            return None
        schema = read_checked(manifest).schema
        known = {key: json.loads(value) for key, value in schema.metadata.items()}
        rows, schema = tuple(known[_ROWS]), schema.remove_metadata()
        counts = known[_FILES]
        if counts and len(counts) != len(self.files):
            return None
        names = tuple(zip(map(str, self.files), counts, strict=True)) if counts else ()
        if _RANGES in known:
            ranges = tuple(tuple(RowRange(*part) for part in chunk) for chunk in known[_RANGES])
            opened, selection = tuple(self.files), self.spec.selection
            same = known[_OF] == self.fingerprint
            found = Source(folder, rows, schema, names, ranges, opened, selection)
            return found if same else None
        there = {path.name for path in folder.iterdir()}
        # A chunk that was damaged is removed, wherever that is found: it is read again.
        complete = all(chunk_name(chunk) in there for chunk in range(len(rows)))
        return Source(folder, rows, schema, names) if complete else None

    def table(self) -> pa.Table:
        self._check_selection()
        tables = list(self._all_batches())
        if not any(table.num_rows for table in tables):
            raise _empty(self.files)
        table = one_table(tables)
        return conform(table, without_marks(table.schema))

    @cached_property
    def _rows_of_parts(self) -> list[int] | None:
        """How many rows of each part are drawn; None where all are taken."""
        if self.spec.max_rows is None:
            return None
        return rows_by_weight([part.weight for part in self.spec.parts], self.spec.max_rows)

    def _cut(self, folder: AnyPath, chunk_rows: int, group_by: GroupColumns) -> None:
        if all(file.suffix == ".parquet" for file in self.files) and self._rows_of_parts is None:
            layout = parquet.RowGroups.of(self.files)
            wanted = dict.fromkeys(chain.from_iterable(parquet.lists_of(group_by)))
            names = [name for name in wanted if name in self.schema.names]
            of_groups = self._columns(names) if names else None
            if ranges := layout.chunks(of_groups, chunk_rows, group_by):
                values = {
                    _ROWS: [sum(part.rows for part in chunk) for chunk in ranges],
                    _RANGES: ranges,
                    _FILES: np.diff(layout.first_rows).tolist(),
                    _OF: self.fingerprint,
                }
                _write_manifest(folder, self.schema, values)
                return
        rows, rows_of_files, schema = list[int](), list[int](), pa.schema([])
        for chunk in chunked(self._all_batches(rows_of_files), chunk_rows, group_by):
            schema = unify([schema, chunk.schema])
            write_checked(folder / chunk_name(len(rows)), chunk)
            rows.append(chunk.num_rows)
        if not rows:
            raise _empty(self.files)
        _write_manifest(folder, without_marks(schema), {_ROWS: rows, _FILES: rows_of_files})

    def _all_batches(self, rows_of_files: list[int] | None = None) -> Iterator[pa.Table]:
        """Yield all rows, or those that are drawn; checks that the types of columns go together."""
        schema = pa.schema([])
        counts = dict.fromkeys(self.files, 0)
        rows: Sequence[int | None] = self._rows_of_parts or [None] * len(self._parts)
        for files, most in zip(self._parts, rows, strict=True):
            if most is not None:
                drawn = sampled(partial(self._batches, files), most)
                of_part = iter([] if drawn is None else [(files[0], drawn)])
            else:
                of_part = self._named_batches(files)
            for file, table in of_part:
                schema = added(schema, table.schema, file)
                counts[file] += table.num_rows
                yield table
        if rows_of_files is not None and self._rows_of_parts is None and not self.spec.repeats:
            rows_of_files += counts.values()

    def _batches(self, files: Sequence[DataFile]) -> Iterator[pa.Table]:
        return (table for _, table in self._named_batches(files))

    def _named_batches(self, files: Sequence[DataFile]) -> Iterator[tuple[DataFile, pa.Table]]:
        for file in files:
            for table in self._read(file):
                yield file, self.spec.selection.of(table, file.suffix)
            file.check_unchanged()

    def _read(self, file: DataFile) -> Iterator[pa.Table]:
        """Tables of a file, with all columns in which selected ones may be."""
        columns = self.spec.selection.columns
        return read_batches(file, workers=self.workers, columns=columns)

    def _first_batch(self, file: DataFile) -> Iterator[pa.Table]:
        columns = self.spec.selection.columns
        return islice(read_batches(file, block=_FIRST_BYTES, rows=_FIRST_ROWS, columns=columns), 1)

    def _columns(self, names: Sequence[str]) -> Iterator[pa.Table]:
        schema = pa.schema([self.schema.field(name) for name in names])
        selection = self.spec.selection
        for file in self.files:
            for table in read_batches(file, columns=selection.columns_of(names)):
                yield conform(selection.of(table, file.suffix), schema)

    def _check_selection(self) -> None:
        selection = self.spec.selection
        missing = [old for old, _ in selection.names or ()]
        # Seldom does a column begin further down.
        for read, file in product((self._first_batch, self._read), self.files):
            for table in read(file) if missing else ():
                there = {*missing}.difference(selection.missing(table))
                missing = [name for name in missing if name not in there]
                if not missing:
                    return
        if missing:
            names = {name for file in self.files for name in column_names(file)}
            raise not_there(missing[0], names, self.spec)


def read_all(dataset: AnyPath | DatasetSpec) -> pa.Table:
    """`Dataset(…).table()`, for those who ask nothing else of the dataset."""
    return Dataset(dataset).table()


def _empty(files: Sequence[DataFile]) -> DataError:
    names = ", ".join(map(str, files))
    return DataError(f"{names} is empty", "a dataset needs at least one row")
