"""Mutate recipes, reports, manifests, datasets and their metadata at random; run commands on them.

    python benchmarks/bench_fuzz.py --count 20000
    python benchmarks/bench_fuzz.py --draw 4711      # one of them again

Prints what became of the draws, by what was mutated, and each kind of fault with a draw that
repeats it: a traceback, a crash, a hang, or a message that is not one line.
"""

import argparse
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from fuzzed_inputs import RIGHT, Found, FuzzedInputs


def table(found: list[Found]) -> None:
    """Print counts by target and outcome."""
    counts = Counter((each.target, each.outcome) for each in found)
    outcomes = [*RIGHT, *sorted({outcome for _, outcome in counts} - set(RIGHT))]
    print(f"| mutated | draws | {' | '.join(outcomes)} |")
    print("|" + "---|" * (2 + len(outcomes)))
    for row in sorted({target for target, _ in counts}):
        figures = [counts[row, outcome] for outcome in outcomes]
        print(f"| {row} | {sum(figures):,} | {' | '.join(f'{n:,}' for n in figures)} |")


def main() -> None:
    """Run the draws and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="draws in all")
    parser.add_argument("--seed", type=int, default=0, help="the number of the first draw")
    parser.add_argument("--draw", type=int, help="only this one, with all details")
    wanted = parser.parse_args()
    numbers = range(wanted.seed, wanted.seed + wanted.count)
    if wanted.draw is not None:
        numbers = range(wanted.draw, wanted.draw + 1)
    start = time.perf_counter()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        found = list(FuzzedInputs(Path(folder)).draws(numbers))
    table(found)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = f"{time.perf_counter() - start:.0f} s, {used.ru_utime + used.ru_stime:.0f} CPU-s"
    print(f"\n{len(found):,} draws in {spent}")
    faults = [each for each in found if each.outcome not in RIGHT]
    kinds = Counter((each.outcome, each.kind) for each in faults)
    for (outcome, kind), many in kinds.most_common():
        first = next(each for each in faults if (each.outcome, each.kind) == (outcome, kind))
        print(f"\n{many} times {outcome}: {kind}; --draw {first.number}\n{first.details}")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
