"""A file of a dataset, as it was when the dataset was opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ...operators import DataError
from ...operators.config import check_text
from .files import open_input
from .remote import AnyPath

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


_LINES = "JSON lines"
_FORMATS = {
    b"\x1f\x8b": ("gzip", ".gz"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", ".zst"),
    b"PAR1": ("Parquet", ".parquet"),
    b"ARROW1": ("Arrow", ".arrow"),
    b"\xfd7zXZ\0": ("xz", ".xz"),
    b"PK\x03\x04": ("zip", ".zip"),
}
"""How files begin, and their formats."""


class DataFile(NamedTuple):
    """A file of a dataset."""

    path: AnyPath  # where it is
    size: int  # bytes, when it was opened
    mtime_ns: int  # the time of its last change, then, in nanoseconds

    def __str__(self) -> str:
        return str(self.path)

    @property
    def suffix(self) -> str:
        """The suffix of its format, such as `.jsonl.gz`."""
        return suffix_of(self.path)

    @classmethod
    def of(cls, path: AnyPath) -> DataFile:
        """A file as it is now.

        Raises:
            DataError: it is no file, but a device or a folder, or Arrow opens none of its name.
        """
        found = path.stat()
        if isinstance(path, Path):
            if not path.is_file():
                raise DataError(f"{path} is not a file", "give a file, or a link to one")
            try:
                check_text(str(path))
            except ValueError:
                raise DataError(f"the name of {path} is not UTF-8", "rename it") from None
        return cls(path, found.st_size, found.st_mtime_ns)

    def open(self) -> AbstractContextManager[Any]:
        """Its bytes, as a file of Arrow's."""
        return open_input(self.path, mapped=False)

    def first_bytes(self) -> bytes:
        """Those that say of what format it is."""
        with self.open() as source:
            return bytes(source.read(64))

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

    Raises:
        DataError: in place of Arrow's exception. Errors of the disk are left as they are.
    """
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        other = misnamed(file, file.first_bytes())
        if other is not None:
            raise other from None
        found = " ".join(f"{file} is not {title}: {error}".split())
        raise DataError(found, "write it again") from None


def misnamed(file: DataFile, first: bytes, *, unpacked: bool = False) -> DataError | None:
    """The error for a file of another format than its name says; None: as far as is known."""
    title, suffix = _format_of(first)
    own, last = file.suffix, file.path.suffix.lower()
    is_lines = title == _LINES
    if not title or (is_lines and (unpacked or own in JSON_SUFFIXES)):
        return None
    if suffix == last and not unpacked:
        return None
    if unpacked:
        return DataError(f"what is packed in {file} is {title}", "unpack it")
    of_lines = own.removesuffix(last) if last in COMPRESSIONS else own
    if is_lines and of_lines not in JSON_SUFFIXES:
        of_lines = JSON_SUFFIXES[0]
    new = f"{of_lines}{suffix}" if is_lines or suffix in COMPRESSIONS else suffix
    right = "unpack it"
    if new in SUFFIXES:
        right = f"rename it to {file.path.name[: -len(own)]}{new}"
    return DataError(f"{file} is {title}", right)


def _format_of(first: bytes) -> tuple[str, str]:
    """What the format of a file is called, and its suffix: none of JSON lines, or if not known."""
    for magic, known in _FORMATS.items():
        if first.startswith(magic):
            return known
    is_lines = first.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
    return (_LINES if is_lines else ""), ""


def suffix_of(path: AnyPath) -> str:
    """`.jsonl`, or `.jsonl.gz` of a compressed file, also of a name in capital letters."""
    suffix = path.suffix.lower()
    if suffix in COMPRESSIONS:
        return f"{path.with_suffix('').suffix.lower()}{suffix}"
    return suffix
