"""Advantages of several algorithms on the embedded policy, at the same number of generated tokens.

    python benchmarks/bench_credit.py [--seeds 3] [--steps 20] [--variants grpo rloo ...]
    python benchmarks/bench_credit.py --table    # of the runs that are there
    python benchmarks/bench_credit.py --flipped  # 10 steps of GRPO, and of GRPO with its sign turned

Each variant is recipes/grpo_arithmetic.yaml with other steps that give credit, and each run is
`rejuice train`. The budget and the intervals are those of bench_grpo.py.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import yaml
from bench_grpo import data, load, table, train

_ROOT = Path(__file__).parents[1]
_RUNS = _ROOT / "outputs" / "bench_credit"

_GRPO, _FORMAT = "grpo_advantage_mapper", "format_reward_mapper"
_FLIPPED = '''
import pyarrow.compute as pc
from rejuice.operators import Mapper


class FlippedAdvantageMapper(Mapper):
    """The advantage with its sign turned."""

    def reads(self):
        return ("advantage",)

    def writes(self):
        return ("advantage",)

    def map(self, table):
        return {"advantage": pc.negate(table["advantage"]).combine_chunks()}
'''
_OVERLONG = {"loss_weight_mapper": {"where": {"finish_reason": "length"}}}
VARIANTS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "grpo": ([{_GRPO: None}], {}),
    "dr_grpo": (
        [{_GRPO: {"normalise": "none"}}],
        {"loss": {"aggregate": "seq-mean-token-sum-norm"}},
    ),
    "rloo": ([{_GRPO: {"normalise": "leave_one_out"}}], {}),
    "maxrl": ([{_GRPO: {"normalise": "mean"}}], {}),
    "gdpo": ([{"gdpo_advantage_mapper": {"weights": {"accuracy": 1.0, "format": 1.0}}}], {}),
    "pass_at_k": ([{"pass_at_k_advantage_mapper": {"k": 4}}], {}),
    "overlong": ([_OVERLONG, {_GRPO: None}], {}),
    "flipped": ([{_GRPO: None}, {"flipped_advantage_mapper": None}], {}),
}
"""By name, the steps that give credit, and keys of `train:`."""


def write(name: str) -> None:
    """Write the recipe of a variant."""
    document = yaml.safe_load((_ROOT / "recipes" / "grpo_arithmetic.yaml").read_text("utf-8"))
    credit, settings = VARIANTS[name]
    process = [step for step in document["process"] if step != {_GRPO: None}]
    if name == "maxrl":  # It is for rewards of at least 0.
        process[process.index({_FORMAT: None})] = {_FORMAT: {"wrong": 0}}
    document["process"] = [*process, *credit]
    document["project_name"] = name
    document["train"] = {**document["train"], **settings}
    _RUNS.mkdir(parents=True, exist_ok=True)
    if name == "flipped":
        (_RUNS / "flipped.py").write_text(_FLIPPED, "utf-8")
        document["custom_operator_paths"] = [str(_RUNS / "flipped.py")]
    text = yaml.safe_dump(document, sort_keys=False)
    (_RUNS / f"{name}.yaml").write_text(text, "utf-8")


def main() -> None:
    """Run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--variants", nargs="+", default=[v for v in VARIANTS if v != "flipped"])
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--flipped", action="store_true")
    given = parser.parse_args()
    if given.flipped:
        given.variants, given.seeds, given.steps = ["grpo", "flipped"], 1, 10
    runs = _RUNS / f"{given.steps}"
    if not given.table:
        data()
        for name in given.variants:
            write(name)
        for seed in range(given.seeds):
            for name in given.variants:
                train(name, seed, given.steps, _RUNS, runs)
    if given.flipped:
        for name in given.variants:
            validated = load(runs / f"{name}-0").validated
            print(f"{name}: held-out accuracy {validated[0]:.3f} -> {validated[given.steps]:.3f}")
    else:
        table(given.variants, runs)


if __name__ == "__main__":
    main()
