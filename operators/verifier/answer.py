r"""Extraction of the final answer from a response, where it is a number or a formula.

The places are those of all types (`places`). Where none is marked, it is what ends the last line,
or the last number. The last answer counts: a policy commits to an answer by writing it last, and
gains nothing by writing others before. Every rule is linear in the length of the response.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .phrases import Phrases, is_hinted, phrases_of, readable
from .places import (
    AnswerPlace,
    begins_item,
    ends_with_options,
    gives_up,
    is_given,
    marked_places,
    own_part,
    sentences,
    unlabelled,
)
from .words import ASCII_MAGNITUDES, MAGNITUDES, listed

# --- The last number ------------------------------------------------------------------

_REACH = 1_000  # characters of an expression on either side; the limits refuse longer ones

_NUMBER = re.compile(
    r"(?<![\d.,])(?:(?<![\w.,^)}\]!])[-–−]\s?)?(?:(?:\\?\$|[€£])\s?)?"
    r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:\s?/\s?\d+)?(?:\s?\\?%)?"
)
# Digits in a name (H2O, covid-19, utf8) are not a number.
_IN_A_NAME = re.compile(
    r"(?:[A-Za-z]\w*[A-Za-z]|[A-Z])[\d.]*\Z|[A-Za-z]{2}-\Z"
    # Nor are exponents of units.
    r"|\d ?[A-Za-z]{2,}\^\{?\Z|\d [mgsl]\^\{?\Z|\\(?:text|mathrm)\{[^{}]*\}\^\{?\Z"
)
_CHANGING = frozenset(
    {
        *MAGNITUDES,
        *(f"{word}s" for word in MAGNITUDES),
        *listed("squared cubed factorial percent halves thirds fourths fifths sixths sevenths"),
        *listed("eighths ninths tenths hundredths thousandths millionths millionth thousandth"),
        *listed("k K M B bn mil"),
        *(word for each in ASCII_MAGNITUDES if each != "bin" for word in (each, each.title())),
    }
)
_JOINING = frozenset(
    listed("or to and of mod modulo plus minus times over choose point remainder versus vs x R r")
)
_LEADING = frozenset(
    listed("sin cos tan cot sec csc log ln lg exp sqrt root mod modulo plus times power than")
)
_BRACKETED = re.compile(r"[(\[]\s*(\d+(?:\.\d+)?|\d{1,3}(?:,\d{3})+)\s*[)\]]")
_MINUS_BEFORE = re.compile(
    r"(?:\bnegative|(?:^|\b(?:is|are|was|be|to|of|equals|answer)|[:=])[\s*$]*\bminus)\s?[*$]{0,2}$",
    re.IGNORECASE,
)
_FORMULA = re.compile(r"(?<!\\)\$([^$]{0,200}[\\^][^$]{0,200}?)(?<!\\)\$|\\\((.{1,400}?)\\\)")
_DELIMITED = re.compile(r"(?<!\\)\$(?=[^\s$])([^$\n]{0,200}?)(?<=\S)(?<!\\)\$(?!\d)|\\\(|\\\)")


def _any_word(words: frozenset[str]) -> str:
    return rf"(?<![A-Za-z\\])(?:{'|'.join(sorted(words))})(?![A-Za-z])"


_MATHS_PIECES = "|".join(
    [
        r"(?:\\?\$|[€£])?\d(?:\d|[.,](?=\d))*(?:[eE][+-]?\d+)?(?:st|nd|rd|th)?|\.\d+",
        r"\\(?!(?:text|mathrm|mbox|approx|to|q?quad|[rR]ightarrow|implies|therefore|[fb]?boxed?)\b)"
        r"(?:[a-zA-Z]+|[{}%,;:! ])",
        r"[()\[\]{}^+≤≥≠×÷·⋅∕⁄/√±∓∛%°⁰¹²³⁴⁵⁶⁷⁸⁹½¼¾_]|\*{1,2}",
        r"(?<![A-Za-z]{2})(?<!-)[-–−](?![->])",
        r"(?<![-=<>])(?:<(?![<>/]|[a-zA-Z]+>)|(?<!<[a-z])(?<![a-zA-Z]{2})>(?!>))",
        r"(?<=[\d)}\]$%a-zA-Z]),(?= ?(?:[-\\$(\[{\d]|or ))|(?<=\d)[:'’′](?=\d)",
        r"(?<=[\w)}\]])!|[A-Za-z]{2,}(?=\()",
        r"(?<=[\d)}\]*])(?: ?[aAIgmshlLKJNWVCF])(?=[\^(*/])",
        r"(?<=\d)[A-Za-z]{1,2}(?![A-Za-z])|(?<![A-Za-z\\'’])[b-zB-HJ-Z](?![A-Za-z'’])",
        *map(_any_word, (_CHANGING, _JOINING, _LEADING)),
    ]
)
_MATHS = re.compile(rf"(?:(?:{_MATHS_PIECES})[ \t]*)+")
# What joins nothing is markdown, a bullet, a dash, or a word of the prose.
_JOINING_WORDS = frozenset(word for word in _JOINING if len(word) > 1)
_NOTHING_BEFORE = re.compile(
    rf"\A[-*>] |[*_:,)}}\]!%\s]+|{_any_word(_JOINING_WORDS - _LEADING)}|{_any_word(_CHANGING)}"
    r"|[A-Za-z](?= [\d$])"
)
_NOTHING_AFTER = re.compile(
    rf"(?:[-–−+*/_:,<>=(\[{{\s]|{_any_word(_JOINING_WORDS | _LEADING)}|(?<=\s)[aAIgmshlLKJNWVCF])\Z"
)
_PARTNERS = {")": "(", "]": "[", "}": "{"}


def last_number(text: str) -> str | None:
    """The last number with sign, currency and percent mark, or the expression that contains it.

    A number next to an operator, an exponent, a bracket with something before it or a word that
    changes its value is part of an expression, and the whole expression is the answer (`3^{2}` is
    9, `x^{9}` is not a number).
    """
    if (phrases := phrases_of(text)) is None:
        return english_number(text)
    from .other_languages import number as foreign_number

    return foreign_number(text, english_number, phrases)


def english_number(text: str) -> str | None:
    """The same by the rules for English, of a text in which they hold."""
    text = text.replace("=\n- ", "= -")  # a sign, and no bullet
    number = _last_free_number(text)
    if number is None:
        return None
    start = number.start()
    before = text[max(0, start - 60) : start]
    sign = "-" if ("inus" in before or "egative" in before) and _MINUS_BEFORE.search(before) else ""
    return sign + _expression(text, number)


def _last_free_number(text: str) -> re.Match[str] | None:
    for number in reversed(list(_NUMBER.finditer(text))):
        if begins_item(text, *number.span()):
            continue
        if not number[0][0].isdigit() or not _IN_A_NAME.search(
            text, max(0, number.start() - 40), number.start()
        ):
            return number
    return None


def _expression(text: str, number: re.Match[str]) -> str:
    first = max(text.rfind("\n", 0, number.start() + 1) + 1, number.start() - _REACH)
    last = text.find("\n", number.end())
    last = min(last if last >= 0 else len(text), number.end() + _REACH)
    line = text[first:last]
    # Delimiters of formulas are not part of them; single dollar signs are money.
    flat = _DELIMITED.sub(lambda m: f" {m[1]} " if m[1] else " " * len(m[0]), line)
    at = max(i for i in range(number.start(), number.end()) if text[i].isdigit()) - first
    run = next((each for each in _MATHS.finditer(flat) if each.start() <= at < each.end()), None)
    if run is None:
        return number[0].strip()
    begin, end = _trimmed(flat, *run.span(), at)
    for formula in _FORMULA.finditer(line):
        if formula.start() <= begin and end <= formula.end():
            return next(body for body in formula.groups() if body).strip()
    found = flat[begin:end].strip()
    alone = _BRACKETED.fullmatch(found)
    return alone[1] if alone else found


def _trimmed(text: str, begin: int, end: int, at: int) -> tuple[int, int]:
    while True:
        opened, closed = _unpaired(text[begin:end])
        lead, rest = _NOTHING_BEFORE.match(text, begin, at), _NOTHING_AFTER.search(text, at, end)
        if lead:
            begin = lead.end()
        elif rest:
            end = rest.start()
        elif opened is not None and begin + opened < at:
            begin += opened + 1
        elif closed is not None and begin + closed > at:
            end = begin + closed
        else:
            return begin, end


def _unpaired(text: str) -> tuple[int | None, int | None]:
    """Where the last bracket opens that nothing closes, and the first closes that nothing opens."""
    opened = list[int]()
    for i, mark in enumerate(text):
        if mark in "([{":
            opened.append(i)
        elif mark in _PARTNERS:
            if not opened:
                return None, i
            opened.pop()
    return (opened[-1] if opened else None), None


# --- The answer -----------------------------------------------------------------------

_TAIL = 4_000  # prose rules inspect at most this many characters at the end
_BARE = 300  # a longer line is prose unless it is a matrix or the like

_ASIDE = re.compile(
    r"(?:[,;]?\s+(?:because|since|which|so|as|when|where|after|that|i\.e\.|reached|given|for|"
    r"rounded|obtained|rather than|instead of|and not|although|though|even (?:if|though)|whereas"
    r"|despite|and nothing)"
    r"|:\s+(?:there|this|that|it|no|because|since)|,\s+(?:and )?(?:not?|none|of course|without"
    r"|indeed|obviously|certainly))\b.*",
    re.DOTALL,
)
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z']{2,}")
_MATH_WORDS = frozenset(listed("sin cos tan log ln sqrt exp cot sec csc pi and or in mod"))
_SENTENCE_WORDS = frozenset(
    listed(
        "is are was were but the so it we answer therefore thus hence there he she they this that "
        "gives give get gets got final because have has had takes took which let equals makes make "
        "made need needs i'm it's isn't don't know cannot can can't if then total options option "
        # "answer", in other languages
        "sino antwort endantwort loesung respuesta resposta risposta soluzione reponse antwoord "
        "oplossing jawaban jawabannya jawab odpowiedz cevap cevabi svaret ergebnis resultado "
        "risultato c'est endergebnis alternativa nicht sondern sind ist also "
        "bleibt bleiben scheidet stimmt passt"
    )
)
# A power is `2**3`; a letter of a script without spaces is prose: `是**12**个`.
_BOLD = re.compile(
    r"(?<![^\W\u3041-\u9fff\uac00-\ud7a3]|[)}\]*])\*\*(?=[^\s*])([^*\n]{1,80})\*\*"
    r"(?![^\W\u3041-\u9fff\uac00-\ud7a3]|[*(])"
)
_BOLD_ENDS = re.compile(r"(?<=[^\s*])\*\*(?=[\s.,;:!)]|$)")
_OWN_NAME = re.compile(r"\A[$\s]*[a-zA-Z](?:_\w+)?\s*=")
_NUMERAL = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?%?")
_DELIMITERS = " \t\n*_:=$\\[("
_MATHEMATICAL = re.compile(r"[\d\\$]")
_MONTHS = re.compile(r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.? \d", re.I)
# A bound is not a value: "at least 3" as the whole answer, not "he needs at least 3 buses".
_BOUND = re.compile(
    r"\W*(?:[a-z] (?:is|must be|can be) )?(?:(?:strictly|just|a|bit|not|no|anything|number) )*"
    r"(?:at (?:least|most)|(?:more|less|fewer|greater|larger|smaller|higher|lower|other) than|under"
    r"|over|above|below|up to|between|almost|nearly|close to"
    r"|(?:minimum|maximum|min|max)\.?(?: of)?(?= [\d$\\]))(?:\b|(?= ))",
    re.IGNORECASE,
)
_TOUCHED = re.compile(r"(?:[+/^×·÷<≤≥±√−-]|\\[a-z]+|[\d)}\]]) ?$")
_MEASURED = re.compile(r"(\$|\\\)) ?(?:[A-Za-z]{1,12} ?){1,3}$")  # $2\sqrt{3}$ cm
_CONDITION = re.compile(r"(?<=\$),? (?:for|where|when|if) (?:all )?\$[^$]*\$$")
# Another sentence has a number: `= 3. So 5 are left`.
_GOES_ON = re.compile(r"\d[$*)}\]]*\.\s[^=]*\d")
_TRAILING = re.compile(r"[\s.*]+$")


class FoundAnswer(NamedTuple):
    """The final answer in a response.

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


