"""What is read as one dataset: which files, how many rows of each, and which columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from ...operators import DataError
from ...operators.errors import shown
from ...operators.json_text import parse_json
from .datafile import SUFFIXES, suffix_of
from .hub import HubDataset
from .patterns import files_that_match, folder_of, is_broken, is_matched, is_pattern
from .remote import AnyPath, RemotePath
from .run_folder import PART, PART_SUFFIX, check_finished, is_folder
from .selection import Selection

_STATE, _SPLITS = "state.json", "dataset_dict.json"
"""What `save_to_disk` of Hugging Face's datasets writes beside the rows."""
_MOST_SPLITS = 8
"""Splits that a message names."""


class DatasetPart(NamedTuple):
    """Files that are read one after another.

    Attributes:
        path: a file, a folder of files, a pattern such as `data/*.parquet`, or one of the hub.
        weight: the share of rows that are taken, where the dataset has a limit of them.
    """

    path: AnyPath | HubDataset
    weight: float = 1.0

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class DatasetSpec:
    """What is read as one dataset.

    Attributes:
        parts: read one after another.
        suffixes: which files of a folder or pattern are read; empty: all that can be.
        selection: which columns are read, and what they are called.
        max_rows: rows that are taken in all, by the weights of the parts; None: all rows.
        repeats: whether a file may be in several parts.
        cache: the folder in which downloads and hashes of content are kept; None: nowhere.
    """

    parts: tuple[DatasetPart, ...]
    suffixes: tuple[str, ...] = ()
    selection: Selection = field(default=Selection())
    max_rows: int | None = None
    repeats: bool = False
    cache: AnyPath | None = field(default=None, compare=False)

    @classmethod
    def of(cls, dataset: AnyPath | DatasetSpec) -> DatasetSpec:
        """A path, or what is a specification already."""
        return dataset if isinstance(dataset, DatasetSpec) else cls((DatasetPart(dataset),))

    def __str__(self) -> str:
        return ", ".join(map(str, self.parts))

    @property
    def paths(self) -> list[AnyPath]:
        """The paths of its parts, without those of the hub."""
        return [part.path for part in self.parts if not isinstance(part.path, HubDataset)]

    def exists(self) -> bool:
        """Whether there is something to read, as far as is known without asking the hub."""
        return all(_exists(path) for path in self.paths)

    def with_suffix(self) -> DatasetSpec:
        """The same, where each row says from what kind of file it is."""
        return replace(self, selection=self.selection._replace(with_suffix=True))

    def clashes(self, export: AnyPath) -> bool:
        """Whether an export would be read with the dataset, or would replace a part of it."""
        return any(_clash(path, export.resolve()) for path in self.paths)


def dataset_files(dataset: AnyPath | DatasetSpec) -> list[AnyPath]:
    """The files of a dataset without those of the hub, part by part, in each by name.

    Raises:
        DataError: a part is not there or has nothing that can be read, or a file is in two parts.
    """
    spec = DatasetSpec.of(dataset)
    found = [(part, file) for part in spec.paths for file in files_of(part, spec.suffixes)]
    if not spec.repeats:
        check_unique(found)
    return [file for _, file in found]


def files_of(path: AnyPath, suffixes: Sequence[str] = ()) -> list[AnyPath]:
    """The files of a file, a folder or a pattern, by name.

    A folder is not searched further down; `**` in a pattern is.

    Raises:
        DataError: nothing there, or nothing that can be read.
    """
    known = suffixes or SUFFIXES
    needed = f"one of {', '.join(known)} is needed"
    if is_pattern(path):
        matches = sorted(files_that_match(path))
        files = [file for file in matches if suffix_of(file) in known]
        if not matches:
            _check_bucket(path)
            raise DataError(f"no file matches {path}", "correct the pattern in dataset_path")
        if not files:
            raise DataError(f"no file that matches {path} is a dataset file", needed)
        return _checked_links(files)
    if not path.exists():
        _check_bucket(path)
        check_finished(path)
        raise DataError(f"{path} does not exist", "set dataset_path to a file or a folder of files")
    if path.is_dir():
        check_finished(path)
        if (path / _STATE).exists():
            return _saved(path)
        if (path / _SPLITS).exists():
            raise _several(path)
        # The list of the parts of an export begins with `_`, as those of others do.
        inside = (file for file in path.iterdir() if not file.name.startswith(("_", ".")))
        files = sorted(file for file in inside if suffix_of(file) in known)
        if not files:
            raise DataError(f"{path} holds no dataset file", needed)
        return _checked_links(files)
    if suffix_of(path) not in known:
        needed = _convert(path) if path.suffix.lower() == ".csv" else needed
        raise DataError(f"{path} is not a dataset file", needed)
    return [path]


