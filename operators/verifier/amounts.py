"""Amounts in a text, kept in base units: quantities with a unit, percentages and money."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache, partial

from .answer_types import AnswerRules, Conventions, Mention
from .fractions_and_decimals import Number, read_number, same_number
from .phrases import readable
from .units import COMMANDS, Unit, currency_signs, kind, unit_at, units
from .words import MAGNITUDES, PARTS, SMALL


@dataclass(frozen=True)
class Amount:
    """A number of base units, or a range of them; how it was written, and where."""

    value: Fraction
    dimension: tuple[tuple[str, int], ...]
    upper: Fraction | None
    number: Number = field(compare=False)
    unit: Unit = field(compare=False)
    start: int = field(compare=False)
    end: int = field(compare=False)

    def within(self, unit: Unit) -> Amount:
        return _amount(self.number, unit, self.start, self.end)


def _amount(number: Number, unit: Unit, start: int, end: int) -> Amount:
    is_share = kind(unit.dimension) == "percent"
    number = number._replace(percent=is_share, unit=None if is_share else unit)
    return Amount(number.value * unit.scale, unit.dimension, None, number, unit, start, end)


def _times(number: Number, factor: Fraction) -> Number:
    return number._replace(value=number.value * factor, ulp=number.ulp * abs(factor))


# --- A text without LaTeX, and its numbers --------------------------------------------

SIGNS = str.maketrans("‐‑‒–—−﹣－‘’‚“”„«»µ\u2126", '--------\'\'\'"""""μΩ')
_FONT = (r"\\(?:text\w*|math\w+|mbox|operatorname|unit|si)\s*\{(?P<a>[^{}]*)\}", r"\g<a> ")
_SPELLING = (
    (r"\$?\s?\^[{\s]*(?:\\\w+\s*\{)?(?P<a>st|nd|rd|th)\b[}\s]*\$?", r"\g<a>"),
    (r"(?<!\\)\$\$?(?=\S)(?P<a>(?:\\.|[^$\\\n])*[^\s$\\])\$\$?(?!\d)", r" \g<a> "),
    (r"\\(?P<a>[$%])", r"\g<a>"),
    (r"\A\((?P<a>[$€£¥][^()]+)\)\Z", r"-\g<a> "),
    (r"\\!", ""),
    (r"\{(?P<a>[,:])\}", r"\g<a>"),
    (r"\\[,;:> ()\[\]]|~", " "),
    *((rf"\\{name}(?!s|od|arrow)", sign) for name, sign in COMMANDS.items()),
    (r"\^\s*(?:°|\{\s*°\s*\})", "°"),
    (r"(?<=\S)\*+(?=[\s.,;:!?]|$)|(?<![\w\s)}])\*+|(?<=\s)\*+(?=\S)", ""),
    (r"\^\s*\{\s*(?P<a>[+-]?\d+)\s*\}", r"^\g<a>"),
    *(_FONT, _FONT, _FONT),
    (r"(?<=frac)\{\s*π", "{1π"),
    (r"\\[dt]?frac\s*\{(?P<a>\d+)\s*π\}\{(?P<b>\d+)\}(?:\s*rad\w*)?", r"\g<a>/\g<b>π rad"),
    (r"\\[dt]?frac\s*\{(?P<a>\s*[A-Za-zμΩ][^{}]*)\}\s*\{(?P<b>[^{}]*)\}", r"(\g<a>)/(\g<b>)"),
    (r"(?<![\d.])(?P<a>\d{1,3})\.(?P<b>\d{3}),(?P<c>\d\d?)(?!\d)", r"\g<a>\g<b>.\g<c>"),
    (r"(?<![\d.,])(?P<a>\d+),(?P<b>\d\d?)(?![\d,{])", r"\g<a>.\g<b>"),
    (r"(?<!\s)\s*\n\s*", "\n"),
    (r"[^\S\n]{2,}", " "),
)
_SPELT = [(re.compile(pattern), instead) for pattern, instead in _SPELLING]


