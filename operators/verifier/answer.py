r"""Extraction of the final answer from a response.

One function, `find_answer`, applies rules in a fixed order; the first that finds something
decides. The last answer counts: a policy commits to an answer by writing it last, and gains
nothing by writing others before. Every rule is linear in the length of the response.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ..chats import after_thoughts, final_channel
from .boxes import boxed, gives_up
from .commitment import is_given
from .end_of_turn import own_text
from .last_number import english_number, last_number
from .phrases import is_hinted, readable
from .places import tagged_parts
from .words import listed

if TYPE_CHECKING:
    from .other_languages import Clause

_TAIL = 4_000  # prose rules inspect at most this many characters at the end
_BARE = 300  # a longer line is prose unless it is a matrix or the like


_KEYWORD = re.compile(
    r"(?:\b(?:(?:answer|solution|root)s?|correct (?:option|choice))\b[\s*_]{0,4}"
    r"(?:(?:is|are|was|would be|must be|should be|equals?)\b|:|=)|^A:)"
    r"[\s*_]{0,4}(?:(?:therefore|thus|simply|then|just|approximately|about)\b)?\s?[:=]?",
    re.IGNORECASE | re.MULTILINE,
)
_IS_THE_ANSWER = re.compile(
    r"\b(?:is|are) (?:thus |therefore |indeed )?(?:the|our|my) (?:final |correct )?answer\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(
    r"(?<!\bi\.e)(?<!\be\.g)(?:[.?](?=\s|\*|$)|!(?=\s*(?:[A-Z*\n]|$)))(?!\s*=)"
)
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
_FINAL_ANSWER = re.compile(r"\bfinal answer\b[ \t*_]*(?:is\b|:|\n)", re.IGNORECASE)
_DELIMITERS = " \t\n*_:=$\\[("
_MATHEMATICAL = re.compile(r"[\d\\$]")
_OPTION = re.compile(
    r"[\s*-]*\(?(?:(?i:option|candidate|choice|possibility|guess) (?=[A-Ja-j\d])|(?=[A-J]))(\w)"
    r"[.):]\**\s+(.+)"
)
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
# Another sentence has a number: `= 3. So 5 are left`. More than the formula: `$x = 3$, as asked`.
_GOES_ON = re.compile(r"\d[$*)}\]]*\.\s[^=]*\d|\d\$,? [A-Za-z]{2}")
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
    2. The last `<answer>`; the rules below then apply inside it.
    3. The last balanced `\boxed{}` or `\fbox{}`, nested ones peeled. Boxes with only
       commas, spaces, "and" or "or" between them are one answer, a list. "Final answer: 18" after
       the box replaces it.
    4. The last line that begins with `####`, or a last line `A: 18`.
    5. A short text without prose is itself the answer.
    6. "answer is", "Answer:" or "is the answer", the last one.
    7. In the last line: what follows the last `=`, or mathematics that ends the line.
    8. The last number, or the run of mathematics that it is part of.

    >>> extract_answer("So she has 40 + 2 apples. The answer is 42. I hope it is correct.")
    '42'
    """
    if _is_plain(response):  # As most are: where it stands is not asked for.
        return _in_own_text(response, tagged=False)[0]
    return find_answer(response).text


def find_answer(response: str) -> FoundAnswer:
    r"""Return what `extract_answer` finds, with the rule that found it and where it stands.

    >>> find_answer(r"So it is \boxed{42}.")
    FoundAnswer(text='42', found_by=('boxed',), start=16, end=18)
    """
    text, offset, tagged = response, 0, False
    found_by: tuple[str, ...] = ()
    if not _is_plain(response):
        final = final_channel(response)
        own = None if final is None else own_text(final)
        whole = None if own is None else after_thoughts(own)
        if final is None or own is None or whole is None:
            return FoundAnswer(None, ("unclosed_think",))
        # What counts is the end of what precedes it.
        text, offset = whole, len(response) - len(final) + len(own) - len(whole)
        found_by = ("think",) if offset else ()
        if tags := sorted(tagged_parts(text)):
            at, text = tags[-1]
            offset, tagged, found_by = offset + at, True, (*found_by, "answer_tag")
    answer, rule, at = _in_own_text(text, tagged)
    if answer is None:
        return FoundAnswer(None, (*found_by, rule) if rule else ())
    start = offset + at
    if at < 0 or not response.startswith(answer, start):
        return FoundAnswer(answer, (*found_by, rule))
    return FoundAnswer(answer, (*found_by, rule), start, start + len(answer))


