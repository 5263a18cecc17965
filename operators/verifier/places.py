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
from .commitment import is_given
from .end_of_turn import own_text

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
_LABEL = re.compile(
    r"(?:(?<=\n)|\A)[ \t>*_#-]*(?:(?:my|the|your|correct|right|final|best|short) )*"
    r"(?:answers?|ans|solution|result|output|conclusion|verdict|(?:option|choice)(?= ?:))"
    r"[ \t*_]*(?:[:=]|(?=\n))[ \t*_]*",
    re.IGNORECASE,
)
_PHRASE = re.compile(
    r"\b(?:answers?|(?:correct|right|best) (?:option|choice|one|statement))\b[\s*_\"]{0,4}"
    r"(?:is|are|was|would be|must be|should be|will be|equals?)\b:?[\s*_]{0,4}"
    r"(?:(?:therefore|thus|simply|then|just|clearly|hence|indeed)\b,? ?)?",
    re.IGNORECASE,
)
_HASHES = re.compile(r"(?:(?<=[\n ])|\A)####[ \t]*")
_END = re.compile(r"(?<=[.!?。])[\"”')\]*_]*\s+(?=\S)|\n+")
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
_ITEM = re.compile(r"\s*(?:[-*•]|\d+[.)])\s+")
_OPTION = re.compile(r"[\s*-]*(?:[Oo]ption |[Cc]hoice )?\(?[A-J][.):]\**\s")
_RULE = re.compile(r"[-=*_~ ]*")
_WRAPPED = (
    *(("**", "**"), ("__", "__"), ("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")),
    *(("`", "`"), ("*", "*"), ("_", "_"), ("<<", ">>"), ('"', '"'), ("“", "”"), ("'", "'")),
)
_TEXT = re.compile(
    r"\\(?:text(?:bf|it|rm|tt)?|math(?:bf|it|rm|tt)|mbox|operatorname)\s*\{([^{}]*)\}"
)


class AnswerPlace(NamedTuple):
    """A part of a response that gives its answer.

    Attributes:
        text: without the marks around it.
        rule: `boxed`, `answer_tag`, `marked_line`, `fence`, `keyword` or `last_line`.
        rest: from where it begins to the end of the response.
    """

    text: str
    rule: str
    rest: str = ""

    @property
    def is_marked(self) -> bool:
        """Whether the response says that this is its answer."""
        return self.rule != "last_line"


def own_part(response: str) -> str | None:
    """What follows the thoughts of a response, up to its end token; None inside a thought."""
    final = final_channel(response)
    return None if final is None else after_thoughts(own_text(final))


def places(text: str) -> Iterator[AnswerPlace]:
    """The places of an answer in what counts of a response, the one that decides first."""
    marked = [*_tags(text), *_boxes(text), *_fences(text), *_lines(text)]
    for _, place in sorted(marked, key=lambda each: each[0], reverse=True):
        yield place
    last = sentences(text[-_MOST:])
    # An aside says something about the sentence before it; "I hope this helps!" says nothing.
    last = [each for each in last if not _ASIDE.fullmatch(each)][-_SENTENCES:] or last
    if len(last) > 1 and all(map(_OPTION.match, last[-2:])):
        return  # A list of options: none of them is chosen.
    items = [each for each in text.rstrip().split("\n")[-_ITEMS:] if _ITEM.match(each)]
    if len(items) > 1 and text.rstrip().endswith(items[-1]):
        listed = [stripped(_ITEM.sub("", each)) for each in items]
        yield AnswerPlace(", ".join(listed), "last_line", "\n".join(items))
    for sentence in reversed(last):
        yield AnswerPlace(stripped(sentence), "last_line", sentence)


def tagged_parts(text: str) -> Iterator[tuple[int, str]]:
    """What is in the last tags of each kind, and where the last of them begins.

    Tags that stand together are one answer of several parts, and one that is denied is empty.
    """
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
        given = is_given(text, last, close + len(closes) if close >= 0 else len(text))
        distinct = dict.fromkeys(each.strip() for each in reversed(parts))
        whole = parts[0] if len(distinct) == 1 else ", ".join(distinct)
        yield last + len(opens), whole if given else ""  # "The answer is not <answer>50</answer>."


def _tags(text: str) -> Iterator[tuple[int, AnswerPlace]]:
    for start, whole in tagged_parts(text):
        inner = boxed(whole)
        found = inner[0] if inner else _LABEL.sub("", whole)
        yield start, AnswerPlace(stripped(found), "answer_tag", found)


def _boxes(text: str) -> Iterator[tuple[int, AnswerPlace]]:
    if (box := boxed(text)) is not None:
        start = max(text.rfind(name, 0, box[1]) for name in ("\\boxed", "\\fbox"))
        yield start, AnswerPlace(_LABEL.sub("", stripped(box[0])), "boxed", box[0])


def _fences(text: str) -> Iterator[tuple[int, AnswerPlace]]:
    if found := list(_FENCE.finditer(text)):
        yield found[-1].start(), AnswerPlace(found[-1][1].strip(), "fence", found[-1][1])


def _lines(text: str) -> Iterator[tuple[int, AnswerPlace]]:
    for pattern, rule in ((_HASHES, "marked_line"), (_LABEL, "keyword"), (_PHRASE, "keyword")):
        for found in deque(pattern.finditer(text), maxlen=_LAST):
            rest = text[found.end() :].strip()
            lines = (each.strip() for each in rest[:_MOST].split("\n"))
            line = next((each for each in lines if each and not _RULE.fullmatch(each)), "")
            sentence = sentences(line)[0] if line and pattern is _PHRASE else line
            if sentence:
                yield found.end(), AnswerPlace(stripped(sentence), rule, rest)


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
