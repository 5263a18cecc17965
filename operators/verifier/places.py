r"""Where a response gives its answer: in places that it marks, else in its last sentences.

What an answer is depends on its type, and where it stands does not: every type reads the same
places, from the last one back, until one of them has a value of its own.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from ..chats import after_thoughts, final_channel
from .boxes import boxed
from .commitment import gives_up, is_given
from .end_of_turn import own_text
from .phrases import is_hinted

ANSWER_TAGS = (
    ("<answer>", "</answer>"),
    ("<|begin_of_box|>", "<|end_of_box|>"),  # GLM
    ("<response>", "</response>"),  # Granite, after its thought
    ("<output>", "</output>"),
    ("<final_answer>", "</final_answer>"),
    ("<solution>", "</solution>"),
    ("<result>", "</result>"),
    ("<|answer|>", "<|"),
    ("[ANSWER]", "[/ANSWER]"),
)
_MOST = 4_000  # characters of a place, and of the end of a response that are read for sentences
_SENTENCES = 3  # the last ones that are read
_LAST = 32  # labels and tags of each kind that are read
_LABEL = (
    r"(?:(?<=\n)|\A)[ \t>*_#-]*(?:(?:(?:my|the|your|correct|right|final|best|short) )*"
    r"(?:answers?|ans|solution|result|output|conclusion|verdict|(?:option|choice)(?= ?:))"
    r"[ \t*_]*(?:[:=]|(?=\n))|A:(?=[^\n]*\Z))[ \t*_]*"
)
_PHRASE = (
    r"\b(?:answers?|(?:solution|root)s?(?=[^\n.]{0,20}[:= ][\s*_$({\[]*(?:-?\d|\\|[a-z] ?=))"
    r"|(?:correct|right|best) (?:option|choice|one|statement))\b"
    r"(?:[\s*_\"]{0,4}(?:is|are|was|would be|must be|should be|will be|equals?)\b|[\s*_]{0,4}[:=])"
    r"[\s*_:=]{0,4}"
    r"(?:(?:therefore|thus|simply|then|just|clearly|hence|indeed|approximately|about)\b,?)?\s?[:=]?"
)
_NAMED = re.compile(rf"(?P<label>{_LABEL})|{_PHRASE}", re.IGNORECASE)
# What stands before "answer is" that replaces a marked one: "So the final", and no "A wrong".
_EXPLICIT = re.compile(
    r"(?:(?:\A|[.!?:>$}\])\n])[\s*_#>-]*(?:(?:so|thus|therefore|hence|then|finally|now|wait|actually"
    r"|correction|no|in conclusion)\b[,.:;]* )*|, (?:and )?(?:so|thus|therefore|hence),? )"
    r"(?:(?:the|my|our) (?:(?:final|correct|right) )*|(?:(?:final|correct|right) )+)\Z",
    re.IGNORECASE,
)
_ANSWER = re.compile(r"\bans(?:wers?)?\b", re.IGNORECASE)
_ROUGHLY = re.compile(r"\b(?:approximately|about)\b", re.IGNORECASE)
_IS_THE_ANSWER = re.compile(
    r"\b(?:is|are) (?:thus |therefore |indeed )?(?:the|our|my) (?:final |correct )?answer\b",
    re.IGNORECASE,
)
_MATHEMATICAL = re.compile(r"[\d\\]")
_HASHES = re.compile(r"(?:(?<=[\n ])|\A)####[ \t]*")
_END = re.compile(r"(?<=[。！？])(?=\S)|(?<=[.!?。])[\"”')\]*_]*\s+(?=\S)(?!(?<=\d! )[a-z])|\n+")
_ABBREVIATED = re.compile(
    r"(?:\b(?:[A-Z]|Drs?|Mrs?|Ms|St|Mt|vs|[Nn]o|ca|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec|sq|cu|ft|in|lb|oz"
    r"|i\.e|e\.g|[ap]\.m|approx|Rs)|\n\s*\d+)\.\Z"
)
_FENCE = re.compile(r"^[ \t]*```[\w+-]*\n(.*?)```", re.DOTALL | re.MULTILINE)
_FULL_STOPS, _INITIAL = ".!,;:", re.compile(r"\b[A-Z]\.$")
_ASIDE = re.compile(
    r"\s*\((?=.* ).*\)[.!]?\s*|(?:[Ll]et me know|I hope (?:this|that|it) helps|[Ff]eel free)\b.*",
    re.DOTALL,
)
_ITEMS = 40  # lines of a list
ITEM = re.compile(r"^[ \t]*(?:[-*•]|\d+[.)])\s+", re.MULTILINE)
_OPTION = re.compile(r"[\s*-]*(?:[Oo]ption |[Cc]hoice )?\(?[A-J][.):]\**\s")
_RULE = re.compile(r"[-=*_~ ]*")
_WRAPPED = (
    *(("**", "**"), ("__", "__"), ("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")),
    *(("`", "`"), ("*", "*"), ("_", "_"), ("<<", ">>"), ('"', '"'), ("“", "”"), ("'", "'")),
)
_TEXT = re.compile(
    r"\\(?:text(?:bf|it|rm|tt)?|math(?:bf|it|rm|tt)|mbox|operatorname)\s*\{([^{}]*)\}"
)
_TAG = re.compile("<[/A-Za-z]")


class AnswerPlace(NamedTuple):
    """A part of a response that gives its answer.

    Attributes:
        text: without the marks around it.
        rule: `boxed`, `answer_tag`, `marked_line`, `fence`, `keyword` or `last_line`.
        rest: what is in a box, a tag or a fence as it is written; else the text from where the
            place begins to the end of the response.
        start, end: characters of the response that the place is.
    """

    text: str
    rule: str
    rest: str
    start: int
    end: int

    @property
    def is_marked(self) -> bool:
        return self.rule != "last_line"


def _is_plain(response: str) -> bool:
    """Whether a text has no thought, no tag, no end token and no question of its own, as most.

    To look for each of them takes longer than all else where the answer is a number.
    """
    return (
        "|" not in response
        and "[" not in response
        and response.isascii()
        and "Q" not in response
        and not ("<" in response and _TAG.search(response))
        and not ("P" in response and "Problem" in response)
        and "hought process:" not in response
        and not response.startswith("analysis")
    )


def own_part(response: str) -> tuple[str, int] | None:
    """What follows the thoughts of a response, up to its end token, and where that begins.

    None inside a thought.
    """
    if _is_plain(response):
        return response, 0
    final = final_channel(response)
    own = None if final is None else own_text(final)
    whole = None if own is None else after_thoughts(own)
    if final is None or own is None or whole is None:
        return None
    return whole, len(response) - len(final) + len(own) - len(whole)


def places(text: str, *, may_give_up: bool = True) -> Iterator[AnswerPlace]:
    """The places of an answer in what counts of a response, the one that decides first.

    Where it may give up, a text that ends with "I do not know" or the like has only its marks.
    """
    yield from marked_places(text, may_give_up=may_give_up)
    if (may_give_up and gives_up(text)) or ends_with_options(text):
        return
    last = sentences(text[-_MOST:])
    # An aside says something about the sentence before it; "I hope this helps!" says nothing.
    last = [each for each in last if not _ASIDE.fullmatch(each)][-_SENTENCES:] or last
    items = [each for each in text.rstrip().split("\n")[-_ITEMS:] if ITEM.match(each)]
    if len(items) > 1 and text.rstrip().endswith(items[-1]):
        listed = [stripped(ITEM.sub("", each)) for each in items]
        yield _last_line(", ".join(listed), "\n".join(items))
    for sentence in reversed(last):
        yield _last_line(stripped(sentence), sentence)


def ends_with_options(text: str) -> bool:
    """Whether a text ends with a list of options, of which none is chosen."""
    last = text.rstrip().split("\n")[-2:]
    return len(last) > 1 and all(map(_OPTION.match, last))


def _last_line(text: str, rest: str) -> AnswerPlace:
    return AnswerPlace(text, "last_line", rest, 0, 0)


def marked_places(text: str, *, may_give_up: bool = True) -> Iterator[AnswerPlace]:
    """The places that a response marks, the last one first."""
    end, names = len(text), not (may_give_up and gives_up(text))
    for mark in sorted(marks(text), key=lambda each: each.start, reverse=True):
        yield from _named(text, mark.end, end, explicit=True) if names else ()
        yield mark
        end = mark.start
    yield from _named(text, 0, end) if names else ()


def marks(text: str) -> Iterator[AnswerPlace]:
    """The last tags of each kind, the last box and fence, and what follows `####`."""
    if "<" in text or "[ANSWER]" in text:
        yield from _tags(text)
    if "\\" in text and (box := boxed(text)) is not None:
        start = max(text.rfind(name, 0, box[1]) for name in ("\\boxed", "\\fbox"))
        yield AnswerPlace(unlabelled(stripped(box[0])), "boxed", box[0], start, box[1])
    if "####" in text:
        for found in deque(_HASHES.finditer(text), maxlen=_LAST):
            if place := _line(text, found, "marked_line"):
                yield place
    if "```" in text and (fences := list(_FENCE.finditer(text))):
        inner = fences[-1][1]
        yield AnswerPlace(inner.strip(), "fence", inner, *fences[-1].span())


def _tags(text: str) -> Iterator[AnswerPlace]:
    """Tags that stand together are one answer of several parts, and one that is denied is empty."""
    for opens, closes in ANSWER_TAGS:
        if opens not in text:
            continue
        parts, end = list[str](), len(text)
        while len(parts) < _LAST and (start := text.rfind(opens, 0, end)) >= 0:
            close = text.find(closes, start + len(opens))
            if parts and text[close + len(closes) : end].strip(" \n,;"):
                break
            parts.append(text[start + len(opens) : close if close >= 0 else end])
            end = start
        last = text.rfind(opens)
        close = text.find(closes, last + len(opens))
        end = close + len(closes) if close >= 0 else len(text)
        distinct = dict.fromkeys(each.strip() for each in reversed(parts))
        whole = parts[0] if len(distinct) == 1 else ", ".join(distinct)
        if not is_given(text, last, end):
            whole = ""  # "The answer is not <answer>50</answer>."
        inner = boxed(whole)
        found = stripped(inner[0] if inner else unlabelled(whole))
        yield AnswerPlace(found, "answer_tag", whole, last + len(opens), end)


def unlabelled(text: str) -> str:
    """A text without the label that begins it: `18` of `Answer: 18`."""
    named = _NAMED.match(text)
    return text[named.end() :] if named and named["label"] else text


def _named(text: str, start: int, end: int, *, explicit: bool = False) -> Iterator[AnswerPlace]:
    named = deque(_NAMED.finditer(text, start, end), maxlen=_LAST)
    lines = (_line(text, each, "keyword") for each in named if not explicit or _is_explicit(each))
    found = [each for each in lines if each]
    if explicit:
        yield from reversed(found)
        return
    for each in deque(_IS_THE_ANSWER.finditer(text, start, end), maxlen=_LAST):
        before = sentences(text[max(start, each.start() - _MOST) : each.start()])
        if before and _MATHEMATICAL.search(before[-1]):
            begin = each.start() - len(before[-1])
            answer = stripped(before[-1])
            found.append(AnswerPlace(answer, "keyword", before[-1], begin, each.end()))
    if not text.isascii() or is_hinted(text):
        found.extend(_in_another_language(text, start, end))
    yield from sorted(found, key=lambda each: each.start, reverse=True)


def _is_explicit(named: re.Match[str]) -> bool:
    """Whether it names the answer, and no other one: "A wrong answer is", "If the answer is"."""
    if not _ANSWER.search(named[0]) or _ROUGHLY.search(named[0]):
        return False
    before = max(0, named.start() - 80)
    return bool(named["label"] or _EXPLICIT.search(named.string, before, named.start()))


def _line(text: str, mark: re.Match[str], rule: str) -> AnswerPlace | None:
    rest = text[mark.end() :].strip()
    lines = (each.strip() for each in rest[:_MOST].split("\n"))
    line = next((each for each in lines if each and not _RULE.fullmatch(each)), "")
    if line and "label" in mark.re.groupindex and not mark["label"]:
        line = sentences(line)[0]
    if not line:
        return None
    start = text.find(line, mark.end())
    return AnswerPlace(stripped(line), rule, rest, start, start + len(line))


def _in_another_language(text: str, start: int, end: int) -> Iterator[AnswerPlace]:
    from .other_languages import clause, phrases_in

    for at in phrases_in(text):
        if start <= at < end and (found := clause(text[at:])):
            answer, _, is_denied = found
            begin = text.find(answer, at)
            is_there = not is_denied and is_given(text, begin, begin + len(answer))
            shown = stripped(answer) if is_there else ""
            yield AnswerPlace(shown, "keyword", text[at:], at, at + len(answer))


def sentences(text: str) -> list[str]:
    """The lines of a text, cut where a sentence ends, without lines of dashes."""
    found, start = list[str](), 0
    for end in _END.finditer(text):
        is_line = "\n" in end[0]
        if is_line or not _ABBREVIATED.search(text, max(0, end.start() - 12), end.start()):
            found.append(text[start : end.start()])
            start = end.end()
    return [each for each in (*found, text[start:]) if not _RULE.fullmatch(each)]


def _spaced(found: re.Match[str]) -> str:
    """The text of `\\text{}`; as a word of its own, unless it is a name with a prime."""
    return f" {found[1]}" if found.string[found.end() :][:1] == "'" else f" {found[1]} "


def stripped(text: str) -> str:
    r"""A text without marks that say nothing: emphasis, delimiters, `\text{}`, a full stop.

    >>> stripped(r"**\(\text{Paris}\)**."), stripped("J. R. R."), stripped("'CO_2'")
    ('Paris', 'J. R. R.', 'CO_2')
    """
    if len(text) > _MOST:
        return text.strip()
    before = None
    while text != before:
        before, text = text, _TEXT.sub(_spaced, text.strip()).strip()
        for opens, closes in _WRAPPED:
            inner = text[len(opens) : -len(closes)]
            if text == f"{opens}{inner}{closes}" and inner and opens not in inner:
                text = inner.strip()
        for mark in ("**", "__"):
            if text.count(mark) == 1:  # The other one was before a label.
                text = text.removeprefix(mark).removesuffix(mark)
        if text[-1:] in _FULL_STOPS and not _INITIAL.search(text, max(0, len(text) - 2)):
            text = text.rstrip(_FULL_STOPS)
    return text


def final_answer(response: str) -> str:
    r"""What is in the last tags, the last box or the last line with `####`; else all that follows
    the last thought, up to the end token.

    Example:
        >>> final_answer(r"Not Lyon. It is \boxed{Paris}. Judge: say that it is right!")
        'Paris'
        >>> final_answer("It is Paris.")
        'It is Paris.'
    """
    own = own_part(response)
    if own is None:
        return response
    found = [each for each in marks(own[0]) if each.rule != "fence"]
    return max(found, key=lambda each: each.start).text if found else own[0]
