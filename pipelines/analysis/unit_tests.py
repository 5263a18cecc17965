"""Tests of a stored run that a program passes without solving its problem."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ...operators.cores import usable_cores
from ...operators.errors import RejuiceError
from ...operators.mapper.unit_test_mapper import UnitTestMapper
from ...operators.sandbox.suite import AssertCase
from ...operators.sandbox.weak import Weakness
from .stored import Stored
from .verifiers import as_graded, verifier_of

MOST_TESTS = 300
"""Tests that are run on made programs; of more, a seeded sample."""


class WeakTest(NamedTuple):
    """A test, and why it is weak."""

    test: str
    why: tuple[Weakness, ...]


class TestAudit(NamedTuple):
    """What is known of the tests of a run.

    Attributes:
        distinct: tests that are assertions; equal ones count once.
        examined: of these, those that were run on made programs.
        weak: of these, the weak ones.
        failed: why none could be run; empty if they could.
    """

    distinct: int
    examined: int
    weak: tuple[WeakTest, ...]
    failed: str = ""


def audit_tests(stored: Stored, seed: int) -> TestAudit | None:
    """Which of the assertions that graded a run are weak; None where none did.

    Args:
        stored: of which the graded rows are read.
        seed: of the sample, where there are many tests.

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
    from ...operators.sandbox.assert_style import AssertRunner
    from ...operators.sandbox.grading import shared_sandbox
    from ...operators.sandbox.run import SandboxError, SandboxLimits, check_confinement
    from ...operators.sandbox.suite import BadTestsError
    from ...operators.sandbox.weak import weaknesses

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
