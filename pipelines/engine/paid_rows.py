"""The folder of what a resumable operator computed, whatever steps and whatever code led to it.

A row is found again by its content, in whatever chunk it was.

    kept-policy_rollout_mapper-52c0…/generation-1        failed rows were retried once
    kept-policy_rollout_mapper-52c0…/9af3….arrow         a finished chunk
    kept-policy_rollout_mapper-52c0…/9af3….keys          the content of its rows, hashed
    kept-policy_rollout_mapper-52c0…/77b1…-0.journal     finished rows of an unfinished chunk
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from pathlib import Path
from struct import Struct
from threading import Event, Lock, Thread
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import xxhash
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from ...operators import Change
from ...operators.disk import Header, NotAFileError, check_is_file, read_file, records_in, sync
from ...operators.logs import logger
from ...operators.operator import split
from ..dataset.files import DamagedError, owner, read_content, remove_file, write_file
from ..dataset.remote import AnyPath, RemotePath, leased
from . import paid_rows_earlier_formats
from . import paid_rows_format as kept_chunk
from .commit import RetriesGoneError, count_retry, pack, retry_count, unpack
from .paid_rows_format import load
from .steps import StepResult

# --- Key index ------------------------------------------------------------------------
# Where rows were kept, by the hash of their content: 24 bytes a row, in sorted arrays.

_PLACE_BITS = 32


class _SortedKeys(NamedTuple):
    """Some keys in ascending order: their halves, and where they are."""

    high_N: NDArray[np.uint64]  # uint64[N], the first 8 bytes of each key; ascending
    low_N: NDArray[np.uint64]  # uint64[N], the others
    # uint64[N], the number of the chunk and, in the lower 32 bits, the place in it
    at_N: NDArray[np.uint64]


class KeyIndex:
    """Finds rows in many chunks by their keys, which are 128-bit hashes in hex.

    What is added is sorted when the index is next asked, and merged with what is not much larger:
    adding chunks one by one takes N log N altogether.

    >>> index = KeyIndex()
    >>> index.add("first", ["00" * 16, "a1" * 16])
    >>> index.add("second", ["a1" * 16])
    >>> index.find(["ff" * 16, "a1" * 16])
    {'first': [(1, 1)], 'second': [(0, 1)]}
    """

    def __init__(self) -> None:
        self._chunks: list[str] = []
        self._names = set[str]()
        self._new: list[_SortedKeys] = []
        self._parts: list[_SortedKeys] = []

    def __contains__(self, chunk: str) -> bool:
        return chunk in self._names

    def __len__(self) -> int:
        return sum(len(part.at_N) for part in chain(self._new, self._parts))

    def add(self, chunk: str, keys: Sequence[str]) -> None:
        """Add the keys of all rows of a chunk, in their order."""
        high_N, low_N = _halves(keys)
        first = len(self._chunks) << _PLACE_BITS
        at_N = np.arange(first, first + len(keys), dtype=np.uint64)
        self._chunks.append(chunk)
        self._names.add(chunk)
        self._new.append(_SortedKeys(high_N, low_N, at_N))

    def find(self, keys: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
        """Return where rows with these keys are.

        Returns:
            By chunk, in the order in which they were added: places in it, each with the index in
            `keys` of the key that is there.
        """
        self._merge()
        high_N, low_N = _halves(keys)
        found = list[tuple[int, int]]()
        for part in self._parts:
            start_N = np.searchsorted(part.high_N, high_N, "left")
            size_N = np.searchsorted(part.high_N, high_N, "right") - start_N
            # Each pair of a key that is looked for and one that begins like it.
            index_M = np.repeat(np.arange(len(keys)), size_N)
            first_M = np.repeat(np.cumsum(size_N) - size_N, size_N)
            place_M = np.repeat(start_N, size_N) + np.arange(len(index_M)) - first_M
            same = part.low_N[place_M] == low_N[index_M]
            found += zip(part.at_N[place_M[same]].tolist(), index_M[same].tolist(), strict=True)
        places = defaultdict[str, list[tuple[int, int]]](list)
        for at, index in sorted(found):
            place = at & ((1 << _PLACE_BITS) - 1)
            places[self._chunks[at >> _PLACE_BITS]].append((place, index))
        return dict(places)

    def _merge(self) -> None:
        if not self._new:
            return
        self._parts.append(_sorted(self._new))
        self._new = []
        while len(self._parts) > 1 and len(self._parts[-2].at_N) < 2 * len(self._parts[-1].at_N):
            self._parts[-2:] = [_sorted(self._parts[-2:])]


def _halves(keys: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the first and the last 8 bytes of each key, each uint64[N]."""
    both = np.frombuffer(bytes.fromhex("".join(keys)), ">u8").reshape(-1, 2).astype(np.uint64)
    return both[:, 0].copy(), both[:, 1].copy()


