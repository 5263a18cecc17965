"""Tokens that an update on a CPU computes, by verl's micro-batches and by ours.

    python benchmarks/bench_passes.py RUN [--steps 1 10 20 40] [--tokens 1165]

verl divides a batch by length, so the responses to a prompt are in several micro-batches, each of
which computes the prompt; `passes` keeps them together. Both are given the rows that the steps of a
run trained on, and tokens are counted, not timed.
"""

from __future__ import annotations

import argparse
from math import ceil
from pathlib import Path

import pyarrow.parquet as pq
import torch
from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions

from rejuice.trainer.cpu.workers import Shared, passes


def by_length(lengths: torch.Tensor, most: int) -> list[list[int]]:
    """verl's micro-batches: as few as have at most so many tokens each, prompts repeated."""
    parts = ceil(int(lengths.sum()) / most)
    while True:
        workload = calculate_workload(lengths).tolist()
        found: list[list[int]] = get_seqlen_balanced_partitions(workload, parts, equal_size=False)
        if all(int(lengths[each].sum()) <= most for each in found):
            return found
        parts += 1


def main(run: Path, steps: list[int], most: int) -> None:
    """Print the table."""
    print("| step | rows | verl: micro-batches, tokens | ours | ratio of tokens |")
    print("|---|---|---|---|---|")
    for step in steps:
        file = run / "steps" / f"{step:06d}" / "curated.parquet"
        table = pq.read_table(file, columns=["prompt_token_ids", "response_token_ids"])
        prompts, responses = (list(map(torch.tensor, c.to_pylist())) for c in table.columns)
        lengths = torch.tensor(list(map(len, prompts))) + torch.tensor(list(map(len, responses)))
        cells, tokens = [], []
        for parts in (by_length(lengths, most), passes(prompts, responses, most)):
            sizes = [
                Shared.of([prompts[row] for row in rows], [responses[row] for row in rows])
                for rows in parts
            ]
            tokens.append(sum(each.layout.tokens for each in sizes))
            cells.append(f"{len(parts)}, {tokens[-1]:,}")
        print(
            f"| {step} | {len(prompts)} | {cells[0]} | {cells[1]} | {tokens[0] / tokens[1]:.2f} |"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 10, 20, 40])
    parser.add_argument("--tokens", type=int, default=1165)
    given = parser.parse_args()
    main(given.run, given.steps, given.tokens)
