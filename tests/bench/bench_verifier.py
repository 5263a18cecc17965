"""Rates of `verify_batch`, `verify` and math-verify, per core, on GSM8K model solutions.

    python tests/bench/bench_verifier.py [model_solutions.jsonl]

Every response is distinct, and nothing is cached between calls: the caches of parsed numbers
are emptied before each repetition. CPU seconds are those of this process and its children.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from rejuice.operators.verifier import verify, verify_batch
from rejuice.operators.verifier.exact import read_plain

DATA = Path(__file__).resolve().parents[2] / "../shared/data/gsm8k/model_solutions.jsonl"
MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")


def rows(path: Path) -> tuple[list[str], list[str], list[bool]]:
    """Distinct responses with their references and published labels."""
    distinct = dict[tuple[str, str], bool]()
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        reference = record["ground_truth"].rsplit("A:", 1)[1].strip()
        for model in MODELS:
            distinct[record[model]["solution"], reference] = record[model]["is_correct"]
    responses, references = zip(*distinct, strict=True)
    return list(responses), list(references), list(distinct.values())


def cpu_seconds() -> float:
    """CPU time of this process, its live children and those that ended."""
    me = psutil.Process()
    own = me.cpu_times()
    children = [c.cpu_times() for c in me.children(recursive=True)]
    return (
        own.user
        + own.system
        + own.children_user
        + own.children_system
        + sum(c.user + c.system for c in children)
    )


def measured(function: Callable[[], list[bool]], repeats: int) -> tuple[float, list[bool]]:
    """Best CPU seconds of some repetitions (clock resolution: 10 ms), and the verdicts."""
    best = float("inf")
    verdicts: list[bool] = []
    for _ in range(repeats):
        start = cpu_seconds()
        verdicts = function()
        best = min(best, cpu_seconds() - start)
    return best, verdicts


def main() -> None:
    """Print one table."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA
    responses, references, labels = rows(path)
    loops = 20  # so that the 10 ms clock does not matter

    def ours() -> list[bool]:
        for _ in range(loops):
            read_plain.cache_clear()
            verdicts = verify_batch(responses, references, workers=1)
        return [v.verdict == "correct" for v in verdicts]

    def one_by_one() -> list[bool]:
        for _ in range(loops):
            read_plain.cache_clear()
            verdicts = [verify(*pair) for pair in zip(responses, references, strict=True)]
        return [v.verdict == "correct" for v in verdicts]

    from math_verify import parse
    from math_verify import verify as is_equal

    logging.getLogger("math_verify").setLevel(logging.ERROR)

    def math_verify() -> list[bool]:
        return [
            is_equal(
                parse(f"${reference}$", parsing_timeout=None),
                parse(response, parsing_timeout=None),
                timeout_seconds=None,
            )
            for response, reference in zip(responses, references, strict=True)
        ]

    ours_s, ours_verdicts = measured(ours, 3)
    each_s, each_verdicts = measured(one_by_one, 3)
    theirs_s, theirs_verdicts = measured(math_verify, 1)
    n = len(responses)
    print(f"{n} distinct responses, {time.strftime('%Y-%m-%d')}, python {sys.version.split()[0]}")
    print(f"{'':24}{'responses per CPU-s':>20}{'wrong verdicts':>16}")
    for name, seconds, verdicts in (
        ("verify_batch", ours_s / loops, ours_verdicts),
        ("verify, one by one", each_s / loops, each_verdicts),
        ("math-verify", theirs_s, theirs_verdicts),
    ):
        wrong = sum(v != label for v, label in zip(verdicts, labels, strict=True))
        print(f"{name:24}{n / seconds:20,.0f}{wrong:16d}")
    print(f"math-verify to verify_batch: {theirs_s / (ours_s / loops):.0f}")
    print(f"verify to verify_batch: {each_s / ours_s:.2f}")


if __name__ == "__main__":
    main()