def extract_answer(response: str) -> str | None:
    r"""Return the span of a response that is its final answer, None if there is none.

    In this order:

    1. What follows an end token such as `<|im_end|>` does not count, nor what precedes the end of
       the last thought, such as `</think>`, or harmony's channel `final`. Inside a thought that is
       not closed there is no answer.
    2. The last place that is marked: `<answer>`, in which the same rules apply; a balanced
       `\boxed{}` or `\fbox{}`, nested ones peeled, of which several with only commas, spaces,
       "and" or "or" between them are one answer, a list; a line that begins with `####`; "answer
       is", "Answer:" or "is the answer". After one of the others, these count where the answer
       follows at once.
    3. A short text without prose is itself the answer.
    4. In the last line: what follows the last `=`, or mathematics that ends the line.
    5. The last number, or the run of mathematics that it is part of.

    >>> extract_answer("So she has 40 + 2 apples. The answer is 42. I hope it is correct.")
    '42'
    """
    own = own_part(response)
    if own is None:
        return None
    line = own[0][own[0].rfind("\n") + 1 :]
    if line.startswith(("A:", "####")):  # As most numbers stand: the rules take 20 times longer.
        number = line[2:].lstrip("# ")
        if number.isdecimal() or _NUMERAL.fullmatch(number):
            return number
    return _find(own[0]).text


