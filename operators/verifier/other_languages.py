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
from typing import NamedTuple

from .end_of_turn import begins_item
from .phrases import (
    ENDS,
    FOREIGN,
    LETTER,
    NEVER,
    PERCENT_BEFORE,
    Phrases,
    fold,
    has_foreign_words,
    is_foreign,
    is_latin,
    phrases_of,
    readable,
    size,
    without_polite,
    words_in,
)
from .units import leading, magnitude_length
from .words import REACH

_SENTENCE_END = re.compile(
    r"[?!](?=[\s*\"”“»」]|$)|\n"
    r"|(?<!\bca)(?<!\benv)(?<!\baprox)(?<!\bприбл)(?<!\bтыс)(?<!\bмлн)(?<!\bMio)(?<!\bMrd)(?<!\bкв)\."
    r"(?=[\s*\"”»」]*$|[*\"”»」]*\s+(?![a-zß-ÿа-яё])|[\u0e01-\u0eff\u3041-\u9fff\uac00-\ud7a3])"
)
_BREAK = re.compile(r"[;:!?()\n“”«»„「」『』]|,(?!\d)|\.(?!\d)|[—–](?=\s)|→|⇒")
_OPENED = {"“": "”", "«": "»", "„": '“”"', "「": "」", "『": "』", "‘": "’"}
_LEAD = ' \t\n*_:="“”«»„「」『』—–-'
_DIGIT = re.compile(r"\d")
_NUMBER = re.compile(r"\d+")
_ASCII_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_FOREIGN_LETTER = re.compile(f"[{FOREIGN}]")
_LATIN_LETTER = re.compile("[\u00c0-\u024f\u1e00-\u1eff]")
_LETTER = re.compile(r"(?<![A-Za-z0-9\\$_^{\u00c0-\u024f])([A-J])(?![A-Za-z0-9_^'\u00c0-\u024f])")
_AFTERWARDS = re.compile(rf"[,;]\s*[{LETTER}]{{2,}}[^,;]*\d")  # `3 + 4 = 7, so 12 are left`
_DISPLAYED = re.compile(r"\\\[\s*(.{1,1000}?)\s*\\\]|\$\$\s*(.{1,1000}?)\s*\$\$", re.DOTALL)
_NAMED = re.compile(r"(?:^|(?<=[^a-z]))[a-z]\w{0,3}(?:\([a-z]\))? ?=$")
_CLOSED = re.compile(r"(?:[\s$*_}]|\\[,;!)])*")
_LONGEST = 300  # characters of a bare answer
_MOST_BEHIND, _MOST_ALONE = 5.0, 6.0  # words of a bare answer, with a number and without one
_AROUND = 1_000  # characters before an answer, which show its language
_SHORT = 8  # words of what calls an answer wrong
_TRIED = 20  # phrases at the end of a text
_LINE = 1_000  # characters of a sentence or line that count
_OF_ANOTHER = re.compile("的[^的，,]{1,6}(?:是|有|[为為]|等[于於])$")  # those who do *not* swim
_SEPARATOR = re.compile(f"(?<=[{FOREIGN}]),(?=[-−]?\\d)")  # `经检验，12`
_PREDICATE = re.compile(r"\d[^\d]*?(?:是|不|被|应|才|太|[错錯])")  # `12是对的`
_SOON = 80  # characters behind an answer in which it may be called wrong


class PhrasePlace(NamedTuple):
    """A phrase in a text. Its "end" is where it begins: it is read again with its answer."""

    at: int

    def end(self) -> int:
        """Return where the text begins that `clause` reads."""
        return self.at

    def start(self) -> int:
        """Return where what the phrase is about ends, if it follows its answer."""
        return self.at


class Clause(NamedTuple):
    """What follows a phrase."""

    text: str  # as it stands there, up to the end of the sentence
    rest: str  # the same up to the end of the text
    phrases: Phrases  # the words of its language
    is_negated: bool  # whether the text begins with its negation
    is_wrong: bool  # whether what follows says that it is wrong
    is_open: bool  # whether a colon precedes it, so that the answer may be at the end of the rest


