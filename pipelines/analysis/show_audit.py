"""Print what an audit of verdicts has found."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...operators import DataError
from ...operators.confidence import Interval95
from ...operators.logs import visible
from ...operators.sandbox.grading import Weakness
from .audit import ErrorRate, TestAudit
from .labels import LabelledErrors
from .sign_tests import ALPHA, SignResult
from .verdicts import CHANGE, Agreement, CheckedRate, GradedRows, MetamorphicResult

# --- Print the signs of reward hacking of a stored run --------------------------------

_HEADING = "signs        "
_INDENT = " " * len(_HEADING)


def sign_lines(signs: Sequence[SignResult]) -> Iterator[str]:
    """The p-values of each set, what was found, and at which false alarm rate."""
    sets = dict.fromkeys(each.set for each in signs)
    start = _HEADING
    for name in sets:
        of_set = [each for each in signs if each.set == name]
        tested = ", ".join(_p_value(each) for each in of_set if each.p is not None)
        of = f"{_visible(name)}: " if name and len(sets) > 1 else ""
        yield f"{start}{of}{tested or 'none could be computed'}"
        start = _INDENT
        yield from _reasons(of_set)
    m = sum(each.p is not None for each in signs)
    for each in signs:
        if each.alarm:
            of = f" in {_visible(each.set)}" if len(sets) > 1 else ""
            effect = f"effect {each.effect:.2f}"
            yield f"{_INDENT}* {_visible(each.name)}{of}: {effect}; rows: add --rows {_slug(each)}"
    if m:
        found = "found" if any(each.alarm for each in signs) else "nothing found"
        yield (
            f"{_INDENT}{found} at a family-wise false alarm rate of {ALPHA:.0%} (Holm over {m}): "
            f"of clean runs, at most 1 in {round(1 / ALPHA)} has an alarm"
        )


def sign_row_lines(signs: Sequence[SignResult], name: str) -> Iterator[str]:
    """The rows behind a sign, as JSON lines, those that add most to it first.

    Raises:
        DataError: there is no such sign.
    """
    known = dict.fromkeys(map(_slug, signs))
    wanted = name.replace(" ", "_")
    if wanted not in known:
        raise DataError(f"--rows {_visible(name)}", f"write one of {', '.join(known)}")
    for each in signs:
        if _slug(each) == wanted:
            for row in each.rows:
                yield json.dumps({"response_id": row, "sign": each.name, "set": each.set})


def _p_value(sign: SignResult) -> str:
    assert sign.p is not None
    text = f"{sign.p:.4f}" if sign.p < 0.01 else f"{sign.p:.2f}"
    return f"{_visible(sign.name)} {text}{' *' if sign.alarm else ''}"


def _reasons(signs: Sequence[SignResult]) -> Iterator[str]:
    without = [f"{_visible(each.name)}: {each.reason}" for each in signs if each.p is None]
    if without:
        yield f"{_INDENT}no p-value of {', '.join(without)}"
    for each in signs:
        if each.p is not None and each.reason:
            yield f"{_INDENT}{_visible(each.name)}: {each.reason}"


def _slug(sign: SignResult) -> str:
    return _visible(sign.name).replace(" ", "_")


def _visible(text: str) -> str:
    """A name as it is, or with what a terminal would not print as escapes."""
    return text if text.isprintable() else ascii(text)[1:-1]


# --- Print what an audit of verdicts has found ----------------------------------------

_MOST_WEAK, _WIDTH = 10, 80
_WEAK: Mapping[Weakness, str] = {
    "nan": "passed by NaN",
    "cleared": "passed by clearing the argument",
    "object": "the program sees the expected value, where it returns an object of its own",
}


def agreement_lines(
    path: Path, graded: GradedRows, found: Agreement, no_answer: int
) -> Iterator[str]:
    """How often two verifiers agree."""
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
    """Rates of failed metamorphic checks."""
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
