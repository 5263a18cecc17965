"""The folder of what a resumable operator computed, whatever steps and whatever code led to it.

A row is found again by its content, in whatever chunk it was.

    kept-policy_rollout_mapper-52c0…/generation-1        failed rows were retried once
    kept-policy_rollout_mapper-52c0…/9af3….arrow         a finished chunk
    kept-policy_rollout_mapper-52c0…/9af3….keys          the content of its rows, hashed
    kept-policy_rollout_mapper-52c0…/77b1…-0.journal     finished rows of an unfinished chunk
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import pyarrow as pa
import xxhash
from filelock import FileLock, Timeout

from ....operators import Change
from ....operators.change import split
from ....operators.disk import NotAFileError, check_is_file, read_file
from ....operators.logs import logger
from ...dataset.checked import DamagedError
from ...dataset.files import remove_file, write_file
from ...dataset.lease import leased
from ...dataset.remote import AnyPath, RemotePath
from ..commit import RetriesGoneError
from ..retries import count_retry, retry_count
from ..steps import StepResult
from . import chunk as kept_chunk
from . import earlier
from .chunk import load
from .journal import Entry, Journal, entries, journals
from .key_index import KeyIndex

_log = logger(__name__)
_PREFIX = "kept-"


def row_keys(table: pa.Table) -> list[str]:
    """A hash of each row's content."""
    texts = (json.dumps(row, default=repr, sort_keys=True) for row in table.to_pylist())
    return [xxhash.xxh3_128_hexdigest(text.encode()) for text in texts]


def chunk_path(folder: AnyPath, keys: Sequence[str]) -> AnyPath:
    """Where the chunk of these rows is, or will be."""
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
        """Rows of a chunk that are finished as part of other chunks.

        Args:
            whole: the chunk.
            keys: of all its rows.
            rows: those to look for.
        """
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
        """The index, which is built when it is first needed."""
        if self._index is None:
            self._index = KeyIndex()
            for whole, keys in chunks(self.folder):
                self._index.add(whole.name, keys)
        return self._index


def chunks(folder: AnyPath) -> Iterator[tuple[AnyPath, list[str]]]:
    """The chunks of a folder, finished or not, with the keys of their rows."""
    found = (path for path in folder.glob("*.*") if path.suffix in (".arrow", ".keys"))
    for file in sorted({path.with_suffix(".keys") for path in found}, key=str):
        keys, whole = _read_keys(file), file.with_suffix(".arrow")
        if keys is None:
            keys = kept_chunk.keys_of(whole) or earlier.keys_of(whole)
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
    """The changes to these rows of a chunk, in ascending order; dropped rows are left out.

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
    """A finished chunk; None: it is gone, or damaged while another run has its lock."""
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
    """The name of a folder of kept rows."""
    return f"{_PREFIX}{operator_name}-{key}"


def is_kept(path: AnyPath) -> bool:
    """Whether a file is a chunk in a folder of kept rows."""
    return path.suffix == ".arrow" and path.parent.name.startswith(_PREFIX)


def is_finished(whole: AnyPath, keys: Sequence[str] | None = None) -> bool:
    """Whether a chunk is there; the caller holds its lock.

    One of an earlier version is written again, in the present format.

    Args:
        whole: the chunk.
        keys: of its rows, where they are known; else they are read.

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
        found = earlier.whole_chunk(whole)
        if found is None:
            take_apart(whole)
            raise
        if not _renew(whole, *found, keys):
            raise
    return True


def _renew(
    whole: AnyPath, result: StepResult, own: Sequence[str] | None, keys: Sequence[str] | None
) -> bool:
    """Write a chunk of an earlier version in the present format; False: it may not be this one.

    Args:
        whole: the chunk.
        result: what it holds.
        own: the keys that are in it.
        keys: of its rows, where they are known.
    """
    keys = own or keys or _read_keys(whole.with_suffix(".keys"))
    if keys is None or kept_chunk.hash_of(keys) != whole.stem or len(keys) != result.rows_in:
        return False
    kept_chunk.save(whole, result, keys, retry_count(whole.parent))
    return True


def take_apart(whole: AnyPath) -> None:
    """Replace a damaged chunk by a journal of what is still good of it."""
    good = [*kept_chunk.undamaged_rows(whole)] or earlier.undamaged_rows(whole)
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
