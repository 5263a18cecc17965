"""Denials, doubts and conditions with the right number are not paid, affirmations are.

Responses are drawn from small grammars, with a seed. Where the grammar of a language says no more
than these few phrases, nothing follows for others: the rules were written with it in view.
"""

import random
import re
from collections import Counter

import pytest
from closing_sentences import closing_sentences
from denial_grammar import KINDS, PARTS
from denial_grammar import drawn as drawn_responses
from graded_cases import check_verdicts

from rejuice.operators.verifier import extract_answer, verify_batch

DRAWS = 250  # of each language and kind

# `@` is the right number, `#` a wrong one; `[a|b]` one of several; `{name}` a rule of the table.
ENGLISH = {
    "deny": [
        "[So|Well,|As we saw,|] {the} [is|was] [not|never|certainly not|by no means"
        "|in no way] {x}.",
        "{the} [is|equals] neither # nor {x}.",
        "Neither # nor {x} is [right|the answer].",
        "It is [false|untrue|wrong|a mistake|a myth|not true|not the case"
        "|impossible] that {the} is {x}.",
        "I [doubt|deny|do not believe|don't think|cannot say] that {the} is {x}.",
        "[Nobody|No one|None of us|No sensible student] [gets|obtained] {x}.",
        "The [wrong|incorrect|tempting but wrong] answer is {x}.",
        "{the} [cannot|can't|could not|won't] [be|possibly be] {x}.",
        "{the} is [anything but|anything except|everything except|some number other than] {x}.",
        "{x} is [wrong|incorrect|not the answer|ruled out|the wrong answer].",
        "{the} is {x}. [That is wrong.|No, this is false.|This cannot be right.]",
        "{the} is [different from|far from|nowhere near] {x}.",
        "{the} is # [rather than|instead of] {x}.",
    ],
    "doubt": [
        "[Maybe|Perhaps|Possibly] {the} is {x}.",
        "{the} [might|may|could] [be|well be] {x}.",
        "{the} is [probably|perhaps|possibly] {x}.",
        "{the} is {x}[, maybe|, perhaps|, I guess|, but I am not sure].",
        "I am not sure [if|whether] {the} is {x}.",
        "{the} is either # or {x}.",
        "[Some say|My friend claims|A student thinks] that {the} is {x}.",
        "Is {the} {x}?",
    ],
    "depend": [
        "If n is [even|prime], {the} is #, otherwise {x}.",
        "[Unless|If|Provided that|In case] n is [odd|prime|negative], {the} is {x}.",
        "{the} is {x} [if|only if|unless|provided] n is [odd|prime|negative].",
        "{the} is [less than|more than|at most|between 2 and] {x}.",
        "{the} is {x} [short of|less than|more than] 90.",
        "[Suppose|Assume] {the} is {x}.",
    ],
    "affirm": [
        "[So|Thus|Clearly,|Of course,|No,|] {the} is {x}.",
        "{the} is not # but {x}.",
        "{the} [isn't|cannot be|is not] #, so it is {x}.",
        "[There is no doubt|I have no doubt|It is true|Nobody can deny] that {the} is {x}.",
        "It is not [hard|difficult] to see that {the} is {x}.",
        "[If|When] we [add|multiply] them, [we get|{the} is] {x}.",
        "No more than one apple is left, so {the} is {x}.",
        "# is [wrong|too small|not right][;|, so|, but] {the} is {x}.",
        "Some say #, but {the} is {x}.",
        "{the} is [none other than|nothing but] {x}.",
        "She did not sell # of them, so {the} is {x}.",
        "It may look hard, but {the} is {x}.",
        "{the} is {x}, [not #|of course|because # is wrong|without a doubt].",
        "{the} is {x}. [It cannot be #.|There is no other solution.|This is not surprising.]",
    ],
    "the": ["the answer", "our answer", "the result", "the correct answer"],
    "x": ["@", "$@$", "**@**", r"\boxed{@}", r"$\boxed{@}$"],
}
GERMAN = {
    "deny": [
        "{the} [ist|lautet] [nicht|keineswegs|niemals] {x}.",
        "{the} ist weder # noch {x}.",
        "Es ist [falsch|nicht wahr|unmöglich], dass die Antwort {x} ist.",
        "Ich [bezweifle|glaube nicht], dass die Antwort {x} ist.",
        "Die falsche Antwort ist {x}.",
        "{the} kann nicht {x} sein.",
        "{the} ist alles außer {x}.",
        "{the} ist {x}. Das ist falsch.",
    ],
    "doubt": [
        "[Vielleicht|Möglicherweise] ist die Antwort {x}.",
        "{the} ist [wahrscheinlich|vielleicht] {x}.",
        "{the} könnte {x} sein.",
        "Manche sagen, die Antwort sei {x}.",
    ],
    "depend": [
        "Wenn n gerade ist, ist die Antwort #, sonst {x}.",
        "Falls n ungerade ist, lautet die Antwort {x}.",
        "{the} ist [kleiner als|mehr als] {x}.",
    ],
    "affirm": [
        "{the} [ist|lautet] {x}.",
        "{the} ist nicht #, sondern {x}.",
        "{the} kann nicht # sein, also ist sie {x}.",
        "Es besteht kein Zweifel, dass die Antwort {x} ist.",
        "Ohne Zweifel ist die Antwort {x}.",
        "Wenn wir sie addieren, erhalten wir {x}.",
        "# ist falsch, also ist die Antwort {x}.",
    ],
    "the": ["Die Antwort", "Unsere Antwort"],
    "x": ["@", "$@$", r"\boxed{@}"],
}
SPANISH = {
    "deny": [
        "La respuesta [no es|nunca es|no puede ser] {x}.",
        "La respuesta no es ni # ni {x}.",
        "Es [falso|imposible] que la respuesta sea {x}.",
        "[Dudo|No creo] que la respuesta sea {x}.",
        "La respuesta [incorrecta|equivocada] es {x}.",
        "La respuesta es {x}. Eso es falso.",
    ],
    "doubt": ["[Quizás|Tal vez] la respuesta es {x}.", "La respuesta [podría|puede] ser {x}."],
    "depend": [
        "Si n es par, la respuesta es #, de lo contrario {x}.",
        "[A menos que n sea|Si n es] impar, la respuesta es {x}.",
        "La respuesta es [menor que|más de] {x}.",
    ],
    "affirm": [
        "La respuesta es {x}.",
        "La respuesta no es # sino {x}.",
        "La respuesta no puede ser #, así que es {x}.",
        "[No hay duda de|Es cierto] que la respuesta es {x}.",
        "Sin duda, la respuesta es {x}.",
        "No es difícil ver que la respuesta es {x}.",
        "Si los sumamos, obtenemos {x}.",
    ],
    "x": ["@", "$@$", r"\boxed{@}"],
}
CHINESE = {
    "deny": [
        "答案[不是|不可能是|绝不是|并非]{x}。",
        "答案既不是#也不是{x}。",
        "说答案是{x}是错误的。",
        "我[怀疑|不相信]答案是{x}。",
        "错误的答案是{x}。",
        "答案是{x}。这是错的。",
    ],
    "doubt": ["[也许|或许]答案是{x}。", "答案[可能|大概]是{x}。", "有人说答案是{x}。"],
    "depend": [
        "如果n是偶数，答案是#，否则是{x}。",
        "[若|如果]n是奇数，答案是{x}。",
        "答案大于{x}。",
    ],
    "affirm": [
        "[所以|因此|没错，|毫无疑问，|]答案是{x}。",
        "答案不是#，而是{x}。",
        "答案不可能是#，所以答案是{x}。",
        "不难看出，答案是{x}。",
        "如果我们把它们相加，得到{x}。",
        "有人说#，但答案是{x}。",
    ],
    "x": ["@", "$@$", r"\boxed{@}"],
}
LANGUAGES = {"English": ENGLISH, "German": GERMAN, "Spanish": SPANISH, "Chinese": CHINESE}
_CHOICE = re.compile(r"\[([^\[\]]*)\]|\{(the|x)\}")


