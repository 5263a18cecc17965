"""Only one run writes an export, and its run folder, at a time.

On disk a lock of the system is held, which ends with its process. In an object store a run keeps a
lease, see `dataset/lease.py`. One that was suspended loses it, and ends where it next looks,
which is before it puts files in place. Each file of an export is still complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from filelock import FileLock, Timeout

from ....operators import RejuiceError
from ....operators.disk import check_is_file
from ...dataset.lease import leased
from ...dataset.remote import AnyPath, RemotePath
from ...dataset.run_folder import run_folder


class Hold(NamedTuple):
    """An export that a run holds for itself.

    Attributes:
        export_path: the export.
        claim: in a store, what is there as long as the lease is not lost; None: a lock of the
            system is held.
    """

    export_path: AnyPath
    claim: RemotePath | None = None

    def check(self) -> None:
        """Check that no other run has taken the export meanwhile.

        Raises:
            RejuiceError: one has, because the lease was not renewed.
        """
        if self.claim is not None and not self.claim.exists():
            found = "this run did not renew its lease, so that another may be writing"
            right = "when that has ended, run this recipe again: what was computed is kept"
            raise RejuiceError(f"{found} {self.export_path}", right)


@contextmanager
def sole_writer(export_path: AnyPath) -> Iterator[Hold]:
    """Hold an export for this run alone, with all exports that have the same run folder.

    Raises:
        RejuiceError: another run holds it.
    """

    def refuse() -> None:
        found = f"another run is writing {export_path}"
        raise RejuiceError(found, "wait for it, or give another --export_path")

    lock = export_path.with_name(f".{run_folder(export_path).name}.lock")
    if isinstance(lock, RemotePath):
        with leased(lock, refuse) as claim:
            yield Hold(export_path, claim)
        return
    lock.parent.mkdir(parents=True, exist_ok=True)
    check_is_file(lock)
    try:
        with FileLock(lock, timeout=0):
            yield Hold(export_path)
    except Timeout:
        refuse()
