"""Answers of each type: ours, math-verify and verl's graders, on labelled pairs.

    python benchmarks/bench_answer_types.py [PAIRS.jsonl ...] [--graders NAME ...]

Prints a table of docs/verifier.md. A pair has `reference`, `response`, `label` (`right`, `wrong`, or
`formula` for an operation left undone; others are left out) and `type` or `kind`.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from graders import GRADERS, graded, installed, ours
from verifier_tables import table

from rejuice.operators.verifier.typed import type_of

PAIRS = [Path(__file__).resolve().parents[1] / "tests" / "data" / "answers_by_type.jsonl"]


def main() -> None:
    """Print how many right answers are paid, and how many others."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("pairs", type=Path, nargs="*", default=PAIRS)
    parser.add_argument("--graders", nargs="*", default=[*GRADERS], choices=[*GRADERS])
    given = parser.parse_args()
    logging.getLogger("rejuice").setLevel(logging.ERROR)
    lines = [line for path in given.pairs for line in path.read_text("utf-8").splitlines()]
    rows = [row for row in map(json.loads, lines) if row["label"] in ("right", "wrong", "formula")]
    types = [row.get("type") or type_of(row["reference"]).value for row in rows]
    pairs = [(row["response"], row["reference"]) for row in rows]
    names = ["ours", *filter(installed, given.graders)]
    counts = {name: Counter[tuple[str, bool, bool]]() for name in names}
    for name, count in counts.items():
        found = ours(pairs, worked_out=True) if name == "ours" else graded(name, pairs, 30.0)
        for each, row, outcome in zip(types, rows, found, strict=True):
            for group in (each, "all"):
                count[group, row["label"] == "right", outcome.paid is True] += 1
    cells = [
        [group, *(_cell(count, group) for count in counts.values())]
        for group in (*dict.fromkeys(types), "all")
    ]
    print("Right answers paid, then others paid:\n")
    print(table(["type", *names], cells))


def _cell(count: Counter[tuple[str, bool, bool]], group: str) -> str:
    paid = (
        (count[group, right, True], count[group, right, True] + count[group, right, False])
        for right in (True, False)
    )
    return "; ".join(f"{n} of {total}" for n, total in paid)


if __name__ == "__main__":
    main()
