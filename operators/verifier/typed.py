"""The type of a reference, and whether a response has an answer of its type that equals it.

Numbers and expressions are the business of `answer` and `structure`; JSON and choices are here.
"""

from __future__ import annotations

import json
import math
import re
from enum import Enum
from functools import lru_cache
from operator import eq
from typing import Any

from .amounts import MONEY, PERCENT, QUANTITY, Amount, is_near
from .answer_types import AnswerRules, Conventions, Mention
from .calendar_answers import DATE, TIME, Date
from .fractions_and_decimals import read_number, refusal
from .lists import REALS, read_collection
from .notation import plain
from .phrases import has_foreign_words
from .places import AnswerPlace, is_given, own_part, places, sentences, stripped
from .structure import is_nothing, is_prose
from .texts import DOTS, equal_texts, gives_list, gives_text, is_grid, items_of
from .words import listed

# --- JSON -----------------------------------------------------------------------------

_DECODER = json.JSONDecoder()
_JSON_OPENING = re.compile(r"[{\[]")
_MOST_OPENINGS = 100  # brackets that are tried


def read_json(text: str) -> Any | None:
    try:
        found = json.loads(text) if text[:1] in ("{", "[") else None
        _json_key(found)
    except (ValueError, RecursionError):
        return None
    return found


def _is_structured(value: Any) -> bool:
    """Whether it is more than a list of numbers, which has other notations: `[0, 1]`, `(1, 2)`."""
    is_numbers = isinstance(value, list) and value and {*map(type, value)} <= {int, float}
    return isinstance(value, dict | list) and not is_numbers


def _json_mentions(text: str) -> list[Mention]:
    found, at = list[Mention](), 0
    unescaped = text.replace("\\{", "{").replace("\\}", "}")
    if len(unescaped) < len(text) and "{" not in text.replace("\\{", ""):
        text = unescaped  # In a box of LaTeX, braces are escaped.
    for _ in range(_MOST_OPENINGS):
        if not (opening := _JSON_OPENING.search(text, at)):
            break
        try:
            value, end = _DECODER.raw_decode(text, opening.start())
            found.append(Mention(_json_key(value), opening.start(), end))
        except json.JSONDecodeError as error:
            end = max(opening.end(), error.pos)  # What is in a broken value is no value.
        except (ValueError, RecursionError):
            break  # Longer or deeper than any answer.
        at = end
    return found


def _json_key(value: Any) -> Any:
    """A value as what can be compared: 15 is 15.0, and neither is True or "15"."""
    if isinstance(value, dict):
        return ("{", frozenset((name, _json_key(each)) for name, each in value.items()))
    if isinstance(value, list):
        return ("[", tuple(_json_key(each) for each in value))
    return (isinstance(value, bool), isinstance(value, str), value)


JSON = AnswerRules(lambda text: _is_structured(read_json(text)), _json_mentions, equal=eq)
"""The names of an object have no order; a list has one. `15` is `15.0`, and is not `"15"`."""


# --- Choices --------------------------------------------------------------------------

_JOIN = (
    r"(?:\s*(?:[,;/&|和、–-]|或者?)\s*(?:and |or |& )?|\s+(?:and|or|to|through|&|oder|ou|или)\s+"
    r"|\s*\\(?:lor|vee|land|wedge|c[au]p|cdot|times)\s+)"
)
_ONE_LETTER = r"[(\[]?[A-Ja-d][)\]]?"
_ABC = r"A?B?C?D?E?F?G?(?<=[A-G][A-G])"
_WHOLE_CHOICE = re.compile(
    rf"{_ABC}|\(?(?:[A-J]|[a-d])\)?[.):]?|\(?[A-J](?:\)|[.:](?=\s)).*"
    rf"|\(?[A-J]\)?(?:{_JOIN}\(?[A-J]\)?)+"
)
_LABELLED = re.compile(
    rf"\b(?:option|choice|alternative|answer|statement)s?:?[\s*_\"]+({_ONE_LETTER}(?:{_JOIN}{_ONE_LETTER})*)(?![\w'’])",
    re.IGNORECASE,
)
# What begins a marked place: `C`, `(c)`, `C) 12`, `C: text`, `A, C and D`; not "A dog".
_BEGINS_WITH_LETTERS = re.compile(
    rf"\W*({_ABC}|{_ONE_LETTER}(?:{_JOIN}{_ONE_LETTER}(?![\w.]))*)(?!{_JOIN}[A-J]\b)(?=$|\\[}})]|[.):\]}},$]|\*\*|__|\s*[:：(（\n]|\s*[-–—](?=\s*[A-Za-z]{{2}})|\s+(?:is|because|as|since)\b)"
)
_BRACKETED = re.compile(r"(?<!\w)[(\[]([A-Ja-e])[)\]]")
_ALONE = re.compile(
    rf"(?<![A-Za-z0-9'’.=-])(?<!= )(?!A\s+(?!or\b|and\b)[a-z]|I\b)({_ABC}|[A-J](?:{_JOIN}[A-J])*)"
    r"(?![A-Za-z0-9]|['’](?!d[ıi]r)|\.\w|_|\s*[-+*/^=<>]\s*[\w\\(])"
)
_LETTER = re.compile(r"(?<![A-Za-z])[A-Ja-j](?![A-Za-z])")
_UNSURE = re.compile(
    r"\b(?:might|may|maybe|perhaps|possibly|could|or)\b[^.]*\b[A-J]\b|\b[A-J] (?:might|may|could)\b"
)
_REJECTED = re.compile(
    r"(?:\\[a-z]+|[≠¬]) *\Z|\b(?:not|never|n['’]t|cannot) (?:choose|pick|select|take)\W*\Z"
    r"|\b(?:all but|except|(?:exclud|eliminat)(?:e|ing)|rul(?:e|ing) out)(?: option)?\W*\Z",
    re.IGNORECASE,
)
_OR = re.compile(r"\b(?:or|oder|ou|или)\b|[/\\或]")


