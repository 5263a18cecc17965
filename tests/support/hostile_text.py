"""What hostile text costs."""

import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P, R = ParamSpec("P"), TypeVar("R")

LONGEST_S = 20.0
"""For texts that take far below a second; what is quadratic or worse would take minutes."""


def in_linear_time(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Its result, if it took less processor time than above.

    Raises:
        AssertionError: if it took more.
    """
    start = time.process_time()
    result = function(*args, **kwargs)
    assert time.process_time() - start < LONGEST_S
    return result
