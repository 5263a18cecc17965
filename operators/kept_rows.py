"""Rows that were paid for, kept under keys: samples, judgements, observations of tools.

    kept-policy_rollout_mapper-52c0…/rows.sqlite                       on a local disk
    kept-policy_rollout_mapper-52c0…/1764375602113…-9f2c….parquet      anywhere else

What was put into the SQLite file outlives the process at once, and a loss of power a second later.
SQLite can neither lock on every network file system nor append in an object store: there, and where
it is not known what a folder is on, a Parquet file is written each second, and any number of
machines may write at a time.

A payload belongs to its key in its folder, and has a checksum: one that is damaged, or that was
copied from elsewhere, counts as absent.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, RLock, Timer
from typing import Any, Protocol

import pyarrow as pa
import xxhash
from filelock import FileLock

from .disk import check_is_file, sync, temporary_path
from .logs import logger

_log = logger(__name__)
_EVERY_S = 1.0
SHARED_FOLDERS = "REJUICE_SHARED_FOLDERS"
"""The environment variable with folders, separated by colons, that are not on a local disk."""


class KeptRows(Protocol):
    """Payloads by their keys; thread-safe. Of several payloads of a key the last one counts. All
    methods raise an OSError where the folder cannot be used."""

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Those that are there."""
        ...

    def put(self, key: bytes, payload: bytes) -> None: ...

    def close(self) -> None: ...

    def __len__(self) -> int: ...


def open_kept_rows(folder: Any, *, writes: bool = True) -> KeptRows:
    """The rows of a folder, a `Path` or a path in an object store, which is made if it is not
    there.

    Unless it `writes`, a folder without write permission will do.
    """
    if writes:
        folder.mkdir(parents=True, exist_ok=True)
    segments = _Segments(folder)
    if not isinstance(folder, Path) or any(segments.files()):
        return segments
    if not writes or is_local(folder):
        return _SqliteRows(folder, writes)
    if (folder / _SQLITE).exists():  # It was on a local disk before.
        _move(folder, segments)
    return segments


def has_kept_rows(folder: Any) -> bool:
    return any(path.name == _SQLITE or _SEGMENT.fullmatch(path.name) for path in folder.glob("*.*"))


def _checksum(folder: Any, key: bytes, payload: bytes) -> bytes:
    return xxhash.xxh3_128_digest(b"\n".join((folder.name.encode(), key, payload)))


# --- A local disk ---------------------------------------------------------------------

_LOCAL = frozenset(
    ("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs")
)
_MOUNTS = Path("/proc/self/mounts")
_OCTAL = re.compile(r"\\([0-7]{3})")


def is_local(folder: Path) -> bool:
    """Whether a folder is on a disk of this machine; False where that is not known."""
    folder = folder.resolve()
    shared = os.environ.get(SHARED_FOLDERS, "").split(":")
    if any(folder.is_relative_to(Path(each).resolve()) for each in shared if each):
        return False
    kind, longest = "", -1
    mounts = _MOUNTS.read_text(errors="surrogateescape") if _MOUNTS.exists() else ""
    for line in mounts.splitlines():
        _, place, found, *_ = line.split()
        place = _OCTAL.sub(lambda digits: chr(int(digits[1], 8)), place)  # A space is \040.
        if folder.is_relative_to(place) and len(place) >= longest:
            kind, longest = found, len(place)
    return kind in _LOCAL


_SQLITE = "rows.sqlite"
_TABLE = "CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, key, checksum, payload)"
_PUT = "INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)"
_AT_ONCE = 500
_INDEX_BYTES = 1 << 15
_DAMAGES = (sqlite3.Error, UnicodeDecodeError)  # The latter of a message with a damaged name.
_NO_DAMAGE = ("locked", "locking", "full", "unable to open", "disk I/O", "interrupted")
"""In messages of SQLite about something else than what is in the file."""
_RANGE = 1 << 52
_WAIT_S = 60.0
"""For a process that locks the file."""


