"""What a verifier says of one response."""

from __future__ import annotations

from typing import Literal, NamedTuple

Slug = Literal["correct", "wrong_answer", "no_answer", "timeout", "verifier_error"]

# The two that say nothing about the response: a reward made of them is missing, not 0.
FAILURES: frozenset[Slug] = frozenset({"timeout", "verifier_error"})


class Verdict(NamedTuple):
    """A verdict and the answer it is about.

    `answer` is the span that was extracted from the response, None where there is none. A
    verdict is true only where it is `correct`, for filters of correct answers; a wrong answer
    and a failure are both false, and `verdict` tells them apart.
    """

    verdict: Slug
    answer: str | None

    def __bool__(self) -> bool:
        return self.verdict == "correct"
