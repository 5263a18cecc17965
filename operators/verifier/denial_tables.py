"""The words by which a language denies an answer."""

from __future__ import annotations

import re
from functools import partial
from typing import NamedTuple

# --- What is as good as an affirmation: two negations, and a denial of another number ---

# Of two negations, the second takes the first away: "nothing but 12" is 12.
_NOTHING_BUT = re.compile(
    r"\b(?:(?:no(?:ne|thing| one|body)?|no \w+)(?: \w+)?|(?:(?:can|could|may|must|will|would|is"
    r"|are|was|"
    r"does|do|has|should)(?:n['’]t| ?not\b)|cannot|can['’]t|won['’]t|not|never)(?: possibly"
    r"| ever)?"
    r"(?: be| equal| have been)?(?: (?:anything|any \w+|something|a \w+))?)"
    r" (?:other than|but|except|else than|different (?:from|than))(?= [^a-zA-Z,;]{0,6}\\?\w)",
    re.IGNORECASE,
)

_ELSEWHERE = (
    " als ",
    " que ",
    " che ",
    " как ",
    " dan ",
    " más",
    " sino ",
    "o es ",
    "o son ",
    "ningun",
    " ser ",
)


def without_double_negations(text: str) -> str:
    """Return a text with "is nothing other than 12" as "is 12"."""
    if "other than" in text or " but " in text or "xcept" in text or "lse than" in text:
        text = _NOTHING_BUT.sub(_double_negation, text)
    if any(map(text.__contains__, _ELSEWHERE)):
        for pattern, instead in _NOTHING_ELSE:
            text = pattern.sub(partial(_in_place, instead), text)
    if any(map(text.__contains__, ("不", "非", "除", "没", "沒"))):
        for pattern, instead in _NOTHING_ELSE_THERE:
            text = pattern.sub(instead, text)
    return text


_ELSE = "(?:[别別]的|其[他它余餘]的?|另外的?|第二[个個])"
_NOTHING_ELSE_THERE = tuple(
    (re.compile(pattern), instead)
    for pattern, instead in (
        (
            rf"(?:不(?:会|會|可能|能)?是|[并並]非|[没沒]有)(?:什[么麼]|任何)?{_ELSE}(?:什[么麼]"
            rf"|[数數]字?|值|答案|[结結]果)?"
            r"[,，、]? ?(?:而|正|就|恰恰?|只|答案|结果)*(?:是|[为為])",
            "是",
        ),
        (r"(?:[无無](?:非|外乎)|不外乎?)(?:就)?是", "是"),
        (r"不(?:可能|[会會]|能)不(?=是|等[于於]|[为為])", ""),
        (r"非([^,，。;；\n]{1,24}?)莫[属屬]", r"是\1"),
        (
            rf"除了?([\s$*]*\d[^,，。\n]{{0,12}}?)(?:[以之]?外)?[,，]?(?:就|再|也)?(?:[没沒]有"
            rf"|不(?:可能|[会會])有|[别別]?[无無])"
            rf"{_ELSE}?(?:的)?(?:可能的?)?(?:答案|解|[结結]果|可能|他解|[选選][择擇])",
            r"答案是\1",
        ),
    )
)


_NUMBER = r"(?:[a-z] ?= ?)?[$\\(*]{0,3}[-−]?\d(?:[\d.,/]*\d)?[$\\)*]{0,3}"
_VALUE = r"[$\\(*]{0,3}\d"
_JUST_ES = "ni más ni menos|nada más(?: y| ni) nada menos|nada más"
_NOT_ONE_ES = r"ni un\w*(?: \w+)? más,? ni un\w*(?: \w+)? menos"
_NOTHING_ELSE = tuple(
    (re.compile(pattern, re.IGNORECASE), instead)
    for pattern, instead in (
        (r"\b(?:nichts anderes|keine andere[nrs]?(?: \w+)?) als\b|\bniets anders dan\b", ""),
        (r"\bn['’]est (?:rien d['’]autre|nulle autre|autre) que\b", "est"),
        (r"\bno (?:es|puede ser) (?:otr[oa](?: \w+)?|más|nada más) que\b", "es"),
        (r"\bno (es|son|hay|quedan?|puede ser) sino\b", r"\1"),
        (rf"\bno (\w+) (?:{_JUST_ES}|más) que (?={_VALUE})", r"\1 "),
        (rf"\b(?:{_JUST_ES}) que (?={_VALUE})", ""),
        (rf",? (?:y nada más|y ningun[oa] otr[oa](?: \w+)?|{_JUST_ES}|{_NOT_ONE_ES})\b", ""),
        (
            rf"\bno (es|son|puede ser|pueden ser) ({_NUMBER}[^.;:,\d]{{0,20}})[.;:,] (?:es|son"
            rf"|la \w+ es|el \w+ es) (?={_VALUE})",
            r"no \1 \2 sino ",
        ),
        (r"\bnon è (?:(?:nient['’])?altr[oa]) che\b", "è"),
        (r"\bне что иное,? как\b", ""),
    )
)


def _in_place(instead: str, found: re.Match[str]) -> str:
    """Return what stands instead of a match, which may begin a sentence."""
    text = found.expand(instead)
    return text[:1].upper() + text[1:] if found[0][0].isupper() else text


def _double_negation(found: re.Match[str]) -> str:
    text = found[0].lower()
    if text.startswith("not ") and text.endswith(" but"):
        return found[0]  # "not 13 but 12", "not one but two"
    return "is" if _BE.match(text) else ""


