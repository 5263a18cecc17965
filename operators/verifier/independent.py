r"""A verifier that shares no code with the rest of this package: math-verify alone, for audits.

It finds the answer in the response, parses it and compares it by its own rules, so that errors
common to the two tiers show up. It runs only inside pool workers: nothing here limits size or time.
"""

from __future__ import annotations

from math_verify import parse, verify


def same_by_math_verify(response: str, reference: str) -> bool:
    """Whether the answer that math-verify finds in a response is the reference to it. Raises
    whatever math-verify raises, which it would otherwise turn into False."""
    # Without its own timeout: the parent enforces the deadline.
    known = parse(f"${reference}$", parsing_timeout=None, raise_on_error=True)
    if not known:
        raise ValueError("the reference is not mathematics")
    found = parse(response, parsing_timeout=None, raise_on_error=True)
    return bool(verify(known, found, timeout_seconds=None, raise_on_error=True))
