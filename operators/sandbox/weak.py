"""Which tests a program passes without doing what they are about.

A test is run on programs that are made for it: each defines the functions that it calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, get_args

from .assert_style import AssertRunner, Program
from .suite import AssertCase

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


def weaknesses(runner: AssertRunner, case: AssertCase) -> tuple[Weakness, ...]:
    """Why a test is weak; empty: it is not, as far as this is looked at.

    - `nan`: it passes where all functions return NaN, and not where they return the largest or the
      smallest number. A test that says `nan` expects it.
    - `cleared`: it passes where they clear the lists, dicts and sets that they are given, and
      return None or the first of them; and not where they return that, or an empty one, and clear
      nothing.
    - `object`: it passes where they return an object whose methods, all named like those of text,
      lists and numbers, return such an object again, and not where it has no methods. The arguments
      of these methods, such as the expected text in `f(3).startswith("abc")`, get into the process
      of that program.

    Raises:
        BadTestsError: the test makes no call, or cannot be run.
        SandboxError: the sandbox has failed.
    """
    names = sorted(set(_names(runner.plan(case))))

    def passes(result: str, before: str = "", head: str = "") -> bool:
        defined = (
            f"def {name}(*arguments, **named):{before}\n    return {result}" for name in names
        )
        return runner.run(Program("\n".join([head, *defined])), case) == "passed"

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


def _names(item: Any) -> Iterator[str]:
    """The functions and classes of the program in planned calls."""
    if isinstance(item, dict):
        if item.get("t") == "name":
            yield item["v"]
        else:
            yield from _names(item.get("v"))
    elif isinstance(item, list):
        for each in item:
            yield from _names(each)
