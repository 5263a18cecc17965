"""Words of numbers, such as `twenty-one`, and words.yaml: other languages, and the units."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple


def listed(text: str) -> list[str]:
    return text.split()


_SMALL = listed(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty "
    "ninety"
)
SMALL = dict(zip(_SMALL, (*range(20), *range(20, 100, 10)), strict=True))
_LARGE = listed("dozen hundred thousand million billion trillion")
MAGNITUDES = dict(zip(_LARGE, (12, 100, 10**3, 10**6, 10**9, 10**12), strict=True))
_ASCII_MAGNITUDES = {
    100: "hundert cien ciento honderd yuz sto",
    1_000: "tausend tsd mil mille milliers milhar mila duizend tysiac tys bin ribu tusen",
    10**5: "lakh lakhs",
    10**6: "million millionen mio millones millions milione milioni miljoen milion miliony milyon "
    "juta miljon miljoner mln milionu",
    10**7: "crore crores",
    10**9: "milliarde milliarden mrd milliard milliards miliardo miliardi miljard miliard "
    "miliardy milyar miliar miljarder mld mlrd",
    10**12: "billionen billones bilioni triliun trilyon",
}
ASCII_MAGNITUDES = {word: n for n, text in _ASCII_MAGNITUDES.items() for word in listed(text)}
"""Those of other languages that an ASCII text may have; words.yaml has the others."""
_ORDINALS = listed(
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
    "fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"
)
_ORDINALS += [*(f"twenty-{word}" for word in _ORDINALS[:9]), "thirtieth", "thirty-first"]
ORDINALS: dict[str, int] = {word: n for n, word in enumerate(_ORDINALS, 1)}
PARTS: dict[str, int] = {word: n for word, n in ORDINALS.items() if 2 < n <= 20}
PARTS |= {"half": 2, "halve": 2, "quarter": 4, "hundredth": 100, "thousandth": 1_000}
_MONTHS = (
    "january jan januar janvier enero/february feb februar février fevrier febrero/"
    "march mar märz maerz mars marzo/april apr avril abril/may mai mayo/"
    "june jun juni juin junio/july jul juli juillet julio/august aug août aout agosto/"
    "september sep sept septembre septiembre/october oct oktober octobre octubre/"
    "november nov novembre noviembre/december dec dezember décembre decembre diciembre"
)
MONTHS = {name: n for n, each in enumerate(_MONTHS.split("/"), 1) for name in listed(each)}
STARTS = frozenset({*SMALL, *PARTS, "a", "an", "negative", "minus"})


def leading_words(text: str) -> tuple[Fraction, str] | None:
    """The number at the start of a text, and the rest of the text; None if there is none."""
    words = text.split(" ")
    flat = [part for word in words for part in word.lower().split("-")]
    sign = -1 if flat[0] in ("negative", "minus") else 1
    flat = flat if sign > 0 else flat[1:]
    whole, used = _cardinal(flat)
    value = Fraction(whole or 0)
    first, second, third = [word.rstrip("s") for word in (flat[used:] + 3 * [""])[:3]]
    if whole is None and first != "half":
        return None
    if first in PARTS:
        value, used = Fraction(1 if whole is None else whole, PARTS[first]), used + 1
    elif first == "and" and second in ("a", "one") and third in PARTS:
        value, used = value + Fraction(1, PARTS[third]), used + 3
    # A hyphenated word cannot be used partially.
    rest = flat[used:]
    return sign * value, " ".join(words[len(words) - len(rest) :]) if rest else ""


def _cardinal(flat: list[str]) -> tuple[int | None, int]:
    second = (flat[1:2] or [""])[0]
    is_one = flat[:1] in (["a"], ["an"]) and (second in MAGNITUDES or second in PARTS)
    total, current, used, seen = 0, int(is_one), int(is_one), is_one
    last = 10**15
    while used < len(flat):
        word = flat[used]
        if word in SMALL:
            # "twenty one" adds up; "two three" is not a number.
            if seen and current % 100 and not (current % 100 >= 20 and 0 < SMALL[word] < 10):
                return None, 0
            current, seen = current + SMALL[word], True
        elif word in {"hundred", "dozen"} and seen:
            current *= MAGNITUDES[word]
        elif word in MAGNITUDES and seen and MAGNITUDES[word] < last:
            last = MAGNITUDES[word]
            total, current = total + current * last, 0
        elif word != "and" or not seen or current % 100 or not SMALL.keys() & flat[used + 1 :][:1]:
            break
        used += 1
    return (total + current, used) if seen else (None, 0)


# --- words.yaml -----------------------------------------------------------------------


class Language(NamedTuple):
    """Its words; words.yaml says what each field is."""

    scripts: str = ""
    noun: str = ""
    adj: str = ""
    link: str = ""
    direct: bool = False
    choose: str = ""
    no: str = ""
    but: str = ""
    joins: str = ""
    yields: str = ""
    before: str = ""
    after: str = ""
    wrong: str = ""
    supposes: str = ""
    unsure: str = ""
    polite: str = ""
    common: str = ""
    letters: str = ""
    spaced: bool = True
    comma: bool = False


class Tables(NamedTuple):
    """The sections of words.yaml, with words as keys."""

    languages: dict[str, Language]
    magnitudes: dict[str, int]
    unspaced_magnitudes: dict[str, int]
    counters: str
    countless: list[str]
    prefixes: dict[str, int]
    prefixed: list[str]
    unprefixed: list[str]
    currencies: list[str]
    names: dict[str, str]


@lru_cache(maxsize=1)
def tables() -> Tables:
    import yaml  # most answers are numbers, which need none of this

    text = Path(__file__).with_name("words.yaml").read_text("utf-8")
    text = re.sub(r"(?<=\S)\|\n +", "|", text)  # alternatives are broken behind a bar
    data = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    data["languages"] = {name: Language(**each) for name, each in data["languages"].items()}
    data["countless"] = data["countless"].split()
    by_word = ("magnitudes", "unspaced_magnitudes", "names")
    return Tables(**data | {name: _by_word(data[name]) for name in by_word})


def _by_word(section: dict[Any, str]) -> dict[str, Any]:
    return {word.replace("_", " "): key for key, text in section.items() for word in text.split()}
