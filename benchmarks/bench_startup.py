"""The start of `rejuice train`: time and processor time from the command to the first step.

python benchmarks/bench_startup.py [rounds]: a run of one step of `recipes/grpo_arithmetic.yaml`,
as it is, without its fork server (each process loads all libraries itself), and TRL's GRPOTrainer
on the same prompts, in turns. No validation, no checkpoints. About three minutes a round on two
cores; nothing else should run beside it. Libraries are compiled once (.pyc files are written), as
where a user has run them before.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import bench_trl
import psutil

from rejuice.pipelines.demo.datasets import write_dataset
from rejuice.pipelines.demo.problems import DemoOptions

PLAIN = (
    "from rejuice.trainer.cpu import fork_server; fork_server.is_supported = lambda: False; "
    "from rejuice.pipelines.cli.main import main; main()"
)
COMPILED = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
NAMES = (
    (r"ray::(\w+)", "ray::{}"),
    (r"(gcs_server|raylet|log_monitor|dashboard/agent|runtime_env/agent|dashboard|monitor)", "{}"),
    (r"forked_python", "waiting for a fork"),
    (r"fork_server", "fork server, driver, sampling processes"),
    (r"setup_worker|default_worker", "a worker that starts"),
    (r"main_ppo", "driver"),
    (r"multiprocessing.connection", "sampling processes"),
)


class Start(NamedTuple):
    """What a start cost.

    Attributes:
        wall: seconds from the command to the first step.
        seconds: of processor time until then, by process.
        memory: MiB of all processes then, what they share counted once.
    """

    wall: float
    seconds: Mapping[str, float]
    memory: float


def main(rounds: int) -> None:
    """Run all in turns and print the tables."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_dataset(
            folder / "prompts.jsonl", "arithmetic", DemoOptions(prompts=256, levels=(1, 2))
        )
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
        kinds: dict[str, Callable[[], Start]] = {
            "`rejuice train`": lambda: rejuice(folder, [str(bench_trl.BIN / "rejuice")]),
            "without the fork server": lambda: rejuice(folder, [sys.executable, "-c", PLAIN]),
            "TRL": lambda: trl(folder),
        }
        found: dict[str, list[Start]] = {name: [] for name in kinds}
        for _ in range(rounds):
            for name, start in kinds.items():
                found[name].append(start())
                print(f"{name}: {found[name][-1].wall:.1f} s", flush=True)
    print("\n| | to the first step, s | processor time, s | processes | memory, MiB |")
    print("|---|---|---|---|---|")
    for name, starts in found.items():
        wall = statistics.median(start.wall for start in starts)
        cpu = statistics.median(sum(start.seconds.values()) for start in starts)
        memory = statistics.median(start.memory for start in starts)
        print(f"| {name} | {wall:.1f} | {cpu:.1f} | {len(starts[-1].seconds)} | {memory:.0f} |")
    for name, starts in found.items():
        print(f"\n{name}, the last start:")
        for process, seconds in Counter(starts[-1].seconds).most_common(24):
            print(f"  {seconds:6.1f} s  {process}")
    print(f"\nload {os.getloadavg()[0]:.1f}")


def rejuice(folder: Path, command: Sequence[str]) -> Start:
    """A run of one step."""
    run = Path(tempfile.mkdtemp(dir=folder)) / "run"
    flags = {
        "dataset_path": folder / "prompts.jsonl",
        "steps": 1,
        "output": run,
        "train.validation_path": "null",
        "train.save_every": 0,
    }
    words = [word for key, value in flags.items() for word in (f"--{key}", str(value))]
    log = run / "verl.log"

    def begun() -> bool:
        return log.exists() and b"Training Progress" in log.read_bytes()

    return _start([*command, "train", str(bench_trl.RECIPE), *words, "--quiet"], begun)


def trl(folder: Path) -> Start:
    """TRL in one process of all threads; in more, each would load its libraries."""
    run = Path(tempfile.mkdtemp(dir=folder))
    job = {"dataset": str(folder / "prompts.jsonl"), "run": str(run), "steps": 1}
    job |= {"rows": 64, "processes": 1, "config": {}}
    threads = {"OMP_NUM_THREADS": str(os.cpu_count() or 1)}
    command = [sys.executable, str(Path(bench_trl.__file__)), "--trl", json.dumps(job)]
    return _start(command, (run / "begun").exists, threads)


def _start(
    command: Sequence[str], begun: Callable[[], bool], environment: Mapping[str, str] | None = None
) -> Start:
    loud = None if os.environ.get("VERBOSE") else subprocess.DEVNULL
    env = {**COMPILED, **(environment or {})}
    seconds: dict[int, tuple[str, float]] = {}
    clock = time.perf_counter()
    with subprocess.Popen(command, env=env, stdout=loud, stderr=loud) as process:
        while process.poll() is None and not begun():
            seconds.update(_seconds(process.pid))
            time.sleep(0.1)
        wall = time.perf_counter() - clock
        if process.poll() is not None:
            sys.exit(f"{command[0]} ended before its first step; VERBOSE=1 shows why")
        seconds.update(_seconds(process.pid))
        memory = sum(each.memory_full_info().pss for each in _tree(process.pid)) / 2**20
    named = {f"{name} ({pid})": cpu for pid, (name, cpu) in seconds.items() if cpu >= 0.05}
    return Start(wall, named, memory)


def _tree(pid: int) -> Iterator[psutil.Process]:
    root = psutil.Process(pid)
    yield from (root, *root.children(recursive=True))


def _seconds(pid: int) -> dict[int, tuple[str, float]]:
    """Name and processor time of a process and all below it."""
    found = {}
    for each in _tree(pid):
        try:
            times, line = each.cpu_times(), " ".join(each.cmdline())
        except psutil.Error:
            continue  # It has ended.
        found[each.pid] = (_name(line), times.user + times.system)
    return found


def _name(line: str) -> str:
    for pattern, name in NAMES:
        if match := re.search(pattern, line):
            return name.format(*match.groups())
    return "the command"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
