"""Damage files of runs at random, and count what the next runs make of it.

    python benchmarks/bench_damage.py --count 10000 --workers 2
    python benchmarks/bench_damage.py --flips 50

Prints damages by file, by kind of damage and by state of the run, and what became of each; then
some failures with what they were. "Same result" without a message: the file was not needed, or is
written anew by each run.

With `--flips` so many single bits of each kind of file are flipped, one before each run; size and
time of the file stay as they were. All runs after a damage are given `--verify`.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from damaged_runs import RIGHT, Attempt, DamagedRuns


def attempts(count: int, at_once: int, flips: int, seed: int) -> list[Attempt]:
    """Attempts of one worker, in a folder in memory where there is one."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        runs = DamagedRuns(Path(folder))
        return list(
            runs.flips(flips, seed) if flips else runs.attempts(count, seed, at_once=at_once)
        )


def table(title: str, counts: Counter[tuple[str, str]]) -> None:
    """Print counts by row and outcome."""
    outcomes = [o for o in RIGHT if any(o == each for _, each in counts)]
    outcomes += sorted({o for _, o in counts} - set(RIGHT))
    print(f"| {title} | damages | {' | '.join(outcomes)} |")
    print("|" + "---|" * (2 + len(outcomes)))
    rows = sorted({row for row, _ in counts})
    for row in rows:
        figures = [counts[row, outcome] for outcome in outcomes]
        print(f"| {row} | {sum(figures):,} | {' | '.join(f'{n:,}' for n in figures)} |")
    totals = [sum(counts[row, outcome] for row in rows) for outcome in outcomes]
    print(f"| all | {sum(totals):,} | {' | '.join(f'{n:,}' for n in totals)} |\n")


def main() -> None:
    """Run the attempts and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000, help="damages in all")
    parser.add_argument("--at_once", type=int, default=3, help="damages before one run, at most")
    parser.add_argument("--flips", type=int, default=0, help="of each kind of file; no others")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    start = time.perf_counter()
    count, flips = (-(-each // wanted.workers) for each in (wanted.count, wanted.flips))
    seeds = range(wanted.seed, wanted.seed + wanted.workers)
    with ProcessPoolExecutor(wanted.workers, get_context("spawn")) as pool:
        done = list(pool.map(partial(attempts, count, wanted.at_once, flips), seeds))
    found = [attempt for each in done for attempt in each]
    by_file, by_damage, by_state = Counter(), Counter(), Counter()
    for attempt in found:
        for file, damage, outcome in attempt.damaged:
            by_state[attempt.state, outcome] += 1
            by_file[file, outcome] += 1
            by_damage[damage, outcome] += 1
    table("file", by_file)
    table("damage", by_damage)
    table("state of the run", by_state)
    print(f"{len(found):,} runs in {time.perf_counter() - start:.0f} s")
    print(f"{sum(a.sampled for a in found):,} samples and", end=" ")
    print(f"{sum(a.judged for a in found):,} judgements made again, where they were damaged")
    for attempt in [a for a in found if a.outcome not in RIGHT][:20]:
        print(f"\n{attempt.outcome}: {attempt.state}: {attempt.damaged}\n{attempt.details}")
    sys.exit(any(a.outcome not in RIGHT for a in found))


if __name__ == "__main__":
    main()
