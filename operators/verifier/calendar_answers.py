r"""Dates and times as answers: `March 5, 2021`, `the 15th century`, `3:30 pm`, `2 h 45 min`.

03/05/2021 and 03-05-2021 are March 5, as in the US, and 24/05/1943 is May 24; 05.03.2021, with
points, is March 5. A weekday beside a date, and a year where the reference has none, may be added;
else an answer is as precise as its reference. A clock of 13 to 24 hours, or with a leading 0, is a
24-hour clock; another time without am or pm may be either one, so 5:25 answers 5:25 pm, and 12:00
does not answer 00:00. A month is no number of days: years and months are only equal to such.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Hashable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from math import gcd
from typing import NamedTuple

from .answer_types import AnswerRules, Mention
from .words import MAGNITUDES, SMALL, leading_words, listed


class Date(NamedTuple):
    """The parts of a date that a text names; years before Christ are negative."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    weekday: int | None = None


class TimeOfDay(NamedTuple):
    """A time of day; its half is "am", "pm" or "". The hour 12 am is 24, and that of 00:00 is 0."""

    hour: int
    minute: int = 0
    second: Fraction = Fraction(0)
    half: str = ""


class Duration(NamedTuple):
    """Units of it are in order by their length."""

    months: Fraction
    seconds: Fraction


class Range(NamedTuple):
    """From one date or time to another one; decades and centuries are ranges of years."""

    first: Hashable
    last: Hashable


_MONTH_NAMES = (
    "january jan januar janvier enero/february feb februar février fevrier febrero/"
    "march mar märz maerz mars marzo/april apr avril abril/may mai mayo/june jun juni juin junio/"
    "july jul juli juillet julio/august aug août aout agosto/"
    "september sep sept septembre septiembre/october oct oktober octobre octubre/"
    "november nov novembre noviembre/december dec dezember décembre decembre diciembre"
)
_MONTHS = [listed(names) for names in _MONTH_NAMES.split("/")]
_WEEKDAYS = listed("monday tuesday wednesday thursday friday saturday sunday")
_ORDINALS = listed(
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
    "fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"
)
_ORDINALS += [*(f"twenty-{word}" for word in _ORDINALS[:9]), "thirtieth", "thirty-first"]
_LENGTHS = listed(  # in months,seconds
    "ms=0,.001 msec=0,.001 millisecond=0,.001 s=0,1 sec=0,1 second=0,1 m=0,60 min=0,60 minute=0,60 "
    "h=0,3600 hr=0,3600 hour=0,3600 d=0,86400 day=0,86400 wk=0,604800 week=0,604800 "
    "month=1,0 yr=12,0 year=12,0 decade=120,0 century=1200,0 centuries=1200,0"
)
_UNITS = {
    word: Duration(*map(Fraction, lengths.split(",")))
    for word, _, lengths in (each.partition("=") for each in _LENGTHS)
}
_UNITS |= {f"{word}s": unit for word, unit in _UNITS.items() if len(word) > 1}


