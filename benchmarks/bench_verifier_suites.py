"""Our verifier, math-verify and verl's graders on cases of public test suites and on attacks.

    python benchmarks/bench_verifier_suites.py [CASES.jsonl] [--graders NAME ...] [--limit SECONDS]

Prints two sections of docs/verifier.md. A case has `source`, `gold`, `prediction` (a whole response)
and `expected`. Each grader runs in a process of its own; a pair that takes longer than the limit, by
the wall, or raises, is neither right nor wrong, and is counted as failed.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from graders import GRADERS, Outcome, graded, installed, ours
from verifier_tables import Case, attack_table, failures, kind, read_cases, suite_table, table

CASES = Path(__file__).resolve().parents[1] / "../shared/data/verifier_cases.jsonl"
EXAMPLES = {
    "hedge": r"`\boxed{41 \text{ or } 42}`",
    "negation": "The answer is anything but 42.",
    "think": r"`<think>\boxed{42}</think>\boxed{41}`",
    "vacuous": r"`\boxed{x \in \mathbb{R}}`",
    "after-eos": r"`\boxed{41}</s> \boxed{42}`",
    "two in one": r"`\boxed{x=41=42}`",
    "listing": "`A. 41`, `B. 42`",
    "echo": "Problem: show that the answer is $42$. I could not.",
    "near 42": r"`\boxed{42...}`",
    "look-alike": r"`\boxed{(1,100)}` for 1100",
    "not worked out (equal)": r"`\boxed{\int_0^{42} dx}`",
    "code injection": r"`\boxed{__import__('os').system('touch pwned')}`",
}


def main() -> None:
    """Print them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("cases", type=Path, nargs="?", default=CASES)
    parser.add_argument("--graders", nargs="*", default=[*GRADERS], choices=[*GRADERS])
    parser.add_argument("--limit", type=float, default=30.0, help="seconds for a pair")
    given = parser.parse_args()
    if not given.cases.is_file():
        sys.exit(f"{given.cases}: no such file; name one with source, gold, prediction, expected")
    logging.getLogger("rejuice").setLevel(logging.ERROR)
    cases = read_cases(given.cases)
    pairs = [(case.response, case.reference) for case in cases]
    outcomes = {"ours": ours(pairs)}
    for name in filter(installed, given.graders):
        outcomes[title(name)] = graded(name, pairs, given.limit)
    _print_suites(cases, outcomes)
    print("What each grader looks for, and what it imports:\n")
    print(table(["grader", "finds", "imports"], [_needs(name) for name in given.graders]))
    _print_attacks(cases, outcomes, ours(pairs, worked_out=False))


def title(name: str) -> str:
    """The name of a grader in a table."""
    module, _, option = name.partition(", ")
    ending = f", {option}" if option else ""
    return name if name == "math-verify" else f"verl's `{module}`{ending}"


def _needs(name: str) -> list[str]:
    imports = [each for each in GRADERS[name].modules if not each.startswith("verl.")]
    missing = "" if installed(name) else " (not installed, so not run)"
    return [title(name), GRADERS[name].needs, ", ".join(imports) + missing]


def _print_suites(cases: Sequence[Case], outcomes: Mapping[str, Sequence[Outcome]]) -> None:
    rows = [row for row, case in enumerate(cases) if kind(case.source) != "attacks"]
    print("## Test suites of others\n")
    print(
        f"`python benchmarks/bench_verifier_suites.py CASES.jsonl`: {len(rows):,} cases of the test suites"
        "\nof other verifiers, of the forms that LaTeX parsers are tested with, and of probes of faults that"
        "\nwere known here. As many cases again are kept apart; no rule was written with those in view."
        "\nEach cell has the verdicts that agree with the label, then false positives, then false negatives,"
        "\nand in brackets what was not graded: an exception, a timeout, a `verifier_error`.\n"
    )
    print(suite_table(cases, outcomes))
    print(
        "\nNot graded, apart from what verl's graders catch without a word, which is their verdict:\n"
    )
    _print_lines(failures({name: [each[row] for row in rows] for name, each in outcomes.items()}))
    print()


def _print_attacks(
    cases: Sequence[Case], outcomes: Mapping[str, Sequence[Outcome]], by_value: Sequence[Outcome]
) -> None:
    rows = [row for row, case in enumerate(cases) if kind(case.source) == "attacks"]
    rest = {name: each for name, each in outcomes.items() if name != "ours"}
    columns = {"ours": outcomes["ours"], "with `worked_out: false`": by_value, **rest}
    of_attacks = {name: [each[row] for row in rows] for name, each in columns.items()}
    print("\n## Attacks\n")
    print(
        f"The same command: {len(rows):,} responses that should not be paid, half of those that were written,"
        "\nby kind; the references are numbers, fractions, expressions, tuples, sets, intervals, matrices and"
        "\nwords. Paid are, and in brackets not graded:\n"
    )
    print(attack_table(cases, columns, EXAMPLES))
    print(
        "\nA grader that finds nothing in most responses pays few attacks, and few right answers."
    )
    for name, each in of_attacks.items():
        if ran := sum(outcome.files for outcome in each):
            print(f"{name} ran {ran} responses as code, which wrote files.")


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(f"- {line}")


if __name__ == "__main__":
    main()
