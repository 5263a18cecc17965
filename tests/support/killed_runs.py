"""Runs of which a process is killed at a random time, again and again, until one ends."""

import random
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
from forked_command import ForkedCommand
from paid_run import Paid, PaidRun, is_refused

from rejuice.operators.kept_rows import SHARED_FOLDERS
from rejuice.pipelines.engine import workers_on_ray

_LEFT_S = 20
"""How long processes of a killed run may live on, after which it counts as a failure."""
_LAST_S = 1.3
"""On a folder that is declared not local, what is paid for so shortly before a kill may be lost: a
second, and what it takes to write it."""


class Kill(NamedTuple):
    """One kill -9.

    Attributes:
        victim: `driver` or `worker`.
        share: how much of the time of a whole run had passed.
        status: with which the driver ended: -9 where it was the victim.
        output: what the command wrote.
        at: when it was, in seconds since the epoch.
    """

    victim: str
    share: float
    status: int
    output: str
    at: float


class KilledRun(NamedTuple):
    """A run that was killed some times, and went on each time.

    Attributes:
        kills: those that met a running process.
        faults: what is wrong, in words; empty: nothing.
        sampled: how many samples were made.
        resampled: how many were made once more, but for refused ones.
        temporary: unfinished files that the kills have left.
    """

    kills: tuple[Kill, ...]
    faults: tuple[str, ...]
    sampled: int
    resampled: int
    temporary: int


class _Again(NamedTuple):
    """What was paid for more than once.

    Attributes:
        count: how often, beside the last time.
        lost_early: what of it had been paid for too long before a kill to be lost.
    """

    count: int
    lost_early: list[Paid]


class KilledRuns:
    """Runs that are killed at random times.

    Args:
        folder: a new folder.
        options: of the command, such as `--np 2` or `--ray ADDRESS`.
        head: the process of the Ray cluster that runs the chunks; None: they are run by descendants
            of the driver.
        pause: seconds that each sample and each judgement takes.
        prompts: rows of the dataset.
        shared: whether the folder is declared not local.
    """

    def __init__(
        self,
        folder: Path,
        *options: str,
        head: psutil.Process | None = None,
        pause: float = 0.002,
        prompts: int = 24,
        shared: bool = False,
    ) -> None:
        self._head, self._shared = head, shared
        self._run = PaidRun(folder, prompts=prompts)
        self._arguments = [*self._run.arguments, *options]
        self._environment = {"PAUSE": str(pause)}
        if shared:
            self._environment[SHARED_FOLDERS] = str(folder)
        self._command = ForkedCommand(self._run.arguments, folder / "output.log")
        self._run.paid()
        self._right = self._run.result()
        shutil.rmtree(self._run.out)
        start = time.perf_counter()
        ended = self._command.run(*self._arguments, environment=self._environment)
        self._whole_s = time.perf_counter() - start
        if ended.status or self._run.result() != self._right:
            raise AssertionError(f"another result even without a kill: {ended}")
        self._run.paid()

    def runs(
        self, kills: int, seed: int, *, workers: bool = False, at_most: int = 6
    ) -> Iterator[KilledRun]:
        """Runs until `kills` processes have been killed.

        Args:
            kills: how many in all.
            seed: of the times, and of the choice of processes.
            workers: whether workers are killed as well as drivers.
            at_most: how often one run is killed.
        """
        rng, left = random.Random(seed), kills
        while left > 0:
            run = self._killed(rng, workers, rng.randint(1, min(at_most, left)))
            left -= len(run.kills)
            yield run

    def _killed(self, rng: random.Random, workers: bool, times: int) -> KilledRun:
        shutil.rmtree(self._run.out)
        kills, faults = [], []
        for _ in range(times):
            share = rng.uniform(0.0, 1.0)
            victim = "worker" if workers and rng.random() < 0.5 else "driver"
            kill = self._kill(victim, share, rng)
            if kill is not None:
                kills.append(kill)
                faults += _faults_of(kill)
        # At once: what is left of the killed runs may still be writing.
        ended = self._command.run(*self._arguments, environment=self._environment)
        if ended.status:
            faults.append(f"the last run ended with {ended.status}: {ended.output}")
        elif self._run.result() != self._right:
            faults.append("another result")
        samples, judgements = self._run.log()
        again = self._again([each for each in samples if not is_refused(each.what)], kills)
        judged_again = self._again(judgements, kills)
        if again.lost_early:
            faults.append(f"samples were made again: {again.lost_early}")
        if judged_again.lost_early:
            faults.append(f"responses were judged again: {judged_again.lost_early}")
        faults += _left_processes(self._run.folder)
        temporary = [p for p in self._run.out.rglob(".*") if p.is_file() and p.suffix != ".lock"]
        return KilledRun(tuple(kills), tuple(faults), len(samples), again.count, len(temporary))

    def _again(self, paid: list[Paid], kills: list[Kill]) -> "_Again":
        """What was paid for again: how often, and what of it must not have been lost."""
        last = {each.what: each for each in paid}
        lost = [each for each in paid if each is not last[each.what]]
        late = [k.at for k in kills] if self._shared else []
        early = [e for e in lost if not any(at - _LAST_S <= e.at <= at + 0.5 for at in late)]
        return _Again(len(lost), early)

    def _kill(self, victim: str, share: float, rng: random.Random) -> Kill | None:
        """Start the command and kill one of its processes; None where it had ended before."""
        driver = self._command.start(*self._arguments, environment=self._environment)
        # The time of a whole run, though much of it may be done: some kills come too late.
        deadline = time.perf_counter() + share * self._whole_s
        process = psutil.Process(driver)
        while time.perf_counter() < deadline and process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.001)
        killed, at = False, 0.0
        while not killed and process.status() != psutil.STATUS_ZOMBIE:
            # A worker that has a chunk, and the first one if there is none at this time.
            victims = [process] if victim == "driver" else _workers_of(self._head or process)
            if victims:
                with suppress(psutil.NoSuchProcess):  # It has just ended.
                    at = time.time()
                    rng.choice(victims).kill()
                    killed = True
            else:
                time.sleep(0.001)
        ended = self._command.wait(driver)
        return Kill(victim, share, ended.status, ended.output, at) if killed else None


def _workers_of(root: psutil.Process) -> list[psutil.Process]:
    """Processes below `root` that run chunks: loky's workers, or Ray's that have a task."""
    found = []
    for process in root.children(recursive=True):
        try:
            line = " ".join(process.cmdline()).strip()
        except psutil.Error:
            continue  # It has ended.
        # The title of a process of Ray's is the task that it runs, IDLE, or an agent of the node.
        if "popen_loky" in line or line == f"ray::{workers_on_ray._run.__name__}":
            found.append(process)
    return found


def _faults_of(kill: Kill) -> list[str]:
    """What is wrong with how the command ended."""
    if kill.victim == "driver":
        return []
    if kill.status not in (0, 2):
        return [f"a worker was killed, and the command ended with {kill.status}"]
    if "Traceback" in kill.output:
        return ["a worker was killed, and the command gave a traceback"]
    return []


def _left_processes(folder: Path) -> list[str]:
    """What of the killed runs still runs."""
    deadline = time.perf_counter() + _LEFT_S
    while True:
        left = []
        for process in psutil.process_iter(["pid", "cwd", "cmdline"]):
            line = " ".join(process.info["cmdline"] or ())
            if "popen_loky" in line and str(folder) in (process.info["cwd"] or ""):
                left.append(process.info["pid"])
        if not left:
            return []
        if time.perf_counter() > deadline:
            return [f"processes {left} are left"]
        time.sleep(0.1)
