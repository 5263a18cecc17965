r"""The languages of a text, and their words as compiled regular expressions.

Nothing is compiled before a text needs it. All patterns are of text that `fold` has made plain,
which keeps the length, so that places in the folded text are places in the text.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Any, NamedTuple

from .tables import Language, tables
from .words import listed

LETTER = (
    "A-Za-z\u00aa\u00b5\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u0300-\u065f\u066e-\u06d3"
    "\u06d5-\u06ef\u06fa-\u0963\u0971-\u0df3\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u109f\u10a0-\u1fff"
    "\u200c\u200d\u2c00-\u2dff\u3005-\u3007\u3031-\u3035\u3041-\u309f\u30a1-\u30fa\u30fc-\u31ff"
    "\u3300-\ud7ff\uf900-\ufdff\ufe70-\ufefe\U00010300-\U0001cfff\U00020000-\U0003ffff"
)
"""Letters and the marks that belong to them, as a class of characters; `\\w` lacks the marks."""
FOREIGN = LETTER.removeprefix("A-Za-z")
_FOREIGN = re.compile(f"[{FOREIGN}]")
_WORD = re.compile(f"[{LETTER}'’]+")
_KANA = re.compile("[\u3041-\u30ff]")
_GREEK = re.compile("[\u0370-\u03ff\u1f00-\u1fff\u00b5]")
_GREEK_WORD = re.compile("[\u0370-\u03ff\u1f00-\u1fff]{3}")
_UNSPACED = re.compile(
    "[\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u31ff\u3400-\u9fff\uf900-\ufaff]"
)

_PLAIN: dict[int, int | str] = {
    **{0xFF01 + i: 0x21 + i for i in range(94)},
    **{ord(c): "\n" for c in "。｡।॥។။۔።"},
    **{ord(c): ";" for c in "、､؛"},
    **{ord(c): "," for c in "،"},
    **{
        ord(c): " "
        for c in "\u3000\u00a0\u202f\u2009\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e"
        "\u2066\u2067\u2068\u2069"
    },
    **dict(zip(map(ord, "؟٪٫٬～〜∶︰"), "?%.,––::", strict=True)),
    0xFF0C: ",",
}
_ODD = re.compile("[" + re.escape("".join(map(chr, _PLAIN))) + r"]|(?![0-9])\d")
_OTHER_DIGIT = re.compile(r"(?![0-9])\d")


@lru_cache(maxsize=16)
def readable(text: str) -> str:
    """A text with ASCII digits and punctuation, of the same length; a full stop is a line's end."""
    if text.isascii() or not _ODD.search(text):
        return text
    text = text.translate(_PLAIN)
    return _OTHER_DIGIT.sub(lambda m: str(unicodedata.decimal(m[0])), text)


@lru_cache(maxsize=1)
def folding() -> dict[int, str]:
    """Small letters without accents, for scripts in which the accent does not make the letter."""
    ranges = ((0x41, 0x5B), (0xC0, 0x250), (0x370, 0x530), (0x620, 0x6D0), (0x1E00, 0x2000))
    table = dict[int, str]()
    for start, stop in ranges:
        for point in range(start, stop):
            letter = unicodedata.normalize("NFD", chr(point))[0].lower()[0]
            if letter != chr(point):
                table[point] = letter
    odd = zip("ıłŁđĐøØœæßðþ’ىیک", "illddoooasdt'ييك", strict=True)
    return table | {ord(a): b for a, b in odd}


@lru_cache(maxsize=16)  # the rules look at a text several times
def fold(text: str) -> str:
    """Return a text in lower case and without accents, of the same length."""
    return text.lower() if text.isascii() else readable(text).translate(folding())


class Phrases(NamedTuple):
    """The compiled words of the languages of a text; a pattern that has none never matches."""

    names: tuple[str, ...]
    noun: re.Pattern[str]
    no: re.Pattern[str]
    but: re.Pattern[str]
    joins: re.Pattern[str]
    yields: re.Pattern[str]
    before: re.Pattern[str]
    after: re.Pattern[str]
    wrong: re.Pattern[str]
    supposes: re.Pattern[str]
    unsure: re.Pattern[str]
    polite: re.Pattern[str]


def phrases_of(text: str) -> Phrases | None:
    """Return the words of the languages that a text may be in; None if it is read as English."""
    names = languages_of(text)
    return compiled(names) if names else None


@lru_cache(maxsize=16)
def languages_of(text: str) -> tuple[str, ...]:
    """Return names of languages, or scripts, that a text may be in; none for English."""
    if text.isascii() or not _FOREIGN.search(text):
        return latin_languages(text) if is_hinted(text) else ()
    letters = "".join(set(_FOREIGN.findall(text[-_SHOWN:])))
    found = [name for name, pattern in _scripts() if pattern.search(letters)]
    if "zh" in found and _KANA.search(text):
        found.remove("zh")
    if "el" in found and not _GREEK_WORD.search(text):  # a letter of a formula
        found.remove("el")
    return tuple(found) or latin_languages(text)


