"""Runs the tests of many programs, on all cores."""

from __future__ import annotations

import inspect
import json
import marshal
import math
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from ..chats import after_thoughts, final_channel
from ..verifier.places import own_text
from ..workers import usable_cores
from . import calls
from .cases import AssertCase, BadTestsError, Case, StdinCase, names_of, python_of
from .run import Execution, Sandbox, SandboxError, SandboxLimits

# --- Where the program is in a response -----------------------------------------------

# A fence may be behind the tag that ends a thought, and before an end token. One that is indented
# by four or more closes no block: it is one in a docstring.
_BLOCK = re.compile(
    r"(?:^|(?<=>))(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,}(?!~))(?P<info>[^\n`]{0,100})\n"
    r"(?P<code>.*?)(?:(?P<end>^(?:(?P=indent))? {0,3}(?P=fence)[`~]*[ \t\r]*(?=$|[<\[]))|\Z)",
    re.MULTILINE | re.DOTALL,
)
_STATEMENT = re.compile(r"^[^\S\n]*[^#\s]", re.MULTILINE)
_TAGS = re.compile(
    r"\A\s*(?:(?:<answer>|<code>|\[PYTHON\])(?:[ \t\r]*\n)?)+"
    r"|(?:(?:</answer>|</code>|\[/PYTHON\])\s*){1,2}\Z"
)
"""What may be around a response as a whole."""

_LABEL = re.compile(r"[\s{.]*(?:lang(?:uage)?-)?([a-z#+-]*)")  # `c++` of `C++17`
_LABELS = """
ada|c|clojure|cobol|cpp c++ cc cxx|csharp c# cs|d|dart|elixir|erlang|fortran|fsharp f#|go golang
groovy|haskell hs|java|javascript js node|julia jl|kotlin kt|lisp|lua|matlab|nim|objective-c objc
ocaml ml|pascal|perl pl|php|python py pypy|r|racket|ruby rb|rust rs|scala|scheme|swift
typescript ts|vb|zig
"""
_LANGUAGES = {
    label: names.split()[0] for names in re.split(r"[|\n]", _LABELS) for label in names.split()
}
"""By the labels of their blocks."""
_BEGINS = re.compile(
    r"""(?: \s | //[^\n]*(?:\n|\Z) | /\*(?:[^*]|\*(?!/))*\*/ | [#](?!include\b)[^\n]*(?:\n|\Z) )*
    (?: (?P<cpp> [#]include\s*[<"] | using\s+namespace\s | (?:int|void)\s+main\s*\(
        | class\s+\w+\s*\{\s*(public|private)\s*: )
    | (?P<java> import\s+java\b | ((public|final|abstract)\s+)*class\s+\w+\s*\{ | public\s+class\s )
    | (?P<javascript> (const|let|var)\s+(\w+\s* | [{\[][^\n=]*)= | console\.log\(
        | function\s+\w+\s*\([^\n]*\{ )
    | (?P<go> package\s+main\s ) | (?P<rust> fn\s+main\s*\( | use\s+std:: )
    | (?P<csharp> using\s+System\b ) | (?P<kotlin> fun\s+main\s*\( ) | (?P<php> <\?php\s ) )""",
    re.VERBOSE,
)
"""How programs in other languages begin, behind comments, and none in Python does."""
_READS_AS_PYTHON = re.compile(
    r"^[ \t]*(?:(?:def|import|from)[ \t]+\w|class[ \t]+\w+\s*[:(])|(?<![.\w])(?:print|input)\(",
    re.MULTILINE,
)


