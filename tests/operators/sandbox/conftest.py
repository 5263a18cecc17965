import pytest

from rejuice.operators.sandbox.cases import StdinCase, cases_of
from rejuice.operators.sandbox.grading import Grader, Program, Submission, shared_sandbox
from rejuice.operators.sandbox.run import SandboxLimits


@pytest.fixture
def limits():
    return SandboxLimits(memory=256 * 2**20, output=1_000_000)


@pytest.fixture
def verdicts(limits):
    """What becomes of the tests of a program; tests are text, or pairs of input and output."""

    def grade(code, *tests, prefix="", setup=None, entry_point=None, seconds=5.0, **options):
        if tests and isinstance(tests[0], tuple):
            cases = tuple(StdinCase(*each) for each in tests)
        else:
            cases = cases_of([list(tests)], setup, entry_point, style="assert")
        grader = Grader(
            shared_sandbox(), limits._replace(seconds=seconds), **{"run_all": True, **options}
        )
        (found,) = grader.grade([Submission(Program(code, prefix), cases)], workers=1)
        return list(found)

    return grade
