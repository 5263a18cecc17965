"""Kill processes of runs with SIGKILL at random times, and check what the next run makes of it.

    python benchmarks/bench_kills.py --kills 200
    python benchmarks/bench_kills.py --kills 60 --shared
    python benchmarks/bench_kills.py --kills 60 --on-ray
    python benchmarks/bench_kills.py --kills 10 -- --ray local --np 2

Three of four kills meet a run of one process, the others a run with two worker processes: its
driver or a worker. With `--shared` the folder is declared not local, as on NFS: what was paid for
within the last second before a kill may be paid for again, and nothing else. With `--on-ray` chunks are run by two workers of a Ray cluster, which outlives
the drivers. Options after `--` are given to all runs instead; `--ray local` has each run start a
Ray of its own.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import psutil
from killed_runs import KilledRun, KilledRuns
from ray_head import ray_head


def killed(
    kills: int,
    seed: int,
    options: list[str],
    *,
    head: psutil.Process | None = None,
    shared: bool = False,
) -> list[KilledRun]:
    """Runs that were killed, in a folder in memory where there is one."""
    memory = Path("/dev/shm")
    # Of Ray a task takes longer to start, and to end with its driver: work must take longer yet.
    pause = 0.02 if head is not None or shared else 0.002
    prompts = 96 if shared else 24  # That much is kept before the last second.
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        place = Path(folder)
        runs = KilledRuns(place, *options, head=head, pause=pause, prompts=prompts, shared=shared)
        return list(runs.runs(kills, seed, workers="--np" in options))


def killed_on_ray(kills: int, seed: int) -> list[KilledRun]:
    """As `killed`, on a Ray cluster."""
    with ray_head() as cluster:
        options = ["--ray", cluster.address, "--np", "2"]
        return killed(kills, seed, options, head=cluster.process)


def main() -> None:
    """Kill, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shared", action="store_true", help="on a folder declared not local")
    parser.add_argument("--on-ray", action="store_true", help="on a Ray cluster")
    parser.add_argument("options", nargs="*", help="of all runs")
    wanted = parser.parse_args()
    start = time.perf_counter()
    if wanted.on_ray:
        found = {"two workers on Ray": killed_on_ray(wanted.kills, wanted.seed)}
    elif wanted.options:
        runs = killed(wanted.kills, wanted.seed, wanted.options, shared=wanted.shared)
        found = {" ".join(wanted.options): runs}
    else:
        alone = wanted.kills * 3 // 4
        found = {
            name: killed(kills, wanted.seed, options, shared=wanted.shared)
            for name, kills, options in (
                ("one process", alone, []),
                ("two workers", wanted.kills - alone, ["--np", "2"]),
            )
        }
    print("| run | killed | kills | samples | made again | same result, nothing lost |")
    print("|---|---|---|---|---|---|")
    for name, runs in found.items():
        victims = Counter(kill.victim for run in runs for kill in run.kills)
        for victim, kills in sorted(victims.items()):
            of_victim = [r for r in runs if any(k.victim == victim for k in r.kills)]
            sampled, again = (
                sum(getattr(r, f) for r in of_victim) for f in ("sampled", "resampled")
            )
            right = sum(not run.faults for run in of_victim)
            share = f"{right:,} of {len(of_victim):,} runs"
            print(f"| {name} | {victim} | {kills:,} | {sampled:,} | {again:,} | {share} |")
    every = [run for runs in found.values() for run in runs]
    statuses = Counter(k.status for r in every for k in r.kills if k.victim == "worker")
    print(f"a worker killed: the command ended with {dict(statuses)}")
    print(f"{sum(r.temporary for r in every):,} unfinished files were left by the kills")
    print(f"{len(every):,} runs in {time.perf_counter() - start:.0f} s")
    for run in [run for run in every if run.faults][:10]:
        print(f"\n{run.faults}")
        for kill in run.kills:
            print(f"{kill.victim} at {kill.share:.2f}: {kill.status}: {kill.output[-1500:]}")
    sys.exit(any(run.faults for run in every))


if __name__ == "__main__":
    main()
