"""Only one run writes an export, and its run folder, at a time.

On disk a lock of the system is held, which ends with its process. An object store has no locks:
there a run keeps a lease, a small file that it writes again every few seconds. Another run that
finds one waits until it has seen it change, and gives up, or has not for long enough, and takes it.
Clocks are not compared. A lease is a best effort: two runs that begin within the same second may
both take it, and a run that is suspended loses it. It ends where it next looks, which is before
each file that it writes. Each file of an export is still complete.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from filelock import FileLock, Timeout

from ....operators import DataError, RejuiceError
from ...dataset.run_folder import run_folder
from ...filesystem.remote import AnyPath, RemotePath

_BEAT_S = 5.0
_WAIT_S = 20.0
"""A lease that has not changed for so long is that of a run that was killed."""


class Hold(NamedTuple):
    """An export that a run holds for itself.

    Attributes:
        export_path: the export.
        lease: in a store, the file of the lease; None: a lock of the system is held.
        owner: what the lease begins with as long as it is that of this run.
    """

    export_path: AnyPath
    lease: RemotePath | None = None
    owner: str = ""

    def check(self) -> None:
        """Check that no other run has taken the export meanwhile.

        Raises:
            RejuiceError: one has, because the lease was not renewed.
        """
        if self.lease is not None and not _is_of(self.owner, self.lease):
            found = "this run did not renew its lease, so that another may be writing"
            right = "when that has ended, run this recipe again: what was computed is kept"
            raise RejuiceError(f"{found} {self.export_path}", right)


@contextmanager
def sole_writer(export_path: AnyPath) -> Iterator[Hold]:
    """Hold an export for this run alone, with all exports that have the same run folder.

    Raises:
        RejuiceError: another run holds it.
    """
    lock = export_path.with_name(f".{run_folder(export_path).name}.lock")
    if isinstance(lock, RemotePath):
        with _lease(lock, export_path) as hold:
            yield hold
        return
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(lock, timeout=0):
            yield Hold(export_path)
    except Timeout:
        raise _refused(export_path) from None


@contextmanager
def _lease(lock: RemotePath, export_path: AnyPath) -> Iterator[Hold]:
    owner = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex}"
    before, start = _read(lock), time.monotonic()
    while before and time.monotonic() - start < _WAIT_S:
        time.sleep(_BEAT_S / 5)
        now = _read(lock)
        if now and now != before:
            raise _refused(export_path)
        before = now
    lock.write_text(f"{owner} 0")
    if not _is_of(owner, lock):
        raise _refused(export_path)
    ended = threading.Event()
    thread = threading.Thread(target=_renew, args=(lock, owner, ended), daemon=True)
    thread.start()
    try:
        yield Hold(export_path, lock, owner)
    finally:
        ended.set()
        thread.join()
        with suppress(DataError):  # Else it ends by itself; what ended the run is reported.
            if _is_of(owner, lock):
                lock.unlink(missing_ok=True)


def _renew(lock: RemotePath, owner: str, ended: threading.Event) -> None:
    for beat in itertools.count(1):
        if ended.wait(_BEAT_S):
            return
        try:
            if not _is_of(owner, lock):
                return  # This process was suspended, and another run goes on.
            lock.write_text(f"{owner} {beat}")
        except DataError:
            continue  # The run itself meets the same error where it writes, and reports it.


def _read(lock: RemotePath) -> str:
    """The content of a lease; empty where there is none."""
    return (lock.read_if_there() or b"").decode("utf-8", "replace")


def _is_of(owner: str, lock: RemotePath) -> bool:
    return _read(lock).partition(" ")[0] == owner


def _refused(export_path: AnyPath) -> RejuiceError:
    found = f"another run is writing {export_path}"
    return RejuiceError(found, "wait for it, or give another --export_path")
