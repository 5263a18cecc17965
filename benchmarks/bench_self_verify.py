"""The five schedules of self-verification at the same number of generated tokens.

    python benchmarks/bench_self_verify.py [--seeds 0 1 2 3 4] [--schedules generate mixed ...]
    python benchmarks/bench_self_verify.py --table    # of the runs that are there

A run takes 4 to 5 minutes; with `--at_once 2` two of them take 6.

Each run is `rejuice train recipes/self_verify_arithmetic.yaml` on the embedded policy; a step that
samples judgements too costs about twice the tokens, so the schedules differ in their steps; where
the tokens of two runs differ by more than 3%, the table says so. Then the trained policy answers
400 problems of the split `test` 8 times, judges every distinct answer 4 times, and votes
(recipes/self_verified_vote.yaml); it votes over as many answers more as the judgements cost tokens;
and it judges a fixed set: of each problem where the first policy gave both, a right and a wrong
answer. Finished runs are not run again. Intervals are Student's, 95%, over seeds; the problems are
the same for all.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl
import yaml
from bench_grpo import data, interval

from rejuice.trainer import metrics

_ROOT = Path(__file__).parents[1]
_RUNS = _ROOT / "outputs" / "bench_self_verify"
_REJUICE = Path(sys.executable).parent / "rejuice"
_VOTE = _ROOT / "recipes" / "self_verified_vote.yaml"
_STEPS = {"generate": 60, "self_verify": 28, "verify_init": 43, "verify_alter": 49, "mixed": 27}
"""So that each generates some 665,000 tokens: 11,000 a step, and 13,000 for judgements."""
_MANY = 40
_SAMPLING = {"engine": "transformers", "max_tokens": 64}
_FIRST = "before"
_FIGURES = "figures.json"


def train(schedule: str, seed: int) -> None:
    """One run and what its policy then does, unless it is there."""
    folder = _RUNS / f"{schedule}-{seed}"
    if not _is_trained(folder, _STEPS[schedule]):
        shutil.rmtree(folder, ignore_errors=True)  # What an interrupted run has left.
        _call(
            "train", _ROOT / "recipes" / "self_verify_arithmetic.yaml", "--output", folder,
            "--schedule", schedule, "--steps", _STEPS[schedule], "--train.seed", seed,
            "--train.save_every", _STEPS[schedule],
        )  # fmt: skip
    examine(folder, folder / "policy", seed)


def _is_trained(folder: Path, steps: int) -> bool:
    if not (folder / "policy").exists():
        return False
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text())
    return bool(recipe["train"]["steps"] == steps)


def examine(folder: Path, policy: Path | str, seed: int) -> None:
    """What a policy does on held-out problems: FOLDER/figures.json."""
    if (folder / _FIGURES).exists():
        return
    voted, many = folder / "voted.parquet", folder / "many.parquet"
    _vote(voted, policy, seed)
    _sample(many, policy, seed)
    _judge(folder / "judged.parquet", policy, seed)
    rows = pl.read_parquet(voted)
    answers, judgements = (rows.filter(task=task) for task in ("generate", "verify"))
    spent, more = (part["response_token_ids"].list.len().sum() for part in (answers, judgements))
    n = min(_MANY, round(8 * (spent + more) / spent))
    plain, weighted = _right(answers, "majority"), _right(answers, "voted")
    same = majority(pl.read_parquet(many), n)
    found = {
        "pass@1": (answers["verdict"] == "correct").mean(),
        "response tokens": spent / len(answers),
        "majority of 8": plain,
        "weighted vote of 8": weighted,
        "weighted less majority": weighted - plain,
        "answers for the same tokens": n,
        "majority of those": same,
        "weighted less that": weighted - same,
        "accuracy on own answers": balanced(judgements),
        "verification accuracy": balanced(pl.read_parquet(folder / "judged.parquet")),
    }
    (folder / _FIGURES).write_text(json.dumps(found, indent=2))


def _figures(schedule: str, seed: int) -> Path:
    return _RUNS / f"{schedule}-{seed}" / _FIGURES


def balanced(rows: pl.DataFrame) -> float:
    """Mean of the shares of judgements that are right, of right answers and of wrong ones."""
    shares = rows.group_by("label").agg(
        (pl.col("judgement") == pl.col("label")).fill_null(False).mean()
    )
    return float(shares["judgement"].mean())


def majority(answers: pl.DataFrame, n: int) -> float:
    """Share of the prompts whose most frequent answer, of the first `n`, is right."""
    place = pl.int_range(pl.len()).over("prompt_id")
    first = answers.with_row_index("row").filter(place < n).drop_nulls("extracted_answer")
    votes = first.group_by("prompt_id", "extracted_answer").agg(
        pl.len().alias("votes"), pl.col("row").min(), (pl.col("verdict") == "correct").any()
    )
    ranked = votes.sort("votes", "row", descending=[True, False])
    winners = ranked.unique("prompt_id", keep="first", maintain_order=True)
    return float(winners["verdict"].sum() / answers["prompt_id"].n_unique())


def _right(answers: pl.DataFrame, column: str) -> float:
    winners = answers.filter(pl.col(column)).group_by("prompt_id")
    right = winners.agg((pl.col("verdict") == "correct").any())["verdict"].sum()
    return float(right / answers["prompt_id"].n_unique())


def _sample(path: Path, policy: Path | str, seed: int) -> None:
    """More answers."""
    steps = yaml.safe_load(_VOTE.read_text())["process"]
    sampling = {**_SAMPLING, "model": str(policy), "seed": seed, "n": _MANY}
    process = [steps[0], {"policy_rollout_mapper": sampling}, {"math_verify_mapper": {}}]
    _run(path, _RUNS / "test.jsonl", process)


def _judge(path: Path, policy: Path | str, seed: int) -> None:
    """Judgements of the fixed set."""
    sampling = {**_SAMPLING, "model": str(policy), "seed": seed, "n": 4}
    process = [{"policy_rollout_mapper": sampling}, {"judgement_reward_mapper": {}}]
    _run(path, _RUNS / "to_judge.parquet", process)


def _run(path: Path, dataset: Path, process: Sequence[Mapping[str, object]]) -> None:
    recipe = {"project_name": path.stem, "dataset_path": str(dataset), "export_path": str(path)}
    file = path.with_suffix(".yaml")
    file.write_text(json.dumps({**recipe, "process": process}))
    _call("run", file)


def _vote(path: Path, policy: Path | str, seed: int) -> None:
    overrides: Mapping[str, object] = {
        "dataset_path": _RUNS / "test.jsonl",
        "export_path": path,
        "policy_rollout_mapper.model": policy,
        "policy_rollout_mapper_2.model": policy,
        "policy_rollout_mapper.seed": seed,
        "policy_rollout_mapper_2.seed": seed,
    }
    _call("run", _VOTE, *(word for key, value in overrides.items() for word in (f"--{key}", value)))


def _call(*words: object) -> None:
    subprocess.run([str(word) for word in (_REJUICE, *words)], cwd=_ROOT, check=True)


def to_judge() -> None:
    """The test problems, and the fixed set: a right and a wrong answer of the first policy."""
    _call(
        "data", _RUNS / "test.jsonl", "--prompts", 400, "--responses", 0, "--levels", "1,2",
        "--split", "test",
    )  # fmt: skip
    path = _RUNS / "to_judge.parquet"
    if path.exists():
        return
    before = _RUNS / _FIRST
    before.mkdir(parents=True, exist_ok=True)
    _vote(before / "voted.parquet", "embedded", 0)
    rows = pl.read_parquet(before / "voted.parquet").filter(pl.col("task") == "verify")
    verify_rows = pl.read_parquet(before / "voted.parquet").select(
        judged_response_id="response_id", problem="prompt_id"
    )
    first = rows.join(verify_rows, on="judged_response_id", maintain_order="left").unique(
        ["problem", "label"], keep="first", maintain_order=True
    )
    both = first.filter(pl.len().over("problem") == 2)
    both.select("prompt_id", "prompt", "reference", "task", "label").write_parquet(path)


def table(schedules: Sequence[str], chosen: Sequence[int]) -> None:
    """Print what the runs show, and how they differ from `generate`, seed by seed."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    runs = [(each, seed) for each in schedules for seed in chosen if _figures(each, seed).exists()]
    if not runs:
        sys.exit(f"there is no finished run in {_RUNS}")
    first = json.loads((_RUNS / _FIRST / _FIGURES).read_text())
    for schedule, seed in runs:
        file = _figures(schedule, seed)
        points = [p.figures for p in metrics.read(file.parent) if p.trained]
        tokens = sum(point["rejuice/tokens_sampled"] for point in points)
        figures = json.loads(file.read_text())
        rise = figures["verification accuracy"] - first["verification accuracy"]
        figures |= {"verification accuracy less before": rise, "tokens": tokens}
        found.setdefault(schedule, {})[seed] = figures
    names = [*first, "verification accuracy less before", "tokens"]
    print("\n| | seeds | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 2) + "|")
    print(f"| {_FIRST} | | " + " | ".join(f"{first[name]:.3f}" for name in first) + " | | |")
    for schedule, seeds in found.items():
        cells = [interval(np.array([each[name] for each in seeds.values()])) for name in names]
        print(f"| {schedule} | {len(seeds)} | " + " | ".join(cells) + " |")
    tokens = [each["tokens"] for seeds in found.values() for each in seeds.values()]
    if max(tokens) > 1.03 * min(tokens):
        print(f"tokens differ by up to {max(tokens) / min(tokens) - 1:.0%}: set other steps")
    plain = found.get("generate", {})
    for schedule, seeds in found.items():
        both = sorted(seeds.keys() & plain.keys())
        if schedule != "generate" and both:
            cells = [
                interval(np.array([seeds[s][name] - plain[s][name] for s in both]))
                for name in names
            ]
            print(f"| {schedule} less generate | {len(both)} | " + " | ".join(cells) + " |")


def main() -> None:
    """Run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--at_once", type=int, default=1, metavar="RUNS")
    parser.add_argument("--schedules", nargs="+", default=list(_STEPS), choices=list(_STEPS))
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if not given.table:
        data()
        to_judge()
        examine(_RUNS / _FIRST, "embedded", 0)
        jobs = [(schedule, seed) for seed in given.seeds for schedule in given.schedules]
        with ThreadPoolExecutor(given.at_once) as pool:
            list(pool.map(lambda job: train(*job), jobs))
    table(given.schedules, given.seeds)


if __name__ == "__main__":
    main()
