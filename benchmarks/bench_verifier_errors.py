"""Error rates of our verifier and of math-verify on answers whose labels are known.

    python benchmarks/bench_verifier_errors.py [FOLDER] [--limit SECONDS]

Prints a section of docs/verifier.md. In the folder are `gsm8k/model_solutions.jsonl`, responses of
language models with their published labels, and `answer_pairs.jsonl`, pairs labelled by hand, of which
those with `policy` are decided by a convention. Intervals are Wilson's, of 95%.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from graders import graded, ours
from verifier_tables import SOURCES, error_rates, labelled_pairs, model_solutions, table

FOLDER = Path(__file__).resolve().parents[1] / "../shared/data"


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    parser.add_argument("--limit", type=float, default=30.0, help="seconds for a pair")
    given = parser.parse_args()
    solutions = given.folder / "gsm8k/model_solutions.jsonl"
    pairs = given.folder / "answer_pairs.jsonl"
    for path in (solutions, pairs):
        if not path.is_file():
            sys.exit(f"{path}: no such file; name the folder that has it")
    logging.getLogger("rejuice").setLevel(logging.ERROR)
    recorded = [*model_solutions(solutions)]
    cases = [*recorded, *labelled_pairs(pairs)]
    delimited = [*recorded, *labelled_pairs(pairs, delimited=True)]
    lines = list[list[object]]()
    outcomes = {
        "ours": ours([(each.response, each.reference) for each in cases]),
        "math-verify": graded(
            "math-verify", [(each.response, each.reference) for each in delimited], given.limit
        ),
    }
    for source in SOURCES:
        rows = [row for row, case in enumerate(cases) if case.source == source]
        for name, each in outcomes.items():
            labels = [cases[row].expected for row in rows]
            rates = error_rates(labels, [each[row] for row in rows])
            lines.append([source, f"{len(rows):,}", name, *rates])
    head = ("", "n", "verifier", "false positives", "false negatives", "not graded")
    print("## Error rates\n")
    print(
        "`python benchmarks/bench_verifier_errors.py FOLDER`: false positives as a share of what is labelled"
        "\nwrong, false negatives of what is labelled right, with Wilson's intervals of 95%, as if the four"
        "\nresponses to a question were independent. Our rules were written with all of these in view.\n"
        "Of the pairs, math-verify was given bare answers between dollar signs, where it needs them.\n"
    )
    print(table(head, lines))


if __name__ == "__main__":
    main()
