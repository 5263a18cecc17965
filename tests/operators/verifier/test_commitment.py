r"""Which text of a response is its answer: what a policy commits to, and what it only mentions."""

from __future__ import annotations

import pytest
from each import check_each
from graded_cases import check_boxed, check_verdicts
from hostile_text import in_linear_time

from rejuice.operators.verifier import extract_answer, verify

VALUES = [
    ("42", "41"),
    (r"\frac{1}{2}", r"\frac{1}{3}"),
    ("x^2+1", "x^2-1"),
    ("(1,2)", "(2,1)"),
    (r"\{1,2,3\}", r"\{1,2,4\}"),
    ("y=2x+3", "y=2x-3"),
    (r"\sqrt{2}", r"\sqrt{3}"),
    (r"50\%", r"40\%"),
    ("-7", "7"),
    (r"x \ge 2", r"x \le 2"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}2\\1\end{pmatrix}"),
]


def paid(response: str, reference: str) -> bool:
    return verify(response, reference).verdict == "correct"


def for_each_value(*templates: str) -> list[tuple[str, str]]:
    """(reference, response) with the right value for `@` and a wrong one for `#`."""
    return [
        (right, template.replace("@", right).replace("#", wrong))
        for right, wrong in VALUES
        for template in templates
    ]


def none_is_paid(*templates: str) -> None:
    check_verdicts((right, response, False) for right, response in for_each_value(*templates))


# --- where a response ends ------------------------------------------------------------


@pytest.mark.parametrize(
    "token",
    ["<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>", "<end_of_turn>", "\n<|im_start|>user\n"],
)
def test_what_follows_an_end_token_does_not_count(token: str) -> None:
    none_is_paid(rf"\boxed{{#}}{token} \boxed{{@}}", f"The answer is #.{token}The answer is @.")
    assert paid(rf"So \boxed{{42}}{token}", "42")
    assert paid(f"The answer is 42.{token}The answer is 41.", "42")
    assert paid(f"<think>41{token}", "42") is False


def test_a_question_of_its_own_after_the_answer_does_not_count() -> None:
    none_is_paid("#### #\n\nQuestion: 2+2?\nAnswer: 4\n#### @", "A: #\n\nQ: 2+2?\nA: @")
    assert paid("#### 42\n\n**Problem:** 2+2?\n#### 4", "42")
    # Numbered ones are parts of the question that it was asked.
    assert paid("Q1: How many boxes?\nA: 6\nQ2: How many pens?\nA: 42", "42")
    # A question that is repeated before any answer is none of its own.
    assert paid("Let me see.\n\nQuestion: 6 times 7?\nAnswer: 42", "42")
    assert paid("I answer in steps.\n\nProblem: 6 times 7?\n6 * 7 = 42", "42")


# --- answers that are not given -------------------------------------------------------

