"""Whether a response gives the answer that is found in it.

It does not where the clause of the answer negates it directly ("is not 12", "12 is wrong"), offers
another one beside it ("13 or 12", "neither 13 nor 12"), or asks ("is it 12?"). Doubts, conditions,
and what others say are not read.
"""

from __future__ import annotations

import re

from .phrases import is_hinted

_NEAR = 80  # characters on each side of an answer

# Delimiters, and a name: `not $x = 12$`.
_OPENED = r"[ \t#*_$(\[{\\]*(?:[a-zA-Z]\w{0,3}(?:\([a-z]\))? ?= ?)?[ $(\\]*$"
_CLOSED = r"[\s*_$)\]}\\]*"
_RIGHT = r"(?:(?:the|our|my) )?(?:(?:final|correct|right) )*(?:answer|solution|correct|right)\b"
_NEGATED = re.compile(
    r"(?:\b(?:not|never|neither|nor|cannot|anything but|unlikely to be)|n['’]t|\\(?:lnot|neg)|¬)"
    rf"(?: (?:really|actually|possibly|exactly|be|been|equals?|to))*(?: {_RIGHT})?{_OPENED}",
    re.IGNORECASE,
)
_REFUTED = re.compile(
    rf"{_CLOSED}(?:(?:is|are|was|would be) (?:wrong|incorrect|not {_RIGHT})"
    rf"|(?:isn['’]t|wasn['’]t|can(?:not|['’]t) be) {_RIGHT})"
)
_DISOWNED = re.compile(r"[^\s{]\s*(?:\\text\{ ?)?\(\s?(?:incorrect|wrong|not correct|false)\s?\)")
# "$30 + $160 or 190" and "0.6 or 60%" are one answer.
_OR_BEFORE = re.compile(
    r"(?:\b(?:either|is|are|be|equals?|gets?)|[:=]) "
    rf"(?:[^.,;:+\n]|[.,](?=\S)){{0,50}}[\d)}}$*%](?: [a-z]+)? or {_OPENED}"
)
_OR_AFTER = re.compile(rf"{_CLOSED} or [*$\\(]{{0,4}}(?:boxed{{)?[-−]?\d(?![\d.,]*\\?%)")
_ASKED = re.compile(rf"{_CLOSED}(?: [^.,;:!?()\n\d]{{0,40}})?\?(?!\W*[Yy]es\b)")


def is_given(text: str, start: int, end: int) -> bool:
    """Whether the clause around the answer text[start:end] gives it, and it alone."""
    before, after = max(0, start - _NEAR), end + _NEAR
    if _NEGATED.search(text, before, start) or _OR_BEFORE.search(text, before, start):
        return False
    if _REFUTED.match(text, end, after) or _OR_AFTER.match(text, end, after):
        return False
    if _ASKED.match(text, end, after):
        return False
    if _DISOWNED.search(text, start, end):
        return False
    if text.isascii() and not is_hinted(text):
        return True
    from .other_languages import is_changed

    return not is_changed(text, start, end)


_GIVES_UP = re.compile(
    r"(?:\bI (?:could(?: not|n['’]t)|(?:can ?not|can['’]t) (?:tell|say|solve|answer|do|give one)"
    r"|(?:do not|don['’]t) know|give up|have no idea)\b|\banswer\b(?:[^.?\n]|\.\d){0,80}\?\s*No\b)"
    r"(?: (?:it|this|that|how|yet|for sure|the answer))?\W*$"
)
_END = 200  # characters
_NO_ANSWER = re.compile(
    r"\bI(?:['’]m| am) (?:unable|not able) to\b|\bI do(?: not|n['’]t) have enough\b"
    r"|\bno (?:definite|definitive|single|clear) answer\b"
    r"|\b(?:I )?can(?: ?not|['’]t) (?:determine|give|be (?:determined|worked out|known|answered))\b"
)


def gives_up(text: str) -> bool:
    """Whether a text ends with "I do not know" or the like. The number before it is then part of a
    question or of a case that was considered."""
    last = max(0, len(text) - _END)
    if _GIVES_UP.search(text, last) or _NO_ANSWER.search(text, last):
        return True
    if text.isascii():
        return False
    from .other_languages import gives_up as gives_up_there

    return gives_up_there(text)
