"""Runs the tests of many programs, on all cores."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NamedTuple, TypeAlias

from ..cores import usable_cores
from .assert_style import AssertRunner, CaseVerdict, Program
from .printed import same_output
from .run import Sandbox, SandboxError, SandboxLimits
from .suite import AssertCase, BadTestsError, StdinCase

Cases: TypeAlias = tuple[StdinCase, ...] | tuple[AssertCase, ...]
"""The tests of a problem."""
CaseVerdicts: TypeAlias = tuple[CaseVerdict, ...]
"""One for each test of a problem; empty where the tests turned out to be bad."""


class Submission(NamedTuple):
    """A program and the tests of its problem."""

    program: Program
    cases: Cases


class Grader:
    """Runs tests, each in a process of its own.

    Args:
        sandbox: runs the processes. Thread-safe.
        limits: of a program, for one test.
        tolerance: see `same_output`.
        run_all: whether tests are run after one that did not pass.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        limits: SandboxLimits,
        *,
        tolerance: float | None = None,
        run_all: bool = False,
    ) -> None:
        self._sandbox = sandbox
        self._limits = limits
        self._asserts = AssertRunner(sandbox, limits)
        self._tolerance = tolerance
        self._run_all = run_all

    def grade(self, submissions: Sequence[Submission], *, workers: int) -> list[CaseVerdicts]:
        """The verdicts on many programs, in order; equal submissions are graded once."""
        distinct = list(dict.fromkeys(submissions))
        with ThreadPoolExecutor(workers) as pool:
            found = dict(zip(distinct, pool.map(self._grade, distinct), strict=True))
        return [found[each] for each in submissions]

    def _grade(self, submission: Submission) -> CaseVerdicts:
        verdicts = list[CaseVerdict]()
        for case in submission.cases:
            try:
                verdict = self._run(submission.program, case)
            except SandboxError:
                verdict = "verifier_error"
            except BadTestsError:
                return ()
            verdicts.append(verdict)
            # A program that has hung once would hang again, for as long as its limit.
            if verdict in ("timeout", "verifier_error") or (
                verdict != "passed" and not self._run_all
            ):
                break
        not_run: list[CaseVerdict] = ["not_run"] * (len(submission.cases) - len(verdicts))
        return (*verdicts, *not_run)

    def _run(self, program: Program, case: StdinCase | AssertCase) -> CaseVerdict:
        if isinstance(case, AssertCase):
            return self._asserts.run(program, case)
        done = self._sandbox.run(program.code, stdin=case.stdin, limits=self._limits)
        if done.status != "ok":
            return done.status
        same = same_output(done.stdout, case.expected, self._tolerance)
        return "passed" if same else "failed"


@cache
def shared_sandbox() -> Sandbox:
    """The sandbox of this process, with a worker for each usable core."""
    return Sandbox(workers=usable_cores())
