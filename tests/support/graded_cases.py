"""Cases of the verifier, which one call grades: each that has another verdict is named."""

from collections.abc import Iterable

from each import assert_none

from rejuice.operators.verifier import verify_batch

Case = tuple[str, str, bool | str]
"""A reference, a response to it, and its verdict, or whether that is `correct`."""


def check_verdicts(cases: Iterable[Case], *, worked_out: bool = False) -> None:
    """Grade all cases at once.

    Raises:
        AssertionError: some have another verdict: each of them, and what was found.
    """
    __tracebackhide__ = True
    cases = list(cases)
    responses, references = [case[1] for case in cases], [case[0] for case in cases]
    verdicts = verify_batch(responses, references, worked_out=worked_out)
    failed = [
        f"{response!r} against {reference!r}: expected {expected}, found {slug} of {answer!r}"
        for (reference, response, expected), (slug, answer) in zip(cases, verdicts, strict=True)
        if expected not in (slug, slug == "correct")
    ]
    assert_none(failed, of=len(cases))


def check_boxed(cases: Iterable[Case]) -> None:
    """Like `check_verdicts`, of answers that each stand in a box."""
    __tracebackhide__ = True
    check_verdicts(
        (reference, rf"\boxed{{{answer}}}", expected) for reference, answer, expected in cases
    )
