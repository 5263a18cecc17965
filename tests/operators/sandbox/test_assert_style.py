"""Tests in MBPP's and HumanEval's form; the problems are our own."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators.sandbox.calls import ProgramEndedError, decode, encode, judge
from rejuice.operators.sandbox.cases import AssertCase, BadTestsError
from rejuice.operators.sandbox.grading import Grader, Program, shared_sandbox
from rejuice.operators.sandbox.run import SandboxLimits

pytestmark = pytest.mark.slow

SPELL = 'def spell(word, times):\n    """Repeat a word."""\n'
CHECK = """
METADATA = {"author": "tests"}


def check(candidate):
    assert candidate("ab", 2) == "abab"
    assert candidate("", 5) == "", "nothing stays nothing"
    for times in range(3):
        assert len(candidate("abc", times)) == 3 * times
"""


def test_a_list_of_assertions(verdicts):
    tests = ["assert add(1, 2) == 3", "assert add('a', 'b') == 'ab'", "assert add([1], []) == [1]"]
    assert verdicts("def add(a, b): return a + b", *tests) == ["passed"] * 3
    assert verdicts("def add(a, b): return a - b", *tests) == ["failed", "error", "error"]
    assert verdicts("def ad(a, b): return a + b", *tests) == ["error"] * 3


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("    return word * times\n", "passed"),
        ("def spell(word, times):\n    return word * times\n", "passed"),
        ("import math\n" + SPELL + "    return word * times", "passed"),
        ("    return word * (times + 1)", "failed"),
        ("return word * times", "error"),
        ("  return word * times", "error"),
        ("    pass", "failed"),
    ],
)
def test_a_program_continues_the_prompt_or_repeats_it(verdicts, code, expected):
    assert verdicts(code, CHECK, prefix=SPELL, entry_point="spell") == [expected]


def test_code_before_the_tests(verdicts):
    setup = "from math import isclose\nword = 'ab'"
    tests = ["assert isclose(half(3), 1.5)", "assert half(len(word)) == 1"]
    assert verdicts("def half(x): return x / 2", *tests, setup=setup) == ["passed"] * 2
    assert verdicts("def half(x): return x // 2", *tests, setup=setup) == ["failed", "passed"]


def test_what_values_stay(verdicts):
    """A value arrives at the test as the program gave it."""
    values = [
        None, True, 0, -1, 2**70, 10**5000, 0.1, -0.0, 1e300, 1j, "ä\n\x00\ud800", b"\xff",
        [1, [2]], (1, (2,)), {1, 2}, frozenset("ab"), {"a": [1], 2: (3,)}, range(3), [], (), {},
    ]  # fmt: skip
    tests = [f"assert f({value!r}) == {value!r}" for value in values if value != 10**5000]
    tests.append("assert f(10 ** 5000) == 10 ** 5000")
    same = "def f(x): return x"
    assert verdicts(same, *tests) == ["passed"] * len(tests)
    types = ["(1,)", "[1]", "{1}", "1", "1.0", "True", "'1'", "b'1'", "None"]
    tests = [f"assert type(f({value})) is type({value})" for value in types]
    assert verdicts(same, *tests) == ["passed"] * len(types)
    nan = "x = f(float('nan'))\nassert x != x and f(float('inf')) == float('inf')"
    assert verdicts(same, nan) == ["passed"]


def test_what_is_returned_lazily_or_by_a_library(verdicts):
    head = "from collections import *\nfrom decimal import *\nfrom fractions import *\n"
    for code, test in {
        "def f(x): yield from range(x)": "assert list(f(3)) == [0, 1, 2]",
        "def f(x): return map(str, range(x))": "assert [*f(2)] == ['0', '1']",
        "def f(x): return {1: x}.values()": "assert list(f(3)) == [3]",
        "def f(x): return Counter(x)": "assert f('aab') == {'a': 2, 'b': 1}",
        "def f(x): return OrderedDict(a=x)": "assert f(1) == {'a': 1}",
        "def f(x): return deque([x])": "assert list(f(1)) == [1] and f(2).pop() == 2",
        "def f(x): return namedtuple('P', 'x y')(x, 2)": "assert f(1) == (1, 2)",
        "def f(x): return Fraction(x, 3)": "assert f(6) == 2",
        "def f(x): return Decimal(x)": "assert f('1.50') == 1.5",
        "from enum import IntEnum\nE = IntEnum('E', 'A B')\ndef f(x): return E(x)": "assert f(2) == 2",
        "def f(x):\n  while True: yield x": "from itertools import islice\nassert [*islice(f(1), 2)] == [1, 1]",
    }.items():  # fmt: skip
        assert verdicts(head + code, test) == ["passed"], code


def test_a_list_that_is_changed_in_place(verdicts):
    code = "def move(items, seen):\n    items.sort()\n    seen.update(n=len(items))"
    test = "items, seen = [3, 1], {}\nassert move(items, seen) is None"
    assert verdicts(code, f"{test}\nassert items == [1, 3] and seen == {{'n': 2}}") == ["passed"]
    named = test.replace("(items, seen)", "(items, seen=seen)")
    assert verdicts(code, f"{named}\nassert items == [1, 3] and seen == {{'n': 2}}") == ["passed"]
    assert verdicts("def move(*_): pass", f"{test}\nassert items == [1, 3]") == ["failed"]


def test_classes_of_the_program(verdicts):
    stack = """
