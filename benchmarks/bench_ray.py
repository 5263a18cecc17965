"""The CPU of `rejuice run` on Ray over that of the local engine, for the same bytes.

    python benchmarks/bench_ray.py [--rows 1000000] [--repeats 1] [--workers 1 2]

The recipe is that of bench_postprocess.py: filters, a deduplicator and a selector, so that the work
on a chunk is short. The Ray cluster is there before. CPU is user and system time of all processes,
those of the cluster included; what the same command takes for 80 rows in ten chunks, which starts
all workers, is subtracted.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil
from bench_postprocess import PROCESS, recipe, write_rollouts
from ray.cluster_utils import Cluster

REJUICE = Path(sys.executable).with_name("rejuice")
_INTERVAL_S = 0.05


class Run(NamedTuple):
    """What a run took, in seconds, and the bytes that it wrote."""

    cpu: float
    wall: float
    export: bytes


class Usage:
    """Seconds of CPU of all processes below this one, those that have ended included."""

    def __init__(self) -> None:
        self._spent: dict[tuple[int, float], float] = {}

    def so_far(self) -> float:
        """The sum, as of now; to be called often, or what a process does last is missed."""
        for each in psutil.Process().children(recursive=True):
            try:
                times = each.cpu_times()
                self._spent[each.pid, each.create_time()] = times.user + times.system
            except psutil.NoSuchProcess:
                continue
        return sum(self._spent.values())


def run(folder: Path, data: Path, chunk_rows: int, *options: str) -> Run:
    """One run of the recipe, on an empty cache."""
    usage = Usage()
    with tempfile.TemporaryDirectory(dir=folder) as name:
        path = recipe(Path(name), data, "run", PROCESS)
        command = [str(REJUICE), "run", path, "-q", "--chunk_rows", str(chunk_rows), *options]
        before, start = usage.so_far(), time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while process.poll() is None:
            usage.so_far()
            time.sleep(_INTERVAL_S)
        wall = time.perf_counter() - start
        if process.returncode:
            sys.exit(f"{' '.join(command)}: failed")
        export = (Path(name) / "run" / "curated.parquet").read_bytes()
        return Run(usage.so_far() - before, wall, export)


def main(rows: int, repeats: int, workers: list[int]) -> None:
    """Print the costs, and their ratios."""
    cluster = Cluster(True, head_node_args={"num_cpus": max(workers), "include_dashboard": False})
    where = {"local": ("--engine", "local"), "ray": ("--ray", cluster.address)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data, few = folder / "rollouts.parquet", folder / "few.parquet"
        write_rollouts(data, rows)
        write_rollouts(few, 80)
        for count in workers:
            net: dict[str, list[float]] = {engine: [] for engine in where}
            for _ in range(repeats):
                exports = set()
                for engine, options in where.items():
                    start = run(folder, few, 8, "--np", str(count), *options)
                    whole = run(folder, data, 65_536, "--np", str(count), *options)
                    net[engine].append(whole.cpu - start.cpu)
                    exports.add(whole.export)
                    print(
                        f"{engine:<6}{count} workers {rows:>10,} rows {whole.wall:7.1f} s wall "
                        f"{whole.cpu:7.1f} s CPU, of it start-up {start.cpu:5.1f}",
                        flush=True,
                    )
                assert len(exports) == 1, "the exports differ"
            ratio = median(net["ray"]) / median(net["local"])
            print(
                f"{count} workers: Ray takes {ratio:.2f} times the CPU, start-up apart", flush=True
            )
    cluster.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    main(given.rows, given.repeats, given.workers)
