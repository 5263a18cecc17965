"""Which columns of a dataset steps have written: they may be computed again, all others are kept.

An export as Parquet or Arrow says so in the metadata of its schema, wherever it is moved, and so
does a table that is read from it. Of any other export, the report in its run folder says it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress

import pyarrow as pa

from ...operators import DataError
from ...operators.json_text import parse_json
from ..filesystem.files import open_input, read_file
from ..filesystem.remote import AnyPath, to_path
from .datafile import DataFile
from .parquet import schema_metadata
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


def written_origins(dataset: AnyPath | DatasetSpec) -> dict[str, frozenset[str]]:
    """By column that steps have written, those from which it was computed, as far as is known.

    Args:
        dataset: the export of a run, or several.
    """
    spec, found = DatasetSpec.of(dataset), dict[str, frozenset[str]]()
    for path in spec.paths:
        with suppress(DataError, ValueError, TypeError, AttributeError):  # As `_marked`.
            for file in files_of(path):
                of_file = parse_json(_metadata(file).get(_FROM, b"{}"))
                for name, of in of_file.items():
                    found[name] = found.get(name, frozenset()).union(map(str, of))
    renamed = spec.selection.renamed
    return {new: frozenset(renamed(of)) for name, of in found.items() for new in renamed([name])}


def written_columns(dataset: AnyPath | DatasetSpec) -> frozenset[str]:
    """The columns of a dataset that steps have written, as far as is known.

    Args:
        dataset: the export of a run under Ray, or several exports, of which all have to say it.
    """
    spec = DatasetSpec.of(dataset)
    if not spec.paths or len(spec.paths) < len(spec.parts):
        return frozenset()  # A dataset of the hub is no export.
    of_paths = [_written(path) for path in spec.paths]
    return frozenset(spec.selection.renamed(frozenset.intersection(*of_paths)))


def _written(path: AnyPath) -> frozenset[str]:
    """The columns that steps have written of a file, a folder or the files of a pattern."""
    try:
        files = files_of(path)
    except DataError:
        return _reported(path)  # `dj-process` reads formats that we do not, such as CSV.
    of_path = _reported(path)
    of_files = (_marked(file) or (of_path if file == path else _reported(file)) for file in files)
    return of_path | frozenset.intersection(*of_files)


def _marked(file: AnyPath) -> frozenset[str]:
    """The columns that the metadata of a file names."""
    try:
        names = parse_json(_metadata(file).get(_KEY, b"[]"))
        return frozenset(name for name in names if isinstance(name, str))
    except (ValueError, TypeError):  # It is anybody's text, and says nothing then.
        return frozenset()


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
