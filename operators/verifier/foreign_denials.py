"""Denials of an answer in other languages than English: the same scopes, with their words."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from .denial_words import DENIALS, DenialWords
from .languages import LANGUAGES
from .phrases import (
    bounded,
    compiled,
    fold,
    folding,
    has_foreign_letters,
    languages_of,
    latin_languages,
    pattern,
    size,
)

_BEFORE, _AFTER = 300, 120  # characters that are read on each side
_SHOWN = 1_000  # characters before an answer, which show its language
_ENDS = re.compile(r"[.?!](?=[\s*\"”»」]|$)|\n|(?<=[\u3041-\u9fff])\.|;")
_VARIABLE = re.compile(r"(?<![a-z'\\])(?:[b-df-hj-np-xz]|x)(?![a-z'])(?! ?=)")
_BREAK = re.compile(r"[\d,;:!?()]")
_NUMBER = re.compile(r"\d")
_QUESTION = re.compile(r"[^.!?;\n\d]*\?")
_ANY_NUMBER = r"[*$\\(]{0,3}[-−]?\d(?:[\d.,]*\d)?[*$\\)]{0,3}"
_UNIT = re.compile(r"[^\d.;:!?()\n]{0,40}(?=[.!;\n]|$)")


class _Compiled(NamedTuple):
    before: re.Pattern[str]
    after: re.Pattern[str]
    says: re.Pattern[str]
    so: re.Pattern[str]
    certain: re.Pattern[str]
    sums: re.Pattern[str]
    other: re.Pattern[str]
    retracts: re.Pattern[str]
    turns: re.Pattern[str]
    frames: re.Pattern[str]
    confirms: re.Pattern[str]


@lru_cache(maxsize=64)
def _compiled(names: tuple[str, ...]) -> _Compiled:
    letters = {point: letter for point, letter in folding().items() if point > 127}

    def words(field: str) -> re.Pattern[str]:
        parts = list[str]()
        for name in names:
            found = getattr(DENIALS.get(name, DenialWords()), field)
            plain = found.translate(letters).replace(" ?", "(?: )?").replace(" ", r"\s+")
            plain = plain.replace("#", _ANY_NUMBER)
            parts.append(bounded(plain, LANGUAGES[name]))
        return pattern(parts)

    return _Compiled(*(words(field) for field in _Compiled._fields))


def is_denied_there(text: str, start: int, end: int) -> bool | None:
    """Whether the sentence around the answer text[start:end] takes it back, in its language.

    None where it may be English, too.
    """
    around = text[max(0, start - _SHOWN) : end + _AFTER]
    names = _names(around)
    if not names:
        return None
    if _takes_back(text, start, end, names):
        return True
    return None if any(LANGUAGES[name].scripts for name in names) else False


def _names(text: str) -> tuple[str, ...]:
    """The languages of a text, if only its words show them, that have words of denial."""
    names = languages_of(text) or (() if has_foreign_letters(text) else latin_languages(text))
    return tuple(name for name in names if name in DENIALS)


def _takes_back(text: str, start: int, end: int, names: tuple[str, ...]) -> bool:
    words = _compiled(names)
    left = _last_sentence(_folded(text[max(0, start - _BEFORE) : start]))
    right_and_more = _folded(text[end : end + _AFTER])
    right, following = _first_sentences(right_and_more)
    if _QUESTION.match(right_and_more):
        return True
    if words.confirms.search(right):
        return False
    left, right = words.certain.sub(" ", left), words.certain.sub(" ", right)
    ends = [m.end() for m in words.so.finditer(left)]
    clause = left[max(ends, default=0) :]
    for turn in words.turns.finditer(clause):
        if not words.frames.search(clause, 0, turn.end()):
            clause = clause[turn.end() :]
            break
    if words.before.search(clause) or words.after.search(right):
        return True
    phrases = compiled(names)
    near = clause.rstrip(" $([{\\")
    for cues, most in ((phrases.no, 1), (phrases.before, 0)):
        gaps = [near[cue.end() :] for cue in cues.finditer(near)]
        if any(size(gap) <= most and not _BREAK.search(gap) for gap in gaps):
            return True
    named = [m.start() for m in phrases.noun.finditer(clause)] or [len(clause)]
    if words.says.search(clause, 0, named[-1]):
        return True
    for condition in phrases.supposes.finditer(clause):
        what = clause[condition.end() :]
        if _VARIABLE.search(what) and not words.sums.search(what):
            return True
    for condition in phrases.supposes.finditer(right):
        if _VARIABLE.search(right, condition.end()):
            return True
    short = words.certain.sub(" ", following).strip()
    if words.retracts.match(short):
        return True
    return (
        len(short) < 40
        and not any(c.isdigit() for c in short)
        and bool(phrases.wrong.search(short))
    )


def without_other_number(text: str) -> str:
    """A text without another number behind its last one: "It is 12, that is 3 more than 9."."""
    tail = text[-_SHOWN:]
    names = _names(tail)
    if not names:
        return text
    folded = _folded(tail)
    for other in reversed(list(_compiled(names).other.finditer(folded))):
        unit = _UNIT.match(folded, other.end())
        if not unit or _NUMBER.search(folded, unit.end()):
            continue
        begins = max((m.end() for m in _ENDS.finditer(folded, 0, other.start())), default=0)
        numbers = [m[0] for m in _SHOWN_NUMBER.finditer(folded, begins, other.start())]
        if not numbers or set(numbers) & set(_SHOWN_NUMBER.findall(other[0])):
            return text
        at = len(text) - len(tail)
        return text[: at + other.start()].rstrip(" ,;—–(") + text[at + unit.end() :]
    return text


_SHOWN_NUMBER = re.compile(r"\d(?:[\d.,]*\d)?")


def restart(folded: str, start: int, end: int, names: tuple[str, ...]) -> int:
    """Where, in a statement that denies an answer, another one begins that has a number; else 0."""
    words = _compiled(tuple(name for name in names if name in DENIALS))
    found = (*words.so.finditer(folded, start, end), *words.turns.finditer(folded, start, end))
    begins = max((m.end() for m in found), default=0)
    return begins if begins and _NUMBER.search(folded, begins, end) else 0


def without_assurances(folded: str, names: tuple[str, ...]) -> str:
    """A part of a statement without words that only look like a denial."""
    return _compiled(tuple(name for name in names if name in DENIALS)).certain.sub(" ", folded)


def assured_length(folded: str, names: tuple[str, ...]) -> int:
    """The length of a statement without words at its end that only assure it."""
    words = _compiled(tuple(name for name in names if name in DENIALS))
    at = len(folded)
    for found in reversed(list(words.certain.finditer(folded))):
        if _NUMBER.search(folded, found.start()) or not _NUMBER.search(folded, 0, found.start()):
            break
        at = found.start()
    return at


def _folded(text: str) -> str:
    return fold(text.replace("、", "，").replace("*", " "))


def _last_sentence(left: str) -> str:
    left = left.rstrip(" \n$([{\\").removesuffix("boxed").rstrip(" \n$([{\\")
    ends = [m.end() for m in _ENDS.finditer(left)]
    return left[max(ends, default=0) :] + " "


def _first_sentences(right: str) -> tuple[str, str]:
    """What follows an answer in its sentence, and the next sentence."""
    right = right.lstrip("$)}] ")
    end = _ENDS.search(right)
    if not end:
        return right, ""
    return right[: end.start()], _ENDS.split(right[end.end() :].lstrip(), maxsplit=1)[0]
