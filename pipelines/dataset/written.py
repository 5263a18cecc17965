"""Which columns of a dataset steps have written: they may be computed again, all others are kept.

An export as Parquet or Arrow says so in the metadata of its schema, wherever it is moved, and so
does a table that is read from it. Of any other export, the report in its run folder says it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa

from ...operators import DataError
from ...operators.json_text import parse_json
from .datafile import DataFile
from .files import open_input, read_file
from .parquet import schema_metadata
from .remote import AnyPath, to_path
from .run_folder import run_folder
from .spec import DatasetSpec, files_of

_KEY, _FROM = b"rejuice.written", b"rejuice.computed_from"


def mark_written(
    schema: pa.Schema, names: Iterable[str], origins: Mapping[str, Iterable[str]] | None = None
) -> pa.Schema:
    """The schema, with a mark at those of its columns that steps have written.

    Args:
        schema: of an export.
        names: of columns that steps have written.
        origins: by column, those from which it was computed.
    """
    marked = sorted(set(names) & set(schema.names))
    metadata = {**(schema.metadata or {}), _KEY: json.dumps(marked)}
    if origins:
        known = {name: sorted(origins[name]) for name in marked if name in origins}
        metadata[_FROM] = json.dumps(known)
    return schema.with_metadata(metadata)


class WrittenByRuns(NamedTuple):
    """What runs have written of a dataset, as far as is known.

    Attributes:
        columns: that steps have written.
        origins: by column that steps have written, those from which it was computed.
    """

    columns: frozenset[str] = frozenset()
    origins: Mapping[str, frozenset[str]] = MappingProxyType({})


def written_columns(dataset: AnyPath | DatasetSpec) -> frozenset[str]:
    """The columns of a dataset that steps have written, see `written_of`."""
    return written_of(dataset).columns


def written_of(dataset: AnyPath | DatasetSpec) -> WrittenByRuns:
    """What runs have written of a dataset.

    Args:
        dataset: the export of a run under Ray, or several exports, of which all have to say it.
    """
    spec = DatasetSpec.of(dataset)
    if not spec.paths or len(spec.paths) < len(spec.parts):
        return WrittenByRuns()  # A dataset of the hub is no export.
    found = _all_of([_of_path(path) for path in spec.paths])
    renamed = spec.selection.renamed
    origins = {
        new: frozenset(renamed(of)) for name, of in found.origins.items() for new in renamed([name])
    }
    return WrittenByRuns(frozenset(renamed(found.columns)), origins)


def _of_path(path: AnyPath) -> WrittenByRuns:
    """What runs have written of a file, a folder or the files of a pattern."""
    reported = _reported(path)
    try:
        files = files_of(path)
    except DataError:
        return WrittenByRuns(reported)  # `dj-process` reads formats that we do not, such as CSV.
    of_files = []
    for file in files:
        marked = _marked(file)
        columns = marked.columns or (reported if file == path else _reported(file))
        of_files.append(marked._replace(columns=columns))
    found = _all_of(of_files)
    return found._replace(columns=found.columns | reported)


def _all_of(parts: Sequence[WrittenByRuns]) -> WrittenByRuns:
    """What all parts of a dataset say is written; a column may come of other ones in each."""
    origins = dict[str, frozenset[str]]()
    for part in parts:
        for name, of in part.origins.items():
            origins[name] = origins.get(name, frozenset()) | of
    return WrittenByRuns(frozenset.intersection(*(part.columns for part in parts)), origins)


def _marked(file: AnyPath) -> WrittenByRuns:
    """What the metadata of a file says."""
    metadata = _metadata(file)
    try:  # It is anybody's text, and says nothing where it is not as `mark_written` writes it.
        columns = frozenset(
            name for name in parse_json(metadata.get(_KEY, b"[]")) if isinstance(name, str)
        )
    except (ValueError, TypeError):
        columns = frozenset()
    try:
        origins = parse_json(metadata.get(_FROM, b"{}"))
        return WrittenByRuns(
            columns, {name: frozenset(map(str, of)) for name, of in origins.items()}
        )
    except (ValueError, TypeError, AttributeError):
        return WrittenByRuns(columns)


def _metadata(file: AnyPath) -> Mapping[bytes, bytes]:
    """The metadata of a file's schema."""
    metadata: Mapping[bytes, bytes] | None = None
    if file.suffix == ".parquet":
        metadata = schema_metadata(DataFile.of(file))
    elif file.suffix == ".arrow":
        with suppress(pa.ArrowInvalid), open_input(file) as source:
            # An export is no stream.
            metadata = pa.ipc.open_file(source).schema.metadata
    return metadata or {}


def _reported(export_path: AnyPath) -> frozenset[str]:
    """The columns that the run to a path has written."""
    try:
        report = parse_json(read_file(run_folder(export_path) / "report.json"))
        # The dataset of a run may differ from its export in nothing but the suffix.
        if to_path(str(report["export_path"])).name != export_path.name:
            return frozenset()
        # Reports of version 0.4 and earlier only name the columns of which they have figures.
        written = [step.get("written", step["columns"]) for step in report["steps"]]
        return frozenset(str(name) for names in written for name in names)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return frozenset()  # There is none, or it is damaged.
