"""Error rates of our verifier and of math-verify on answers whose labels are known.

    python tests/bench/bench_verifier_errors.py [FOLDER] [--limit SECONDS]

Prints a section of docs/verifier.md. In the folder are `gsm8k/model_solutions.jsonl`, responses of
language models with their published labels, and `answer_pairs.jsonl`, pairs labelled by hand, of which
those with `policy` are decided by a convention. Intervals are Wilson's, of 95%.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from graders import graded, ours
from verifier_tables import Case, error_rates, table

FOLDER = Path(__file__).resolve().parents[2] / "../shared/data"
MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
RESPONSES, PAIRS, CONVENTIONS = (
    "responses of four models, GSM8K",
    "labelled pairs, no convention",
    "labelled pairs, a convention",
)


def model_solutions(path: Path) -> Iterator[Case]:
    """Recorded responses to GSM8K: four models for each question."""
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        reference = record["ground_truth"].rsplit("A:", 1)[1].strip()
        for model in MODELS:
            made = record[model]
            yield Case(RESPONSES, reference, made["solution"], made["is_correct"])


def labelled_pairs(path: Path) -> Iterator[Case]:
    """Pairs of a reference and an answer."""
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        source = CONVENTIONS if row["policy"] else PAIRS
        yield Case(source, row["gold"], row["answer"], row["equal"])


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    parser.add_argument("--limit", type=float, default=30.0, help="seconds for a pair")
    given = parser.parse_args()
    solutions, pairs = given.folder / "gsm8k/model_solutions.jsonl", given.folder
    pairs /= "answer_pairs.jsonl"
    for path in (solutions, pairs):
        if not path.is_file():
            sys.exit(f"{path}: no such file; name the folder that has it")
    logging.getLogger("rejuice").setLevel(logging.ERROR)
    cases = [*model_solutions(solutions), *labelled_pairs(pairs)]
    texts = [(case.response, case.reference) for case in cases]
    lines = list[list[object]]()
    outcomes = {"ours": ours(texts), "math-verify": graded("math-verify", texts, given.limit)}
    for source in (RESPONSES, PAIRS, CONVENTIONS):
        rows = [row for row, case in enumerate(cases) if case.source == source]
        for name, each in outcomes.items():
            labels = [cases[row].expected for row in rows]
            rates = error_rates(labels, [each[row] for row in rows])
            lines.append([source, len(rows), name, *rates])
    head = ("", "n", "verifier", "false positives", "false negatives", "not graded")
    print("## Error rates\n")
    print("Of answers labelled wrong, and of those labelled right:\n")
    print(table(head, lines))


if __name__ == "__main__":
    main()