class _SqliteRows:
    """Rows in a SQLite file.

    A row's number is the beginning of its key, so there is no index that could be damaged. SQLite
    itself finds few damages: where it does, the rows that can be read go to a new file.
    """

    def __init__(self, folder: Path, writes: bool) -> None:
        self._folder, self._path, self._writes = folder, folder / _SQLITE, writes
        self._lock = Lock()
        self._timer: Timer | None = None
        self._file: sqlite3.Connection | None = None
        self._process, self._inode = 0, 0

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        found, left = dict[bytes, bytes](), iter(keys)
        while batch := {_number(key): key for key in islice(left, _AT_ONCE)}:
            marks = ",".join("?" * len(batch))
            query = f"SELECT id, key, checksum, payload FROM rows WHERE id IN ({marks})"
            for number, *row in self._execute(query, *batch):
                if batch.get(number) == row[0] and _is_whole(self._folder, *row):
                    found[row[0]] = row[2]
        return found

    def put(self, key: bytes, payload: bytes) -> None:
        row = _number(key), key, _checksum(self._folder, key, payload), payload
        self._execute(_PUT, *row)
        if self._is_replaced():  # Another process has put a new file in place meanwhile.
            self._execute(_PUT, *row)
        with self._lock:
            if self._timer is None or not self._timer.is_alive():
                self._timer = _timer(self._sync)

    def close(self) -> None:
        _end(self._timer)
        with self._lock:
            if self._file is not None and self._process == os.getpid():
                self._file.close()
            self._file = None

    def __len__(self) -> int:
        return sum(row[0] for row in self._execute("SELECT count(*) FROM rows"))

    def _execute(self, query: str, *values: object) -> list[Any]:
        if not self._writes and not self._path.exists():
            return []
        with self._lock, self._errors():
            try:
                return self._opened().execute(query, values).fetchall()
            except _DAMAGES as error:
                is_ours = self._writes and os.access(self._path, os.W_OK)
                if not is_ours or any(text in str(error) for text in _NO_DAMAGE):
                    raise
                self._renew(error)
                return self._opened().execute(query, values).fetchall()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGES as error:
            # Of its index in memory SQLite says only that it could not be made larger.
            is_full = "full" in str(error) or shutil.disk_usage(self._folder).free < _INDEX_BYTES
            number = errno.ENOSPC if is_full else errno.EIO
            raise OSError(number, str(error), str(self._path)) from None

    def _opened(self) -> sqlite3.Connection:
        if self._process != os.getpid() or self._is_replaced():
            self._file = None  # Not closed: it may be that of the process that has forked.
        if self._file is None:
            for path in self._files():
                check_is_file(path)
            self._inode = self._found_inode()
            self._file, self._process = self._connected(), os.getpid()
            self._inode = self._found_inode()
        return self._file

    def _is_replaced(self) -> bool:
        return self._found_inode() != self._inode

    def _found_inode(self) -> int:
        try:
            return os.stat(self._path).st_ino
        except FileNotFoundError:
            return 0

    def _connected(self) -> sqlite3.Connection:
        uri = self._path.absolute().as_uri()
        if self._writes:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = _connected(uri)
            _log_ahead(file)
            file.execute("PRAGMA synchronous = NORMAL")
            file.execute(_TABLE)
            return file
        try:
            file = _connected(f"{uri}?mode=ro")
            file.execute("SELECT 1 FROM rows LIMIT 1")
        except sqlite3.OperationalError:  # Beside it nothing can be written.
            file = _connected(f"{uri}?mode=ro&immutable=1")
        return file

    def _sync(self) -> None:
        """Have the disk take what SQLite has only given to the system."""
        with suppress(OSError):
            sync(self._path.with_name(f"{_SQLITE}-wal"))

    def _renew(self, error: Exception) -> None:
        """Put the rows that can be read into a new file in place of a damaged one."""
        with FileLock(self._folder / "lock"):
            if self._is_replaced():
                return  # Another process has done it.
            file, self._file = self._file, None
            temporary, rows = temporary_path(self._path), 0
            with closing(_connected(temporary.absolute().as_uri())) as new:
                new.execute(_TABLE)
                new.execute("BEGIN")  # Else the disk is waited for after each row.
                for part in _readable(file) if file is not None else ():
                    new.executemany(_PUT, part.values())
                    rows += len(part)
                new.execute("COMMIT")
            with suppress(sqlite3.Error):
                if file is not None:
                    file.close()
            sync(temporary)
            for path in self._files()[1:]:
                path.unlink(missing_ok=True)
            temporary.replace(self._path)
        found = f"{self._path} is damaged ({error})"
        _log.warning("%s: %d rows in it are kept, the others are computed again", found, rows)

    def _files(self) -> tuple[Path, ...]:
        return tuple(self._path.with_name(f"{_SQLITE}{end}") for end in ("", "-wal", "-shm"))


