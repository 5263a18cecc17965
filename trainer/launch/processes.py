"""The processes of a run, known by their environment.

Ray's outlive what started them when that is killed, and then have no parent that would tell whose
they are.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..run import MARK

_PATIENCE_S = 8.0  # Ray takes some seconds to end its workers.


def of_run(folder: Path) -> list[Any]:
    """The processes of a run, as psutil has them; this one is none of them."""
    import psutil

    found, wanted = [], str(folder)
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == wanted:
                found.append(process)
        except psutil.Error:
            continue  # It has ended, or is another user's.
    return found


def end_all(folder: Path) -> None:
    """Wait for the processes of a run to end, then end those that do not."""
    import psutil

    try:
        _, left = psutil.wait_procs(of_run(folder), timeout=_PATIENCE_S)
        for process in left:
            _send(process.terminate)
        psutil.wait_procs(left, timeout=_PATIENCE_S)
    finally:
        for process in of_run(folder):
            _send(process.kill)


def _send(signal: Any) -> None:
    import psutil

    try:
        signal()
    except psutil.NoSuchProcess:
        return
