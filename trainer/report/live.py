"""A training run as `rejuice view --live` shows it: its curves so far, and its last whole step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

from ...pipelines.analysis.page.build import page_bytes
from ...pipelines.analysis.page.rows import page_of_stored
from ..metrics import read
from ..run import TrainingRun
from .stored import open_so_far
from .watch import RECENT, spell

_QUIET_S = 60.0
"""How long a run whose processes are not seen, as on another machine, may write nothing."""


class RunSoFar:
    """A training run that may still go on; see `page.live.LiveRun`.

    `processes` returns those of a run on this machine, `failure` why one has ended too early, and
    `now` the seconds since the epoch; above `most_bytes`, texts are left out of a page.
    """

    def __init__(
        self,
        folder: Path,
        processes: Callable[[Path], Sequence[object]],
        failure: Callable[[Path], str],
        *,
        most_bytes: int,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._processes, self._failure = folder.resolve(), processes, failure
        self._most_bytes, self._now = most_bytes, now

    def version(self) -> str:
        """What was written last: the size of the metrics, and the last whole step."""
        whole = sorted((self._folder / "steps").glob("*/recipe.yaml"))
        metrics = self._folder / "metrics.jsonl"
        size = metrics.stat().st_size if metrics.exists() else 0
        return f"{whole[-1].parent.name if whole else 'start'}-{size}"

    def page(self, version: str) -> bytes:
        data = page_of_stored(self._folder, open_so_far(self._folder))
        return page_bytes(data, version, most_bytes=self._most_bytes)

    def status(self) -> str:
        steps = TrainingRun.open(self._folder).config.steps
        trained = [point for point in read(self._folder) if point.trained]
        last = trained[-1].step if trained else 0
        written = f"last update {datetime.fromtimestamp(self._written(), UTC):%H:%M:%S} UTC"
        found = f"step {last} of {steps}"
        if last >= steps:
            return f"{found}, all trained; {written}"
        if not self.is_running():
            return f"{found}; it has ended: {self._failure(self._folder)}; {written}"
        if not trained:
            return f"{found}; {written}"
        seconds = fmean(point.seconds for point in trained[1:][-RECENT:] or trained)
        return f"{found}, {spell((steps - last) * seconds)} left; {written}"

    def is_running(self) -> bool:
        """It has processes here, or has written within the last minute."""
        return bool(self._processes(self._folder)) or self._now() - self._written() < _QUIET_S

    def _written(self) -> float:
        names = ("metrics.jsonl", "verl.log", "recipe.yaml", "steps")
        there = [path for name in names if (path := self._folder / name).exists()]
        return max((path.stat().st_mtime for path in there), default=0.0)
