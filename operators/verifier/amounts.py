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
from .units import COMMANDS, Unit, currency_signs, have_same_kind, kind, unit_at, units
from .words import MAGNITUDES, SMALL


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


def _amount(number: Number, unit: Unit, start: int, end: int) -> Amount:
    number = number._replace(percent=False, unit=None)
    return Amount(number.value * unit.scale, unit.dimension, None, number, unit, start, end)


def _times(number: Number, factor: Fraction) -> Number:
    return number._replace(value=number.value * factor, ulp=number.ulp * abs(factor))


# --- A text without LaTeX, and its numbers --------------------------------------------

_CHARACTERS = {
    **dict.fromkeys(map(ord, "‐‑‒–—−﹣－"), "-"),
    **{ord("’"): "'", 0xB5: "μ", 0x2126: "Ω"},
}
_FONT = (r"\\(?:text\w*|math\w+|mbox|operatorname|unit|si)\s*\{(?P<a>[^{}]*)\}", r"\g<a> ")
_SPELT = (
    (r"[$\s]*\^[{\s]*(?:\\\w+\s*\{)?(?P<a>st|nd|rd|th)\b[}\s]*\$?", r"\g<a>"),
    (r"(?<!\\)\$\$?(?=\S)(?P<a>(?:\\.|[^$\\\n])*[^\s$\\])\$\$?(?!\d)", r" \g<a> "),
    (r"\\(?P<a>[$%])", r"\g<a>"),
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


@lru_cache(maxsize=16)  # which several types read
def unmarked(text: str) -> tuple[str, Sequence[int]]:
    """A text without marks of LaTeX and markdown, and where each of its characters was."""
    text = readable(text).translate(_CHARACTERS)
    places: Sequence[int] = range(len(text))
    for pattern, spelt in _SPELT:
        pieces, kept, start = list[str](), list[int](), 0
        for found in re.finditer(pattern, text):
            instead, end = found.expand(spelt), found.end()
            pieces += text[start : found.start()], instead
            kept += [*places[start : found.start()], *places[end - len(instead) : end]]
            start = end
        text, places = "".join([*pieces, text[start:]]), [*kept, *places[start:]]
    return text, places


_WORDS = "|".join((*SMALL, *MAGNITUDES))
_SIZES = "hundred|thousand|million|billion|trillion|lakh|crore"
_DECIMAL = r"(?:(?:\d{1,3}(?:[, '_]\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)"
_NUMBER = re.compile(
    rf"""(?:(?<![\w)}}\]%°²³])(?<![\d)}}%°²³]\s)[+-]|\b(?:minus|negative)\s)?
    (?:(?:{_DECIMAL}\s*[×·*x]\s*)?10(?:\s*\^\s*[+-]?\d+|[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)(?!\d)
      |\d+(?:\.\d+)?[eE][+-]?\d+(?!\w)
      |(?:\d+\s*)?\\[dt]?frac(?:\s*\{{\s*-?{_DECIMAL}\s*\}}\s*\{{\s*{_DECIMAL}\s*\}}|\d\d)
      |(?:\d+\s+)?\d+\s?/\s?\d+(?![\d/])|(?:\d+\s*)?[¼½¾⅐-⅞]
      |{_DECIMAL}(?:\s*[万萬億亿만억]+)?(?:(?:\s+(?:{_SIZES})\b)+|\s+and\s+a\s+half\b)?
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
_NEAR = 16  # characters before a number that are looked at
_SIZES_OF_MONEY = {"k": 3, "m": 6, "mn": 6, "mio": 6, "b": 9, "bn": 9, "mrd": 9, "t": 12, "tn": 12}
_SIZE = re.compile(r"(?:[kmbt]|\s?(?:[KMBT]|bn|mn|tn|mio|mrd))(?![A-Za-z])")


@lru_cache(maxsize=1)
def _currency_before() -> re.Pattern[str]:
    signs = "|".join(map(re.escape, currency_signs()))
    return re.compile(rf"(?P<minus>(?<![\w)}}%])-\s?)?(?<![A-Za-z])(?P<name>{signs})\s?\Z")


def amounts_in(text: str) -> list[Amount]:
    """Amounts and plain numbers of a text without marks, but for those in formulas."""
    found, at = list[Amount](), 0
    while match := _NUMBER.search(text, at):
        number, at = read_number(match[0] or "1"), max(match.end(), match.start() + 1)
        if number:
            each = _with_unit(text, number, match.start(), match.end())
            both = _together(found[-1], each, text) if found else None
            found[-1:] = [both] if both else [*found[-1:], each]
            at = max(at, each.end)
    before, after = _OPERATION_BEFORE.search, _OPERATION_AFTER.match
    near = ((each, max(0, each.start - _NEAR)) for each in found)
    return [a for a, at in near if not before(text, at, a.start) and not after(text, a.end)]


def _with_unit(text: str, number: Number, start: int, end: int) -> Amount:
    """A number with the unit after it, or the currency before it."""
    before = _currency_before().search(text, max(0, start - _NEAR), start)
    size = _SIZE.match(text, end)
    after = size.end() if size else end
    unit, stop = unit_at(text, after)
    is_money = kind(unit.dimension) == "money"
    if before and not (is_money and unit.dimension != (("$", 1),)):
        unit, stop = units()[before["name"]], stop if is_money else after
    elif size and not is_money:
        size, (unit, stop) = None, unit_at(text, end)
    is_hour = text[end:stop].strip().lower() == "pm" and number.value in range(13)
    if is_hour or unit.dimension in ((), (("π", 1),)):
        return _amount(number, Unit(), start, end)
    factor = 10 ** _SIZES_OF_MONEY[size[0].strip().lower()] if size else 1
    number = _times(number, Fraction(-factor if before and before["minus"] else factor))
    return _amount(number, unit, before.start() if before else start, stop)


def _together(x: Amount, y: Amount, text: str) -> Amount | None:
    """A range such as `5-10 kg`, or the sum `5 ft 3 in`."""
    gap = text[x.end : y.start]
    if re.fullmatch(r"\s*(?:--?|to)\s*", gap) and x.upper is None:
        x = x if x.dimension else _amount(x.number, y.unit, x.start, x.end)
        y = y if y.dimension else _amount(y.number, x.unit, y.start, y.end)
        is_range = x.dimension == y.dimension and (x.value < y.value or "-" in gap)
        return replace(x, upper=y.value, end=y.end) if is_range else None
    is_part = x.dimension == y.dimension and re.fullmatch(r"\.?,?\s+(?:and\s+)?", gap)
    is_smaller = x.upper is None and y.unit.scale < x.unit.scale and 0 <= y.value < x.unit.scale
    total = Number((x.value + y.value) / x.unit.scale)
    return _amount(total, x.unit, x.start, y.end) if is_part and is_smaller else None


def _mentions(kinds: tuple[str, ...], text: str) -> list[Mention]:
    """The amounts in a text of the first of the kinds that it has."""
    plain, places = unmarked(text)
    found = [(each, kind(each.dimension)) for each in amounts_in(plain)]
    chosen = ([each for each, its in found if its == kind] for kind in kinds)
    return [
        Mention(each, places[each.start], places[each.end - 1] + 1)
        for each in next(filter(None, chosen), [])
    ]


def _is_amount(wanted: str, text: str) -> bool:
    """Whether a reference is one amount of a kind and nothing else."""
    plain, _ = unmarked(text)
    found = [each for each in amounts_in(plain) if kind(each.dimension) == wanted]
    rest = [plain[: each.start] + plain[each.end :] for each in found]
    return len(rest) == 1 and not rest[0].strip(" \n.")


def _comparing(same: Callable[[Amount, Amount], bool]) -> Callable[[Hashable, Hashable], bool]:
    def equal(answer: Hashable, reference: Hashable) -> bool:
        if not isinstance(answer, Amount) or not isinstance(reference, Amount):
            return False
        is_range = answer.upper is not None or reference.upper is not None
        return answer == reference if is_range else same(answer, reference)

    return equal


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

_FORMULA = re.compile(r"π|\\pi|\d(?:[a-z]|mg)\Z")  # `5m` is a product as well
_POUNDS = re.compile(r"\bpound(?=s?\b)")  # also a mass
_NEGATIVE = re.compile(r"\A\(([^()\d]{1,4}\d[^()]*)\)\Z")  # `($500)`


def _same_quantity(answer: Amount, reference: Amount) -> bool:
    """Exactly, or rounded where the factor between two units is no power of ten."""
    if answer.dimension != reference.dimension:
        return False
    ratio, wanted = answer.unit.scale / reference.unit.scale, reference.number
    number = _times(answer.number, ratio)
    is_converted = str(ratio.numerator * ratio.denominator).rstrip("0") != "1"
    rounds = number.digits >= wanted.digits and 2 * abs(number.value - wanted.value) < wanted.ulp
    return same_number(number, wanted) or (is_converted and rounds)


def _same_share(answer: Amount, reference: Amount) -> bool:
    """With a plain number as `same_number` has it; points are for a reference in points."""
    if answer.dimension == (("points", 1),) != reference.dimension:
        return False
    a, b = (each.number._replace(percent=bool(each.dimension)) for each in (answer, reference))
    return same_number(a, b)


def _same_money(answer: Amount, reference: Amount) -> bool:
    """A currency that only one side has is ignored; `$` may be any dollar."""
    a, b = (_times(each.number, each.unit.scale) for each in (answer, reference))
    if not answer.dimension or not reference.dimension:
        return same_number(a, b) or same_number(answer.number, reference.number)
    return same_number(a, b) and have_same_kind(answer.unit, reference.unit)


QUANTITY = AnswerRules(
    lambda text: not _FORMULA.search(text.strip()) and _is_amount("quantity", text),
    partial(_mentions, ("quantity", "time")),
    _comparing(_same_quantity),
)
PERCENT = AnswerRules(
    partial(_is_amount, "percent"),
    partial(_mentions, ("percent", "plain")),
    _comparing(_same_share),
)
MONEY = AnswerRules(
    lambda text: _is_amount("money", _NEGATIVE.sub(r"-\1 ", text)),
    lambda text: _mentions(("money", "plain"), _NEGATIVE.sub(r"-\1 ", _POUNDS.sub("    £", text))),
    _comparing(_same_money),
)
