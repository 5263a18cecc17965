"""Denials of an answer in other languages than English: the same scopes, with their words."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from .denial_words import DENIALS as _SPACED
from .denial_words import DenialWords
from .denial_words_chinese import CHINESE, SIMPLER
from .languages import LANGUAGES
from .phrases import bounded, compiled, fold, folding, languages_of, latin_languages, pattern, size

DENIALS: dict[str, DenialWords] = {"zh": CHINESE, **_SPACED}
_BEFORE, _AFTER = 300, 120  # characters that are read on each side
_SHOWN = 1_000  # characters before an answer, which show its language
_ENDS = re.compile(r"[.?!](?=[\s*\"”»」]|$)|\n|(?<=[\u3041-\u9fff])[.?!]|;")
_VARIABLE = re.compile(r"(?<![a-z'\\])(?:[b-df-hj-np-xz]|x)(?![a-z'])(?! ?=)")
_BREAK = re.compile(r"[\d,;:!?()]")
_NUMBER = re.compile(r"\d")
_ANY_NUMBER = r"[*$\\(]{0,3}[-−]?\d(?:[\d.,]*\d)?[*$\\)]{0,3}"
_UNIT = re.compile(r"[^\d.;:!?()\n]{0,24}(?=[.!;\n]|$)")


class _Compiled(NamedTuple):
    before: re.Pattern[str]
    after: re.Pattern[str]
    says: re.Pattern[str]
    so: re.Pattern[str]
    certain: re.Pattern[str]
    sums: re.Pattern[str]
    other: re.Pattern[str]
    retracts: re.Pattern[str]
    throughout: re.Pattern[str]
    reports: re.Pattern[str]
    aside: re.Pattern[str]
    agrees: re.Pattern[str]


@lru_cache(maxsize=64)
def _compiled(names: tuple[str, ...]) -> _Compiled:
    letters = {point: letter for point, letter in folding().items() if point > 127}

    def words(field: str) -> re.Pattern[str]:
        parts = list[str]()
        for name in names:
            found = getattr(DENIALS.get(name, DenialWords()), field)
            plain = (
                found.translate(letters)
                .translate(SIMPLER if "zh" in names else {})
                .replace(" ?", "(?: )?")
                .replace(" ", r"\s+")
            )
            plain = plain.replace("#", _ANY_NUMBER)
            parts.append(bounded(plain, LANGUAGES[name]))
        return pattern(parts)

    return _Compiled(*(words(field) for field in _Compiled._fields))


def is_denied_there(text: str, start: int, end: int) -> bool | None:
    """Whether the sentence around the answer text[start:end] takes it back, in its language.

    None where it may be English, too.
    """
    around = text[max(0, start - _SHOWN) : end + _AFTER]
    names = languages_of(around) or (latin_languages(around) if around.isascii() else ())
    names = tuple(name for name in names if name in DENIALS)
    if not names:
        return None
    if _takes_back(text, start, end, names):
        return True
    return None if any(LANGUAGES[name].scripts for name in names) else False


def _takes_back(text: str, start: int, end: int, names: tuple[str, ...]) -> bool:
    words = _compiled(names)
    left = _last_sentence(_folded(text[max(0, start - _BEFORE) : start], names))
    rest = _folded(text[end : end + _AFTER], names)
    right, following = _first_sentences(rest)
    if _is_agreed(rest, words):
        left = words.reports.sub("", left + "0")[:-1]
    left, right = words.certain.sub(" ", left), words.certain.sub(" ", right)
    if words.throughout.search(left):
        return True
    ends = [m.end() for m in words.so.finditer(left)]
    clause = left[max(ends, default=0) :]
    short = words.certain.sub(" ", following).strip(" ,")
    if words.agrees.match(right) or words.agrees.match(", " + short):
        return False
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


_REPORTED = re.compile(r"[^,;:\n]*?\d[\d.]*[^,;:\n\d]{0,16}")


def _is_agreed(behind: str, words: _Compiled) -> bool:
    """Whether what is behind an answer says that what somebody says is right."""
    unit = re.match(r"[^,;(\n\d]{0,16}", behind)
    return bool(words.agrees.match(behind, unit.end() if unit else 0))


def _without_agreed_report(text: str, names: tuple[str, ...]) -> str:
    """A text with "it is 12, and that is right" instead of "he says it is 12, and ..."."""
    words = _compiled(names)
    folded = _folded(text, names)
    for report in reversed(list(words.reports.finditer(folded))):
        number = _REPORTED.match(folded, report.end())
        if number and (agreed := words.agrees.match(folded, number.end())):
            reported = text[report.end() : number.end()]
            return text[: report.start()] + reported + text[agreed.end() :]
    return text


def without_other_number(text: str) -> str:
    """A text without another number behind its last one: "It is 12, that is 3 more than 9."."""
    tail = text[-_SHOWN:]
    names = tuple(name for name in languages_of(tail) if name in DENIALS)
    if not names:
        return text
    text = text[: len(text) - len(tail)] + _without_agreed_report(tail, names)
    tail = text[-_SHOWN:]
    folded = _folded(tail, names)
    for other in reversed(list(_compiled(names).other.finditer(folded))):
        unit = _UNIT.match(folded, other.end())
        if not unit or _NUMBER.search(folded, unit.end()):
            continue
        begins = max((m.end() for m in _ENDS.finditer(folded, 0, other.start())), default=0)
        if not folded[begins : other.start()].strip():  # "The answer is 12. It cannot be 13."
            begins = _start_of_answer(folded, begins, names)
        numbers = [m[0] for m in _SHOWN_NUMBER.finditer(folded, begins, other.start())]
        if not numbers or set(numbers) & set(_SHOWN_NUMBER.findall(other[0])):
            return text
        at = len(text) - len(tail)
        return text[: at + other.start()].rstrip(" ,;—–(") + text[at + unit.end() :]
    return text


def _start_of_answer(folded: str, end: int, names: tuple[str, ...]) -> int:
    """Where the word for "answer" stands in the sentence that ends there; the end if nowhere."""
    line = max(folded.rfind("\n", 0, end) + 1, end - _BEFORE)
    ends = [m.end() for m in _ENDS.finditer(folded, line, end) if folded[m.end() : end].strip()]
    noun = compiled(names).noun.search(folded, max(ends, default=line), end)
    return noun.start() if noun else end


_SHOWN_NUMBER = re.compile(r"\d(?:[\d.,]*\d)?")


def restart(folded: str, start: int, end: int, names: tuple[str, ...]) -> int:
    """Where, in a statement that denies an answer, another one begins that has a number; else 0."""
    names = tuple(name for name in names if name in DENIALS)
    words, folded = _compiled(names), _simpler(folded, names)
    begins = max((m.end() for m in words.so.finditer(folded, start, end)), default=0)
    return begins if begins and _NUMBER.search(folded, begins, end) else 0


def without_assurances(folded: str, names: tuple[str, ...]) -> str:
    """A text without words that only look like a denial: "there is no mistake"."""
    names = tuple(name for name in names if name in DENIALS)
    return _compiled(names).certain.sub(" ", _simpler(folded, names))


def assured_length(folded: str, names: tuple[str, ...]) -> int:
    """The length of a statement without words at its end that only assure it."""
    names = tuple(name for name in names if name in DENIALS)
    words, folded = _compiled(names), _simpler(folded, names)
    at = len(folded)
    for found in reversed(list(words.certain.finditer(folded))):
        if _NUMBER.search(folded, found.start()) or not _NUMBER.search(folded, 0, found.start()):
            break
        at = found.start()
    number = _NUMBER.search(folded)
    aside = words.aside.search(folded, number.end()) if number else None
    if not aside or _NUMBER.search(folded, aside.end()):
        return at
    return min(at, aside.start())


def agrees(rest: str, names: tuple[str, ...]) -> bool:
    """Whether what follows an answer that somebody else gave says that it is right."""
    words = _compiled(tuple(name for name in names if name in DENIALS))
    return bool(words.agrees.match(rest))


def _folded(text: str, names: tuple[str, ...]) -> str:
    # A full stop stays one where white space is left out.
    return _simpler(fold(text.translate(_MARKS)), names)


_MARKS = str.maketrans("、*。｡।۔", "， ;;;;")


def _simpler(folded: str, names: tuple[str, ...]) -> str:
    return folded.translate(SIMPLER) if "zh" in names else folded


def _last_sentence(left: str) -> str:
    left = left.rstrip(" \n$([{\\")
    ends = [m.end() for m in _ENDS.finditer(left)]
    return left[max(ends, default=0) :] + " "


def _first_sentences(right: str) -> tuple[str, str]:
    """What follows an answer in its sentence, and the next sentence."""
    right = right.lstrip("$)}] ")
    end = _ENDS.search(right)
    if not end:
        return right, ""
    return right[: end.start()], _ENDS.split(right[end.end() :].lstrip(), maxsplit=1)[0]
