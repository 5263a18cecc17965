"""Audit the verdicts of a stored run: a sample for a person to label, error rates, weak tests.

What a sample is drawn from is in `verdicts.py`; signs of reward hacking are in `reward_hacking.py`.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from ...operators import DataError
from ...operators.arrow_compute import pc
from ...operators.columns import RIGHT
from ...operators.confidence import Interval95, wilson_interval
from ...operators.errors import RejuiceError
from ...operators.groups import Array
from ...operators.logs import visible
from ...operators.mapper.unit_test_mapper import UnitTestMapper
from ...operators.sandbox.cases import AssertCase
from ...operators.sandbox.grading import Weakness
from ...operators.verifier.worked_out import is_worked_out
from ...operators.workers import usable_cores
from ..console import as_json, path_text, tracked
from ..dataset.files import write_file
from ..engine.conditional_step import matching
from .reward_hacking import ALPHA, SignResult, p_text
from .stored import Stored
from .verdicts import (
    CHANGE,
    ROWS_AT_ONCE,
    Agreement,
    CheckedRate,
    FailingPair,
    GradedRows,
    MetamorphicResult,
    agreement,
    as_graded,
    decisions,
    metamorphic_checks,
    no_answer,
    rechecked,
    verifiers_of,
)


class VerdictAudit(NamedTuple):
    graded: GradedRows
    agreement: Agreement
    no_answer: int  # rows without an answer, which two verifiers cannot disagree on
    drawn: int  # rows that were written for a person to label
    errors: LabelledErrors | None  # None: no labels are given
    checks: MetamorphicResult | None  # None: no `math_verify_mapper` graded
    output: Path | None  # with the rows that were drawn, and pairs that failed a check


def audit_verdicts(
    graded: GradedRows, sample: int, output: Path | None, labels: Path | None, seed: int
) -> VerdictAudit:
    """Verify again, draw rows into a file, and state error rates by labels."""
    by_row = None if labels is None else read_labels(labels, graded)  # Verifying takes long.
    again = tracked(rechecked(graded), graded.rows.num_rows // ROWS_AT_ONCE + 1)
    recheck_N = [verdict for some in again for verdict in some]
    strata_N = strata(graded, recheck_N)
    rows = draw(graded, strata_N, sample, seed) if output is not None else []
    operator = graded.by_math_verify_mapper
    checks = None if operator is None else metamorphic_checks(graded, operator, seed)
    if output is not None:
        failing = failing_lines(() if checks is None else checks.failing)
        write_lines(output, [*sample_lines(graded, recheck_N, strata_N, rows), *failing])
    return VerdictAudit(
        graded,
        agreement(graded, recheck_N),
        int(no_answer(graded).sum()),
        len(rows),
        None if by_row is None else labelled_errors(by_row, graded, strata_N),
        checks,
        output,
    )


def verdict_lines(path: Path, found: VerdictAudit) -> Iterator[str]:
    graded, output = found.graded, found.output
    yield from agreement_lines(path, graded, found.agreement, found.no_answer)
    yield from formula_lines(graded)
    if output is not None:
        rows = f"{found.drawn:,} rows in {path_text(output)}"
        yield f'sample       {rows}: set "label" to right, wrong or unsure'
    yield from error_lines(graded.verifier, found.errors)
    yield from metamorphic_lines(found.checks, graded.verifier, output)


# --- Strata ---------------------------------------------------------------------------
# A stratified sample of graded rows, and rates with intervals from what a person makes of it.
#
# With strata h of N_h rows, of which n_h are drawn at random and k_h are in error:
#
#     W_h = N_h / sum N_h      p_h = k_h / n_h      p = sum W_h p_h
#     Var = sum W_h^2 q_h (1 - q_h) / n_h           q_h = (k_h + 1) / (n_h + 2)
#     interval: Wilson's of p with n_eff = q (1 - q) / Var,  q = sum W_h q_h
#     its lower end, for x = floor(p n_eff) up to 3: at most chi2(0.05; 2 max(x, 1)) / (2 n_eff)
#
# q_h keeps a stratum without an error from having no variance. There is no finite population
# correction, so the interval is rather too wide for these rows.
#
# Sources: W. G. Cochran, Sampling Techniques, 1977, chapter 5; E. L. Korn and B. I. Graubard,
# Survey Methodology 24, 1998 (an effective number of trials); L. D. Brown, T. T. Cai and A.
# DasGupta, Statistical Science 16, 2001 (the lower end of Wilson's interval for a few errors).

RIGHT_STRATA = ("right, recheck right", "right, recheck wrong", "right, no recheck")
WRONG_STRATA = ("wrong, recheck wrong", "wrong, recheck right", "wrong, no recheck", "no answer")
STRATA = (*RIGHT_STRATA, *WRONG_STRATA)
"""By the verdict on file, then by that of math-verify; `no recheck`: it has none."""
DISAGREE = (RIGHT_STRATA[1], WRONG_STRATA[1])
LEAST = 10
"""Rows of each stratum that are drawn at least, or all where it has fewer."""
_FEW = (0.0513, 0.0513, 0.3554, 0.8177)
"""The 5% quantile of chi-squared with 2 max(x, 1) degrees of freedom, halved; x from 0 to 3."""


def strata(graded: GradedRows, recheck_N: Sequence[str | None]) -> Array:
    """The stratum of each row, its place in `STRATA`, int64[N]."""
    right_N, again_N, decided_N = decisions(graded, recheck_N)
    of_right_N = np.where(~decided_N, 2, np.where(again_N, 0, 1))
    of_wrong_N = np.where(~decided_N, 5, np.where(again_N, 4, 3))
    of_wrong_N = np.where(no_answer(graded), 6, of_wrong_N)
    return np.where(right_N, of_right_N, of_wrong_N)


def allocate(sizes_H: Sequence[int], sample: int) -> list[int]:
    """How many rows of each stratum to draw.

    All rows where two verifiers disagree, up to half of the sample; of other strata in proportion
    to their size; at least `LEAST` of each.
    """
    sizes = np.array(sizes_H)
    least = np.minimum(sizes, LEAST)
    if min(sample, sizes.sum()) < least.sum():
        found = f"--sample {sample} is too few for {int((sizes > 0).sum())} strata"
        raise DataError(found, f"give {int(least.sum())} or more")
    drawn, disagree = least, np.isin(STRATA, DISAGREE)
    # Strata that agree may be smaller than what is left for them.
    for of, most in ((disagree, sample // 2), (~disagree, sample), (disagree, sample)):
        for _ in range(min(most - int(drawn[of].sum()), sample - int(drawn.sum()))):
            lack = np.where(of & (drawn < sizes), sizes / np.maximum(drawn, 1), -1.0)
            if lack.max() < 0:
                break
            drawn[int(np.argmax(lack))] += 1
    return [int(each) for each in drawn]


def draw(graded: GradedRows, strata_N: Array, sample: int, seed: int) -> list[int]:
    """Rows of a seeded sample, stratum by stratum; within each in the order of the table."""
    sizes_H = np.bincount(strata_N, minlength=len(STRATA))
    uniform = np.random.default_rng(seed).random(graded.rows.num_rows)
    found: list[int] = []
    for stratum, n in enumerate(allocate(sizes_H.tolist(), sample)):
        rows = np.flatnonzero(strata_N == stratum)
        found += np.sort(rows[np.argsort(uniform[rows])[:n]]).tolist()
    return found


class Counted(NamedTuple):
    rows: int
    labelled: int
    errors: int


class ErrorRate(NamedTuple):
    rate: float  # of the strata with a label; NaN where none has one
    interval: Interval95  # 95%; it allows for any rate in strata without a label
    unlabelled: int  # rows in strata without a label


def error_rate(counted: Mapping[str, Counted]) -> ErrorRate:
    """The rate over some strata, by the formula above."""
    there = [each for each in counted.values() if each.rows]
    known = [each for each in there if each.labelled]
    rows, rows_known = sum(each.rows for each in there), sum(each.rows for each in known)
    if not known:
        return ErrorRate(float("nan"), Interval95(0.0, 1.0), rows)
    rate = smooth = variance = 0.0
    for size, n, k in known:
        weight, q = size / rows_known, (k + 1) / (n + 2)
        rate += weight * k / n
        smooth += weight * q
        variance += weight**2 * q * (1 - q) / n
    n_eff = smooth * (1 - smooth) / variance
    low, high = wilson_interval(min(rate, 1.0), n_eff)
    if (errors := int(rate * n_eff)) < len(_FEW):
        low = min(low, _FEW[errors] / n_eff) if rate else 0.0
    share = rows_known / rows
    return ErrorRate(rate, Interval95(share * low, share * high + (1 - share)), rows - rows_known)


# --- Weak tests: a program passes them without solving its problem --------------------

MOST_TESTS = 300
"""Tests that are run on made programs; of more, a seeded sample."""
_MOST_WEAK, _WIDTH = 10, 80
_WEAK: Mapping[Weakness, str] = {
    "nan": "passed by NaN",
    "cleared": "passed by clearing the argument",
    "object": "the program sees the expected value, where it returns an object of its own",
}


def weak_test_lines(stored: Stored, seed: int) -> Iterator[str]:
    """Which of the assertions that graded a run are weak; nothing where none did."""
    cases = list(dict.fromkeys(_cases(stored)))
    if not cases:
        return
    drawn = random.Random(seed).sample(range(len(cases)), min(len(cases), MOST_TESTS))
    try:
        found = _examined([cases[at] for at in sorted(drawn)])
    except RejuiceError as error:
        yield f"tests        not run on programs that solve nothing: {error}"
        return
    weak = [(case.test, why) for case, why in found if why]
    of = "" if len(found) == len(cases) else f" of {len(cases):,}"
    yield f"tests        {len(found):,}{of} distinct assertions, {len(weak):,} weak"
    for test, why in weak[:_MOST_WEAK]:
        shown = " ".join(test.split())
        shown = shown if len(shown) <= _WIDTH else f"{shown[: _WIDTH - 3]}..."
        yield f"  {'; '.join(map(_WEAK.__getitem__, why))}: {visible(shown, one_line=True)}"
    if len(weak) > _MOST_WEAK:
        yield f"  and {len(weak) - _MOST_WEAK:,} more"


def _cases(stored: Stored) -> Iterator[AssertCase]:
    for one in (each for each in stored.sets if each.kind == "answers" and not each.incomplete):
        for operator in (step.operator for step in verifiers_of(one)):
            if not isinstance(operator, UnitTestMapper) or operator.style == "stdin":
                continue
            for part in range(one.parts):
                frame = matching(operator, as_graded(one, part))
                if set(operator.reads()) <= set(frame.column_names):
                    yield from operator.assertions(frame.select([*operator.reads()]))


def _examined(cases: list[AssertCase]) -> list[tuple[AssertCase, tuple[Weakness, ...]]]:
    from ...operators.sandbox.cases import BadTestsError
    from ...operators.sandbox.grading import Grader, shared_sandbox, weaknesses
    from ...operators.sandbox.run import SandboxError, SandboxLimits, check_confinement

    check_confinement()
    grader = Grader(shared_sandbox(), SandboxLimits())

    def examine(case: AssertCase) -> tuple[Weakness, ...] | None:
        try:
            return weaknesses(grader, case)
        except (BadTestsError, SandboxError):
            return None

    with ThreadPoolExecutor(usable_cores()) as pool:
        found = list(pool.map(examine, cases))
    return [(case, why) for case, why in zip(cases, found, strict=True) if why is not None]


# --- Labels: the file for a person to label, and reading it back ----------------------
# One JSON object per line, see `sample_lines`. The person sets `label` to `right`, `wrong` or
# `unsure`: whether the *response* is right. Lines of kind `metamorphic` are pairs that failed a
# check, to look at; they take no label.

LABELS = ("right", "wrong", "unsure")
_SAMPLE, _FAILING = "sample", "metamorphic"
_SHOWN = ("set", "row", "response_id", "prompt", "response", "reference", "extracted_answer")


def sample_lines(
    graded: GradedRows, recheck_N: Sequence[str | None], strata_N: Array, rows: Sequence[int]
) -> Iterator[str]:
    sizes = Counter(strata_N.tolist())
    names = [name for name in _SHOWN if name in graded.rows.column_names]
    taken = graded.rows.select(names).take(pa.array(rows, pa.int64()))
    for row, values in zip(rows, taken.to_pylist(), strict=True):
        stratum = int(strata_N[row])
        yield as_json(
            {
                "kind": _SAMPLE,
                "stratum": STRATA[stratum],
                "stratum_rows": sizes[stratum],
                **values,
                "verdict": graded.rows["verdict"][row].as_py(),
                "recheck": recheck_N[row],
                "label": None,
            }
        )


def failing_lines(failing: Sequence[FailingPair]) -> Iterator[str]:
    for each in failing:
        yield as_json({"kind": _FAILING, **each._asdict()})


def write_lines(path: Path, lines: Sequence[str]) -> None:
    write_file(path, "".join(f"{line}\n" for line in lines))


def check_replaceable(path: Path) -> None:
    """Refuse to write over labels, or over a file that no audit has written."""
    if not path.exists():
        return
    other = "give another --output, or --overwrite"
    try:
        lines = [line for _, line in _objects(path)]
    except DataError:
        lines = [{}]
    if not all(line.get("kind") in (_SAMPLE, _FAILING) for line in lines):
        raise DataError(f"{path_text(path)} is there, and was not written by an audit", other)
    if any(line.get("label") for line in lines):
        raise DataError(f"{path_text(path)} has labels", f"read it with --labels, or {other}")


class LabelledErrors(NamedTuple):
    labelled: int  # rows that are right or wrong by their label
    unsure: int  # rows with that label; they count as without one
    unlabelled: int  # rows of the sample without a label
    errors: ErrorRate  # the rate of wrong verdicts among all
    false_right: ErrorRate  # among the responses graded right, those that are wrong
    false_wrong: ErrorRate  # among the responses graded wrong, those that are right


def read_labels(path: Path, graded: GradedRows) -> dict[int, str | None]:
    """The label of each row that a labelled file has, by its place in the table."""
    rows = graded.rows.select(["set", "row", "response_id", "verdict"]).to_pylist()
    places = {repr((row["set"], row["row"])): at for at, row in enumerate(rows)}
    found, lines = dict[int, str | None](), dict[int, int]()
    for number, line in _objects(path):
        if line.get("kind") == _FAILING:
            continue
        where, label = f"{path}, line {number}", line.get("label") or None
        at = places.get(repr((line.get("set"), line.get("row"))), -1)
        if at < 0 or any(value != line.get(name) for name, value in rows[at].items()):
            raise DataError("the row is not in this run", "give its own labels", where=where)
        if label not in (None, *LABELS):
            shown = ascii(label)[:40]
            raise DataError(f"label is {shown}", "write right, wrong or unsure", where=where)
        if at in found:
            first = f"the row is on line {lines[at]}, too"
            raise DataError(first, "label it once", where=where)
        found[at], lines[at] = label, number
    if not found:
        raise DataError(f"{path} has no rows to label", "give the file that an audit has written")
    return found


def labelled_errors(
    labels: Mapping[int, str | None], graded: GradedRows, strata_N: Array
) -> LabelledErrors:
    verdicts = graded.rows["verdict"].to_pylist()
    known, errors = Counter[int](), Counter[int]()
    for at, label in labels.items():
        if label in ("right", "wrong"):
            known[strata_N[at]] += 1
            errors[strata_N[at]] += (label == "right") != (verdicts[at] == RIGHT)
    sizes = np.bincount(strata_N, minlength=len(STRATA)).tolist()
    counted = {n: Counted(sizes[at], known[at], errors[at]) for at, n in enumerate(STRATA)}
    right, wrong = ({n: counted[n] for n in names} for names in (RIGHT_STRATA, WRONG_STRATA))
    given = Counter(labels.values())
    rates = (error_rate(each) for each in (counted, right, wrong))
    return LabelledErrors(known.total(), given["unsure"], given[None], *rates)


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        lines = path.read_bytes().split(b"\n")  # Nothing else ends a line, U+2028 does not.
    except OSError as error:
        raise DataError(f"{path} cannot be read", error.strerror or "") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = orjson.loads(line)
        except orjson.JSONDecodeError:
            found = None
        if not isinstance(found, dict):
            right = "write one JSON object on each line"
            raise DataError("this is no JSON object", right, where=f"{path}, line {number}")
        yield number, found


_HEADING = "signs        "
_INDENT = " " * len(_HEADING)


def sign_lines(signs: Sequence[SignResult]) -> Iterator[str]:
    several = len({each.set for each in signs}) > 1
    for at, each in enumerate(signs):
        of = f" in {_visible(each.set)}" if several else ""
        p = "no p-value" if each.p is None else f"p-value {p_text(each.p)}"
        why = each.reason and f", {each.reason}"
        if each.alarm:
            why = f", effect {each.effect:.2f} *; rows: add --rows {_slug(each)}"
        yield f"{_INDENT if at else _HEADING}{_visible(each.name)}{of}: {p}{why}"
    if m := sum(each.p is not None for each in signs):
        found = "* found" if any(each.alarm for each in signs) else "nothing found"
        yield (
            f"{_INDENT}{found} at a family-wise false alarm rate of {ALPHA:.0%} (Holm over {m}): "
            f"of clean runs, at most 1 in {round(1 / ALPHA)} has an alarm"
        )


def sign_row_lines(signs: Sequence[SignResult], name: str) -> Iterator[str]:
    """JSON lines of the rows of a sign, those that add most to it first."""
    known = dict.fromkeys(map(_slug, signs))
    wanted = name.replace(" ", "_")
    if wanted not in known:
        raise DataError(f"--rows {_visible(name)}", f"write one of {', '.join(known)}")
    for each in signs:
        if _slug(each) == wanted:
            for row in each.rows:
                yield as_json({"response_id": row, "sign": each.name, "set": each.set})


def _slug(sign: SignResult) -> str:
    return _visible(sign.name).replace(" ", "_")


def _visible(text: str) -> str:
    return visible(text, one_line=True)


def agreement_lines(
    path: Path, graded: GradedRows, found: Agreement, no_answer: int
) -> Iterator[str]:
    rows, name = graded.rows.num_rows, graded.verifier
    left_out = f", {graded.ungraded:,} not graded" if graded.ungraded else ""
    graded_by = f"{rows:,} responses graded by {name}{left_out}"
    yield f"{path_text(path)}: {graded_by}; nothing is sampled or judged."
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


def formula_lines(graded: GradedRows) -> Iterator[str]:
    """How many right answers are only equal to a number, such as the question's formula."""
    operator = graded.by_math_verify_mapper
    if operator is None or operator.worked_out:
        return
    right = graded.rows.filter(pc.equal(graded.rows["verdict"], RIGHT))
    answers, references = (right[name].to_pylist() for name in ("extracted_answer", "reference"))
    pairs = [(a, r) for a, r in zip(answers, references, strict=True) if a and r]
    formulas = [(a, r) for a, r in pairs if not is_worked_out(a, r)]
    if formulas:
        answer, reference = formulas[-1]
        yield (
            f"formulas     {len(formulas):,} of {len(pairs):,} right answers are not worked out, "
            f"such as '{_visible(answer)}' for {_visible(reference)}: `worked_out: true` of "
            f"{operator.name()} grades them wrong"
        )


def error_lines(verifier: str, found: LabelledErrors | None) -> Iterator[str]:
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
        yield f"  {len(found.failing):,} failing pairs are at the end of {path_text(listed)}"


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
