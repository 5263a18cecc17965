"""A training run as `rejuice view --live` shows it: its curves so far, and its last whole step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ...pipelines.analysis.page.build import page_bytes
from ...pipelines.analysis.page.rows import page_of_stored
from .stored import open_so_far

_QUIET_S = 60.0
"""How long a run whose processes are not seen, as on another machine, may write nothing."""


class RunSoFar:
    """A training run that may still go on; see `page.live.LiveRun`.

    Args:
        folder: of the run.
        processes: returns the processes of a run on this machine.
        most_bytes: the largest page; above it, texts are left out.
        now: the time, in seconds since the epoch.
    """

    def __init__(
        self,
        folder: Path,
        processes: Callable[[Path], Sequence[object]],
        *,
        most_bytes: int,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._processes = folder.resolve(), processes
        self._most_bytes, self._now = most_bytes, now

    def version(self) -> str:
        """Return what was written last: the size of the metrics, and the last whole step."""
        whole = sorted((self._folder / "steps").glob("*/recipe.yaml"))
        metrics = self._folder / "metrics.jsonl"
        size = metrics.stat().st_size if metrics.exists() else 0
        return f"{whole[-1].parent.name if whole else 'start'}-{size}"

    def page(self, version: str) -> bytes:
        data = page_of_stored(self._folder, open_so_far(self._folder))
        return page_bytes(data, version, most_bytes=self._most_bytes)

    def is_running(self) -> bool:
        """Return whether the run has processes here, or has written within the last minute."""
        if self._processes(self._folder):
            return True
        names = ("metrics.jsonl", "verl.log", "recipe.yaml", "steps")
        there = [path for name in names if (path := self._folder / name).exists()]
        written = max((path.stat().st_mtime for path in there), default=0.0)
        return self._now() - written < _QUIET_S
