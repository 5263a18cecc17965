"""Time of the format check, ours against regular expressions in use, in one run.

    python benchmarks/bench_format.py

The patterns are measured as published: `think_answer` is the one of open-r1's `format_reward`
(https://github.com/huggingface/open-r1/blob/main/src/open_r1/rewards.py), `geo3k` that of verl
(https://github.com/volcengine/verl/blob/main/verl/utils/reward_score/geo3k.py). They accept more
than ours does, so this compares time, not verdicts.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pyarrow as pa

from rejuice.operators.mapper.format_reward_mapper import FormatRewardMapper, is_tagged

THINK_ANSWER = [("<think>", "</think>"), ("<answer>", "</answer>")]
PEERS = {
    "think_answer": re.compile(r"^<think>.*?</think>\s*<answer>.*?</answer>$", re.DOTALL | re.M),
    "geo3k": re.compile(r"<think>.*</think>.*\\boxed\{.*\}.*", re.DOTALL),
}
REPEATED = "<think>a b</think> so \\boxed{1 2 3\n"
ROWS = 200_000


def right(characters: int) -> str:
    """A response of the right form of about so many characters."""
    thought = "so 2 + 2 = 4, then. " * (characters // 20 - 2)
    return f"<think>{thought}</think>\n<answer>\\boxed{{4}}</answer>"


def seconds(check: Callable[[str], object], text: str, budget: float = 0.3) -> float:
    """Least time of one call, over as many calls as fit into the budget (at least one)."""
    best, end = float("inf"), time.perf_counter() + budget
    while best == float("inf") or time.perf_counter() < end:
        start = time.perf_counter()
        check(text)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Print the table."""
    texts = {f"right, {n:,} characters": right(n) for n in (300, 64_000)}
    # geo3k takes time with the cube of these: the last is left to ours alone.
    texts |= {f"repeated {n} times": REPEATED * n for n in (50, 100, 200)}
    print(f"{'microseconds a call':<28}{'ours':>12}" + "".join(f"{name:>16}" for name in PEERS))
    for name, text in texts.items():
        ours = seconds(lambda text: is_tagged(text, THINK_ANSWER), text)
        peers = [seconds(peer.fullmatch, text) for peer in PEERS.values()]
        print(f"{name:<28}{ours * 1e6:>12.2f}" + "".join(f"{t * 1e6:>16.2f}" for t in peers))
    hostile = REPEATED * 1500
    ours = seconds(lambda text: is_tagged(text, THINK_ANSWER), hostile)
    print(f"{f'repeated 1500 times, {len(hostile) / 1000:.0f} kB':<28}{ours * 1e6:>12.2f}")
    table = pa.table({"response": [right(300)] * ROWS})
    start = time.process_time()
    FormatRewardMapper().apply(table)
    rate = ROWS / (time.process_time() - start)
    print(f"the mapper, 300 characters a row: {rate:,.0f} rows per CPU-second")


if __name__ == "__main__":
    main()
