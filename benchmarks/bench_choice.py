"""The choice of the prompts of a training step, beside a group-by of the same history in polars.

    python benchmarks/bench_choice.py [--prompts 1000000] [--visits 2000000] [--rounds 5]

The history has so many visits, of prompts at random, 512 in a step. The choice is that of
`history_mapper`, `retire_filter` and `difficulty_selector`. The group-by finds, of each prompt, its
visits, the last pass rate, the mean of all, and the last step. The two alternate in
one process.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from rejuice.operators import build, get
from rejuice.operators.training_step import PerStepOperator, StepContext
from rejuice.pipelines.recipe.steps import Step
from rejuice.trainer.verl.choice import order
from rejuice.trainer.verl.history import HISTORY

STEPS: dict[str, dict[str, float]] = {
    "history_mapper": {},
    "retire_filter": {"visits": 2, "for_steps": 200},
    "difficulty_selector": {"explore": 0.2},
}
_OF_A_STEP = 512


def history(names: pa.Array, visits: int) -> pa.Table:
    """Return visits of prompts at random, in the order of their steps."""
    random = np.random.default_rng(0)
    prompt_V = random.integers(len(names), size=visits)
    columns = {
        "step": np.arange(visits) // _OF_A_STEP + 1,
        "prompt_id": names.take(pa.array(prompt_V)),
        "n": np.full(visits, 8),
        "graded": np.full(visits, 8),
        "pass_rate": random.integers(9, size=visits) / 8,
        "response_tokens": random.integers(100, 1000, size=visits).astype(float),
        "trained": random.integers(9, size=visits),
    }
    none = pa.nulls(visits)
    return pa.table({f.name: columns.get(f.name, none) for f in HISTORY}).cast(HISTORY)


def grouped(visits: pa.Table) -> int:
    """Group the visits by prompt in polars; how many prompts there are."""
    found = (
        pl.from_arrow(visits.select(["step", "prompt_id", "pass_rate"]))
        .group_by("prompt_id")
        .agg(
            pl.len(),
            pl.col("pass_rate").last().alias("last"),
            pl.col("pass_rate").mean().alias("mean"),
            pl.col("step").max(),
        )
    )
    return len(found)


def seconds(work: Callable[[], object]) -> float:
    """Return how long some work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=1_000_000)
    parser.add_argument("--visits", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    names = pa.array([f"{n:032x}" for n in range(given.prompts)])
    prompts = pa.table({"prompt_id": names, "prompt_row": np.arange(given.prompts)})
    visits = history(names, given.visits)
    last = int(visits["step"][-1].as_py())
    # As a run has it, which adds the visits of each step to those before.
    row_V = pc.index_in(visits["prompt_id"], value_set=names).cast(pa.int64())
    numbered = visits.append_column("prompt_row", row_V)
    context = StepContext(last + 1, 0.5, _OF_A_STEP, 0, numbered)
    made = [(name, build(get(name), fields)) for name, fields in STEPS.items()]
    steps = [
        Step(n, name, each.at_step(context) if isinstance(each, PerStepOperator) else each)
        for n, (name, each) in enumerate(made, 1)
    ]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ours, theirs = list[float](), list[float]()
    for _ in range(given.rounds):
        theirs.append(seconds(lambda: grouped(visits)))
        ours.append(seconds(lambda: order(prompts, steps, context)))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    ratio = np.median(np.array(ours) / np.array(theirs))
    print(
        f"{given.prompts:,} prompts, {given.visits:,} visits: choice {np.median(ours):.2f} s, "
        f"group-by {np.median(theirs):.2f} s, ratio {ratio:.2f} (median of {given.rounds}, each in "
        f"turn); memory grew by {grown:.2f} GiB"
    )


if __name__ == "__main__":
    main()
