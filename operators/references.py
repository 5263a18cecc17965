"""References of datasets: the answer in a worked solution, and several right answers."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_EITHER = re.compile(r"\s+(?:or|OR)\s+|\s*\\(?:text|mathrm)\{\s*or\s*\}\s*")
_NUMBER = re.compile(
    r"[-+]?\$?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?(?: ?[A-Za-z]{1,12})?|\$[-+]?\d[\d,]*(?:\.\d+)?\$|[A-J]"
)
_QUOTED = re.compile(r"\s*\[\s*[\"']")


def has_box(text: str) -> bool:
    r"""Return whether a text has a `\boxed{`, closed or not."""
    return bool(_BOX.search(text))


def last_box(text: str) -> str | None:
    r"""Return the content of the last `\boxed{}` of a text; None where its braces are not balanced.

    Example:
        >>> last_box(r"First 3, so $\boxed{\frac{1}{2}}$ for {x}.")
        '\\frac{1}{2}'
    """
    opened = list(_BOX.finditer(text))
    if not opened:
        return None
    start, depth = opened[-1].end(), 1
    for brace in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if not depth:
            return text[start : brace.start()]
    return None


def listed_answers(text: str) -> list[str] | None:
    """Return the right answers in a JSON list that begins with a string; None if a text is none.

    A list of numbers is one answer, such as an interval. `['12']` is how Python writes a list.

    Example:
        >>> listed_answers('["12", "twelve"]'), listed_answers("[1, 2]")
        (['12', 'twelve'], None)
    """
    if not _QUOTED.match(text):
        return None
    try:
        answers = json.loads(text) if '"' in text else ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    answers = [each for each in answers if each is not None]
    known = all(isinstance(each, (str, int, float)) for each in answers)
    return (
        [each if isinstance(each, str) else json.dumps(each) for each in answers] if known else None
    )


def as_text(answers: Sequence[str]) -> str:
    """Right answers as one reference: the answer, or a JSON list of several."""
    distinct = list(dict.fromkeys(answers))
    if len(distinct) <= 1:
        return "".join(distinct)
    return json.dumps(distinct, ensure_ascii=False)


def alternatives(reference: str) -> list[str]:
    """Return the answers each of which is right, in the order in which they are compared.

    Example:
        >>> alternatives("11 or 13"), alternatives('["12", "twelve"]')
        (['11 or 13', '11', '13'], ['12', 'twelve'])
    """
    several = listed_answers(reference)
    if several:
        return several
    if " or " in reference or " OR " in reference or "or }" in reference or "or}" in reference:
        parts = _EITHER.split(reference.strip())
        if all(map(_NUMBER.fullmatch, parts)):  # Of equations both hold: they are one answer.
            return [reference, *parts]
    return [reference]