class FoundNumber(NamedTuple):
    """The answer, None if a text of another language has none."""

    answer: str | None


# --- phrases --------------------------------------------------------------------------


def phrases_in(text: str) -> list[PhrasePlace]:
    """Return the last phrase that an answer follows, if there is one."""
    phrases = phrases_of(text)
    if phrases is None:
        return []
    plain, folded = readable(text), fold(text)
    strong = list(phrases.noun.finditer(folded))[-_TRIED:]
    weak = list(phrases.weak.finditer(folded))[-1:]
    if weak and _DIGIT.search(plain, _sentence_end(plain, weak[-1].end())):
        weak = []
    for phrase in sorted(strong + weak, key=re.Match.start, reverse=True):
        if _counts(plain, phrase, phrases):
            return [PhrasePlace(phrase.start())]
    return []


def answers_in(text: str) -> list[PhrasePlace]:
    """Return the last phrase that follows an answer, if there is one."""
    phrases = phrases_of(text)
    if phrases is None:
        return []
    plain, folded = readable(text), fold(text)
    for phrase in reversed(list(phrases.answers.finditer(folded))[-_TRIED:]):
        start, end = phrase.span()
        if (
            _counts(plain, phrase, phrases)
            and not phrases.no.search(folded, max(0, start - 8), end)
            and not _is_called_wrong(plain, end, phrases)
        ):
            return [PhrasePlace(start)]
    return []


def _counts(plain: str, phrase: re.Match[str], phrases: Phrases) -> bool:
    """Return whether a phrase commits to an answer: no quotation, question or supposition."""
    folded, (start, end) = phrase.string, phrase.span()
    if not folded[end:].strip(_LEAD + ".") and not phrases.answers.match(folded, start):
        return False
    before = folded[max(folded.rfind("\n", 0, start) + 1, start - _LINE) : start]
    if _is_quoted(before):
        return False
    broken = [m.end() for m in _BREAK.finditer(before)]
    stop = _sentence_end(plain, end)
    if phrases.supposes.search(before, broken[-1] if broken else 0):
        return False
    return plain[stop : stop + 1] != "?"


def _is_quoted(before: str) -> bool:
    for opened, closed in _OPENED.items():
        at = before.rfind(opened)
        if at >= 0 and not any(c in before[at + 1 :] for c in closed):
            return True
    return before.count('"') % 2 == 1


def _sentence_end(plain: str, start: int) -> int:
    last = min(len(plain), start + _LINE)
    end = _SENTENCE_END.search(plain, start, last)
    return end.start() if end else last


def clause(text: str) -> Clause | None:
    """Return what follows the phrase at the start of a text; None if there is no phrase."""
    phrases = phrases_of(text)
    if phrases is None:
        return None
    plain, folded = readable(text), fold(text)
    phrase = phrases.noun.match(folded) or phrases.weak.match(folded)
    if phrase is None:
        return None
    start = phrase.end()
    while start < len(folded) and folded[start] in _LEAD and not _is_sign(folded, start):
        start += 1
    is_open = ":" in folded[phrase.start() : start]
    if displayed := _DISPLAYED.match(text, start):
        return Clause(displayed[1] or displayed[2], text[start:], phrases, False, False, False)
    end = _sentence_end(plain, start)
    wrong = _is_called_wrong(plain, end, phrases)
    start, end, negated = _affirmed(folded, start, end, phrases)
    shown = text[start:end].strip(' \t\n*_"“”«»「」『』,;')
    spoken = _plain_spoken(shown, phrases)
    return Clause(spoken, text[start:], phrases, negated, wrong, is_open)


def _is_sign(folded: str, at: int) -> bool:
    return folded[at] == "-" and folded[at + 1 : at + 2].isdigit() and folded[at - 1] != "-"


