r"""A verifier that shares no code with the rest of this package: math-verify alone, for audits.

It finds the answer in the response, reads it and compares it by rules of its own, so that what
the two tiers beside it get wrong in the same way shows. Runs inside pool workers only: nothing
here has a limit or a clock.
"""

from __future__ import annotations

from math_verify import parse, verify


def same_by_math_verify(response: str, reference: str) -> bool:
    """Whether the answer that math-verify finds in a response is the reference to it.

    Raises:
        ValueError: the reference itself cannot be parsed.
        Exception: whatever math-verify raises; it would say False instead.
    """
    # Without a timeout of its own: the parent has the clock.
    known = parse(f"${reference}$", parsing_timeout=None, raise_on_error=True)
    if not known:
        raise ValueError("the reference is not mathematics")
    found = parse(response, parsing_timeout=None, raise_on_error=True)
    return bool(verify(known, found, timeout_seconds=None, raise_on_error=True))