def _sorted(parts: list[_SortedKeys]) -> _SortedKeys:
    """Return parts as one, column by column: at 10 million rows each takes 80 MB."""
    high_N = np.concatenate([part.high_N for part in parts])
    order_N = np.argsort(high_N, kind="stable")
    columns = (np.concatenate([part[column] for part in parts])[order_N] for column in range(1, 3))
    return _SortedKeys(high_N[order_N], *columns)


# --- Syncs once a second what was written meanwhile: else losing power loses it -------

EVERY_S = 1.0


class Syncable(Protocol):
    """What is written piece by piece."""

    def sync(self) -> None:
        """Have what was written stay when the power fails."""


class Syncer:
    """A thread that syncs journals, so that whoever writes them need not wait for the disk.

    Args:
        every_s: seconds from one round to the next.
    """

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._dirty = set[Syncable]()
        self._syncing, self._closed = Lock(), Event()
        self._error: Exception | None = None
        self._every_s = every_s
        self._thread = Thread(target=self._run, name="syncer", daemon=True)

    def written(self, journal: Syncable) -> None:
        """Have a journal synced in the next round.

        Raises:
            OSError: what was written before to some journal could not be synced.
            DataError: a store refused it.
        """
        self._dirty.add(journal)
        self._raise_error()

    def forget(self, journal: Syncable) -> None:
        """Leave a journal alone from now on: it is going to be closed.

        Raises:
            OSError: as `written`. The system reports a page that it could not write once only, so
                that syncing the journal once more may seem to succeed.
            DataError: as `written`.
        """
        with self._syncing:
            self._dirty.discard(journal)
        self._raise_error()

    def __enter__(self) -> Syncer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(self._every_s):
            with self._syncing:
                # Those that are written to meanwhile wait for the next round.
                for journal in list(self._dirty):
                    self._dirty.discard(journal)
                    try:
                        journal.sync()
                    except Exception as error:  # Raised where a journal is next used.
                        self._error = self._error or error

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error


# --- A journal of changes to single rows: each is in the file as soon as it is added ---
# A journal is a sequence of records, see `operators/disk.py`, one for each row:
#
#     header | bytes of the JSON | the change without its columns, JSON | its columns, Arrow
#
# Each belongs to the chunk that it is a journal of. An entry takes one write. What the system has
# not yet put on the disk is synced once a second, in case the power fails. A process that is killed
# may leave half a record at the end, and a disk may damage one: that one counts as not written.

_log = logger(__name__)
_ROW = 4
"""The kind of the records."""
_META_BYTES = Struct("<I")
_OBJECT_BYTES = 8 << 20


class Entry(NamedTuple):
    """A row, what was done to it, and the seconds since the entry before."""

    row: int
    change: Change
    seconds: float


