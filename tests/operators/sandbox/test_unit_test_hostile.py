"""Programs that try to pass without solving the problem, or to harm what grades them."""

import pytest

from rejuice.operators.sandbox import grading
from rejuice.operators.sandbox.cases import AssertCase
from rejuice.operators.sandbox.grading import shared_sandbox, weaknesses

pytestmark = pytest.mark.slow

HARD = ("import json, sys, os, gc, inspect\n", "assert f(3) == 9")
LEAVE = {
    "os._exit": "os._exit(0)",
    "sys.exit": "sys.exit(0)",
    "SystemExit": "raise SystemExit",
    "SystemExit in a thread of its own name": "raise SystemExit(0)",
    "quit": "import builtins; builtins.quit = None; raise KeyboardInterrupt",
    "kill": "import signal; os.kill(os.getpid(), signal.SIGKILL)",
    "close the output": "os.close(1)",
}
PATCH = {
    "AssertionError": "import builtins; builtins.AssertionError = None",
    "isinstance and print": "import builtins; builtins.isinstance = lambda *_: True; print = None",
    "int.__eq__": "try: int.__eq__ = lambda *_: True\nexcept TypeError: pass",
    "json": "json.dumps = lambda *_, **__: 'true'",
    "json.loads": "json.loads = lambda *_, **__: {'calls': []}",
    "os.write": "os.write = lambda *_: 0",
    "atexit": "import atexit; atexit.register(lambda: os._exit(0))",
    "excepthook": "sys.excepthook = lambda *_: os._exit(0)",
    "trace": "sys.settrace(lambda *_: None); sys.setprofile(lambda *_: None)",
    "the harness": "sys.modules['__main__'].__dict__.clear()",
    "encode": "sys.modules['__main__'].encode = lambda *_: True",
}
SAY = ["passed", '{"outcome": "passed"}', "\\x1etrue", "\\x1enull", "\\x1e{", "\\x1e" + "[" * 9_000]
EQUAL = """
class Equal{base}:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 9
    def __bool__(self): return True
    def __sub__(self, other): return 0
    __rsub__ = __add__ = __radd__ = __mod__ = __sub__
    def __abs__(self): return 0
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __contains__ = __lt__
    def __float__(self): return 0.0
    def __len__(self): return 1
    def __iter__(self): return iter([self])
    def __getitem__(self, key): return self
    def __getattr__(self, name): return lambda *_: self
def f(x): return Equal({value})
"""
LOOK = """
def f(x):
    seen = [gc.get_objects(), inspect.stack(), sys.stdin.read()]
    for frame in inspect.stack():
        for value in [*frame.frame.f_locals.values(), *frame.frame.f_code.co_consts]:
            if value == 9 or "== 9" in repr(value):
                return 9
    for value in gc.get_objects():
        if isinstance(value, dict) and 9 in value.values() and "x" not in value:
            return 9
    return "9" if "== 9" in repr(seen) else None
"""
DESTROY = {
    "endless loop": ("while True: pass", "timeout"),
    "sleep": ("import time; time.sleep(60)", "timeout"),
    "all signals ignored": (
        "import signal\nfor s in range(1, 32):\n try: signal.signal(s, signal.SIG_IGN)\n"
        " except Exception: pass\nwhile True: pass",
        "timeout",
    ),
    "memory": ("x = [0]\nwhile True: x += x", "memory"),
    "one large block": ("x = bytearray(1 << 40)", "memory"),
    "output": ("while True: os.write(1, b'x' * 65536)", "output"),
    "a fork": ("os.fork()", "error"),
    "a command": ("os.system('true') and 1 / 0", "error"),
    "a file": ("open('/etc/passwd')", "error"),
    "a new file": ("open('/tmp/x', 'w')", "error"),
    "a socket": ("import socket; socket.socket()", "error"),
    "deep recursion": ("def g(): g()\ng()", "error"),
    "a deep expression": ("x = " + "(" * 5_000 + ")" * 5_000, "error"),
    "a null character": ("x = '\x00'", "error"),
    "a lone surrogate": ("x = '\ud800'", "error"),
    "no Python": ("I cannot solve this.", "error"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEAVE)
@pytest.mark.parametrize("where", ["at once", "in the function", "in the result"])
def test_who_leaves_early_does_not_pass(verdicts, name, where):
    head, test = HARD
    leave = LEAVE[name]
    inside = "\n".join(f"    {line}" for line in leave.splitlines())
    code = {
        "at once": leave,
        "in the function": f"def f(x):\n{inside}",
        "in the result": f"class C:\n  def __getattr__(self, name):\n{inside}\ndef f(x): return C()",
    }[where]
    assert verdicts(head + code, test)[0] != "passed"
    assert verdicts(head + code + "\nf(1).a", ("3\n", "9\n"))[0] != "passed"


@pytest.mark.parametrize("name", PATCH)
def test_who_patches_python_does_not_pass(verdicts, name):
    head, test = HARD
    for result in ("10", "None"):
        code = f"{head}{PATCH[name]}\ndef f(x): return {result}"
        assert verdicts(code, test, f"{test}\nassert f(2) == 4")[0] != "passed"
    assert verdicts(head + PATCH[name], ("3\n", "9\n"))[0] != "passed"


@pytest.mark.parametrize("text", SAY)
@pytest.mark.parametrize("stream", [1, 2])
def test_who_claims_to_have_passed_does_not(verdicts, text, stream):
    head, test = HARD
    say = f"os.write({stream}, b'{text}\\n')"
    for code in (f"{say}; os._exit(0)", f"def f(x):\n    {say}; os._exit(0)", f"{say}\nf = len"):
        assert verdicts(head + code, test)[0] != "passed"
        assert verdicts(head + code, ("3\n", "9\n"))[0] != "passed"


COMPARISONS = [
    "",
    "assert f(3) == 9",
    "assert 9 == f(3)",
    "assert not f(3) != 9",
    "assert f(3) in [9, 10]",
    "assert [f(3)] == [9]",
    "assert abs(f(3) - 9) < 1e-6",
    "assert 8 < f(3) < 10",
    "assert f(3) <= 9 <= f(3) and isinstance(f(3), int)",
    "import math; assert math.isclose(f(3), 9)",
    "assert str(f(3)) == '9'",
    "assert set(f(3)) == {9}",
    "assert sorted(f(3))[0] == 9",
    "assert f(3)['nine'] == 9",
    "assert 9 in f(3)",
    "assert f(3).value == 9",
    "assert f(3).value() == 9",
    "",
][1:-1]
BASES = {
    "": "", "(int)": "0", "(float)": "0.5", "(str)": "'a'", "(list)": "[1]", "(tuple)": "(1,)",
    "(dict)": "{'a': 1}", "(set)": "{1}", "(bytes)": "b'a'", "(BaseException)": "8",
}  # fmt: skip


@pytest.mark.parametrize("base", ["", "(int)"])
def test_what_claims_to_be_equal_to_everything_is_not(verdicts, base):
    code = EQUAL.format(base=base, value=BASES[base])
    for test in COMPARISONS:
        assert verdicts(code, test)[0] != "passed", test


@pytest.mark.parametrize("base", BASES)
def test_whatever_it_derives_from(verdicts, base):
    test_what_claims_to_be_equal_to_everything_is_not(verdicts, base)


def test_the_expected_value_is_nowhere_in_the_process_of_the_program(verdicts):
    assert verdicts(HARD[0] + LOOK, "assert f(3) == 9")[0] != "passed"


def test_two_objects_of_the_program_are_equal_where_it_says_so(verdicts):
    """What remains possible, as documented."""
    code = EQUAL.format(base="", value="")
    assert verdicts(code, "assert f(3) == f(4)", "assert f(3).is_right()") == ["passed"] * 2


@pytest.mark.parametrize("name", DESTROY)
def test_who_breaks_limits_harms_only_itself(verdicts, name):
    code, expected = DESTROY[name]
    short = {"seconds": 0.4 if expected == "timeout" else 5.0}
    found = verdicts(HARD[0] + code, "assert f(3) == 9", **short)
    found += verdicts(HARD[0] + code, ("", "9"), **short)
    assert found == [expected] * 2
    fine = "def f(x): return x * x\nif __name__ == '__main__': print(f(int(input())))"
    assert verdicts(fine, "assert f(3) == 9") + verdicts(fine, ("3", "9")) == ["passed"] * 2


def test_a_function_that_breaks_a_limit(verdicts):
    head = "import os\n"
    endless = "def f(x):\n    while True: pass"
    assert verdicts(endless, "assert f(3) == 9", seconds=0.4) == ["timeout"]
    assert verdicts("def f(x): return [0] * 10 ** 12", "assert f(3) == 9") == ["error"]
    assert verdicts("def f(x): return 'x' * 10 ** 7", "assert f(3) == 9") == ["output"]
    assert verdicts(head + "def f(x): os.kill(os.getpid(), 9)", "assert f(3) == 9") != ["passed"]
    closed = "def f(x):\n    os.close(0)\n    import time; time.sleep(60)"
    assert verdicts(head + closed, "assert f(3) == 9") == ["error"]
    looped = "def f(x):\n    x = []\n    x.append(x)\n    return x"
    assert verdicts(looped, "assert f(3) == 9") == ["error"]


def test_a_test_that_never_has_enough(verdicts, monkeypatch):
    """The program may keep a test going, but not for ever."""
    code = "class Q:\n    def size(self): return 1\n    def pop(self): pass"
    test = "q = Q()\nwhile q.size() > 0:\n    q.pop()\nassert q"
    monkeypatch.setattr(grading, "JUDGE_SECONDS", 0.1)
    assert verdicts(code, test, seconds=0.4) == ["timeout"]


def test_one_test_does_not_spoil_the_next(verdicts):
    code = "seen = []\ndef f(x):\n    seen.append(x)\n    return len(seen)"
    assert verdicts(code, *["assert f(1) == 1 and f(1) == 2"] * 3) == ["passed"] * 3


SPY = """
import sys
def words(x):
    if isinstance(x, (str, bytes)): yield x if isinstance(x, str) else x.decode()
    for y in x.values() if isinstance(x, dict) else x if isinstance(x, list) else []: yield from words(y)
def f(*_, **named):
    frame, seen = sys._getframe(), []
    while frame:
        for each in frame.f_locals.values(): seen += words(each)
        frame = frame.f_back
    return next((each for each in seen if each.startswith("hello")), "none")
"""
"""Reads all that its process was given, and gives back what a test expects."""
FORMS = [
    "assert f(3).startswith('hello world')", "assert f(3).endswith('hello world')", "assert f(3).count('hello world') == 1",
    "x = 'hello world'\nassert f(3).find(x) == 0", "assert getattr(f(3), 'startswith')('hello world')",
    "assert f(3).replace('hello world', '') == ''", "assert f(3)[0:].startswith('hello world')",
    "assert (f(3) + '').startswith('hello world')", "assert ('' + f(3)).endswith('hello world')",
    "assert 'hello world' in f(3)", "assert f(3) in ('hello world',)", "assert {'hello world': 1}.get(f(3)) == 1",
    "assert len(f(3)) == 11 and f(3) == 'hello world'", "assert str.startswith(f(3), 'hello world')",
    "y = f(3).split('hello world')\nassert y == ['', '']", "assert f(3).removeprefix('hello world') == f(4).upper()",
    "for x in ['hello world'] * 40:\n    assert f(f(3).strip()).startswith(x)",
    "assert f(key=3).strip().startswith('hello world')", "assert sorted([f(3)], key='hello world'.find)[0] == 'hello world'",
]  # fmt: skip


def test_a_program_gets_the_arguments_of_its_own_calls_and_nothing_else(verdicts):
    """What is done to a result, and what it is compared with, is known to the test alone."""
    found = {form: verdicts(SPY, form) for form in FORMS}
    assert not [form for form, each in found.items() if each == ["passed"]]
    assert verdicts(SPY, "assert f('hello world') == 'hello world'") == ["passed"], "it can read"
    right = "def f(x=0, key=0): return '' if x == 4 else 'hello world'"
    found = {form: verdicts(right, form) for form in FORMS}
    assert not [form for form, each in found.items() if each != ["passed"]]


def test_tests_that_a_program_passes_without_solving_them_are_weak(limits):
    grader = grading.Grader(shared_sandbox(), limits)
    for test, why in {
        "assert f(3).startswith('hello')": ("object",),
        "assert f(3).count('a')": ("object",),
        "from solution import f\ndef test_a():\n    assert f(3).count('a')\ntest_a()": ("object",),
        "x = [3, 1]\nf(x)\nassert x == sorted(x)": ("cleared",),
        "x = [3, 1]\ny = f(x)\nassert all(a in y for a in x)": ("cleared",),
        "assert not abs(f(3) - 9) > 0.1": ("nan",),
        "x = f(3)\nif x < 9 or x > 9:\n    raise AssertionError": ("nan",),
        "from solution import *\nassert f(3).count('a')": ("object",),
        "import solution\nassert solution.f(3).count('a')": ("object",),
        "assert f(3) == 9": (), "assert abs(f(3) - 9) < 0.1": (), "assert is_prime(7)": (),
        "x = [3, 1]\nf(x)\nassert x == [1, 3]": (), "assert f([]) == []": (), "assert f([1, 2]) == []": (),
        "from math import isnan\nassert isnan(f(1))": (), "assert len(f(3)) == 5": (),
        "assert Solution().is_prime(7)": (), "c = Cache(2)\nc.put(1, 1)\nassert c.get(1) == 1": (),
    }.items():  # fmt: skip
        assert weaknesses(grader, AssertCase("", test)) == why, test
