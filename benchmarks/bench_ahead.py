"""Held-out accuracy at equal tokens: responses of the current policy, or of older ones.

    python benchmarks/bench_ahead.py [--seeds 5] [--steps 40] [--systems sync ...]
    python benchmarks/bench_ahead.py --table     # of the runs that are there

Each system is recipes/grpo_arithmetic.yaml with 32 prompts a step, and samples ahead or not. The
update starts from the policy that sampled (`ratio`), from the current one with importance weights of
tokens (`weights`), or from the current one as if it had sampled itself (`none`). Every 5 steps, 400
held-out problems are answered once. Intervals are Student's, 95%, over seeds.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from bench_curriculum import ran, reached
from bench_grpo import interval

from rejuice.trainer import metrics

_ROOT = Path(__file__).parents[1]
_REJUICE = Path(sys.executable).parent / "rejuice"
_RUNS = _ROOT / "outputs" / "bench_ahead"
_AIM = 0.75
_WEIGHTS: list[dict[str, Any]] = [{"importance_weight_mapper": None}]
_NO_RATIO = {"verl": {"algorithm.rollout_correction.bypass_mode": False}}
SYSTEMS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "sync": ([], {"mode": "sync"}),
    **{
        f"age {age}, {name}": (steps, {"mode": "separate_async", "max_age": age, **fields})
        for age in (1, 4)
        for name, steps, fields in (
            ("ratio", [], {}),
            ("weights", _WEIGHTS, {}),
            ("none", [], _NO_RATIO),
        )
    },
}
"""By name, the steps after the advantage, and fields of `train`."""


def recipe(name: str, folder: Path, steps: int, seed: int) -> Path:
    """Write the recipe of a system."""
    document = yaml.safe_load((_ROOT / "recipes" / "grpo_arithmetic.yaml").read_text("utf-8"))
    data = folder.parent
    document["dataset_path"] = str(data / "train.jsonl")
    document["export_path"] = str(folder / "curated.parquet")
    own = {"type": "arithmetic", "levels": [1, 2]}
    document["generated_datasets"] = {
        str(data / "train.jsonl"): {**own, "prompts": 6400},
        str(data / "validation.jsonl"): {**own, "prompts": 400, "split": "validation"},
    }
    more, fields = SYSTEMS[name]
    document["process"] += more
    document["train"] |= {
        "validation_path": str(data / "validation.jsonl"), "validate_every": 5, "steps": steps,
        "seed": seed, "save_every": 0, "prompts_per_step": 32, **fields,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "recipe_given.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
    return path


def _folder(name: str, seed: int) -> Path:
    return _RUNS / f"{name.replace(', ', '-').replace(' ', '')}-{seed}"


def train(name: str, seed: int, steps: int) -> None:
    """Run a system, unless its run is finished."""
    folder = _folder(name, seed)
    if not (folder / "curves.png").exists():
        path = recipe(name, folder, steps, seed)
        subprocess.run([_REJUICE, "train", path, "--output", folder, "--quiet"], check=True)


def table(systems: list[str], seeds: int, steps: int) -> None:
    """Print what the runs show."""
    print(f"| system | seeds | held-out at the end | mean of all validations | tokens to {_AIM} | tokens in all |")  # fmt: skip
    print("|---|---|---|---|---|---|")
    for name in systems:
        folders = [_folder(name, seed) for seed in range(seeds)]
        folders = [each for each in folders if (each / "curves.png").exists()]
        if not folders:
            continue
        of_runs = [[p for p in metrics.read(each) if p.step <= steps] for each in folders]
        held_out = [[p.validation for p in run if p.validation is not None] for run in of_runs]
        spent = [sum(p.generated for p in run if p.trained) for run in of_runs]
        to_aim = [reached(each, steps).tokens for each in folders]
        columns = ([v[-1] for v in held_out], [float(np.mean(v)) for v in held_out], to_aim, spent)
        shown = " | ".join(interval(np.array(each)) for each in columns)
        print(f"| {name} | {len(folders)} | {shown} |")


def main() -> None:
    """Run, and print the table."""
    given = ran(__doc__, SYSTEMS, 40, train)
    table(given.systems, given.seeds, given.steps)


if __name__ == "__main__":
    main()