@lru_cache(maxsize=1)
def _scripts() -> list[tuple[str, re.Pattern[str]]]:
    languages = tables().languages.items()
    return [(name, re.compile(f"[{each.scripts}]")) for name, each in languages if each.scripts]


@lru_cache(maxsize=1)
def _common() -> dict[str, frozenset[str]]:
    latin = {name: each.common for name, each in tables().languages.items() if not each.scripts}
    return {name: frozenset(listed(fold(common))) for name, common in latin.items()}


_ENGLISH = frozenset(
    listed(
        "the of is to and in that he she they has have so we are was for with total each it his "
        "her their there this these from then than how many much which when will would all by at "
        "it's"
    )
)
_FOLDED_HINTS = (
    "reponse", "soluc", "oplossing", "loesung", "losung",
    "opcao", "opcion", "alternativ", "solution", "dap ", "tra loi", "loi giai", "ket ", "chon",
    "odpov", "reseni", "losning", "sonuc", "cozum", "yanit", "dogru",
)  # fmt: skip
HINTS = (
    "ntwo", "spuesta", "sposta", "jawa", "dpowied", "ceva", "svar", "oluzion", "rgebnis", "sulta",
    "hasil", "wynik", "oplam", "ternativa",
)  # fmt: skip
"""Parts of the nouns above. A text of ASCII letters without one of them, and without one of
`_HINTING`, is read as English."""
_HINTING = frozenset(
    listed(
        "nicht kein keine keinen weder niemals kann falsch ich ist sind wir der dass als sondern "
        "und auf mit von ein eine einen zu das bleibt bleiben mehr wenn oder "  # German
        "pas jamais ni faux peut le les du des est une il elle dans au aux ce cela c'est n'est "
        "j'ai je de que si ou trouve entre en qu'il qu'elle reste non mais ne sont avec "  # French
        "nunca tampoco ningun falso incorrecto puede el la las los es son era una tiene queda "
        "quedan hay sino para podemos sea ser del mas creo nada pero con lo "  # Spanish
        "niet fout onjuist bukan salah inte sbagliato errado"
    )
)
"""Frequent words of other languages in Latin script."""
_HINTED = 1_000  # characters at the end of a text in which one is looked for


@lru_cache(maxsize=8)
def is_hinted(text: str) -> bool:
    """Return whether a text of ASCII letters may have a phrase of another language than English."""
    if " the " in text or " and " in text:  # most English texts, in a tenth of the time
        return False
    shown = text[-_HINTED:].lower()
    return any(map(shown.__contains__, HINTS)) or not _HINTING.isdisjoint(shown.split())


_FEW = 8  # words
_SHOWN = 2_000  # characters at the end of a text, which show its language


def latin_languages(text: str) -> tuple[str, ...]:
    """Return the languages in Latin script whose frequent words, or whose "answer", a text has."""
    folded = fold(text[-_SHOWN:])
    words = frozenset(_WORD.findall(folded))
    letters = frozenset(_FOREIGN.findall(text[-_SHOWN:]))
    scores = {
        name: len(words & common) + 2 * (not letters.isdisjoint(tables().languages[name].letters))
        for name, common in _common().items()
    }
    best, english = max(scores.values()), len(words & _ENGLISH)
    enough = max(1 if len(words) <= _FEW else 2, best - 1, english + 1)
    named = [n for n in scores if compiled((n,)).noun.search(folded)] if _is_named(folded) else []
    found = tuple(n for n in scores if n in named or scores[n] >= enough)
    # A few words show no language; then those of all may change a number.
    return found if found or english or len(words) > _FEW else tuple(scores)


def _is_named(folded: str) -> bool:
    """Return whether a text may have the word "answer" in one of these languages."""
    return any(map(folded.__contains__, (*HINTS, *_FOLDED_HINTS)))


@lru_cache(maxsize=256)
def compiled(names: tuple[str, ...]) -> Phrases:
    """Return the words of some languages."""
    languages = [_folded(tables().languages[name]) for name in names]

    def words(field: str) -> re.Pattern[str]:
        parts = [bounded(getattr(each, field), each) for each in languages]
        return pattern(parts)

    simple = {f: words(f) for f in Phrases._fields if f not in {"names", "noun"}}
    noun = [_phrase(each, each.noun) for each in languages]
    noun += [bounded(each.choose, each) + _OPTION for each in languages if each.choose]
    return Phrases(
        names=names,
        noun=pattern(noun),
        **simple,
    )


def _folded(language: Language) -> Language:
    """Return the table as it matches folded text; escapes such as `\\S` are ASCII and stay."""
    letters = {point: letter for point, letter in folding().items() if point > 127}
    fields: dict[str, Any] = {
        name: value.translate(letters).replace(" ", r"\s+")
        for name, value in language._asdict().items()
        if isinstance(value, str) and name != "scripts"
    }
    return language._replace(**fields)


def pattern(parts: list[str]) -> re.Pattern[str]:
    """Return one pattern of several; one that never matches if there is none."""
    return re.compile("|".join(part for part in parts if part) or NEVER, re.MULTILINE)


