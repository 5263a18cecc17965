"""Open a dataset, and cut it into chunks of whole groups.

A dataset is files of JSON lines, perhaps compressed, of Parquet or of Arrow: one, a folder, a
pattern, a list of these, or one of the hub. The rows of Parquet files stay where they are; others
are parsed once, into a file per chunk that later steps map into memory. The folder of the chunks is
named by a hash of the content, so an unchanged dataset is read once, whatever is done with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import islice

import numpy as np
import pyarrow as pa
import xxhash

from ...operators import DataError
from . import formats, parquet
from .arrow_files import FORMAT
from .checked import check_own_folder
from .content_hash import fingerprint
from .cut import chunked
from .datafile import DataFile
from .hub import HubDataset
from .json_types import without_marks
from .mixture import rows_by_weight, sampled
from .remote import AnyPath
from .schemas import added, conform, unify
from .selection import not_there
from .source import Source, read_source, write_chunks, write_ranges
from .spec import DatasetPart, DatasetSpec, check_unique, files_of

_FIRST_BYTES = 1 << 20
_FIRST_ROWS = 1_000
_FIRST_FILES = 8


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
        """Its files, part by part, in each by name."""
        return [file for files in self._parts for file in files]

    @cached_property
    def _parts(self) -> list[list[DataFile]]:
        """The files of each part, as they are when the dataset is opened."""
        paths = [self._paths(part) for part in self.spec.parts]
        if not self.spec.repeats:
            parts = zip(self.spec.parts, paths, strict=True)
            check_unique([(part, path) for part, of_part in parts for path in of_part])
        return [[DataFile.of(path) for path in of_part] for of_part in paths]

    def _paths(self, part: DatasetPart) -> Sequence[AnyPath]:
        if not isinstance(part.path, HubDataset):
            return files_of(part.path, self.spec.suffixes)
        if self.spec.cache is None:
            raise DataError(f"{part} is no file", "download it by `rejuice download`")
        return [part.path.file(self.spec.cache)]

    @cached_property
    def first_rows(self) -> pa.Table:
        """The first rows of the first files that have any: at most 1,000 each, of eight files."""
        return pa.concat_tables([table for _, table in self.first_tables])

    @cached_property
    def first_tables(self) -> list[tuple[DataFile, pa.Table]]:
        """The first rows by file, in one schema."""
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

    @property
    def first_schema(self) -> pa.Schema:
        """The schema of the first rows. A column may first turn up further down."""
        return self.first_rows.schema

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of all rows."""
        self._check_selection()
        schema = pa.schema([])
        for file, of_file in self._schemas():
            schema = added(schema, self.spec.selection.schema(of_file, file.suffix), file)
        return without_marks(schema)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of its content."""
        return fingerprint(self.files, self.spec.cache, verify=self.verify)

    def chunks(self, cache: AnyPath, *, chunk_rows: int, group_by: Sequence[str]) -> Source:
        """Its chunks, from the cache or cut now.

        Args:
            cache: the folder in which the folder of chunks is.
            chunk_rows: rows per chunk, about: a chunk ends where a group ends.
            group_by: consecutive rows that agree in these columns stay together.
        """
        selection = self.spec.selection
        folder = cache / self._folder_name(chunk_rows, group_by)
        check_own_folder(folder)
        found = read_source(folder, self.files, selection)
        if found is None:
            self._check_selection()
            self._cut(folder, chunk_rows, group_by)
            found = read_source(folder, self.files, selection)
        assert found is not None
        return found

    def chunks_of_run(
        self, cache: AnyPath, name: str, *, chunk_rows: int, group_by: Iterable[Sequence[str]]
    ) -> Source | None:
        """The chunks that a run has read; None where they are gone, or are not of this dataset.

        Args:
            cache: the folder in which the folder of chunks is.
            name: of that folder.
            chunk_rows: as the run was given.
            group_by: what `chunks` may have been given. Where none of it gives the folder, only
                chunks that were parsed into files of their own are those that the run read.
        """
        found = read_source(cache / name, self.files, self.spec.selection)
        if found is None or found.in_files is None:
            return found
        same = any(self._folder_name(chunk_rows, each) == name for each in group_by)
        return found if same else None

    def _folder_name(self, chunk_rows: int, group_by: Sequence[str]) -> str:
        """The name of the folder of chunks, by all that decides what is in it."""
        rows = self._rows_of_parts
        made_of = [FORMAT, self.fingerprint, chunk_rows, sorted(group_by), self.spec.selection]
        made_of += [rows, list(map(len, self._parts))] if rows is not None else []
        return f"source-{xxhash.xxh3_64_hexdigest(json.dumps(made_of).encode())}"

    def table(self) -> pa.Table:
        """All its rows, in memory."""
        self._check_selection()
        tables = list(self._all_batches())
        if not any(table.num_rows for table in tables):
            raise _empty(self.files)
        schema = without_marks(unify([table.schema for table in tables]))
        return pa.concat_tables([conform(table, schema) for table in tables])

    @cached_property
    def _rows_of_parts(self) -> list[int] | None:
        """How many rows of each part are drawn; None where all are taken."""
        if self.spec.max_rows is None:
            return None
        return rows_by_weight([part.weight for part in self.spec.parts], self.spec.max_rows)

    def _cut(self, folder: AnyPath, chunk_rows: int, group_by: Sequence[str]) -> None:
        if all(file.suffix == ".parquet" for file in self.files) and self._rows_of_parts is None:
            layout = parquet.RowGroups.of(self.files)
            names = [name for name in group_by if name in self.schema.names]
            of_groups = self._columns(names) if names else None
            bounds = parquet.bounds_of_chunks(layout, of_groups, chunk_rows=chunk_rows)
            if layout.is_read_in_place(bounds):
                rows_of_files = np.diff(layout.first_rows).tolist()
                write_ranges(folder, self.schema, layout.ranges(bounds), rows_of_files)
                return
        rows_of_files = []
        chunks = chunked(self._all_batches(rows_of_files), chunk_rows, group_by)
        if not write_chunks(folder, chunks, rows_of_files):
            raise _empty(self.files)

    def _all_batches(self, rows_of_files: list[int] | None = None) -> Iterator[pa.Table]:
        """All rows, or those that are drawn; checks that the types of columns go together.

        Args:
            rows_of_files: filled with the rows of each file, if all are read.
        """
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
        """The selected columns of files, table by table."""
        for file in files:
            for table in self._read(file):
                yield file, self.spec.selection.of(table, file.suffix)
            file.check_unchanged()

    def _read(self, file: DataFile) -> Iterator[pa.Table]:
        """Tables of a file, with all columns in which selected ones may be."""
        columns = self.spec.selection.columns
        return formats.read_batches(file, workers=self.workers, columns=columns)

    def _first_batch(self, file: DataFile) -> Iterator[pa.Table]:
        """The first table of a file; nothing where it has no rows."""
        columns = self.spec.selection.columns
        return islice(
            formats.read_batches(file, block=_FIRST_BYTES, rows=_FIRST_ROWS, columns=columns), 1
        )

    def _columns(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of all rows, table by table."""
        schema = pa.schema([self.schema.field(name) for name in names])
        selection = self.spec.selection
        for file in self.files:
            for table in formats.read_batches(file, columns=selection.columns_of(names)):
                yield conform(selection.of(table, file.suffix), schema)

    def _schemas(self) -> Iterator[tuple[DataFile, pa.Schema]]:
        """The schemas of rows as they are in the files."""
        for file in self.files:
            if file.suffix == ".parquet":
                yield file, parquet.read_schema(file)
            else:
                for table in self._read(file):
                    yield file, table.schema

    def _check_selection(self) -> None:
        """Check that the selected columns are there."""
        selection = self.spec.selection
        missing = [old for old, _ in selection.names or ()]
        for read in (self._first_batch, self._read):  # Seldom does a column begin further down.
            for file in self.files if missing else ():
                for table in read(file):
                    there = set(missing) - set(selection.missing(table))
                    missing = [name for name in missing if name not in there]
                    if not missing:
                        return
        if missing:
            names = {name for file in self.files for name in formats.column_names(file)}
            raise not_there(missing[0], names, self.spec)


def prepare(
    dataset: AnyPath | DatasetSpec, cache: AnyPath, *, chunk_rows: int, group_by: Sequence[str]
) -> Source:
    """`Dataset(…).chunks(…)`, for those who ask nothing else of the dataset."""
    return Dataset(dataset).chunks(cache, chunk_rows=chunk_rows, group_by=group_by)


def read_all(dataset: AnyPath | DatasetSpec) -> pa.Table:
    """`Dataset(…).table()`, for those who ask nothing else of the dataset."""
    return Dataset(dataset).table()


def _empty(files: Sequence[DataFile]) -> DataError:
    names = ", ".join(map(str, files))
    return DataError(f"{names} is empty", "a dataset needs at least one row")
