"""The words by which a language denies an answer."""

from __future__ import annotations

from typing import NamedTuple


class DenialWords(NamedTuple):
    """The words of a language, each field the alternatives of one regular expression.

    Attributes:
        before: in the statement in front of an answer: "it is false that", "perhaps", "neither".
        after: behind an answer, in its sentence: "is wrong", "unless".
        says: somebody else "says", in front of the word for "answer".
        so: "so", "but": another statement begins.
        certain: what only looks like a denial: "no doubt", "not hard to see".
        sums: "we", "add": in a condition that is a step of the way.
        other: makes the number `#` another one than the answer, which stands before it in its
            sentence: "not #", "more than #", "# less than #".
        retracts: begins a sentence that takes back the one before: "that cannot be".
        turns: ends a denial, or what only looks like one, and begins a statement: "that is wrong:
            the answer".
        frames: in front of `turns`, makes the statement a part of it: "if", "according to".
        throughout: as `before`, from the start of the sentence, whatever begins in between.
        aside: behind an answer: "as", "although", and what only comments on it.
        agrees: behind an answer that somebody else says: "and that is right".
        named: shows that the statement, with `#` for the answer, is about the answer and not the
            story. A language without it has only such statements.
        doubts: as `before`, in a statement about the answer only: "except", "maybe".
        doubts_after: as `after`, in a statement about the answer only.
        reports: as `says`, in a statement about the answer only.
        story: what looks like a denial in a sentence of the story: "he could buy".
        contrary: in a statement of the story, what shows that its `unreal` verb is meant so.
        unreal: verbs of what is not so, in the clause of an answer: "would be". They are compared
            with their accents, which may be all that tells them apart ("wäre", "waren").
    """

    before: str = ""
    after: str = ""
    says: str = ""
    so: str = ""
    certain: str = ""
    sums: str = ""
    other: str = ""
    retracts: str = ""
    turns: str = ""
    frames: str = ""
    throughout: str = ""
    aside: str = ""
    agrees: str = ""
    named: str = ""
    doubts: str = ""
    doubts_after: str = ""
    reports: str = ""
    story: str = ""
    contrary: str = ""
    unreal: str = ""


def on_one_line(field: str) -> str:
    """A field of `DenialWords` without its line breaks and the indents behind them."""
    return "".join(map(str.lstrip, field.split("\n")))
