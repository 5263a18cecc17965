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
from .notation import closes_at
from .phrases import is_hinted

# --- Whether the answer that is found is given ----------------------------------------
# It is not where its clause negates it directly ("is not 12", "12 is wrong"), offers another one
# beside it ("13 or 12", "neither 13 nor 12"), or asks ("is it 12?"). Doubts, conditions, and what
# others say are not read.

_NEAR_CHARACTERS = 80  # characters on each side of an answer

# Delimiters, and a name: `not $x = 12$`.
_OPENED = r"[ \t#*_$(\[{\\]*(?:[a-zA-Z]\w{0,3}(?:\([a-z]\))? ?= ?)?[ $(\\]*$"
_CLOSED = r"[\s*_$)\]}\\]*"
_RIGHT = r"(?:(?:the|our|my) )?(?:(?:final|correct|right) )*(?:answer|solution|correct|right)\b"
_NEGATED = re.compile(
    r"(?:\b(?:not|never|neither|nor|cannot|anything but|unlikely to be)|n['’]t|\\(?:lnot|neg)|¬)"
    rf"(?: (?:really|actually|possibly|exactly|be|been|equals?|to))*(?: {_RIGHT})?{_OPENED}",
    re.IGNORECASE,
)
_REFUTED = re.compile(
    rf"{_CLOSED}(?:(?:is|are|was|would be) (?:wrong|incorrect|not {_RIGHT})"
    rf"|(?:isn['’]t|wasn['’]t|can(?:not|['’]t) be) {_RIGHT})"
)
_DISOWNED = re.compile(r"[^\s{]\s*(?:\\text\{ ?)?\(\s?(?:incorrect|wrong|not correct|false)\s?\)")
# "$30 + $160 or 190" and "0.6 or 60%" are one answer.
_OR_BEFORE = re.compile(
    r"(?:\b(?:either|is|are|be|equals?|gets?)|[:=]) "
    rf"(?:[^.,;:+\n]|[.,](?=\S)){{0,50}}[\d)}}$*%](?: [a-z]+)? or {_OPENED}"
)
_OR_AFTER = re.compile(rf"{_CLOSED} or [*$\\(]{{0,4}}(?:boxed{{)?[-−]?\d(?![\d.,]*\\?%)")
_ASKED = re.compile(rf"{_CLOSED}(?: [^.,;:!?()\n\d]{{0,40}})?\?(?!\W*[Yy]es\b)")


def is_given(text: str, start: int, end: int) -> bool:
    """Whether the clause around the answer text[start:end] gives it, and it alone."""
    before, after = max(0, start - _NEAR_CHARACTERS), end + _NEAR_CHARACTERS
    if _NEGATED.search(text, before, start) or _OR_BEFORE.search(text, before, start):
        return False
    if _REFUTED.match(text, end, after) or _OR_AFTER.match(text, end, after):
        return False
    if _ASKED.match(text, end, after):
        return False
    if _DISOWNED.search(text, start, end):
        return False
    if text.isascii() and not is_hinted(text):
        return True
    from .other_languages import is_changed

    return not is_changed(text, start, end)


_GIVES_UP = re.compile(
    r"(?:\bI (?:could(?: not|n['’]t)|(?:can ?not|can['’]t) (?:tell|say|solve|answer|do|give one)"
    r"|(?:do not|don['’]t) know|give up|have no idea)\b|\banswer\b(?:[^.?\n]|\.\d){0,80}\?\s*No\b)"
    r"(?: (?:it|this|that|how|yet|for sure|the answer))?\W*$"
)
_END_CHARACTERS = 200
_NO_ANSWER = re.compile(
    r"\bI(?:['’]m| am) (?:unable|not able) to\b|\bI do(?: not|n['’]t) have enough\b"
    r"|\bno (?:definite|definitive|single|clear) answer\b"
    r"|\b(?:I )?can(?: ?not|['’]t) (?:determine|give|be (?:determined|worked out|known|answered))\b"
)


def gives_up(text: str) -> bool:
    """Whether a text ends with "I do not know" or the like. The number before it is then part of a
    question or of a case that was considered."""
    last = max(0, len(text) - _END_CHARACTERS)
    if _GIVES_UP.search(text, last) or _NO_ANSWER.search(text, last):
        return True
    if text.isascii():
        return False
    from .other_languages import gives_up as gives_up_there

    return gives_up_there(text)


