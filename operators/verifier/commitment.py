"""Whether a policy commits to the answer that it writes: negations, and giving up."""

from __future__ import annotations

import re

# "not", in some languages, directly before an answer: a name and delimiters may be between them.
_NEGATION = re.compile(
    r"(?:\b(?:not|never|anything but|unlikely to be|no (?:es|é)|nicht|non è)"
    r"|n['’]t|n['’]est pas|不是)"
    r"(?: (?:be|equal(?: to)?))?[ \t*_$(\[{\\]*(?:[a-zA-Z]\w{0,3}(?:\([a-z]\))? ?= ?)?$",
    re.IGNORECASE,
)
_REFUTED = re.compile(
    r"[\s*$\\)\].]*(?:is|are|was) (?:wrong|incorrect"
    r"|not (?:(?:the|our|my) )?(?:(?:final|correct|right) )*(?:answer|solution|correct|right)\b)"
)
_DISOWNED = re.compile(r"\(\s?(?:incorrect|wrong|not correct|false)\s?\)")
_GIVES_UP = re.compile(
    r"(?:\bI (?:could(?: not|n['’]t)|(?:can ?not|can['’]t) (?:tell|say|solve|answer|do)"
    r"|(?:do not|don['’]t) know|give up|have no idea)\b|\banswer\b(?:[^.?\n]|\.\d){0,80}\?\s*No\b)"
    r"(?: (?:it|this|that|how|yet|for sure|the answer))?\W*$"
)
_REACH = 40  # characters before an answer in which its negation begins


def is_negated(text: str, start: int) -> bool:
    """Whether the answer that starts there is preceded by its negation ("isn't")."""
    return bool(_NEGATION.search(text, max(0, start - _REACH), start))


def is_refuted(text: str, end: int) -> bool:
    """Whether what follows an answer says that it is none ("is incorrect")."""
    return bool(_REFUTED.match(text, end))


def is_disowned(answer: str) -> bool:
    """Whether an answer calls itself wrong: `42 (incorrect)`."""
    found = _DISOWNED.search(answer) if "(" in answer else None
    return found is not None and answer[: found.start()] not in {"", "\\text{"}


def gives_up(text: str) -> bool:
    """Whether a text ends with "I do not know" or the like.

    The number before it is then part of a question or of a case that was considered.
    """
    return bool(_GIVES_UP.search(text, max(0, len(text) - 200)))