def _any(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_MONTH_OF = {word: n for n, words in enumerate(_MONTHS, 1) for word in words}
_DAY_OF = {day[:end]: n for n, day in enumerate(_WEEKDAYS) for end in (3, 4, 5, None)}
_NUMBERS = {**_MONTH_OF, **{word: n for n, word in enumerate(_ORDINALS, 1)}}
_ALSO_WORDS = {"jan", "mar", "march", "may", "dec", "mon", "sat", "sun", "wed"}  # in lower case
_CLEAR = {*_WEEKDAYS, *(names[0] for names in _MONTHS)} - _ALSO_WORDS

# --- Dates ----------------------------------------------------------------------------

_YEAR = r"(?P<year>[12]\d{3})"
_NTH = r"(?:0?[1-9]|[12]\d|3[01])"
_MM, _DD = r"(?P<month>0?[1-9]|1[0-2])", rf"(?P<day>{_NTH})"
_DAY = rf"(?P<day>{_NTH}(?:st|nd|rd|th|er)?|{_any(_ORDINALS)})"
_LAST = rf"(?: ?(?:-|to) ?(?P<last>{_NTH})(?:st|nd|rd|th)?)?"
_MONTH = rf"(?P<month>{_any(_MONTH_OF)})"
_NAMES = _any({*_MONTH_OF, *_DAY_OF} - {*_ALSO_WORDS, "mars", "mayo"})
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
    rf"{_YEAR}(?!,\d|\s?%|\s?(?:{_any(_UNITS)})\b)",
    rf"(?P<year>\d{{1,4}})\s?{_ERA}",
    rf"{_ERA}\s?(?P<year>\d{{1,4}})",
    r"(?:the )?(?P<decade>(?:1\d|20)\d0)'?s",
    rf"(?:the )?(?P<century>[1-9]\d?(?:st|nd|rd|th)|{_any(_ORDINALS)})[- ]century(?: ?{_ERA})?",
)
# Between the parts of a date, as in `Friday, March 5 in 2021`; `March 5 is a Friday` says both.
_LINK = re.compile(
    r"(?i)[.,]{0,2} ?| ?- ?|,?(?: (?:of|de|del|den|in|on))?(?: the)? "
    r"|,?(?: (?:which|that))?(?: (?:is|was|will be|falls|fell|will fall|lands))?"
    r"(?: (?:on|in))?(?: (?:an?|the))?(?: year| day)? \(?"
)
_BESIDE = re.compile(r"(?<! or )(?<!/)\d{4}")  # A year that tells more of a date near it.
# Text that is also a word or a number, which no reference of dates consists of.
_NO_DATE = rf"(?!(?:{_any(_CLEAR)})\Z)[^\W\d]+|\d{{4}}(?: ?(?:-|to) ?\d{{4}})?|[1-9]\d?/\d{{4}}"


def _date(found: re.Match[str]) -> Hashable:
    part = _groups(found)
    sign = -1 if part.get("era", "").startswith("b") else 1
    if "decade" in part:
        return Range(Date(int(part["decade"])), Date(int(part["decade"]) + 9))
    if century := _number(part.get("century")):
        return Range(Date(sign * (100 * century - 99)), Date(sign * 100 * century))
    if name := part.get("name"):
        return Date(month=_MONTH_OF.get(name), weekday=_DAY_OF.get(name))
    year, month, day = (_number(part.get(each)) for each in ("year", "month", "day"))
    first = Date(year and sign * year, month, day)
    return Range(first, first._replace(day=int(part["last"]))) if "last" in part else first


def _number(text: str | None) -> int | None:
    return None if text is None else _NUMBERS.get(text) or int(re.sub(r"\D", "", text))


def _joined(one: Hashable, other: Hashable) -> Hashable:
    """One date of two that stand together, as `Friday` and `March 5`, or `March 5` and `2021`."""
    if isinstance(one, Range) and isinstance(last := _joined(one.last, other), Date):
        return _range(one.first, last)
    if not (isinstance(one, Date) and isinstance(other, Date)):
        return None
    pairs = list(zip(one, other, strict=True))
    if any(None not in pair for pair in pairs):
        return None
    return Date(*(b if a is None else a for a, b in pairs))


def _range(first: Hashable, last: Hashable) -> Hashable:
    """A range that names a year of both dates once, where the last one has it."""
    if isinstance(first, Date) and isinstance(last, Date) and first.year == last.year:
        return Range(first._replace(year=None), last)
    return Range(first, last)


def _is_real(value: Hashable) -> bool:
    if isinstance(value, Date) and value.day:
        year = value.year if value.year and value.year > 0 else 2000
        return value.day <= monthrange(year, value.month or 1)[1]
    return value is not None


# --- Times ----------------------------------------------------------------------------