@lru_cache(maxsize=16)  # which several types read
def unmarked(text: str) -> tuple[str, Sequence[int]]:
    """A text without marks of LaTeX and markdown, and where each of its characters was."""
    text = readable(text).translate(SIGNS)
    places: Sequence[int] = range(len(text))
    for pattern, spelt in _SPELT:
        pieces, kept, start = list[str](), list[int](), 0
        for found in pattern.finditer(text):
            instead, end = found.expand(spelt), found.end()
            pieces += text[start : found.start()], instead
            kept += [*places[start : found.start()], *places[end - len(instead) : end]]
            start = end
        if pieces:
            text, places = "".join([*pieces, text[start:]]), [*kept, *places[start:]]
    return text, places


_WORDS = "|".join((*SMALL, *MAGNITUDES))
_PARTS = "|".join(PARTS)
_SIZES = "hundred|thousand|million|billion|trillion|lakh|crore"
_DECIMAL = r"(?:(?:\d{1,3}(?:[, '_]\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)"
_NUMBER = re.compile(
    rf"""(?:(?<![\w)}}\]%°²³])(?<![\d)}}%°²³]\s)[+-]|\b(?:minus|negative)\s)?
    (?:(?:{_DECIMAL}\s*[×·*x]\s*)?10(?:\s*\^\s*[+-]?\d+|[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)(?!\d)
      |\d+(?:\.\d+)?[eE][+-]?\d+(?!\w)
      |(?:\d+\s*)?\\[dt]?frac(?:\s*\{{\s*-?{_DECIMAL}\s*\}}\s*\{{\s*{_DECIMAL}\s*\}}|\d\d)
      |(?:\d+\s+)?\d+\s?/\s?(?!1\b)\d+(?![\d/])|(?:\d+\s*)?[¼½¾⅐-⅞]
      |{_DECIMAL}(?:\s*[万萬億亿만억]+)?(?:(?:\s+(?:{_SIZES})\b)+|\s+and\s+a\s+half\b)?
      |\b(?P<share>(?:(?:an?|{_WORDS})[ -])?(?:{_PARTS})s?\b(?:(?:\s+of)?\s+an?\b)?
        |an?(?=\s+[a-z]+\s+and\s+a\s+half\b))
      |(?:\ba\s+(?={_SIZES}))?\b(?:{_WORDS})\b(?:(?:-|\s+|\s+and\s+)(?:{_WORDS})\b)*
       (?:\s+and\s+a\s+half\b)?)|(?<![\w)}}])(?=π\s*rad)""",
    re.VERBOSE | re.IGNORECASE,
)
_OPERATION_BEFORE = re.compile(
    r"(?:[A-Za-z\d_\\]-?|\d[.,:]|[\w)}\]%°²³π]\s*[+*/·×÷±^]\s*|(?:\s|\A)[<>≤≥]=?\s*|\\[lg]eq?\s*"
    r"|(?:frac|sqrt|\})\s*\{\s*)\Z"
)
_OPERATION_AFTER = re.compile(
    r"\s*(?:[+*·×÷±^/-]\s*[\d\\($.√]|\}\s*\{|[A-Za-z]?\s*[\^√]|\\sqrt|\\frac)|(?<=\d)[A-Za-z\\(_]"
)
_ARTICLE = re.compile(r"(?:\s+of)?\s+an?\Z")  # "half an hour", "a quarter of an hour"
_HALF = re.compile(r"\s+and\s+a\s+half\b")
_FULL = re.compile(r"[ -](?:more|full|whole)\b")
_NO_UNIT = re.compile(r"(?:\d|1[0-2])\s?pm|\d{3}0s", re.IGNORECASE)  # 5 pm, the 1970s
_NEAR = 16  # characters before a number that are looked at
_SIZES_OF_MONEY = {"k": 3, "m": 6, "mn": 6, "mio": 6, "b": 9, "bn": 9, "mrd": 9, "t": 12, "tn": 12}
_SIZE = re.compile(r"(?:[kmbt]|\s?(?:[KMBT]|bn|mn|tn|mio|mrd))(?![A-Za-z])")


