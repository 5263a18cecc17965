"""Denials of an answer in other languages than English: the same scopes, with their words."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

from .denial_tables import on_one_line
from .denials_chinese import SIMPLER
from .denials_other_languages import DENIALS
from .languages import LANGUAGES
from .phrases import (
    Phrases,
    bounded,
    compiled,
    fold,
    folding,
    has_foreign_letters,
    languages_of,
    latin_languages,
    pattern,
    size,
)

_BEFORE, _AFTER = 300, 120  # characters that are read on each side
_SHOWN = 1_000  # characters before an answer, which show its language
_ENDS = re.compile(r"[.?!](?=[\s*\"”»」]|$)|\n|(?<=[\u3041-\u9fff])[.?!]|;")
_VARIABLE = re.compile(r"(?<![a-z'\\])(?:[b-df-hj-np-xz]|x)(?![a-z'])(?! ?=)")
_BREAK = re.compile(r"[\d,;:!?()]")
_NUMBER = re.compile(r"\d")
_QUESTION = re.compile(r"[^.!?;\n\d]*\?")
_ANY_NUMBER = r"[*$\\(]{0,3}[-−]?\d(?:[\d.,]*\d)?[*$\\)]{0,3}"
_PAUSE = re.compile(r"[,;:()–—](?!\d)")
_UNIT = re.compile(r"[^\d.;:!?()\n]{0,40}(?=[.!;\n]|$)")


class _Compiled(NamedTuple):
    before: re.Pattern[str]
    after: re.Pattern[str]
    says: re.Pattern[str]
    so: re.Pattern[str]
    certain: re.Pattern[str]
    sums: re.Pattern[str]
    other: re.Pattern[str]
    retracts: re.Pattern[str]
    throughout: re.Pattern[str]
    aside: re.Pattern[str]
    agrees: re.Pattern[str]
    named: re.Pattern[str]
    doubts: re.Pattern[str]
    doubts_after: re.Pattern[str]
    reports: re.Pattern[str]
    contrary: re.Pattern[str]
    unreal: re.Pattern[str]
    turns: re.Pattern[str]
    frames: re.Pattern[str]
    story: re.Pattern[str]


@lru_cache(maxsize=64)
def _compiled(names: tuple[str, ...]) -> _Compiled:
    letters = {point: letter for point, letter in folding().items() if point > 127}

    def words(field: str) -> re.Pattern[str]:
        parts = list[str]()
        for name in filter(DENIALS.__contains__, names):
            found = on_one_line(getattr(DENIALS[name], field))
            plain = found
            if field != "unreal":  # Compared with its accents.
                plain = found.translate(letters).translate(SIMPLER if "zh" in names else {})
            plain = plain.replace(" ?", "(?: )?").replace(" ", r"\s+")
            plain = plain.replace("#", _ANY_NUMBER)
            parts.append(bounded(plain, LANGUAGES[name]))
        return pattern(parts)

    return _Compiled(*(words(field) for field in _Compiled._fields))


def is_denied_there(text: str, start: int, end: int) -> bool | None:
    """Return whether the sentence around the answer text[start:end] takes it back, in its language.

    None where it may be English, too.
    """
    around = text[max(0, start - _SHOWN) : end + _AFTER]
    names = _names(around)
    if not names:
        return None
    if _takes_back(text, start, end, names):
        return True
    return None if any(LANGUAGES[name].scripts for name in names) else False


def _names(text: str) -> tuple[str, ...]:
    """Return the languages of a text, if only its words show them, that have words of denial."""
    found = languages_of(text) or (() if has_foreign_letters(text) else latin_languages(text))
    names = tuple(filter(DENIALS.__contains__, found))
    # Of several that a text may be in, those whose words for stories are known.
    return tuple(name for name in names if DENIALS[name].retracts) or names


_FEW = 1  # words in front of a number that is all that a sentence says


def _takes_back(text: str, start: int, end: int, names: tuple[str, ...]) -> bool:
    words = _compiled(names)
    left = _last_sentence(_folded(text[max(0, start - _BEFORE) : start], names))
    rest = _folded(text[end : end + _AFTER], names)
    right, following = _first_sentences(rest)
    if _QUESTION.match(rest):
        return True
    left, right, following = (words.certain.sub(" ", each) for each in (left, right, following))
    phrases = compiled(names)
    knows_stories = any(DENIALS[name].named for name in names)
    named = bool((words.named if knows_stories else phrases.noun).search(f"{left}0 {right}"))
    if not named and size(left) > _FEW and not DENIALS[names[0]].retracts:
        return False  # A sentence of the story: such words are not known there.
    if not named:
        left, right = words.story.sub(" ", left), words.story.sub(" ", right)
    if words.throughout.search(left):
        return True
    ends = [m.end() for m in words.so.finditer(left)]
    clause = left[max(ends, default=0) :]
    for turn in words.turns.finditer(clause):
        if not words.frames.search(clause, 0, turn.end()):
            clause = clause[turn.end() :]
            break
    short = following.strip(" ,")
    if words.agrees.match(right) or words.agrees.match(", " + short):
        return False
    answers = phrases.answers.search(right)
    if answers and size(right[: answers.start()]) <= 1:  # "13 is wrong, 12 is the answer"
        clause = _PAUSE.split(clause)[-1]
    after = _about_one_number(right)
    if words.before.search(clause) or words.after.search(after):
        return True
    if named and (words.doubts.search(clause) or words.doubts_after.search(after)):
        return True
    about_answer = named or not knows_stories
    meant = about_answer or not any(DENIALS[name].contrary for name in names)
    if (meant or words.contrary.search(left + right)) and _is_unreal(text, start, end, words):
        return True
    near = clause.rstrip(" $([{\\")
    near_cues = ((phrases.no, 1), (phrases.before, 0)) if about_answer else ((phrases.no, 0),)
    for cues, most in near_cues:
        gaps = [near[cue.end() :] for cue in cues.finditer(near)]
        if any(size(gap) <= most and not _BREAK.search(gap) for gap in gaps):
            return True
    nouns = [m.start() for m in phrases.noun.finditer(clause)] or [len(clause)]
    if words.says.search(clause, 0, nouns[-1]):
        return True
    if about_answer and words.reports.search(clause, 0, nouns[-1]):
        return True
    if _is_conditional(clause if about_answer else "", right, phrases, words):
        return True
    if words.retracts.match(short):
        return True
    return (
        len(short) < 40
        and not any(c.isdigit() for c in short)
        and bool(phrases.wrong.search(short))
    )


def _is_conditional(clause: str, right: str, phrases: Phrases, words: _Compiled) -> bool:
    """Whether an answer depends on a variable: "if n is odd", in front of it or behind it."""
    for condition in phrases.supposes.finditer(clause):
        what = clause[condition.end() :]
        if _VARIABLE.search(what) and not words.sums.search(what):
            return True
    found = phrases.supposes.finditer(right)
    return any(_VARIABLE.search(right, condition.end()) for condition in found)


def _is_unreal(text: str, start: int, end: int, words: _Compiled) -> bool:
    """Return whether the words around an answer, up to the next commas, say what would be."""
    left = _last_sentence(unicodedata.normalize("NFC", text[max(0, start - _BEFORE) : start]))
    right, _ = _first_sentences(unicodedata.normalize("NFC", text[end : end + _AFTER]))
    begins = [m.end() for pattern in (_PAUSE, words.so) for m in pattern.finditer(left.lower())]
    near = f"{left[max(begins, default=0) :]} {_PAUSE.split(right, maxsplit=1)[0]}"
    return bool(words.unreal.search(near.lower()))


def _about_one_number(right: str) -> str:
    """Return what follows an answer, up to the comma before another number."""
    number = _NUMBER.search(right)
    pauses = [m.start() for m in _PAUSE.finditer(right, 0, number.start())] if number else []
    return right[: pauses[-1]] if pauses else right


def without_other_number(text: str) -> str:
    """A text without another number behind its last one: "It is 12, that is 3 more than 9."."""
    tail = text[-_SHOWN:]
    names = _names(tail)
    if not names:
        return text
    text = text[: len(text) - len(tail)] + _without_speaker(tail, names)
    tail = text[-_SHOWN:]
    folded = _folded(tail, names)
    for other in reversed(list(_compiled(names).other.finditer(folded))):
        unit = _UNIT.match(folded, other.end())
        if not unit or _NUMBER.search(folded, unit.end()):
            continue
        begins = max((m.end() for m in _ENDS.finditer(folded, 0, other.start())), default=0)
        if not folded[begins : other.start()].strip():  # "The answer is 12. It cannot be 13."
            begins = _start_of_answer(folded, begins, names)
        numbers = [m[0] for m in _SHOWN_NUMBER.finditer(folded, begins, other.start())]
        if not numbers or set(numbers) & set(_SHOWN_NUMBER.findall(other[0])):
            return text
        at = len(text) - len(tail)
        return text[: at + other.start()].rstrip(" ,;—–(") + text[at + unit.end() :]
    return text


def _start_of_answer(folded: str, end: int, names: tuple[str, ...]) -> int:
    """Where the word for "answer" stands in the sentence that ends there; the end if nowhere."""
    line = max(folded.rfind("\n", 0, end) + 1, end - _BEFORE)
    ends = [m.end() for m in _ENDS.finditer(folded, line, end) if folded[m.end() : end].strip()]
    noun = compiled(names).noun.search(folded, max(ends, default=line), end)
    return noun.start() if noun else end


def _without_speaker(text: str, names: tuple[str, ...]) -> str:
    """Return a text that ends with "Paul says 12, and that is right" as with "12"."""
    words, folded = _compiled(names), _folded(text, names)
    numbers = list(_SHOWN_NUMBER.finditer(folded))
    if not numbers:
        return text
    first, end = numbers[-1].span()
    stop = end + len(_MEASURED.match(folded[end:])[0])  # type: ignore[index]
    rest = ", " + folded[stop:].lstrip(" ,.;\n–—")
    agreed = words.agrees.match(rest)
    if not agreed or words.after.search(rest[agreed.end() :]) or words.after.match(rest):
        return text
    begins = max((m.end() for m in _ENDS.finditer(folded, 0, first)), default=0)
    if not any(cue.search(folded, begins, first) for cue in (words.says, words.before)):
        return text
    first -= folded[first - 1 : first] in ("-", "−")
    return f"{text[:begins]}\n{text[first:stop].rstrip(' ,$')}."


_MEASURED = re.compile(r"[^\d.,;:!?()\n–—]{0,24}(?=[.,;–—\n])|")
_SHOWN_NUMBER = re.compile(r"\d(?:[\d.,]*\d)?")


def restart(folded: str, start: int, end: int, names: tuple[str, ...]) -> int:
    """Where, in a statement that denies an answer, another one begins that has a number; else 0."""
    words, folded = _compiled(names), _simpler(folded, names)
    found = (*words.so.finditer(folded, start, end), *words.turns.finditer(folded, start, end))
    begins = max((m.end() for m in found), default=0)
    return begins if begins and _NUMBER.search(folded, begins, end) else 0


def without_assurances(folded: str, names: tuple[str, ...]) -> str:
    """Return a text without words that only look like a denial: "there is no mistake"."""
    return _compiled(names).certain.sub(" ", _simpler(folded, names))


def assured_length(folded: str, names: tuple[str, ...]) -> int:
    """Return the length of a statement without words at its end that only assure it."""
    words, folded = _compiled(names), _simpler(folded, names)
    at = len(folded)
    for found in reversed(list(words.certain.finditer(folded))):
        if _NUMBER.search(folded, found.start()) or not _NUMBER.search(folded, 0, found.start()):
            break
        at = found.start()
    number = _NUMBER.search(folded)
    aside = words.aside.search(folded, number.end()) if number else None
    if aside and not _NUMBER.search(folded, aside.end()):
        at = min(at, aside.start())
    comma = folded.rfind(",", 0, at)  # "12, but that was not hard"
    if at < len(folded) and comma >= 0 and not _NUMBER.search(folded, comma, at):
        return comma
    return at


def agrees(rest: str, names: tuple[str, ...]) -> bool:
    """Return whether what follows an answer that somebody else gave says that it is right."""
    return bool(_compiled(names).agrees.match(rest))


def _folded(text: str, names: tuple[str, ...]) -> str:
    # A full stop stays one where white space is left out.
    return _simpler(fold(text.translate(_MARKS)), names)


_MARKS = str.maketrans("、*。｡।۔", "， ;;;;")


def _simpler(folded: str, names: tuple[str, ...]) -> str:
    return folded.translate(SIMPLER) if "zh" in names else folded


def _last_sentence(left: str) -> str:
    left = left.rstrip(" \n$([{\\").removesuffix("boxed").rstrip(" \n$([{\\")
    ends = [m.end() for m in _ENDS.finditer(left)]
    return left[max(ends, default=0) :] + " "


def _first_sentences(right: str) -> tuple[str, str]:
    """Return what follows an answer in its sentence, and the next sentence."""
    right = right.lstrip("$)}] ")
    end = _ENDS.search(right)
    if not end:
        return right, ""
    return right[: end.start()], _ENDS.split(right[end.end() :].lstrip(), maxsplit=1)[0]