_HOURS = {word: hour for word, hour in SMALL.items() if 1 <= hour <= 12}
_HOUR = rf"(?<! past )(?<!quarter to )(?P<hour>1[0-2]|0?[1-9]|{_any(_HOURS)})"
_HALF = r"(?P<half>[ap](?:\.\s?m\.?|m)|in the (?:morning|afternoon|evening)|noon|midnight)"
_CLOCKS = (
    r"(?P<hour>[01]?\d|2[0-4]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d(?:\.\d{1,9})?))?"
    rf"(?:,?\s{{0,3}}{_HALF})?",
    r"(?:(?P<first>1[0-2]|0?[1-9]) ?(?:-|to|and|or) ?)?"
    rf"{_HOUR}(?:\.(?P<minute>[0-5]\d)| ?o'clock)?\s{{0,3}}{_HALF}",
    rf"{_HOUR} ?o'clock",
    r"(?P<half>noon|midnight)",
)
_WORD = _any({*SMALL, *MAGNITUDES, "a", "an", "half", "quarter", "quarters", "third", "thirds"})
_AMOUNT = (
    r"(?:\d{1,9} )?\d{1,9}/\d{1,9}"
    rf"|(?:\d{{1,3}}(?:,\d{{3}})+|\d{{1,15}})?(?:\.\d{{1,9}}|(?<=\d))(?: (?:{_any(MAGNITUDES)}))?"
    rf"|(?:{_WORD})(?:[- ](?:{_WORD}|and)){{0,9}}?(?: of an?)?(?=[- ])"
)
_UNIT = _any(word for word in _UNITS if len(word) > 1) + "|(?-i:[smhd])"
_PART = (
    rf"(?P<amount>{_AMOUNT})[-\s]{{0,3}}(?:(?:more|full|whole) )?(?P<unit>{_UNIT})(?![^\W\d_])\.?"
)
_PARTS = re.compile(_PART, re.IGNORECASE)
_UNNAMED = re.sub(r"\?P<\w+>", "?:", _PART)
_DURATION = rf"{_UNNAMED}(?:,?\s{{0,3}}(?:and )?{_UNNAMED}){{0,6}}(?P<half> and a half)?"
# What makes a duration a part of an operation or a range.
_BEFORE = re.compile(
    r"(?:[\w)]\s?(?:[+×·÷/^]|\\(?:times|cdot|div))|\d(?: (?:to|and|or)|\s?[*-]))\s?\Z|-\Z"
)
_BEHIND = re.compile(r"\s?(?:[+×·÷^²³/]|\*\s?\d|\\(?:times|cdot|div)|per\b)")
_NO_TIME = r"\d+[hs]"  # They are also products of a number and a variable.


def _clock(found: re.Match[str]) -> Hashable:
    part = _groups(found)
    written, stated = part.get("hour", "12"), part.get("half", "")
    hour = _HOURS.get(written) or int(written)
    is_early = re.match(r"a\.?\s?m|midnight|.*morning", stated) if stated else written[0] == "0"
    half = "am" if is_early or hour == 24 else "pm" if stated or hour > 12 else ""
    if half == "am" and 12 < hour < 24:
        return None
    hour = hour % 12 + 12 if half == "pm" else 24 if half == "am" and hour == 12 else hour
    clock = TimeOfDay(hour, int(part.get("minute", "0")), Fraction(part.get("second", "0")), half)
    return Range(TimeOfDay(int(part["first"])), clock) if "first" in part else clock


def _duration(found: re.Match[str]) -> Hashable:
    """The duration of a match; None for a list, and for an operation that is left undone."""
    text, start = found.string, found.start()
    parts = [(each["amount"].lower(), each["unit"]) for each in _PARTS.finditer(found[0])]
    amounts = [n for written, _ in parts if (n := _amount(written)) is not None]
    units = [_UNITS[unit.lower()] for _, unit in parts]
    is_part = _BEFORE.search(text, max(0, start - 12), start) or _BEHIND.match(text, found.end())
    if is_part or len(amounts) < len(parts) or units != sorted(set(units), reverse=True):
        return None
    if len(parts) == 1 and not found["half"]:
        amount, unit = parts[0]
        if amount in ("a", "an") or unit in "md" or re.fullmatch(r"\d{3}0s", found[0]):
            return None
    amounts[-1] += Fraction(1, 2) if found["half"] else 0
    lengths = list(zip(amounts, units, strict=True))
    months = sum((n * unit.months for n, unit in lengths), Fraction(0))
    return Duration(months, sum((n * unit.seconds for n, unit in lengths), Fraction(0)))


def _amount(written: str) -> Fraction | None:
    """A number, or None for a fraction that is not in lowest terms."""
    text = written.replace(",", "")
    if found := re.fullmatch(r"(?:(\d+) )?(\d+)/(\d+)", text):
        whole, over, under = (int(part or 0) for part in found.groups())
        return whole + Fraction(over, under) if gcd(over, under) == 1 < under else None
    if text[0] in ".0123456789":
        digits, _, magnitude = text.partition(" ")
        return Fraction(digits) * MAGNITUDES.get(magnitude, 1)
    number, rest = (Fraction(1), "") if text in ("a", "an") else leading_words(text) or (None, "")
    return number if rest in ("", "a", "an", "of a", "of an") else None


