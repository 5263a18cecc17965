r"""Texts: names, words, code, chemical formulas; and lists of them. A text is never computed."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from .amounts import SIGNS
from .answer_types import Conventions
from .phrases import compiled, fold, is_unspaced, languages_of, without_polite
from .places import ITEM, AnswerPlace, is_given, sentences, stripped

_LATEX = re.compile(r"\\(?:ce|mathrm|text)\s*\{([^{}]*)\}|[_^]\{([^{}]*)\}|\\([%$&#_{}])")
DOTS = re.compile(r"\\[lcv]?dots(?![a-zA-Z])|\.\.\.|…")
_SCRIPT = re.compile(r"[_^](?=[\w+-])")
_ARROW = re.compile(r"\\(?:long)?(?:right)?arrow(?![a-zA-Z])|\\to(?![a-zA-Z])|→|⟶")
_LETTERS = re.compile(r"[^\W\d_]{2}")
_ARTICLE = re.compile(r"(?:the|an?) (?=\w)", re.IGNORECASE)
_FORMULA = re.compile(
    r"(?=.{1,4}\Z)\w*[A-Z0-9]\w*[A-Z]\w*|(?:[A-Z][a-z]?\d*){2,}[+-]?|[A-Z][a-z]?\d*[+-]"
)
_ASIDE = re.compile(r" ?\((?!(?:or|and|not)\b)[^()]*\)")
_CONTRAST = re.compile(r"(?:[,;] (?:but|however|though|although|yet|while)|; |: )\b")
_RIVAL_BEFORE = re.compile(
    r"(?:(?:\b(?:not|never|no longer)|n't)(?: (?!but )\w+){0,2} "
    r"|,? (?:no|nicht|pas|non|não|niet|oder|ou|eller|или|не|lub) "
    r"|(?:,|\b(?:or|and|either|than|unlike|nor|except|besides|maybe|perhaps|as well as"
    r"|also|else|otherwise|alternatively)) "
    r"|[/|&+~] ?)\W*$"
)
_LINKED = re.compile(r"(?:是|為|为|叫|は|が|은|는|이|คือ|[:：])\Z")
_RIVAL_THERE = re.compile(r"或|和|与|與|、|か|または|또는|나 |หรือ|可能|也许|不|非|ない|아니|ไม่")
_INTRODUCTION = re.compile(
    r"\A\W*(?:So|Thus|Therefore|Hence|Then|Yes|No|Finally|Indeed|[A-Z][a-z]+(?: [a-z]+){1,4}), "
)
_RIVAL_AFTER = re.compile(r"\W* (?:or|and|nor)\b(?! (?:is|was|has|had|then|[a-z]+ed)\b)")
_UNSURE = re.compile(
    r"\b(?:might|may be|maybe|perhaps|possibly|not (?:sure|certain)|don't (?:know|recall))\b", re.I
)
_VERB = re.compile(
    r"\W* ?(?:is|are|was|were|has|had|did|does|won|wrote|became|would|will)\b(?! not|n't)"
)
_BOLD = re.compile(r"\*{1,2}([^*\n]+)\*{1,2}|`([^`\n]+)`")
_SEPARATOR = re.compile(r"\s*(?:[,;]\s*(?:and\b|&)?|\band\b|\n)\s*")
_INTRODUCED = re.compile(
    r"(?:(?![.!?]\s).)*(?:\b(?:is|are|was|were|be|by)\b(?: (?:therefore|thus|then))?:?|:)\s*",
    re.DOTALL,
)
_DENIED = re.compile(r"(?:\bnot|n't|\bnever|\bneither)\b(?: \w+)?:? ?$")
_TITLE = re.compile(
    r"\b(?:President|Sir|Dame|Lord|Lady|Dr|Mrs?|Ms|Prof(?:essor)?|King|Queen|Emperor|General|Saint"
    r"|Captain|Pope)\.? $"
)
_LISTED = re.compile(
    r"[,;](?: (?!in\b|not\b|unlike\b)(?:and |or )?[\w'-]+(?: [\w'-]+)?(?:,| or| and|\Z)){1,9}\Z"
)
_GOES_ON = re.compile(
    r"[,;] (?:which|who|whose|where|the|an?|in|on|at|of|not|unlike|because|since|so|with|from|e\.g"
    r"|[a-z]+(?:ed|ing)|[\w'-]+(?: [\w'-]+)?\Z)\b"
    r"| (?:in|on|at|during|from|after|before|as|who|that|to|and)\b"
)
_COPULA = re.compile(r"\b(?:is|are|was|were)\b(?=[^,]*,)")
_LONG = 4_000  # characters of a sentence that is not read
_MOST_WORDS = 12  # of a text that is looked for in a sentence


def _is_formula(reference: str) -> bool:
    """Whether case matters: `CO` is not `Co`."""
    text = stripped(_LATEX.sub(r"\1\2", reference)).replace("_", "")
    return bool(_FORMULA.fullmatch(text)) or (len(text) == 2 and text.istitle())


def normal(text: str, *, cased: bool = False) -> str:
    """A text without what does not matter: case, accents, an article, markup, full stops."""
    text = stripped(unicodedata.normalize("NFKC", text)).translate(SIGNS)
    text = DOTS.sub("...", _LATEX.sub(r"\1\2\3", _ARROW.sub("->", text)))
    text = stripped(_SCRIPT.sub("", text))
    text = _ARTICLE.sub("", text.replace(",", " ").replace(" & ", " and "), count=1)
    text = " ".join(text.split())
    if cased:
        return re.sub(r"[\s$]", "", text)
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(each for each in plain if not unicodedata.combining(each))


def is_grid(text: str) -> bool:
    """Lines of digits, signs or single letters, whose order and length count."""
    return "\n" in text.strip() and not _LETTERS.search(text)


def equal_texts(answer: str, reference: str) -> bool:
    """Whether texts are equal; case matters in a formula such as CO, and in no other text."""
    if answer.strip() == reference.strip():
        return True
    if is_grid(reference):
        return answer.split() == reference.split() and answer.count("\n") == reference.count("\n")
    cased = _is_formula(reference)
    wanted = normal(reference, cased=cased)
    return bool(wanted) and normal(answer, cased=cased) == wanted


def answers_in(place: AnswerPlace) -> Iterator[str]:
    """What a place may give as its answer: all of it, what is emphasized, what is introduced."""
    yield place.text
    emphasized = [one or other for one, other in _BOLD.findall(place.rest or place.text)]
    if emphasized:  # Several ones are a list.
        yield ", ".join(dict.fromkeys(emphasized))
    introduced = _INTRODUCED.match(place.text)
    if introduced and not _DENIED.search(introduced[0]):
        yield place.text[introduced.end() :]


def gives_text(place: AnswerPlace, reference: str) -> bool:
    """Whether a place answers with a text: it is the text, or a sentence that begins or ends so."""
    if any(equal_texts(each, reference) for each in answers_in(place)):
        return True
    return (
        place.rule not in ("boxed", "answer_tag")
        and not is_grid(reference)
        and _says(place.text, reference)
    )


def _says(sentence: str, reference: str) -> bool:
    """Whether a sentence has the reference at its end or as its subject, and nothing beside it."""
    if len(sentence) > _LONG:
        return False
    words = " ".join(stripped(reference).translate(SIGNS).split())
    if not words[:1].isalnum() or words.count(" ") >= _MOST_WORDS or _UNSURE.search(sentence):
        return False
    stated = sentences(_ASIDE.sub("", unicodedata.normalize("NFKC", sentence))) or [""]
    if len(stated) > 1 and all(each.count(" ") < 2 for each in stated):
        return False  # Several texts, one a line.
    text = stated[0].translate(SIGNS).rstrip(" .!*_\"'`。！")
    text = " ".join(re.sub(r"[*`$]", "", text).split())
    if is_unspaced(words):
        spoken = text[: len(without_polite(fold(text), compiled(languages_of(text))))]
        before = spoken.removesuffix(words).rstrip(" *“「『《\"'")
        is_last = before != spoken and (not before or _LINKED.search(before))
        return bool(is_last and not _RIVAL_THERE.search(before))
    flags = 0 if _is_formula(reference) else re.IGNORECASE
    pattern = re.compile(rf"(?<![\w-])(?:the |an? )?{re.escape(words)}(?![\w-])", flags)
    introduction = _INTRODUCTION.match(text)
    if introduction and not pattern.search(introduction[0]):
        text = text[introduction.end() :]
    begins = max((each.end() for each in _CONTRAST.finditer(text)), default=0)
    return any(_is_stated(text, begins, *each.span()) for each in pattern.finditer(text, begins))


def _is_stated(text: str, begins: int, start: int, end: int) -> bool:
    """Whether text[start:end] ends or begins its clause, alone, whole, and is not denied."""
    before = text[begins:start]
    goes_on = _GOES_ON.match(text, end)
    is_last = end == len(text) or (goes_on and (before.strip() or text[end] in ",;"))
    is_subject = not before.strip(" \"'").count(" ") and _VERB.match(text, end)
    listed = _LISTED.match(text, end)  # "It is in Paris, France" has one answer.
    is_several = "," in text[start:end] or (listed and re.search(r"\w,| or | and ", listed[0]))
    is_item = listed and (is_several or not before.strip())
    is_longer = text[start].isupper() and re.search(r"(?<=.)\b[A-Z][a-z]+ $", before)
    return bool(
        (is_last or is_subject)
        and not is_item
        and not (_RIVAL_BEFORE.search(text, 0, start) or _RIVAL_AFTER.match(text, end))
        and not (is_longer and not _TITLE.search(before))
        and not _COPULA.search(before)
        and is_given(text, start, end)
    )


# --- Lists of texts -------------------------------------------------------------------


def items_of(text: str) -> list[str]:
    """The texts of a list: by commas, "and", or one a line."""
    parts = _SEPARATOR.split(ITEM.sub("", _ASIDE.sub("", text).strip(" []{}().")))
    return [each for each in map(normal, parts) if each]


def gives_list(place: AnswerPlace, reference: list[str], conventions: Conventions) -> bool:
    """Whether a place is this list, or ends with it."""
    lists = [*answers_in(place), place.rest if ITEM.search(place.rest) else ""]
    found = map(items_of, lists)
    if conventions.ordered_lists:
        return reference in found
    return any(set(each) == set(reference) for each in found)