@lru_cache(maxsize=1)
def _currency_before() -> re.Pattern[str]:
    signs = "|".join(map(re.escape, currency_signs()))
    return re.compile(rf"(?P<minus>(?<![\w)}}%])-\s?)?(?<![A-Za-z])(?P<name>{signs})\s?\Z")


@lru_cache(maxsize=16)
def amounts_in(text: str) -> list[Amount]:
    """Amounts and plain numbers of a text without marks, but for those in formulas."""
    found, at = list[Amount](), 0
    while match := _NUMBER.search(text, at):
        written = _ARTICLE.sub("", match[0])
        number = read_number("1" if written in ("", "a", "an") else written)
        each = _with_unit(text, number, *match.span()) if number else None
        at = max(match.end(), match.start() + 1)
        if each and (each.dimension or not match["share"]):
            found[-1:] = _joined(found[-1], each, text) if found else [each]
            at = max(at, each.end)
    found = [
        a for a in found if not _OPERATION_BEFORE.search(text, max(0, a.start - _NEAR), a.start)
    ]
    return [a for a in found if not _OPERATION_AFTER.match(text, a.end)]


def _with_unit(text: str, number: Number, start: int, end: int) -> Amount:
    before = _currency_before().search(text, max(0, start - _NEAR), start)
    size = _SIZE.match(text, end)
    between = size or _FULL.match(text, end)
    after = between.end() if between else end
    unit, stop = unit_at(text, after)
    is_money = kind(unit.dimension) == "money"
    if before and not (is_money and unit.dimension != (("$", 1),)):
        unit, stop = units()[before["name"]], stop if is_money else after
    elif size and not is_money:
        size, (unit, stop) = None, unit_at(text, end)
    if unit.dimension in ((), (("π", 1),)) or _NO_UNIT.fullmatch(text, start, stop):
        return _amount(number, Unit(), start, end)
    if half := _HALF.match(text, stop):
        number, stop = number._replace(value=number.value + Fraction(1, 2)), half.end()
    factor = 10 ** _SIZES_OF_MONEY[size[0].strip().lower()] if size else 1
    number = _times(number, Fraction(-factor if before and before["minus"] else factor))
    return _amount(number, unit, before.start() if before else start, stop)


def _joined(x: Amount, y: Amount, text: str) -> list[Amount]:
    """Two amounts, or the one that they are: a range such as `5-10 kg`, the sum `5 ft 3 in`."""
    gap = text[x.end : y.start].strip()
    is_range = gap in ("-", "--", "to") and x.upper is None
    if (is_range or gap in ("and", "or")) and not x.dimension:
        x = x.within(y.unit)
    if is_range and not y.dimension:
        y = y.within(x.unit)
    if is_range and x.dimension == y.dimension and (x.value < y.value or gap != "to"):
        return [replace(x, upper=y.value, end=y.end)]
    metre, minute = units()["m"], units()["min"]  # `2 h 45 m`, `45 m 30 s`
    if x.unit == metre and kind(y.dimension) == "time":
        x = x.within(minute)
    elif y.unit == metre and kind(x.dimension) == "time":
        y = y.within(minute)
    is_smaller = x.upper is None and y.unit.scale < x.unit.scale and 0 <= y.value < x.unit.scale
    if x.dimension == y.dimension and is_smaller and re.fullmatch(r"\.?,?(?: ?and)?", gap):
        total = Number((x.value + y.value) / x.unit.scale)
        return [_amount(total, x.unit, x.start, y.end)]
    return [x, y]