# --- Both -----------------------------------------------------------------------------

_Read = Callable[[re.Match[str]], Hashable]
_DateForm = tuple[re.Pattern[str], _Read]
_TO = re.compile(r"\s?(?:-|\b(?:to|until|till|through|and)\b)\s?", re.IGNORECASE)
_SIGNS = str.maketrans("‐‑‒–—−\xa0\u202f\n’", "------   '")
_MARKS = re.compile(
    r"(?P<gap>\\[,;: ]|\\q?quad\b|~|\\[dt]?frac(?=\{))|(?P<over>\}\{)"
    r"|\\!|\\(?:text|math)[a-z]*(?=\{)|[{}$]|\*\*|__|\^(?=[\\a-z{]*(?:st|nd|rd|th)\b)"
)


def _groups(found: re.Match[str]) -> dict[str, str]:
    return {name: text.lower() for name, text in found.groupdict().items() if text}


def _plain(text: str) -> tuple[str, Sequence[int]]:
    """A text without marks of LaTeX and Markdown, and where each of its characters was."""
    plain, places, start = "", list[int](), 0
    for mark in _MARKS.finditer(text):
        instead = {"gap": " ", "over": "/"}.get(mark.lastgroup or "", "")
        plain += text[start : mark.start()] + instead
        places += range(start, mark.start() + len(instead))
        start = mark.end()
    plain = (plain + text[start:]).translate(_SIGNS)
    return plain, [*places, *range(start, len(text))]


def _forms(patterns: Iterable[str], read: _Read, marks: str) -> list[_DateForm]:
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
            value, gap = read(each), text[end : each.start()]
            whole = _joined(before, value) if _LINK.fullmatch(gap) else None
            if not whole and before and type(before) is type(value) and _TO.fullmatch(gap):
                whole = value if before == value else _range(before, value)
            if whole:
                found.pop()
            found.append(Mention(whole or value, start if whole else each.start(), each.end()))
    real = [each for each in found if _is_real(each.value)]
    return [each for each in real if not _BESIDE.fullmatch(text, each.start, each.end)] or real


def _mentions(forms: Iterable[_DateForm], text: str) -> list[Mention]:
    plain, at = _plain(text)
    return [
        Mention(value, at[start], at[end - 1] + 1) for value, start, end in _found(forms, plain)
    ]


def _takes(forms: Iterable[_DateForm], but_not: str, reference: str) -> bool:
    text = _plain(reference)[0].strip().removesuffix(".")
    is_all = [each[1:] for each in _found(forms, text)] == [(0, len(text))]
    return is_all and not re.fullmatch(but_not, text, re.IGNORECASE)


def _equal(answer: Hashable, reference: Hashable) -> bool:
    if isinstance(answer, Range) and isinstance(reference, Range):
        return all(map(_equal, answer, reference))
    if isinstance(answer, Date) and isinstance(reference, Date):
        if reference == Date(weekday=reference.weekday):
            return answer.weekday == reference.weekday
        may_be_right = reference.year in (None, answer.year) and answer[1:3] == reference[1:3]
        return may_be_right and (answer[3] == reference[3] or None in (answer[3], reference[3]))
    if isinstance(answer, TimeOfDay) and isinstance(reference, TimeOfDay):
        is_half_open = "" in (answer.half, reference.half) and 0 not in (
            answer.hour,
            reference.hour,
        )
        is_same_hour = answer.hour % 12 == reference.hour % 12
        is_half_right = is_half_open or answer.half == reference.half
        return is_same_hour and is_half_right and answer[1:3] == reference[1:3]
    return answer == reference


_DATE_FORMS = _forms(_DATES, _date, marks="-/.:")
_TIME_FORMS = [*_forms(_CLOCKS, _clock, "/.:,"), *_forms([_DURATION], _duration, "/.:,")]
DATE = AnswerRules(partial(_takes, _DATE_FORMS, _NO_DATE), partial(_mentions, _DATE_FORMS), _equal)
TIME = AnswerRules(partial(_takes, _TIME_FORMS, _NO_TIME), partial(_mentions, _TIME_FORMS), _equal)