def _in_own_text(text: str, tagged: bool) -> tuple[str | None, str, int]:
    """The answer in what counts of a response, the rule that found it, and where it stands; -1."""
    if "\\" in text and (box := boxed(text)) is not None:
        answer, end = box
        if named := _final_answer(text, end):
            return named[0], "keyword", named[1]
        opened = max(text.rfind(mark, 0, end) for mark in ("boxed", "fbox"))
        return answer, "boxed", text.find(answer, opened, end)
    for label in ("####", "A:"):
        mark = text.rfind(label)
        before = text[mark - 1 : mark] or "\n"
        if mark < 0 or before not in ("\n " if label == "####" else "\n"):
            continue
        line, _, more = text[mark + len(label) :].strip().partition("\n")
        line = line if line.isdigit() else _ANSWER_LABEL.sub("", line.strip())
        if line and (is_bare(line) or _is_bound(line)) and not (more and label == "A:"):
            at = text.find(line, mark)
            # What stands alone in its line is in no scope but its own.
            scope, start = (line, 0) if before == "\n" else (text, at)
            return _affirmed(scope, line, start), "marked_line", at
    stripped = _LEAD.sub("", text.strip())
    if not stripped:
        return None, "", -1
    if is_bare(stripped) or (
        tagged and "\n" not in stripped and not _is_sentence(stripped[:_TAIL])
    ):
        return _affirmed(stripped, stripped, 0), "bare", text.rfind(stripped)
    tail = stripped[-_TAIL:]
    found, rule, at = _from_prose(tail)
    return found, rule, at if at < 0 else at + len(text.rstrip()) - len(tail)


_TAG = re.compile("<[/A-Za-z]")


def _is_plain(text: str) -> bool:
    """Whether a text has no thought, no tag, no end token and no question of its own, as most.

    To look for each of them takes longer than all else where the answer is a number.
    """
    return (
        "|" not in text
        and "[" not in text
        and text.isascii()
        and "Q" not in text
        and not ("<" in text and _TAG.search(text))
        and not ("P" in text and "Problem" in text)
        and "hought process:" not in text
        and not text.startswith("analysis")
    )


_LEAD = re.compile(
    r"^(?:final_answer(?=\()|(?:ans|result)(?:[.:]|(?= ?\|))|\AA:(?= )|[=-]+>|∴|\|answer\|)\s*",
    re.IGNORECASE | re.MULTILINE,
)
_ANSWER_LABEL = re.compile(r"^(?:final\s+)?answer\s*:\s*", re.IGNORECASE)


def is_bare(text: str) -> bool:
    """Return whether a text is an answer and nothing else: no sentence, no label."""
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
    return bool(_after_keywords(text)) or any(word in _SENTENCE_WORDS for word in words)


def _is_bound(text: str) -> bool:
    """Return whether a text is a bound and nothing else, such as `at most 3 km`."""
    if len(text) > _BARE or not (bound := _BOUND.match(text)):
        return False
    words = [w.lower() for w in _WORD.findall(text, bound.end())]
    return len(words) <= 5 and not _SENTENCE_WORDS.intersection(words) and "=" not in text


def _final_answer(text: str, start: int) -> tuple[str, int] | None:
    """The mathematics that "Final answer: ..." names after the last box, and where it stands."""
    named = list(_FINAL_ANSWER.finditer(text, start))
    if not named:
        return None
    rest = _BOLD.sub(r"\1", text[named[-1].end() :][:_TAIL])
    line = _clause(rest)
    found = _affirmed(text, line, text.find(line, named[-1].end())) if line else None
    if not found or not _MATHEMATICAL.search(found):
        return None
    # "The final answer is rounded to 2 places" names none.
    at_once = rest.lstrip(_DELIMITERS).startswith(found.lstrip(_DELIMITERS))
    return (found, text.find(found, named[-1].end())) if at_once else None


def _from_prose(text: str) -> tuple[str | None, str, int]:
    """The answer in prose, the rule that found it, and where it stands; none if it gives up."""
    plain = _BOLD.sub(r"\1", text) if "**" in text else text
    plain = _NOT_ANOTHER.sub("", plain)
    if "\n- " in plain:
        plain = _LAST_ITEM.sub("\n", plain)
    if gives_up(plain):
        return None, "gives_up", -1
    found, rule, at = _in_prose(plain)
    answer = _affirmed(plain, found, at)
    if answer is None:
        return None, "", -1
    return answer, rule, at if plain == text else text.rfind(answer)


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