def _affirmed(folded: str, start: int, end: int, phrases: Phrases) -> tuple[int, int, bool]:
    """The part of a clause that holds, and whether there is none: of "not 12 but 13" the end."""
    negated = phrases.no.match(folded, start, end)
    for but in phrases.but.finditer(folded, start, end):
        holds = negated or (but.start() > start and phrases.after.match(folded, but.start(), end))
        if holds and re.search(r"[\da-z\\]", folded[but.end() : end]):
            return but.end(), end, False
    if negated:
        return start, end, True
    for no in phrases.no.finditer(folded, start, end):
        if _DIGIT.search(folded, start, no.start()) and _DIGIT.search(folded, no.end(), end):
            comma = max(folded.rfind(mark, start, no.start()) for mark in ",;")
            return start, comma if comma > start else no.start(), False
    return start, end, False


def _is_called_wrong(plain: str, end: int, phrases: Phrases) -> bool:
    """Return whether the short sentence behind an answer says that it is wrong."""
    rest = plain[end : end + _SOON].lstrip(" .!\n*")
    sentence = fold(rest[: _sentence_end(rest, 0)])
    # A sentence with a number of its own is about that.
    return (
        size(sentence) <= _SHORT
        and not _DIGIT.search(sentence)
        and bool(phrases.wrong.search(sentence))
    )


def _plain_spoken(shown: str, phrases: Phrases) -> str:
    """Return an answer without the words that only end a sentence, such as `です`."""
    return shown[: len(without_polite(fold(shown), phrases))].rstrip(ENDS)


def letter(found: Clause) -> str | None:
    """Return the letter of an option in a few words without a number: "la B", `选项B`."""
    text = found.text
    letters = _LETTER.findall(text)
    if len(letters) != 1 or size(text) > 4 or _DIGIT.search(text) or "=" in text:
        return None
    folded, words = fold(text), found.phrases
    changed = words.after.search(folded) or words.joins.search(folded) or words.no.search(folded)
    return None if changed else str(letters[0])


# --- commitment -----------------------------------------------------------------------


def ends_in_negation(text: str, start: int, phrases: Phrases | None = None) -> bool:
    """Return whether the words directly before an answer negate it or join it to another."""
    phrases = phrases or phrases_of(text[max(0, start - _AROUND) : start + _SOON])
    if phrases is None:
        return False
    folded = fold(text[max(0, start - REACH) : start]).rstrip(" \t*_$([{\\")
    folded = _NAMED.sub("", folded).rstrip(" $(\\")
    start = max((m.end() for m in _BREAK.finditer(folded)), default=0)
    if any(
        size(folded[m.end() :]) <= most and not _DIGIT.search(folded, m.end())
        for words, most in ((phrases.no, 1), (phrases.before, 0))
        for m in words.finditer(folded, start)
    ):
        return True
    joins = (m for m in phrases.joins.finditer(folded, start) if m.end() == len(folded))
    return any(folded[: m.start()].rstrip(" $)}*")[-1:].isdigit() for m in joins)


def begins_with_refutation(text: str, end: int) -> bool:
    """Return whether the words directly behind an answer refute it, ask, or make it a bound."""
    phrases = phrases_of(text[max(0, end - _AROUND) : end + _SOON])
    if phrases is None:
        return False
    folded = fold(_CLOSED.sub("", readable(text[end : end + REACH]), count=1))
    broken = _BREAK.search(folded)
    near = folded[: broken.start() if broken else len(folded)]
    if broken and broken[0] == "?":
        return True
    found = (*phrases.wrong.finditer(near), *phrases.after.finditer(near))
    return any(size(near[: m.start()]) <= 2.5 for m in found)