def drawn(grammar, kind, generator):
    """(response, reference) of one rule."""

    def chosen(found):
        return generator.choice(found[1].split("|") if found[2] is None else grammar[found[2]])

    text = generator.choice(grammar[kind])
    while (filled := _CHOICE.sub(chosen, text)) != text:
        text = filled
    right, wrong = generator.sample(range(11, 90), 2)
    text = text.strip().replace("@", str(right)).replace("#", str(wrong))
    lead = generator.choice(["", "", "3 + 4 = 7.\n"])
    return lead + text[:1].upper() + text[1:], str(right)


@pytest.mark.parametrize("language", LANGUAGES)
def test_denials_are_not_paid_and_affirmations_are(language):
    generator = random.Random(33)
    kinds = [kind for kind in ("deny", "doubt", "depend", "affirm") for _ in range(DRAWS)]
    drawn_cases = [drawn(LANGUAGES[language], kind, generator) for kind in kinds]
    responses, references = zip(*drawn_cases, strict=True)
    verdicts = verify_batch(responses, references, workers=1)
    wrong = [
        response
        for response, verdict, kind in zip(responses, verdicts, kinds, strict=True)
        if (verdict.verdict == "correct") != (kind == "affirm")
    ]
    assert not wrong, wrong[:20]


def test_what_stands_alone_is_in_no_scope():
    check_verdicts(
        [
            ("12", "I am not sure about the units.\n#### 12", True),
            ("12", "I doubt that 13 is right.\n<answer>12</answer>", True),
            ("12", "We cannot have 13.\n\n\\[\\boxed{12}\\]", True),
            ("12", "The answer is not #### 12", False),
            ("12", "It is false that the answer is <answer>12</answer>", False),
            ("12", "<answer>12</answer> is wrong.", False),
            ("12", "<answer>anything except 12</answer>", False),
        ]
    )


