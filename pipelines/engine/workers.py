"""Workers for chunks, on this machine: this thread, a pool of threads, or a pool of processes.

Arrow and numpy release the GIL, so threads are enough for most operators and cost nothing to
start. Operators that loop over rows in Python declare it (`gil_bound`) and get processes. Workers
elsewhere are in `workers_on_ray.py`.
"""

from __future__ import annotations

import os
import re
import signal
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import islice
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from typing_extensions import Self

from ...operators import EngineError
from ...operators.registry import load_file
from ...operators.workers import exit_with_parent, limit_cores, usable_cores
from ..recipe.steps import Step
from .plan import Plan

T = TypeVar("T")
TRIES = 3
"""How often an item is run whose worker dies: by a signal, for lack of memory, with its node."""


class WorkerDiedError(Exception):
    """A worker has died; in words, of what."""


class Workers(ABC):
    """Where the work on chunks, or on other numbered parts of a run, takes place."""

    _kind: ClassVar[str]
    _under_way: int  # items that are submitted at a time
    _outlive = False  # whether workers go on when a run ends

    def map(
        self, steps: Sequence[Step], work: Callable[[int], T], count: int
    ) -> Iterator[tuple[int, T]]:
        """Numbers below `count`, and what the work gives for each, as they finish.

        Few are submitted at a time. The work and its results can be pickled; it may be called again
        with the same number, where a worker has died. `steps` are those that are still to be run.
        """
        submit = self._submit(steps, work)
        todo, deaths = iter(range(count)), Counter[int]()
        running: dict[Future[Any], int] = {}
        try:
            while True:
                for item in islice(todo, self._under_way - len(running)):
                    running[submit(item)] = item
                if not running:
                    return
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    item = running.pop(future)
                    try:
                        result = self._result(future)
                    except WorkerDiedError as error:
                        deaths[item] += 1
                        if deaths[item] == TRIES:
                            # One of those that have been together in a pool each time.
                            items = [i for i, number in deaths.items() if number >= TRIES - 1]
                            raise self._died(steps, items, count, error) from error.__cause__
                        running[submit(item)] = item
                    else:
                        yield item, result
        finally:
            if self._outlive:  # They must not write after the run.
                wait(running)

    def _died(
        self, steps: Sequence[Step], items: Collection[int], count: int, cause: Exception
    ) -> EngineError:
        """The error of an item, one of these, whose workers died `TRIES` times."""
        where = f"step {steps[0].number} {steps[0].name}" if steps else ""
        parts = " or ".join(str(item + 1) for item in sorted(items))
        found = f"the {self._kind} of part {parts} of {count} died {TRIES} times: {cause}"
        return EngineError(found, "run it again: finished parts are kept", where=where)

    @abstractmethod
    def _submit(
        self, steps: Sequence[Step], work: Callable[[int], T]
    ) -> Callable[[int], Future[Any]]:
        """What begins the work on an item."""

    @abstractmethod
    def _result(self, future: Future[Any]) -> Any:
        """What the work gave, or what it raised; `WorkerDiedError` where its worker is gone."""

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(self, *exception: object) -> None: ...


class LocalWorkers(Workers):
    """`np` workers of the kind that a stage needs, started when they are first needed."""

    _kind = "worker process"

    def __init__(self, plan: Plan) -> None:
        self._count = min(plan.recipe.head.np, len(plan.source.rows))
        self._under_way = 2 * self._count
        self._files = plan.recipe.head.custom_operator_paths
        self._threads: ThreadPoolExecutor | None = None
        self._processes: Any = None

    def map(
        self, steps: Sequence[Step], work: Callable[[int], T], count: int
    ) -> Iterator[tuple[int, T]]:
        """See `Workers.map`; a single worker is this thread."""
        if self._count > 1:
            yield from super().map(steps, work, count)
            return
        for item in range(count):
            yield item, work(item)

    def __exit__(self, *exception: object) -> None:
        if self._threads:
            from ...operators.functions.pool import close_pools, stop_pools  # It loads asyncio.

            if exception[0] is not None:  # As after Ctrl-C: what they do is of no use any more.
                stop_pools()
            self._threads.shutdown(wait=True, cancel_futures=True)
            if exception[0] is not None:
                close_pools()
        if self._processes:
            self._processes.shutdown(wait=True, kill_workers=exception[0] is not None)

    def _submit(
        self, steps: Sequence[Step], work: Callable[[int], T]
    ) -> Callable[[int], Future[Any]]:
        if any(step.operator.gil_bound for step in steps):
            return partial(self._submit_to_process, work)
        threads = self._threads = self._threads or ThreadPoolExecutor(self._count)
        return lambda item: threads.submit(work, item)

    def _submit_to_process(self, work: Callable[[int], T], item: int) -> Future[T]:
        resource_tracker.ensure_running()  # Whoever starts it unblocks the signal.
        # Workers, which are started below, inherit the mask: Ctrl-C is the parent's to handle.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._processes = self._processes or _start_processes(self._count, self._files)
            future: Future[T] = self._processes.submit(work, item)
            return future
        except BrokenExecutor:  # A worker has died, and the others were ended.
            self._processes.shutdown(wait=True, kill_workers=True)
            self._processes = None
            return self._submit_to_process(work, item)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _result(self, future: Future[Any]) -> Any:
        try:
            return future.result()
        except BrokenExecutor as error:  # All that were in the pool lose their worker.
            # What is short of the page that loky writes when a worker ends.
            codes = re.search(r"exit codes of the workers are \{(.+)\}", str(error))
            cause = codes[1] if codes else str(error).partition("\n")[0]
            raise WorkerDiedError(cause) from error


def _start_processes(count: int, files: Sequence[Path]) -> Any:
    from loky import ProcessPoolExecutor

    from ...operators.functions.pool import close_pools

    close_pools()  # Those of the preflight: each worker has pools of its own.
    cores = max(1, usable_cores() // count)
    # loky, because its workers do not import the user's __main__ once more.
    return ProcessPoolExecutor(
        count, initializer=_start_worker, initargs=(os.getpid(), cores, files)
    )


def _start_worker(parent: int, cores: int, files: Sequence[Path]) -> None:
    exit_with_parent(parent)
    limit_cores(cores)
    # Unpickling an operator of a custom file needs the file to be loaded under the same name.
    for file in files:
        load_file(file)
