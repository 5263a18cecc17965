"""References with several right answers, and in worked solutions."""

import pytest

from rejuice.operators.columns import alternatives, as_text, last_box, listed_answers
from rejuice.operators.verifier import check_reference, check_references, verify, verify_batch

CASES = [
    ("\\boxed{2}", '["1", "2"]', "correct"),
    ("The answer is 13.", "11 or 13", "correct"),
    ("11 or 13", "11 or 13", "correct"),
    ("12", "11 or 13", "wrong_answer"),
    ("11 or 13", "11", "wrong_answer"),
    ("twelve", '["12", "a dozen"]', "correct"),
    ("\\frac{1}{2}", '["x", "\\\\frac12"]', "correct"),
    ("6", '["proof", "5"]', "wrong_answer"),
    ("5", '["proof", "5"]', "correct"),
    ("3", "proof", "verifier_error"),
    ("3", '["proof", "notfound"]', "verifier_error"),
    ("x = 1", "x = 1 or x = 2", "wrong_answer"),
    ("[1, 2]", "[1, 2]", "correct"),
    ("1", "[1, 2]", "wrong_answer"),
    # An option, by its letter and its text: a letter decides beside a number.
    ("The answer is B.", '["B", "7"]', "correct"),
    ("(b)", '["B", "7"]', "correct"),
    (r"\boxed{7}", '["B", "7"]', "correct"),
    (r"\boxed{1}", '["B", "7"]', "wrong_answer"),
    ("It is 7.\n**A**", '["B", "7"]', "wrong_answer"),
    ("A) 7 is odd", '["B", "7 cm"]', "wrong_answer"),
    ("Answer: A dog runs fast", '["C", "a dog runs fast."]', "correct"),
    ("I think of a dog. The answer is B", '["C", "a dog"]', "wrong_answer"),
    ("I get 7. So A.", '["B", "7"]', "wrong_answer"),
    ("The answer is (A) 7", '["B", "7"]', "wrong_answer"),
    # A unit, or another option that is mentioned behind the number, is no answer.
    ("Final answer: 7 (C is too large)", '["B", "7"]', "correct"),
    ("The answer is 7 A.", '["B", "7 A"]', "correct"),
    ("The answer is 2.", '["B", "30", "2"]', "correct"),
    ("It is 30. So A.", '["B", "30", "2"]', "wrong_answer"),
    ("So I = 7 F", '["B", "7 F"]', "correct"),
    ("The answer is 7 J.", '["B", "7 J"]', "correct"),
    (r"\boxed{0.2\text{ A}}", '["D", "0.2 A"]', "correct"),
    (r"\boxed{7 C}", '["D", "7 C"]', "correct"),
    ("The answer is 8 A.", '["B", "7 A"]', "wrong_answer"),
    # Right answers that are no option.
    ("It is 7.\n**A**", '["B", "7", "seven"]', "correct"),
    ("It is 7.\n**A**", '["7", "B"]', "correct"),
    # Yes and no say what true and false do.
    ("Yes.", "true", "correct"),
    ("No, it is not.", "false", "correct"),
    ("Yes.", "false", "wrong_answer"),
    ("No.", "true", "wrong_answer"),
    ("True", "yes", "wrong_answer"),
]


def test_each_of_several_answers_is_right():
    verdicts = verify_batch([response for response, *_ in CASES], [ref for _, ref, _ in CASES])
    found = [(*case[:2], verdict.verdict) for case, verdict in zip(CASES, verdicts, strict=True)]
    assert found == CASES
    assert [verify(*case[:2]) for case in CASES] == verdicts


def test_one_answer_that_can_be_graded_against_is_enough():
    references = ['["1", "x^2"]', '["proof", "nan"]', '["proof", "7"]', "7", "7 or 8", None]
    usable = [reason is None for reason in check_references(references)]
    assert usable == [True, False, True, True, True, False]
    assert [check_reference(each) is None for each in references] == usable


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"\boxed{\frac{1}{2}} or so", r"\frac{1}{2}"),
        (r"\boxed{1} and \boxed {\{2\}}", r"\{2\}"),
        (r"\fbox{3}", "3"),
        (r"\boxed{1} and \boxed{2", None),
        ("4", None),
    ],
)
def test_the_last_box(text, box):
    assert last_box(text) == box


def test_lists_as_text():
    assert as_text(["a", "a"]) == "a"
    assert as_text([]) == ""
    assert listed_answers(as_text(["ä", "b"])) == ["ä", "b"]
    for text in ("[1, 2]", '["a', '["a", [1]]', "a", "['a"):
        assert listed_answers(text) is None
    assert listed_answers(' [\n "a", 1, null]') == ["a", "1"]
    assert listed_answers("['12', 'twelve', None]") == ["12", "twelve"]
    assert alternatives("a or b") == ["a or b"]
    for text in ("12 OR 13", "$12$ or $13$", "12 \\text{ or } 13", "A or B", "3 cm or 4 cm"):
        assert len(alternatives(text)) == 3, text


def test_a_list_as_python_writes_it_may_have_both_quotes():
    assert listed_answers(str(["4", "it's 5"])) == ["4", "it's 5"]
