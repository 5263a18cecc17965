"""Can the embedded policy learn? Plain GRPO, and held-out accuracy while it goes on.

    python benchmarks/bench_learning.py [PATH] [--steps 100] [--rate 1e-4] [--spread 0.3]

One update a step, on 64 prompts with 8 responses each; the reward is accuracy plus 0.1 for the
form. --spread adds a bonus to right responses whose style at most half of their group has.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rejuice.pipelines.demo.problems import problem

sys.path.extend(str(Path(__file__).parents[1] / each) for each in (".", "tests/support"))

from plain_sampling import EMBEDDED, Sample, load, prompt_ids, sample
from policy_figures import judging, solving

from tools.embedded_policy.problems import LEVELS, STYLES

_PROMPTS, _RESPONSES, _AT_ONCE = 64, 8, 128


def advantages(group: list[Sample], reference: str, spread: float) -> torch.Tensor:
    """Rewards less their mean, over their standard deviation; 0 where all are equal."""
    styles = Counter(one.style for one in group)
    rewards = [
        (one.answer == reference) * (1 + spread * (2 * styles[one.style] <= len(group)))
        + (0.1 if one.tidy else -0.1)
        for one in group
    ]
    rewards_N = torch.tensor(rewards)
    return (rewards_N - rewards_N.mean()) / (rewards_N.std() + 1e-6)


def update(model: Any, optimizer: Any, rows: list[tuple[list[int], list[int], float]]) -> None:
    """One step along the policy gradient; every token counts the same."""
    rows = sorted((row for row in rows if row[2]), key=lambda row: len(row[0]) + len(row[1]))
    tokens = sum(len(response) for _, response, _ in rows)
    for first in range(0, len(rows), _AT_ONCE):
        some = rows[first : first + _AT_ONCE]
        length = max(len(prompt) + len(response) for prompt, response, _ in some)
        ids = torch.tensor([p + r + [0] * (length - len(p) - len(r)) for p, r, _ in some])
        at = torch.cat(
            [
                i * length + torch.arange(len(p) - 1, len(p) + len(r) - 1)
                for i, (p, r, _) in enumerate(some)
            ]
        )
        weight = torch.cat([torch.full((len(r),), advantage) for _, r, advantage in some])
        hidden = model.model(ids, use_cache=False).last_hidden_state.flatten(0, 1)[at]
        nll = torch.nn.functional.cross_entropy(
            model.lm_head(hidden), ids.flatten()[at + 1], reduction="none"
        )
        ((nll * weight).sum() / tokens).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def evaluate(model: Any, tokenizer: Any, step: int, seconds: float) -> None:
    """Print a line of the learning curve."""
    found = solving(model, tokenizer, 200)
    judged = judging(model, tokenizer, 200)["balanced accuracy"]
    styles = "  ".join(f"{name} {found[f'style {name}'].split()[0]}" for name in STYLES)
    print(
        f"step {step:3}  pass@1 {found['pass@1']:.3f}  pass@8 {found['pass@8']:.3f}  "
        f"form {found['well-formed']:.3f}  tokens {found['tokens per response']:.1f}  "
        f"judging {judged:.3f}  | {styles} | {seconds:.0f} s",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, and print the curve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", nargs="?", type=Path, default=EMBEDDED)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--spread", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    model, tokenizer = load(given.path)
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.rate, weight_decay=0.0)
    generator = torch.Generator().manual_seed(given.seed)
    start = time.perf_counter()
    evaluate(model, tokenizer, 0, 0)
    for step in range(1, given.steps + 1):
        chosen = [
            problem(1000 + given.seed, "train", step * _PROMPTS + i, LEVELS)
            for i in range(_PROMPTS)
        ]
        prompts = [each.question for each in chosen]
        groups = sample(model, tokenizer, prompts, _RESPONSES, generator)
        rows = [
            (prompt, one.ids, advantage)
            for each, prompt, group in zip(
                chosen, prompt_ids(tokenizer, prompts), groups, strict=True
            )
            for one, advantage in zip(
                group, advantages(group, str(each.reference), given.spread).tolist(), strict=True
            )
        ]
        update(model, optimizer, rows)
        if step % given.every == 0:
            evaluate(model, tokenizer, step, time.perf_counter() - start)


if __name__ == "__main__":
    main()
