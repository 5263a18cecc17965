"""Puts on the disk, once a second, what was written to some files: else losing power loses it."""

from __future__ import annotations

import os
from threading import Event, Lock, Thread
from typing import Protocol

EVERY_S = 1.0


class OpenFile(Protocol):
    """A file that is open."""

    def fileno(self) -> int: ...


class Syncer:
    """A thread that syncs files, so that whoever writes them need not wait for the disk.

    Args:
        every_s: seconds from one round to the next.
    """

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._dirty = set[OpenFile]()
        self._syncing, self._closed = Lock(), Event()
        self._error: OSError | None = None
        self._every_s = every_s
        self._thread = Thread(target=self._run, name="syncer", daemon=True)

    def written(self, file: OpenFile) -> None:
        """Have a file synced in the next round.

        Raises:
            OSError: what was written before to some file could not be put on the disk.
        """
        self._dirty.add(file)
        if self._error is not None:
            raise self._error

    def forget(self, file: OpenFile) -> None:
        """Leave a file alone from now on: it is going to be closed."""
        with self._syncing:
            self._dirty.discard(file)

    def __enter__(self) -> Syncer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(self._every_s):
            with self._syncing:
                while self._dirty:
                    try:
                        os.fsync(self._dirty.pop().fileno())
                    except OSError as error:  # Raised where the next entry is written.
                        self._error = error