class Journal:
    """Appends entries to a new file of a folder or, in an object store, writes them as files.

    Args:
        path: journals are called after it: `<stem>-0.journal`, `<stem>-1.journal`.
        syncer: what puts on the disk, or sends, what was added. None: only `close` does.
    """

    def __init__(self, path: AnyPath, syncer: Syncer | None = None) -> None:
        self._syncer, self._owner = syncer, owner(path)
        self._sink = _Objects(path) if isinstance(path, RemotePath) else _File(path)
        self._schema: pa.Schema | None = None
        self._schema_bytes: Any = b""

    def add(self, entry: Entry) -> None:
        """Append an entry. It outlives the process when this returns, and a loss of power a second
        later; in an object store, it outlives both a second later.

        Raises:
            OSError: it could not be written, or what was added before it could not be synced.
            DataError: a store refused it.
        """
        self._sink.write(self._record(entry))
        if self._syncer is not None:
            self._syncer.written(self._sink)

    def close(self) -> None:
        """Sync what was added, and close the file.

        Raises:
            OSError: the disk refused some of it, now or before.
            DataError: a store did.
        """
        try:
            if self._syncer is not None:
                self._syncer.forget(self._sink)
        finally:
            self._sink.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _record(self, entry: Entry) -> list[Any]:
        """Return the parts of an entry's record, as buffers."""
        change = entry.change
        meta: dict[str, Any] = {
            "row": entry.row,
            "seconds": entry.seconds,
            "reason": None if change.reasons is None else change.reasons[0].as_py(),
            "without": change.without,
            "notes": {name: float(figure) for name, figure in change.notes.items()},
        }
        if change.logged:
            meta["logged"] = dict(change.logged)
        if change.failed is not None:
            meta["failed"] = change.failed.tolist()
        batch = pa.record_batch(pack(change))
        if batch.schema != self._schema:
            self._schema, self._schema_bytes = batch.schema, batch.schema.serialize()
        content = json.dumps(meta).encode()
        size = _META_BYTES.pack(len(content))
        parts = [size, content, self._schema_bytes, batch.serialize()]
        return [Header.of(self._owner, _ROW, parts).packed(), *parts]


