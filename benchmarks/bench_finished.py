"""A finished run again, against `rejuice check` of the same recipe: wall time and processor time.

python benchmarks/bench_finished.py [rounds] [rows ...]

A run that has nothing to do should cost what starting costs. By default with 1,000 and 1,000,000
rows as Parquet, 8 responses to a prompt of about 500 characters each; in turns, medians. Also what
a run costs whose export is gone and whose commits are all there.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import Cost, cost

REJUICE = str(Path(sys.executable).with_name("rejuice"))
RESPONSES = 8
RECIPE = """
dataset_path: {folder}/rows.parquet
export_path: {folder}/out/curated.parquet
process:
  - group_stats_mapper:
  - pass_rate_filter: {{min: 0.01, max: 0.99}}
  - length_filter: {{min: 1}}
  - reward_sum_mapper: {{weights: {{accuracy: 1.0}}}}
  - grpo_advantage_mapper:
  - exact_deduplicator:
"""


def main(rounds: int, sizes: list[int]) -> None:
    """Print a line for each number of rows."""
    print("| rows | export, MB | check, s | finished run, s | wall | CPU | export again: wall |")
    print("|---|---|---|---|---|---|---|")
    for rows in sizes:
        with tempfile.TemporaryDirectory() as folder:
            print(_line(Path(folder), rows, rounds), flush=True)


def _line(folder: Path, rows: int, rounds: int) -> str:
    pq.write_table(_rows(rows), folder / "rows.parquet")
    recipe, export = folder / "recipe.yaml", folder / "out" / "curated.parquet"
    recipe.write_text(RECIPE.format(folder=folder))
    cost(REJUICE, "run", str(recipe), "--quiet")
    checks, again = list[Cost](), list[Cost]()
    for _ in range(rounds):
        checks.append(cost(REJUICE, "check", str(recipe)))
        again.append(cost(REJUICE, "run", str(recipe), "--quiet"))
    size = export.stat().st_size / 1e6
    export.unlink()
    exported = cost(REJUICE, "run", str(recipe), "--quiet")
    check, run = (statistics.median(c.wall for c in costs) for costs in (checks, again))
    cpu = [statistics.median(c.cpu for c in costs) for costs in (checks, again)]
    figures = f"{check:.2f} | {run:.2f} | {run / check:.2f}x | {cpu[1] / cpu[0]:.2f}x"
    return f"| {rows:,} | {size:.0f} | {figures} | {exported.wall / check:.2f}x |"


def _rows(rows: int) -> pa.Table:
    draw = np.random.default_rng(0)
    prompts = np.arange(rows) // RESPONSES
    words = np.array([f"word{n} " for n in range(1_000)])
    texts = ["".join(words[draw.integers(0, len(words), 70)]) for _ in range(min(rows, 20_000))]
    at = np.arange(rows)
    responses = pa.array(texts).take(pa.array(at % len(texts)))
    accuracy = draw.integers(0, 2, rows).astype(float)
    return pa.table(
        {
            "prompt_id": pa.array(np.char.add("p", prompts.astype(str))),
            "response_id": pa.array(np.char.add("r", at.astype(str))),
            "response": responses,
            "verdict": pa.array(np.where(accuracy > 0, "correct", "wrong_answer")),
            "reward_accuracy": pa.array(accuracy),
            "reward_accuracy_missing": pa.nulls(rows, pa.string()),
        }
    )


if __name__ == "__main__":
    main(int([*sys.argv, 5][1]), [int(each) for each in sys.argv[2:]] or [1_000, 1_000_000])
