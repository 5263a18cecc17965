"""Audit the verdicts of a stored run: a sample for a person to label, error rates, weak tests."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from ...operators import DataError
from ...operators.confidence import Interval95, wilson_interval
from ...operators.errors import RejuiceError
from ...operators.groups import Array, uniform_N
from ...operators.mapper.unit_test_mapper import UnitTestMapper
from ...operators.sandbox.grading import AssertCase, Weakness
from ...operators.workers import usable_cores
from .stored import Stored
from .verdicts import GradedRows, as_graded, decisions, no_answer, verifier_of

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
# q_h keeps a stratum without an error from having no variance. Nothing is taken off for strata that
# are drawn whole (no finite population correction), so the interval is rather too wide for these
# rows.
#
# Sources: W. G. Cochran, Sampling Techniques, 1977, chapter 5 (stratified proportions); E. L. Korn
# and B. I. Graubard, Confidence intervals for proportions with small expected number of positive
# counts, Survey Methodology 24, 1998 (an effective number of trials); L. D. Brown, T. T. Cai and A.
# DasGupta, Interval estimation for a binomial proportion, Statistical Science 16, 2001 (the lower
# end of Wilson's interval for a few errors, which is otherwise too high: one error in a sample is
# no proof of many).

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

    Raises:
        DataError: the sample is too small for that.

    Example:
        >>> allocate([800, 10, 0, 1180, 0, 0, 10], 200)
        [73, 10, 0, 107, 0, 0, 10]
    """
    sizes = np.array(sizes_H)
    if sample >= sizes.sum():
        return [int(size) for size in sizes]
    least = np.minimum(sizes, LEAST)
    if sample < least.sum():
        found = f"--sample {sample} is too few for {int((sizes > 0).sum())} strata"
        raise DataError(found, f"give {int(least.sum())} or more")
    disagree = np.isin(STRATA, DISAGREE)
    free = sample - int(least[~disagree].sum())
    wanted = min(int(sizes[disagree].sum()), max(sample // 2, int(least[disagree].sum())), free)
    drawn = np.zeros_like(sizes)
    drawn[disagree] = _shared_out(sizes[disagree], least[disagree], wanted)
    rest = sample - wanted
    drawn[~disagree] = _shared_out(sizes[~disagree], least[~disagree], rest)
    # Strata that agree may be smaller than what is left for them.
    drawn[disagree] = _shared_out(
        sizes[disagree], drawn[disagree], sample - int(drawn[~disagree].sum())
    )
    return [int(each) for each in drawn]


def _shared_out(sizes: Array, least: Array, wanted: int) -> Array:
    """`wanted` in proportion to sizes, between `least` and the size of each, one by one."""
    found = least.copy()
    for _ in range(min(wanted, int(sizes.sum())) - int(least.sum())):
        lack = np.where(found < sizes, sizes / np.maximum(found, 1), -1.0)
        found[int(np.argmax(lack))] += 1
    return found


def draw(graded: GradedRows, strata_N: Array, sample: int, seed: int) -> list[int]:
    """Rows of a seeded sample, stratum by stratum; within each in the order of the table.

    Raises:
        DataError: the sample is too small, see `allocate`.
    """
    if not len(strata_N):
        return []
    sizes_H = np.bincount(strata_N, minlength=len(STRATA))
    uniform = _uniform(graded, seed)
    found: list[int] = []
    for stratum, n in enumerate(allocate(sizes_H.tolist(), sample)):
        rows = np.flatnonzero(strata_N == stratum)
        first = rows[np.argsort(uniform[rows], kind="stable")[:n]]
        found += np.sort(first).tolist()
    return found


def _uniform(graded: GradedRows, seed: int) -> Array:
    # A prompt may be in several training steps: each set has numbers of its own.
    names = graded.table["set"]
    found = np.empty(graded.table.num_rows)
    starts = np.flatnonzero(np.append(True, np.asarray(names)[1:] != np.asarray(names)[:-1]))
    for start, end in zip(starts, [*starts[1:], len(found)], strict=True):
        piece = graded.table.select(["prompt_id"]).slice(start, end - start)
        found[start:end] = uniform_N(piece, seed=seed, salt=f"audit {names[int(start)]}")
    return found


class Counted(NamedTuple):
    """What is known of a stratum: its rows, how many have a label, and how many are in error."""

    rows: int
    labelled: int
    errors: int


class ErrorRate(NamedTuple):
    """A rate of errors, over strata."""

    rate: float  # of the strata with a label; NaN where none has one
    interval: Interval95  # 95%; it allows for any rate in strata without a label
    unlabelled: int  # rows in strata without a label


def error_rate(counted: Mapping[str, Counted]) -> ErrorRate:
    """The rate of errors over some strata, by the formula above.

    Example:
        >>> error_rate({"no answer": Counted(100, 10, 0)}).rate
        0.0
    """
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


# --- Tests of a stored run that a program passes without solving its problem ----------

MOST_TESTS = 300
"""Tests that are run on made programs; of more, a seeded sample."""


class WeakTest(NamedTuple):
    """A test, and why it is weak."""

    test: str
    why: tuple[Weakness, ...]


class TestAudit(NamedTuple):
    """What is known of the tests of a run."""

    distinct: int  # tests that are assertions; equal ones count once
    examined: int  # of these, those that were run on made programs
    weak: tuple[WeakTest, ...]  # of these, the weak ones
    failed: str = ""  # why none could be run; empty if they could


def audit_tests(stored: Stored, seed: int) -> TestAudit | None:
    """Which of the assertions that graded a run are weak; None where none did.

    Raises:
        RejuiceError: the files of the run are damaged.
    """
    cases = list(dict.fromkeys(_cases(stored)))
    if not cases:
        return None
    drawn = random.Random(seed).sample(range(len(cases)), min(len(cases), MOST_TESTS))
    try:
        found = _examined([cases[at] for at in sorted(drawn)])
    except RejuiceError as error:
        return TestAudit(len(cases), 0, (), str(error))
    weak = tuple(WeakTest(case.test, why) for case, why in found if why)
    return TestAudit(len(cases), len(found), weak)


def _cases(stored: Stored) -> Iterator[AssertCase]:
    for one in (each for each in stored.sets if each.kind == "answers" and not each.incomplete):
        operator = verifier_of(one)[1]
        if not isinstance(operator, UnitTestMapper) or operator.style != "assert":
            continue
        for part in range(one.parts):
            frame = as_graded(one, part)
            if set(operator.reads()) <= set(frame.column_names):
                yield from operator.assertions(frame.select([*operator.reads()]))


def _examined(cases: list[AssertCase]) -> list[tuple[AssertCase, tuple[Weakness, ...]]]:
    """Tests that could be run, in order, and why they are weak."""
    from ...operators.sandbox.grading import AssertRunner, BadTestsError, shared_sandbox, weaknesses
    from ...operators.sandbox.run import SandboxError, SandboxLimits, check_confinement

    check_confinement()
    runner = AssertRunner(shared_sandbox(), SandboxLimits())

    def examine(case: AssertCase) -> tuple[Weakness, ...] | None:
        try:
            return weaknesses(runner, case)
        except (BadTestsError, SandboxError):
            return None

    with ThreadPoolExecutor(usable_cores()) as pool:
        found = list(pool.map(examine, cases))
    return [(case, why) for case, why in zip(cases, found, strict=True) if why is not None]