def bounded(words: str, language: Language) -> str:
    """Alternatives as whole words, where the language has spaces between words."""
    if not words or not language.spaced:
        return f"(?:{words})" if words else ""
    letter = f"[{language.scripts}]" if language.scripts else r"[^\W\d_]"
    return f"(?<!{letter})(?:{words})(?!{letter})"


# The letter of an option, in a box, in bold type or in brackets.
_OPTION = r"""(?=[\s:"'“「『(\[*$\\{]*(?:(?:text|textbf|mathrm|boxed)\{)?[a-j]{1,5}(?![a-z]))"""
_GAP = r"[\s*_\"“”«»]{0,4}"
_VALUE = r"""(?=[\s*_$(\[{\\"“「]*(?:(?:text|boxed|textbf)\{)?(?:[-+−]?\d|[a-j](?![a-z0-9])))"""


def _phrase(language: Language, noun: str) -> str:
    """Return a noun with a link: only that shows that its value follows."""
    if not noun:
        return ""
    links = [r"(?=[:=])", r"(?=[*_ ]*\n)", _VALUE if language.direct else ""]
    links += [bounded(language.link, language)]
    changes = "|".join(each for each in (language.no, language.before) if each)
    links += [f"(?={bounded(changes, language)})" if changes else ""]
    adj = f"(?:{_GAP}{bounded(language.adj, language)}){{0,4}}" if language.adj else ""
    link = "|".join(each for each in links if each)
    return f"{bounded(noun, language)}{adj}{_GAP}(?:{link})"


def has_foreign_words(text: str) -> bool:
    """Return whether there are words with letters beyond ASCII; one Greek letter is a symbol."""
    return any(is_foreign(word) for word in _WORD.findall(text))


def is_foreign(word: str) -> bool:
    """Return whether this word has letters beyond ASCII; `kπ` is a product."""
    if word.isascii() or not _FOREIGN.search(word):
        return False
    return bool(_FOREIGN.search(_GREEK.sub("", word)) or _GREEK_WORD.search(word))


NEVER = r"(?!)"
ENDS = " .*,'’”»」』\""  # what may be behind an answer and is none of it
_POLITE, _MOST_POLITE = 40, 4  # characters and words that a sentence ends in


def without_polite(folded: str, phrases: Phrases) -> str:
    """Return a folded text without the words that only end a sentence, such as `です`."""
    for _ in range(_MOST_POLITE):
        first = max(1, len(folded) - _POLITE)
        found = phrases.polite.finditer(folded, first)
        ends = [m.start() for m in found if m.end() == len(folded) and m[0]]
        if not ends:
            break
        folded = folded[: ends[0]].rstrip(ENDS)
    return folded


def words_in(text: str) -> list[str]:
    """Return the words of a text, in any script."""
    return _WORD.findall(text)


def is_unspaced(text: str) -> bool:
    """Return whether a text begins in a script without spaces between words, or in Hangul."""
    return bool(_UNSPACED.match(text) or "\uac00" <= text[:1] <= "\ud7a3")


def size(text: str) -> float:
    """Return how many words a text has; where words are not spaced, of about three characters."""
    found = _WORD.findall(text)
    return sum(
        len(w) / (5 if "\u0e00" < w[0] < "\u0eff" else 3) if _UNSPACED.match(w) else 1
        for w in found
    )


_VALUE_ENDS, _VALUE_STARTS = r"(?<=[0-9A-Za-z)}\]$%])", r"(?=[-+−±0-9A-Za-z(\[{\\$])"
_OR = re.compile(
    rf"{_VALUE_ENDS}\s*(?:或者?|还是|還是|または|もしくは|또는|혹은|หรือ"
    rf"|\s(?:или|либо|або|ή|या|বা|أو|یا|או|hoặc)\s)\s*{_VALUE_STARTS}"
)
_AND = re.compile(
    rf"{_VALUE_ENDS}\s*(?:和|与|與|及|以及|と|와|과|그리고|และ| و(?=\d)"
    rf"|\s(?:и|і|та|και|और|এবং|و|ו|và)\s)\s*{_VALUE_STARTS}"
)


PERCENT_BEFORE = re.compile(r"(?:百分之|ร้อยละ|(?<![^\W\d_])[yY]üzde)\s*")
_PERCENTAGE = re.compile(PERCENT_BEFORE.pattern + r"(\d+(?:\.\d+)?)")
_GREEK_WORDS = re.compile(f"({_GREEK_WORD.pattern}{_GREEK.pattern}*)")


def joined_in_english(text: str) -> str:
    """Return a text with "or", "and" and a percent sign where it has those of another language."""
    if not _FOREIGN.search(text):
        return text
    return _AND.sub(" and ", _OR.sub(" or ", _PERCENTAGE.sub(r"\1%", text)))


def translated(text: str, table: dict[int, str]) -> str:
    """Return a text with its symbols translated; the letters of a Greek word are no symbols."""
    if not _GREEK_WORD.search(text):
        return text.translate(table)
    pieces = _GREEK_WORDS.split(text)
    return "".join(p if i % 2 else p.translate(table) for i, p in enumerate(pieces))
