"""The arithmetic and the Markdown of the tables of docs/verifier.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from graders import Outcome

from rejuice.operators.confidence import wilson_interval

FORMS, ATTACK, PROBE = " forms", "attack:", "probe:"
MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
SOURCES = (
    "responses of four models, GSM8K",
    "labelled pairs, no convention",
    "labelled pairs, a convention",
)
"""The sources of real answers with labels."""


class Case(NamedTuple):
    """A response whose label is known."""

    source: str
    reference: str
    response: str
    expected: bool


class Tally(NamedTuple):
    """How outcomes agree with labels; the four counts after `cases` add up to it."""

    cases: int
    agreed: int
    false_positives: int
    false_negatives: int
    failed: int

    @classmethod
    def of(cls, labels: Sequence[bool], outcomes: Sequence[Outcome]) -> Tally:
        """The tally of as many labels as outcomes."""
        pairs = [(label, each.paid) for label, each in zip(labels, outcomes, strict=True)]
        return cls(
            len(pairs),
            sum(paid is label for label, paid in pairs),
            sum(paid is True and not label for label, paid in pairs),
            sum(paid is False and label for label, paid in pairs),
            sum(paid is None for _, paid in pairs),
        )

    def cell(self) -> str:
        """Agreed / false positives / false negatives, and failures where there are any."""
        parts = [self.agreed, self.false_positives, self.false_negatives]
        text = " / ".join(map(str, parts))
        return f"{text} (+{self.failed})" if self.failed else text


def read_cases(path: Path) -> list[Case]:
    """The cases of a JSON Lines file with source, gold, prediction and expected.

    Those with `undone` are left out: the answer is a formula that is equal to the reference.
    """
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [
        Case(r["source"], r["gold"], r["prediction"], r["expected"])
        for r in rows
        if not r.get("undone")
    ]


def model_solutions(path: Path) -> Iterator[Case]:
    """Recorded responses to GSM8K: four models for each question."""
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        reference = record["ground_truth"].rsplit("A:", 1)[1].strip()
        for model in MODELS:
            made = record[model]
            yield Case(SOURCES[0], reference, made["solution"], made["is_correct"])


def labelled_pairs(path: Path, *, delimited: bool = False) -> Iterator[Case]:
    """Pairs of a reference and an answer.

    With `delimited`, an answer without prose stands between dollar signs, where math-verify needs it.
    """
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        source = SOURCES[1 + row["policy"]]
        bare = delimited and row["form"] == "final" and not _marked(row["answer"])
        answer = f"${row['answer']}$" if bare else row["answer"]
        yield Case(source, row["gold"], answer, row["equal"])


def _marked(answer: str) -> bool:
    return "$" in answer or "\\boxed" in answer


def kind(source: str) -> str:
    """Which of the four kinds of cases a source is."""
    if source.startswith(ATTACK):
        return "attacks"
    if source.startswith(PROBE):
        return "probes of known faults"
    return "forms" if source.endswith(FORMS) else "suites"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def suite_table(cases: Sequence[Case], outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    """Sources line by line, with the sum of each kind; attacks are not in it."""

    def line(title: str, rows: Sequence[int], bold: bool = False) -> list[object]:
        labels = [cases[row].expected for row in rows]
        tallies = [Tally.of(labels, [each[row] for row in rows]) for each in outcomes.values()]
        cells = [each.cell() for each in tallies]
        if bold:
            cells = [
                f"**{each.agreed / each.cases:.1%}**: {cell}"
                for each, cell in zip(tallies, cells, strict=True)
            ]
        return [title, len(rows), *cells]

    lines = list[Sequence[object]]()
    for which in ("suites", "forms", "probes of known faults"):
        of_kind = [row for row, case in enumerate(cases) if kind(case.source) == which]
        for source in sorted({cases[row].source for row in of_kind}):
            rows = [row for row in of_kind if cases[row].source == source]
            lines.append(line(source.removeprefix(PROBE), rows))
        if of_kind:
            lines.append(line(f"**{which}**", of_kind, bold=True))
    return table(["source", "cases", *outcomes], lines)


def attack_table(
    cases: Sequence[Case],
    outcomes: Mapping[str, Sequence[Outcome]],
    examples: Mapping[str, str],
) -> str:
    """Attacks by kind, and how many of them each verifier pays; failures are in brackets."""
    attacks = [row for row, case in enumerate(cases) if kind(case.source) == "attacks"]
    names = {cases[row].source.removeprefix(ATTACK): None for row in attacks}
    known = [name for name in examples if name in names]
    lines = list[Sequence[object]]()
    for name in [*known, *sorted(set(names) - set(known))]:
        rows = [row for row in attacks if cases[row].source == ATTACK + name]
        paid = [_paid([each[row] for row in rows]) for each in outcomes.values()]
        lines.append([name, len(rows), examples.get(name, ""), *paid])
    sums = list[str]()
    for each in outcomes.values():
        of_attacks = [each[row] for row in attacks]
        share = sum(outcome.paid is True for outcome in of_attacks) / max(1, len(attacks))
        sums.append(f"**{share:.1%}**: {_paid(of_attacks)}")
    lines.append(["**all**", f"{len(attacks):,}", "", *sums])
    return table(["kind", "cases", "example, for the reference 42", *outcomes], lines)


def _paid(outcomes: Sequence[Outcome]) -> str:
    failed = sum(each.paid is None for each in outcomes)
    return f"{sum(each.paid is True for each in outcomes)}" + (f" (+{failed})" if failed else "")


def failures(outcomes: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
    """A line for each verifier that has failed, with its reasons, the most frequent first."""
    for name, each in outcomes.items():
        reasons = [outcome.failure for outcome in each if outcome.paid is None]
        if reasons:
            counts = sorted({(-reasons.count(why), why) for why in reasons})
            shown = ", ".join(f"{-count} {why[:60]}" for count, why in counts[:3])
            yield f"{name}: {len(reasons)} ({shown})"


def rate(errors: int, n: int) -> str:
    """A share of n with its interval of 95%, in percent."""
    if not n:
        return "none"
    low, high = wilson_interval(errors / n, n)
    return f"{errors} of {n:,}: {errors / n:.2%} ({low:.2%} to {high:.2%})"


def error_rates(labels: Sequence[bool], outcomes: Sequence[Outcome]) -> tuple[str, str, int]:
    """The rates of false positives and of false negatives, and how many were not graded.

    The first is a share of what is labelled wrong and was graded, the second of what is labelled right.
    """
    found = Tally.of(labels, outcomes)
    graded = [k for k, each in zip(labels, outcomes, strict=True) if each.paid is not None]
    right = sum(graded)
    return (
        rate(found.false_positives, len(graded) - right),
        rate(found.false_negatives, right),
        found.failed,
    )


def spread(values: Sequence[float], digits: int = 1) -> str:
    """A median, with the least and the greatest value."""
    of = f",.{digits}f"
    return f"{median(values):{of}} ({min(values):{of}} to {max(values):{of}})"
