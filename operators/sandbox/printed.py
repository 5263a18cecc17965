"""Whether a program has printed what it should."""

from __future__ import annotations

import math


def same_output(printed: str, expected: str, tolerance: float | None = None) -> bool:
    """Compare two outputs, line by line.

    White space at the ends of lines and empty lines at the end do not count.

    Args:
        printed: by the program.
        expected: by the test.
        tolerance: numbers may differ by so much, absolutely or relative to the expected one; then
            lines are compared word by word. None: texts have to be equal.

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