def magnitude_after(text: str) -> str:
    """The magnitude that what follows a box begins with, as in `\boxed{5}万`; empty if none."""
    closed = _CLOSED.match(text)
    rest = text[closed.end() if closed else 0 :]
    length = magnitude_length(fold(rest))
    return rest[:length].strip()


# --- numbers --------------------------------------------------------------------------


def number(
    text: str, read: Callable[[str], str | None], phrases: Phrases | None = None
) -> FoundNumber | None:
    """Return the last number of a text, with its unit; None if the text is read as English.

    A number that a word next to it changes is given with the words around it, as another answer.
    """
    phrases = phrases or phrases_of(text)
    if phrases is None:
        return None
    plain = readable(text)
    digits = [m.start() for m in _DIGIT.finditer(plain)]
    while digits and (cut := _start_of_item(text, digits[-1])):
        plain, text = plain[:cut], text[:cut]
        digits = [digit for digit in digits if digit < cut]
    if not digits:
        return FoundNumber(None) if is_latin(phrases) or not _is_mostly_ascii(plain) else None
    ends = [m.start() for m in _SENTENCE_END.finditer(plain)]
    start = max((end + 1 for end in ends if end < digits[-1]), default=0)
    end = min((end for end in ends if end > digits[-1]), default=len(plain))
    if not is_latin(phrases) and _is_mostly_ascii(plain[start:end]):
        return None
    if plain[end : end + 1] == "?" or _goes_on(plain, end, phrases):
        return FoundNumber(None)
    masked = _masked(plain[:end])
    found = read(masked)
    at = masked.rfind(found) - start if found else -1
    if not found or at < 0:
        return FoundNumber(found)
    if not _commits(plain[start:end], at, phrases):
        return FoundNumber(None)
    sentence = _Sentence(text[start:end], phrases)
    if _is_called_wrong(plain, end, phrases):
        return FoundNumber(f"not {sentence.stated(at, at + len(found))}")
    return FoundNumber(sentence.stated(at, at + len(found)))


def _start_of_item(text: str, digit: int) -> int:
    """Where the line begins whose only number is that of a list item; 0 if it has another one."""
    line = text.rfind("\n", 0, digit) + 1
    number = _NUMBER.search(text, line)
    if not number or number.end() != digit + 1:
        return 0
    return line if begins_item(text, *number.span()) else 0


def _commits(sentence: str, at: int, phrases: Phrases) -> bool:
    """Whether no phrase before a number takes it back: "if the answer is", in quotation marks."""
    found = list(phrases.noun.finditer(fold(sentence), 0, at + 1))
    return not found or _counts(sentence, found[-1], phrases)


def _is_mostly_ascii(plain: str) -> bool:
    """Return whether a text has more English words than letters of other scripts."""
    return len(_ASCII_WORD.findall(plain)) > len(_FOREIGN_LETTER.findall(plain))


def _goes_on(plain: str, end: int, phrases: Phrases) -> bool:
    """Return whether the next sentence begins with "then": the number is that of a step."""
    return bool(phrases.next.match(fold(plain[end : end + _SOON]).lstrip(" .!\n*,")))


def _masked(plain: str) -> str:
    """Return a sentence in which letters beyond ASCII are plain ones, or `§`."""
    plain = _SEPARATOR.sub(";", plain)
    return _FOREIGN_LETTER.sub("§", _LATIN_LETTER.sub(_without_accent, plain))


def _without_accent(letter: re.Match[str]) -> str:
    return unicodedata.normalize("NFD", letter[0])[0]


