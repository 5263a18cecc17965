r"""Units, counters and magnitudes behind a number or a formula, in any language.

A magnitude multiplies (`5万` is 50,000), a counter says nothing (`12个`), and any other short noun
is a unit that is not known, such as "apples". A word that changes the number (`以上`) makes it no
number at all.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from .phrases import (
    FOREIGN,
    LETTER,
    compiled,
    fold,
    is_unspaced,
    languages_of,
    phrases_of,
    size,
    without_polite,
    words_in,
)
from .words import ASCII_MAGNITUDES, MAGNITUDES, MONTHS, PARTS, SMALL, listed, tables

# --- Known units ----------------------------------------------------------------------


class Unit(NamedTuple):
    """A multiple of base units, which are sorted and have exponents."""

    scale: Fraction = Fraction(1)
    dimension: tuple[tuple[str, int], ...] = ()


DEGREE = (("rad", 1), ("π", 1))
_SAME_SIGN = ({"$", "USD", "CAD", "AUD", "NZD", "HKD", "SGD"}, {"¥", "JPY", "CNY"})
COMMANDS = {
    "times": "×", "cdot": "·", "pm": "±", "mu": "μ", "Omega": "Ω", "ell": "ℓ", "pi": "π",
    "pounds": "£", "euro": "€", "circ": "°", "degree": "°", "quad": "", "left": "", "right": "",
}  # fmt: skip
_LETTERS = "A-Za-zÅ\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u0dff\u1e00-\u1fff"
_FACTOR = rf"""(?P<per>\s*(?:/|\bper\b(?![ -]?cent)|每|毎|(?<=\s)(?:в|за|на|par|por|pro|je)(?=\s)
  |\ban?(?=\s+(?:second|minute|hour|day)\b))\s*)?
