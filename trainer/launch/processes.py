"""The processes of a run, known by their environment.

If the process that started them is killed, Ray's processes outlive it, and then have no parent that
would show to which run they belong.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..run import RUN_VARIABLE

_PATIENCE_S = 8.0  # Ray takes some seconds to end its workers.


def of_run(folder: Path) -> list[Any]:
    """The processes of a run, as psutil's objects, without this one."""
    import psutil

    found, wanted = [], str(folder)
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(RUN_VARIABLE) == wanted:
                found.append(process)
        except psutil.Error:
            continue  # It has ended, or belongs to another user.
    return found


def end_all(folder: Path, *, but: int | None = None) -> None:
    """Wait for the processes of a run to end, then terminate those that do not.

    Args:
        folder: of the run.
        but: the id of a process that is left alone.
    """
    import psutil

    def found() -> list[Any]:
        return [process for process in of_run(folder) if process.pid != but]

    try:
        _, left = psutil.wait_procs(found(), timeout=_PATIENCE_S)
        for process in left:
            _send(process.terminate)
        psutil.wait_procs(left, timeout=_PATIENCE_S)
    finally:
        for process in found():
            _send(process.kill)


def _send(signal: Any) -> None:
    import psutil

    try:
        signal()
    except psutil.NoSuchProcess:
        return