# --- Where a response ends ------------------------------------------------------------
# A policy whose sampling does not stop goes on after its end token, or with another question of its
# own. What it writes there answers nothing that it was asked.

# Tokens that end a turn (ChatML, GPT-2, Llama, Gemma, Phi, DeepSeek, harmony, EXAONE, Seed-OSS,
# Command A, MiniMax, Granite), or begin the next one.
_TURN_ENDS = re.compile(
    r"<\|(?:im_end|endoftext|eot_id|eom_id|end_of_text|end|return|eot|eom|role_end|endofturn)\|>"
    r"|<\|(?:END_RESPONSE|END_OF_TURN_TOKEN)\|>|\[\|endofturn\|\]|\[EOS\]|\[e~\[|<seed:eos>|<eos>"
    r"|</s>|<end_of_turn>|<｜end▁of▁sentence｜>"
    r"|(?<=\S)\s*(?:<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>|<\|(?:user|observation)\|>)"
)
# Ticks, the end of a proof, and pictures say nothing about the answer before them.
_MARK = re.compile("[\u220e\u2611\u2705\u2713\u2714\u2728\u2b50\ufe0f\U0001f300-\U0001faff]")
_NEXT_QUESTION = re.compile(r"\n[ \t#*]*(?:Question|Problem|Q)[ \t*]*:")
_ANSWERED = re.compile(
    r"####\s*[^\s#]|\\(?:boxed|fbox)\s*\{[^}]|\b[Aa]nswer(?: is|:)\**\s*[^\s*]|(?:^|\n)A:[ \t]*\S"
)


_ITEM = re.compile(r"[1-9]\d?")
_ITEM_ENDS = ".．、)）"


def begins_item(text: str, start: int, end: int) -> bool:
    """Whether a number is the `4.` of a list item after `3.`, where a response was cut off."""
    if text[end : end + 1] not in tuple(_ITEM_ENDS) or not _ITEM.fullmatch(text, start, end):
        return False
    line = text.rfind("\n", 0, start) + 1
    if not line or text[line:start].strip(" \t*#"):
        return False
    previous = rf"^[ \t*#]*{int(text[start:end]) - 1}[{_ITEM_ENDS}](?!\d)"
    return bool(re.search(previous, text[:line], re.MULTILINE))


def own_text(response: str) -> str:
    """A response up to its end token, or to a question of its own after its answer."""
    t = response if response.isascii() else _without_marks(response)
    # A search for one character takes a hundredth of the time of a search for a pattern.
    marked = "|" in t or "_" in t or "｜" in t
    marked = marked or ("/" in t and "</s>" in t) or ("<" in t and "eos>" in t)
    marked = marked or ("[" in t and ("[E" in t or "[e~" in t))
    if marked and (end := _TURN_ENDS.search(t)):
        t = t[: end.start()]
    if ("Q" in t or ("P" in t and "Problem" in t)) and _NEXT_QUESTION.search(t):
        answered = _ANSWERED.search(t)
        question = _NEXT_QUESTION.search(t, answered.end()) if answered else None
        return t[: question.start()].rstrip() if question else t
    return t


def _without_marks(text: str) -> str:
    end = len(text)
    while end and (text[end - 1].isspace() or _MARK.match(text, end - 1)):
        end -= 1
    return text[:end]


# --- The last box ---------------------------------------------------------------------