def test_a_story_is_no_condition():
    check_verdicts(
        [
            ("48", "They will earn $30 + $18 = $48 if they sell everything.", True),
            ("12", "If each box holds 3 eggs, then 4 boxes hold 12 eggs.", True),
            ("19", "The most points that could be in it is 19.", True),
            ("12", "The number of students who do not play is 12.", True),
            ("12", "She has 12 more than Tom.", True),
            ("12", "The bell rang 12 times in all.", True),
            ("A", "The correct answer is (A) acceptable as long as he believes it.", True),
            ("12", "Damit hätte er insgesamt 12 Filme sehen können.", True),
            ("12", "Sie würde 12 Euro verdienen, wenn sie alle Kuchen verkauft.", True),
            ("12", "Es gab einen Rabatt. Die Lehrerin gibt jedem Kind 12 Bonbons.", True),
            ("12", "Da es nicht möglich ist, halbe zu kaufen, braucht sie 12 Kisten.", True),
            ("12", "Falls die übrigen Karten grün sind, gibt es 12 grüne Karten.", True),
            ("12", "Falls die übrigen Karten grün sind, ist die Antwort 12.", False),
        ]
    )


def test_a_box_inside_an_expression():
    inside = [
        r"10^{@}", r"x_{@}", r"\sqrt{@}", r"\frac{@}{5}", r"\frac{5}{@}", r"3 + @", r"5 \cdot @",
        r"@ + 1", r"@x", r"@\pi", r"\log @", r"f(@)", r"(@, 5)", r"2@",
    ]  # fmt: skip
    whole = [
        r"x = @", r"5 + 7 = @", r"@ = 5 + 7", r"3 + @ = 15", r"\frac{24}{2} = @", r"\therefore @",
        r"@\text{ cm}", r"@^\circ", r"(@)", r"\text{Answer: }@",
    ]  # fmt: skip
    check_verdicts(
        ("12", "$" + each.replace("@", r"\boxed{12}") + "$", right)
        for forms, right in ((inside, False), (whole, True))
        for each in forms
    )


def test_a_denied_answer_is_shown_with_its_negation():
    assert extract_answer("It is false that the answer is 12.") == "not 12"
    assert extract_answer(r"It is false that the answer is \boxed{12}.") == "not(12)"


@pytest.mark.parametrize("kind", KINDS)
def test_responses_of_a_grammar_by_another_author(kind):
    """At most 1% of denials paid and of affirmations refused: `benchmarks/bench_denials.py`."""
    responses = [each for part in PARTS for each in drawn_responses(part, kind, 500)]
    verdicts = verify_batch(
        [each.response for each in responses], [each.answer for each in responses], workers=1
    )
    wrong = Counter(
        f"{each.language} {each.template}"
        for each, verdict in zip(responses, verdicts, strict=True)
        if (verdict.verdict == "correct") == (kind == "denial")
    )
    assert wrong.total() <= 10, wrong


def test_sentences_of_real_solutions_are_paid(shared_data):
    """Before sentences were read for denials, 14,191 were."""
    folder = shared_data / "gsm8k"
    sentences = [each for part in ("train", "test") for each in closing_sentences(folder / f"{part}.jsonl")]  # fmt: skip
    texts, answers = zip(*sentences, strict=True)
    paid = sum(each.verdict == "correct" for each in verify_batch(texts, answers, workers=1))
    assert (paid, len(texts)) >= (14_183, 14_650)


def test_a_story_is_denied_by_less_than_an_answer():
    story = [
        "Thus @ nuts were left.", "She wrote @ letters.", "Everyone except @ students came.",
        "The number of students who failed is @.", "Then he could have watched @ movies.",
        "He has @ dollars that he could spend.", "She needs @ eggs if she bakes on Monday.",
        "The probability that neither of them wins is @.", "Laura expects @ guests.",
        "Since it is not possible to buy half a box, she needs @ boxes.",
        "We reject the negative solution and get $x = @$.", "That leaves half of them, which is @.",
        "The minimum is @, attained when both are equal.", "The total is @, right?",
    ]  # fmt: skip
    check_verdicts(
        ("12", each.replace("@", shown), True)
        for each in story
        for shown in ("12", r"$\boxed{12}$")
    )


def test_no_pattern_backtracks():
    """Each of these took more than a second, or has no end."""
    for text in (
        "We do not have " + "x=" * 40,
        "other than " + "n=" * 40,
        "It is not " + "the " * 400,
    ):
        assert extract_answer(text + r"\boxed{12}")
