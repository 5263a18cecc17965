r"""Where the answer is in a text of another language than English.

The rules are those of `answer.py`: a phrase such as `答案是` or "Die Antwort lautet" first, then
the last number. They are stricter in one respect: a word next to the number that may change it
(a bound, a negation, "or more") takes the number away, wherever the number stands.
Places are those of the text itself, so that what is found is a span of it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from .end_of_turn import begins_item
from .phrases import (
    ENDS,
    FOREIGN,
    LETTER,
    Phrases,
    fold,
    has_foreign_words,
    phrases_of,
    readable,
    size,
    without_polite,
    words_in,
)
from .units import leading, magnitude_length

_SENTENCE_END = re.compile(
    r"[?!](?=[\s*\"”“»」]|$)|\n"
    r"|(?<!\bca)(?<!\benv)(?<!\baprox)(?<!\bприбл)(?<!\bтыс)(?<!\bмлн)(?<!\bMio)(?<!\bMrd)(?<!\bкв)\."
    r"(?=[\s*\"”»」]*$|[*\"”»」]*\s+(?![a-zß-ÿа-яё])|[\u0e01-\u0eff\u3041-\u9fff\uac00-\ud7a3])"
)
_BREAK = re.compile(r"[;:!?()\n“”«»„「」『』]|,(?!\d)|\.(?!\d)|[—–](?=\s)|→|⇒")
_LEAD = ' \t\n*_:="“”«»„「」『』—–-'
_DIGIT = re.compile(r"\d")
_NUMBER = re.compile(r"\d+")
_FOREIGN_LETTER = re.compile(f"[{FOREIGN}]")
_LATIN_LETTER = re.compile("[\u00c0-\u024f\u1e00-\u1eff]")
_AFTERWARDS = re.compile(rf"[,;]\s*[{LETTER}]{{2,}}[^,;]*\d")  # `3 + 4 = 7, so 12 are left`
_DISPLAYED = re.compile(r"\\\[\s*(.{1,1000}?)\s*\\\]|\$\$\s*(.{1,1000}?)\s*\$\$", re.DOTALL)
_CLOSED = re.compile(r"(?:[\s$*_}]|\\[,;!)])*")
_LONGEST = 300  # characters of a bare answer
_MOST_BEHIND, _MOST_ALONE = 5.0, 6.0  # words of a bare answer, with a number and without one
_AROUND = 1_000  # characters before an answer, which show its language
_SHORT = 8  # words of what calls an answer wrong
_TRIED = 20  # phrases at the end of a text
_LINE = 1_000  # characters of a sentence or line that count
_NEAR = 2.5  # words between an answer and what denies it
_SOON = 80  # characters behind an answer in which it may be called wrong


class Clause(NamedTuple):
    """What follows a phrase."""

    text: str  # as it stands there, up to the end of the sentence
    phrases: Phrases  # the words of its language
    is_negated: bool  # whether the text begins with its negation
    is_wrong: bool  # whether what follows says that it is wrong


# --- phrases --------------------------------------------------------------------------


def phrases_in(text: str) -> list[int]:
    """Where the last phrase begins that an answer follows, if there is one."""
    phrases = phrases_of(text)
    if phrases is None:
        return []
    plain, folded = readable(text), fold(text)
    for phrase in reversed(list(phrases.noun.finditer(folded))[-_TRIED:]):
        if _counts(plain, phrase, phrases):
            return [phrase.start()]
    return []


def _counts(plain: str, phrase: re.Match[str], phrases: Phrases) -> bool:
    """Return whether a phrase commits to an answer: no question or supposition."""
    folded, (start, end) = phrase.string, phrase.span()
    if not folded[end:].strip(_LEAD + "."):
        return False
    before = folded[max(folded.rfind("\n", 0, start) + 1, start - _LINE) : start]
    broken = [m.end() for m in _BREAK.finditer(before)]
    if phrases.supposes.search(before, broken[-1] if broken else 0):
        return False
    stop = _sentence_end(plain, end)
    return plain[stop : stop + 1] != "?"


def _sentence_end(plain: str, start: int) -> int:
    last = min(len(plain), start + _LINE)
    end = _SENTENCE_END.search(plain, start, last)
    return end.start() if end else last


def clause(text: str) -> Clause | None:
    """Return what follows the phrase at the start of a text; None if there is no phrase."""
    phrases = phrases_of(text)
    if phrases is None:
        return None
    plain, folded = readable(text), fold(text)
    phrase = phrases.noun.match(folded)
    if phrase is None:
        return None
    start = phrase.end()
    while start < len(folded) and folded[start] in _LEAD and not _is_sign(folded, start):
        start += 1
    if displayed := _DISPLAYED.match(text, start):
        return Clause(displayed[1] or displayed[2], phrases, False, False)
    end = _sentence_end(plain, start)
    wrong = _is_called_wrong(plain, end, phrases)
    start, end, negated = _affirmed(folded, start, end, phrases)
    shown = text[start:end].strip(' \t\n*_"“”«»「」『』,;')
    spoken = _plain_spoken(shown, phrases)
    return Clause(spoken, phrases, negated, wrong)


def _is_sign(folded: str, at: int) -> bool:
    return folded[at] == "-" and folded[at + 1 : at + 2].isdigit() and folded[at - 1] != "-"


def _affirmed(folded: str, start: int, end: int, phrases: Phrases) -> tuple[int, int, bool]:
    """The part of a clause that holds, and whether there is none: of "not 12 but 13" the end."""
    negated = phrases.no.match(folded, start, end)
    for but in phrases.but.finditer(folded, start, end):
        holds = negated or (but.start() > start and phrases.after.match(folded, but.start(), end))
        if holds and re.search(r"[\da-z\\]", folded[but.end() : end]):
            return but.end(), end, False
    if negated:
        return start, end, True
    for no in phrases.no.finditer(folded, start, end):
        if _DIGIT.search(folded, start, no.start()) and _DIGIT.search(folded, no.end(), end):
            comma = max(folded.rfind(mark, start, no.start()) for mark in ",;")
            return start, comma if comma > start else no.start(), False
    return start, end, False


def _is_called_wrong(plain: str, end: int, phrases: Phrases) -> bool:
    """Return whether the short sentence behind an answer says that it is wrong."""
    rest = plain[end : end + _SOON].lstrip(" .!\n*")
    sentence = fold(rest[: _sentence_end(rest, 0)])
    # A sentence with a number of its own is about that.
    return (
        size(sentence) <= _SHORT
        and not _DIGIT.search(sentence)
        and bool(phrases.wrong.search(sentence))
    )


def _plain_spoken(shown: str, phrases: Phrases) -> str:
    """Return an answer without the words that only end a sentence, such as `です`."""
    return shown[: len(without_polite(fold(shown), phrases))].rstrip(ENDS)


# --- commitment -----------------------------------------------------------------------


def is_changed(text: str, start: int, end: int, phrases: Phrases | None = None) -> bool:
    """Whether words around an answer make it another one: a denial, a bound, a question, "or"."""
    phrases = phrases or phrases_of(text[max(0, start - _AROUND) : end + _SOON])
    if phrases is None:
        return False
    left = fold(text[max(0, start - 2 * _SOON) : start]).rstrip(" \t*_$([{\\~")
    left = left[max((m.end() for m in _BREAK.finditer(left)), default=0) :]
    right = fold(_CLOSED.sub("", readable(text[end : end + 2 * _SOON]), count=1))
    broken = _BREAK.search(right)
    if broken and broken[0] == "?":
        return True
    if broken:
        aside = right[broken.start() : _sentence_end(right, broken.start())]
        if size(aside) <= _SHORT and phrases.wrong.search(aside):
            return True
        right = right[: broken.start()]
    found = (*phrases.wrong.finditer(right), *phrases.after.finditer(right))
    if any(size(right[: each.start()]) <= _NEAR for each in found):
        return True
    for words, most in ((phrases.before, 2.0), (phrases.no, _NEAR), (phrases.supposes, 3.0)):
        for word in words.finditer(left):
            gap = left[word.end() :]
            if size(gap) <= most and not _DIGIT.search(gap):
                return True
    numbers = list(_DIGIT.finditer(left))
    if not numbers:
        return False
    between = left[numbers[-1].end() :]
    joins = [each.end() for each in phrases.joins.finditer(between)]
    if (len(between) in joins and size(between) <= _NEAR) or not between.strip(" ,;"):
        return True
    return bool(joins) and "=" not in between and not phrases.yields.search(between)


def magnitude_after(text: str) -> str:
    """The magnitude that what follows a box begins with, as in `\boxed{5}万`; empty if none."""
    closed = _CLOSED.match(text)
    rest = text[closed.end() if closed else 0 :]
    length = magnitude_length(fold(rest))
    return rest[:length].strip()


# --- numbers --------------------------------------------------------------------------


def number(text: str, read: Callable[[str], str | None], phrases: Phrases) -> str | None:
    """Return the last number of a text, with its unit.

    A number that a word next to it changes is given with the words around it, as another answer.
    """
    plain = readable(text)
    digits = [m.start() for m in _DIGIT.finditer(plain)]
    while digits and (cut := _start_of_item(text, digits[-1])):
        plain, text = plain[:cut], text[:cut]
        digits = [digit for digit in digits if digit < cut]
    if not digits:
        return None
    ends = [m.start() for m in _SENTENCE_END.finditer(plain)]
    start = max((end + 1 for end in ends if end < digits[-1]), default=0)
    end = min((end for end in ends if end > digits[-1]), default=len(plain))
    if plain[end : end + 1] == "?":
        return None
    masked = _masked(plain[:end])
    found = read(masked)
    at = masked.rfind(found) - start if found else -1
    if not found or at < 0:
        return found
    at += start
    stated = text[at : at + len(found)]
    if is_changed(text, at, at + len(found), phrases) or _is_called_wrong(plain, end, phrases):
        return f"not {stated}"
    closed = _CLOSED.match(text, at + len(found))
    begin = closed.end() if closed else at + len(found)
    unit = text[begin : begin + leading(text[begin:end])]
    return f"{stated}{unit}" if begin == at + len(found) else f"{stated} {unit.strip()}".strip()


def _start_of_item(text: str, digit: int) -> int:
    """Where the line begins whose only number is that of a list item; 0 if it has another one."""
    line = text.rfind("\n", 0, digit) + 1
    number = _NUMBER.search(text, line)
    if not number or number.end() != digit + 1:
        return 0
    return line if begins_item(text, *number.span()) else 0


def _masked(plain: str) -> str:
    """Return a sentence in which letters beyond ASCII are plain ones, or `§`."""
    return _FOREIGN_LETTER.sub("§", _LATIN_LETTER.sub(_without_accent, plain))


def _without_accent(letter: re.Match[str]) -> str:
    return unicodedata.normalize("NFD", letter[0])[0]


# --- whole answers --------------------------------------------------------------------


def is_bare(text: str) -> bool | None:
    """Whether a text is an answer and nothing else; None if it has no foreign words to judge by."""
    if not has_foreign_words(text):
        return None
    plain = readable(text).strip()
    if "\\begin" in plain:
        return None
    if len(plain) > _LONGEST:
        return False
    if plain.endswith("?") or _SENTENCE_END.search(plain, 0, len(plain) - 1):
        return False
    phrases, folded, words = phrases_of(text), fold(plain), size(plain)
    if phrases and phrases.noun.search(folded):
        return False
    if _DIGIT.search(plain):
        start = plain.lstrip(' *_(${[\\"“')
        before = _DIGIT.split(start, maxsplit=1)[0]
        first = next(iter(words_in(before)), "")
        begins = start.startswith(first) and has_foreign_words(first)
        if words > _MOST_BEHIND or begins or ("=" not in before and has_foreign_words(before)):
            return False
        if _AFTERWARDS.search(plain) or _has_steps(folded, phrases):
            return False
        return None if start[:1].isalpha() else True
    return words <= _MOST_ALONE


def _has_steps(folded: str, phrases: Phrases | None) -> bool:
    """Return whether a number follows another with "in total" or the like between them."""
    numbers = list(_DIGIT.finditer(folded))
    first, last = numbers[0].end(), numbers[-1].start()
    return bool(phrases and phrases.yields.search(folded, first, last))


def gives_up(text: str) -> bool:
    """Return whether a text of another language ends with "I do not know"."""
    end = text[-200:].rstrip(" .!*\n。！")
    phrases = phrases_of(text[-_AROUND:])
    if phrases is None:
        return False
    folded = fold(end)
    return any(m.end() >= len(folded.rstrip()) - 2 for m in phrases.unsure.finditer(folded))