class _File:
    """A journal on disk, which is there from the first entry on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: Any = None

    def write(self, parts: Sequence[Any]) -> None:
        """Append some buffers, in one write unless the disk takes less."""
        if self._file is None:
            number = max(map(_number, journals(self._path)), default=-1) + 1
            name = f"{self._path.stem}-{number}.journal"
            self._file = open(self._path.with_name(name), "xb", buffering=0)  # noqa: SIM115
            sync(self._path.parent)
        written = os.writev(self._file.fileno(), parts)
        left = memoryview(b"".join(parts))[written:] if written < sum(map(len, parts)) else b""
        while left:
            left = left[self._file.write(left) :]

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            with file:
                os.fsync(file.fileno())


class _Objects:
    """A journal in a store, where nothing can be appended to: a file for what came in a second."""

    def __init__(self, path: RemotePath) -> None:
        self._path = path
        self._waiting: list[Any] = []
        self._lock = Lock()  # It is synced in another thread.

    def write(self, parts: Sequence[Any]) -> None:
        """Keep some buffers until they are sent; many bytes are sent at once."""
        with self._lock:
            self._waiting += parts
            size = sum(map(len, self._waiting))
        if size >= _OBJECT_BYTES:
            self.sync()

    def sync(self) -> None:
        with self._lock:
            if self._waiting:
                # Another driver may write journals of the same chunk: there is no lock.
                name = f"{self._path.stem}-{time.time_ns()}.journal"
                self._path.with_name(name).write_bytes(b"".join(self._waiting))
                self._waiting = []

    def close(self) -> None:
        self.sync()


def journals(path: AnyPath) -> list[Any]:
    """Return the journals that are called after `path`, the oldest first."""
    found: Iterable[AnyPath] = path.parent.glob(f"{path.stem}-*.journal")
    return sorted((file for file in found if _digits(file).isdecimal()), key=_number)


def _number(journal: AnyPath) -> int:
    return int(_digits(journal))


def _digits(journal: AnyPath) -> str:
    return journal.stem.rpartition("-")[2]


def entries(path: AnyPath) -> Iterator[Entry]:
    """Yield what was added to the journals that are called after `path`, and is not damaged."""
    for journal in journals(path):
        try:
            content = _content(journal)
        except DamagedError as error:
            _log.warning("%s: what was in it is computed again", error.found)
            continue
        if content is None:
            continue  # Another run has finished the chunk: these rows are in it.
        data = memoryview(content)
        if paid_rows_earlier_formats.is_journal(data) or next(records_in(data), None) is None:
            yield from paid_rows_earlier_formats.journal_entries(data, _entry)
        else:
            yield from _entries(data, journal, owner(path))


def _content(journal: AnyPath) -> Any:
    """Return what a journal holds; None: it was removed after it was listed."""
    if isinstance(journal, RemotePath):
        return journal.read_if_there()
    try:
        return read_content(journal)
    except FileNotFoundError:
        return None


def _entries(data: memoryview, journal: AnyPath, key: bytes) -> Iterator[Entry]:
    """Yield the entries of a journal that are undamaged, and belong to this chunk."""
    lost = False
    for header, payload, after_damage in records_in(data):
        # Not at the end, where a process that was killed leaves half a record.
        lost |= after_damage or (header.key, header.kind) != (key, _ROW)
        if header.key == key and header.kind == _ROW:
            (size,) = _META_BYTES.unpack(payload[: _META_BYTES.size])
            # A copy: Arrow wants it aligned, and a row may be held for longer than the file.
            columns = bytes(payload[_META_BYTES.size + size :])
            meta = bytes(payload[_META_BYTES.size : _META_BYTES.size + size])
            yield _entry(pa.ipc.open_stream(columns).read_next_batch(), meta)
    if lost:
        _log.warning("%s is damaged: what is lost of it is computed again", journal)


def _entry(batch: pa.RecordBatch, metadata: bytes) -> Entry:
    meta = json.loads(metadata)
    columns, parents = unpack(batch)
    failed = meta.get("failed")
    change = Change(
        columns,
        pa.array([meta["reason"]], pa.string()),
        parents,
        tuple(meta["without"]),
        meta["notes"],
        meta.get("logged", {}),
        None if failed is None else np.array(failed, np.int64),
    )
    return Entry(meta["row"], change, meta["seconds"])


# --- Folder ---------------------------------------------------------------------------

_PREFIX = "kept-"


def row_keys(table: pa.Table) -> list[str]:
    """Return a hash of each row's content."""
    texts = (json.dumps(row, default=repr, sort_keys=True) for row in table.to_pylist())
    return [xxhash.xxh3_128_hexdigest(text.encode()) for text in texts]


def chunk_path(folder: AnyPath, keys: Sequence[str]) -> AnyPath:
    """Return where the chunk of these rows is, or will be."""
    return folder / f"{kept_chunk.hash_of(keys)}.arrow"


class KeptRows:
    """Finds rows in the chunks of a folder, finished or not.

    Args:
        folder: of an operator.

    Attributes:
        folder: of the operator.
        retries: how often failures of the operator were computed again.
    """

    def __init__(self, folder: AnyPath) -> None:
        self.folder, self.retries = folder, retry_count(folder)
        self._index: KeyIndex | None = None

    def add(self, whole: AnyPath, keys: Sequence[str]) -> None:
        """Have the rows of a chunk found from now on."""
        index = self._read()
        file = whole.with_suffix(".keys")
        known = _read_keys(file)
        if whole.name not in index:
            index.add(whole.name, keys)
        if known is None:
            write_file(file, "\n".join(keys))

    def find(self, whole: AnyPath, keys: Sequence[str], rows: Sequence[int]) -> dict[int, Entry]:
        """Return rows of a chunk that are finished as part of other chunks."""
        found: dict[int, Entry] = {}
        for name, places in self._read().find([keys[row] for row in rows]).items():
            wanted: dict[int, list[int]] = {}
            for place, index in places:
                if rows[index] not in found:
                    wanted.setdefault(place, []).append(rows[index])
            if name == whole.name or not wanted:
                continue
            for place, change in _rows_of_chunk(self.folder / name, sorted(wanted)):
                found |= {row: Entry(row, change, 0.0) for row in wanted[place]}
        return found

    def _read(self) -> KeyIndex:
        """Return the index, which is built when it is first needed."""
        if self._index is None:
            self._index = KeyIndex()
            for whole, keys in chunks(self.folder):
                self._index.add(whole.name, keys)
        return self._index


