"""How often signs of reward hacking alarm: in simulated clean runs, and where a hack is planted.

    python benchmarks/bench_signs.py [CLEAN [PLANTED]]

Prints the figures of docs/signs.md as tables. CLEAN runs of each kind (2,000), PLANTED of each hack
(200).
"""

import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from simulated_signs import HACKS, audited  # noqa: E402

from rejuice.operators.confidence import wilson_interval  # noqa: E402

CLEAN, PLANTED = 2_000, 200
SHAPES = {"an export": 1, "training, 40 steps": 40}
GROUPS = (50, 200)
MORE_GROUPS = (50, 200, 400)
OVER_TRAINING = {"length drift": (40, 100), "format outruns accuracy": (40,)}
"""Signs of training only, and the steps over which they are planted."""


def main() -> None:
    """Print the tables."""
    given = [int(each) for each in sys.argv[1:3]]
    clean, planted = (*given, *(CLEAN, PLANTED)[len(given) :])
    print(
        "| clean runs of 200 groups of 8 | with any alarm | 95% | p of a sign <= 0.01 | <= 0.05 |"
    )
    print("|---|---|---|---|---|")
    for name, steps in SHAPES.items():
        print_clean(name, steps, clean)
    print()
    print("| planted | groups of 8 | found | 95% |")
    print("|---|---|---|---|")
    for hack, what in HACKS.items():
        for steps in OVER_TRAINING.get(hack, (1,)):
            for groups in MORE_GROUPS if hack in OVER_TRAINING else GROUPS:
                print_planted(hack, what, steps, groups, planted)
    print()
    for groups in (200, 2_000):
        print_time(groups)


def print_clean(name: str, steps: int, runs: int) -> None:
    """How many clean runs have an alarm."""
    found = [audited(seed, steps=steps) for seed in range(runs)]
    alarms = sum(any(each.alarm for each in run.values()) for run in found)
    p_values = np.array([each.p for run in found for each in run.values() if each.p is not None])
    shares = " | ".join(f"{(p_values <= rate).mean():.2%}" for rate in (0.01, 0.05))
    print(f"| {runs:,} of {name} | {alarms} ({alarms / runs:.2%}) | {interval(alarms, runs)} | {shares} |", flush=True)  # fmt: skip


def print_planted(hack: str, what: str, steps: int, groups: int, runs: int) -> None:
    """In how many runs a planted hack is found."""
    found = sum(audited(s, hack, steps=steps, groups=groups)[hack].alarm for s in range(runs))
    what = what.replace("100 steps", f"{steps} steps")
    print(
        f"| {hack}: {what} | {groups} | {found / runs:.1%} | {interval(found, runs)} |", flush=True
    )


def print_time(groups: int) -> None:
    """Processor time of all signs of a clean run."""
    start = time.process_time()
    audited(0, groups=groups)
    print(f"{groups:,} groups of 8: {time.process_time() - start:.3f} s for a clean run")


def interval(k: int, n: int) -> str:
    """Wilson's interval of a share."""
    low, high = wilson_interval(k / n, n)
    return f"{low:.1%} to {high:.1%}"


if __name__ == "__main__":
    main()