_BE = re.compile(r"can|could|may|must|will|would|is|are|was|do|has|should|won")


_TAIL = 160  # characters at the end of a text in which another number is denied
_UNIT = r"(?:(?!(?:is|are|was|were|not|no)\b)[a-z]+ ?){0,2}"
_END = r"(?:$|(?<=[.!\s])(?-i:[A-Z])[^\d]*$)"  # other sentences that have no number
_COMPARED = (
    r"(?:more|less|fewer|greater|larger|smaller|bigger|higher|lower|older|younger|longer|shorter"
    r"|heavier|faster|slower|better|worse) than"
)
_OTHER = re.compile(
    rf"(?<=[\d$%)}}*]) ?{_UNIT}(?:,? ?\(?(?:and |but |—|–)? ?not|,? rather than"
    rf"|,? instead of) (?P<a>{_NUMBER})"
    rf" ?{_UNIT}\)?[.!\s]*{_END}"
    rf"|(?<=[\d$%)}}*]),? (?:because|since|as) (?P<b>{_NUMBER}) [^.,;=\d]*\b(?:wrong|incorrect"
    rf"|not|cannot|impossible|\w+n['’]t)\b[^.,;=\d]*[.!\s]*{_END}"
    r"|(?<=[\d$%)}*])[.;,] (?:it|this|that|the \w+) (?:cannot|can['’]t|could not|is not|isn['’]t"
    r"|is never|was not"
    rf"|wasn['’]t)(?: be)? (?P<c>{_NUMBER})[.!\s]*{_END}"
    rf"|(?<=[\d$%)}}*]) ?{_UNIT}[,;—–] ?(?:which|that|this|it|so|and|i\.e\.)?,? ?(?:['’]s|is|are"
    rf"|makes)?,? ?"
    rf"(?:{_NUMBER} )?{_UNIT}{_COMPARED} (?:\w+['’]s? )?(?P<d>{_NUMBER}) ?{_UNIT}[.!\s]*{_END}"
    rf"|(?<=[\d$%)}}*])[^.;,\d]{{0,24}}(?:,|;| and| but| while) (?:and |but "
    rf"|while )?(?P<e>{_NUMBER}) ?{_UNIT}(?:is|are|was|would be)"
    r" (?:not|wrong|incorrect|false|impossible|too \w+)(?: correct| right)?[.!\s]*$",
    re.IGNORECASE,
)
# "59, not 40, is the answer".
_INSERTED = re.compile(
    rf"(?<=[\d$%)}}*]), (?:and )?not {_NUMBER},(?= (?:is|are|was)\b)", re.IGNORECASE
)
_DENYING = (
    *(" not", "(not", "n't", "n’t", "cannot", "rather", "instead", "wrong", "ncorrect"),
    *("mpossible", "er than", "ore than", "ess than", "orse than"),
)


def without_other_number(text: str) -> str:
    """Return a text without its end where this only denies another number: "It is 12, not 13."."""
    tail = text[-_TAIL:]
    if not any(map(tail.__contains__, _DENYING)):
        return text
    found = _OTHER.search(tail)
    if not found:
        return _INSERTED.sub("", text)
    number = next(each for each in found.groups() if each).strip("$\\()*.")
    kept = text[: len(text) - len(tail) + found.start()]
    # "It is 12. It cannot be 12." takes it back.
    return text if number in kept[-_TAIL:] else kept


# --- The words by which a language denies an answer -----------------------------------


class DenialWords(NamedTuple):
    """The words of a language, each field the alternatives of one regular expression."""

    # in the statement in front of an answer: "it is false that", "perhaps", "neither"
    before: str = ""
    after: str = ""  # behind an answer, in its sentence: "is wrong", "unless"
    says: str = ""  # somebody else "says", in front of the word for "answer"
    so: str = ""  # "so", "but": another statement begins
    certain: str = ""  # what only looks like a denial: "no doubt", "not hard to see"
    sums: str = ""  # "we", "add": in a condition that is a step of the way
    # makes the number `#` another one than the answer, which stands before it in its sentence: "not
    # #", "more than #", "# less than #"
    other: str = ""
    retracts: str = ""  # begins a sentence that takes back the one before: "that cannot be"
    # ends a denial, or what only looks like one, and begins a statement: "that is wrong: the
    # answer"
    turns: str = ""
    frames: str = ""  # in front of `turns`, makes the statement a part of it: "if", "according to"
    throughout: str = ""  # as `before`, from the start of the sentence, whatever begins in between
    aside: str = ""  # behind an answer: "as", "although", and what only comments on it
    agrees: str = ""  # behind an answer that somebody else says: "and that is right"
    # shows that the statement, with `#` for the answer, is about the answer and not the story. A
    # language without it has only such statements.
    named: str = ""
    doubts: str = ""  # as `before`, in a statement about the answer only: "except", "maybe"
    doubts_after: str = ""  # as `after`, in a statement about the answer only
    reports: str = ""  # as `says`, in a statement about the answer only
    story: str = ""  # what looks like a denial in a sentence of the story: "he could buy"
    contrary: str = ""  # in a statement of the story, what shows that its `unreal` verb is meant so
    # verbs of what is not so, in the clause of an answer: "would be". They are compared with their
    # accents, which may be all that tells them apart ("wäre", "waren").
    unreal: str = ""


def on_one_line(field: str) -> str:
    """Return a field of `DenialWords` without its line breaks and the indents behind them."""
    return "".join(map(str.lstrip, field.split("\n")))