# A response that was escaped once too often has two backslashes.
_BOX_PARTS = re.compile(r"\\{1,2}(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
_UNBRACED = re.compile(r"\\(?:boxed|fbox)\s+(-?[\d\\.][^\s$]{0,100}?)(?=[.,;:!?]?(?:[\s$]|\Z))")
# A minus before the box belongs to what is in it; any other operation around it does not.
_SIGN = re.compile(
    r"(?:(?:=|(?<!\\)\$|\\[(\[])\s*|(?<![^\n])(?=.\$?\Z|\\pm))([-−±]|\\pm)\s*\$?\s*$"
)
# A box that is an operand is a step, unless it was to be filled in, as in `3 + \boxed{12} = 15`.
_OPERATOR_BEFORE = re.compile(
    r"(?:[\^_]\{?|\\(?:sqrt|[dt]?frac|log|ln|cdot|times)(?:\{[^{}]*\})?\{?"
    r"|[+·×√\d]|(?<=[\w)}] )[-−*/]) ?$"
)
_OPERATOR_AFTER = re.compile(r" ?(?:[+·×]|\\(?:cdot|times|pi)|[xyz](?![a-zA-Z']))")
_EQUATED_AFTER = re.compile(r"[^=<>$\n]{0,30}=")
_LIST_GLUE = re.compile(
    r"(?:[\s,;$①-⑤]|\\[,;: ()]|\\q?quad|\\(?:text|mathrm)\s*\{\s*(?:and|or)?,?\s*\}|and|or)*"
)
_NEXT_ITEM = re.compile(
    r"[\s.,;$]*\n[ \t*-]*(?:(?:candidate|option|choice|possibility|guess) ?\w{1,2}|\(?[a-z]\)?)"
    r"[.):][\s$]*",
    re.IGNORECASE,
)
_DEEP = 64  # pairs of braces
_LONG = 4_000  # a longer content is refused, in braces or not
_CUT_OFF = re.compile(r"(?<=\d)\.{3,}$")


def boxed(text: str) -> tuple[str, int] | None:
    """The answer in the last box, and where the box ends."""
    if "\\boxed" not in text and "\\fbox" not in text:
        return None
    spans = _box_spans(text)
    if not spans:
        unbraced = list(_UNBRACED.finditer(text))
        return (unbraced[-1][1], unbraced[-1].end()) if unbraced else None
    start, inner, end = spans[-1]
    last = _peel(text[inner:end])
    if last and not text.isascii():
        from .other_languages import magnitude_after

        last = f"{last} {magnitude_after(text[end + 1 : end + 20])}".strip()
    first, contents = _listed(text, spans, last)
    answer = ", ".join(contents)
    if last and (sign := _SIGN.search(text, max(0, start - 24), start)):
        first, answer = start, f"{sign[1]}({last})"
    if not answer:
        return None
    is_part = _is_operand(text, start, end + 1) or not is_given(text, first, end + 1)
    return f"not({answer})" if is_part else answer, end + 1


def _is_operand(text: str, start: int, end: int) -> bool:
    before, after = text[max(0, start - 40) : start], text[end : end + 40]
    is_part = _OPERATOR_BEFORE.search(before) or _OPERATOR_AFTER.match(after)
    return bool(is_part) and not _EQUATED_AFTER.match(after)


def _listed(text: str, spans: list[tuple[int, int, int]], last: str) -> tuple[int, list[str]]:
    """Where the first box begins of those that form one list with the last, and their contents."""
    contents, following = [last], spans[-1][0]
    for start, inner, end in reversed(spans[:-1]):
        if end > following:
            continue  # It is nested in the box that follows.
        if not _joined(text, end + 1, following):
            break
        contents.append(_peel(text[inner:end]))
        following = start
    return following, list(dict.fromkeys(reversed(contents)))


def _joined(text: str, end: int, start: int) -> bool:
    if start - end > 40:
        return False
    return bool(_LIST_GLUE.fullmatch(text, end, start) or _NEXT_ITEM.fullmatch(text, end, start))


def _box_spans(text: str) -> list[tuple[int, int, int]]:
    """(start, content start, content end) of every balanced box, in order of their ends."""
    stack: list[tuple[int, int] | None] = []
    spans = list[tuple[int, int, int]]()
    for token in _BOX_PARTS.finditer(text):
        mark = token[0]
        if mark == "{":
            stack.append(None)
        elif mark == "}":
            if stack and (opened := stack.pop()):
                spans.append((*opened, token.start()))
        elif mark[-1] == "{" and len(mark) > 2:
            stack.append((token.start(), token.end()))
    return spans


def _peel(content: str) -> str:
    content = content.replace("\\boxed", "").replace("\\fbox", "").strip()
    for _ in range(_DEEP):
        # One pair of braces is around it all, unlike in `{1,2} \setminus {2}`.
        if content[:1] != "{" or len(content) > _LONG or closes_at(content, 0) < len(content) - 1:
            break
        content = content[1:-1].strip()
    return _CUT_OFF.sub(r"\\ldots", content) if content.endswith("...") else content


# --- The places -----------------------------------------------------------------------

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
    """A part of a response that gives its answer, from `start` to `end`.

    `rest` is what is in a box, a tag or a fence as it is written; else the text from where the
    place begins to the end of the response.
    """

    text: str  # without the marks around it
    rule: str  # `boxed`, `answer_tag`, `marked_line`, `fence`, `keyword` or `last_line`
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