# `@` is the right answer, `#` another one.
NOT_GIVEN = {
    "English, negated": [
        "The answer is not @.", "The answer isn't @.", "The answer cannot be @.", "It's not @.",
        "The answer could not possibly be $@$.", "The answer is not equal to @.", "Not @.",
        "The answer is anything but @.", "The answer is unlikely to be @.", "It is not $@$.",
        r"The answer isn't $\boxed{@}$.", r"It is not \boxed{@}",
        "The answer is not <answer>@</answer>", "<answer>not @</answer>",
    ],
    "English, called wrong": [
        r"\boxed{@} is wrong.", r"\boxed{@} is incorrect.", r"$\boxed{@}$ is not the right answer.",
        r"$\boxed{@}$ isn't right.", r"$\boxed{@}$ cannot be correct.", "$@$ is not the answer.",
        "<answer>@</answer> is wrong.", r"\boxed{@ \text{ (incorrect)}}",
    ],
    "English, two answers": [
        r"It is # or $\boxed{@}$.", r"It is either # or $@$.", r"The answer is either @ or #.",
        r"The answer is neither # nor $\boxed{@}$.", r"Neither $\boxed{@}$ nor # is right.",
        "It is # or <answer>@</answer>", "<answer># or @</answer>",
    ],
    "English, asked": [
        r"Is it $\boxed{@}$?", "Is the answer $@$?", r"Is $\boxed{@}$ the answer?",
        "<answer>Is it $@$?</answer>",
    ],
    "German": [
        "Die Antwort ist nicht @.", r"Es ist nicht \boxed{@}.", r"\boxed{@} ist falsch.",
        r"Die Antwort ist weder # noch \boxed{@}.", r"Die Antwort ist 13 oder \boxed{@}.",
        r"Ist die Antwort \boxed{@}?",
    ],
    "French": [
        "La réponse n'est pas @.", r"La réponse n'est pas \boxed{@}.", r"\boxed{@} est faux.",
        r"La réponse n'est ni # ni \boxed{@}.", r"La réponse est 13 ou \boxed{@}.",
        r"Est-ce \boxed{@} ?",
    ],
    "Spanish": [
        "La respuesta no es @.", r"La respuesta no es \boxed{@}.", r"\boxed{@} es incorrecto.",
        r"La respuesta no es ni # ni \boxed{@}.", r"La respuesta es 13 o \boxed{@}.",
        r"¿La respuesta es \boxed{@}?",
    ],
    "Italian and Portuguese": [
        r"La risposta non è \boxed{@}.", r"La risposta è 13 o \boxed{@}.",
        r"A resposta não é \boxed{@}.", r"A resposta é 13 ou \boxed{@}.",
    ],
    "Russian": [
        r"Ответ не \boxed{@}.", r"Ответ: 13 или \boxed{@}.", r"\boxed{@} неверно.",
        r"Ответ: это \boxed{@}?",
    ],
    "Chinese": [
        "答案不是\\boxed{@}。", "答案是13或\\boxed{@}。", "答案是\\boxed{@}吗？", "\\boxed{@}是错的。",
        "答案既不是#也不是\\boxed{@}。",
    ],
    "Japanese and Korean": [
        "答えは\\boxed{@}ではない。", "答えは13または\\boxed{@}です。", "答えは\\boxed{@}ですか？",
        "정답은 \\boxed{@}가 아닙니다.", "정답은 13 또는 \\boxed{@}입니다.",
    ],
    "Arabic and Hindi": [
        "الجواب ليس \\boxed{@}", "الجواب 13 أو \\boxed{@}", "उत्तर \\boxed{@} नहीं है।",
    ],
    "others": [
        r"Het antwoord is niet \boxed{@}.", r"Odpowiedź to nie \boxed{@}.",
        r"Svaret är inte \boxed{@}.", r"Đáp án không phải là \boxed{@}.",
        r"Cevap \boxed{@} değil.", r"Jawabannya bukan \boxed{@}.", "คำตอบไม่ใช่ \\boxed{@}",
    ],
}  # fmt: skip

