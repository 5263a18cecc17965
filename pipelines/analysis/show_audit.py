"""Print what an audit of verdicts has found."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...operators.confidence import Interval95
from ...operators.sandbox.weak import Weakness
from ...operators.visible import visible
from .labels import LabelledErrors
from .metamorphic import CHANGE, CheckedRate, MetamorphicResult
from .strata import ErrorRate
from .unit_tests import TestAudit
from .verifiers import Agreement, GradedRows

_MOST_WEAK, _WIDTH = 10, 80
_WEAK: Mapping[Weakness, str] = {
    "nan": "passed by NaN",
    "cleared": "passed by clearing the argument",
    "object": "the program sees the expected value, where it returns an object of its own",
}


def agreement_lines(
    path: Path, graded: GradedRows, found: Agreement, no_answer: int
) -> Iterator[str]:
    """How often two verifiers agree.

    Args:
        path: of the run.
        graded: its graded rows.
        found: the agreement.
        no_answer: rows in which the first verifier found no answer.
    """
    rows, name = graded.table.num_rows, graded.verifier
    left_out = f", {graded.ungraded:,} not graded" if graded.ungraded else ""
    yield f"{path}: {rows:,} responses graded by {name}{left_out}; nothing is sampled or judged."
    if found.interval is None:
        yield f"verifiers    {name} alone: math-verify decides none of {rows:,}"
        return
    share = _share(found.agree / found.both, found.interval)
    both = f"{found.both:,} graded by both, {found.agree:,} agree ({share})"
    yield f"verifiers    {name} and math-verify: {both}"
    yield (
        f"disagree     right to wrong {found.to_wrong:,}, wrong to right {found.to_right:,}; "
        f"without a second verdict {found.undecided:,}, without an answer {no_answer:,}"
    )


def sample_line(rows: int, output: Path) -> str:
    """Where the sample is."""
    return f'sample       {rows:,} rows in {output}: set "label" to right, wrong or unsure'


def error_lines(verifier: str, found: LabelledErrors | None) -> Iterator[str]:
    """Error rates by labels; without labels, that there are none."""
    if found is None:
        yield "error rate   not known without labels: two verifiers may err alike"
        return
    yield (
        f"labels       {found.labelled:,} right or wrong, {found.unsure:,} unsure, "
        f"{found.unlabelled:,} without"
    )
    yield f"error rate   of {verifier} {_rate(found.errors)}"
    yield f"false right  {_rate(found.false_right)} of those graded right"
    yield f"false wrong  {_rate(found.false_wrong)} of those graded wrong"
    if rows := found.errors.unlabelled:
        yield (
            f"no label     in the strata of {rows:,} rows: the intervals allow for any rate there, "
            "the rates leave them out"
        )


def metamorphic_lines(
    found: MetamorphicResult | None, verifier: str, listed: Path | None
) -> Iterator[str]:
    """Rates of failed metamorphic checks.

    Args:
        found: the result; None where the verifier is not one that grades answers by rules.
        verifier: its name.
        listed: the file with the failing pairs, if any.
    """
    if found is None:
        yield f"metamorphic  not computed: {verifier} is not math_verify_mapper"
        return
    of = "" if found.pairs == found.distinct else f" of {found.distinct:,}"
    yield f"metamorphic  {found.pairs:,}{of} distinct pairs of answer and reference"
    keep = [each for each in found.rates if each.check not in CHANGE]
    change = [each for each in found.rates if each.check in CHANGE]
    yield "  must leave the verdict"
    yield from _checks(keep, "change")
    yield "  must change a right one"
    yield from _checks(change, "stay right")
    if found.failing and listed:
        yield f"  {len(found.failing):,} failing pairs are at the end of {listed}"


def weak_test_lines(found: TestAudit | None) -> Iterator[str]:
    """Tests that a program passes without solving its problem; nothing where there are no tests."""
    if found is None:
        return
    if found.failed:
        yield f"tests        not run on programs that solve nothing: {found.failed}"
        return
    of = "" if found.examined == found.distinct else f" of {found.distinct:,}"
    yield f"tests        {found.examined:,}{of} distinct assertions, {len(found.weak):,} weak"
    for each in found.weak[:_MOST_WEAK]:
        shown = " ".join(each.test.split())
        shown = shown if len(shown) <= _WIDTH else f"{shown[: _WIDTH - 3]}..."
        yield f"  {'; '.join(_WEAK[why] for why in each.why)}: {visible(shown, one_line=True)}"
    if len(found.weak) > _MOST_WEAK:
        yield f"  and {len(found.weak) - _MOST_WEAK:,} more"


def _checks(rates: Sequence[CheckedRate], failing: str) -> Iterator[str]:
    for each in rates:
        share = each.interval and _share(each.failing / each.pairs, each.interval)
        counted = f"{each.failing:,} of {each.pairs:,} {failing} ({share})" if share else "no pair"
        yield f"    {each.check:<18}{counted}"


def _rate(found: ErrorRate) -> str:
    return "unknown" if math.isnan(found.rate) else _share(found.rate, found.interval, " (", ")")


def _share(share: float, interval: Interval95, opening: str = ", ", closing: str = "") -> str:
    low, high = (f"{100 * end:.1f}" for end in interval)
    return f"{share:.1%}{opening}95% {low} to {high}{closing}"
