"""Syncs once a second what was written meanwhile: else losing power loses it."""

from __future__ import annotations

from threading import Event, Lock, Thread
from typing import Protocol

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