# `@` is 42, `#` 41.
GIVEN = {
    "English": [
        "It is not # but @.", "It is not only even but @.", "The answer isn't #, so it is @.",
        r"The answer cannot be #, so it is \boxed{@}.",
        "No more than 5 apples: the answer is @.", "# is wrong, so the answer is @.",
        "Neither # nor 40 fits, so the answer is @.", "Not #: @.", "Either way, the answer is @.",
        "He did not sell # of them, so @ are left.", "There is no doubt that the answer is @.",
        "Believe it or not\n$@$", "It is not only $@$", r"$\boxed{@}$ is not a prime.",
        "The number of students who do not play is @.", "The bell rang @ times or so.",
        "She has # or 40 bags, and the answer is @.", "Of these, 50% are @.",
    ],
    "English, another is denied": [
        "The answer is @, not #.", "It is @, not #.", "So she has @ apples, not # apples.",
        "It is @ and not #.", "So it is @ rather than #.", "@, not #, is the answer.",
        "The answer is @, because # is wrong.",
    ],
    "English, a question before or a tag": [
        "Is it #? No, it is @.", "Is it @? Yes.", "How many are left? @",
        "How many apples are left? She has @.", r"What is it? It is \boxed{@}.",
        "The total is @, right?", "The answer is @, isn't it?",
    ],
    "doubts, conditions, bounds and others are not read": [
        "Perhaps the answer is @.", "If n is odd, the answer is @.", "My friend says: @.",
        "I doubt that the answer is @.", "The wrong answer is @.", "The answer is @. That is wrong.",
    ],
    "German": [
        r"Es ist nicht #, sondern \boxed{@}.", "Er isst nicht alle, also bleiben \\boxed{@} übrig.",
        r"Es gibt keinen Zweifel: die Antwort ist \boxed{@}.", "Ist es #? Nein, es ist \\boxed{@}.",
    ],
    "French, Spanish, Italian": [
        r"La réponse n'est pas #, mais \boxed{@}.", r"La respuesta no es # sino \boxed{@}.",
        "Nadie come más de 5 manzanas: la respuesta es @.", r"¿Cuántos quedan? Quedan \boxed{@}.",
        r"La risposta non è #, ma \boxed{@}.",
    ],
    "others": [
        "答案不是#，而是\\boxed{@}。", "没有人离开，所以答案是\\boxed{@}。", "还剩多少个？还剩\\boxed{@}个。",
        "答えは#ではなく\\boxed{@}です。", "정답은 #이 아니라 \\boxed{@}입니다.",
        r"Ответ не #, а \boxed{@}.", "الجواب ليس # بل \\boxed{@}",
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", NOT_GIVEN)
def test_an_answer_that_its_clause_does_not_give(kind: str) -> None:
    if kind.startswith("English"):
        none_is_paid(*NOT_GIVEN[kind])
    else:
        cases = [each.replace("@", "42").replace("#", "41") for each in NOT_GIVEN[kind]]
        check_verdicts(("42", response, False) for response in cases)


@pytest.mark.parametrize("kind", GIVEN)
def test_an_answer_that_its_clause_gives(kind: str) -> None:
    cases = [each.replace("@", "42").replace("#", "41") for each in GIVEN[kind]]
    check_verdicts(("42", response, True) for response in cases)


def test_an_answer_that_is_not_given_is_shown_with_a_negation() -> None:
    assert extract_answer("It isn't x^2+1.") == "not x^2+1"
    assert extract_answer(r"It is not \boxed{12}.") == "not(12)"
    assert extract_answer("The answer is not <answer>12</answer>") is None
    assert extract_answer("The answer is not #### 12") == "not 12"
    assert extract_answer("#### 13 or 12") == "13 or 12"
    assert paid("I am not sure about the units.\n#### 42", "42")
    assert paid(r"\boxed{\text{incorrect}}", "incorrect")


def test_an_answer_that_is_given_up_is_none() -> None:
    none_is_paid(
        "Problem: show that the answer is $@$. I could not.",
        "I think the answer is $@$... no wait. I give up.",
        "If the answer is $@$ then the problem would be easy, but I do not know.",
        "The question says the answer is either $@$ or something else; I cannot tell.",
        "Is the answer @? No.",
    )
    assert paid("I do not know a short way, but the answer is 42.", "42")
    assert paid("So she pays 42 dollars, and we do not know the tip.", "42")
    assert paid("The answer is 42. Can it be more? No.", "42")
    assert paid("So the answer is 42.\n\nNote: I could not simplify it further.", "42")
    assert paid("I could not do it by hand, so I counted: 42", "42")


def test_a_list_of_options_chooses_none() -> None:
    none_is_paid(
        "A. 1\nB. #\nC. @",
        "Option A: $#$\nOption B: $@$",
        "Candidate 0: \\boxed{1}\nCandidate 1: \\boxed{#}\nCandidate 2: \\boxed{@}",
    )
    assert paid("1. 3 + 4 = 7\n2. 7 * 6 = 42", "42")
    assert paid("(a) \\boxed{5}\n(b) \\boxed{7}", "5, 7")
    assert paid("A. 1\nB. 42\nThe answer is 42.", "42")


def test_the_number_of_a_list_item_is_no_answer() -> None:
    cut_off = "41. We get 40.\n\n42. **Calculate the total"
    assert extract_answer(cut_off) == "40"
    assert extract_answer("1. He has 3 + 4 = 7.\n2.") == "7"
    assert paid("It is, as we saw,\n42. That is all.", "42")
    assert paid("1. First we add.\n2. The total is 42", "42")


def test_a_numeral_that_goes_on_is_another_number() -> None:
    cases = ["42'", "42...", "42....", r"42\prime"]
    check_boxed(("42", answer, False) for answer in cases)


# --- boxes ----------------------------------------------------------------------------


def test_a_bound_before_the_box_has_the_value_in_the_box() -> None:
    cases = [
        r"so the company has to sell at least $\boxed{445}$ widgets",
        r"it can hire at most $\boxed{445}$ workers",
        r"Therefore $x\geq \boxed{445}.$",
        r"so it is $\le \boxed{445}$.",
    ]
    check_verdicts(("445", response, True) for response in cases)


def test_a_minus_before_the_box_stays_with_it() -> None:
    check_verdicts(("445", response, False) for response in [r"-\boxed{445}", r"$-\boxed{445}$"])


def test_a_box_inside_an_expression() -> None:
    inside = [
        r"10^{@}", r"x_{@}", r"\sqrt{@}", r"\frac{@}{5}", r"\frac{5}{@}", r"3 + @", r"5 \cdot @",
        r"@ + 1", r"@x", r"@\pi", r"\log @", r"2@",
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


def test_a_final_answer_after_the_box_replaces_it() -> None:
    cases = [
        (r"We gain $\boxed{255}$. Final Answer: The final answer is $10,455$. I hope so.", "10455"),
        (r"Half is \boxed{5}." "\n\n**Final Answer**\n10\n\nFinal answer: 10", "10"),
        (r"So \boxed{5}. The final answer is 5 apples.", "5"),
        (r"So \boxed{3.14}. The final answer is rounded to 2 decimal places.", "3.14"),
        (r"So \boxed{5}. Final answer: **10** apples", "10"),
        (r"So \boxed{5}." "\n\n### Final Answer\n$10$", "10"),
        (r"So \boxed{5}. The final answer is: \[ x = 10 \]", "10"),
        (r"So \boxed{\frac12}. The final answer is a fraction.", r"\frac12"),
        (r"The final answer is \boxed{5}. We checked 3 ways.", "5"),
    ]
    check_verdicts((reference, response, True) for response, reference in cases)


def test_boxes_that_are_written_otherwise() -> None:
    cases = [
        (r"so it is $\boxed 3$.", "3"),
        (r"so it is \boxed -\frac12", r"-\frac12"),
        (r"use \boxed to box it: \boxed{4}", "4"),
        (r"use \boxed to box it. The answer is 4.", "4"),
        (r"So the answer is $\\boxed{C}$.", "C"),
        (r"\\boxed{-3}", "-3"),
        (r"4 \\\boxed{5}", "5"),
        (r"\boxed{{{5}}}", "5"),
        (r"\boxed{{1,2} \setminus {2}}", r"{1,2} \setminus {2}"),
    ]

    def check(response: str, answer: str) -> None:
        assert extract_answer(response) == answer

    check_each(cases, check)


def test_time_grows_with_the_length_of_a_response() -> None:
    for piece in [
        "(incorrect ",
        "not ",
        "\nQ",
        "| ",
        r"\boxed ",
        "A. 1\n",
        "Final answer: ",
        "    ",
        "not really ",
        "12 or ",
        "is it 12 ",
    ]:
        in_linear_time(extract_answer, piece * 32_000 + "42")


@pytest.mark.parametrize(
    "end",
    [
        "<|return|>", "[|endofturn|]", "<seed:eos>", "<|END_RESPONSE|><|END_OF_TURN_TOKEN|>", "[EOS]",
        "[e~[", "<|eot|>", "<|user|>\n3 * 9? \\boxed{27}", "<eos>", "<|role_end|>",
    ],
)  # fmt: skip
def test_what_follows_the_end_of_a_turn_does_not_count(end):
    assert paid(f"The answer is 42{end}", "42")
    assert paid(f"\\boxed{{42}}{end}\n\\boxed{{27}}", "42")
    assert not paid(f"It is 27.{end}\nThe answer is 42.", "42")


def test_the_box_of_glm():
    assert paid("<think>7</think>\n<|begin_of_box|>42<|end_of_box|>", "42")
    assert paid("The answer is <|begin_of_box|>42<|end_of_box|>.", "42")
    assert not paid("<|begin_of_box|>7<|end_of_box|>\nCheck: 6 * 7 = 42", "42")


def test_a_response_in_tags_after_a_thought():
    assert paid("<think>7</think><response>42</response>", "42")
    assert paid("<reasoning>7</reasoning>\n<output>It is 42</output>", "42")


def test_marks_say_nothing():
    for text in ("42 \u2705", "**Final Answer:** $42$ \U0001f389", "Thus x=42 \u220e"):
        assert paid(text, "42")