(?(per)|(?:\s*[·*×]\s*|\.(?=[A-Za-z])|-(?=[A-Za-z])|\s*))\(?\s*(?!in\s+[A-Za-z\d\\$])
(?P<before>(?:square|sq\.?|cubic|cu\.?|кв\.?|квадратн\w+|куб\w*\.?)(?=[\s-])[\s-]*
  |кв\.|平方|立方|세제곱|제곱|ตาราง|ลูกบาศก์)?
(?P<name>(?:°|\bdegrees?|\bdeg)\s*(?P<degrees>[CF])(?:elsius|ahrenheit)?(?![A-Za-z])
  |(?:per|por|pour)[ -]?ci?en(?:to?)?(?![A-Za-z])|(?:percent(?:age)?[ -]|%[ -]?)points?
  |(?:light|nautical|metric|fluid|fl|electron|US|U\.S\.|American|Canadian|Australian
   |Singapore|British|Swiss|euro)[. -]{{1,2}}[A-Za-z]+
  |(?:μ|[kMG](?=\s*Ω))\s*[A-Za-zΩ]+|UNSPACED|[π°℃ÅΩℓ%]
  |[{_LETTERS}]+(?:"[{_LETTERS}])?)
(?P<after>\s*(?:\^|\*\*)\s*(?:[+-]?\d|[{{(]\s*[+-]?\d\s*[)}}])|\s?[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+
  |(?<![\u3041-\uffff])[23](?![\d.,a-z])|\s+(?:squared|cubed|cu[ab]\w+|carr[eé]s|quadrad?[oit]+s?)\b)?
(?:\s*\))?"""
_RAISED = str.maketrans("⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "+-0123456789", "^*{}() ")
_CUBIC = re.compile(r"cu(?:b|\b)|куб|立|세|ลู")


@lru_cache(maxsize=1)
def currency_signs() -> list[str]:
    """Symbols of currencies, as a dimension has them."""
    return [sign for line in tables().currencies for sign in line.split("|")[0].split()]


@lru_cache(maxsize=1)
def _factor() -> re.Pattern[str]:
    names = {each for name in tables().names for each in (name, fold(name))}
    unspaced = [each for each in names if is_unspaced(each) or re.search("[ -]", each)]
    unspaced += [sign for sign in currency_signs() if not sign.isalnum()]
    longest_first = "|".join(map(re.escape, sorted(unspaced, key=len, reverse=True)))
    return re.compile(_FACTOR.replace("UNSPACED", longest_first), re.VERBOSE)


@lru_cache(maxsize=1)
def units() -> dict[str, Unit]:
    """Units by their symbols, and by their names as `fold` has them, in the singular."""
    found, known = dict[str, Unit](), tables()
    for line in known.prefixed:
        _add(found, line, {" ": 0} | known.prefixes)
    for line in (*known.unprefixed, *known.currencies):
        _add(found, line, {" ": 0})
    for word, name in known.names.items():
        if (unit := _find(name, found)) and word not in found:
            found[_joined(fold(word))] = unit
    return found


def _add(units: dict[str, Unit], line: str, prefixes: dict[str, int]) -> None:
    symbols, names, meaning = ([*map(str.split, line.split("|")), [], []])[:3]
    base = Unit(dimension=(((symbols or names)[0], 1),))
    if meaning:
        unit, _ = _unit_at(" ".join(meaning[1:]), 0, units)
        base = _product([(Unit(Fraction(meaning[0])), 1), (unit, 1)])
    for prefix, power in prefixes.items():
        letter, word = prefix.split(" ")
        keys = [*(letter + each for each in symbols), *(word + fold(each) for each in names)]
        units.update(dict.fromkeys(keys, Unit(base.scale * Fraction(10) ** power, base.dimension)))


def _joined(name: str) -> str:
    return re.sub(r"[\s.-]", "", name)


def _find(name: str, units: dict[str, Unit]) -> Unit | None:
    name = _joined(name)
    keys = (name, fold(name), fold(name).removesuffix("s"))
    return next((units[key] for key in keys if key in units), None)


def unit_at(text: str, start: int) -> tuple[Unit, int]:
    """The unit at a place of a text, and where it ends. All behind a slash is below it."""
    return _unit_at(text, start, units()) if text[start:].strip() else (Unit(), start)


def _unit_at(text: str, start: int, units: dict[str, Unit]) -> tuple[Unit, int]:
    factors, at, below, is_alone = list[tuple[Unit, int]](), start, False, False
    while not is_alone and (found := _factor().match(text, at)):  # `$5` of "$5 per hour"
        below = below or bool(found["per"])
        power = _power(found["before"] or (found["after"] or "").strip(), below)
        name = f"°{found['degrees']}" if found["degrees"] else found["name"]
        if name == "ms" and power < 0:
            factors, name = [*factors, (units["m"], 1)], "s"
        unit = _find(name, units)
        is_alone = unit is not None and kind(unit.dimension) in ("percent", "money")
        if unit is None or (is_alone if factors else "/" in (found["per"] or "")):
            break
        factors, at = [*factors, (unit, power)], found.end()
    if text[start:at].count("(") < text[start:at].count(")"):  # `(5 m)`
        at = text.rindex(")", start, at)
    return _product(factors), at


def _power(written: str, below: bool) -> int:
    if written[:1].isalpha():
        written = "3" if _CUBIC.match(written) else "2"
    power = int(written.translate(_RAISED) or 1)
    return -power if below and power > 0 else power


def _product(factors: list[tuple[Unit, int]]) -> Unit:
    scale, exponents = Fraction(1), Counter[str]()
    for unit, power in factors:
        scale *= unit.scale**power
        for base, exponent in unit.dimension:
            is_difference = base == "°C" and len(factors) > 1  # `J/(kg °C)`
            exponents["K" if is_difference else base] += exponent * power
    return Unit(scale, tuple(sorted((base, n) for base, n in exponents.items() if n)))


def kind(dimension: tuple[tuple[str, int], ...]) -> str:
    """Whether an amount is a quantity, a time, a percentage, money or a plain number."""
    if not dimension or dimension == (("s", 1),):
        return "time" if dimension else "plain"
    base = dimension[0][0]
    if base in ("%", "points"):
        return "percent"
    return "money" if base in currency_signs() else "quantity"


def agree(a: Unit | None, b: Unit | None) -> Fraction | None:
    """The factor from `b` to `a`; 1 if one is missing or not known; None if they contradict."""
    if not (a and b and a.dimension and b.dimension):
        return Fraction(1)
    codes = {base for each in (a, b) for base, _ in each.dimension}
    one_sign = any(codes <= group and codes & {"$", "¥"} for group in _SAME_SIGN)
    return b.scale / a.scale if a.dimension == b.dimension or one_sign else None


# --- What is behind a number, or behind a formula -------------------------------------

_SINGLE = "mgshlLKJNWVACF"  # another letter is a variable
_LARGEST = 10**15
_MOST = 6.0  # words of an unknown unit
_COMMAND = re.compile(r"\^?\s*\\(cdot|mu|Omega|ell|circ|degree)(?![a-z])\s*")
_PER = re.compile(r"\s*(?:/|\bper\b)\s*")
_OF = re.compile(r"(?:d['’]|(?:de|di|von|van|av) )(?=[^\W\d_]{2})")
# "17 (apples)", "2/3 of the cake", "5 boxes of 12"
_AROUND = re.compile(
    rf"^[(\[]\s*(?:[单単單]位\s*:?|단위\s*:?)?\s*([{LETTER}][{LETTER} ]*)[)\]]$"
    r"|^of (?=[A-Za-z ]+$)| of \d+$"
)
_NOUN = re.compile(rf"/?[{LETTER}¢€£][{LETTER}¢€£\s'’.*·/-]*(?:\^\s*\{{?\s*-?\d\s*\}}?)?")
_BEHIND = re.compile(
    rf"(?<=[\w)}}])(?:\s*(?=[{FOREIGN}])|\s+(?=[A-Za-z]{{2}}))"
    rf"([{LETTER} /.]+(?:\^\s*\{{?\s*\d\s*\}}?)?)$"
)
# Words that change the number, so that the phrase is not a unit.
_CHANGING = frozenset(
    listed(
        "or and not plus minus times over out squared cubed factorial percent percentage than "
        "point through between mod modulo choose maybe perhaps but if when where is are equals "
        "root pi infinity infinite divided multiplied remainder with base possibly either nor "
        "least most minimum maximum above below sin cos tan log ln sqrt "
        # "or", "more", "less", "at least", "half" in other languages
        "oder mehr weniger meer minder mindestens wenigstens zum hoch halb einhalb ou moins "
        "davantage demi demie menos mais mas lub albo nebo eller flera veya fazla az fazlasi "
        "bucuk atau lebih kurang setengah pangkat kuadrat carre cuadrado quadrado quadrato "
        "quadrat mezzo mezza bukan nicht"
    )
) | {*SMALL, *MAGNITUDES, *MONTHS, *PARTS, *(f"{part}s" for part in PARTS)}


class Tail(NamedTuple):
    """What follows a number: a factor, whether it is a percentage, and its unit or noun."""

    factor: int = 1
    percent: bool = False
    unit: Unit | None = None


@lru_cache(maxsize=4096)
def read_tail(tail: str, *, attached: bool = False) -> Tail | None:
    """What follows a number; None if it changes the number, or is no unit.

    `attached` is whether nothing separates the number and an English phrase: `5cm` is a length,
    `5x` a product, so only known units of at least two letters count there.
    """
    tail = _COMMAND.sub(lambda m: COMMANDS[m[1]], tail.strip())
    if not attached:
        tail = _AROUND.sub(r"\1", tail)
    factor, end = _magnitudes(fold(tail))
    tail = _OF.sub("", tail[end:].strip(" ."))
    if _changes(tail):
        return None
    folded = fold(tail)
    if phrases := phrases_of(folded):
        # A tail that is all politeness has a character before it: that of the number.
        tail = tail[: len(without_polite(f"0{folded}", phrases)) - 1]
    unit, end = _unit_or_rate(tail)
    first = (words_in(tail) or [""])[0] if tail[:1].isalpha() else ""
    is_letter = len(first) == 1 and first.upper() != first.lower()
    is_variable = is_letter and first.isascii() and (attached or first not in _SINGLE)
    if is_variable or (not unit.dimension and (attached or is_letter)):
        return None
    rest = tail[end:].strip(" .")
    if not unit.dimension and (counter := re.match(tables().counters, rest)):
        rest = rest[counter.end() :].strip(" ()").lstrip("的の의")
    if rest and (size(rest) > _MOST or not _NOUN.fullmatch(rest)):
        return None
    if kind(unit.dimension) == "percent":
        return Tail(factor, unit.dimension == (("%", 1),), Unit() if rest else None)
    if unit.dimension and not (rest and tail.isascii()):  # "miles each hour" may be a rate
        return Tail(factor, unit=unit)
    is_countless = set(words_in(fold(rest))) <= set(tables().countless)
    return Tail(factor, unit=None if is_countless else Unit())


def _unit_or_rate(text: str) -> tuple[Unit, int]:
    unit, end = unit_at(text, 0)
    if unit.dimension and (per := _PER.match(text, end)):
        below, stop = unit_at(text, per.end())
        if below.dimension:
            return _product([(unit, 1), (below, -1)]), stop
    return unit, end


def _changes(tail: str) -> bool:
    """Whether words behind a number make it another answer: "or more", "squared"."""
    folded = fold(tail)
    if tail.isascii():
        return not _CHANGING.isdisjoint(words_in(folded))
    languages, names = tables().languages, languages_of(folded)
    if not names or not all(languages[name].scripts for name in names):
        names = tuple(name for name, each in languages.items() if not each.scripts)
    return bool(compiled(names).after.search(folded))


def split_unit(text: str) -> tuple[str, Unit | None]:
    """A formula without the known unit after it, and the unit, in any language."""
    found = _BEHIND.search(text)  # One letter is a name, as in `2\\pi r h`.
    tail = read_tail(found[1].replace(" ^", "^")) if found else None
    if not found or not tail or tail[:2] != (1, False):
        return text, None
    is_known = tail.unit != Unit() or re.fullmatch(r"\w+ units?", found[1])  # "linear units"
    return (text[: found.start()].strip(), tail.unit) if is_known else (text, None)


def leading(text: str) -> int:
    """How many characters behind a number are its magnitude, unit or counter."""
    folded = fold(text)
    at = magnitude_length(folded)
    _, end = unit_at(folded, at)
    counter = re.compile(rf" *(?:{tables().counters})").match(folded, at)
    return end if end > at or not counter else counter.end()


def magnitude_length(folded: str) -> int:
    """How many characters at the start of a text are magnitudes."""
    return _magnitudes(folded)[1]


def _magnitudes(folded: str) -> tuple[int, int]:
    """The product of the magnitudes at the start of a text, and where they end."""
    sizes, pattern = _sizes()
    factor, end = 1, 0
    while factor < _LARGEST and (found := pattern.match(folded, end)):
        factor, end = factor * sizes[found[1] or found[2]], found.end()
    return factor, end


@lru_cache(maxsize=1)
def _sizes() -> tuple[dict[str, int], re.Pattern[str]]:
    unspaced = tables().unspaced_magnitudes
    spaced = {fold(word): n for word, n in (tables().magnitudes | ASCII_MAGNITUDES).items()}
    pattern = (
        rf" *(?:(?![千천][米克瓦卡帕])({'|'.join(unspaced)})\s*"
        rf"|({'|'.join(map(re.escape, spaced))})(?![{LETTER}])\.?)"
    )
    return spaced | unspaced, re.compile(pattern)


# --- numerals of Chinese and Japanese -------------------------------------------------

_DIGITS = "零〇一二两兩三四五六七八九十"
_NUMERAL = re.compile(f"[{_DIGITS}][{_DIGITS}百千万萬亿億]{{0,40}}")
_UNCLEAR = re.compile("[百千万萬亿億][^零〇十百千万萬亿億]$")  # `一万二` is 12,000 in speech


def numeral(text: str) -> tuple[int, str] | None:
    """A number such as `十二`, and what follows it; only before what is a unit."""
    found = _NUMERAL.match(text)
    rest = text[found.end() :] if found else ""
    tail = read_tail(rest) if rest.strip() else Tail()
    if not found or _UNCLEAR.search(found[0]) or tail is None or tail.unit == Unit():  # `三角形`
        return None
    total = section = digit = 0
    for value in map(int, map(unicodedata.numeric, re.sub("[两兩]", "二", found[0]))):
        if value < 10:
            digit = 10 * digit + value
        elif value < 10**4:
            section, digit = section + (digit or 1) * value, 0
        else:  # `一万亿`
            total = total + (section + digit) * value if section or digit else total * value
            section = digit = 0
    return total + section + digit, rest
