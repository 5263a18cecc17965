"""Many small cases in one test: all of them are tried, and each that fails is named."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest


def check_each(cases: Iterable[Any], check: Callable[..., object]) -> None:
    """Call `check` with each case, or with the items of one that is a tuple.

    Raises:
        AssertionError: it raised for some cases: each of them, and what was wrong.
    """
    __tracebackhide__ = True
    cases = list(cases)
    failed = []
    for case in cases:
        try:
            check(*case) if isinstance(case, tuple) else check(case)
        except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
            failed.append(f"{_shown(case)}: {type(error).__name__}: {error}")
    assert_none(failed, of=len(cases))


def assert_none(failed: Sequence[str], *, of: int) -> None:
    """Raise an AssertionError with a line for each case that failed, or if there was no case."""
    __tracebackhide__ = True
    if not of:
        raise AssertionError("there is no case")
    if failed:
        raise AssertionError("\n".join([f"{len(failed)} of {of} cases fail", *failed]))


def _shown(case: object) -> str:
    items = case if isinstance(case, tuple) else (case,)
    return ", ".join(str(each) if isinstance(each, Path) else f"{each!r:.200}" for each in items)
