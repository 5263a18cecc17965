"""Files that appear complete, on disk or in an object store, and stay when the power fails."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa
import xxhash

from ...operators import DataError, disk
from ...operators.config import check_text
from ...operators.disk import sync, temporary_path, wrong_kind
from .remote import AnyPath, RemotePath, store_errors


@contextmanager
def written(path: AnyPath) -> Iterator[Path]:
    """A temporary file to write, which becomes `path` when the block ends without an error.

    On disk it is renamed into place after its bytes have reached the disk; for a store it is
    written to a local folder, and sent whole.
    """
    if isinstance(path, RemotePath):
        with TemporaryDirectory(prefix="rejuice-") as folder:
            temporary = Path(folder) / path.name
            yield temporary
            with pa.memory_map(str(temporary)) as file:
                path.write_bytes(file.read_buffer())
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(path)
    try:
        yield temporary
        sync(temporary)
        check_is_no_folder(path)
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def check_is_free(path: AnyPath, *, overwrite: bool = False) -> None:
    if path.is_dir():
        raise DataError(f"{path} is a folder", "give the path of a file")
    if not overwrite and path.exists():
        raise DataError(f"{path} exists", "give another path, or --overwrite")


def check_folder_is_free(folder: Path, *, overwrite: bool = False) -> None:
    """Refuse a folder that holds something, unless the user says so."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file", "give another folder")
    if folder.exists() and not overwrite and any(folder.iterdir()):
        right = "give another folder, or --overwrite to replace files of the same names"
        raise DataError(f"{folder} is not empty", right)