def extract_code(response: str, *, whole: bool = True) -> tuple[str, str] | None:
    r"""The program in a response and its language, None where there is none.

    It is the last fenced block that is labelled as Python, else the last block, else the whole
    response; a block of comments alone is none. Beside a block in another language, one without a
    language has to read like Python, which what a program prints does not. Only what follows the
    last thought counts, and inside one that is not closed there is no program. A block without an
    end, where generation was cut off, ends with the response, and a response with its end token.

    >>> extract_code("Here it is:\n```python\nprint(1)\n```\nIt prints 1.")
    ('print(1)\n', 'python')
    """
    final = final_channel(response)
    text = None if final is None else after_thoughts(_own_turn(final))
    if text is None:
        return None
    text = _TAGS.sub("", text)
    blocks = list(_BLOCK.finditer(text))
    if not blocks:
        return (text, _language("", text) or "python") if whole and text.strip() else None
    programs = [block for block in blocks if _STATEMENT.search(block["code"])]
    found = [(_outdented(each), _language(each["info"], each["code"])) for each in programs]
    known = [(code, language) for code, language in found if language]
    python = [each for each in known if each[1] == "python"]
    others = [(code, "python") for code, language in found if not language]
    if known:
        others = [each for each in others if _READS_AS_PYTHON.search(each[0])]
    chosen = python or others or known
    return chosen[-1] if chosen else None


def _language(info: str, code: str) -> str | None:
    """The language of a program by the label of its block, or by how it begins; None: unknown."""
    label, begins = _LABEL.match(info.lower()), _BEGINS.match(code)
    language = _LANGUAGES.get(label[1] if label else "") or (begins.lastgroup if begins else None)
    if language in ("c", "cpp", "d", "java", "r") and _READS_AS_PYTHON.search(code):
        with suppress(BadTestsError):  # Labels may be wrong; `x <- 3` is R, and Python, too.
            return "python" if python_of(code) and "<-" not in code else language
    return language


def _outdented(block: re.Match[str]) -> str:
    """What is in a block, without the indentation of its fence."""
    width = len(block["indent"])
    return re.sub(rf"^[ \t]{{0,{width}}}", "", block["code"], flags=re.MULTILINE)


def _own_turn(text: str) -> str:
    """A text up to its end token; one within a block that is closed is the program's."""
    hidden = _BLOCK.sub(lambda b: b[0] if b["end"] is None else "x" * len(b[0]), text)
    # In one line `own_text` finds no question, which may be a comment `# Problem: ...` here.
    return text[: len(own_text(hidden.replace("\n", " ")))]


# --- Whether a program has printed what it should -------------------------------------


def same_output(printed: str, expected: str, tolerance: float | None = None) -> bool:
    """Compare two outputs, line by line, but for white space at ends and empty lines at the end.

    With a tolerance lines are compared word by word, and numbers may differ by so much, absolutely
    or relative to the expected one.

    >>> same_output("3 4 \\n", "3 4")
    True
    """
    left, right = _lines(printed), _lines(expected)
    if left == right:
        return True
    if tolerance is None or len(left) != len(right):
        return False
    words = [(a.split(), b.split()) for a, b in zip(left, right, strict=True)]
    return all(
        len(a) == len(b) and all(_close(x, y, tolerance) for x, y in zip(a, b, strict=True))
        for a, b in words
    )


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _close(word: str, expected: str, tolerance: float) -> bool:
    if word == expected:
        return True
    try:
        a, b = float(word), float(expected)
    except ValueError:
        return False
    return math.isfinite(b) and math.isclose(a, b, rel_tol=0, abs_tol=tolerance * max(1, abs(b)))


# --- Tests as assertions --------------------------------------------------------------
# A test and the program each have a process of their own, and a socket between them.
#
#     test ──> calls ──> program ──> answers ──> test ──> passed, failed, error
#
# Whatever the program does to its process, it can only answer calls, and an answer is plain data: a
# number that claims to be equal to every other is just a number in the process of the test.

CaseVerdict: TypeAlias = str
"""What came of a test: `passed`, `failed`, `error` (an exception, or an early exit), `timeout`,
`memory`, `output` (the program went over this limit), `other_language/cpp`, `no_package/numpy` (it
cannot be run here), `failed/checker_timeout` (the checker was too slow with what it printed),
`verifier_error` (the sandbox has failed), `not_run` (an earlier test decides).
"""

JUDGE_SECONDS = 10.0
"""Seconds that a test may take beside the program."""
_JUDGE_OUTPUT, _JUDGE_MEMORY = 64 * 2**20, 2**30


