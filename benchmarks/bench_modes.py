"""Seconds of a training step: sampled before its update, or ahead of it (`train.mode`).

    python benchmarks/bench_modes.py [--rounds 3] [--steps 14] [--policy FOLDER | --tool-seconds 1]

Trains by recipes/grpo_arithmetic.yaml, with the policy of a folder by
recipes/small_model/grpo.yaml, or agents by recipes/flow_lookup.yaml whose search takes some
seconds; in each mode in turns, and prints the medians of all steps but the first four. The idle
share is that of all cores of the machine in these steps, so nothing else may run. A mode that
leaves no core idle can be 1 / (1 - idle share of sync) times as fast as sync. What
`rejuice simulate` predicts from each run of sync is printed beside it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import yaml

from rejuice.operators.workers import usable_cores
from rejuice.pipelines.recipe.recipe import load_without_code
from rejuice.trainer import metrics
from rejuice.trainer.report.simulate import setups, simulate, stored_steps

_ROOT = Path(__file__).parents[1]
_REJUICE = Path(sys.executable).parent / "rejuice"
MODES = {
    "sync": [],
    "colocate_async": ["--train.mode", "colocate_async"],
    "separate_async": ["--train.mode", "separate_async", "--train.max_age", "2"],
}
"""On a CPU the two that sample ahead differ in no more than these words."""
_FIRST = 4  # steps that are left out: warming up, and catching up with what was sampled ahead


class Measured(NamedTuple):
    """What a run took."""

    seconds: float  # of a step
    tokens: float  # trained in it
    idle: float  # share of all cores
    waited: float  # seconds of a step that it waited for responses
    # of sync: how much faster it would train, had it sampled 1 or 2 steps ahead
    predicted_1: float = float("nan")
    predicted_2: float = float("nan")


_TOOLS = """
import asyncio
from rejuice.operators.agents.tools.search import Search


class SlowSearch(Search):
    '''Search, and take a while.'''

    seconds: float

    async def call(self, query: str, *, task) -> str:
        await asyncio.sleep(self.seconds)
        return await super().call(query, task=task)
"""


def with_slow_search(folder: Path, seconds: float) -> Path:
    """Write a recipe of agents whose search takes some seconds."""
    document = yaml.safe_load((_ROOT / "recipes" / "flow_lookup.yaml").read_text("utf-8"))
    (folder / "slow_search.py").write_text(_TOOLS, "utf-8")
    document["custom_operator_paths"] = [str(folder / "slow_search.py")]
    agent = next(
        s["agent_rollout_mapper"] for s in document["process"] if "agent_rollout_mapper" in s
    )
    agent["flow"]["react"]["actions"] = {"search": "slow_search", "calculate": "calculator"}
    search = {"documents": "documents", "k": 1, "seconds": seconds}
    agent["tools"] = [{"slow_search": search}, "calculator"]
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
    return path


def measure(mode: str, given: argparse.Namespace) -> Measured:
    """Train in a mode, and return what it took."""
    steps, words = given.steps, ["--train.policy", given.policy] if given.policy else []
    recipe = (
        _ROOT / "recipes" / ("small_model/grpo.yaml" if given.policy else "grpo_arithmetic.yaml")
    )
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        if given.tool_seconds is not None:
            recipe = with_slow_search(Path(folder), given.tool_seconds)
        command = [_REJUICE, "train", recipe, "--output", run, "--quiet", *words, *MODES[mode]]
        last = ["--train.steps", steps, "--train.validate_every", 0, "--train.save_every", 0]
        child = subprocess.Popen([*map(str, command), *map(str, last)], cwd=_ROOT)
        began, ended = _watched(child, run, steps)
        if child.wait():
            raise SystemExit(f"{mode}: rejuice train failed")
        predicted = predict(run) if mode == "sync" else []
        points = [each.figures for each in metrics.read(run) if _FIRST < each.step <= steps]
    cores = psutil.cpu_count() or 1
    idle = (ended.idle - began.idle) / (cores * (ended.at - began.at))
    taken = (ended.at - began.at) / (steps - _FIRST)
    tokens = [each["rejuice/response_tokens"] * each["rejuice/rows_trained"] for each in points]
    waited = [each["timing_s/gen"] for each in points]
    return Measured(*map(float, (taken, np.median(tokens), idle, np.median(waited), *predicted)))


def predict(run: Path) -> list[float]:
    """Return how much faster a run is predicted to train 1 and 2 steps ahead, per token."""
    config = load_without_code(run / "recipe.yaml").head.train
    assert config is not None
    steps = stored_steps(run, config)
    modes = setups(config, [1, 2], steps, cores=usable_cores())
    sync, *ahead = (simulate(steps, mode).tokens_per_second for mode in modes)
    return [each / sync for each in ahead]


class Moment(NamedTuple):
    """A moment in a run."""

    at: float  # seconds
    idle: float  # seconds of all cores so far


def _watched(child: subprocess.Popen[bytes], run: Path, steps: int) -> tuple[Moment, Moment]:
    """Return the moments at which the first steps and the last one were over."""
    found: dict[int, Moment] = {}
    while child.poll() is None:
        done = max((each.step for each in metrics.read(run) if each.trained), default=0)
        times = psutil.cpu_times()
        found.setdefault(done, Moment(time.perf_counter(), times.idle + times.iowait))
        time.sleep(0.2)
    return found[_FIRST], found[steps]


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=14)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--policy", help="folder of a policy; by default the embedded one")
    which.add_argument("--tool-seconds", type=float, help="train agents whose search takes so long")
    given = parser.parse_args()
    found: dict[str, list[Measured]] = defaultdict(list)
    for _ in range(given.rounds):
        for mode in MODES:
            found[mode].append(measure(mode, given))
            print(mode, found[mode][-1], flush=True)
    sync = np.median([each.seconds / each.tokens for each in found["sync"]])
    print(
        "| mode | s a step | of it waiting | idle share | tokens trained | times sync, per token |"
    )
    print("|---|---|---|---|---|---|")
    for mode, runs in found.items():
        seconds, tokens, idle, waited, *_ = (np.median(each) for each in zip(*runs, strict=True))
        ratio = sync / np.median([each.seconds / each.tokens for each in runs])
        print(
            f"| `{mode}` | {seconds:.2f} | {waited:.2f} | {idle:.2f} | {tokens:,.0f} | {ratio:.2f} |"
        )
    idle = np.median([each.idle for each in found["sync"]])
    print(f"The idle share of sync allows {1 / (1 - idle):.2f} times.")
    of_one = np.median([each.predicted_1 for each in found["sync"]])
    of_two = np.median([each.predicted_2 for each in found["sync"]])
    print(f"`rejuice simulate` predicts {of_one:.2f} times for max_age 1, {of_two:.2f} for 2.")


if __name__ == "__main__":
    main()