class Stack:
    def __init__(self): self.items = []
    def push(self, x): self.items.append(x); return self
    def pop(self): return self.items.pop()
    def __len__(self): return len(self.items)
    def __add__(self, other): return Stack().push(len(self) + len(other))
    def __eq__(self, other): return self.items == other.items
"""
    test = "s = Stack()\ns.push(1).push(2)\nassert len(s) == 2 and s.pop() == 2\n"
    test += "assert s.items == [1]\ns.items = []\nassert not s\nassert Stack() + Stack() != s"
    assert verdicts(stack, test) == ["passed"]
    assert verdicts(stack.replace("items.pop()", "items.pop(0)"), test) == ["failed"]
    setup = "root = Node(1)\nroot.left = Node(2)"
    node = "class Node:\n    left = None\n    def __init__(self, n): self.n = n\n"
    depth = "def depth(n): return 1 + depth(n.left) if n else 0"
    assert verdicts(node + depth, "assert depth(root) == 2", setup=setup) == ["passed"]
    leetcode = "class Solution:\n    def twice(self, x: int) -> int: return 2 * x"
    assert verdicts(leetcode, "assert Solution().twice(2) == 4") == ["passed"]


def test_exceptions_that_a_test_waits_for(verdicts):
    test = "try:\n    f(-1)\nexcept {}:\n    pass\nelse:\n    assert False"
    code = "class Own(Exception): pass\ndef f(x): raise {}"
    assert verdicts(code.format("ValueError"), test.format("ValueError")) == ["passed"]
    assert verdicts(code.format("KeyError"), test.format("ValueError")) == ["error"]
    assert verdicts(code.format("Own"), test.format("Exception")) == ["passed"]
    assert verdicts("def f(x): pass", test.format("ValueError")) == ["failed"]


WAITED_FOR = {
    "match of the context": "with pytest.raises(ValueError) as e:\n    f(-1)\nassert e.match('neg')",
    "type": "with pytest.raises(Exception) as e:\n    f(-1)\nassert e.type is ValueError",
    "no match": "with pytest.raises((ValueError, KeyError), match=None):\n    f(-1)",
    "match": "with pytest.raises(ValueError, match='^neg'):\n    f(-1)",
    "function": "assert pytest.raises(ValueError, f, -1).match('neg')",
    "named": "pytest.raises(ValueError, f, x=-1)",
}


@pytest.mark.parametrize("test", WAITED_FOR.values(), ids=WAITED_FOR)
def test_raises_of_pytest(verdicts, test):
    test = f"import pytest\n{test}"
    assert verdicts("def f(x): raise ValueError('negative')", test) == ["passed"]
    assert verdicts("def f(x): return x", test) == ["failed"]
    assert verdicts("def f(x): raise TypeError('other')", test) != ["passed"]


NEAR = {  # What is near, and what is not.
    "number": ("approx(3)", "3 + 1e-7", "3.1"),
    "abs alone": ("approx(10**9, abs=1)", "10**9 + 1", "10**9 + 500"),
    "abs and rel": ("approx(10**9, rel=1e-6, abs=1)", "10**9 + 500", "10**9 + 5000"),
    "no rel": ("approx(1.0, rel=None)", "1 + 1e-7", "'1'"),
    "nan": ("approx(float('nan'), nan_ok=True)", "float('nan')", "1"),
    "nan alone": ("approx(1)", "1", "float('nan')"),
    "no nan": ("approx(float('nan')) or y is None", "None", "float('nan')"),
    "none": ("approx(None)", "None", "0"),
    "text": ("approx('a')", "'a'", "'b'"),
    "tuple": ("approx((1, 2.5))", "[1, 2.5 + 1e-7]", "(1, 2)"),
    "list": ("approx([0.3, [1]])", "(0.1 + 0.2, [1])", "[0.3]"),
    "dict": ("approx({'a': 0.3})", "{'a': 0.1 + 0.2}", "{'b': 0.3}"),
    "complex": ("approx(1j)", "1j + 1e-7", "1"),
    "infinity": ("approx(float('inf'))", "float('inf')", "1e300"),
    "fraction": ("approx(Fraction(1, 3))", "Fraction(1, 3)", "Fraction(1, 2)"),
    "item": ("[approx(0.3), 1] and y", "[0.1 + 0.2, 1]", "[1, 1]"),
}


@pytest.mark.parametrize(("right", "near", "far"), NEAR.values(), ids=NEAR)
def test_approx_of_pytest(verdicts, right, near, far):
    head = "from fractions import Fraction\n"
    test = f"{head}from pytest import approx\ny = f()\nassert y == {right}"
    assert verdicts(f"{head}def f(): return {near}", test) == ["passed"]
    assert verdicts(f"{head}def f(): return {far}", test) == ["failed"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("class Own(ValueError): pass\ndef f(x): raise Own('no')", "ValueError"),
        ("import json\ndef f(x): json.loads('no')", "ValueError"),
        ("def f(x): b'\\xff'.decode('ascii')", "ValueError"),
        ("def f(x): open('no')", "OSError"),
    ],
)
def test_exceptions_that_are_derived_from_those_of_python(verdicts, code, kind):
    test = (
        f"try:\n    f(-1)\nexcept {kind} as error:\n    assert str(error)\nelse:\n    assert False"
    )
    assert verdicts(code, test) == ["passed"]


def test_the_message_of_an_exception(verdicts):
    test = "try:\n    f()\nexcept KeyError as error:\n    assert error.args == ('k',)"
    assert verdicts("def f(): raise KeyError('k')", test) == ["passed"]
    assert verdicts("def f(): raise KeyError('x')", test) == ["failed"]


@pytest.mark.parametrize("code", ["def f(x: return", "import os\nos._exit(0)", "exit()"])
def test_a_program_that_does_not_run_is_no_exception_that_a_test_waits_for(verdicts, code):
    test = "caught = False\ntry:\n    f(-1)\nexcept:\n    caught = True\nassert caught"
    assert verdicts("def f(x): raise ValueError", test) == ["passed"]
    assert verdicts(code, test) == ["error"]


def test_an_exception_does_not_end_the_loop_of_a_test(verdicts):
    test = "assert all(map(lambda pair: f(pair[0]) == pair[1], [(1, 1), (2, 4)]))"
    assert verdicts("def f(x): return x * x", test) == ["passed"]
    assert verdicts("def f(x): raise StopIteration", test) == ["error"]


def test_a_result_that_cannot_be_encoded_leaves_later_ones_in_their_place(verdicts):
    code = "def loop():\n    x = []\n    x.append(x)\n    return x\ndef f(x): return [x]"
    test = "try:\n    loop()\nexcept RecursionError:\n    pass\ny = f(1)\nassert f(y) == [[1]]"
    assert verdicts(code, test) == ["passed"]


def test_tests_that_print_or_exit(verdicts):
    tests = [
        "print(end='no line')\nassert f(1) == 1",
        "assert f(1) == 1\nprint('{}', end='')",
        "assert f(1) == 1\nraise SystemExit",
        "import sys\nassert f(1) == 1\nsys.exit(0)",
        "import io, sys\nsys.stdout = io.StringIO()\nassert f(1) == 1",
    ]
    assert verdicts("def f(x): return x", *tests) == ["passed"] * len(tests)
    assert verdicts("def f(x): return -x", *tests) == ["failed"] * len(tests)
    assert verdicts("def f(x): return x", "raise SystemExit(f(1) == 1)") == ["failed"]


CAPTURES = {
    "redirect_stdout": "from contextlib import redirect_stdout\nwith redirect_stdout(out):\n    f(1)",
    "sys.stdout": "sys.stdout = out\nf(0)\nout.truncate(0), out.seek(0)\nf(1)",
    "mock": "from unittest.mock import patch\nwith patch('sys.stdout', out):\n    f(1)",
    "an exception": "sys.stdout = out\ntry:\n    f(1, ends=True)\nexcept ValueError:\n    pass",
}


@pytest.mark.parametrize("capture", CAPTURES.values(), ids=CAPTURES)
def test_a_test_sees_what_is_printed_if_it_captures_it(verdicts, capture):
    test = f"import io, sys\nout = io.StringIO()\n{capture}\nassert out.getvalue() == 'ä 1\\n'"
    code = "print('at first')\ndef f(x, ends=False):\n    print('{}', x)\n    if ends: raise ValueError"
    assert verdicts(code.format("ä"), test) == ["passed"]
    assert verdicts(code.format("b"), test) == ["failed"]


@pytest.mark.parametrize(
    "line",
    ["sys.stdout.close()", "sys.stdout = None", "print(end='x' * 10**7)"],
)
def test_output_that_a_test_does_not_capture_costs_nothing(verdicts, line):
    code = f"import sys\ndef f(x):\n    {line}\n    return x"
    assert verdicts(code, "assert f(1) == 1 and f(2) == 2") == ["passed"]


OWN = [
    "open('/etc/hostname')",
    "import subprocess\nsubprocess.run(['true'])",
    "import os\nos.listdir()",
]


@pytest.mark.parametrize("own", OWN)
def test_a_test_that_needs_more_than_the_program_is_bad(verdicts, own):
    test = f"assert f(3) == 9\n{own}"
    assert verdicts("def f(x): return x * x", test) == []
    assert verdicts("def f(x): raise OSError('mine')", test) == ["error"]
    assert verdicts("def f(x): return open('/etc/hostname')", test) == ["error"]
    assert verdicts("def f(x): return 8", test) == ["failed"]


MADE_BY_THE_PROGRAM = {  # Exceptions in the test's own code, and no need of its own.
    "decompress": (
        "import bz2\nassert bz2.decompress(f(b'abc')) == b'abc'", "def f(x): return b'no'"
    ),
    "address": ("import socket\nassert socket.inet_aton(f(1))", "def f(x): return 'no'"),
    "time": ("import time\nassert time.localtime(f(1))", "def f(x): return 1 << 62"),
    "raised later": (
        "errors = []\nfor x in 1, 2:\n    try:\n        f(x)\n    except Exception as e:\n"
        "        errors.append(e)\nif errors: raise errors[0]",
        "def f(x): raise PermissionError",
    ),
    "raised anew": (
        "try:\n    f(1)\nexcept Exception as e:\n    raise type(e)('why') from e",
        "def f(x): raise FileNotFoundError",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("test", "code"), MADE_BY_THE_PROGRAM.values(), ids=MADE_BY_THE_PROGRAM)
def test_a_program_does_not_make_its_test_bad(verdicts, test, code):
    assert verdicts(code, test) == ["error"]


def test_a_test_that_closes_its_output_cannot_be_run():
    grader = Grader(shared_sandbox(), SandboxLimits())
    with pytest.raises(BadTestsError):
        grader.run(
            Program("def f(x=1): return x"),
            AssertCase("", "import os\nf(1)\nos.close(1)\nos._exit(0)"),
        )


@pytest.mark.parametrize(
    "line",
    ["sys.stdout.buffer.write(b'x')", "sys.stdout.writelines(['x'])", "sys.stdout.isatty()",
     "sys.stdout.reconfigure(errors='replace')", "os.write(1, b'x')", "print(end='x', flush=True)"],
)  # fmt: skip
def test_a_program_may_print_in_every_way(verdicts, line):
    assert verdicts(f"import os, sys\ndef f(x):\n    {line}\n    return x", "assert f(1) == 1") == [
        "passed"
    ]


def test_a_prompt_without_a_line_break_at_its_end(verdicts):
    prompt = 'from typing import List\n\ndef f(x: List) -> List:\n    """Say it again."""'
    code = "def f(x: List) -> List:\n    return x"
    assert verdicts(code, "assert f([1]) == [1]", prefix=prompt) == ["passed"]


def test_annotations_are_evaluated_as_in_any_program(verdicts):
    code = "def f(x: int): return x\ndef kind(): return f.__annotations__['x'] is int"
    assert verdicts(code, "assert kind() is True") == ["passed"]


def test_dates(verdicts):
    code = "from datetime import *\ndef f(): return [date(2020, 2, 29), datetime(2020, 1, 2, 3), time(4)]"
    code += "\ndef gap(): return timedelta(days=1, seconds=2)"
    head = "from datetime import *\n"
    tests = [
        "assert f() == [date(2020, 2, 29), datetime(2020, 1, 2, 3), time(4)]",
        "assert gap().total_seconds() == 86402",
    ]
    assert verdicts(code, *(head + test for test in tests)) == ["passed"] * 2
    assert verdicts(code, f"{head}assert f()[0] == date(2020, 2, 28)") == ["failed"]


def test_results_that_are_passed_on(verdicts):
    code = "def pack(x): return str(x)\ndef unpack(x): return int(x)"
    test = "for k in (3, 5):\n    assert unpack(pack(k)) == k\nassert pack(4).strip() == '4'"
    assert verdicts(code, test) == ["passed"]


def test_random_arguments_are_the_same_in_every_round(verdicts):
    test = "import random\nfor _ in range(9):\n    x = random.random()\n    assert f(f(x)) == x + 1 + 1"
    assert verdicts("def f(x): return x + 1", test) == ["passed"]
    assert verdicts("def f(x): return x + 2", test) == ["failed"]


def test_calls_that_depend_on_results(verdicts):
    code = "class S:\n    def twice(self, x): return 2 * x\ndef f(x): return f' {x} '"
    tests = [
        "for k in range(40):\n    assert S().twice(k) == 2 * k",
        "for k in range(40):\n    assert f(f(k).strip()).strip() == str(k)",
        "s = S()\nfor k in range(40):\n    assert s.twice(s.twice(k)) == 4 * k",
    ]
    assert verdicts(code, *tests) == ["passed"] * len(tests)


def test_a_test_takes_its_own_time(verdicts):
    """The seconds of a program are those in which the test waits for it."""
    test = "import time\ntime.sleep(1.2)\nassert f(1) == 1"
    assert verdicts("def f(x): return x", test, seconds=1.0) == ["passed"]
    slow = "import time\ndef f(x):\n    time.sleep(1.2)\n    return x"
    assert verdicts(slow, test, seconds=1.0) == ["timeout"]


def test_a_program_that_keeps_its_test_from_ending_is_too_slow(verdicts, monkeypatch):
    monkeypatch.setattr("rejuice.operators.sandbox.grading.JUDGE_SECONDS", 0.1)
    endless = "def f(n): return range(10 ** 15)"
    assert verdicts(endless, "assert sum(f(1)) == 3", seconds=0.4) == ["timeout"]


def test_how_a_program_ended_that_passed_no_test(verdicts):
    killed = "import signal\ndef f(x): signal.raise_signal(9)"  # As where memory is short.
    # Where the test has ended before the end of the program is known, it is an error.
    assert verdicts(killed, "assert f(1) == 1") in (["memory"], ["error"])
    closed = "import os\ndef f(x):\n    os.close(0)\n    while True: pass"
    assert verdicts(closed, "assert f(1) == 1") == ["error"]
    printed = "import os\ndef f(x): os.write(1, b'x' * 1_000_001); return x"
    assert verdicts(printed, "assert f(1) == 1") == ["output"]


@pytest.mark.parametrize(
    "test",
    ["assert sum([1]) == 1", "assert True", "assert f(", "raise ValueError", "f", "import nothing",
     "assert f(lambda: 1) == 2", "class A: pass\nassert f(A()) == 2"],
)  # fmt: skip
def test_tests_that_no_program_can_be_graded_by(test):
    grader = Grader(shared_sandbox(), SandboxLimits())
    with pytest.raises(BadTestsError):
        grader.run(Program("def f(x=1): return x"), AssertCase("", test))


def test_a_test_reads_no_files(verdicts):
    seen = "try:\n    seen = open('/etc/hostname').read()\nexcept OSError:\n    seen = None\n"
    code = "def f(x): return x"
    tests = [f"{seen}assert f(seen) is None", "assert f(1)\nopen('/etc/hostname')"]
    assert [*verdicts(code, tests[0]), *verdicts(code, tests[1])] == ["passed"]
    assert verdicts(code, "assert f(open('/etc/hostname').read())") == []


def test_tests_import_from_the_program(verdicts):
    code = "def max(x): return x\nclass Pair:\n    def __init__(self): self.a = 1\n"
    tests = [
        "from solution import max\nassert max(3) == 3",
        "import solution\nassert solution.Pair().a == 1",
        "from solution import *\nassert Pair().a == 1",
        "from solution import max\nthree: int = max(3)\nassert three == 3",
        "from solution import nothing\nassert nothing() == 1",
    ]
    assert verdicts(code, *tests) == ["passed"] * 4 + ["error"]


def test_names_of_python_and_its_library_are_never_the_program_s(verdicts):
    code = "def sorted(x): return [1, 2]\nclass math:\n    isclose = lambda *_: True\n"
    code += "def f(x): return [2, 1]"
    tests = ["assert sorted(f(1)) == [1, 3]", "assert math.isclose(f(1)[0], 7)"]
    assert verdicts(code, *tests) == ["failed"] * 2


def test_what_the_judge_makes_of_answers():
    """In this process, as in that of a test."""
    call = ["call", {"t": "name", "v": "f"}, [3], {"t": "dict", "v": []}]
    for answer, outcome in {
        "9": "passed", "8": "failed", '{"t": "error", "v": ["KeyError", "x"]}': "error",
        '{"t": "error", "v": ["SystemExit", ""]}': "error", '{"t": "error", "v": 0}': "error",
        '{"t": "object", "v": 0}': "failed",
        '{"t": "result", "v": 0}': "error", '{"v": 0}': "error", '{"t": 1, "v": 1}': "error",
        '{"t": "dict", "v": 1}': "error", '{"t": "changed", "v": [9, [3]]}': "passed",
        '{"t": "int", "v": "0x9"}': "passed", '{"t": "Decimal", "v": "x"}': "error",
    }.items():  # fmt: skip
        asked, given = [], json.loads(answer)
        program = lambda call, asked=asked, given=given: asked.append(call) or given  # noqa: E731
        assert judge("", "assert f(3) == 9", program) == outcome, answer
        assert asked == [call]


@pytest.mark.parametrize("outcome", ["ended", "timeout", "output"])
def test_what_a_test_catches_does_not_hide_that_the_program_has_ended(outcome):
    def ended(call):
        raise ProgramEndedError(outcome)

    assert judge("", "try:\n    f(3)\nexcept:\n    pass", ended) == outcome


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.binary() | st.complex_numbers(allow_nan=False) | st.fractions(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner)
    | st.dictionaries(st.text() | st.integers(), inner)
    | st.frozensets(st.integers() | st.text()) | st.sets(st.booleans()),
)  # fmt: skip


def nothing_else(*found):
    raise AssertionError(found)


@settings(max_examples=40)
@given(plain)
def test_plain_data_comes_back_as_it_was(value):
    text = json.dumps(encode(value, nothing_else))
    found = decode(json.loads(text), nothing_else)
    assert repr(found) == repr(value) or found == value
    assert type(found) is type(value)