class Program(NamedTuple):
    """What a policy has written, and code that goes before it, such as imports and a signature."""

    code: str
    prefix: str = ""
    language: str = "python"


def _source(function: str, *arguments: Any) -> str:
    """A program that calls a function of `calls` with these arguments."""
    return f"{_calls()}\n{function}(*{arguments!r})\n"


@cache
def _calls() -> str:
    """A program that is what `calls` is; it is compiled, which takes as long as all the rest."""
    code = marshal.dumps(compile(inspect.getsource(calls), calls.__name__, "exec"))
    return f"import marshal\nexec(marshal.loads({code!r}))"


# --- Which tests a program passes without doing what they are about -------------------
# A test is run on programs that are made for it: each defines the functions that it calls.

Weakness = Literal["nan", "cleared", "object"]
"""Why a test is weak: a program passes it by returning NaN, by clearing its argument, or by an
object of its own whose methods get what the test compares it with."""
WEAKNESSES: tuple[Weakness, ...] = get_args(Weakness)

_CLEAR = """
    for each in (*arguments, *named.values()):
        if isinstance(each, (list, dict, set)):
            each.clear()
"""
_FIRST = "next(iter((*arguments, *named.values())), None)"
_RETURNS = {"None": ("None",), _FIRST: (_FIRST, f"type({_FIRST})()")}
"""What is returned behind `_CLEAR`, and what passes no test that is weak for it."""
_OBJECT = """
class _Object:
    def __bool__(self): return True
    def __getattr__(self, name):
        if not any(hasattr(each, name) for each in (str, bytes, list, dict, set, int, float)):
            raise AttributeError(name)
        return lambda *arguments, **named: _Object()
"""


def weaknesses(grader: Grader, case: AssertCase) -> tuple[Weakness, ...]:
    """Why a test is weak, as docs/audit.md has it; a test that says `nan` expects it.

    A BadTestsError: the test makes no call, or cannot be run.
    """
    names = sorted(names_of(case))

    def passes(result: str, before: str = "", head: str = "") -> bool:
        defined = (
            f"def {name}(*arguments, **named):{before}\n    return {result}" for name in names
        )
        return grader.run(Program("\n".join([head, *defined])), case) == "passed"

    found = {
        "nan": not re.search("nan", case.setup + case.test, re.IGNORECASE)
        and passes("float('nan')")
        and not (passes("1e308") and passes("-1e308")),
        "cleared": any(
            passes(each, _CLEAR) and not any(map(passes, others))
            for each, others in _RETURNS.items()
        ),
        "object": passes("_Object()", head=_OBJECT) and not passes("object()"),
    }
    return tuple(name for name in WEAKNESSES if found[name])


# --- Grades of many programs ----------------------------------------------------------

_KNOWN = """
bs4 cv2 flask gmpy2 jax lxml matplotlib more_itertools mpmath networkx nltk numba numpy ortools
pandas PIL pulp pydantic pytest regex requests scipy seaborn sklearn sortedcontainers statsmodels
sympy tensorflow torch tqdm transformers yaml
"""
_PACKAGES = frozenset(_KNOWN.split())
_NO_MODULE = re.compile(r"^ModuleNotFoundError: No module named '(\w+)[\w.]*'\s*\Z", re.MULTILINE)
"""What a program says that needs a package."""

CaseVerdicts: TypeAlias = tuple[CaseVerdict, ...]
"""One for each test of a problem; empty where the tests turned out to be bad."""


class Submission(NamedTuple):
    """A program and the tests of its problem."""

    program: Program
    cases: tuple[Case, ...]


