"""What a language model as judge says of the recorded responses, and what its reward would do.

    python benchmarks/bench_real_judge.py GSM8K_TEST.jsonl --server URL --model NAME
        [--prompt data_juicer] [--answer_format text] [--groups 12] [--timeout_s 600]

The responses are those of tests/data/real_responses, of the first groups that have right and wrong
ones; the problems are not part of the project. How many verdicts are malformed, how the rewards are
spread, whether right responses get more than wrong ones of their group, and how the advantages of
GRPO change when the quality is added to the accuracy. Answers are kept in the cache that the
operator always has, so a run that was stopped goes on, and one that has ended is printed again.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from real_responses import RECIPE, N, overrides

from rejuice.operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from rejuice.operators.mapper.llm_quality_reward_mapper import LlmQualityRewardMapper
from rejuice.operators.mapper.reward_sum_mapper import RewardSumMapper
from rejuice.pipelines.engine.run import run
from rejuice.pipelines.engine.steps import run_in_memory
from rejuice.pipelines.recipe import load

_UNTIL_PASS_RATE = 4  # steps of the recipe


def main() -> None:
    """Have the responses judged, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("problems", type=Path)
    parser.add_argument("--server", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt", choices=["short", "data_juicer"], default="short")
    parser.add_argument("--answer_format", default="json_schema")
    parser.add_argument("--groups", type=int, default=12)
    parser.add_argument("--timeout_s", type=float, default=600)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    judge = LlmQualityRewardMapper(
        model=given.model,
        prompt=given.prompt,
        answer_format=given.answer_format,
        server={"base_url": given.server, "concurrency": 2, "timeout_s": given.timeout_s},
    )
    start = time.perf_counter()
    judged = run_in_memory([judge], mixed_groups(given.problems, given.groups))
    seconds = time.perf_counter() - start
    print(f"{given.model}, {given.prompt}: {judged.num_rows} responses, {seconds:.0f} s")
    _print_rewards(judged)
    _print_order(judged)
    _print_advantages(judged)


def mixed_groups(problems: Path, count: int) -> pa.Table:
    """The graded responses of the first `count` groups that have right and wrong ones."""
    with tempfile.TemporaryDirectory() as made:
        recipe = load(RECIPE, overrides(problems, Path(made)))
        report = run(recipe.replace(steps=recipe.steps[:_UNTIL_PASS_RATE]))
        graded = pq.read_table(report.export_path)
    mixed = pc.and_(pc.greater(graded["pass_rate"], 0), pc.less(graded["pass_rate"], 1))
    return graded.filter(mixed).slice(0, count * N)


def _print_rewards(judged: pa.Table) -> None:
    print("  missing:", dict(Counter(judged["reward_quality_missing"].drop_null().to_pylist())))
    found = Counter(judged["reward_quality"].drop_null().to_pylist())
    print("  rewards:", ", ".join(f"{value:.3f} x {n}" for value, n in sorted(found.items())))


def _print_order(judged: pa.Table) -> None:
    """Which one is judged better, for each pair of a right and a wrong response of a group."""
    order: Counter[str] = Counter()
    for rows in _groups_of(judged):
        right, wrong = (
            [row["reward_quality"] for row in rows if (row["reward_accuracy"] == 1) is side]
            for side in (True, False)
        )
        for better, worse in product(right, wrong):
            if better is not None and worse is not None:
                order["above" if better > worse else "below" if better < worse else "equal"] += 1
    print("  right against wrong ones of their group:", dict(order))


def _print_advantages(judged: pa.Table) -> None:
    alone, both = (
        run_in_memory(
            [RewardSumMapper(weights=weights, on_missing="group_mean"), GrpoAdvantageMapper()],
            judged,
        )["advantage"].to_numpy()
        for weights in ({"accuracy": 1.0}, {"accuracy": 1.0, "quality": 1.0})
    )
    right = judged["reward_accuracy"].to_numpy() == 1
    print(f"  advantages that change their sign: {(np.sign(alone) != np.sign(both)).sum()}")
    for name, which in (("right", right), ("wrong", ~right)):
        print(f"  {name}: mean advantage {alone[which].mean():.3f} -> {both[which].mean():.3f}")
    print(f"  correlation of the advantages: {np.corrcoef(alone, both)[0, 1]:.3f}")


def _groups_of(table: pa.Table) -> list[list[dict[str, Any]]]:
    rows = table.select(["reward_quality", "reward_accuracy"]).to_pylist()
    return [rows[at : at + N] for at in range(0, len(rows), N)]


if __name__ == "__main__":
    main()