def _letters(text: str) -> frozenset[str]:
    """Several letters that are joined by "or" are none of them."""
    run = text.isascii() and text.isalpha() and text.isupper()
    found = frozenset(text if run else (each.upper() for each in _LETTER.findall(text)))
    return found | {"or"} if len(found) > 1 and _OR.search(text) else found


def _letter_mentions(text: str) -> list[Mention]:
    if (found := _BEGINS_WITH_LETTERS.match(text)) and is_given(text, *found.span(1)):
        if _UNSURE.search(text, found.end()):
            return [Mention("several", *found.span(1))]
        return [Mention(_letters(found[1]), *found.span(1))]
    options = [
        [(_letters(each[1]), each) for each in pattern.finditer(text)]
        for pattern in (_LABELLED, _BRACKETED, _ALONE)
    ]
    denied = {letters for found in options for letters, each in found if _is_denied(text, each)}
    kept = ([Mention(a, *m.span(1)) for a, m in found if a not in denied] for found in options)
    return next(filter(None, kept), [])


def _is_denied(text: str, letter: re.Match[str]) -> bool:
    rejected = _REJECTED.search(text, max(0, letter.start(1) - 40), letter.start(1))
    return bool(rejected) or not is_given(text, *letter.span(1))


CHOICE = AnswerRules(lambda text: bool(_WHOLE_CHOICE.fullmatch(text)), _letter_mentions, equal=eq)
"""Letters of options, in any case, with the text of the option or without; their order is free."""

# --- Yes and no -----------------------------------------------------------------------

_YES = listed("yes sí oui ja да sim evet tak 是 是的 对 はい 네 예")
_NO = listed("no non nein não нет nej nie hayır 不 不是 否 いいえ 아니요 아니오")
_MEANS = dict.fromkeys(_YES, "yes") | dict.fromkeys(_NO, "no") | {"true": "true", "false": "false"}
_DENIAL_REACH = 200  # characters before a word
_DENIED_YES_NO = re.compile(r"\b(?:not|whether|if)\b(?: \w+){0,2} \Z|n['’]t\b(?: \w+){0,3} \Z")
_OTHER_YES_NO = "|".join(word for word in _MEANS if word not in ("yes", "no"))
_BOTH = re.compile(
    r"\b(?:yes|true)(?:[\s-](?:and|or)[\s-]| ?[/|&] ?)(?:also )?(?:no|false)\b|\btrue or not\b"
    r"|\bneither (?:an? )?(?:yes|no|true|false)\b"
    rf"|\A(?:{_OTHER_YES_NO})[\s/|,]+(?:aber |mais |pero |но )?(?:{_OTHER_YES_NO})(?=\W|\Z)",
    re.IGNORECASE,
)
_YES_OR_NO = re.compile(
    r"(?<!say )(?<!says )\b(?:yes|true|false"
    r"|no(?=\W*\Z|\.(?! ?\d)|[,;:!*\"')/|&]| (?:yes|if|in some|otherwise)\b| [-–—|/&<=>]))\b"
    rf"|\A(?:{_OTHER_YES_NO})(?=\W|\Z)",
    re.IGNORECASE,
)