class Grader:
    """Runs tests, each in a process of its own; `limits` are those of the program for one test.

    With `run_all`, tests are run after one that did not pass, too.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        limits: SandboxLimits,
        *,
        tolerance: float | None = None,
        run_all: bool = False,
    ) -> None:
        self._sandbox, self._limits = sandbox, limits
        self._tolerance, self._run_all = tolerance, run_all
        self._checked = set[Case]()

    def grade(self, submissions: Sequence[Submission], *, workers: int) -> list[CaseVerdicts]:
        """The verdicts on many programs, in order; equal submissions are graded once."""
        distinct = list(dict.fromkeys(submissions))
        with ThreadPoolExecutor(workers) as pool:
            found = dict(zip(distinct, pool.map(self._grade, distinct), strict=True))
        return [found[each] for each in submissions]

    def _grade(self, submission: Submission) -> CaseVerdicts:
        verdicts = list[CaseVerdict]()
        try:
            self._check(submission.cases)
            for case in submission.cases:
                verdicts.append(self.run(submission.program, case))
                # A program that has hung once would hang again, for as long as its limit.
                has_hung = verdicts[-1].endswith("timeout")
                if has_hung or (verdicts[-1] != "passed" and not self._run_all):
                    break
        except SandboxError:
            verdicts.append("verifier_error")
        except BadTestsError:
            return ()
        not_run: list[CaseVerdict] = ["not_run"] * (len(submission.cases) - len(verdicts))
        return (*verdicts, *not_run)

    def run(self, program: Program, case: Case) -> CaseVerdict:
        """What comes of a test; a BadTestsError: it makes no call, or cannot be run."""
        if program.language != "python":
            return f"other_language/{program.language}"
        if isinstance(case, AssertCase):
            return self._run_assert(program, case)
        done = self._sandbox.run(program.code, stdin=case.stdin, limits=self._limits)
        if done.status != "ok":
            return _failure(done)
        if case.checker:
            return self._by_checker(case, done.stdout)
        same = same_output(done.stdout, case.expected, self._tolerance)
        return "passed" if same else "failed"

    def _check(self, cases: tuple[Case, ...]) -> None:
        """A BadTestsError if a checker does not accept what is expected, whatever is printed."""
        for case in cases:
            if isinstance(case, AssertCase) or case in self._checked:
                continue
            alone = not case.checker or not case.expected.strip()
            if not alone and self._by_checker(case, case.expected) != "passed":
                raise BadTestsError("the checker does not accept the expected output")
            self._checked.add(case)

    def _by_checker(self, case: StdinCase, printed: str) -> CaseVerdict:
        """Whether a checker gives 1."""
        done = self._sandbox.run(
            _source("run_checker", case.checker),
            stdin=json.dumps([case.stdin, case.expected, printed]),
            limits=self._limits._replace(seconds=JUDGE_SECONDS, memory=_JUDGE_MEMORY),
        )
        if done.status == "timeout":
            return "failed/checker_timeout"
        with suppress(ValueError):
            return "passed" if done.status == "ok" and float(done.stdout) == 1 else "failed"
        return "failed"

    def _run_assert(self, program: Program, case: AssertCase) -> CaseVerdict:
        limits = self._limits
        # The process of the test sees to the seconds of the program, which waits for calls, too.
        longer = limits._replace(seconds=limits.seconds + JUDGE_SECONDS)
        done, judged = self._sandbox.run_connected(
            _source("run_program", program.code, program.prefix, case.has_imports),
            _source("run_test", case.setup, case.test, limits.seconds, limits.output),
            limits=longer,
            asking_limits=longer._replace(output=_JUDGE_OUTPUT, memory=_JUDGE_MEMORY),
        )
        lines = judged.stdout.rstrip("\n").split("\n")
        if calls.ASKED not in lines:
            raise BadTestsError("a test calls no function of the program, or cannot be run")
        if judged.status != "ok":
            return judged.status
        found = lines[-1]
        if found == "ended" or done.status == "output":
            return _failure(done)
        if found not in get_args(calls.TestOutcome) or found == "confined":
            raise BadTestsError("a test needs files or processes, or ends its own")
        return found


def _failure(done: Execution) -> CaseVerdict:
    """What a program has come to that did not end as it should."""
    lacks = _NO_MODULE.search(done.stderr) if done.status == "error" else None
    if lacks and lacks[1] in _PACKAGES:
        return f"no_package/{lacks[1]}"
    return "error" if done.status == "ok" else done.status


@cache
def shared_sandbox() -> Sandbox:
    """The sandbox of this process, with a worker for each usable core."""
    return Sandbox(workers=usable_cores())
