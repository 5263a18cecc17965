r"""Dates and times as answers: `March 5, 2021`, `the 15th century`, `3:30 pm`, `2 h 45 min`.

03/05/2021 and 03-05-2021 are March 5, as in the US, and 24/05/1943 is May 24; 05.03.2021, with
points, is March 5. A weekday beside a date, and a year where the reference has none, may be added;
else an answer is as precise as its reference. A clock of 13 to 24 hours, or with a leading 0, is a
24-hour clock; another time without am or pm may be either one, so 5:25 answers 5:25 pm, and 12:00
does not answer 00:00. 2:03:59, with seconds, may be a duration. Time zones are not compared. A year
is 365.25 days, so that no month is a number of whole days.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Hashable, Iterable
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from .amounts import Amount, is_whole, mentions_in, of_kinds
from .answer_types import AnswerRules, Mention
from .words import MONTHS, ORDINALS, SMALL, listed


class Date(NamedTuple):
    """The parts of a date that a text names; years before Christ are negative."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    weekday: int | None = None


class TimeOfDay(NamedTuple):
    """A time of day, with the hours that it may be; 12 am is hour 24 as well as 0."""

    hours: frozenset[int]
    minute: int = 0
    second: Fraction = Fraction(0)


class Range(NamedTuple):
    """From one date or time to another one; decades and centuries are ranges of years."""

    first: Hashable
    last: Hashable


_WEEKDAYS = listed("monday tuesday wednesday thursday friday saturday sunday")
_DAY_OF = {day[:end]: n for n, day in enumerate(_WEEKDAYS) for end in (3, 4, 5, None)}
_NUMBERS = MONTHS | ORDINALS
_ALSO_WORDS = {"jan", "mar", "march", "may", "dec", "mon", "sat", "sun", "wed"}  # in lower case
_CLEAR = listed("january february april june july august september october november december")
_CLEAR += _WEEKDAYS