def chunks(folder: AnyPath) -> Iterator[tuple[AnyPath, list[str]]]:
    """Yield the chunks of a folder, finished or not, with the keys of their rows."""
    found = (path for path in folder.glob("*.*") if path.suffix in (".arrow", ".keys"))
    for file in sorted({path.with_suffix(".keys") for path in found}, key=str):
        keys, whole = _read_keys(file), file.with_suffix(".arrow")
        if keys is None:
            keys = kept_chunk.keys_of(whole) or paid_rows_earlier_formats.keys_of(whole)
            if keys is None or kept_chunk.hash_of(keys) != file.stem:
                lost = "its rows are found again only where the same rows are a chunk"
                _log.warning("%s is %s: %s", file, "damaged" if file.exists() else "gone", lost)
                continue
            write_file(file, "\n".join(keys))
        yield whole, keys


def _read_keys(file: AnyPath) -> list[str] | None:
    """The keys in a file, whose name is their hash; None: there is none, or it is damaged."""
    try:
        content = file.read_bytes() if isinstance(file, RemotePath) else read_file(file)
    except (FileNotFoundError, NotAFileError):
        return None
    keys = content.decode("ascii", "replace").split()
    return keys if kept_chunk.hash_of(keys) == file.stem else None


def _rows_of_chunk(whole: AnyPath, places: Sequence[int]) -> list[tuple[int, Change]]:
    """Return the changes to these rows of a chunk, in ascending order; dropped rows are left out.

    Another run may have the chunk. What it commits, or takes apart, meanwhile is read again.
    """
    wanted = frozenset(places)
    while True:
        was_there = whole.exists()
        commit = _loaded(whole) if was_there else None
        if commit is not None:
            # Only these are copied: rows that were shuffled are looked for in each chunk of all.
            changes = split(commit.change, range(commit.rows_in + 1), only=wanted)
            pairs = zip(places, changes, strict=True)
            return [(row, change) for row, change in pairs if not change.drops_all()]
        found = journalled(whole, wanted)
        if whole.exists() == was_there:
            return [(row, entry.change) for row, entry in found.items()]


def _loaded(whole: AnyPath) -> StepResult | None:
    """Return a finished chunk; None: it is gone, or damaged while another run has its lock."""
    try:
        return load(whole)
    except FileNotFoundError:
        return None
    except DamagedError:
        lock = ChunkLock(whole)
        if lock.try_acquire():
            try:  # Another run may have taken it apart meanwhile, or written it again.
                return load(whole) if is_finished(whole) else None
            finally:
                lock.release()
        return None


def kept_name(operator_name: str, key: str) -> str:
    """Return the name of a folder of kept rows."""
    return f"{_PREFIX}{operator_name}-{key}"


def is_kept(path: AnyPath) -> bool:
    """Return whether a file is a chunk in a folder of kept rows."""
    return path.suffix == ".arrow" and path.parent.name.startswith(_PREFIX)


def is_finished(whole: AnyPath, keys: Sequence[str] | None = None) -> bool:
    """Return whether a chunk is there; the caller holds its lock.

    One of an earlier version is written again, in the present format.

    Raises:
        DamagedError: it is damaged. It has become a journal of the rows that are still good. The
            others may get other results, so later steps have other keys from now on. Or nothing
            says whose rows it has: it stays until they are computed.
    """
    try:
        load(whole)
    except FileNotFoundError:
        return False
    except RetriesGoneError:
        raise
    except DamagedError:
        found = paid_rows_earlier_formats.whole_chunk(whole)
        if found is None:
            take_apart(whole)
            raise
        if not _renew(whole, *found, keys):
            raise
    return True