def _after_keywords(text: str) -> list[int]:
    """Where each "the answer is" ends; in another language, where it begins."""
    found = [each.end() for each in _KEYWORD.finditer(text)]
    if text.isascii() and (found or not is_hinted(text)):
        return found
    from .other_languages import phrases_in

    return sorted((*found, *phrases_in(text)))


def _in_prose(text: str) -> tuple[str | None, str, int]:
    """The answer in prose, the rule that found it, and where it stands; -1: in several places."""
    starts = _after_keywords(text)
    if starts and (found := _clause(text[starts[-1] :])):
        return found, "keyword", text.find(found, starts[-1])
    if named := list(_IS_THE_ANSWER.finditer(text)):
        end = named[-1].start()
        sentence = _SENTENCE_END.split(text[:end])[-1]
        if _is_bound(sentence):
            return sentence.strip(), "keyword", -1
        if found := _trailing_math(sentence) or last_number(sentence):
            return found, "keyword", text.rfind(found, 0, end)
    line = text.rstrip().rsplit("\n", 1)[-1]
    if _is_bound(line):
        return line.strip(), "last_line", -1
    rule, found = "last_line", _options(text) or _trailing_math(line)
    if not found:
        rule, found = "last_number", last_number(text)
    return found, rule, text.rfind(found) if found else -1


def _options(text: str) -> str | None:
    """The items of a list of options that ends a text, as one answer: none of them is chosen."""
    items = list[str]()
    label = ""
    for line in reversed(text.rstrip().split("\n")):
        option = _OPTION.match(line)
        if not option or (label and ord(option[1].upper()) != ord(label) - 1):
            break
        label = option[1].upper()
        items.append(option[2].strip(" $"))
    return ", ".join(reversed(items)) if len(items) > 1 and all(map(is_bare, items)) else None


def _clause(text: str) -> str | None:
    """The answer at the start of the text after "answer is", or of a phrase in another language."""
    if text[:1].isalpha() and (not text.isascii() or is_hinted(text[:24])):
        from .other_languages import clause as foreign_clause

        if (foreign := foreign_clause(text)) is not None:
            return _in_clause(foreign)
    text = text.lstrip(" \t\n*_:=")
    if text.startswith(("\\[", "$$")):
        close = text.find("\\]" if text[0] == "\\" else "$$", 2)
        return text[2:close].strip() or None if close > 0 else None
    line = text.split("\n", 1)[0]
    clause = _SENTENCE_END.split(line, maxsplit=1)[0].strip(" *_")
    if not clause:
        return None
    short = _ASIDE.sub("", clause).strip()
    for candidate in (short, clause):
        if candidate and (is_bare(candidate) or _is_bound(candidate)):
            return candidate
    return _trailing_math(short) or last_number(short)


def _in_clause(clause: Clause) -> str | None:
    """Return the answer in what follows a phrase of another language."""
    from .other_languages import is_changed, number

    text = clause.text
    if clause.is_wrong:
        return f"not {text}"
    if not text or clause.is_negated or is_bare(text) or (text.isascii() and _is_bound(text)):
        return text or None
    found = _trailing_math(text.rsplit("\n", 1)[-1])
    at = text.rfind(found) if found else -1
    if found and not (at >= 0 and is_changed(text, at, at + len(found), clause.phrases)):
        return found
    return number(text, english_number, clause.phrases)


def _trailing_math(line: str) -> str | None:
    """Return the end of a line: mathematics between delimiters, or the right side of an `=`."""
    line = readable(line)
    line = _MEASURED.sub(r"\1", _TRAILING.sub("", line))
    for opening, closing in (("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if line.endswith(closing):
            body = line[: -len(closing)].rstrip("$")
            start = body.rfind(opening)
            if start >= 0 and (found := body[start + len(opening) :].strip()):
                # `3 \\cdot $5$` is not 5: the run is found later, with the last number.
                return None if _TOUCHED.search(body, 0, start) else found
    if "=" in line:
        right = line.rsplit("=", 1)[1].strip(" $")
        # `>>` closes a calculator note of GSM8K.
        if not right or right[0] == ">" or ">>" in right or _GOES_ON.search(right):
            return None
        if right.isascii() or right.count("$") % 2 == 0:  # `$x=3$ である`
            return right if is_bare(right) else None
    return None
