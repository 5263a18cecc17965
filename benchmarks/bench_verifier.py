"""Speed of `verify_batch` and `verify` in ratio to math-verify.

    python benchmarks/bench_verifier.py [FOLDER] [--repeats 5]

Prints a section of docs/verifier.md. In the folder are `gsm8k/model_solutions.jsonl`, whose answers are
numbers, and `verifier_cases.jsonl`, cases of test suites. The two take turns. Each turn is in a process
of its own, forked from one in which all is imported, after one symbolic pair, so that it is a first pass
without the start of processes. Seconds are those of the processor, of the process and its children.
Numbers, which take microseconds, are graded many times, with the caches of parsed numbers emptied
before each time.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from math_verify import parse
from math_verify import verify as is_equal

from rejuice.operators.verifier import extract_answer, verify, verify_batch
from rejuice.operators.verifier.fractions_and_decimals import read_plain
from rejuice.operators.verifier.structure import exactly

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from verifier_tables import Case, kind, model_solutions, read_cases, spread, table

FOLDER = Path(__file__).resolve().parents[1] / "../shared/data"
LOOPS = 40  # so that a clock of 10 ms does not matter
WARM = (r"\boxed{\frac{x}{7}+\sqrt{3}}", r"\sqrt{3}+\frac{x}{7}")

Pairs = Sequence[tuple[str, str]]  # (response, reference)


class Turn(NamedTuple):
    """What one turn took: processor seconds for each pass, and what was paid in the last."""

    seconds: float
    paid: list[bool]


def cpu_seconds() -> float:
    """CPU time of this process, its descendants that live and those that were waited for."""
    me = psutil.Process()
    return sum(sum(each.cpu_times()[:4]) for each in (me, *me.children(recursive=True)))


def batch(pairs: Pairs) -> list[bool]:
    """By `verify_batch`, in one worker."""
    responses, references = zip(*pairs, strict=True)
    return [bool(verdict) for verdict in verify_batch(responses, references, workers=1)]


def one_by_one(pairs: Pairs) -> list[bool]:
    """By `verify`."""
    return [bool(verify(*pair)) for pair in pairs]


def math_verify(pairs: Pairs) -> list[bool]:
    """By the calls of math-verify's README."""
    return [is_equal(parse(f"${reference}$"), parse(response)) for response, reference in pairs]


def turn(grade: Callable[[Pairs], list[bool]], pairs: Pairs, loops: int) -> Turn:
    """One turn, in a process of its own."""
    context: Any = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_turn, args=(grade, pairs, loops, theirs))
    process.start()
    theirs.close()
    found = Turn(*ours.recv())
    process.join()
    return found


def _turn(grade: Callable[[Pairs], list[bool]], pairs: Pairs, loops: int, link: Any) -> None:
    grade([WARM])
    start = cpu_seconds()
    for _ in range(loops):
        read_plain.cache_clear()
        paid = grade(pairs)
    link.send(((cpu_seconds() - start) / loops, paid))


def distinct(cases: Sequence[Case]) -> tuple[Pairs, list[bool]]:
    """Distinct pairs with their labels."""
    labels = {(case.response, case.reference): case.expected for case in cases}
    return list(labels), list(labels.values())


def is_symbolic(pair: tuple[str, str]) -> bool:
    """Whether the exact tier leaves a pair to the symbolic one."""
    answer = extract_answer(pair[0])
    return answer is not None and exactly(answer, pair[1]) is None


def measure(title: str, cases: Sequence[Case], repeats: int, loops: int = 1) -> list[object]:
    """A line of the table: rates, and the ratio of each round."""
    pairs, labels = distinct(cases)
    rounds = [(turn(batch, pairs, loops), turn(math_verify, pairs, 1)) for _ in range(repeats)]
    rates = [spread([len(pairs) / each.seconds for each in of], 0) for of in zip(*rounds)]  # noqa: B905
    agreed = [sum(a is b for a, b in zip(each.paid, labels, strict=True)) for each in rounds[-1]]
    ratio = spread([theirs.seconds / ours.seconds for ours, theirs in rounds])
    return [title, f"{len(pairs):,}", *rates, " and ".join(f"{n:,}" for n in agreed), ratio]


def main() -> None:
    """Print one table and one ratio."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    for name in ("rejuice", "math_verify"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    solutions = given.folder / "gsm8k/model_solutions.jsonl"
    suites = given.folder / "verifier_cases.jsonl"
    for path in (solutions, suites):
        if not path.is_file():
            sys.exit(f"{path}: no such file; name the folder that has it")
    numbers, cases = [*model_solutions(solutions)], read_cases(suites)
    mixed = [case for case in cases if kind(case.source) in ("suites", "forms")]
    symbolic = [case for case in mixed if is_symbolic((case.response, case.reference))]
    lines = [
        measure("GSM8K model solutions, numbers", numbers, given.repeats, LOOPS),
        measure("suites and forms, mixed answers, first pass", mixed, given.repeats),
        measure("of these, those that need the symbolic tier", symbolic, given.repeats),
    ]
    pairs, _ = distinct(numbers)
    calls = [
        turn(one_by_one, pairs, LOOPS).seconds / turn(batch, pairs, LOOPS).seconds
        for _ in range(given.repeats)
    ]
    print("## Speed\n")
    print(
        f"`python benchmarks/bench_verifier.py FOLDER`, {time.strftime('%Y-%m-%d')}, python "
        f"{sys.version.split()[0]}: responses per second of\nprocessor time, each the median (least to"
        f" greatest) of {given.repeats} rounds in turns; the ratio is that of each round.\nA first pass is one"
        " of a process that has imported all and graded one pair. `agree` is with the labels, ours\nand"
        " math-verify.\n"
    )
    head = ("distinct responses", "n", "`verify_batch`", "math-verify", "agree", "ratio")
    print(table(head, lines))
    print(
        f"\nA call of `verify` takes {spread(calls, 2)} times a row of `verify_batch`, for numbers."
    )


if __name__ == "__main__":
    main()