class _Sentence:
    """A sentence with the words of its language, around a number."""

    def __init__(self, text: str, phrases: Phrases) -> None:
        self._text = text
        self._folded = fold(text).replace("\\(", "  ").replace("\\)", "  ")
        self._phrases = phrases

    def stated(self, at: int, end: int) -> str:
        """Return the number at a place with its unit, or with all around it if this changes it."""
        first = max((m.end() for m in _BREAK.finditer(self._folded, 0, at)), default=0)
        closed = _CLOSED.match(self._folded, end)
        begin = closed.end() if closed else end
        broken = _BREAK.search(self._folded, begin)
        last = broken.start() if broken else len(self._folded)
        left = self._folded[max(first, at - _SOON * 2) : at].rstrip(" $*_{~")
        right, rest = self._folded[begin:last], self._folded[last:]
        if size(rest) <= _SHORT and self._phrases.wrong.search(rest):
            return f"not {self._text[at:end]}"
        if self._is_changed(left, right.strip()):
            return self._text[first:last].strip(" *_")
        unit = self._text[begin : begin + leading(self._text[begin:last])]
        number = self._text[at:end]
        if PERCENT_BEFORE.search(left[-8:]):
            return number + "%"
        if not unit.strip():
            return number
        return number + unit if begin == end else f"{number} {unit.strip()}"

    def _is_changed(self, left: str, right: str) -> bool:
        """Return whether words next to a number make it another answer."""
        phrases = self._phrases
        if phrases.after.search(right):
            return True
        changes = ((phrases.before, 2.0), (phrases.no, 2.5), (phrases.supposes, 3.0))
        for words, most in changes:
            for word in words.finditer(left):
                gap = left[word.end() :]
                if _OF_ANOTHER.search(gap):
                    continue
                if size(gap) <= most and not _DIGIT.search(gap):
                    return True
        numbers = list(_DIGIT.finditer(left))
        if not numbers:
            return False
        between = left[numbers[-1].end() :]
        if "=" in between or phrases.yields.search(between):
            return False
        if _OF_ANOTHER.search(between):
            return False
        joins = phrases.joins.pattern == NEVER or phrases.joins.search(between)
        return bool(joins) or not between.strip(" ,;")


# --- whole answers --------------------------------------------------------------------


def is_bare(text: str) -> bool | None:
    """Whether a text is an answer and nothing else; None if it has no foreign words to judge by."""
    if not has_foreign_words(text):
        return None
    plain = readable(text).strip()
    if "\\begin" in plain:
        return None
    if len(plain) > _LONGEST:
        return False
    if plain.endswith("?") or _SENTENCE_END.search(plain, 0, len(plain) - 1):
        return False
    phrases, folded, words = phrases_of(text), fold(plain), size(plain)
    if phrases and (phrases.noun.search(folded) or phrases.weak.search(folded)):
        return False
    if _DIGIT.search(plain):
        start = plain.lstrip(' *_(${[\\"“')
        before = _DIGIT.split(start, maxsplit=1)[0]
        first = next(iter(words_in(before)), "")
        begins = start.startswith(first) and is_foreign(first)
        if phrases and "zh" in phrases.names and _PREDICATE.search(folded):
            return False
        if words > _MOST_BEHIND or begins or ("=" not in before and has_foreign_words(before)):
            return False
        if _AFTERWARDS.search(plain) or _has_steps(folded, phrases):
            return False
        return None if start[:1].isalpha() else True
    has_verb = phrases and words > 1 and phrases.sentence.search(folded)
    return words <= _MOST_ALONE and not has_verb


def _has_steps(folded: str, phrases: Phrases | None) -> bool:
    """Return whether a number follows another with "in total" or the like between them."""
    numbers = list(_DIGIT.finditer(folded))
    first, last = numbers[0].end(), numbers[-1].start()
    return bool(phrases and phrases.yields.search(folded, first, last))


def is_sentence(text: str) -> bool:
    """Return whether a text in a foreign language is more than an answer."""
    return is_bare(text) is False


def gives_up(text: str) -> bool:
    """Return whether a text of another language ends with "I do not know"."""
    end = text[-200:].rstrip(" .!*\n。！")
    phrases = phrases_of(text[-_AROUND:])
    if phrases is None:
        return False
    folded = fold(end)
    return any(m.end() >= len(folded.rstrip()) - 2 for m in phrases.unsure.finditer(folded))
