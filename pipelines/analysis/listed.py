"""Counts in one line, as every report prints them."""

from __future__ import annotations

from collections.abc import Mapping


def listed(counts: Mapping[str, int]) -> str:
    """How often each value occurs.

    Example:
        >>> listed({"wrong_answer": 1200, "correct": 3})
        'wrong_answer 1,200, correct 3'
    """
    return ", ".join(f"{value} {count:,}" for value, count in counts.items())