def find_answer(response: str) -> FoundAnswer:
    """What `extract_answer` finds, with the rule that found it and where it stands."""
    own = own_part(response)
    if own is None:
        return FoundAnswer(None, ("unclosed_think",))
    text, offset = own
    return _moved(_find(text), "think", offset) if offset else _find(text)


def _moved(found: FoundAnswer, rule: str, offset: int) -> FoundAnswer:
    rules = (rule, *found.found_by)
    if found.start is None or found.end is None or offset < 0:
        return FoundAnswer(found.text, rules)
    return FoundAnswer(found.text, rules, found.start + offset, found.end + offset)


def _at(text: str, answer: str | None, rule: str, start: int) -> FoundAnswer:
    if answer is None:
        return FoundAnswer(None, (rule,))
    is_there = start >= 0 and text.startswith(answer, start)
    return FoundAnswer(answer, (rule,), *((start, start + len(answer)) if is_there else ()))


def _find(text: str, *, tagged: bool = False) -> FoundAnswer:
    later = None
    for place in marked_places(text):
        found = _read(text, place)
        if found is None:
            continue
        if place.rule != "keyword" or (later is None and _follows_at_once(place, found)):
            return found
        later = later or found
    return later or _in_prose(text, tagged=tagged)


def _read(text: str, place: AnswerPlace) -> FoundAnswer | None:
    if place.rule == "boxed":
        return _at(text, place.rest, "boxed", text.find(place.rest, place.start, place.end))
    if place.rule == "answer_tag":
        found = _find(place.rest, tagged=True)
        return _moved(found, "answer_tag", text.find(place.rest, place.start))
    if place.rule == "keyword":
        answer = _clause(_undecorated(place.rest[:_TAIL]))
        at = text.find(answer, place.start) if answer else -1
        return _at(text, _affirmed(text, answer, at), "keyword", at) if answer else None
    line = text[place.start : place.end]
    line = line if line.isdigit() else unlabelled(line)
    if place.rule == "fence" or not (is_bare(line) or _is_bound(line)):
        return None
    # What stands alone in its line is in no scope but its own.
    is_alone = text[: place.start].rstrip("# \t")[-1:] in ("", "\n")
    answer = _affirmed(line, line, 0) if is_alone else _affirmed(text, line, place.start)
    return _at(text, answer, "marked_line", text.find(line, place.start))


