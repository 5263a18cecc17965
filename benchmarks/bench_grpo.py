"""Plain GRPO, a diversity reward and a quality reward, at the same number of generated tokens.

    python benchmarks/bench_grpo.py [--seeds 5] [--steps 50] [--recipes grpo_arithmetic ...]
    python benchmarks/bench_grpo.py --table    # of the runs that are there

Each run is `rejuice train` on the embedded policy; finished ones are not run again. The budget is
what the thriftiest run has generated in all. Accuracy is that on the held-out problems, between
two validations in a straight line; the other figures are means over the last five steps before
the budget is spent, whose problems no step had seen before. Intervals are Student's, 95%, over seeds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy.stats import t as student

from rejuice.operators.groups import Array, Groups
from rejuice.operators.mapper.group_stats_mapper import GroupStatsMapper
from rejuice.trainer import metrics

_ROOT = Path(__file__).parents[1]
_RUNS = _ROOT / "outputs" / "bench_grpo"
_REJUICE = Path(sys.executable).parent / "rejuice"
_RECIPES = ("grpo_arithmetic", "grpo_diversity", "grpo_quality")
_LAST = 5  # steps whose mean is reported


class Run(NamedTuple):
    """What is known of a run.

    Attributes:
        tokens_S: generated up to and with each step.
        values_S: by name, a figure of each step.
        validated: held-out accuracy by step, from step 0.
        folder: of the run.
        ours_S: rejuice's share of the time of each step, once its last group is sampled.
    """

    tokens_S: Array
    values_S: dict[str, Array]
    validated: dict[int, float]
    folder: Path
    ours_S: Array


def data() -> None:
    """Problems to train on, each once, and held-out ones."""
    for split, prompts in (("train", 6400), ("validation", 400)):
        path = _ROOT / "outputs" / "arithmetic" / f"{split}.jsonl"
        words = ["--prompts", str(prompts), "--split", split, "--responses", "0"]
        subprocess.run([_REJUICE, "data", path, *words, "--levels", "1,2"], check=True)


def train(
    recipe: str, seed: int, steps: int, recipes: Path = _ROOT / "recipes", runs: Path = _RUNS
) -> None:
    """One run, unless it is there."""
    folder = runs / f"{recipe}-{seed}"
    if (folder / "curves.png").exists():
        return
    subprocess.run(
        [
            _REJUICE, "train", recipes / f"{recipe}.yaml", "--output", folder,
            "--steps", str(steps), "--train.seed", str(seed), "--train.save_every", "0",
        ],
        cwd=_ROOT,
        check=True,
    )  # fmt: skip


def load(folder: Path) -> Run:
    """A finished run."""
    points = metrics.read(folder)
    steps = [point.figures for point in points if point.trained]
    names = {
        "pass rate": "rejuice/pass_rate",
        "entropy": "actor/entropy_loss",
        "length": "rejuice/response_tokens",
    }
    # A step without signal is not updated, and has no entropy.
    values = {
        name: np.array([step.get(key, np.nan) for step in steps]) for name, key in names.items()
    }
    ours, whole = (
        np.array([step[key] for step in steps])
        for key in ("rejuice/seconds/after_sampling", "timing_s/step")
    )
    tokens = np.array([step["rejuice/tokens_sampled"] for step in steps])  # judgements included
    found = {p.step: p.validation for p in points if p.validation is not None}
    return Run(np.cumsum(tokens), values, found, folder, ours / whole)


def distinct(folder: Path, step: int) -> float:
    """Different right responses to a prompt, mean over the prompts that a step sampled."""
    table = sampled(folder / "steps" / f"{step:06d}")
    right = table.filter(pc.equal(table["verdict"], "correct"))
    counts = right.group_by("prompt_id").aggregate([("response", "count_distinct")])
    prompts = len(table["prompt_id"].unique())
    return float(pc.sum(counts["response_count_distinct"]).as_py() or 0) / prompts


def paths(folder: Path, step: int) -> float:
    """Different sequences of equations among the right responses to a prompt, mean of a step.

    Prompts whose right responses have no equations are left out.
    """
    table = sampled(folder / "steps" / f"{step:06d}")
    found = GroupStatsMapper(solution_paths=True).map(table)["solution_paths"]
    return float(pc.mean(found.take(pa.array(Groups.of(table).starts_G))).as_py() or 0)


def sampled(folder: Path) -> pa.Table:
    """Return all responses of a step with their verdicts, those that its recipe dropped too."""
    table = pq.read_table(folder / "rollouts.parquet", columns=["prompt_id", "response"])
    values = pq.read_table(folder / "values.parquet", columns=["verdict"])
    return table.append_column("verdict", values["verdict"])


def at_budget(run: Run, budget: float) -> dict[str, float]:
    """The figures of a run when it had generated `budget` tokens."""
    spent = np.concatenate(([0.0], run.tokens_S))
    steps = sorted(run.validated)
    last = int(np.searchsorted(run.tokens_S, budget, side="right"))
    window = slice(max(0, last - _LAST), last)
    found = {
        "held-out pass@1": float(
            np.interp(budget, spent[steps], [run.validated[step] for step in steps])
        ),
        "before": run.validated[0],
    }
    found.update({name: float(np.nanmean(values[window])) for name, values in run.values_S.items()})
    for name, measure in (("distinct right of 8", distinct), ("solution paths of 8", paths)):
        found[name] = float(
            np.mean([measure(run.folder, step + 1) for step in range(last)[window]])
        )
    found["steps"] = last
    return found


def interval(values: Array) -> str:
    """Mean and half the width of its interval."""
    if len(values) < 2:
        return f"{values.mean():.3f}"
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.3f} ± {half:.3f}"


def table(recipes: list[str], found_in: Path = _RUNS) -> None:
    """Print what the runs show, and how they differ from the first recipe, seed by seed."""
    runs = {
        recipe: {
            int(folder.name.rpartition("-")[2]): load(folder)
            for folder in sorted(found_in.glob(f"{recipe}-*"))
            if (folder / "curves.png").exists()
        }
        for recipe in recipes
    }
    if not all(runs.values()):
        sys.exit(f"there is no finished run in {found_in}")
    budget = min(run.tokens_S[-1] for seeds in runs.values() for run in seeds.values())
    print(f"\nat {budget:,.0f} generated tokens")
    found = {
        recipe: {seed: at_budget(run, budget) for seed, run in seeds.items()}
        for recipe, seeds in runs.items()
    }
    names = list(next(iter(next(iter(found.values())).values())))
    print("| recipe | seeds | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 2) + "|")
    for recipe, seeds in found.items():
        cells = [interval(np.array([each[name] for each in seeds.values()])) for name in names]
        print(f"| {recipe} | {len(seeds)} | " + " | ".join(cells) + " |")
    plain = found[recipes[0]]
    for recipe, seeds in list(found.items())[1:]:
        both = sorted(seeds.keys() & plain.keys())
        cells = [
            interval(np.array([seeds[seed][name] - plain[seed][name] for seed in both]))
            for name in names
        ]
        print(f"| {recipe} less {recipes[0]} | {len(both)} | " + " | ".join(cells) + " |")
    for recipe, seeds in found.items():
        gains = [f"{e['held-out pass@1'] - e['before']:+.3f}" for e in seeds.values()]
        ours = np.median(np.concatenate([run.ours_S for run in runs[recipe].values()]))
        print(f"{recipe}: gain by seed {', '.join(gains)}; rejuice {ours:.1%} of a step (median)")


def main() -> None:
    """Run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--recipes", nargs="+", default=list(_RECIPES))
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if not given.table:
        data()
        for seed in range(given.seeds):
            for recipe in given.recipes:
                train(recipe, seed, given.steps)
                sys.stdout.flush()
    table(given.recipes)


if __name__ == "__main__":
    main()
