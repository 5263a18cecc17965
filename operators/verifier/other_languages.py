r"""Where the answer is in a text of another language than English.

The rules are those of `answer.py`: a phrase such as `答案是` or "Die Antwort lautet" first, then
the last number. They are stricter in one respect: a word next to the number that may change it
(a bound, a negation, "or more") takes the number away, wherever the number stands.
Places are those of the text itself, so that what is found is a span of it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from .phrases import (
    ENDS,
    FOREIGN,
    LETTER,
    Phrases,
    fold,
    has_foreign_words,
    phrases_of,
    readable,
    size,
    without_polite,
)
from .units import leading, magnitude_length

_SENTENCE_END = re.compile(
    r"[?!](?=[\s*\"”“»」]|$)|\n"
    r"|(?<!\bca)(?<!\benv)(?<!\baprox)(?<!\bприбл)(?<!\bтыс)(?<!\bмлн)(?<!\bMio)(?<!\bMrd)(?<!\bкв)\."
    r"(?=[\s*\"”»」]*$|[*\"”»」]*\s+(?![a-zß-ÿа-яё])|[\u0e01-\u0eff\u3041-\u9fff\uac00-\ud7a3])"
)
_BREAK = re.compile(r"[;:!?()\n“”«»„「」『』]|,(?!\d)|\.(?!\d)|[—–](?=\s)|→|⇒")
_LEAD = ' \t\n*_:="“”«»„「」『』—–-'
_BETWEEN = ' .!\n*)”»」』"'  # two sentences
_SIGN = re.compile(r"(?<!-)-(?=\d)")
_DIGIT = re.compile(r"\d")
_ITEM = re.compile(r"^([ \t*#]*\d+)、", re.MULTILINE)
_FOREIGN_LETTER = re.compile(f"[{FOREIGN}]")
_AFTERWARDS = re.compile(rf"[,;]\s*[{LETTER}]{{2,}}[^,;]*\d")  # `3 + 4 = 7, so 12 are left`
_DISPLAYED = re.compile(r"\\\[\s*(.{1,1000}?)\s*\\\]|\$\$\s*(.{1,1000}?)\s*\$\$", re.DOTALL)
_CLOSED = re.compile(r"(?:[\s$*_}]|\\[,;!)])*")
_MOST_BEHIND, _MOST_ALONE = 5.0, 6.0  # words of a bare answer, with a number and without one
_AROUND = 1_000  # characters before an answer, which show its language
_SHORT = 8  # words of what calls an answer wrong
_TRIED = 20  # phrases at the end of a text
_LINE = 1_000  # characters of a sentence or line that count
_NEAR = 2.5  # words between an answer and what denies it
_BESIDE = 160  # characters next to an answer in which words may change it


# --- phrases --------------------------------------------------------------------------


def phrases_in(text: str) -> list[int]:
    """Where the last phrase begins that an answer follows, if there is one.

    It is in no question, and nothing before it in its clause supposes it.
    """
    phrases = phrases_of(text)
    if phrases is None:
        return []
    plain, folded = readable(text), fold(text)
    for phrase in reversed(list(phrases.noun.finditer(folded))[-_TRIED:]):
        stop = _sentence_end(plain, phrase.end())
        if plain[stop : stop + 1] == "?":
            continue
        before = folded[max(0, phrase.start() - _BESIDE) : phrase.start()]
        if not phrases.supposes.search(_BREAK.split(before)[-1]):
            return [phrase.start()]
    return []


def _sentence_end(plain: str, start: int) -> int:
    last = min(len(plain), start + _LINE)
    end = _SENTENCE_END.search(plain, start, last)
    return end.start() if end else last


def clause(text: str) -> tuple[str, Phrases, bool] | None:
    """What follows the phrase at the start of a text; None if there is no phrase.

    It is the rest of the sentence, with the words of its language, and whether it is denied.
    """
    phrases = phrases_of(text)
    if phrases is None:
        return None
    plain, folded = readable(text), fold(text)
    phrase = phrases.noun.match(folded)
    if phrase is None:
        return None
    start = len(folded) - len(folded[phrase.end() :].lstrip(_LEAD))
    if _SIGN.match(folded, start - 1):
        start -= 1
    if displayed := _DISPLAYED.match(text, start):
        return displayed[1] or displayed[2], phrases, False
    end = _sentence_end(plain, start)
    affirmed = _affirmed(folded, start, end, phrases)
    start, end = affirmed or (start, end)
    shown = text[start:end].strip(' \t\n*_"“”«»「」『』,;，；、،؛')
    spoken = shown[: len(without_polite(fold(shown), phrases))].rstrip(ENDS)
    return spoken, phrases, affirmed is None


def _affirmed(folded: str, start: int, end: int, phrases: Phrases) -> tuple[int, int] | None:
    """The part of a clause that holds, of "not 12 but 13" the end; None if there is none."""
    negated = phrases.no.match(folded, start, end)
    for but in phrases.but.finditer(folded, start, end):
        holds = negated or (but.start() > start and phrases.after.match(folded, but.start(), end))
        if holds and re.search(r"[\da-z\\]", folded[but.end() : end]):
            return but.end(), end
    if negated:
        return None
    for no in phrases.no.finditer(folded, start, end):  # "12, not 13"
        if _DIGIT.search(folded, start, no.start()) and _DIGIT.search(folded, no.end(), end):
            return start, no.start()
    return start, end


def _is_called_wrong(behind: str, phrases: Phrases) -> bool:
    """Whether the short sentence that a text begins with calls wrong what is before it."""
    sentence = behind.lstrip(_BETWEEN)
    sentence = fold(sentence[: _sentence_end(sentence, 0)])
    # One with a number of its own is about that.
    return (
        size(sentence) <= _SHORT
        and not _DIGIT.search(sentence)
        and bool(phrases.wrong.search(sentence))
    )


# --- commitment -----------------------------------------------------------------------


def is_changed(text: str, start: int, end: int, phrases: Phrases | None = None) -> bool:
    """Whether words around an answer make it another one: a denial, a bound, a question, "or"."""
    phrases = phrases or phrases_of(text[max(0, start - _AROUND) : end + _BESIDE])
    if phrases is None:
        return False
    left = fold(text[max(0, start - _BESIDE) : start]).rstrip(" \t*_$([{\\~")
    left = _BREAK.split(left)[-1]
    right = fold(_CLOSED.sub("", readable(text[end : end + _BESIDE]), count=1))
    if broken := _BREAK.search(right):
        if broken[0] == "?" or _is_called_wrong(right[broken.start() :], phrases):
            return True
        right = right[: broken.start()]
    found = (*phrases.wrong.finditer(right), *phrases.after.finditer(right))
    if any(size(right[: each.start()]) <= _NEAR for each in found):
        return True
    for words, most in ((phrases.before, 2.0), (phrases.no, _NEAR), (phrases.supposes, 3.0)):
        gaps = (left[word.end() :] for word in words.finditer(left))
        if any(size(gap) <= most and not _DIGIT.search(gap) for gap in gaps):
            return True
    *numbers, between = _DIGIT.split(left)
    if not numbers:
        return False
    joins = [each.end() for each in phrases.joins.finditer(between)]
    if (len(between) in joins and size(between) <= _NEAR) or not between.strip(" ,;"):
        return True
    return bool(joins) and "=" not in between and not phrases.yields.search(between)


def magnitude_after(text: str) -> str:
    """The magnitude that what follows a box begins with, as in `\boxed{5}万`; empty if none."""
    rest = _CLOSED.sub("", text, count=1)
    return rest[: magnitude_length(fold(rest))].strip()


# --- numbers --------------------------------------------------------------------------


def number(text: str, read: Callable[[str], str | None], phrases: Phrases) -> str | None:
    """The last number of a text, with its unit.

    A number that a word next to it changes is given with the words around it, as another answer.
    """
    plain = readable(text)
    ascii_text = _FOREIGN_LETTER.sub(_as_ascii, readable(_ITEM.sub(r"\1.", text)))
    found = read(ascii_text)
    at = ascii_text.rfind(found) if found else -1
    if not found or at < 0:
        return found
    after = at + len(found)
    end = _sentence_end(plain, after)
    if plain[end : end + 1] == "?":
        return None
    stated = text[at:after]
    if is_changed(text, at, after, phrases):
        return f"not {stated}"
    rest = _CLOSED.sub("", text[after:end], count=1)
    unit = rest[: leading(rest)]
    return f"{stated}{unit}" if text.startswith(unit, after) else f"{stated} {unit.strip()}"


def _as_ascii(letter: re.Match[str]) -> str:
    """A letter without its accent, or `§`."""
    plain = unicodedata.normalize("NFD", letter[0])[0]
    return plain if plain.isascii() else "§"


# --- whole answers --------------------------------------------------------------------


def is_bare(text: str) -> bool | None:
    """Whether a text is an answer and nothing else; None if it has no foreign words to judge by."""
    if not has_foreign_words(text):
        return None
    plain = readable(text).strip()
    if plain.endswith("?") or _SENTENCE_END.search(plain, 0, len(plain) - 1):
        return False
    phrases, folded, words = phrases_of(text), fold(plain), size(plain)
    if phrases and phrases.noun.search(folded):
        return False
    digits = [digit.start() for digit in _DIGIT.finditer(plain)]
    if not digits:
        return words <= _MOST_ALONE
    if words > _MOST_BEHIND or has_foreign_words(plain[: digits[0]]):
        return False
    # A number that follows another with "in total" or the like between them.
    if phrases and phrases.yields.search(folded, digits[0] + 1, digits[-1]):
        return False
    if _AFTERWARDS.search(plain):
        return False
    return None if plain.lstrip(' *_(${[\\"“')[:1].isalpha() else True


def gives_up(text: str) -> bool:
    """Whether a text of another language ends with "I do not know"."""
    phrases = phrases_of(text[-_AROUND:])
    if phrases is None:
        return False
    end = fold(text[-200:].rstrip(" .!*\n。！"))
    return any(m.end() >= len(end) - 2 for m in phrases.unsure.finditer(end))