def _follows_at_once(place: AnswerPlace, found: FoundAnswer) -> bool:
    """Not in "The final answer is rounded to 2 places"."""
    answer = (found.text or "").lstrip(_DELIMITERS)
    rest = _OWN_NAME.sub("", _undecorated(place.rest[:_TAIL])).lstrip(_DELIMITERS)
    return rest.startswith(answer) and bool(_MATHEMATICAL.search(answer))


def _undecorated(text: str) -> str:
    if "**" in text:  # One of two may be before the text.
        text = _BOLD_ENDS.sub("", _BOLD.sub(r"\1", text), count=1)
    text = _NOT_ANOTHER.sub("", text)
    return _LAST_ITEM.sub("\n", text) if "\n- " in text else text


def _in_prose(text: str, *, tagged: bool) -> FoundAnswer:
    """A text that is all answer; else what ends its last line, else its last number."""
    whole = _LEAD.sub("", text.strip())
    if not whole:
        return FoundAnswer(None)
    if is_bare(whole) or (tagged and "\n" not in whole and not _is_sentence(whole[:_TAIL])):
        return _at(text, _affirmed(whole, whole, 0), "bare", text.rfind(whole))
    plain = _undecorated(whole[-_TAIL:])
    if gives_up(plain) or ends_with_options(plain):
        return FoundAnswer(None, ("gives_up",) if gives_up(plain) else ())
    line = plain.rstrip().rsplit("\n", 1)[-1]
    if _is_bound(line):
        return _at(text, line.strip(), "last_line", text.rfind(line.strip()))
    rule, found = "last_line", _trailing_math(line)
    if not found:
        rule, found = "last_number", last_number(plain)
    answer = _affirmed(plain, found, plain.rfind(found)) if found else None
    return _at(text, answer, rule, text.rfind(answer)) if answer else FoundAnswer(None)


