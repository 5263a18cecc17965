"""Objects and lists in JSON, compared by their values."""

from __future__ import annotations

import json
import re
from operator import eq
from typing import Any

from .answer_types import AnswerRules, Mention

_DECODER = json.JSONDecoder()
_OPENING = re.compile(r"[{\[]")
_MOST = 100  # opening brackets that are tried


def read_json(text: str) -> Any | None:
    try:
        found = json.loads(text) if text[:1] in ("{", "[") else None
        _key(found)
    except (ValueError, RecursionError):
        return None
    return found


def _is_structured(value: Any) -> bool:
    """Whether it is more than a list of numbers, which has other notations: `[0, 1]`, `(1, 2)`."""
    is_numbers = isinstance(value, list) and value and {*map(type, value)} <= {int, float}
    return isinstance(value, dict | list) and not is_numbers


def _mentions(text: str) -> list[Mention]:
    found, at = list[Mention](), 0
    unescaped = text.replace("\\{", "{").replace("\\}", "}")
    if len(unescaped) < len(text) and "{" not in text.replace("\\{", ""):
        text = unescaped  # In a box of LaTeX, braces are escaped.
    for _ in range(_MOST):
        if not (opening := _OPENING.search(text, at)):
            break
        try:
            value, end = _DECODER.raw_decode(text, opening.start())
            found.append(Mention(_key(value), opening.start(), end))
        except json.JSONDecodeError as error:
            end = max(opening.end(), error.pos)  # What is in a broken value is no value.
        except (ValueError, RecursionError):
            break  # Longer or deeper than any answer.
        at = end
    return found


def _key(value: Any) -> Any:
    """A value as what can be compared: 15 is 15.0, and neither is True or "15"."""
    if isinstance(value, dict):
        return ("{", frozenset((name, _key(each)) for name, each in value.items()))
    if isinstance(value, list):
        return ("[", tuple(_key(each) for each in value))
    return (isinstance(value, bool), isinstance(value, str), value)


JSON = AnswerRules(lambda text: _is_structured(read_json(text)), _mentions, equal=eq)
"""The names of an object have no order; a list has one. `15` is `15.0`, and is not `"15"`."""
