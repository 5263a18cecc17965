r"""Extraction of the final answer from a response.

One function, `find_answer`, applies rules in a fixed order; the first that finds something
decides. The last answer counts: a policy commits to an answer by writing it last, and gains
nothing by writing others before. Every rule is linear in the length of the response.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..chats import after_thoughts, final_channel
from .boxes import boxed, gives_up
from .commitment import is_given
from .end_of_turn import own_text
from .last_number import english_number, last_number
from .phrases import is_hinted
from .places import ANSWER_TAGS
from .words import listed

if TYPE_CHECKING:
    from .other_languages import Clause, PhrasePlace

_TAIL = 4_000  # prose rules inspect at most this many characters at the end
_BARE = 300  # a longer line is prose unless it is a matrix or the like


class _AnswerPhrases:
    """The phrases of a text that name its answer, in every language.

    A phrase of another language than English is a `PhrasePlace`, where `_clause` reads it again.
    """

    def __init__(
        self, english: re.Pattern[str], foreign: Callable[[str], list[PhrasePlace]]
    ) -> None:
        self._english = english
        self._foreign = foreign

    def finditer(self, text: str) -> list[re.Match[str] | PhrasePlace]:
        """Return those of a text, in order."""
        found: list[re.Match[str] | PhrasePlace] = list(self._english.finditer(text))
        if text.isascii() and (found or not is_hinted(text)):
            return found
        found += self._foreign(text)
        return sorted(found, key=lambda each: each.end())

    def search(self, text: str) -> bool:
        """Return whether a text has one."""
        if self._english.search(text):
            return True
        return not (text.isascii() and not is_hinted(text)) and bool(self._foreign(text))


def _phrases_in(text: str) -> list[PhrasePlace]:
    from .other_languages import phrases_in  # compiled for a text that has letters beyond ASCII

    return phrases_in(text)


def _answers_in(text: str) -> list[PhrasePlace]:
    from .other_languages import answers_in

    return answers_in(text)


_KEYWORD = _AnswerPhrases(
    re.compile(
        r"\b(?:(?:answer|solution|root)s?|correct (?:option|choice))\b[\s*_]{0,4}"
        r"(?:(?:is|are|was|would be|must be|should be|equals?)\b|:|=)"
        r"[\s*_]{0,4}(?:(?:therefore|thus|simply|then|just|approximately|about)\b)?\s?[:=]?",
        re.IGNORECASE,
    ),
    _phrases_in,
)
_IS_THE_ANSWER = _AnswerPhrases(
    re.compile(
        r"\b(?:is|are) (?:thus |therefore |indeed )?(?:the|our|my) (?:final |correct )?answer\b",
        re.IGNORECASE,
    ),
    _answers_in,
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
# "The answer is not 13, so it is 12."
_DENIED_AT_ONCE = re.compile(r"(?:\w+ly |of course )?(?:not|never|neither|no)\b", re.IGNORECASE)
_BEGINS_AGAIN = re.compile(
    r"[,;]? (?:so|therefore|thus|hence|but(?: rather| instead)?) (.*\d.*)|[,;] ((?:it|this) .*\d.*)"
)
_STATED_AFTERWARDS = re.compile(
    r"[.!;] (?:(?:it|this|that|the (?:\w+ )?(?:answer|value|one|result))(?:['’]s| is| equals"
    r"| must be) (?!not|never|n't)[^.\n]*\d)",
    re.IGNORECASE,
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
_RELATION_START = re.compile(
    r"[A-Za-z][A-Za-z]{0,12}\s*(?:[=<>:≤≥∈^_'+*/)(-]|\\[a-z])|[A-Za-z]\d|[A-J][.)]\s"
    r"|[A-Za-z]\s*[,|\[]|[A-Za-z]+$"
)
# A bound is not a value: "at least 3" as the whole answer, not "he needs at least 3 buses".
_BOUND = re.compile(
    r"\W*(?:[a-z] (?:is|must be|should be|can be) )?"
    r"(?:(?:strictly|just|slightly|a|little|bit|not|no|anything|(?:any|a) number|somewhere) )*"
    r"(?:at (?:least|most)|(?:more|less|fewer|greater|larger|smaller|higher|lower|other) than|under"
    r"|over|above|below|up to|(?:minimum|maximum)(?: of|(?= [\d$\\]))|between|beyond|within"
    r"|(?:max|min)\.?(?= ?[\d$\\])|from(?= \S+ to )|(?:(?:does|must|can) not |cannot )?exceeds?"
    r"|almost|nearly|close to)(?:\b|(?= ))",
    re.IGNORECASE,
)
_TOUCHED = re.compile(
    r"(?:(?<!\*)\*|[+/^×·÷<≤≥±√]|(?<![=-])>|\\(?:cdot|times|pm|div|le|ge|leq|geq|sqrt)) ?$"
    r"|[-−\d)}\]]$|[A-Za-z]_$"
)
_POINT = re.compile(r"[(\[][^()\[\]a-zA-Z,]{1,60}(?:,[^()\[\]a-zA-Z,]{1,60}){1,3}[)\]]$")
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
    if _is_plain(response):  # Where it stands is not asked for.
        return _in_own_text(response, tagged=False, placed=False)[0]
    return find_answer(response).text


def find_answer(response: str) -> FoundAnswer:
    r"""Return what `extract_answer` finds, with the rule that found it and where it stands.

    >>> find_answer(r"So it is \boxed{42}.")
    FoundAnswer(text='42', found_by=('boxed',), start=16, end=18)
    """
    text, offset, tagged, is_joined = response, 0, False, False
    found_by: tuple[str, ...] = ()
    if not _is_plain(response):
        final = final_channel(response)
        own = None if final is None else own_text(final)
        whole = None if own is None else after_thoughts(own)
        if final is None or own is None or whole is None:
            return FoundAnswer(None, ("unclosed_think",))
        text = whole
        # What counts is the end of what precedes it.
        offset = len(response) - len(final) + len(own) - len(text)
        found_by = ("think",) if offset else ()
        if any(opens in text for opens, _ in ANSWER_TAGS):
            text, start = _inside_answer_tag(text)
            tagged = start > 0
            if tagged:
                offset += start
                is_joined = not whole.startswith(text, start)
                found_by = (*found_by, "answer_tag")
                if _tag_is_denied(whole, start, text):
                    return FoundAnswer(f"not {text.strip()}", found_by)
    answer, rule, at = _in_own_text(text, tagged, placed=True)
    if answer is None:
        return FoundAnswer(None, (*found_by, rule) if rule else ())
    if at < 0 or is_joined:
        return FoundAnswer(answer, (*found_by, rule))
    return FoundAnswer(answer, (*found_by, rule), offset + at, offset + at + len(answer))


def _in_own_text(text: str, tagged: bool, *, placed: bool) -> tuple[str | None, str, int]:
    """The answer in what counts of a response, the rule that found it, and where it stands; -1."""
    if "\\" in text and (box := boxed(text)) is not None:
        answer, end = box
        if named := _final_answer(text, end):
            return named[0], "keyword", named[1]
        opened = max(text.rfind(mark, 0, end) for mark in ("boxed", "fbox"))
        return answer, "boxed", _last(text, answer, opened, end)
    if (marked := _marked_line(text)) is not None:
        return marked, "marked_line", _place_in_marked_line(text, marked) if placed else -1
    stripped = _LEAD.sub("", text.strip())
    if not stripped:
        return None, "", -1
    if is_bare(stripped) or (
        tagged and "\n" not in stripped and not _is_sentence(stripped[:_TAIL])
    ):
        bare = stripped if stripped.isdigit() else _affirmed(stripped, stripped, 0)
        return bare, "bare", _last(text, bare)
    tail = stripped[-_TAIL:]
    found, rule, at = _from_prose(tail)
    return found, rule, at if at < 0 else at + len(text.rstrip()) - len(tail)


def _last(text: str, answer: str | None, start: int = 0, end: int | None = None) -> int:
    """Return where an answer stands last in a part of a text, -1 where it does not."""
    return text.rfind(answer, max(start, 0), end) if answer else -1


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


def _inside_answer_tag(text: str) -> tuple[str, int]:
    """Return what is in the tag of an answer, and where; the text and 0 if there is none."""
    for opens, closes in ANSWER_TAGS:
        end = text.rfind(closes)
        start = text.rfind(opens, 0, end if end >= 0 else len(text))
        if start < 0:
            start, end = text.rfind(opens), -1
        if start >= 0:
            # Without a closing tag, generation stopped at it.
            start += len(opens)
            before = text[: start - len(opens)].rstrip(" \n,;")
            if before.endswith(closes) and (first := before.rfind(opens)) >= 0:
                parts = (first + len(opens), len(before) - len(closes)), (start, end)
                values = [text[at : to if to >= at else len(text)].strip() for at, to in parts]
                if values[0] != values[1]:
                    return ", ".join(values), start  # Tags that stand together are one answer.
            return text[start : end if end >= start else len(text)], start
    return text, 0


def _tag_is_denied(text: str, start: int, inside: str) -> bool:
    """Return whether the sentence around a tag denies what is in it."""
    closed = text.find(">", start + len(inside))
    end = closed + 1 if closed >= 0 else len(text)
    return not is_given(text, text.rfind("<", 0, start), end)


def _marked_line(text: str) -> str | None:
    mark = text.rfind("####") if "#" in text else -1
    if mark >= 0 and (mark == 0 or text[mark - 1] in "\n "):
        line = text[mark + 4 :].lstrip().split("\n", 1)[0].strip()
        if line and (is_bare(line) or _is_bound(line)):
            line = _ANSWER_LABEL.sub("", line)
            # What stands alone in its line is in no scope but its own.
            alone = text[mark - 1] != " "
            return (
                _affirmed(line, line, 0) if alone else _affirmed(text, line, text.find(line, mark))
            )
    mark = text.rfind("\nA:")
    mark = 0 if mark < 0 and text.startswith("A:") else mark + 1
    if text.startswith("A:", mark):
        line = text[mark + 2 :].strip()
        if line and "\n" not in line:
            return line if is_bare(line) else _from_prose(line[-_TAIL:])[0]
    return None


def _place_in_marked_line(text: str, answer: str) -> int:
    for mark in ("####", "A:"):
        start = text.rfind(mark)
        end = text.find("\n", start)
        at = _last(text, answer, start, len(text) if end < 0 else end)
        if start >= 0 and at >= 0:
            return at
    return -1


_LEAD = re.compile(
    r"^(?:final_answer(?=\()|(?:ans|result)(?:[.:]|(?= ?\|))|[=-]+>|∴|\|answer\|)\s*",
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
    return bool(_RELATION_START.match(start) or _MONTHS.match(start))


def _is_sentence(text: str) -> bool:
    if not text.isascii():
        from .other_languages import is_sentence

        if is_sentence(text):
            return True
    words = re.findall(r"[a-z]+", text.lower())
    return bool(_KEYWORD.search(text)) or any(word in _SENTENCE_WORDS for word in words)


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
    found, rule, at, start, end = _in_prose(plain)
    answer = _affirmed(plain, found, at)
    if answer is None:
        return None, "", -1
    if plain != text:  # Where marks are left out, only the order of texts is the same.
        return answer, rule, _last(text, answer)
    return answer, rule, text.find(answer, start) if start else _last(text, answer, 0, end)


# "It is 12, not 13."; "12, not 13, is the answer".
_NOT_ANOTHER = re.compile(
    r"(?<=[\d$%)}])(?: [a-z]+){0,2},? (?:(?:and |but )?not|rather than|instead of)"
    r" \\?\$?[-−]?\d[\d.,]*\$?(?:(?: [a-z]+){0,2}[.!\s]*$|,(?= (?:is|are|was)\b))"
)

# A dash before a number that stands alone below a sentence is no sign.
_LAST_ITEM = re.compile(r"(?<=[\w.:!)*]) ?\n- (?=\S+\s*\Z)")


def _affirmed(text: str, found: str | None, start: int) -> str | None:
    """What was found at `start`, with its negation if the sentence around it does not affirm it."""
    if not found:
        return found
    if start < 0 or is_given(text, start, start + len(found)) or _NEGATED.match(found):
        return found
    return f"not({found})" if "=" in found else f"not {found}"  # `not x = 12` would name a value


_NEGATED = re.compile(r"\W*(?:not|never|neither|no|isn['’]t)\b", re.IGNORECASE)


def _in_prose(text: str) -> tuple[str | None, str, int, int, int]:
    """Return the answer in prose, and the rule that found it.

    Then where it stands, less than 0 if it is put together from several places; and the characters
    in which the rule looked.
    """
    keywords = list(_KEYWORD.finditer(text))
    if keywords and (found := _clause(text[(start := keywords[-1].end()) :])):
        at = text.find(found, start)
        return found, "keyword", at if at >= 0 else _last_place(text, found), start, len(text)
    named = list(_IS_THE_ANSWER.finditer(text))
    if named:
        end = named[-1].start()
        sentence = _SENTENCE_END.split(text[:end])[-1]
        if _is_bound(sentence):
            return sentence.strip(), "keyword", -1, 0, end
        if found := _trailing_math(sentence) or last_number(sentence):
            return found, "keyword", _last_place(text, found, end), 0, end
    line = text.rstrip().rsplit("\n", 1)[-1]
    if _is_bound(line):
        return line.strip(), "last_line", -1, 0, len(text)
    rule, found = "last_line", _options(text) or _trailing_math(line)
    if not found:
        rule, found = "last_number", last_number(text)
    return found, rule, _last_place(text, found) if found else -1, 0, len(text)


_WITH_UNIT = re.compile(r"([-−]?\d[\d.,]*) \D+")


def _last_place(text: str, found: str, end: int | None = None) -> int:
    """Where an answer stands last in text[:end]; of `12 m`, perhaps `$12$ m` there, its number."""
    at = text.rfind(found, 0, end)
    if at < 0 and (measured := _WITH_UNIT.fullmatch(found)):
        return text.rfind(measured[1], 0, end)
    return at


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
    if _DENIED_AT_ONCE.match(clause):
        if other := _BEGINS_AGAIN.search(clause):
            clause = (other[1] or other[2]).strip()
        elif other := _STATED_AFTERWARDS.search(line, len(clause)):
            return last_number(other[0])
    short = _ASIDE.sub("", clause).strip()
    for candidate in (short, clause):
        if candidate and (is_bare(candidate) or _is_bound(candidate)):
            return candidate
    return _trailing_math(short) or last_number(short)


def _in_clause(clause: Clause) -> str | None:
    """Return the answer in what follows a phrase of another language."""
    from .other_languages import ends_in_negation, letter, number

    text = clause.text
    if not text:
        return None
    if clause.is_negated:
        # "The answer is not 13. It is 12."
        later = _SENTENCE_END.split(clause.rest, maxsplit=1)[1:]
        stated = number(later[0], english_number, clause.phrases) if later else None
        return stated.answer if stated and stated.answer else text
    if clause.is_wrong:
        return f"not {text}"
    if chosen := letter(clause):
        return chosen
    if is_bare(text) or (text.isascii() and _is_bound(text)):
        return text
    read = clause.rest if clause.is_open else text
    found = _trailing_math(read.rstrip().rsplit("\n", 1)[-1])
    if found and not ends_in_negation(read, read.rfind(found), clause.phrases):
        return found
    stated = number(read, english_number, clause.phrases)
    return stated.answer if stated else last_number(read)


def _trailing_math(line: str) -> str | None:
    """Return the end of a line: mathematics between delimiters, or the right side of an `=`."""
    if not line.isascii():
        from .phrases import readable

        plain = readable(line)
        if plain != line:
            found = _trailing_math_in(plain)
            at = plain.rfind(found) if found else -1
            return line[at : at + len(found)] if found and at >= 0 else None
    return _trailing_math_in(line)


def _trailing_math_in(line: str) -> str | None:
    line = _MEASURED.sub(r"\1", _TRAILING.sub("", line))
    for opening, closing in (("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if line.endswith(closing):
            body = line[: -len(closing)].rstrip("$")
            start = body.rfind(opening)
            if start >= 0 and (found := body[start + len(opening) :].strip()):
                # `3 \\cdot $5$` is not 5: the run is found later, with the last number.
                factor = found[0] == "\\" and start > 1 and body[start - 2].isdigit()
                return None if factor or _TOUCHED.search(body, 0, start) else found
    if point := _POINT.search(line):
        return point[0]
    if "=" in line:
        right = line.rsplit("=", 1)[1].strip(" $")
        # `>>` closes a calculator note of GSM8K.
        if not right or right[0] == ">" or ">>" in right or _GOES_ON.search(right):
            return None
        if right.isascii() or right.count("$") % 2 == 0:  # `$x=3$ である`
            return right if is_bare(right) else None
    return None
