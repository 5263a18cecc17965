"""By which rule of the verifier an answer was found, and where it stands in the response."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from ...operators.mapper.math_verify_mapper import MathVerifyMapper
from ...operators.thoughts import after_thoughts, final_channel
from ...operators.verifier.answer import (
    _FINAL_ANSWER,
    _IS_THE_ANSWER,
    _KEYWORD,
    _SENTENCE_END,
    _TAIL,
    _affirmed,
    _clause,
    _final_answer,
    _inside_answer_tag,
    _is_bound,
    _is_sentence,
    _marked_line,
    _may_be_tagged,
    _options,
    _trailing_math,
    is_bare,
    last_place,
    readable_prose,
    tag_is_denied,
)
from ...operators.verifier.boxes import boxed
from ...operators.verifier.commitment import gives_up
from ...operators.verifier.ending import own_text
from ...operators.verifier.last_number import last_number


class FoundAnswer(NamedTuple):
    """What `extract_answer` finds in a response.

    Attributes:
        text: the answer, None where there is none.
        found_by: the rules that led to it, in order: `think` (after a thought), `answer_tag`, then
            one of `boxed`, `marked_line`, `bare`, `keyword`, `last_line` and `last_number`. Without
            an answer: `unclosed_think`, `gives_up` where the text takes all back, or none.
        start, end: characters of the response that are the answer, its last literal occurrence
            where the rule looked; None where the answer was rewritten or joined from parts.
    """

    text: str | None
    found_by: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None


def found_answer(response: str) -> FoundAnswer:
    r"""The answer in a response with the rule and the place; its text is that of `extract_answer`.

    Example:
        >>> found_answer(r"So it is \boxed{42}.")
        FoundAnswer(text='42', found_by=('boxed',), start=16, end=18)
    """
    before = list[str]()
    final = final_channel(response)
    own = None if final is None else own_text(final)
    text = None if own is None else after_thoughts(own)
    if final is None or own is None or text is None:
        return FoundAnswer(None, ("unclosed_think",))
    # What counts is the end of what precedes it.
    offset = len(response) - len(final) + len(own) - len(text)
    if offset:
        before.append("think")
    tagged = False
    if _may_be_tagged(text, own):
        whole = text
        text, inside = _inside_answer_tag(text)
        if inside:
            tagged = True
            before.append("answer_tag")
            offset += inside
            if tag_is_denied(whole, inside, text):
                return FoundAnswer(f"not {text.strip()}", tuple(before))
    found = _inside(text, tagged)
    if found.text is None:
        return FoundAnswer(None, (*before, *found.found_by) if found.found_by else ())
    at = None if found.start is None else found.start + offset
    end = None if found.end is None else found.end + offset
    return FoundAnswer(found.text, (*before, *found.found_by), at, end)


def answer_evidence(operator: MathVerifyMapper, table: pa.Table) -> dict[str, pa.Array]:
    """`found_by`, rules joined by commas, and `found_at`, such as `120:122`; texts.

    Args:
        operator: which graded the rows.
        table: with `response`.
    """
    responses = table["response"].cast(pa.string()).to_pylist()
    found = [FoundAnswer(None) if text is None else found_answer(text) for text in responses]
    places = [None if each.start is None else f"{each.start}:{each.end}" for each in found]
    return {
        "found_by": pa.array([", ".join(each.found_by) or None for each in found], pa.string()),
        "found_at": pa.array(places, pa.string()),
    }


def _inside(text: str, tagged: bool) -> FoundAnswer:
    """The answer in what counts of a response."""
    if "\\" in text and (box := boxed(text)) is not None:
        return _boxed(text, *box)
    if (marked := _marked_line(text)) is not None:
        return _marked(text, marked)
    stripped = text.strip()
    if not stripped:
        return FoundAnswer(None)
    if is_bare(stripped) or (tagged and _is_one_line(stripped)):
        answer = stripped if stripped.isdigit() else _affirmed(stripped, stripped, 0)
        return _placed(text, answer or stripped, "bare")
    tail = stripped[-_TAIL:]
    return _from_prose(tail, text, len(text.rstrip()) - len(tail))


def _boxed(text: str, answer: str, end: int) -> FoundAnswer:
    named = _final_answer(text, end)
    if named:
        last = list(_FINAL_ANSWER.finditer(text, end))[-1]
        return _first_placed(text, named, "keyword", last.end())
    opened = max(text.rfind(mark, 0, end) for mark in ("boxed", "fbox"))
    return _placed(text, answer, "boxed", opened, end)


def _marked(text: str, answer: str) -> FoundAnswer:
    for mark in ("####", "A:"):
        start = text.rfind(mark)
        end = text.find("\n", start)
        found = _placed(text, answer, "marked_line", start, len(text) if end < 0 else end)
        if start >= 0 and found.start is not None:
            return found
    return FoundAnswer(answer, ("marked_line",))


def _is_one_line(text: str) -> bool:
    return "\n" not in text and not _is_sentence(text[:_TAIL])


def _from_prose(tail: str, text: str, offset: int) -> FoundAnswer:
    """The answer in the end of a text that is prose; the tail begins at `offset`."""
    plain = readable_prose(tail)
    if gives_up(plain):
        return FoundAnswer(None, ("gives_up",))
    found, rule, start, end = _in_prose(plain)
    at = -1
    if found and start:
        at = plain.find(found, start)
        at = at if at >= 0 else last_place(plain, found)
    elif found and (rule == "last_number" or not _is_bound(found)):
        at = last_place(plain, found, end)
    answer = _affirmed(plain, found, at)
    if answer is None:
        return FoundAnswer(None)
    if plain != tail:  # Where marks are left out, only the order of texts is the same.
        return _placed(text, answer, rule, offset)
    if rule == "keyword" and start:
        return _first_placed(text, answer, rule, offset + start)
    return _placed(text, answer, rule, offset, offset + end)


def _in_prose(text: str) -> tuple[str | None, str, int, int]:
    """The answer, the rule that finds it, and the characters in which it looked."""
    keywords = list(_KEYWORD.finditer(text))
    if keywords and (found := _clause(text[keywords[-1].end() :])):
        return found, "keyword", keywords[-1].end(), len(text)
    named = list(_IS_THE_ANSWER.finditer(text))
    if named:
        end = named[-1].start()
        sentence = _SENTENCE_END.split(text[:end])[-1]
        bound = sentence.strip() if _is_bound(sentence) else None
        found = bound or _trailing_math(sentence) or last_number(sentence)
        if found or bound is not None:
            return found, "keyword", 0, end
    line = text.rstrip().rsplit("\n", 1)[-1]
    if _is_bound(line):
        return line.strip(), "last_line", 0, len(text)
    found = _options(text) or _trailing_math(line)
    if found:
        return found, "last_line", 0, len(text)
    return last_number(text), "last_number", 0, len(text)


def _placed(
    text: str, answer: str, rule: str, start: int = 0, end: int | None = None
) -> FoundAnswer:
    """With the last occurrence in a part of the text."""
    at = text.rfind(answer, max(start, 0), len(text) if end is None else end) if answer else -1
    return _with_place(answer, rule, at)


def _first_placed(text: str, answer: str, rule: str, start: int) -> FoundAnswer:
    """With the first occurrence after `start`: the answer stands right behind its keyword."""
    return _with_place(answer, rule, text.find(answer, start))


def _with_place(answer: str, rule: str, at: int) -> FoundAnswer:
    if at < 0:
        return FoundAnswer(answer, (rule,))
    return FoundAnswer(answer, (rule,), at, at + len(answer))