def begins_with_it(text: str) -> bool:
    """Whether a text begins with yes or no, true or false, on which it enlarges."""
    return bool(_YES_OR_NO.match(text, len(text) - len(text.lstrip(" \n*_"))))


def _yes_or_no(text: str) -> list[Mention]:
    if _BOTH.search(text):
        return [Mention("both", 0, len(text))]
    given = [
        each
        for each in _YES_OR_NO.finditer(text)
        if is_given(text, *each.span())
        and not _DENIED_YES_NO.search(text, max(0, each.start() - _DENIAL_REACH), each.start())
    ]
    return [Mention(_MEANS[each[0].lower()], *each.span()) for each in given]


def _is_that(answer: object, wanted: object) -> bool:
    return answer == wanted or (answer, wanted) in {("yes", "true"), ("no", "false")}


BOOLEAN = AnswerRules(lambda text: text.lower() in _MEANS, _yes_or_no, equal=_is_that)
"""Yes or no, in any of these languages; true or false, which yes and no say, too."""


# --- Types ----------------------------------------------------------------------------


class AnswerType(str, Enum):
    """What an answer is: which rules find it, and which compare it."""

    NUMBER = "number"
    EXPRESSION = "expression"
    CHOICE = "choice"
    BOOLEAN = "boolean"
    DATE = "date"
    TIME = "time"
    PERCENT = "percent"
    MONEY = "money"
    QUANTITY = "quantity"
    JSON = "json"
    LIST = "list"
    TEXT = "text"


_RULES: dict[AnswerType, AnswerRules] = {
    AnswerType.BOOLEAN: BOOLEAN,
    AnswerType.CHOICE: CHOICE,
    AnswerType.DATE: DATE,
    AnswerType.TIME: TIME,
    AnswerType.PERCENT: PERCENT,
    AnswerType.MONEY: MONEY,
    AnswerType.QUANTITY: QUANTITY,
    AnswerType.JSON: JSON,
}
"""Types that show what they are, in the order in which a reference is tried."""
COMPUTED = (AnswerType.NUMBER, AnswerType.EXPRESSION)
MEASURED = (AnswerType.TIME, AnswerType.PERCENT, AnswerType.MONEY, AnswerType.QUANTITY)
"""Where an answer has no value of its type, such as a number without its unit, it is computed."""

_WORD = re.compile(
    r"(?<![\\A-Za-z])(?=[^\W\d_]*[aeiouyAEIOUY\u00c0-\u02ff\u0400-\uffff])[^\W\d_]{3,}"
)
_MATHS = re.compile(
    r"(?:(?:a(?:rc)?)?(?:sin|cos|tan|cot|sec|csc)h?|log|ln|lg|det|lim|sqrt|exp|pi|and|or|mod"
    r"|max|min|gcd|lcm"
    r"|inf(?:ty|inity)?)\b"
)
_PROSE = re.compile(r"(?<![^\s*])[^\W\d_²³]{2,}(?=[\s:,*]|\Z)")
_LINK = re.compile(
    r"(?:is|are|so|thus|hence|therefore|then|gives?|gets?|have|finds?|yields?|obtain|makes?|becomes)\b"
    r"|\w+(?=:)",
    re.IGNORECASE,
)
_CONCLUDES = re.compile(r"(?:so|thus|hence|therefore)\b", re.IGNORECASE)
# CO2, NaCl, H_2SO_4; a3, Nf3; #1, v2; 2+x is none of them.
_SIGNED = re.compile(r"[=<>^+*/|≤≥√∪∩∈°%]|\\[a-zA-Z]|\d[a-z]|(?<!\w)-?\d|\d\s*,")
_NAMED = re.compile(
    r"[A-Za-z]{2,}(?:_[A-Za-z]{2,})+|(?=.*[a-z\d])(?:[A-Z][a-z]?_?\{?\d*\}?){2,}(?:[+-]|\^.*)?|[A-Za-z]{1,3}\d+[A-Za-z]*[+-]?"
    r"|[A-Z][a-z][+-]"
)
# CC(=O)O, c1ccccc1: no formula of mathematics has a sign of equality or a ring like these.
_MOLECULE = re.compile(
    r"(?=.*(?:\([=#]|[Cc]1=?[Cc]))(?:\[[\w@+-]+\]|Br|Cl|[BCNOPSFIHcnops]|[=#()\d@+/\\-])+"
)
_COMPARED = re.compile(
    r",? (?:though|although|whereas|while|unlike|instead of|rather than|compared (?:to|with))\b"
    r"| \((?=[a-z])"
)
_FRACTION = re.compile(r"(?<![\d.,/])(\d+)\s*/\s*(\d+)(?![\d.,/])|frac\{(\d+)\}\{(\d+)\}")
_RANGE = re.compile(r"\d+(?:[-–—]\d+)+|\d+(?:/\d+){2,}")
_QUOTED = re.compile(r"(?<![\w}\)])['\"][^\W\d]")  # and no derivative
_COMMAND = re.compile(r"\\[a-zA-Z]+\Z")
_ENDS = re.compile(r"[.!?]\s")
_ENUMERATED = re.compile(r"\bor\b|/|\beither\b|\A[\s\\%$]*(?:[,|&>-]+|and|)[\s\\$]*\Z")
_BUT = re.compile(r"(?:\bnot|n['’]t)\b(?! only)[^.;]*?,? but\b")
_RELATIVE = re.compile(r"\b(?:before|after|until|not (?:on|at|in)) (?:the )?\Z", re.IGNORECASE)
_BOUND = re.compile(r"(?<!no )(?<!not )\b(?:more|less|fewer|greater|lower|higher) than \W*\Z")
_LATEX_WORD = re.compile(r"\\(?:begin|end|frac|text|left|right|mathrm|ce)\b|\\[a-zA-Z]+")


