"""Choices: the letters of options, and yes or no."""

from __future__ import annotations

import re
from operator import eq

from .answer_types import AnswerRules, Mention
from .commitment import is_given
from .words import listed

# --- Letters --------------------------------------------------------------------------

_JOIN = (
    r"(?:\s*(?:[,;/&|和、–-]|或者?)\s*(?:and |or |& )?|\s+(?:and|or|to|through|&|oder|ou|или)\s+"
    r"|\s*\\(?:lor|vee|land|wedge|c[au]p|cdot|times)\s+)"
)
_ONE = r"[(\[]?[A-Ja-d][)\]]?"
_RUN = r"A?B?C?D?E?F?G?(?<=[A-G][A-G])"
_TAKEN = re.compile(
    rf"{_RUN}|\(?(?:[A-J]|[a-d])\)?[.):]?|\(?[A-J](?:\)|[.:](?=\s)).*"
    rf"|\(?[A-J]\)?(?:{_JOIN}\(?[A-J]\)?)+"
)
_LABELLED = re.compile(
    rf"\b(?:option|choice|alternative|answer|statement)s?:?[\s*_\"]+({_ONE}(?:{_JOIN}{_ONE})*)(?![\w'’])",
    re.IGNORECASE,
)
# What begins a marked place: `C`, `(c)`, `C) 12`, `C: text`, `A, C and D`; not "A dog".
_FIRST = re.compile(
    rf"\W*({_RUN}|{_ONE}(?:{_JOIN}{_ONE}(?![\w.]))*)(?!{_JOIN}[A-J]\b)(?=$|\\[}})]|[.):\]}},$]|\*\*|__|\s*[:：(（\n]|\s*[-–—](?=\s*[A-Za-z]{{2}})|\s+(?:is|because|as|since)\b)"
)
_BRACKETED = re.compile(r"(?<!\w)[(\[]([A-Ja-e])[)\]]")
_ALONE = re.compile(
    rf"(?<![A-Za-z0-9'’.=-])(?<!= )(?!A\s+(?!or\b|and\b)[a-z]|I\b)({_RUN}|[A-J](?:{_JOIN}[A-J])*)"
    r"(?![A-Za-z0-9]|['’](?!d[ıi]r)|\.\w|_|\s*[-+*/^=<>]\s*[\w\\(])"
)
_LETTER = re.compile(r"(?<![A-Za-z])[A-Ja-j](?![A-Za-z])")
_UNSURE = re.compile(
    r"\b(?:might|may|maybe|perhaps|possibly|could|or)\b[^.]*\b[A-J]\b|\b[A-J] (?:might|may|could)\b"
)
_REJECTED = re.compile(
    r"(?:\\[a-z]+|[≠¬]) *\Z|\b(?:not|never|n['’]t|cannot) (?:choose|pick|select|take)\W*\Z"
    r"|\b(?:all but|except|(?:exclud|eliminat)(?:e|ing)|rul(?:e|ing) out)(?: option)?\W*\Z",
    re.IGNORECASE,
)
_OR = re.compile(r"\b(?:or|oder|ou|или)\b|[/\\或]")


def _letters(text: str) -> frozenset[str]:
    """Several letters that are joined by "or" are none of them."""
    run = text.isascii() and text.isalpha() and text.isupper()
    found = frozenset(text if run else (each.upper() for each in _LETTER.findall(text)))
    return found | {"or"} if len(found) > 1 and _OR.search(text) else found


def _letter_mentions(text: str) -> list[Mention]:
    if (found := _FIRST.match(text)) and is_given(text, *found.span(1)):
        if _UNSURE.search(text, found.end()):
            return [Mention("several", *found.span(1))]
        return [Mention(_letters(found[1]), *found.span(1))]
    options = [
        [(_letters(each[1]), each) for each in pattern.finditer(text)]
        for pattern in (_LABELLED, _BRACKETED, _ALONE)
    ]
    denied = {letters for found in options for letters, each in found if _is_denied(text, each)}
    kept = ([Mention(a, *m.span(1)) for a, m in found if a not in denied] for found in options)
    return next(filter(None, kept), [])


def _is_denied(text: str, letter: re.Match[str]) -> bool:
    rejected = _REJECTED.search(text, max(0, letter.start(1) - 40), letter.start(1))
    return bool(rejected) or not is_given(text, *letter.span(1))


CHOICE = AnswerRules(lambda text: bool(_TAKEN.fullmatch(text)), _letter_mentions, equal=eq)
"""Letters of options, in any case, with the text of the option or without; their order is free."""

# --- Yes and no -----------------------------------------------------------------------

_YES = listed("yes sí oui ja да sim evet tak 是 是的 对 はい 네 예")
_NO = listed("no non nein não нет nej nie hayır 不 不是 否 いいえ 아니요 아니오")
_WORDS = dict.fromkeys(_YES, "yes") | dict.fromkeys(_NO, "no") | {"true": "true", "false": "false"}
_NEAR = 200  # characters before a word that may deny it
_DENIED = re.compile(r"\b(?:not|whether|if)\b(?: \w+){0,2} \Z|n['’]t\b(?: \w+){0,3} \Z")
_ANY = "|".join(word for word in _WORDS if word not in ("yes", "no"))
_BOTH = re.compile(
    r"\b(?:yes|true)(?:[\s-](?:and|or)[\s-]| ?[/|&] ?)(?:also )?(?:no|false)\b|\btrue or not\b"
    r"|\bneither (?:an? )?(?:yes|no|true|false)\b"
    rf"|\A(?:{_ANY})[\s/|,]+(?:aber |mais |pero |но )?(?:{_ANY})(?=\W|\Z)",
    re.IGNORECASE,
)
_YES_OR_NO = re.compile(
    r"(?<!say )(?<!says )\b(?:yes|true|false"
    r"|no(?=\W*\Z|\.(?! ?\d)|[,;:!*\"')/|&]| (?:yes|if|in some|otherwise)\b| [-–—|/&<=>]))\b"
    rf"|\A(?:{_ANY})(?=\W|\Z)",
    re.IGNORECASE,
)


def begins_with_it(text: str) -> bool:
    """Whether a text begins with yes or no, true or false, on which it enlarges."""
    return bool(_YES_OR_NO.match(text, len(text) - len(text.lstrip(" \n*_"))))


def _yes_or_no(text: str) -> list[Mention]:
    if _BOTH.search(text):
        return [Mention("both", 0, len(text))]
    given = [
        each
        for each in _YES_OR_NO.finditer(text)
        if is_given(text, *each.span())
        and not _DENIED.search(text, max(0, each.start() - _NEAR), each.start())
    ]
    return [Mention(_WORDS[each[0].lower()], *each.span()) for each in given]


BOOLEAN = AnswerRules(lambda text: text.lower() in _WORDS, _yes_or_no, equal=eq)
"""Yes or no, in any of these languages; true or false, which are others."""
