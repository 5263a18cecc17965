"""The verdict of a verifier on one response."""

from __future__ import annotations

from typing import Literal, NamedTuple

Slug = Literal["correct", "wrong_answer", "no_answer", "timeout", "verifier_error"]

# These two say nothing about the response: a reward based on them is missing, not 0.
FAILURES: frozenset[Slug] = frozenset({"timeout", "verifier_error"})


class Verdict(NamedTuple):
    """A verdict and the graded answer.

    `answer` is the span that was extracted from the response, None if there is none. A verdict is
    true only if it is `correct`, for filters of correct answers; a wrong answer and a failure are
    both false, and `verdict` distinguishes them.
    """

    verdict: Slug
    answer: str | None

    def __bool__(self) -> bool:
        return self.verdict == "correct"
