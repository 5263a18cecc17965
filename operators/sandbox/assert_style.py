"""Assertions about a program's functions, with the test and the program in processes of their own.

    test, planning ──> calls ──> program ──> answers ──> test ──> passed, failed, error
                        ^                                 │
                        └──────── further calls ──────────┘

Planning depends on the test alone and is done once for all programs. Whatever the program does to
its process, it can only answer calls, and an answer is plain data: a number that claims to be equal
to every other is just a number in the process of the test.
"""

from __future__ import annotations

import inspect
import json
import marshal
from functools import cache
from types import ModuleType
from typing import Any, Literal, NamedTuple

from . import judge, plain_data, test_program
from .run import Execution, Sandbox, SandboxLimits
from .suite import AssertCase, BadTestsError

CaseVerdict = Literal[
    "passed", "failed", "error", "timeout", "memory", "output", "verifier_error", "not_run"
]
"""What came of a test. `error`: an exception, or an early exit; `timeout`, `memory`, `output`: the
program went over this limit; `verifier_error`: the sandbox has failed; `not_run`: an earlier test
decides."""

JUDGE_SECONDS = 10.0
"""Seconds that a test itself may take at least, beside the program."""
MOST_ROUNDS = 32
"""Times that a test may ask for calls that were not planned."""
_JUDGE_OUTPUT = 64 * 2**20
_OVER_LIMIT: dict[str, CaseVerdict] = {
    "timeout": "timeout",
    "memory": "memory",
    "output": "output",
}


class Program(NamedTuple):
    """What a policy has written, and code that goes before it, such as imports and a signature."""

    code: str
    prefix: str = ""


class AssertRunner:
    """Runs tests of one kind of limits. Thread-safe.

    Args:
        sandbox: runs the processes.
        limits: of the program, for one test.
    """

    def __init__(self, sandbox: Sandbox, limits: SandboxLimits) -> None:
        self._sandbox = sandbox
        self._limits = limits
        seconds = max(limits.seconds, JUDGE_SECONDS)
        self._judge_limits = limits._replace(seconds=seconds, output=_JUDGE_OUTPUT)
        self._plans: dict[AssertCase, list[Any]] = {}

    def plan(self, case: AssertCase) -> list[Any]:
        """The calls that a test makes, as far as they can be known without results.

        Raises:
            BadTestsError: the test makes none, or cannot be run.
            SandboxError: the sandbox has failed.
        """
        if case not in self._plans:
            found = _reply(self._judge(case, [], []))
            if found.get("outcome") != "unanswered":
                raise BadTestsError("a test calls no function of the program, or cannot be run")
            self._plans[case] = found["calls"]
        return self._plans[case]

    def run(self, written: Program, case: AssertCase) -> CaseVerdict:
        """What comes of a test.

        Raises:
            BadTestsError: as `plan`.
            SandboxError: the sandbox has failed.
        """
        calls = self.plan(case)
        for _ in range(MOST_ROUNDS):
            job = {**written._asdict(), "calls": calls}
            done = self._sandbox.run(
                _source(test_program), stdin=json.dumps(job), limits=self._limits
            )
            judged = self._judge(case, calls, _answers(done.stdout))
            found = _reply(judged)
            outcome: judge.TestOutcome | None = found.get("outcome")
            if outcome == "unanswered":
                calls = found["calls"]
            elif outcome == "passed" or outcome == "failed":
                return outcome
            else:
                # The test ended where the program did, or else the test itself did not end well.
                return _OVER_LIMIT.get((done if outcome == "ended" else judged).status, "error")
        return "timeout"

    def _judge(self, case: AssertCase, calls: list[Any], answers: list[Any]) -> Execution:
        job = {**case._asdict(), "calls": calls, "answers": answers}
        return self._sandbox.run(_source(judge), stdin=json.dumps(job), limits=self._judge_limits)


@cache
def _source(module: ModuleType) -> str:
    """A program that calls `main` of a module and has what the module imports from here.

    It is compiled, because that takes as long as all the rest.
    """
    lines = [
        line
        for each in (plain_data, module)
        for line in inspect.getsource(each).splitlines()
        if not line.startswith(("from __future__", "from ."))
    ]
    text = "\n".join(["from __future__ import annotations", *lines, ""])
    code = marshal.dumps(compile(text, module.__name__, "exec"))
    return f"import marshal\nexec(marshal.loads({code!r}))\nmain()\n"


def _answers(stdout: str) -> list[Any]:
    """The answers that the program claims, up to the first line that cannot be read."""
    found = list[Any]()
    for line in stdout.split("\n"):
        if line.startswith(test_program.MARK):
            try:
                found.append(json.loads(line[1:]))
            except (ValueError, RecursionError):
                break
    return found


def _reply(done: Execution) -> dict[str, Any]:
    """What the process of a test has printed last; empty where it did not get there."""
    if done.status != "ok":
        return {}
    try:
        found = json.loads(done.stdout.rstrip("\n").rpartition("\n")[2])
    except ValueError:  # The test has closed its output.
        return {}
    return found if isinstance(found, dict) else {}
