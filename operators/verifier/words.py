"""Numbers in words: `twenty-one`, `a dozen`, `two and a half`."""

from __future__ import annotations

from fractions import Fraction

REACH = 40  # characters before an answer in which its negation begins


def listed(text: str) -> list[str]:
    """Split a table of words that is written as text."""
    return text.split()


_UNITS = listed(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
)
_TENS = listed("twenty thirty forty fifty sixty seventy eighty ninety")
SMALL: dict[str, int] = {
    **{word: i for i, word in enumerate(_UNITS)},
    **{word: 10 * (i + 2) for i, word in enumerate(_TENS)},
}
MAGNITUDES: dict[str, int] = {
    "hundred": 100,
    "dozen": 12,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
ASCII_MAGNITUDES: dict[str, int] = {
    word: size
    for size, text in {
        100: "hundert cien ciento honderd yuz sto",
        1_000: "tausend tsd mil mille milliers milhar mila duizend tysiac tys bin ribu tusen",
        10**5: "lakh lakhs",
        10**6: (
            "million millionen mio millones millions milione milioni miljoen milion miliony "
            "milyon juta miljon miljoner mln milionu"
        ),
        10**7: "crore crores",
        10**9: (
            "milliarde milliarden mrd milliard milliards miliardo miliardi miljard miliard "
            "miliardy milyar miliar miljarder mld mlrd"
        ),
        10**12: "billionen billones bilioni triliun trilyon",
    }.items()
    for word in listed(text)
}
"""Those of other languages that an ASCII text may have; words.yaml has the others."""
_PARTS: dict[str, int] = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "tenth": 10}
_PARTS |= {"sixth": 6, "eighth": 8, "halve": 2}
STARTS = frozenset({*SMALL, *_PARTS, "a", "an", "negative", "minus"})


def leading_words(text: str) -> tuple[Fraction, str] | None:
    """Return the number at the start of the text, and the rest of the text.

    None if the text does not begin with a number word.
    """
    words = text.split(" ")
    flat = [part for word in words for part in word.lower().split("-")]
    sign = 1
    if flat and flat[0] in {"negative", "minus"}:
        sign, flat = -1, flat[1:]
    value, used = _cardinal(flat)
    part, more = _part(flat, used)
    if part is not None:
        value, used = (part if value is None or more < 0 else value + part), used + abs(more)
    if value is None:
        return None
    # A hyphenated word cannot be used partially.
    rest = flat[used:]
    tail = " ".join(words[len(words) - len(rest) :]) if rest else ""
    return sign * value, tail


def _cardinal(flat: list[str]) -> tuple[Fraction | None, int]:
    total, current, used, seen = 0, 0, 0, False
    if flat[:1] in (["a"], ["an"]) and flat[1:2] and flat[1] in MAGNITUDES:
        current, used, seen = 1, 1, True
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
        elif not (
            word == "and"
            and seen
            and not current % 100
            and flat[used + 1 : used + 2]
            and flat[used + 1] in SMALL
        ):
            break
        used += 1
    return (Fraction(total + current), used) if seen else (None, 0)


def _part(flat: list[str], used: int) -> tuple[Fraction | None, int]:
    """`half`, `and a half`, `thirds` after a count; a negative number of words means a factor."""
    rest = flat[used:]
    if used and rest[:2] and rest[0] == "and":
        if rest[1:2] in (["a"], ["one"]) and rest[2:3] and rest[2].rstrip("s") in _PARTS:
            return Fraction(1, _PARTS[rest[2]]) if rest[2] in _PARTS else None, 3
        return None, 0
    if rest and used and rest[0].rstrip("s") in _PARTS:
        count, _ = _cardinal(flat[:used])
        return (count / _PARTS[rest[0].rstrip("s")] if count is not None else None), -1
    if rest and not used and rest[0] == "half":
        return Fraction(1, 2), -1
    if not used and rest[:1] in (["a"], ["one"]) and rest[1:2] and rest[1] in _PARTS:
        return Fraction(1, _PARTS[rest[1]]), -2
    return None, 0
