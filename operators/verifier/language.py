r"""What a language other than English calls an answer, and which of its words change a number."""

from __future__ import annotations

from typing import NamedTuple

REACH = 40  # characters before an answer in which its negation begins


class Language(NamedTuple):
    """The words of a language, each field the alternatives of one regular expression.

    Attributes:
        scripts: characters that only occur where the language may be meant; "" for Latin script,
            where `common` decides.
        noun: "answer".
        adj: what may stand between the noun and the link: "final", "therefore".
        link: "is", behind the noun; `:` and `=` are links everywhere.
        direct: whether the value may follow the noun without a link ("Cevap 12").
        weak: "result", which is often that of a step: it counts only at the end of a text.
        choose: "choose", directly before the letter of an option.
        answers: "is the answer", behind the value.
        no: "not", before what it negates.
        but: "but rather", before what holds instead of something negated.
        joins: "or", "and", "to", "plus": between two numbers neither of which is the answer.
        yields: "in total", "makes": a number behind it is on its own.
        before: "at least": before a number it makes another answer.
        after: "or more", "squared", "is not": the same behind a number.
        wrong: "wrong", in what follows an answer.
        supposes: "if", "he claims": an answer behind it is not that of the response.
        next: "then", in a sentence after the last number, which is not the last step.
        unsure: "I do not know", at the end of a text.
        polite: what ends a sentence and says nothing, as `です` does.
        sentence: words that a short answer does not have, such as "I".
        common: frequent words, by which a text in Latin script shows its language.
        letters: letters that no other language of this table in Latin script has.
        spaced: whether words have spaces between them.
        comma: whether decimals have a comma, as in 3,5.
    """

    scripts: str = ""
    noun: str = ""
    adj: str = ""
    link: str = ""
    direct: bool = False
    weak: str = ""
    choose: str = ""
    answers: str = ""
    no: str = ""
    but: str = ""
    joins: str = ""
    yields: str = ""
    before: str = ""
    after: str = ""
    wrong: str = ""
    supposes: str = ""
    next: str = ""
    unsure: str = ""
    polite: str = ""
    sentence: str = ""
    common: str = ""
    letters: str = ""
    spaced: bool = True
    comma: bool = False
