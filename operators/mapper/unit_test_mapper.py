"""Grade programs by running their tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from typing_extensions import Self

from ..arrow_compute import pc
from ..chats import continued
from ..columns import at_path, columns_of, component, component_columns
from ..operator import Columns, Mapper

if TYPE_CHECKING:
    from ..sandbox.cases import AssertCase, Case
    from ..sandbox.grading import CaseVerdicts, Submission

_MIB = 2**20
_AT_ONCE = 256 * _MIB


class UnitTestMapper(Mapper):
    """Run the tests of a problem on the program in the response, and write the verdict.

    The program is the last fenced block that is labelled as Python, else the last block, else the
    whole response; a block of comments alone is none. So all of a program has to be in one block,
    and an example of its use in none after it. A program in another language, by the label of its
    block or how it begins, is not run. Each test runs in a process of its own, confined: without
    files, network, other processes or threads. Programs have the standard library, and no other
    packages.

    - `verdict` is `correct` where all tests pass, `no_answer` where the response has no program,
      else `wrong_answer`. As with every public judge, a program that does not finish in `timeout`
      or goes over `memory` is wrong: both are its own doing, unlike the `timeout` of
      `math_verify_mapper`, which is the verifier's. See `on_timeout`.
    - `test_verdicts`: for each test `passed`, `failed`, `error` (an exception, or it ended early),
      `timeout`, `memory`, `output` (it printed more than `max_output`), `other_language/cpp`,
      `no_package/numpy`, `failed/checker_timeout`, `verifier_error`, or `not_run`: a test before it
      did not pass, or, with `reward: fraction`, timed out. The notes count those with a `/`.
    - `tests_passed`, `tests_run`: how many, int32; a program in another language is not run.
    - `extracted_answer`: the program.

    Accuracy is missing, and the verdict `verifier_error`, if the response could not be graded:
    `no_tests`, `bad_tests`, `other_language`, `no_package`, or `verifier_error`, a failure of the
    sandbox. It is also missing for a null response, `no_response`, which has no verdict.

    The tests of a row are read in the layout that they have, as lists and structs or as JSON text.
    A test is what the program reads and should print, but for white space at the ends of lines and
    empty lines at the end; or a call of a function, and its result; or Python code.

    - A list of `{input, output}`, `{stdin, stdout}`: codeforces (`official_tests`), DeepCoder,
      LiveCodeBench: `tests: [public_test_cases, private_test_cases]`, packed as they are, and
      `entry_point: metadata`, which has the function that `functional` tests call.
    - Parallel lists `{inputs, outputs}` or `{input, output}`: `input_output` of APPS and TACO,
      CodeContests (`tests: [public_tests, private_tests]`), columns (`tests: [inputs, outputs]`).
    - Tests with a `fn_name` or `func_name` call it, of a class `Solution` where the program has
      one, which need not import what LiveCodeBench imports for it. Results are compared as JSON:
      tuples are lists. A list of one result may also stand for it, as in TACO.
    - A dict of one of these: `{test_cases}` of SYNTHETIC-1, also as an `answer`, `{assert_case}` of
      AM-Thinking, `{test_code}` of Skywork, `{functional}` of rLLM.
    - MBPP: `tests: test_list`, `setup: test_setup_code`; its question is in `text`, and
      `tests: [test_list, challenge_test_list]` adds the harder tests. In the sanitized version
      `setup: test_imports`, and the question is in `prompt`.
    - HumanEval: `tests: test`, `entry_point: entry_point`, `prefix: prompt`. A test defines
      `check(candidate)`; imports and signature are in `prompt`, and the program either continues it
      or repeats it. LeetCodeDataset is the same, its `prompt` renamed; `input_output` is not read.
    - KodCode: `tests: test`. Each test function of a file for pytest is a test, and `solution`,
      from which they import, is the program. Of pytest there are `raises` and `approx`.

    Tests that import more than the standard library, such as EvalPlus's, or assert nothing are
    `bad_tests`. `rejuice check` and the end of a run say whose tests cannot be read, and why.

    Tests never run in the process of the program. It gets the calls that they make: `f(3)` of
    `assert f(3) == 9`. Its answer goes back as plain data to a process that has the test and
    nothing of the program, with changes to a list, dict or set that a function was given, and what
    it has printed where the test captures that. Names that a test does not define are those of
    Python, then modules of the standard library, then the program's. A test that gives the program
    a function or an object of its own, patches what it calls, or itself needs files or processes is
    `bad_tests`. `docs/verifier.md` says what a program can still do. `rejuice audit` names tests
    that are passed by NaN, by an object of the program's that agrees to everything, or by a program
    that clears its argument. Compare plain values in tests.
    """

    tests: str | tuple[str, ...] = Field("tests", min_length=1)
    """Column with the tests of a problem, or several columns, whose tests are joined;
    `reward_model.ground_truth` is a field of a column of structs, as in verl's datasets."""
    style: Literal["auto", "stdin", "assert"] = "auto"
    """What the tests are; others are `bad_tests`. `auto`: anything; `stdin`: inputs with the
    outputs that belong to them; `assert`: Python code or calls."""
    response_prefix: str | None = None
    """What the prompt ends with and a response continues, such as the `<think>` of DeepSeek-R1's
    chat template. Null: what the template in the folder of the policy ends with, in a recipe that
    samples; else nothing."""
    setup: str | None = None
    """Column with Python code that runs before each test that is Python or a call: text or a list
    of lines."""
    entry_point: str | None = None
    """Column with the name of the function that tests call, where they do not name it, such as
    `candidate` of HumanEval; or the `metadata` of LiveCodeBench. Null where they do."""
    prefix: str | None = None
    """Column with Python code that goes before a program whose functions are called: text, or the
    chat messages that `prompt_template_mapper` made of it, of which the user's last one counts."""
    checker: str | None = None
    """Column with Python code that decides which outputs are right where several are, for tests of
    inputs and outputs. A script gets the paths of three files as `sys.argv[1:]`, which it can open
    and no more, with the input, the expected and the printed output, and prints 1 or 0, as
    `generated_checker` of open-r1/codeforces; other code has a function `check(stdin, printed,
    expected)`. It runs confined as programs are, in a process of its own, for 10 s at most, and
    must not evaluate what is printed as code: then the program decides. What it fails on is wrong.
    One that does not accept an expected output is `bad_tests`. Null in a row: the output has to be
    the expected one."""
    without_block: Literal["whole_response", "no_answer"] = "whole_response"
    """What the program is in a response without a fenced block."""
    timeout: float = Field(5.0, gt=0)
    """Seconds for each test; a program that takes longer is killed."""
    memory: int = Field(512, ge=16)
    """MiB for each test."""
    max_output: int = Field(1_000_000, gt=0, le=2**30)
    """Bytes that a program may print, or give back to tests, in each test."""
    float_tolerance: float | None = Field(None, gt=0, allow_inf_nan=False)
    """How far printed numbers may be off, absolutely or relative to the expected one; lines are
    then compared word by word. Null: outputs have to be equal."""
    reward: Literal["all", "fraction"] = "all"
    """Accuracy of a program that passes some tests: `all`: wrong, and tests after the first that
    does not pass are not run; `fraction`: by the share of tests that it passes."""
    right: float = Field(1.0, allow_inf_nan=False)
    """Accuracy of a program that passes all tests."""
    wrong: float = Field(0.0, allow_inf_nan=False)
    """Accuracy of a program that passes none, and of a response without a program."""
    on_timeout: Literal["wrong", "missing"] = "wrong"
    """What a program is that took too long for a test and passed the others: `wrong`, or `missing`,
    with the verdict `timeout`, for machines that may be too slow at times. A policy may learn to
    avoid `wrong` by programs that do not finish."""

    on_unrunnable: Literal["missing", "wrong"] | None = None
    """What a program is that cannot be run here: one in another language, and one that needs a
    well-known package of Python and passed the tests before. Null: `wrong` in a recipe that
    samples, else `missing`. To a policy in training `missing` is no neutral reward: its advantage
    is 0, where that of a wrong answer is less, so it may learn to answer hard problems so."""

    retryable: ClassVar[frozenset[str] | None] = frozenset({"timeout", "verifier_error"})
    missing: ClassVar[Mapping[str, str]] = {
        "no_response": "the response is null",
        "no_tests": "the problem has no tests",
        "bad_tests": "the tests have no known layout, cannot be run, or call no function, or their "
        "checker does not accept the expected output",
        "other_language": "the program is not in Python, unless `on_unrunnable` is `wrong`",
        "no_package": "the program needs a package, unless `on_unrunnable` is `wrong`",
        "timeout": "a test took longer than `timeout`, with `on_timeout: missing`",
        "verifier_error": "the sandbox failed",
    }
    """Why the accuracy may be missing."""
    not_failures: ClassVar[frozenset[str]] = frozenset({"no_tests"})

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.wrong >= self.right:
            raise ValueError(f"wrong {self.wrong} is not below right {self.right}")
        return self

    def preflight(self) -> None:
        from ..sandbox.run import check_confinement

        check_confinement()

    def reads(self) -> Columns:
        return tuple(dict.fromkeys(("response", *columns_of(self.paths()))))

    def optional_reads(self) -> Mapping[str, str]:
        return {"prompt_id": "prompt_id"}  # To say whose tests are bad.

    def paths(self) -> Columns:
        others = (self.setup, self.entry_point, self.checker, self.prefix)
        return (*self._test_paths(), *(path for path in others if path is not None))

    def writes(self) -> Columns:
        graded = ("verdict", "extracted_answer", *component_columns("accuracy"))
        return (*graded, "tests_passed", "tests_run", "test_verdicts")

    def map(self, table: pa.Table) -> Mapping[str, pa.Array]:
        results = list[_GradedRow]()
        for rows in _batches(self._rows(table)):
            verdicts = iter(self._grade([row.submission for row in rows if row.submission]))
            for row in rows:
                results.append(self._result(row, next(verdicts) if row.submission else None))
        return self._columns(results)

    def logged(self, table: pa.Table, columns: Mapping[str, pa.Array]) -> Mapping[str, int]:
        """Why tests are bad, and of which prompt."""
        bad_N = pc.equal(columns["reward_accuracy_missing"], "bad_tests")
        rows = table.filter(pc.fill_null(bad_N, False))
        prompts = _values(rows, "prompt_id" if "prompt_id" in table.column_names else None)
        found = Counter[str]()
        for prompt, cases in zip(prompts, self.cases(rows), strict=True):
            why: ValueError | str = (
                "they need what is not there, such as files, or call no function"
            )
            if not isinstance(cases, tuple):
                why = cases
            elif getattr(cases[0], "checker", ""):
                why = "their checker does not accept the expected output"
            of = "" if prompt is None else f" of prompt {prompt!r}"
            found[f"bad_tests{of}: {why}"] += 1
        return found

    def cases(self, table: pa.Table) -> Iterator[tuple[Case, ...] | ValueError]:
        """The tests of each row, or what is wrong with them."""
        from ..sandbox.cases import BadTestsError, cases_of

        paths = (*self._test_paths(), self.setup, self.entry_point, self.checker)
        fields = [path.rpartition(".")[2] for path in self._test_paths()]
        before: tuple[Any, ...] = ()
        found: tuple[Case, ...] | ValueError = ()
        for row in zip(*(_values(table, path) for path in paths), strict=True):
            if row != before:  # The responses of a group have the same tests.
                *cells, setup, entry, checker = before = row
                try:
                    found = cases_of(cells, setup, entry, self.style, checker, fields)
                except BadTestsError as error:
                    found = error
            yield found

    def notes(self, table: pa.Table, columns: Mapping[str, pa.Array]) -> Mapping[str, float]:
        of_rows = columns["test_verdicts"].drop_null().to_pylist()
        return Counter(each for verdicts in of_rows for each in {*verdicts} if "/" in each)

    def assertions(self, table: pa.Table) -> Iterator[AssertCase]:
        """The tests of all rows that have a program, but for those of its output."""
        from ..sandbox.cases import AssertCase

        for submission in (row.submission for row in self._rows(table) if row.submission):
            yield from (case for case in submission.cases if isinstance(case, AssertCase))

    def _grade(self, submissions: list[Submission]) -> list[CaseVerdicts]:
        if not submissions:
            return []
        from ..sandbox.grading import Grader, shared_sandbox
        from ..sandbox.run import SandboxLimits
        from ..workers import usable_cores

        self.preflight()
        grader = Grader(
            shared_sandbox(),
            SandboxLimits(self.timeout, self.memory * _MIB, self.max_output),
            tolerance=self.float_tolerance,
            run_all=self.reward == "fraction",
        )
        return grader.grade(submissions, workers=usable_cores())

    def _rows(self, table: pa.Table) -> Iterator[_Row]:
        from ..sandbox import grading

        responses = table["response"].cast(pa.string()).to_pylist()
        texts = continued(self.response_prefix, responses)
        prefixes = _values(table, self.prefix)
        for text, cases, prefix in zip(texts, self.cases(table), prefixes, strict=True):
            if text is None:
                yield _Row(None, "no_response")
                continue
            found = grading.extract_code(text, whole=self.without_block == "whole_response")
            code, language = found or (None, "python")
            if not cases or not isinstance(cases, tuple):
                yield _Row(code, "bad_tests" if cases else "no_tests")
            elif code is None:
                yield _Row(None, None)
            else:
                program = grading.Program(code, _code_before(prefix), language)
                yield _Row(code, None, grading.Submission(program, cases))

    def _result(self, row: _Row, verdicts: CaseVerdicts | None) -> _GradedRow:
        """Verdict, accuracy and reason of a row, and the verdicts on its tests."""
        if row.missing is not None or verdicts == ():
            slug = None if row.missing == "no_response" else "verifier_error"
            return _GradedRow(row.code, slug, self.wrong, row.missing or "bad_tests", None)
        if verdicts is None:
            return _GradedRow(None, "no_answer", self.wrong, None, None)
        failures = {each.partition("/")[0] for each in verdicts} - {"passed", "not_run"}
        if not failures:
            return _GradedRow(row.code, "correct", self.right, None, verdicts)
        slug = "verifier_error" if "verifier_error" in failures else "timeout"
        if slug == "verifier_error" or (failures == {slug} and self.on_timeout == "missing"):
            return _GradedRow(row.code, slug, self.wrong, slug, verdicts)
        if failures in ({"other_language"}, {"no_package"}) and self.on_unrunnable != "wrong":
            return _GradedRow(row.code, "verifier_error", self.wrong, failures.pop(), verdicts)
        share = verdicts.count("passed") / len(verdicts) if self.reward == "fraction" else 0
        accuracy = self.wrong + share * (self.right - self.wrong)
        return _GradedRow(row.code, "wrong_answer", accuracy, None, verdicts)

    def _columns(self, results: list[_GradedRow]) -> Mapping[str, pa.Array]:
        verdicts = [each.verdicts for each in results]
        idle = ("not_run", "other_language")
        run = [v and sum(not each.startswith(idle) for each in v) for v in verdicts]
        passed = [None if v is None else v.count("passed") for v in verdicts]
        return {
            "verdict": pa.array([each.verdict for each in results], pa.string()),
            "extracted_answer": pa.array([each.code for each in results], pa.string()),
            **component(
                "accuracy",
                np.array([each.accuracy for each in results], np.float64),
                pa.array([each.missing for each in results], pa.string()),
            ),
            "tests_passed": pa.array(passed, pa.int32()),
            "tests_run": pa.array(run, pa.int32()),
            "test_verdicts": pa.array(verdicts, pa.list_(pa.string())),
        }

    def _test_paths(self) -> tuple[str, ...]:
        return (self.tests,) if isinstance(self.tests, str) else self.tests


class _Row(NamedTuple):
    """A response: its program, why it is not graded, and what is run where it is."""

    code: str | None
    missing: str | None
    submission: Submission | None = None


class _GradedRow(NamedTuple):
    """What is written of a row; accuracy counts where no reason says that it is missing."""

    code: str | None
    verdict: str | None
    accuracy: float
    missing: str | None
    verdicts: CaseVerdicts | None


def _values(table: pa.Table, path: str | None) -> list[Any]:
    return [None] * table.num_rows if path is None else list(at_path(table, path).to_pylist())


def _batches(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    """As many rows at a time as have a bounded size of tests, which may be packed in the table."""
    batch, size = list[_Row](), 0
    for row in rows:
        batch.append(row)
        cases = row.submission.cases if row.submission else ()
        size += sum(len(text) for case in cases for text in case[:2])
        if size > _AT_ONCE:
            yield batch
            batch, size = [], 0
    yield batch


def _code_before(prefix: Any) -> str:
    """Code of a column of texts or of chat messages."""
    if isinstance(prefix, list):
        asked = (each["content"] for each in reversed(prefix) if each["role"] == "user")
        prefix = next(asked, None)
    return prefix or ""