_LEAD = re.compile(r"^(?:final_answer(?=\()|[=-]+>|∴|\|answer\|)\s*", re.MULTILINE)


def is_bare(text: str) -> bool:
    """Whether a text is an answer and nothing else: no sentence, no label."""
    if text.isdigit():
        return True
    if "? " in text:
        return False
    if not text.isascii():
        from .other_languages import is_bare as is_bare_there

        if (decided := is_bare_there(text[:_TAIL])) is not None:
            return decided
    if len(text) > _BARE and " " in text and _WORD.search(text) and "\\begin" not in text:
        return False
    if "\n" in text and "\\begin" not in text and not text.startswith(("$$", "\\[")):
        return False
    if len(text) > _TAIL:  # one endless token: refused later, because of its length
        return " " not in text
    bare = re.sub(r"\\(?:text|mathrm|textbf|mbox|begin|end)\s*\{([^{}]*)\}", r" \1 ", text)
    bare = re.sub(r"\bof (?:the|his|her|its|their) ", "of ", bare) if "of " in bare else bare
    words = [w.lower() for w in _WORD.findall(bare)]
    prose = [w for w in words if w not in _MATH_WORDS]
    if any(w in _SENTENCE_WORDS for w in words) or len(prose) > 5:
        return False
    start = text.lstrip(" *_(${[")
    if not start[:1].isalpha() or not prose or not any(c.isdigit() for c in bare):
        return True
    return bool(_MONTHS.match(start))


def _is_sentence(text: str) -> bool:
    if not text.isascii():
        return True
    words = re.findall(r"[a-z]+", text.lower())
    return any(word in _SENTENCE_WORDS for word in words)