@lru_cache(maxsize=4096)  # The responses of a group have one reference.
def type_of(reference: str) -> AnswerType:
    """The type of a reference, by itself."""
    text = stripped(reference)
    if reference.isdecimal() or is_nothing(text) or text in REALS:
        return AnswerType.NUMBER
    for each, rules in _RULES.items():
        if rules.takes(text):
            return each
    if _NAMED.fullmatch(text) or _MOLECULE.fullmatch(text) or "\\ce" in reference:
        return AnswerType.TEXT
    if is_grid(text) or ("," in text and DOTS.search(text)):
        return AnswerType.TEXT  # A sequence that goes on.
    if refusal(reference) or read_number(reference):
        return AnswerType.NUMBER
    if has_foreign_words(text) and not re.search(r"[\d\\=]", text):
        return AnswerType.TEXT
    if _is_mathematics(reference, text):
        return AnswerType.EXPRESSION
    items = items_of(text)
    is_list = len(set(items)) > 1 and not re.search(r"[.:=(]", text.strip(" .;"))
    return AnswerType.LIST if is_list else AnswerType.TEXT


def _is_mathematics(reference: str, text: str) -> bool:
    if _RANGE.fullmatch(text) or _QUOTED.search(text) or ("\n" in text and "\\" not in text):
        return False  # A telephone number, a range; texts; a grid, a program.
    bare = _LATEX_WORD.sub(" ", text)
    words = _words(bare)
    if words and not _is_measured(text):
        found = read_collection(plain(reference))
        return bool("\\begin" in reference or (found and found.kind != "list" and len(words) < 2))
    return bool(_SIGNED.search(text)) or not (words or re.search("[A-Z][a-z]", bare))


def _words(text: str) -> list[str]:
    return [each for each in _WORD.findall(text) if not _MATHS.fullmatch(each.lower())]


def _is_measured(text: str) -> bool:
    """Whether its words are a unit behind a number or a formula: `12 apples`, `3x meters`."""
    return not is_prose(plain(text)) and bool(re.match(r"[-−+$(\\]*\d", text))


def takes(kind: AnswerType, reference: str) -> bool:
    if kind is AnswerType.NUMBER:
        return read_number(reference) is not None
    rules = _RULES.get(kind)
    return rules is None or rules.takes(stripped(reference))


