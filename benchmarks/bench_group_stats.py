"""What deduplication before the pass rate and the advantage does to both.

    python benchmarks/bench_group_stats.py [--solutions model_solutions.jsonl]

On the responses of the quickstart, which are sampled for it, and on the recorded solutions of
recipes/gsm8k_solutions.yaml where a file of them is given.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rejuice.operators import (
    ExactDeduplicator,
    GroupStatsMapper,
    GrpoAdvantageMapper,
    MinhashDeduplicator,
    RewardSumMapper,
)
from rejuice.operators.groups import Groups
from rejuice.pipelines import load, run
from rejuice.pipelines.demo.datasets import write_dataset
from rejuice.pipelines.demo.problems import DemoOptions
from rejuice.pipelines.engine.steps import run_in_memory

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
COMPARED = [RewardSumMapper(weights={"accuracy": 1.0}), GrpoAdvantageMapper()]
FAR, EASY = 0.05, 0.8


def graded(recipe: str, dataset: Path) -> pa.Table:
    """The responses of a recipe as they were sampled, with their verdicts."""
    loaded = load(RECIPES / f"{recipe}.yaml", {"dataset_path": str(dataset)})
    verify = next(step.number for step in loaded.steps if step.name == "math_verify_mapper")
    return run(loaded.replace(steps=loaded.steps[:verify], has_export=False)).table


def figures(rows: pa.Table, threshold: float) -> Iterator[tuple[str, str]]:
    """What is found of graded responses, and of those that deduplication leaves."""
    rows = run_in_memory([GroupStatsMapper()], rows)
    left = run_in_memory([ExactDeduplicator(), MinhashDeduplicator(threshold=threshold)], rows)
    repeats = rows.filter(pc.invert(pc.is_in(rows["response_id"], left["response_id"])))
    yield "responses, prompts", f"{rows.num_rows:,}, {len(Groups.of(rows).starts_G):,}"
    yield "repeated responses; of these correct", f"{repeats.num_rows}; {mean(right(repeats))}"
    yield "accuracy of all, of the rest", f"{mean(right(rows))}, {mean(right(left))}"

    # No group loses all its responses, so that both tables have the same prompts in one order.
    rate_G = rows["pass_rate"].to_numpy()[Groups.of(rows).starts_G]
    rest_G = run_in_memory([GroupStatsMapper()], left)["pass_rate"].to_numpy()
    rest_G = rest_G[Groups.of(left).starts_G]
    yield "prompts whose pass rate moves by more than 5 points", mean(abs(rest_G - rate_G) > FAR)
    easy_G = rate_G > EASY
    yield (
        "prompts above 0.8; of these 0.8 or less after",
        (f"{easy_G.sum()}; {(rest_G[easy_G] <= EASY).sum()}"),
    )

    compared, of_rest = (run_in_memory(COMPARED, mixed(table)) for table in (rows, left))
    advantages = [table["advantage"].to_numpy() for table in (compared, of_rest)]
    means = [a[right(t)].mean() for a, t in zip(advantages, (compared, of_rest), strict=True)]
    yield "mean advantage of a correct response, and after", f"{means[0]:.2f}, {means[1]:.2f}"
    positive_N = np.clip(advantages[0], 0, None)
    repeated_N = np.asarray(pc.is_in(compared["response_id"], repeats["response_id"]))
    yield (
        "share of the positive advantage that repeated responses have",
        (f"{positive_N[repeated_N].sum() / positive_N.sum():.1%}"),
    )


def right(table: pa.Table) -> np.ndarray:
    """Which responses are correct, bool[N]."""
    return np.asarray(pc.equal(table["verdict"], "correct"))


def mixed(table: pa.Table) -> pa.Table:
    """The rows of prompts with right and wrong responses, as they were sampled."""
    rate = table["pass_rate"]
    return table.filter(pc.and_(pc.greater(rate, 0), pc.less(rate, 1)))


def mean(mask: np.ndarray) -> str:
    """The share of what is true."""
    return f"{mask.mean():.1%}"


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--solutions", type=Path)
    solutions = parser.parse_args().solutions
    tables = {}
    with tempfile.TemporaryDirectory() as folder:
        prompts = Path(folder) / "prompts.jsonl"
        write_dataset(prompts, "arithmetic", DemoOptions(prompts=200, levels=(1, 2)))
        tables["quickstart"] = figures(graded("quickstart", prompts), 0.7)
        if solutions is not None:
            tables["gsm8k_solutions"] = figures(graded("gsm8k_solutions", solutions), 0.8)
        for name, lines in tables.items():
            print(name)
            print(*(f"  {what}: {found}" for what, found in lines), sep="\n")


if __name__ == "__main__":
    main()
