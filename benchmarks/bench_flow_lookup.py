"""An agent that is trained on recipes/flow_lookup.yaml: held-out success before and after.

    python benchmarks/bench_flow_lookup.py [--seeds 3] [--steps 40]
    python benchmarks/bench_flow_lookup.py --table    # of the runs that are there

Each run is `rejuice train`; finished ones are not run again. Success is that of 400 tasks of the test
split, whose people appear in no other, with 4 trajectories each at temperature 1, through the flow and
the tools of the recipe. Intervals are Student's, 95%, over seeds; that of the policy before training,
which is one, is over tasks. Minutes are by the wall, start-up included. The curve of a run is
`rejuice report outputs/bench_flow_lookup/seed-* --curves curves.png`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from rejuice.operators.groups import Array
from rejuice.operators.sampling.engines import EMBEDDED_FLOW
from rejuice.trainer import metrics

sys.path.extend(str(Path(__file__).parents[1] / each) for each in (".", "tests/support"))

from lookup_figures import playing

_ROOT = Path(__file__).parents[1]
_RUNS = _ROOT / "outputs" / "bench_flow_lookup"
_REJUICE = Path(sys.executable).parent / "rejuice"
_MEASURED = "measured.json"
_TASKS, _TRAJECTORIES = 400, 4
_SHOWN = ("success", "turns", "tool errors per call", "without an answer")


def train(seed: int, steps: int | None) -> None:
    """One run and what its policy can do then, unless it is there."""
    folder = _RUNS / f"seed-{seed}"
    if (folder / _MEASURED).exists():
        return
    more = [] if steps is None else ["--steps", str(steps)]
    start = time.perf_counter()
    subprocess.run(
        [
            _REJUICE, "train", _ROOT / "recipes" / "flow_lookup.yaml", "--output", folder,
            "--train.seed", str(seed), *more,
        ],
        cwd=_ROOT,
        check=True,
    )  # fmt: skip
    minutes = (time.perf_counter() - start) / 60
    found = {**measured(folder / "policy"), "minutes": minutes}
    (folder / _MEASURED).write_text(json.dumps(found))


def measured(policy: Path) -> dict[str, float]:
    """What a policy can do on held-out tasks."""
    return playing(policy, _TASKS, _TRAJECTORIES, "test")


def interval(values: Array) -> str:
    """Mean and half the width of its interval."""
    if len(values) < 2:
        return f"{values.mean():.3f}"
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.3f} ± {half:.3f}"


def table() -> None:
    """Print what the runs show."""
    runs = sorted(file.parent for file in _RUNS.glob(f"seed-*/{_MEASURED}"))
    if not runs:
        sys.exit(f"there is no finished run in {_RUNS}")
    before = measured(EMBEDDED_FLOW)
    after = [json.loads((run / _MEASURED).read_text()) for run in runs]
    kinds = [name for name in before if name.startswith("kind ")]
    names = (*_SHOWN, *kinds)
    print(f"\n{_TASKS} held-out tasks, {_TRAJECTORIES} trajectories each, {len(runs)} seeds")
    print("| | before | after | " + " | ".join(run.name for run in runs) + " |")
    print("|---" * (len(runs) + 3) + "|")
    for name in names:
        values = np.array([each[name] for each in after])
        first = f"{before[name]:.3f}"
        if name == "success":
            first += f" ± {before['interval']:.3f}"
        cells = [first, interval(values), *(f"{value:.3f}" for value in values)]
        print(f"| {name} | " + " | ".join(cells) + " |")
    gains = np.array([each["success"] - before["success"] for each in after])
    print("| gain in success | | " + " | ".join([interval(gains), *map("{:+.3f}".format, gains)]) + " |")  # fmt: skip
    minutes = np.array([each["minutes"] for each in after])
    print("| minutes | | " + " | ".join([interval(minutes), *map("{:.1f}".format, minutes)]) + " |")
    for run in runs:
        points = {point.step: point.validation for point in metrics.read(run)}
        curve = ", ".join(f"{n}: {value:.3f}" for n, value in points.items() if value is not None)
        print(f"{run.name}: held-out success by step, {curve}")


def main() -> None:
    """Run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="by default those of the recipe")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if not given.table:
        for seed in range(given.seeds):
            train(seed, given.steps)
            sys.stdout.flush()
    table()


if __name__ == "__main__":
    main()
