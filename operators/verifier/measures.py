"""Units that follow a number."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from .unit_names import ASCII_UNITS
from .words import listed


class Unit(NamedTuple):
    """A unit of a known dimension; `scale` turns it into the first unit of its dimension."""

    dimension: str
    scale: Fraction


def _table() -> dict[str, Unit]:
    listed = {
        "length": "m metre meter:1 km kilometer kilometre:1000 cm centimeter centimetre:1/100 "
        "mm millimeter millimetre:1/1000 ft foot feet:0.3048 in inch inche:0.0254 "
        "mi mile:1609.344 yd yard:0.9144",
        "mass": "kg kilogram:1 g gram:1/1000 mg milligram:1/1000000 lb pound:0.45359237 "
        "oz ounce:0.028349523125 ton:907.18474 tonne:1000",
        "time": "s sec second:1 min minute:60 h hr hour:3600 day:86400 week:604800 ms:1/1000 "
        "month:2629800 yr year:31557600",
        "volume": "l liter litre:1 ml milliliter millilitre:1/1000",
        "usd": "$ dollar usd buck:1 cent ¢:1/100",
        "eur": "€ euro eur:1",
        "gbp": "£ gbp:1",
        "jpy": "yen:1",
        "cny": "yuan rmb cny:1",
        "yen or yuan": "¥:1",
        "krw": "krw:1",
        "rub": "ruble rouble rub:1",
        "thb": "baht:1",
        "inr": "₹ rupee:1",
        "angle": r"\circ degree deg:1",
        "kelvin": "kelvin K:1",
        "celsius": "celsius:1",
        "fahrenheit": "fahrenheit:1",
        "energy": "joule J kj:1",
        "force": "newton N:1",
        "power": "watt W:1 kW kilowatt:1000",
    }
    units = dict[str, Unit]()
    for dimension, text in listed.items():
        for group in re.findall(r"([^:]+):(\S+)", text):
            for name in group[0].split():
                units[name] = Unit(dimension, Fraction(group[1]))
    return units | {word: units[name] for word, name in ASCII_UNITS.items()}


UNITS = _table()
# Two currencies have the sign ¥.
_ONE_SIGN = frozenset(frozenset(("yen or yuan", each)) for each in ("jpy", "cny"))
_SINGLE = {"m", "g", "s", "h", "l", "L", "K", "J", "N", "W", "V", "A", "C", "F"}
_UNIT_AFTER = re.compile(r"(?<=[\w})])\s+([A-Za-z]{2,}[A-Za-z. ]*(?:\^\s*\{?\s*[0-9]\s*\}?)?)$")
_WORD = re.compile(r"[A-Za-z¢€£$]+|\\circ")
_PHRASE = re.compile(
    r"(?:\\circ|[A-Za-z]+\.?|[¢€£])(?:\s*\^\s*\{?\s*[0-9]\s*\}?)?"
    r"(?:\s*(?:/|\\cdot|\s|-|\*)\s*[A-Za-z]+\.?(?:\s*\^\s*\{?\s*-?[0-9]\s*\}?)?){0,6}$"
)
# Words that change the number, so that the phrase is not a unit.
_NOT_A_UNIT = frozenset(
    listed(
        "or and not plus minus times over out of squared cubed factorial half halves third "
        "thirds quarter quarters fourths fifths tenths hundredths hundred thousand million billion "
        "trillion thousandth thousandths millionths sixths sevenths eighths ninths "
        "dozen percent percentage than point to through between mod modulo choose "
        "maybe perhaps but if when where is are equals if root pi infinity infinite divided "
        "multiplied remainder with base possibly either nor least most minimum maximum above "
        "below sin cos tan log ln sqrt "
        # "or", "more", "less", "at least", "half" in other languages
        "oder mehr weniger meer minder mindestens wenigstens zum hoch halb einhalb ou moins "
        "davantage demi demie menos mais mas lub albo nebo eller flera veya fazla az fazlasi "
        "bucuk atau lebih kurang setengah pangkat kuadrat carre cuadrado quadrado quadrato "
        "quadrat mezzo mezza bukan nicht jan feb mar apr may jun jul aug sep oct nov dec "
        "january february march april june july august september october november december"
    )
)
_TEMPERATURE = re.compile(
    r"^(?:\^?\s*\\circ|degrees?)\s*(c|f)(?:elsius|ahrenheit)?$", re.IGNORECASE
)
_PER = {"mph": ("mile", "hour"), **dict.fromkeys(("kph", "kmh", "kmph"), ("km", "hour"))}


class Measure(NamedTuple):
    """A unit phrase: a known unit, or the stems of its words."""

    known: Unit | None
    stems: frozenset[str]


def split_unit(text: str) -> tuple[str, Measure | None]:
    """A value without the unit after it, and the unit. One letter is a name, as in `2\\pi r h`."""
    found = _UNIT_AFTER.search(text)
    measure = read_unit(found[1].replace(" ^", "^"), attached=False) if found else None
    if found is None or measure is None:
        return text, None
    if measure.known:
        return text[: found.start()], measure
    return (text[: found.start()] if measure.stems <= {"unit"} else text), None


def read_unit(tail: str, *, attached: bool) -> Measure | None:
    """The unit phrase after a number, None if this is not a unit.

    `attached` is whether nothing separates number and phrase: `5cm` is a length, `5x` a product,
    so only known units of at least two letters count there.
    """
    tail = _TEMPERATURE.sub(lambda m: {"c": "celsius", "f": "fahrenheit"}[m[1].lower()], tail)
    tail = re.sub(r"\^\s*\\circ", r"\\circ", tail)
    if not attached:  # "17 (apples)", "2/3 of the cake"
        tail = re.sub(r"^[(\[]([A-Za-z ]+)[)\]]$|^of (?=[A-Za-z ]+$)", r"\1", tail)
    of = re.match(r"([A-Za-z]{3,}) of [0-9]+$", tail)  # "5 boxes of 12" counts boxes
    if of and of[1].lower() not in _NOT_A_UNIT:
        return Measure(None, frozenset({_stem(of[1])}))
    if not _PHRASE.match(tail):
        return None
    words = _WORD.findall(tail)
    lowered = [w.lower() for w in words]
    if lowered[0] in _NOT_A_UNIT or any(w in _NOT_A_UNIT - {"of", "to"} for w in lowered):
        return None
    first = words[0]
    # One letter is a variable unless it is a common unit; so are letters attached to the number.
    if (
        len(first) == 1
        and (first not in _SINGLE or attached)
        and first not in UNITS.keys() - _SINGLE
    ):
        return None
    if len(first) == 1 and first.isalpha() and first not in _SINGLE:
        return None
    if attached and _lookup(first) is None and first.lower() not in _PER:
        return None
    return _measure(tail, words)


def _measure(tail: str, words: list[str]) -> Measure:
    if len(words) == 1 and "^" not in tail and words[0].lower() not in _PER:
        return Measure(_lookup(words[0]), frozenset({_stem(words[0])}))
    expanded = [w for word in words for w in _PER.get(word.lower(), (word,))]
    power = "".join(re.findall(r"\^\s*\{?\s*(-?[0-9])", tail))
    square = {"square": "2", "sq": "2", "cubic": "3"}
    power += "".join(square.get(w.lower(), "") for w in words)
    stems = {
        _stem(w)
        for w in expanded
        if w.lower() not in {"per", "a", "an", "the", "of", "each", *square, "in", "total"}
    }
    # A compound is identified by its parts: cm^2 and cm differ.
    if all(_lookup(w) for w in expanded if w.lower() not in {"per", "a", "an", *square}):
        canonical = "/".join(sorted(_canonical(w) for w in expanded if _lookup(w))) + power
        return Measure(Unit(canonical, Fraction(1)), frozenset(stems))
    return Measure(None, frozenset(stems))


def _lookup(word: str) -> Unit | None:
    for name in (word, word.lower(), word.rstrip("."), _stem(word)):
        if name in UNITS and not (name != word and name in _SINGLE):
            return UNITS[name]
    return None


def _canonical(word: str) -> str:
    unit = _lookup(word)
    return f"{unit.dimension}*{unit.scale}" if unit else word


def _stem(word: str) -> str:
    lowered = word.lower().rstrip(".")
    return lowered[:-1] if lowered.endswith("s") and len(lowered) > 2 else lowered


def agree(a: Measure | None, b: Measure | None) -> Fraction | None:
    """The factor from `b` to `a`; 1 if a unit is missing; None if they contradict."""
    if a is None or b is None:
        return Fraction(1)
    if a.known and b.known:
        same = a.known.dimension == b.known.dimension
        same = same or frozenset((a.known.dimension, b.known.dimension)) in _ONE_SIGN
        return b.known.scale / a.known.scale if same else None
    if a.known is None and b.known is None and a.stems & b.stems:
        return Fraction(1)
    return None
