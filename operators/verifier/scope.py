"""Whether the sentence in which an answer stands affirms it.

The answer is located first. Then what stands in front of it and behind it, in its sentence, is read
for a denial, a doubt, a condition, a bound, or the speech of somebody else, which has the answer in
its scope. Most sentences have no word that could be one, and are looked at no further.
"""

from __future__ import annotations

import re

from .languages import is_hinted
from .words import listed

_BEFORE, _AFTER = 300, 160  # characters that are read on each side


def _inflected(stems: str) -> list[str]:
    """The forms of regular English verbs."""
    forms = list[str]()
    for stem in listed(stems):
        short = stem[:-1] if stem[-1] in "ey" else stem
        forms += [stem, stem + "s", stem + "d", stem + "ed", short + "ed", short + "ing"]
        forms += [short + "ies", short + "ied", stem + "ing"]
    return forms


_CUES = frozenset(
    listed(
        "not no none nobody nothing neither nor never cannot hardly scarcely ain't isn't aren't "
        "wasn't weren't doesn't don't didn't can't couldn't won't wouldn't shouldn't mustn't hasn't "
        "haven't hadn't needn't mightn't means way nowhere false falsely falsehood untrue wrong "
        "wrongly incorrect incorrectly mistake mistakes mistaken mistakenly error errors erroneous "
        "fallacy myth lie trap distractor decoy typo joke rumor rumour blunder misconception "
        "impossible implausible improbable unlikely uncertain unclear unsure unequal unlike "
        "unreasonable unacceptable unproven unfounded untenable unthinkable unknown invalid absurd "
        "nonsense ridiculous misleading foolish premature flawed inaccurate inconceivable "
        "contradictory incompatible doubtful dubious questionable debatable bogus fake faulty "
        "except excluding but other else instead rather different distinct far apart aside besides "
        "opposed opposite maybe perhaps possibly possible probably presumably conceivably "
        "potentially guess seemingly apparently arguably plausibly allegedly supposedly reportedly "
        "purportedly hypothetically might may could likely chances wonder if unless supposing "
        "assuming suppose assume imagine pretend provided providing case event when whenever long "
        "condition depending otherwise either says say claims thinks think thought believes "
        "believe believed swore wrote writes feels according contrary tempting naive common "
        "popular typical kidding whether ruled rule rules out until squared too shy short thrice"
    )
    + _inflected(
        "deny doubt reject refute disprove dispute disagree exclude eliminate discard dismiss "
        "refuse fail wonder question contest avoid differ exceed surpass contradict guess seem "
        "appear allege claim argue insist assert suggest reckon reply declare suspect contend "
        "hope expect swear conclude propose respond maintain approach"
    )
    + listed("answered answers stated states sa" + "id")
)
# Words of languages in Latin script that are not English, for texts that show their language late.
_ELSEWHERE = frozenset(
    listed(
        "falsch vielleicht wahrscheinlich niemand weder sonst falls nicht faux fausse sauf sinon "
        "personne pas peut-être falso falsa incorrecto incorrecta equivocado nadie dudo posiblemente "
        "probablemente imposible forse altrimenti dubito sbagliato errato talvez duvido errado "
        "misschien onjuist fout niet mungkin salah bukan belki kanske ni puede kann peut"
    )
)
# Before and behind an answer, directly: `half of 12`, `12 less than 20`.
_LAST = frozenset(
    listed(
        "of than over under above below beyond between near nearly almost within times plus most "
        "least or twice double triple half by up close and"
    )
)
_FIRST = frozenset(
    listed(
        "short shy away less more fewer greater larger smaller higher lower bigger above below "
        "under over off from plus minus times cubed divided multiplied modulo percent or to"
    )
)
_FIRST_WORDS = frozenset(listed("were had should is"))
_PUNCTUATION = str.maketrans({**dict.fromkeys("\n\t.,;:!()[]{}\"“”*_$\\—–<>", " "), "’": "'"})


def is_denied(text: str, start: int, end: int) -> bool:
    """Whether the sentence around the answer text[start:end] denies, doubts or bounds it."""
    before = text[max(0, start - _BEFORE) : start].rstrip(" \n\t$\\([{*_\"'")
    first = max(map(before.rfind, _ENDS)) + 1
    after = text[end : end + _AFTER]
    left = before[first:].lower().translate(_PUNCTUATION).split()
    right = after.lower().translate(_PUNCTUATION).split()
    if (
        not text.isascii()
        or is_hinted(text)
        or not (_ELSEWHERE.isdisjoint(left) and _ELSEWHERE.isdisjoint(right))
    ):
        from .foreign_denials import is_denied_there

        denied = is_denied_there(text, start, end)
        if denied is not None:
            return denied
    if (
        _CUES.isdisjoint(left)
        and _CUES.isdisjoint(right)
        and "?" not in after
        and _LAST.isdisjoint(left[-2:])
        and _FIRST.isdisjoint(right[:3])
        and (not left or left[0] not in _FIRST_WORDS)
    ):
        return False
    from .denials import is_denied_in  # compiled for a text that has one of these words

    first = max(0, start - _BEFORE)
    return is_denied_in(text[first : end + _AFTER], start - first, end - first)


_ENDS = ("\n", ". ", "? ", "! ")

# Of two negations, the second takes the first away: "nothing but 12" is 12.
_NOTHING_BUT = re.compile(
    r"\b(?:(?:no(?:ne|thing| one|body)?|no \w+)(?: \w+)?|(?:(?:can|could|may|must|will|would|is|are|was|"
    r"does|do|has|should)(?:n['’]t| ?not\b)|cannot|can['’]t|won['’]t|not|never)(?: possibly| ever)?"
    r"(?: be| equal| have been)?(?: (?:anything|any \w+|something|a \w+))?)"
    r" (?:other than|but|except|else than|different (?:from|than))(?= [^a-zA-Z,;]{0,6}\\?\w)",
    re.IGNORECASE,
)


def without_double_negations(text: str) -> str:
    """A text with "is nothing other than 12" as "is 12"."""
    if "other than" in text or " but " in text or "xcept" in text or "lse than" in text:
        text = _NOTHING_BUT.sub(_double_negation, text)
    if " als " in text or " que " in text or " che " in text or " как " in text or " dan " in text:
        for pattern, instead in _NOTHING_ELSE:
            text = pattern.sub(instead, text)
    return text


_NOTHING_ELSE = tuple(
    (re.compile(pattern, re.IGNORECASE), instead)
    for pattern, instead in (
        (r"\b(?:nichts anderes|keine andere[nrs]?) als\b|\bniets anders dan\b", ""),
        (r"\bn['’]est (?:rien d['’]autre|nulle autre|autre) que\b", "est"),
        (r"\bno es (?:otr[oa]|nada más) que\b", "es"),
        (r"\bnon è (?:(?:nient['’])?altr[oa]) che\b", "è"),
        (r"\bне что иное,? как\b", ""),
    )
)


def _double_negation(found: re.Match[str]) -> str:
    text = found[0].lower()
    if text.startswith("not ") and text.endswith(" but"):
        return found[0]  # "not 13 but 12", "not one but two"
    return "is" if _BE.match(text) else ""


_BE = re.compile(r"can|could|may|must|will|would|is|are|was|do|has|should|won")