def _checked_links(files: list[AnyPath]) -> list[AnyPath]:
    """The files.

    Raises:
        DataError: one is a link to nothing.
    """
    for file in files:
        if isinstance(file, Path) and is_broken(file):
            raise DataError(
                f"{file} is a link to a file that does not exist", "restore or remove it"
            )
    return files


def _saved(folder: AnyPath) -> list[AnyPath]:
    """The files of a folder that `datasets.Dataset.save_to_disk` has written, in their order."""
    try:
        state = parse_json((folder / _STATE).read_text("utf-8"))
        files = [folder / str(file["filename"]) for file in state["_data_files"]]
    except (ValueError, LookupError, TypeError):
        raise DataError(f"{folder / _STATE} is damaged", "save the dataset again") from None
    for file in files:
        if not file.is_file():
            found = f"{folder / _STATE} names {shown(file.name)}, which is no file there"
            raise DataError(found, "save the dataset again")
    return files


def _several(folder: AnyPath) -> DataError:
    try:
        splits = parse_json((folder / _SPLITS).read_text("utf-8"))["splits"]
        texts = [split for split in splits if isinstance(split, str)]
        names = [f"{folder / text!s:.200}" for text in texts[:_MOST_SPLITS]]
    except (ValueError, LookupError, TypeError):
        names = []
    right = f"name the folder of one of its splits: {', '.join(names)}"
    return DataError(f"{folder} is a DatasetDict", right)


def _convert(path: AnyPath) -> str:
    """How to make a file that is read from one of CSV."""
    reader, writer = "pyarrow.csv", "pyarrow.parquet"
    new = path.with_suffix(".parquet").name
    code = f'import {reader} as c, {writer} as p; p.write_table(c.read_csv("{path.name}"), "{new}")'
    return f"convert it: `python -c '{code}'`"


def _check_bucket(path: AnyPath) -> None:
    if isinstance(path, RemotePath):
        path.check_bucket()


def check_unique(found: Sequence[tuple[object, AnyPath]]) -> None:
    """Check that no file is in two parts, so that no row is read twice by mistake.

    Args:
        found: pairs of a part and a file of it.

    Raises:
        DataError: one is.
    """
    parts: dict[AnyPath, object] = {}
    for part, file in found:
        same = file.resolve()
        if same in parts:
            by = f"by {parts[same]} and by {part}" if str(parts[same]) != str(part) else "twice"
            raise DataError(f"{file} is read {by}", "let dataset_path name each file once")
        parts[same] = part


def _exists(path: AnyPath) -> bool:
    return any(True for _ in files_that_match(path)) if is_pattern(path) else path.exists()


def _clash(path: AnyPath, export: AnyPath) -> bool:
    """Whether an export, an absolute path, would be read with a path, or replace a part of it."""
    if not is_pattern(path):
        above = path.resolve()
        return export == above or above in export.parents or export in above.parents
    # Files may be looked for in a folder of other things, such as the working directory.
    pattern = path.resolve()
    above = folder_of(pattern)
    file = export / f"{PART}-00000{PART_SUFFIX}" if is_folder(export) else export
    return is_matched(file, pattern) or export == above or export in above.parents
