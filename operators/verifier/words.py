"""Numbers in words: `twenty-one`, `a dozen`, `two and a half`."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

# --- Language -------------------------------------------------------------------------
# What a language other than English calls an answer, and which of its words change a number.

REACH = 40  # characters before an answer in which its negation begins


class Language(NamedTuple):
    """The words of a language, each field the alternatives of one regular expression."""

    # characters that only occur where the language may be meant; "" for Latin script, where
    # `common` decides
    scripts: str = ""
    noun: str = ""  # "answer"
    adj: str = ""  # what may stand between the noun and the link: "final", "therefore"
    link: str = ""  # "is", behind the noun; `:` and `=` are links everywhere
    direct: bool = False  # whether the value may follow the noun without a link ("Cevap 12")
    weak: str = ""  # "result", which is often that of a step: it counts only at the end of a text
    choose: str = ""  # "choose", directly before the letter of an option
    answers: str = ""  # "is the answer", behind the value
    no: str = ""  # "not", before what it negates
    but: str = ""  # "but rather", before what holds instead of something negated
    joins: str = ""  # "or", "and", "to", "plus": between two numbers neither of which is the answer
    yields: str = ""  # "in total", "makes": a number behind it is on its own
    before: str = ""  # "at least": before a number it makes another answer
    after: str = ""  # "or more", "squared", "is not": the same behind a number
    wrong: str = ""  # "wrong", in what follows an answer
    supposes: str = ""  # "if", "he claims": an answer behind it is not that of the response
    next: str = ""  # "then", in a sentence after the last number, which is not the last step
    unsure: str = ""  # "I do not know", at the end of a text
    polite: str = ""  # what ends a sentence and says nothing, as `です` does
    sentence: str = ""  # words that a short answer does not have, such as "I"
    common: str = ""  # frequent words, by which a text in Latin script shows its language
    letters: str = ""  # letters that no other language of this table in Latin script has
    spaced: bool = True  # whether words have spaces between them
    comma: bool = False  # whether decimals have a comma, as in 3,5


# --- Numbers in words: `twenty-one`, `a dozen`, `two and a half` ----------------------


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
_MAGNITUDES_ELSEWHERE = {
    100: "hundert cien ciento honderd yuz sto سو مئة مائة مئات صد מאה מאות सौ শত শো",
    1_000: (
        "tausend tsd mil mille milliers milhar mila duizend tysiac tysiące tysięcy tys bin "
        "nghìn ngàn ribu tusen tisíc tisíce χιλιάδες χίλια тысяча тысячи тысяч тыс тисяча "
        "тисячі тисяч тис ألف آلاف الف ألفا هزار אלף אלפים हज़ार हजार হাজার"
    ),
    10**5: "लाख lakh lakhs লাখ লক্ষ",
    10**6: (
        "million millionen mio millón millones millions milhão milhões milione milioni miljoen "
        "milion miliony milionów milyon triệu juta miljon miljoner mln milionu εκατομμύρια "
        "εκατομμύριο миллион миллиона миллионов млн мільйон мільйона мільйонів مليون ملايين "
        "میلیون מיליון מיליונים मिलियन"
    ),
    10**7: "करोड़ करोड crore crores কোটি",
    10**9: (
        "milliarde milliarden mrd milliard milliards miliardo miliardi miljard miliard "
        "miliardy miliardów milyar tỷ tỉ miliar miljarder mld mlrd bilhão bilhões "
        "δισεκατομμύρια миллиард миллиарда миллиардов млрд мільярд мільярда мільярдів مليار "
        "مليارات میلیارد מיליארד अरब বিলিয়ন"
    ),
    10**12: (
        "billionen billones trilhão trilhões bilioni triliun trilyon триллион триллиона "
        "триллионов трлн تريليون تریلیون"
    ),
}
FOREIGN_MAGNITUDES: dict[str, int] = {
    word: size for size, text in _MAGNITUDES_ELSEWHERE.items() for word in listed(text)
}
"""Magnitudes of languages other than English, as words with spaces around them."""
ASCII_MAGNITUDES = {word: n for word, n in FOREIGN_MAGNITUDES.items() if word.isascii()}
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
