r"""The languages of a text, and their words as compiled regular expressions.

Nothing is compiled before a text needs it. All patterns are of text that `fold` has made plain,
which keeps the length, so that places in the folded text are places in the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

from .words import Language, listed, tables

LETTER = (
    "A-Za-z\u00aa\u00b5\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u0300-\u065f\u066e-\u06d3"
    "\u06d5-\u06ef\u06fa-\u0963\u0971-\u0df3\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u109f\u10a0-\u1fff"
    "\u200c\u200d\u2c00-\u2dff\u3005-\u3007\u3031-\u3035\u3041-\u309f\u30a1-\u30fa\u30fc-\u31ff"
    "\u3300-\ud7ff\uf900-\ufdff\ufe70-\ufefe\U00010300-\U0001cfff\U00020000-\U0003ffff"
)
"""Letters and the marks that belong to them, as a class of characters; `\\w` lacks the marks."""
FOREIGN = LETTER.removeprefix("A-Za-z")
_GREEK = "\u0370-\u03ff\u1f00-\u1fff"
_FOREIGN = re.compile(f"(?![{_GREEK}\u00b5])[{FOREIGN}]|[{_GREEK}]{{3}}")
_WORD = re.compile(f"[{LETTER}'’]+")
_GREEK_WORDS = re.compile(f"([{_GREEK}]{{3}}[{_GREEK}\u00b5]*)")
_KANA = re.compile("[\u3041-\u30ff]")
_UNSPACED = re.compile(
    "[\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u31ff\u3400-\u9fff\uf900-\ufaff]"
)

# --- Plain text -----------------------------------------------------------------------

_PUNCTUATION = {
    **{chr(0xFF01 + i): chr(0x21 + i) for i in range(94)},
    **dict.fromkeys("。｡।॥။۔።។", "\n"),
    **dict.fromkeys("、､؛", ";"),
    **dict.fromkeys("\u3000\u00a0\u202f\u2009\u200e\u200f\u061c", " "),
    **dict.fromkeys("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", " "),
    **dict(zip("،؟٪٫٬～〜∶︰", ",?%.,––::", strict=True)),
}
# Letters that have no accent in Unicode, or are written in two ways.
_SAME_LETTERS = dict(zip("ıłŁđĐøØœæßðþ’ىیک", "illddoooasdt'ييك", strict=True))
_ACCENTED = re.compile("[A-Z\u00c0-\u024f\u0370-\u052f\u0620-\u06cf\u1e00-\u1fff]")


class _Characters(dict[int, str]):
    """How characters are written, for `str.translate`; each is worked out when it is first met."""

    def __init__(self, written: Callable[[str], str]) -> None:
        self._written = written

    def __missing__(self, point: int) -> str:
        self[point] = self._written(chr(point))
        return self[point]


def _readable(character: str) -> str:
    return _PUNCTUATION.get(character) or str(unicodedata.decimal(character, character))


def _folded(character: str) -> str:
    """In small letters, without accents in scripts where the accent does not make the letter."""
    plain = _SAME_LETTERS.get(character) or _readable(character)
    return unicodedata.normalize("NFD", plain)[0].lower()[0] if _ACCENTED.match(plain) else plain


_READABLE, _FOLDED = _Characters(_readable), _Characters(_folded)


def readable(text: str) -> str:
    """A text with ASCII digits and punctuation, of the same length; a full stop is a line's end."""
    return text if text.isascii() else text.translate(_READABLE)


@lru_cache(maxsize=16)  # the rules look at a text several times
def fold(text: str) -> str:
    """A text in lower case and without accents, of the same length."""
    return text.lower() if text.isascii() else text.translate(_FOLDED)


# --- Languages ------------------------------------------------------------------------

_ENGLISH = frozenset(
    listed(
        "the of is to and in that he she they has have so we are was for with total each it his "
        "her their there this these from then than how many much which when will would all by at "
        "it's"
    )
)
_ALSO_ENGLISH = frozenset(listed("per can man die son take also ten sea hat an as do no am"))
_HINTS = (
    "ntwo", "spuesta", "sposta", "jawa", "dpowied", "ceva", "svar", "oluzion", "rgebnis", "sulta",
    "hasil", "wynik", "oplam", "ternativa",
)  # fmt: skip
_HINTED = 1_000  # characters at the end of a text in which a hint is looked for
_SHOWN = 2_000  # characters at the end of a text, which show its language
_FEW = 8  # words, which show no language


@lru_cache(maxsize=8)
def is_hinted(text: str) -> bool:
    """Whether a text of ASCII letters may be in another language than English.

    It then has a part of the word for "answer", or a frequent word, of such a language.
    """
    if " the " in text or " and " in text:  # most English texts, in a tenth of the time
        return False
    shown = text[-_HINTED:].lower()
    return any(map(shown.__contains__, _HINTS)) or not _hinting().isdisjoint(shown.split())


@lru_cache(maxsize=16)
def languages_of(text: str) -> tuple[str, ...]:
    """Names of languages, or scripts, that a text may be in; none for English."""
    shown = text[-_SHOWN:]
    letters = "" if text.isascii() else "".join(set(_FOREIGN.findall(shown)))
    if not letters and not is_hinted(text):
        return ()
    scripts = {name: each.scripts for name, each in tables().languages.items() if each.scripts}
    found = [name for name, script in scripts.items() if re.search(f"[{script}]", letters)]
    if "zh" in found and _KANA.search(letters):
        found.remove("zh")
    return tuple(found) or _latin_languages(fold(shown), letters)


