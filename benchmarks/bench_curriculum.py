"""Steps and generated tokens until the embedded policy solves 75% of held-out problems.

    python benchmarks/bench_curriculum.py [--seeds 5] [--steps 50] [--systems uniform retire ...]
    python benchmarks/bench_curriculum.py --table     # of the runs that are there

Each system is recipes/grpo_arithmetic.yaml with groups without signal dropped, and its own steps;
`uniform`, `refill` and `replay` sample in a shuffled order. A third of the training problems is of
level 3, which this policy does not learn in 80 steps (0.015 to 0.019), a third each of levels 1 and
2, which it does. Every 5 steps, 600 held-out problems of levels 1 and 2 are answered once; where
0.75 lies between two validations is interpolated. Intervals are Student's, 95%, over seeds; ratios
are those to `uniform` of the same seed. A seed that does not get there counts as its last step, and
is reported.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from bench_grpo import interval

from rejuice.trainer import metrics

_ROOT = Path(__file__).parents[1]
_REJUICE = Path(sys.executable).parent / "rejuice"
_RUNS = _ROOT / "outputs" / "bench_curriculum"
_AIM = 0.75
_EVERY = 5  # steps between validations
_HISTORY: dict[str, Any] = {"history_mapper": None}
SYSTEMS: dict[str, list[dict[str, Any]]] = {
    "uniform": [],
    "refill": [],
    "retire": [_HISTORY, {"retire_filter": {"visits": 1, "for_steps": 20}}],
    "difficulty": [_HISTORY, {"difficulty_selector": {}}],
    "replay": [],
}
"""By name, the steps before the sampling. `replay` has others, after it, and `refill` samples more."""


class Reached(NamedTuple):
    """When a run had solved so many of the held-out problems."""

    steps: float
    tokens: float  # generated to train on
    last: float  # held-out accuracy at the end
    reached: bool


def recipe(name: str, folder: Path, steps: int, seed: int) -> Path:
    """Write the recipe of a system."""
    document = yaml.safe_load((_ROOT / "recipes" / "grpo_arithmetic.yaml").read_text("utf-8"))
    data = folder.parent
    document["dataset_path"] = str(data / "train.jsonl")
    document["export_path"] = str(folder / "curated.parquet")
    train, held_out = ({"type": "arithmetic", "levels": levels} for levels in ([1, 2, 3], [1, 2]))
    document["generated_datasets"] = {
        str(data / "train.jsonl"): {**train, "prompts": 2000},
        str(data / "validation.jsonl"): {**held_out, "prompts": 600, "split": "validation"},
    }
    process = document["process"]
    at = next(n for n, step in enumerate(process) if "policy_rollout_mapper" in step)
    process[-1:-1] = [{"reward_std_filter": None}]
    if name == "replay":
        process[-1:-1] = [{"replay_selector": None}]
        process.append({"importance_weight_mapper": None})
    process[at:at] = SYSTEMS[name]
    document["train"] |= {
        "validation_path": str(data / "validation.jsonl"), "validate_every": _EVERY,
        "steps": steps, "seed": seed, "save_every": 0, "prompts_per_step": 32,
        "refill": 3 if name == "refill" else 0,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "recipe_given.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
    return path


def train(name: str, seed: int, steps: int) -> None:
    """Run a system, unless its run is finished."""
    folder = _RUNS / f"{name}-{seed}"
    if (folder / "curves.png").exists():
        return
    path = recipe(name, folder, steps, seed)
    subprocess.run([_REJUICE, "train", path, "--output", folder, "--quiet"], check=True)


def reached(folder: Path, steps: int) -> Reached:
    """Return when a run has reached the aim in its first steps, so many."""
    points = [point for point in metrics.read(folder) if point.step <= steps]
    spent_S = np.concatenate([[0.0], np.cumsum([p.generated for p in points if p.trained])])
    found = {p.step: p.validation for p in points if p.validation is not None}
    at_S, accuracy = np.array(sorted(found)), np.array([found[step] for step in sorted(found)])
    above = np.flatnonzero(accuracy >= _AIM)
    if not len(above):
        return Reached(float(at_S[-1]), float(spent_S[-1]), float(accuracy[-1]), reached=False)
    at = above[0]
    step = float(np.interp(_AIM, accuracy[at - 1 : at + 1], at_S[at - 1 : at + 1]))
    tokens = float(np.interp(step, np.arange(len(spent_S)), spent_S))
    return Reached(step, tokens, float(accuracy[-1]), reached=True)


def table(systems: list[str], steps: int) -> None:
    """Print what the runs show."""
    found = {
        name: {
            int(folder.name.rpartition("-")[2]): reached(folder, steps)
            for folder in sorted(_RUNS.glob(f"{name}-*"))
            if (folder / "curves.png").exists()
        }
        for name in systems
    }
    print(f"| system | reached {_AIM:.2f} | steps | tokens | held-out at the end | tokens of uniform / its own |")  # fmt: skip
    print("|---|---|---|---|---|---|")
    for name, runs in found.items():
        seeds = sorted(runs.keys() & found["uniform"].keys())
        ratios = np.array([found["uniform"][seed].tokens / runs[seed].tokens for seed in seeds])
        columns = [np.array([getattr(r, key) for r in runs.values()]) for key in Reached._fields]
        at, tokens, last, there = columns
        print(
            f"| {name} | {int(there.sum())} of {len(there)} | {interval(at)} | "
            f"{interval(tokens)} | {interval(last)} | {interval(ratios)} |"
        )


def ran(
    doc: str | None, systems: Collection[str], steps: int, train: Callable[[str, int, int], None]
) -> argparse.Namespace:
    """Run the systems that the command line names, with each seed; return what it says."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--systems", nargs="+", default=list(systems), choices=systems)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    for seed in range(0 if given.table else given.seeds):
        for name in given.systems:
            train(name, seed, given.steps)
    return given


def main() -> None:
    """Run, and print the table."""
    given = ran(__doc__, SYSTEMS, 50, train)
    there = [name for name in given.systems if any(_RUNS.glob(f"{name}-*/curves.png"))]
    table(there, given.steps)


if __name__ == "__main__":
    main()
