"""Run a command as a process of its own and say what it cost."""

import os
import subprocess
import sys
import threading
import time
from typing import NamedTuple

import psutil


class Cost(NamedTuple):
    """What a process and its children took: seconds, and MiB at the peak of their sum."""

    wall: float
    cpu: float
    anonymous: float  # MiB that only memory can hold; files that are mapped are not in it
    resident: float  # MiB of the largest process, mapped files included
    proportional: float  # MiB at the peak of their sum, mapped files included, shared pages once


def cost(*command: str, **environment: str) -> Cost:
    """The cost of a command; it must succeed."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=None if os.environ.get("VERBOSE") else subprocess.DEVNULL,
    )
    peak = [0.0, 0.0]
    watcher = threading.Thread(target=_watch, args=(process.pid, peak))
    watcher.start()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    wall = time.perf_counter() - start
    watcher.join()
    if status:
        sys.exit(f"{' '.join(command)}: failed")
    cpu = usage.ru_utime + usage.ru_stime
    return Cost(wall, cpu, peak[0], usage.ru_maxrss / 1024, peak[1])


def _watch(pid: int, peak: list[float]) -> None:
    while psutil.pid_exists(pid):
        try:
            tree = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
            anonymous = sum(_mib(process.pid, "status", "RssAnon") for process in tree)
            proportional = sum(_mib(process.pid, "smaps_rollup", "Pss:") for process in tree)
        except (psutil.Error, FileNotFoundError, ProcessLookupError):
            return
        peak[:] = max(peak[0], anonymous), max(peak[1], proportional)
        time.sleep(0.05)


def _mib(pid: int, file: str, name: str) -> float:
    with open(f"/proc/{pid}/{file}") as figures:
        for line in figures:
            if line.startswith(name):
                return int(line.split()[1]) / 1024
    return 0.0
