"""A file of a dataset, as it was when the dataset was opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import pyarrow as pa

from ...operators import DataError
from ..filesystem.files import open_input
from ..filesystem.remote import AnyPath

JSON_SUFFIXES = (".jsonl", ".json")
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
"""Suffixes of compressed files, and the codecs as Arrow names them."""
SUFFIXES = (
    *JSON_SUFFIXES,
    ".parquet",
    ".arrow",
    *(f"{suffix}{packed}" for packed in COMPRESSIONS for suffix in JSON_SUFFIXES),
)
"""The suffixes of files that are read."""


class DataFile(NamedTuple):
    """A file of a dataset.

    Attributes:
        path: where it is.
        size: bytes, when it was opened.
        mtime_ns: the time of its last change, then, in nanoseconds.
    """

    path: AnyPath
    size: int
    mtime_ns: int

    def __str__(self) -> str:
        return str(self.path)

    @property
    def suffix(self) -> str:
        """The suffix of its format, such as `.jsonl.gz`."""
        return suffix_of(self.path)

    @classmethod
    def of(cls, path: AnyPath) -> DataFile:
        """A file as it is now."""
        found = path.stat()
        return cls(path, found.st_size, found.st_mtime_ns)

    def open(self) -> AbstractContextManager[Any]:
        """Its bytes, as a file of Arrow's."""
        return open_input(self.path, mapped=False)

    def check_unchanged(self) -> None:
        """Check that the file is still the one that was opened.

        Raises:
            DataError: it is another one, or gone.
        """
        try:
            same = DataFile.of(self.path) == self
        except FileNotFoundError:
            same = False
        if not same:
            raise self.changed()

    def changed(self) -> DataError:
        """The error for a file that is no longer what it was."""
        return DataError(
            f"{self} has changed since the run began", "leave it as it is, and run again"
        )


@contextmanager
def errors_of_format(file: DataFile, title: str) -> Iterator[None]:
    """What Arrow raises of a file that is not of its format, or damaged, becomes one line.

    Args:
        file: that is read.
        title: of its format.

    Raises:
        DataError: in place of Arrow's exception. Errors of the disk are left as they are.
    """
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        found = " ".join(f"{file} is not {title}: {error}".split())
        raise DataError(found, "write it again") from None


def suffix_of(path: AnyPath) -> str:
    """`.jsonl`, or `.jsonl.gz` of a compressed file."""
    if path.suffix in COMPRESSIONS:
        return f"{path.with_suffix('').suffix}{path.suffix}"
    return path.suffix
