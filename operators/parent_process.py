"""The end of a process with the one that has started it, however that ends."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time

_POLL_S = 0.5  # where the system cannot tell


def exit_with_parent(parent: int) -> None:
    """End this process as soon as that one has ended.

    Args:
        parent: process id of the one that has started it.
    """
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()


def _exit_with(parent: int) -> None:
    if hasattr(os, "pidfd_open"):  # Then the process may also be a fork server's child.
        with contextlib.suppress(ProcessLookupError):
            select.select([os.pidfd_open(parent)], [], [])
    else:
        while os.getppid() == parent:
            time.sleep(_POLL_S)
    os._exit(1)