def _any(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


# --- Dates ----------------------------------------------------------------------------

_YEAR = r"(?P<year>[12]\d{3})"
_UNITS_OF_TIME = (
    r"(?:ms|m|h|sec(?:ond)?|min(?:ute)?|h(?:ou)?r|d(?:ay)?|w(?:ee)?k|month|y(?:ea)?r)s?"
)
_NTH = r"(?:0?[1-9]|[12]\d|3[01])"
_MM, _DD = r"(?P<month>0?[1-9]|1[0-2])", rf"(?P<day>{_NTH})"
_DAY = rf"(?P<day>{_NTH}(?:st|nd|rd|th|er)?|{_any(ORDINALS)})"
_LAST = rf"(?: ?(?:-|to) ?(?P<last>{_NTH})(?:st|nd|rd|th)?)?"
_MONTH = rf"(?P<month>{_any(MONTHS)})"
_NAMES = _any({*MONTHS, *_DAY_OF} - {*_ALSO_WORDS, "mars", "mayo"})
_CAPITALS = _any({*map(str.capitalize, _ALSO_WORDS), *map(str.upper, _ALSO_WORDS)})
_ERA = r"(?P<era>(?-i:B\.?C\.?(?:E\.?)?|A\.?D\.?|C\.?E\.?))"
_DATES = (
    rf"{_YEAR}(?P<mark>[-/.]){_MM}(?P=mark){_DD}(?:[T ]00:00(?::00)?Z?)?",
    rf"{_MM}(?P<mark>[-/]){_DD}(?P=mark){_YEAR}",  # Before the next one, which it may also be.
    rf"{_DD}(?P<mark>[-/.]){_MM}(?P=mark){_YEAR}",
    rf"{_DD}-{_MONTH}-{_YEAR}",
    rf"{_YEAR}-(?P<month>0[1-9]|1[0-2])",
    rf"(?P<month>0[1-9]|1[0-2])/{_YEAR}",
    rf"{_MONTH}\.?[- ]{{0,2}}(?:the )?{_DAY}{_LAST}",
    rf"(?:the )?{_DAY}{_LAST}(?:\.| day)?(?: of| de)?[- ]?{_MONTH}",
    rf"(?P<name>{_NAMES}|(?-i:{_CAPITALS}))",
    rf"{_YEAR}(?!,\d|\s?%|\s?(?:{_UNITS_OF_TIME})\b)",
    rf"(?P<year>\d{{1,4}})\s?{_ERA}",
    rf"{_ERA}\s?(?P<year>\d{{1,4}})",
    r"(?:the )?(?P<decade>(?:1\d|20)\d0)'?s",
    rf"(?:the )?(?P<century>[1-9]\d?(?:st|nd|rd|th)|{_any(ORDINALS)})[- ]century(?: ?{_ERA})?",
)
# Between the parts of a date, as in `Friday, March 5 in 2021`; `March 5 is a Friday` says both.
_LINK = re.compile(
    r"(?i)[.,]{0,2} ?| ?- ?|,?(?: (?:of|de|del|den|in|on))?(?: the)? "
    r"|,?(?: (?:which|that))?(?: (?:is|was|will be|falls|fell|will fall|lands))?"
    r"(?: (?:on|in))?(?: (?:an?|the))?(?: year| day)? \(?"
)
_BESIDE = re.compile(r"(?<! or )(?<!/)\d{4}")  # A year that tells more of a date near it.
# Text that is also a word or a number, which no reference of dates consists of.
_NO_DATE = rf"(?i)(?!(?:{_any(_CLEAR)})\Z)[^\W\d]+|\d{{4}}(?: ?(?:-|to) ?\d{{4}})?|[1-9]\d?/\d{{4}}"


def _date(found: re.Match[str]) -> Hashable:
    part = _groups(found)
    sign = -1 if part.get("era", "").startswith("b") else 1
    if "decade" in part:
        return Range(Date(int(part["decade"])), Date(int(part["decade"]) + 9))
    if century := _number(part.get("century")):
        return Range(Date(sign * (100 * century - 99)), Date(sign * 100 * century))
    if name := part.get("name"):
        return Date(month=MONTHS.get(name), weekday=_DAY_OF.get(name))
    year, month, day = (_number(part.get(each)) for each in ("year", "month", "day"))
    first = Date(year and sign * year, month, day)
    return Range(first, first._replace(day=int(part["last"]))) if "last" in part else first


def _number(text: str | None) -> int | None:
    return None if text is None else _NUMBERS.get(text) or int(re.sub(r"\D", "", text))


def _joined(one: Hashable, other: Hashable, gap: str) -> Hashable:
    """One value of two that stand together: `Friday` and `March 5`, `May 1` to `May 5`."""
    if _LINK.fullmatch(gap):
        if isinstance(one, Range) and isinstance(last := _joined(one.last, other, gap), Date):
            return _range(one.first, last)
        if isinstance(one, Date) and isinstance(other, Date):
            parts = list(zip(one, other, strict=True))
            if all(None in pair for pair in parts):
                return Date(*(b if a is None else a for a, b in parts))
    if one and type(one) is type(other) and _TO.fullmatch(gap):
        return other if one == other else _range(one, other)
    return None


def _range(first: Hashable, last: Hashable) -> Hashable:
    """A range that names a year of both dates once, where the last one has it."""
    if isinstance(first, Date) and isinstance(last, Date) and first.year == last.year:
        first = first._replace(year=None)
    return Range(first, last)


def _is_real(value: Hashable) -> bool:
    if isinstance(value, Date) and value.day:
        return value.day <= monthrange(max(value.year or 2000, 1), value.month or 1)[1]
    return value is not None


# --- Times ----------------------------------------------------------------------------

_HOURS = {word: hour for word, hour in SMALL.items() if 1 <= hour <= 12}
_HOUR = rf"(?<! past )(?<!quarter to )(?P<hour>1[0-2]|0?[1-9]|{_any(_HOURS)})"
_PARTS = {"half past": 30, "quarter past": 15, "quarter to": -15}  # minutes
_HALF = r"(?P<half>[ap](?:\.\s?m\.?|m)|in the (?:morning|afternoon|evening)|noon|midnight)"
_CLOCKS = (
    r"(?P<hour>[01]?\d|2[0-4]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d(?:\.\d{1,9})?))?"
    rf"(?:,?\s{{0,3}}{_HALF})?(?: ?(?-i:UTC|GMT|[ECMP][SD]?T)\b)?",
    r"(?:(?P<first>1[0-2]|0?[1-9]) ?(?:-|to|and|or) ?)?"
    rf"{_HOUR}(?:\.(?P<minute>[0-5]\d)| ?o'clock)?\s{{0,3}}{_HALF}",
    rf"{_HOUR} ?o'clock",
    rf"(?:a )?(?P<part>{'|'.join(_PARTS)}) (?P<hour>1[0-2]|[1-9]|{_any(_HOURS)})\b"
    rf"(?:\s{{0,3}}{_HALF})?",
    r"(?P<half>noon|midnight)",
)


def _clock(found: re.Match[str]) -> Hashable:
    part = _groups(found)
    written, stated = part.get("hour", "12"), part.get("half", "")
    shift = _PARTS.get(part.get("part", ""), 0)
    hour = (_HOURS.get(written) or int(written)) - (shift < 0)
    if hour == 24 or re.match(r"a|midnight|.*morning", stated):
        hours = {hour % 12, hour % 12 or 24} if hour in (*range(13), 24) else set[int]()
    elif stated or hour > 12:
        hours = {hour % 12 + 12}
    else:
        hours = {hour} if written[0] == "0" else {hour, hour + 12}
    minute, second = int(part.get("minute", shift % 60)), Fraction(part.get("second", "0"))
    clock = TimeOfDay(frozenset(hours), minute, second)
    if "first" in part:
        return Range(TimeOfDay(frozenset({int(part["first"]), int(part["first"]) + 12})), clock)
    return clock if hours else None


# --- Both -----------------------------------------------------------------------------

_ReadMatch = Callable[[re.Match[str]], Hashable]
_DateForm = tuple[re.Pattern[str], _ReadMatch]
_TO = re.compile(r"\s?(?:-|\b(?:to|until|till|through|and)\b)\s?", re.IGNORECASE)


def _groups(found: re.Match[str]) -> dict[str, str]:
    return {name: text.lower() for name, text in found.groupdict().items() if text}


def _forms(patterns: Iterable[str], read: _ReadMatch, marks: str) -> list[_DateForm]:
    """Forms that do not begin or end within a word or a longer number with such marks."""
    left, right = rf"(?<![^\W_])(?<!\d[{marks}])", rf"(?![^\W_]|[{marks}]\d)"
    return [(re.compile(f"{left}(?:{each}){right}", re.IGNORECASE), read) for each in patterns]


def _found(forms: Iterable[_DateForm], text: str) -> list[Mention]:
    """The first of matches that overlap, the longest of those, joined where they are one value."""
    matches = [(each, read) for pattern, read in forms for each in pattern.finditer(text)]
    found = list[Mention]()
    for each, read in sorted(matches, key=lambda pair: (pair[0].start(), -pair[0].end())):
        before, start, end = found[-1] if found else Mention(None, 0, 0)
        if each.start() >= end:
            value = read(each)
            if whole := _joined(before, value, text[end : each.start()]):
                found.pop()
            found.append(Mention(whole or value, start if whole else each.start(), each.end()))
    real = [each for each in found if _is_real(each.value)]
    return [each for each in real if not _BESIDE.fullmatch(text, each.start, each.end)] or real


def _dates(text: str) -> list[Mention]:
    return _found(_DATE_FORMS, text.replace("\n", " "))


def _times(text: str) -> list[Mention]:
    clocks = _found(_CLOCK_FORMS, text.replace("\n", " "))
    return sorted([*clocks, *of_kinds(("time",), text)], key=lambda each: each.start)


def _equal(answer: Hashable, reference: Hashable) -> bool:
    if isinstance(answer, Range) and isinstance(reference, Range):
        return all(map(_equal, answer, reference))
    if isinstance(answer, Date) and isinstance(reference, Date):
        if reference == Date(weekday=reference.weekday):
            return answer.weekday == reference.weekday
        may_be_right = reference.year in (None, answer.year) and answer[1:3] == reference[1:3]
        return may_be_right and (answer[3] == reference[3] or None in (answer[3], reference[3]))
    if isinstance(answer, TimeOfDay) and isinstance(reference, TimeOfDay):
        return bool(answer.hours & reference.hours) and answer[1:] == reference[1:]
    if isinstance(answer, Amount) and isinstance(reference, TimeOfDay):
        answer, reference = reference, answer
    if isinstance(answer, TimeOfDay) and isinstance(reference, Amount):
        length = 3600 * min(answer.hours) + 60 * answer.minute + answer.second
        may_be_length = answer.second and max(answer.hours) - min(answer.hours) == 12
        return bool(may_be_length) and (length, None) == (reference.value, reference.upper)
    return answer == reference


_DATE_FORMS = _forms(_DATES, _date, marks="-/.:")
_CLOCK_FORMS = _forms(_CLOCKS, _clock, marks="/.:,")
_NO_TIME = r"\d+[hs]"  # They are also products of a number and a variable.
DATE = AnswerRules(partial(is_whole, _dates, _NO_DATE), partial(mentions_in, _dates), _equal)
TIME = AnswerRules(partial(is_whole, _times, _NO_TIME), partial(mentions_in, _times), _equal)