def grade(
    response: str, reference: str, kind: AnswerType, conventions: Conventions
) -> tuple[bool | None, str | None]:
    """Whether a response answers with the reference, and its answer; None: it has none."""
    if (part := own_part(response)) is None:
        return None, None
    own, _ = part
    rules = _RULES.get(kind)
    if rules is None:
        return _by_text(own, reference, kind, conventions)
    wanted = rules.mentions(stripped(reference))[0].value
    for place in places(own):
        text = place.text
        if kind is AnswerType.JSON:  # It may have many lines.
            text = place.rest if place.is_marked else own
        elif kind is AnswerType.BOOLEAN and not place.is_marked and begins_with_it(own):
            text = sentences(own)[0]  # "No. It would be true if ..."
        every = rules.mentions(text)
        # "At 3:30 pm, 2 hours later": a clock is asked for, and not a duration.
        found = [each for each in every if type(each.value) is type(wanted)] or every
        if not place.is_marked:
            found = [each for each in found if _measures(each.value) == _measures(wanted)] or found
        if not found:
            if place.is_marked and place.text and kind in MEASURED:
                break
            if place.rule in ("boxed", "answer_tag") or not place.text:  # An answer is denied.
                return False, place.text
            continue
        answer = _chosen(found, every, text, place)
        if answer is None:
            return False, place.text
        if kind in MEASURED and place.is_marked and not text[answer.end :].isascii():
            break  # The unit may go on in another language.
        command = _COMMAND.search(text, 0, answer.start)  # As in `\frac{\pi}{2}`.
        span = text[command.start() if command else answer.start : answer.end]
        equal = rules.equal(answer.value, wanted) or is_near(answer.value, wanted, conventions)
        return equal and not _is_unreduced(span), span
    if kind is AnswerType.JSON and isinstance(read_json(reference), list):
        return _by_text(own, reference, AnswerType.LIST, conventions)
    return None, None


def _is_unreduced(span: str) -> bool:
    """Whether it has a fraction that is left to be divided: `40/160`."""
    found = _FRACTION.search(span)
    return found is not None and math.gcd(*(int(each) for each in found.groups() if each)) > 1


def _measures(value: object) -> object:
    """The dimension of an amount, the parts that a date names."""
    if isinstance(value, Date):
        return [part is None for part in (value.year, value.month, value.day)]
    return value.dimension if isinstance(value, Amount) else None


def _is_beside(mention: Mention, text: str) -> bool:
    """Whether the answer is another one: `more than 12%`, `the day after March 5`."""
    beside = _BOUND if isinstance(mention.value, Amount) else _RELATIVE
    return bool(beside.search(text, max(0, mention.start - 24), mention.start))


def _chosen(
    found: list[Mention], every: list[Mention], text: str, place: AnswerPlace
) -> Mention | None:
    """The one value of those found that a place gives; None if it marks several or denies it."""
    if place.is_marked and len({each.value for each in found}) > 1 and place.rule != "fence":
        return None
    holds = max((but.end() for but in _BUT.finditer(text)), default=0)
    found = [e for e in found if e.start >= holds and not _is_beside(e, text)]
    if not found:
        return None
    # "It is $1,000, though one hundred dollars used to do": what is compared is not the answer.
    clause = text[: end.start()] if (end := _ENDS.search(text, found[0].end)) else text
    aside = None if place.is_marked else _COMPARED.search(clause, found[0].end)
    found = [each for each in found if aside is None or each.end <= aside.start()]
    last = found[-1]
    rivals = [each for each in every if each.value != last.value and each.end <= last.start]
    hedged = rivals and _ENUMERATED.search(text[rivals[-1].end : last.start])
    return last if not hedged and is_given(text, last.start, last.end) else None


def _by_text(
    own: str, reference: str, kind: AnswerType, conventions: Conventions
) -> tuple[bool | None, str | None]:
    """The first place decides, so that a policy cannot name several."""
    n_more = reference.strip().count("\n")
    if n_more and equal_texts(end := "\n".join(own.strip().split("\n")[-n_more - 1 :]), reference):
        return True, end
    place = next(places(own, may_give_up=False), None)
    if place is None:
        return None, None
    right = gives_text(place, reference)
    if not right and kind is AnswerType.LIST:
        right = gives_list(place, items_of(stripped(reference)), conventions)
    return (right, place.text) if right or place.is_marked or place.text else (None, None)


def whole_expression(response: str) -> str | None:
    """The mathematics that a place is after "is", "gives" and the like, as `x = 1 or x = 2`."""
    own = own_part(response)
    place = next(places(own[0]), None) if own else None
    if place is None or place.rule == "boxed" or "\\boxed" in place.text:
        return None
    line = place.text if place.rule == "fence" else place.text.rpartition("\n")[2]
    prose = [each for each in _PROSE.finditer(line) if not _MATHS.fullmatch(each[0].lower())]
    start = prose[-1].end() if prose else 0
    links = [each for each in prose if _LINK.fullmatch(each[0]) or line[each.end() :][:1] == ":"]
    if prose and (not links or links[-1] is not prose[-1]):
        return None
    # "The answer is $\pi$, since the period is $2\pi$" ends in another formula.
    if len(links) > 1 and not _CONCLUDES.match(links[-1][0]) and _SIGNED.search(line, 0, start):
        return None
    if links and place.rule == "keyword":
        return None
    end = stripped(line[start:].lstrip(" :,"))
    return end if end and is_given(line, start, len(line)) else None
