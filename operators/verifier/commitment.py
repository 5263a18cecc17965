"""Whether a policy commits to the answer that it writes: negations, and giving up."""

from __future__ import annotations

import re

from .language import REACH

# "not", in some languages, directly before an answer: a name and delimiters may be between them.
_NEGATION = re.compile(
    r"(?:\b(?:not|never|anything but|unlikely to be|no (?:es|é)|nicht|niet|non è|bukan"
    r"|(?<=#### )no)|n['’]t|n['’]est pas|不是)"
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


def is_negated(text: str, start: int) -> bool:
    """Whether the answer that starts there is preceded by its negation ("isn't")."""
    if _NEGATION.search(text, max(0, start - REACH), start):
        return True
    if text.isascii() or text[max(0, start - REACH) : max(0, start)].isascii():
        return False
    from .foreign import ends_in_negation

    return ends_in_negation(text, start)


def is_refuted(text: str, end: int) -> bool:
    """Whether what follows an answer says that it is none ("is incorrect")."""
    if _REFUTED.match(text, end):
        return True
    if text.isascii() or text[end : end + REACH].isascii():
        return False
    from .foreign import begins_with_refutation

    return begins_with_refutation(text, end)


def is_disowned(answer: str) -> bool:
    """Whether an answer calls itself wrong: `42 (incorrect)`."""
    found = _DISOWNED.search(answer) if "(" in answer else None
    return found is not None and answer[: found.start()] not in {"", "\\text{"}


def gives_up(text: str) -> bool:
    """Whether a text ends with "I do not know" or the like.

    The number before it is then part of a question or of a case that was considered.
    """
    if _GIVES_UP.search(text, max(0, len(text) - 200)):
        return True
    if text.isascii():
        return False
    from .foreign import gives_up as gives_up_there

    return gives_up_there(text)
