r"""The content of the last `\boxed{}` of a response, with what belongs to it."""

from __future__ import annotations

import re

from .commitment import is_given
from .notation import closes_at

# A response that was escaped once too often has two backslashes.
_BOX_PARTS = re.compile(r"\\{1,2}(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
_UNBRACED = re.compile(r"\\(?:boxed|fbox)\s+(-?[\d\\.][^\s$]{0,100}?)(?=[.,;:!?]?(?:[\s$]|\Z))")
# A minus before the box belongs to what is in it; any other operation around it does not.
_SIGN = re.compile(
    r"(?:(?:=|(?<!\\)\$|\\[(\[])\s*|(?<![^\n])(?=.\$?\Z|\\pm))([-−±]|\\pm)\s*\$?\s*$"
)
# A box that is an operand is a step, unless it was to be filled in, as in `3 + \boxed{12} = 15`.
_OPERATOR_BEFORE = re.compile(
    r"(?:[\^_]\{?|\\(?:sqrt|[dt]?frac|log|ln|cdot|times)(?:\{[^{}]*\})?\{?"
    r"|[+·×√\d]|(?<=[\w)}] )[-−*/]) ?$"
)
_OPERATOR_AFTER = re.compile(r" ?(?:[+·×]|\\(?:cdot|times|pi)|[xyz](?![a-zA-Z']))")
_EQUATED_AFTER = re.compile(r"[^=<>$\n]{0,30}=")
_LIST_GLUE = re.compile(
    r"(?:[\s,;$①-⑤]|\\[,;: ()]|\\q?quad|\\(?:text|mathrm)\s*\{\s*(?:and|or)?,?\s*\}|and|or)*"
)
_NEXT_ITEM = re.compile(
    r"[\s.,;$]*\n[ \t*-]*(?:(?:candidate|option|choice|possibility|guess) ?\w{1,2}|\(?[a-z]\)?)"
    r"[.):][\s$]*",
    re.IGNORECASE,
)
_DEEP = 64  # pairs of braces
_LONG = 4_000  # a longer content is refused, in braces or not
_CUT_OFF = re.compile(r"(?<=\d)\.{3,}$")


def boxed(text: str) -> tuple[str, int] | None:
    """The answer in the last box, and where the box ends."""
    if "\\boxed" not in text and "\\fbox" not in text:
        return None
    spans = _box_spans(text)
    if not spans:
        unbraced = list(_UNBRACED.finditer(text))
        return (unbraced[-1][1], unbraced[-1].end()) if unbraced else None
    start, inner, end = spans[-1]
    last = _peel(text[inner:end])
    if last and not text.isascii():
        from .other_languages import magnitude_after

        last = f"{last} {magnitude_after(text[end + 1 : end + 20])}".strip()
    first, contents = _listed(text, spans, last)
    answer = ", ".join(contents)
    if last and (sign := _SIGN.search(text, max(0, start - 24), start)):
        first, answer = start, f"{sign[1]}({last})"
    if not answer:
        return None
    is_part = _is_operand(text, start, end + 1) or not is_given(text, first, end + 1)
    return f"not({answer})" if is_part else answer, end + 1


def _is_operand(text: str, start: int, end: int) -> bool:
    before, after = text[max(0, start - 40) : start], text[end : end + 40]
    is_part = _OPERATOR_BEFORE.search(before) or _OPERATOR_AFTER.match(after)
    return bool(is_part) and not _EQUATED_AFTER.match(after)


def _listed(text: str, spans: list[tuple[int, int, int]], last: str) -> tuple[int, list[str]]:
    """Where the first box begins of those that form one list with the last, and their contents."""
    contents, following = [last], spans[-1][0]
    for start, inner, end in reversed(spans[:-1]):
        if end > following:
            continue  # It is nested in the box that follows.
        if not _joined(text, end + 1, following):
            break
        contents.append(_peel(text[inner:end]))
        following = start
    return following, list(dict.fromkeys(reversed(contents)))


def _joined(text: str, end: int, start: int) -> bool:
    if start - end > 40:
        return False
    return bool(_LIST_GLUE.fullmatch(text, end, start) or _NEXT_ITEM.fullmatch(text, end, start))


def _box_spans(text: str) -> list[tuple[int, int, int]]:
    """(start, content start, content end) of every balanced box, in order of their ends."""
    stack: list[tuple[int, int] | None] = []
    spans = list[tuple[int, int, int]]()
    for token in _BOX_PARTS.finditer(text):
        mark = token[0]
        if mark == "{":
            stack.append(None)
        elif mark == "}":
            if stack and (opened := stack.pop()):
                spans.append((*opened, token.start()))
        elif mark[-1] == "{" and len(mark) > 2:
            stack.append((token.start(), token.end()))
    return spans


def _peel(content: str) -> str:
    content = content.replace("\\boxed", "").replace("\\fbox", "").strip()
    for _ in range(_DEEP):
        # One pair of braces is around it all, unlike in `{1,2} \setminus {2}`.
        if content[:1] != "{" or len(content) > _LONG or closes_at(content, 0) < len(content) - 1:
            break
        content = content[1:-1].strip()
    return _CUT_OFF.sub(r"\\ldots", content) if content.endswith("...") else content