@contextmanager
def filled(folder: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder, whose files are moved to `folder` when the block ends without an error.

    Those of the same names are replaced, and others stay.
    """
    check_folder_is_free(folder, overwrite=overwrite)
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
        made = Path(temporary) / folder.name
        made.mkdir()
        yield made
        if not folder.exists():
            made.rename(folder)
            return
        files = sorted(each for each in made.rglob("*") if each.is_file())
        targets = [folder / each.relative_to(made) for each in files]
        for target in targets:  # All are checked before the first one is replaced.
            check_is_free(target, overwrite=True)
            for parent in target.parents:
                check_folder_is_free(parent, overwrite=True)
        for file, target in zip(files, targets, strict=True):
            target.parent.mkdir(parents=True, exist_ok=True)
            file.replace(target)


def write_file(path: AnyPath, data: bytes | str) -> None:
    """Write a small file, which appears complete."""
    content = data.encode() if isinstance(data, str) else data
    if isinstance(path, RemotePath):
        path.write_bytes(content)
    else:
        with written(path) as temporary:
            temporary.write_bytes(content)


@contextmanager
def open_input(path: AnyPath, *, mapped: bool = True) -> Iterator[Any]:
    """A file, to be read from any place: a pyarrow file, of mapped memory if it is on disk."""
    if isinstance(path, RemotePath):
        with store_errors(path, "read", content=True), path.open_input() as file:
            yield file
        return
    with pa.memory_map(str(path)) if mapped else pa.OSFile(str(path)) as file:
        yield file


def check_is_no_folder(path: Path) -> None:
    if disk.kind_of(path) == "a folder":
        raise DataError(f"{path} is a folder, where rejuice keeps a file", "move it away")


def read_file(path: AnyPath) -> bytes:
    """What a file holds that rejuice has written: a link, a FIFO, a device is a NotAFileError."""
    return path.read_bytes() if isinstance(path, RemotePath) else disk.read_file(path)


def check_is_folder(path: AnyPath) -> None:
    """Check that what is at a path, itself, is a folder or nothing: no link to one elsewhere."""
    if isinstance(path, Path) and (kind := disk.wrong_kind(path, "a folder")):
        raise DataError(f"{path} is {kind}, where rejuice keeps a folder", "remove it")


def remove_file(path: AnyPath) -> None:
    """Remove a file by its own name: of a link, not what it links to; a folder is refused."""
    if isinstance(path, Path):
        check_is_no_folder(path)
    path.unlink(missing_ok=True)


def remove_folder(path: AnyPath) -> None:
    """Remove a folder with all that is in it; nothing where there is none."""
    if isinstance(path, RemotePath):
        path.remove_folder()
    else:
        shutil.rmtree(path, ignore_errors=True)


# --- Checked --------------------------------------------------------------------------
# Tables that rejuice keeps in its cache: a checksum, and an Arrow stream. A file whose checksum is
# wrong counts as absent.
#
# A flipped bit in a text is still an Arrow file, and would become another export in silence. The
# checksum is of the names of the file and of its folder, too: what is copied or renamed into the
# place of another file is found out as well.

FORMAT = 6
"""Part of every cache key of a run: raise it when datasets are read, or chunks and commits written,
in another way."""
_HEADER_BYTES = 64
"""The checksum, and zeros after it, so that Arrow's buffers stay aligned."""

_verified: dict[AnyPath, tuple[int, int, int]] = {}
"""Files whose checksum this process has computed: inode, time of the last change in ns, size."""


class DamagedError(DataError):
    """A file of the cache is not as it was written. Its content can be computed again."""

    path: AnyPath | None = None  # of the file

    def at(self, where: str) -> DamagedError:
        return self  # The file says where; no step and no recipe is at fault.


def damaged(path: AnyPath, found: str = "damaged") -> DamagedError:
    error = DamagedError(f"{path} is {found}", "remove it and run again")
    error.path = path
    return error


def check_own_folder(path: AnyPath) -> None:
    """Check that a folder of the cache is one, or is not there: no link to one elsewhere."""
    if isinstance(path, Path) and (kind := wrong_kind(path, "a folder")):
        raise damaged(path, f"{kind}, not a folder")


def write_checked(path: AnyPath, table: pa.Table) -> None:
    with written(path) as temporary:
        with pa.OSFile(str(temporary), "wb") as sink:
            sink.write(bytes(_HEADER_BYTES))
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
        with pa.memory_map(str(temporary)) as file:
            header = _header(path, file.read_buffer()[_HEADER_BYTES:])
        with temporary.open("r+b") as file:
            file.write(header)


def read_checked(path: AnyPath, *, mapped: bool = True) -> pa.Table:
    """The table in a file, over mapped memory or in memory, once its checksum is right.

    The checksum of a file on disk is computed once in each process while the file does not change.
    """
    state = None  # What changes when a file does; one in a store is fetched each time.
    if isinstance(path, Path):
        if kind := wrong_kind(path, "a file"):
            raise damaged(path, f"{kind}, not a file")
        found = path.lstat()
        state = found.st_ino, found.st_mtime_ns, found.st_size
        if not found.st_size:  # Nothing can be mapped.
            raise damaged(path)
    # Of a mapped file, no descriptor stays open: there may be thousands.
    with open_input(path, mapped=mapped) as source:
        content = source.read_buffer()
    header, stream = content[:_HEADER_BYTES], content[_HEADER_BYTES:]
    if state is None or _verified.get(path) != state:
        if header.to_pybytes() != _header(path, stream):
            raise damaged(path)
        if state is not None:
            _verified[path] = state
    return pa.ipc.open_stream(stream).read_all()


def _header(path: AnyPath, stream: pa.Buffer) -> bytes:
    checksum = xxhash.xxh3_128(f"{path.parent.name}/{path.name}\n".encode())
    checksum.update(stream)
    return checksum.digest().ljust(_HEADER_BYTES, b"\0")


# --- A file of a dataset, as it was when the dataset was opened -----------------------

JSON_SUFFIXES = (".jsonl", ".json", ".ndjson")
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
"""Suffixes of compressed files, and the codecs as Arrow names them."""
SUFFIXES = (
    *JSON_SUFFIXES,
    ".parquet",
    ".arrow",
    *(f"{suffix}{packed}" for packed in COMPRESSIONS for suffix in JSON_SUFFIXES),
)
"""The suffixes of files that are read."""


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
        try:
            found = path.stat()
        except FileNotFoundError:
            if isinstance(path, RemotePath) or not path.is_symlink():
                raise
            found_there = f"{path} is a link to a file that does not exist"
            raise DataError(found_there, "restore or remove it") from None
        if isinstance(path, Path):
            if not path.is_file():
                raise DataError(f"{path} is not a file", "give a file, or a link to one")
            try:
                check_text(str(path))
            except ValueError:
                raise DataError(f"the name of {path} is not UTF-8", "rename it") from None
        return cls(path, found.st_size, found.st_mtime_ns)

    def open(self) -> AbstractContextManager[Any]:
        return open_input(self.path, mapped=False)

    def first_bytes(self) -> bytes:
        with self.open() as source:
            return bytes(source.read(64))

    def check_unchanged(self) -> None:
        try:
            same = DataFile.of(self.path) == self
        except FileNotFoundError:
            same = False
        if not same:
            raise self.changed()

    def changed(self) -> DataError:
        return DataError(
            f"{self} has changed since the run began", "leave it as it is, and run again"
        )


@contextmanager
def errors_of_format(file: DataFile, title: str) -> Iterator[None]:
    """What Arrow raises of a file that is not of its format, or damaged, becomes one line."""
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
    own, last = file.suffix, file.path.suffix.lower()
    known = (found for magic, found in _FORMATS.items() if first.startswith(magic))
    title, suffix = next(known, ("", ""))
    base = own.removesuffix(last) if last in COMPRESSIONS else own
    if not title:
        is_lines = first.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
        if unpacked or own in JSON_SUFFIXES or not is_lines:
            return None
        title, new = "JSON lines", base if base in JSON_SUFFIXES else JSON_SUFFIXES[0]
    elif unpacked:
        return DataError(f"what is packed in {file} is {title}", "unpack it")
    elif suffix == last:
        return None
    else:
        new = f"{base}{suffix}" if suffix in COMPRESSIONS else suffix
    renamed = f"rename it to {file.path.name[: -len(own)]}{new}"
    return DataError(f"{file} is {title}", renamed if new in SUFFIXES else "unpack it")


def suffix_of(path: AnyPath) -> str:
    """`.jsonl`, or `.jsonl.gz` of a compressed file, also of a name in capital letters."""
    suffix = path.suffix.lower()
    if suffix in COMPRESSIONS:
        return f"{path.with_suffix('').suffix.lower()}{suffix}"
    return suffix


# --- The folder of a run beside its export, and what shows that a run has not ended ---

RUN_SUFFIX = ".run"
AUDIT = "audit.jsonl"
"""The file in a run folder that `rejuice audit` writes, and a person may have labelled."""
MANIFEST = "manifest.json"
"""The file in a run folder that is removed first and written last."""
PART, PART_SUFFIX = "part", ".parquet"
"""How the names of the files of an export in parts begin and end."""
PARTS_LIST = "_manifest.json"
"""The file of an export in parts that lists them; removed first and written last."""


def run_folder(export_path: AnyPath) -> AnyPath:
    """The folder of an export's report and decisions: `curated.run` beside `curated.parquet`."""
    return export_path.with_suffix(RUN_SUFFIX)


def unfinished_run_folder(export_path: AnyPath) -> AnyPath:
    """The run folder under the name that it has until it is complete."""
    final = run_folder(export_path)
    return final.with_name(f".{final.name}")


def made_by_file(export_path: AnyPath) -> AnyPath:
    """In the unfinished run folder of an export: what its recipe is recognised by.

    Its name has the suffix of the export: exports that differ in nothing else share the folder.
    """
    return unfinished_run_folder(export_path) / f"made_by{export_path.suffix}"


def unfinished_made_by(export: AnyPath) -> str | None:
    """What the recipe of an unfinished export is recognised by; None: there is none."""
    # A bucket is no export, and the working directory has no name.
    if export.parent == export or not export.name:
        return None
    try:
        return made_by_file(export).read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_part(path: AnyPath) -> bool:
    return re.fullmatch(rf"{PART}-\d{{5,}}{re.escape(PART_SUFFIX)}", path.name) is not None


def is_folder(export_path: AnyPath) -> bool:
    """Whether an export is a folder of parts: its path has no suffix."""
    return not export_path.suffix


def check_finished(export: AnyPath) -> None:
    """Check that no run was stopped while it put an export in place."""
    if unfinished_made_by(export) is None:
        return
    # On disk it is put in place once it is complete, and the manifest is removed before.
    if isinstance(export, Path) and (run_folder(export) / MANIFEST).exists():
        return
    raise DataError(f"the run that writes {export} has not ended", "run its recipe again")


def exports_in_parts(folder: AnyPath, names: Iterable[str]) -> Iterator[AnyPath]:
    """Yield the exports in parts whose runs may not have ended, as the names in a folder show.

    The export itself may not be there: it is removed before another is written.
    """
    for name in names:
        stem = name.removeprefix(".").removesuffix(RUN_SUFFIX)
        if stem and "." not in stem and name == f".{stem}{RUN_SUFFIX}":
            yield folder / stem
