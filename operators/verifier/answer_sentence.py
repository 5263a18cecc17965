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
    """Return the forms of regular English verbs."""
    forms = list[str]()
    for stem in listed(stems):
        short = stem[:-1] if stem[-1] in "ey" else stem
        forms += [stem, stem + "s", stem + "d", stem + "ed", short + "ed", short + "ing"]
        forms += [short + "ies", short + "ied", stem + "ing", stem + "es"]
    return forms


# Denials, which count wherever they stand.
_DENIALS = frozenset(
    listed(
        "not no none nobody nothing neither nor never cannot hardly scarcely ain't isn't aren't "
        "wasn't weren't doesn't don't didn't can't couldn't won't wouldn't shouldn't mustn't "
        "hasn't haven't hadn't needn't mightn't nowhere false falsely falsehood untrue wrong "
        "wrongly incorrect incorrectly mistake mistakes mistaken mistakenly error errors erroneous "
        "fallacy myth lie trap distractor decoy typo joke rumor rumour blunder misconception "
        "impossible implausible improbable unlikely uncertain unclear unequal unlike unreasonable "
        "unacceptable unproven unfounded untenable unthinkable unknown invalid absurd nonsense "
        "ridiculous misleading foolish premature flawed inaccurate inconceivable contradictory "
        "incompatible inconsistent doubtful dubious questionable debatable bogus fake faulty "
        "except excluding but other else instead rather different distinct far apart aside besides "
        "opposed opposite contrary ruled rule rules silly crazy rash hasty dishonest hard crossed "
        "tempting naive kidding way without used ignore forget scratch strike drop violates "
        "violated fails failed nothing clashes breaks leads conflicts conflict erroneously initial "
        "first question withdraw retract revoke back erase delete scrap cross drops contradiction "
        "absurdity told tell tells hypothetical missing needed lacking forgot plausible exactly out"
    )
    + _inflected(
        "deny doubt reject refute disprove dispute disagree exclude eliminate discard dismiss "
        "refuse fail question contest avoid differ contradict"
    )
)
# Doubts, conditions, bounds and the speech of others, which are about the story where an answer is
# computed: "if she sells all, she gets 3 * 4 = 12".
_LIMITS = frozenset(
    listed(
        "maybe perhaps possibly possible probably presumably conceivably potentially guess "
        "seemingly apparently arguably plausibly allegedly supposedly reportedly purportedly "
        "hypothetically chance possibility odds might may could likely chances unsure if unless "
        "supposing assuming suppose assume imagine pretend provided providing case event when "
        "whenever long condition depending otherwise either says say claims thinks think thought "
        "believes believe believed swore wrote writes feels according whether squared cubed too "
        "shy short thrice answered answers stated states until said"
    )
    + _inflected(
        "guess seem appear allege claim argue insist assert suggest reckon reply declare suspect "
        "contend hope expect swear conclude propose respond maintain approach exceed surpass "
        "wonder"
    )
)
_CUES = _DENIALS | _LIMITS
# Before and behind an answer, directly: `half of 12`, `12 less than 20`.
_LAST = frozenset(
    listed(
        "of than over under above below beyond between near nearly almost within times plus most "
        "least or twice double triple half by up close and as away from off ahead"
    )
)
_FIRST = frozenset(
    listed(
        "short shy away less more fewer greater larger smaller higher lower bigger above below "
        "under over off from plus minus times divided multiplied modulo"
    )
)
# "The square of the answer is 12".
_ANSWERS = frozenset(listed("answer result solution"))
_FUNCTIONS = frozenset(
    listed(
        "twice half double triple thrice square cube root reciprocal negative opposite multiple "
        "factor third quarter than plus minus times squared cubed divided multiplied increased "
        "decreased modulo has contains ends starts begins add adding subtract subtracting multiply "
        "multiplying doubling tripling squaring part"
    )
)
_FIRST_WORDS = frozenset(listed("were had should is"))
_PUNCTUATION = str.maketrans({**dict.fromkeys('\n\t.,;:!()[]{}"“”*_$\\—–<>', " "), "’": "'"})


def is_denied(text: str, start: int, end: int) -> bool:
    """Return whether the sentence around the answer text[start:end] denies, doubts or bounds it."""
    before = text[max(0, start - _BEFORE) : start].rstrip(" \n\t$\\([{*_\"'")
    first = max(map(before.rfind, _ENDS)) + 1
    after = text[end : end + _AFTER]
    sentence = before[first:].lower()
    left = sentence.translate(_PUNCTUATION).split()
    right = after.lower().translate(_PUNCTUATION).split()
    elsewhere = not (before.isascii() and after.isascii()) and _has_letters(before + after)
    elsewhere = elsewhere or is_hinted(text)
    cued = not (_CUES.isdisjoint(left) and _CUES.isdisjoint(right))
    if not cued and not elsewhere and not _is_next_to_a_bound(left, right, after):
        return False
    if elsewhere:
        from .denials_by_language import is_denied_there

        denied = is_denied_there(text, start, end)
        if denied is not None:
            return denied
    if before.endswith((".", "!", "?")):
        sentence = ""  # The one before it ends in front of the answer.
    computed = "=" in sentence and bool(_COMPUTED.search(sentence))
    if computed and _DENIALS.isdisjoint(left) and _DENIALS.isdisjoint(right):
        return False
    from .denials_english import is_denied_in  # compiled for a text that has one of these words

    first += max(0, start - _BEFORE)
    return is_denied_in(text[first : end + _AFTER], start - first, end - first, computed)


def _is_next_to_a_bound(left: list[str], right: list[str], after: str) -> bool:
    """Return whether the words next to an answer may make it a bound, a condition or a question."""
    return (
        "?" in after
        or not _LAST.isdisjoint(left[-2:])
        or (not _ANSWERS.isdisjoint(left) and not _FUNCTIONS.isdisjoint(left))
        or (bool(left) and left[0] in _FIRST_WORDS)
        or right[:1] == ["or"]
        or "were" in right[:3]
        or (not _FIRST.isdisjoint(right[:3]) and any(map(_DIGIT.match, right[1:6])))
    )


_DIGIT = re.compile(r"\d|twenty|thirty|forty|fifty|hundred")
_COMPUTED = re.compile(r"\d[^=]*=[^a-z=]*$|>>[^a-z]*$")  # `12 - 3 = `
_ENDS = ("\n", ". ", "? ", "! ")


def _has_letters(text: str) -> bool:
    """Return whether a text has letters beyond ASCII, and not only quotation marks and the like."""
    from .phrases import has_foreign_letters

    return has_foreign_letters(text)
