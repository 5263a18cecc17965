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


# --- answers that are denied ----------------------------------------------------------


def test_a_negated_answer_is_not_the_answer() -> None:
    none_is_paid(
        "The answer is not @.",
        "The answer isn't @.",
        "The answer is anything but @.",
        "The answer is unlikely to be @.",
        "It is not $@$.",
        "La respuesta no es @.",
        "Die Antwort ist nicht @.",
        r"The answer isn't $\boxed{@}$.",
        r"It is not \boxed{@}",
    )
    assert extract_answer("It isn't x^2+1.") == "not x^2+1"
    assert paid("Believe it or not\n$42$", "42")
    assert paid("It is not only $42$", "42")


def test_an_answer_that_is_called_wrong_is_not_the_answer() -> None:
    none_is_paid(
        r"\boxed{@ \text{ (incorrect)}}",
        r"\boxed{@} is incorrect.",
        r"$\boxed{@}$ is not the right answer.",
    )
    assert paid(r"$\boxed{42}$ is not a prime.", "42")
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


def test_what_changes_the_value_in_the_box_stays_with_it() -> None:
    cases = [
        r"$x > \boxed{445}$",
        r"more than \boxed{445}",
        r"The answer is at least \boxed{445}.",
        r"-\boxed{445}",
        r"$x \ne \boxed{445}$",
    ]
    check_verdicts(("445", response, False) for response in cases)


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