def _latin_languages(folded: str, letters: str) -> tuple[str, ...]:
    words = frozenset(_WORD.findall(folded))
    known = tables().languages
    scores = {
        name: len(words & common) + 2 * (not set(letters).isdisjoint(known[name].letters))
        for name, common in _common().items()
    }
    is_short, english = len(words) <= _FEW, len(words & _ENGLISH)
    enough = max(1 if is_short else 2, max(scores.values()) - 1, english + 1)
    found = [
        name
        for name, score in scores.items()
        if score >= enough or compiled((name,)).noun.search(folded)
    ]
    # A few words show no language; then those of all may change a number.
    return tuple(found or (scores if is_short and not english else ()))


@lru_cache(maxsize=1)
def _common() -> dict[str, frozenset[str]]:
    languages = tables().languages.items()
    return {n: frozenset(listed(fold(each.common))) for n, each in languages if not each.scripts}


@lru_cache(maxsize=1)
def _hinting() -> frozenset[str]:
    words = (word for common in _common().values() for word in common if len(word) > 1)
    return frozenset(words) - _ENGLISH - _ALSO_ENGLISH


# --- Their words ----------------------------------------------------------------------

ENDS = " .*,'’”»」』\""  # what may be behind an answer and is none of it
_NEVER = r"(?!)"
_GAP = r"[\s*_\"“”«»]{0,4}"
# In a box, in bold type or in brackets: the letter of an option, or a number.
_OPENED = r"""[\s:"'“「『(\[*_$\\{]*(?:(?:text|textbf|mathrm|boxed)\{)?"""
_OPTION = rf"(?={_OPENED}[a-j]{{1,5}}(?![a-z]))"
_VALUE = rf"(?={_OPENED}(?:[-+−]?\d|[a-j](?![a-z0-9])))"
_POLITE = 40  # characters in which a sentence ends


class Phrases:
    """The fields of some languages in the tables as patterns, compiled when they are first used.

    One for which they have no words never matches.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._languages = [tables().languages[name] for name in names]

    def __getattr__(self, field: str) -> re.Pattern[str]:
        write = _phrase if field == "noun" else lambda each: _words(each, getattr(each, field))
        pattern = "|".join(filter(None, map(write, self._languages))) or _NEVER
        if field == "polite":
            pattern = rf"(?:(?:{pattern})[{re.escape(ENDS)}]*)+\Z"
        compiled = re.compile(pattern, re.MULTILINE)
        setattr(self, field, compiled)
        return compiled


@lru_cache(maxsize=256)
def compiled(names: tuple[str, ...]) -> Phrases:
    return Phrases(names)


def phrases_of(text: str) -> Phrases | None:
    """The words of the languages that a text may be in; None if it is read as English."""
    names = languages_of(text)
    return compiled(names) if names else None


def _words(language: Language, words: str) -> str:
    if not words:
        return ""
    # Escapes such as `\S` are ASCII.
    plain = "".join(each if each.isascii() else fold(each) for each in words).replace(" ", r"\s+")
    if not language.spaced:
        return f"(?:{plain})"
    letter = f"[{language.scripts}]" if language.scripts else r"[^\W\d_]"
    return f"(?<!{letter})(?:{plain})(?!{letter})"


def _phrase(language: Language) -> str:
    """The noun with a link: only that shows that its value follows; or "choose" with a letter."""
    noun, adj, link, choose = (
        _words(language, each)
        for each in (language.noun, language.adj, language.link, language.choose)
    )
    changes = _words(language, "|".join(filter(None, (language.no, language.before))))
    links = [r"(?=[:=])", r"(?=[*_ ]*\n)", _VALUE if language.direct else _NEVER]
    links += [link or _NEVER, f"(?={changes or _NEVER})"]
    answer = f"{noun}(?:{_GAP}{adj or _NEVER}){{0,4}}{_GAP}(?:{'|'.join(links)})"
    return f"{answer}|{choose}{_OPTION}" if choose else answer


def without_polite(folded: str, phrases: Phrases) -> str:
    """A folded text without the words that only end a sentence, such as `です`."""
    end = phrases.polite.search(folded, max(1, len(folded) - _POLITE))
    return folded[: end.start()].rstrip(ENDS) if end else folded


# --- Words in any script --------------------------------------------------------------


def has_foreign_words(text: str) -> bool:
    """Whether there are letters beyond ASCII; one Greek letter is a symbol, and `kπ` a product."""
    return not text.isascii() and bool(_FOREIGN.search(text))


def words_in(text: str) -> list[str]:
    return _WORD.findall(text)


def is_unspaced(text: str) -> bool:
    """Whether a text begins in a script without spaces between words, or in Hangul."""
    return bool(_UNSPACED.match(text) or "\uac00" <= text[:1] <= "\ud7a3")


def size(text: str) -> float:
    """How many words a text has; where words are not spaced, of about three characters."""
    return sum(
        len(word) / (5 if "\u0e00" < word[0] < "\u0eff" else 3) if _UNSPACED.match(word) else 1
        for word in _WORD.findall(text)
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
_PERCENTAGE = re.compile(r"(?:百分之|ร้อยละ|(?<![^\W\d_])[yY]üzde)\s*(\d+(?:\.\d+)?)")


def joined_in_english(text: str) -> str:
    """A text with "or", "and" and a percent sign where it has those of another language."""
    if text.isascii():
        return text
    return _AND.sub(" and ", _OR.sub(" or ", _PERCENTAGE.sub(r"\1%", text)))


def translated(text: str, table: dict[int, str]) -> str:
    """A text with its symbols translated; the letters of a Greek word are no symbols."""
    pieces = _GREEK_WORDS.split(text)
    return "".join(p if i % 2 else p.translate(table) for i, p in enumerate(pieces))
