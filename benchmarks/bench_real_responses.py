"""Figures of the recorded responses of a real language model to problems of GSM8K.

    python benchmarks/bench_real_responses.py GSM8K_TEST.jsonl [--embedder FOLDER]

The responses are those of tests/data/real_responses; the problems are not part of the project. Pass
rates, the funnel of recipes/gsm8k_qwen.yaml over them, the verdicts beside those of math-verify with
each disagreement, and, by an embedder in a folder, how much the right responses of a group differ.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from real_responses import FOLDER, RECIPE, N, overrides, right_by_math_verify

from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe import load
from rejuice.trainer.verl.figures import set_figures


def main() -> None:
    """Print them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("problems", type=Path)
    parser.add_argument("--embedder")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        fields = overrides(given.problems, folder)
        if given.embedder:
            step = "diversity_reward_mapper"
            fields |= {f"{step}.backend": "sentence_transformers", f"{step}.model": given.embedder}
        recipe = load(RECIPE, fields)
        graded = _export_of(recipe.replace(steps=recipe.steps[:4]))
        _pass_rates(graded)
        _beside_math_verify(graded)
        report = run(recipe)
        print("\nfunnel")
        for each in report.steps:
            dropped = ", ".join(f"{count} {why}" for why, count in each.dropped.items())
            print(f"  {each.step}: {each.rows_in} -> {each.rows_out}  {dropped}")
        _diversity(recipe.replace(steps=recipe.steps[:6]))


def _export_of(recipe: object) -> pa.Table:
    return pq.read_table(run(recipe).export_path)


def _pass_rates(graded: pa.Table) -> None:
    tokens = pq.read_table(FOLDER / "responses.parquet")["tokens"].to_numpy()
    print(f"{graded.num_rows} responses, {tokens.mean():.0f} tokens each")
    for name in ("finish_reason", "verdict"):
        print(f"  {name}:", dict(Counter(graded[name].to_pylist())))
    decided = graded.filter(pc.is_valid(graded["reward_accuracy"]))
    for name, value in set_figures(decided, N).items():
        print(f"  {name}: {value:.3f}")
    rates = graded["pass_rate"].to_numpy()[::N]
    kinds = {"none": rates == 0, "some": (rates > 0) & (rates < 1), "all": rates == 1}
    print("  groups by right responses:", {name: int(each.sum()) for name, each in kinds.items()})


def _beside_math_verify(graded: pa.Table) -> None:
    print("\nmath-verify")
    found: Counter[tuple[str, bool]] = Counter()
    for row in graded.to_pylist():
        theirs = right_by_math_verify(row)
        found[row["verdict"], theirs] += 1
        if theirs != (row["verdict"] == "correct"):
            print(
                f"- ours {row['verdict']} {row['extracted_answer']!r}, theirs {theirs}; reference"
            )
            print(f"  {row['reference']}: ...{row['response'][-200:]!r}")
    for (ours, theirs), count in sorted(found.items()):
        print(f"  {ours}, math-verify {'right' if theirs else 'wrong'}: {count}")


def _diversity(recipe: object) -> None:
    rows = _export_of(recipe)
    rows = rows.filter(pc.equal(rows["verdict"], "correct"))
    values = rows["reward_diversity"].drop_null().to_numpy()
    lengths = np.array([len(text) for text in rows["response"].to_pylist()])
    print(f"\ndiversity of {len(values)} right responses of groups with right and wrong ones")
    print("  quantiles 5, 50, 95%:", np.quantile(values, [0.05, 0.5, 0.95]).round(4))
    print(f"  correlation with length: {np.corrcoef(values, lengths)[0, 1]:.2f}")


if __name__ == "__main__":
    main()