def of_kinds(kinds: tuple[str, ...], plain: str) -> list[Mention]:
    """The amounts of the first of the kinds that a text without marks has."""
    found = [(Mention(each, each.start, each.end), each.dimension) for each in amounts_in(plain)]
    chosen = ([each for each, its in found if kind(its) == wanted] for wanted in kinds)
    return next(filter(None, chosen), [])


_Read = Callable[[str], list[Mention]]


def mentions_in(read: _Read, text: str) -> list[Mention]:
    """What is read in a text without its marks, at the places in the text itself."""
    plain, at = unmarked(text)
    return [Mention(value, at[start], at[end - 1] + 1) for value, start, end in read(plain)]


def is_whole(read: _Read, but_not: str, reference: str) -> bool:
    """Whether a reference is one value and nothing else, and is not of a pattern."""
    plain = unmarked(reference)[0].strip(" \n.")
    is_all = [each[1:] for each in read(plain)] == [(0, len(plain))]
    return is_all and not re.fullmatch(but_not, plain)


def is_near(answer: Hashable, reference: Hashable, conventions: Conventions) -> bool:
    """Whether an amount is within the tolerance; a bare number counts in the reference's unit."""
    if not isinstance(answer, Amount) or not isinstance(reference, Amount):
        return False
    if answer.upper is not None or reference.upper is not None or not conventions.tolerance:
        return False
    if answer.dimension == reference.dimension:
        return conventions.is_near(answer.value, reference.value)
    is_bare = not answer.dimension
    return is_bare and conventions.is_near(answer.number.value, reference.number.value)


# --- The three types ------------------------------------------------------------------

_POUNDS = re.compile(r"\bpound(?=s?\b)")  # also a mass


def _same_quantity(answer: Amount, reference: Amount) -> bool:
    """Exactly, or rounded where the factor between two units is no power of ten."""
    if answer.dimension != reference.dimension:
        return False
    ratio, wanted = answer.unit.scale / reference.unit.scale, reference.number
    number = _times(answer.number, ratio)
    is_converted = str(ratio.numerator * ratio.denominator).rstrip("0") != "1"
    rounds = number.digits >= wanted.digits and 2 * abs(number.value - wanted.value) < wanted.ulp
    return same_number(answer.number, wanted) or (is_converted and rounds)


def _same_share(answer: Amount, reference: Amount) -> bool:
    """With a plain number as `same_number` has it; points are for a reference in points."""
    is_points = answer.dimension == (("points", 1),) != reference.dimension
    return not is_points and same_number(answer.number, reference.number)


def _same_money(answer: Amount, reference: Amount) -> bool:
    """A currency that only one side has is ignored; `$` may be any dollar."""
    is_bare = not answer.dimension or not reference.dimension
    a, b = (_times(each.number, each.unit.scale) for each in (answer, reference))
    return same_number(answer.number, reference.number) or (is_bare and same_number(a, b))


def _rules(same: Callable[[Amount, Amount], bool], *kinds: str, but_not: str = "") -> AnswerRules:
    def equal(answer: Hashable, reference: Hashable) -> bool:
        if not isinstance(answer, Amount) or not isinstance(reference, Amount):
            return False
        is_range = answer.upper is not None or reference.upper is not None
        return answer == reference if is_range else same(answer, reference)

    takes = partial(is_whole, partial(of_kinds, kinds[:1]), but_not)
    return AnswerRules(takes, partial(mentions_in, partial(of_kinds, kinds)), equal)


QUANTITY = _rules(_same_quantity, "quantity", "time", but_not=r".*π.*|.*\d(?:[a-z]|mg)")
"""`5m` is a product as well, and so is what has π."""
PERCENT = _rules(_same_share, "percent", "plain")
_MONEY = _rules(_same_money, "money", "plain")
MONEY = _MONEY._replace(mentions=lambda text: _MONEY.mentions(_POUNDS.sub("    £", text)))
