"""Time of a confined call, against `subprocess.run` of the same program, in turns in one run.

    python benchmarks/bench_sandbox.py

`subprocess` confines nothing; `-I -S` is the quickest start that this interpreter has. Imports cost
time there, and none in the sandbox, whose fork server has the modules. Processor time is that of
this process, the fork server and all programs.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil

from rejuice.operators.sandbox.run import Sandbox
from rejuice.operators.workers import usable_cores

PROGRAMS = {
    "print": "print(6 * 7)",
    "imports": "import collections, fractions, json, re, statistics, datetime\nprint(6 * 7)",
}
ROUNDS = 60


def child(*flags: str) -> Callable[[str], str]:
    """Runs a program in a process of this interpreter."""

    def run(source: str) -> str:
        command = [sys.executable, *flags, "-c", source]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    return run


def processor_seconds(server: psutil.Process) -> float:
    """Those of this process, of what it has waited for, and of the fork server and its programs."""
    return sum(os.times()[:4]) + sum(server.cpu_times()[:4])


def main() -> None:
    """Print the tables."""
    print(
        f"load {os.getloadavg()[0]:.1f}; median milliseconds a call of {ROUNDS}, and processor time"
    )
    with Sandbox(workers=usable_cores()) as sandbox:
        start = time.perf_counter()
        sandbox.run("")
        print(
            f"the first call, with the start of the fork server: {time.perf_counter() - start:.2f} s"
        )
        server = psutil.Process(sandbox.pid)
        ways: dict[str, Callable[[str], str]] = {
            "sandbox": lambda source: sandbox.run(source).stdout,
            "python -c": child(),
            "python -I -S -c": child("-I", "-S"),
        }
        for name, source in PROGRAMS.items():
            wall = {way: list[float]() for way in ways}
            processor = dict.fromkeys(ways, 0.0)
            for _ in range(ROUNDS):
                for way, run in ways.items():
                    before, start = processor_seconds(server), time.perf_counter()
                    assert run(source) == "42\n"
                    wall[way].append(time.perf_counter() - start)
                    processor[way] += processor_seconds(server) - before
            ours = statistics.median(wall["sandbox"])
            for way in ways:
                took = statistics.median(wall[way])
                print(
                    f"{name:<8} {way:<16} {took * 1e3:6.1f} ms {took / ours:5.1f} x "
                    f"{processor[way] / ROUNDS * 1e3:6.1f} CPU ms"
                )
        with ThreadPoolExecutor(usable_cores()) as threads:
            start = time.perf_counter()
            list(threads.map(sandbox.run, [PROGRAMS["print"]] * 500))
            rate = 500 / (time.perf_counter() - start)
        print(f"{rate:,.0f} calls a second by {usable_cores()} workers")


if __name__ == "__main__":
    main()