def _connected(uri: str) -> sqlite3.Connection:
    file = sqlite3.connect(
        uri, uri=True, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
    )
    file.text_factory = bytes  # A damaged row may say that it is text.
    return file


def _log_ahead(file: sqlite3.Connection) -> None:
    late = time.monotonic() + _WAIT_S
    while True:
        try:
            file.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:  # It does not wait for a writer, as others do.
            if "locked" not in str(error) or time.monotonic() > late:
                raise
            time.sleep(0.01)


def _number(key: bytes) -> int:
    return int.from_bytes(key[:8], "little", signed=True)


def _is_whole(folder: Any, key: Any, checksum: Any, payload: Any) -> bool:
    is_bytes = isinstance(key, bytes) and isinstance(payload, bytes)
    return is_bytes and checksum == _checksum(folder, key, payload)


def _readable(file: sqlite3.Connection) -> Iterator[dict[int, Any]]:
    """The rows of a file by their numbers, range by range: up to a damage in it from both sides."""
    for begin in range(-(1 << 63), 1 << 63, _RANGE):
        rows = dict[int, Any]()
        for order in ("ASC", "DESC"):
            query = f"SELECT * FROM rows WHERE id BETWEEN ? AND ? ORDER BY id {order}"
            with suppress(*_DAMAGES):
                for row in file.execute(query, (begin, begin + _RANGE - 1)):
                    rows[row[0]] = row
                break  # All of them.
        yield rows


def _timer(work: Callable[[], None]) -> Timer:
    timer = Timer(_EVERY_S, work)
    timer.daemon = True
    timer.start()
    return timer


def _end(timer: Timer | None) -> None:
    if timer is not None and timer.is_alive():
        timer.cancel()
        timer.join()


# --- Anywhere else --------------------------------------------------------------------

_SEGMENT = re.compile(r"\d{20}-[0-9a-f]{8}[.]parquet")
_COLUMNS = pa.schema({"key": pa.binary(), "checksum": pa.binary(), "payload": pa.large_binary()})
_MOST_WAITING = 8 << 20
_SMALL, _MERGED = 1 << 20, 64
"""So many small files of a process become one."""