def _renew(
    whole: AnyPath, result: StepResult, own: Sequence[str] | None, keys: Sequence[str] | None
) -> bool:
    """Write a chunk of an earlier version in the present format; False: it may not be this one."""
    keys = own or keys or _read_keys(whole.with_suffix(".keys"))
    if keys is None or kept_chunk.hash_of(keys) != whole.stem or len(keys) != result.rows_in:
        return False
    kept_chunk.save(whole, result, keys, retry_count(whole.parent))
    return True


def take_apart(whole: AnyPath) -> None:
    """Replace a damaged chunk by a journal of what is still good of it."""
    good = [*kept_chunk.undamaged_rows(whole)] or paid_rows_earlier_formats.undamaged_rows(whole)
    found = [(row, change) for row, change in good if not change.drops_all()]
    _log.warning(
        "%s is damaged: its rows are computed again, but for %d that are undamaged",
        whole, len(found),
    )  # fmt: skip
    with Journal(whole) as journal:
        for row, change in found:
            journal.add(Entry(row, change, 0.0))
    # Before the chunk goes: what later steps made of the rows that are lost must not be found.
    count_retry(whole.parent)
    remove_file(whole)


def rewrite_without(whole: AnyPath, failed: Container[int]) -> None:
    """Replace a chunk by journals of its rows, without the failed and the dropped ones."""
    old = journals(whole)
    if whole.exists():
        commit = load(whole, mapped=False)
        seconds = commit.seconds / commit.rows_in
        # What is noted and logged is about all rows, and goes with the first that stays.
        notes, logged = commit.change.notes, commit.change.logged
        changes = split(commit.change._replace(notes={}, logged={}), range(commit.rows_in + 1))
        each = (Entry(row, change, seconds) for row, change in enumerate(changes))
    else:
        notes, logged = {}, {}
        each = (entry for entry in journalled(whole).values())
    with Journal(whole) as journal:
        for entry in each:
            if entry.row in failed or entry.change.drops_all():
                continue
            change = entry.change._replace(
                notes={**entry.change.notes, **notes}, logged={**entry.change.logged, **logged}
            )
            journal.add(entry._replace(change=change))
            notes, logged = {}, {}
    for path in (*old, whole):
        path.unlink(missing_ok=True)


def journalled(whole: AnyPath, wanted: Container[int] | None = None) -> dict[int, Entry]:
    """The rows of an unfinished chunk that are finished; of these the wanted ones, or all."""
    every = entries(whole)
    return {each.row: each for each in every if wanted is None or each.row in wanted}


class ChunkLock:
    """The lock of a chunk: another recipe with the same first steps may be computing it.

    In an object store there is none. Two runs that compute the same rows at the same time pay for
    them twice there; one of them at a time writes the chunk.
    """

    def __init__(self, whole: AnyPath) -> None:
        self._lock: FileLock | None = None
        self._path = whole.with_suffix(".lock")
        if not isinstance(self._path, RemotePath):
            check_is_file(self._path)
            self._lock = FileLock(self._path)

    def acquire(self) -> None:
        """Get it, however long another run has it."""
        if self._lock is not None and not self.try_acquire():
            _log.warning("another run computes the same rows: waiting for it")
            self._lock.acquire()

    def try_acquire(self) -> bool:
        """Get it unless another run has it; gives whether it is held now."""
        try:
            if self._lock is not None:
                self._lock.acquire(timeout=0)
        except Timeout:
            return False
        return True

    def release(self) -> None:
        """Let others have it."""
        if self._lock is not None:
            self._lock.release()

    def writing(self) -> AbstractContextManager[object]:
        """Keep other runs from writing the chunk meanwhile, also in a store."""
        return leased(self._path) if isinstance(self._path, RemotePath) else nullcontext()

    def __enter__(self) -> ChunkLock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