def _is_bound(text: str) -> bool:
    if len(text) > _BARE or not (bound := _BOUND.match(text)):
        return False
    words = [w.lower() for w in _WORD.findall(text, bound.end())]
    return len(words) <= 5 and not _SENTENCE_WORDS.intersection(words) and "=" not in text


# "It is 12, not 13."; "12, not 13, is the answer".
_NOT_ANOTHER = re.compile(
    r"(?<=[\d$%)}])(?: [a-z]+){0,2},? (?:(?:and |but )?not|rather than|instead of)"
    r" \\?\$?[-−]?\d[\d.,]*\$?(?:(?: [a-z]+){0,2}[.!\s]*$|,(?= (?:is|are|was)\b))"
)

# A dash before a number that stands alone below a sentence is no sign.
_LAST_ITEM = re.compile(r"(?<=[\w.:!)*]) ?\n- (?=\S+\s*\Z)")


def _affirmed(text: str, found: str | None, start: int) -> str | None:
    """What was found at `start`, with its negation if the sentence around it does not affirm it."""
    if not found or (found is text and found.isdecimal()):
        return found
    if start < 0 or is_given(text, start, start + len(found)) or _NEGATED.match(found):
        return found
    return f"not({found})" if "=" in found else f"not {found}"  # `not x = 12` would name a value


_NEGATED = re.compile(r"\W*(?:not|never|neither|no|isn['’]t)\b", re.IGNORECASE)


def _clause(text: str) -> str | None:
    """The answer at the start of the text after "answer is", or of a phrase in another language."""
    if text[:1].isalpha() and (not text.isascii() or is_hinted(text[:24])):
        from .other_languages import clause as foreign_clause

        if (foreign := foreign_clause(text)) is not None:
            return _in_clause(*foreign)
    text = text.lstrip(" \t\n*_:=")
    if text.startswith(("\\[", "$$")):
        close = text.find("\\]" if text[0] == "\\" else "$$", 2)
        return text[2:close].strip() or None if close > 0 else None
    line = text.split("\n", 1)[0]
    clause = next(iter(sentences(line)), "").rstrip(".!?").strip(" *_")
    if not clause:
        return None
    short = _ASIDE.sub("", clause).strip()
    for candidate in (short, clause):
        if candidate and (is_bare(candidate) or _is_bound(candidate)):
            return candidate
    return _trailing_math(short) or last_number(short)


def _in_clause(text: str, phrases: Phrases, is_denied: bool) -> str | None:
    from .other_languages import is_changed, number

    if not text or is_denied or is_bare(text) or (text.isascii() and _is_bound(text)):
        return text or None
    found = _trailing_math(text.rsplit("\n", 1)[-1])
    at = text.rfind(found) if found else -1
    if found and not (at >= 0 and is_changed(text, at, at + len(found), phrases)):
        return found
    return number(text, english_number, phrases)


def _trailing_math(line: str) -> str | None:
    line = readable(line)
    line = _CONDITION.sub("", _MEASURED.sub(r"\1", _TRAILING.sub("", line)))
    for opening, closing in (("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if line.endswith(closing):
            body = line[: -len(closing)].rstrip("$")
            start = body.rfind(opening)
            if start >= 0 and (found := body[start + len(opening) :].strip()):
                # `3 \\cdot $5$` is not 5: the run is found later, with the last number.
                return None if _TOUCHED.search(body, 0, start) else found
    if "=" in line:
        right = line.rsplit("=", 1)[1].strip(" $")
        shown, _, more = right.partition("$")
        right = right if re.search(r"[\d$]", more) else shown  # `$x = y$, as asked`
        # `>>` closes a calculator note of GSM8K.
        if not right or right[0] == ">" or ">>" in right or _GOES_ON.search(right):
            return None
        if right.isascii() or right.count("$") % 2 == 0:  # `$x=3$ である`
            return right if is_bare(right) else None
    return None