class _Segments:
    """Rows in Parquet files that are never changed; those of all writers are read."""

    def __init__(self, folder: Any) -> None:
        self._folder, self._lock = folder, RLock()
        self._places = dict[bytes, tuple[str, int]]()
        self._names, self._own, self._damaged = set[str](), list[str](), set[str]()
        self._waiting, self._waiting_bytes = dict[bytes, bytes](), 0
        self._timer: Timer | None = None
        self._error: Exception | None = None
        self._looked_at = float("-inf")
        self._table = lru_cache(maxsize=2)(self._read)

    def files(self) -> Iterator[Any]:
        return (path for path in self._folder.glob("*.*") if _SEGMENT.fullmatch(path.name))

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        with self._lock:
            wanted = list(keys)
            if not all(key in self._waiting or key in self._places for key in wanted):
                self._look()
            while True:
                try:
                    return dict(self._found(wanted))
                except FileNotFoundError:  # One was damaged, or its process has merged it.
                    self._names.clear()
                    self._places.clear()
                    self._looked_at = float("-inf")
                    self._look()

    def put(self, key: bytes, payload: bytes) -> None:
        with self._lock:
            self._raise_error()
            self._waiting[key] = payload
            self._waiting_bytes += len(payload)
            if self._waiting_bytes >= _MOST_WAITING:
                self._write()
            elif self._timer is None or not self._timer.is_alive():  # As where a process forked.
                self._timer = _timer(self._write_in_time)

    def close(self) -> None:
        _end(self._timer)
        with self._lock:
            self._write()
            self._merge()
            self._raise_error()

    def __len__(self) -> int:
        with self._lock:
            self._look()
            return len(self._places.keys() | self._waiting.keys())

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _found(self, keys: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
        in_file = defaultdict[str, list[bytes]](list)
        for key in keys:
            if key in self._waiting:
                yield key, self._waiting[key]
            elif key in self._places:
                in_file[self._places[key][0]].append(key)
        for name, of_file in in_file.items():
            table = self._table(name)
            rows = table.take(pa.array([self._places[key][1] for key in of_file])).to_pylist()
            for key, row in zip(of_file, rows, strict=True):
                if row["key"] == key and _is_whole(self._folder, **row):
                    yield key, row["payload"]

    def _look(self) -> None:
        if time.monotonic() - self._looked_at < _EVERY_S:
            return
        self._looked_at = time.monotonic()
        names = {path.name for path in self.files()}
        for name in sorted(names - self._names - self._damaged):
            self._names.add(name)
            with suppress(FileNotFoundError):
                self._add(name, self._read(name, ["key"])["key"].to_pylist())

    def _add(self, name: str, keys: Iterable[bytes]) -> None:
        self._names.add(name)
        self._places.update((key, (name, row)) for row, key in enumerate(keys))

    def _read(self, name: str, columns: list[str] | None = None) -> pa.Table:
        from pyarrow.parquet import ParquetFile

        path = self._folder / name
        try:
            if isinstance(path, Path):
                check_is_file(path)
            content = pa.BufferReader(path.read_bytes())
            table = ParquetFile(content, page_checksum_verification=True).read(columns)
            return table.cast(_COLUMNS if columns is None else _COLUMNS_OF_KEYS)
        except MemoryError:
            raise
        except (pa.ArrowException, ValueError, OSError) as error:
            if isinstance(error, OSError) and error.errno == errno.ESTALE:
                raise FileNotFoundError(f"{path} is gone") from None
            if isinstance(error, OSError) and error.errno is not None:
                raise
            self._damaged.add(name)
            _log.warning("%s is damaged: the rows in it are computed again", path)
            raise FileNotFoundError(f"{path} is damaged") from None

    def _write_in_time(self) -> None:
        with self._lock:
            try:
                self._write()
            except Exception as error:  # Raised to whoever puts the next row.
                self._error = error

    def _write(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            name = self._write_segment(self._waiting)
            if self._waiting_bytes < _SMALL:
                self._own.append(name)
            self._waiting, self._waiting_bytes = {}, 0
            if len(self._own) >= _MERGED:
                self._merge()

    def _write_segment(self, rows: dict[bytes, bytes]) -> str:
        from pyarrow.parquet import write_table

        checksums = [_checksum(self._folder, *row) for row in rows.items()]
        table = pa.table([[*rows], checksums, [*rows.values()]], schema=_COLUMNS)
        sink = pa.BufferOutputStream()
        write_table(table, sink, write_page_checksum=True, compression="zstd")
        path = self._folder / f"{time.time_ns():020d}-{secrets.token_hex(4)}.parquet"
        content = sink.getvalue().to_pybytes()
        if isinstance(path, Path):
            temporary = temporary_path(path)
            temporary.write_bytes(content)
            sync(temporary)
            temporary.replace(path)
        else:
            path.write_bytes(content)
        name = str(path.name)
        self._add(name, rows)
        return name

    def _merge(self) -> None:
        """Put the rows of this process's files into one, so that there are not thousands."""
        if len(self._own) < 2:
            return
        rows, merged = dict[bytes, bytes](), list[str]()
        for name in self._own:
            with suppress(FileNotFoundError):
                keys = self._read(name, ["key"])["key"].to_pylist()
                rows.update(self._found([key for key in keys if self._places[key][0] == name]))
                merged.append(name)
        self._own = []
        self._write_segment(rows)
        for name in merged:
            (self._folder / name).unlink(missing_ok=True)


def _move(folder: Path, segments: _Segments) -> None:
    """Put the rows of a SQLite file into segments, by a copy on a local disk: it has a log, too."""
    files = [path for end in ("", "-wal") if (path := folder / f"{_SQLITE}{end}").exists()]
    with TemporaryDirectory() as local:
        for path in files:
            shutil.copy(path, local)
        with closing(_connected((Path(local) / _SQLITE).as_uri())) as file:
            for part in _readable(file):
                for _, key, checksum, payload in part.values():
                    if _is_whole(folder, key, checksum, payload):
                        segments.put(key, payload)
    segments.close()
    for path in (*files, folder / f"{_SQLITE}-shm"):
        path.unlink(missing_ok=True)


_COLUMNS_OF_KEYS = pa.schema([_COLUMNS.field("key")])
