"""The last number of prose: alone where it stands free, else the run that it is part of."""

from __future__ import annotations

import pytest
from graded_cases import check_verdicts
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators.verifier.answer import last_number

# A response (`¶` stands for a new line), references that it answers, references that it does not.
# fmt: off
TABLE: list[tuple[str, list[str], list[str]]] = [
    ("I get 3^{2}", ["9"], ["2", "3"]),
    ("I get 3^2 of them", ["9"], ["2", "3"]),
    ("I get $3^2$ of them", ["9"], ["2", "3"]),
    ("I would say x^{9}", ["x^9"], ["9"]),
    ("It equals 2^{10}", ["1024"], ["10", "2"]),
    ("We end with 10^{5} people", ["100000"], ["5", "10"]),
    ("We end up with x_{3} here", ["x_3"], ["3"]),
    ("We end up with x_3 here", ["x_3"], ["3"]),
    ("I obtain 5!", ["120"], ["5"]),
    ("I obtain 5! of them", ["120"], ["5"]),
    ("I obtain 3*5 of them", ["15"], ["5", "3"]),
    ("I obtain 3 * 5 of them", ["15"], ["5", "3"]),
    (r"I obtain 3 \cdot 5 of them", ["15"], ["5", "3"]),
    ("I obtain 3 × 5 of them", ["15"], ["5", "3"]),
    ("about 5k people", [], ["5"]),
    ("about 5 k people", [], ["5"]),
    ("about 5 million people", ["5000000"], ["5"]),
    ("about $5 million in all", ["5000000"], ["5"]),
    ("We obtain 12 mod 5 as such", [], ["5", "12"]),
    (r"We get \log(5) of those", [r"\log(5)"], ["5"]),
    (r"We get \log 5 of those", [r"\log(5)"], ["5"]),
    ("We get log(5) of those", [r"\log(5)"], ["5"]),
    ("I would say 9^{9^{9^9}}", [], ["9"]),
    ("I get 2**5 of them", ["32"], ["5", "2"]),
    ("I get 5% of them", ["5", "0.05"], []),
    ("I get 5 percent of them", ["5", "0.05"], []),
    ("I get 5e3 of them", ["5000"], ["5", "3"]),
    ("I get √5 of them", [r"\sqrt{5}"], ["5"]),
    (r"I get \sqrt{5} of them", [r"\sqrt{5}"], ["5"]),
    (r"I get \sqrt 5 of them", [r"\sqrt{5}"], ["5"]),
    ("I get 2√5 of them", [r"2\sqrt{5}"], ["5", "2"]),
    ("It turns 5° here", ["5"], []),
    ("We meet at 5:30 then", ["5:30"], ["5", "30"]),
    ("It makes 1/5 of it", ["0.2", "1/5"], ["5", "1"]),
    ("He said (5) of them", ["5"], []),
    ("He said [5] of them", ["5"], []),
    ("It makes 5x of them", ["5x"], ["5"]),
    ("It makes 5 x of them", ["5x"], ["5"]),
    ("It makes $5k of them", [], ["5"]),
    ("It is a 5-year plan", ["5"], []),
    ("It is no. 5 here", ["5"], []),
    ("It is step 5 here", ["5"], []),
    ("It is the 5th here", ["5"], []),
    ("So we have 5.", ["5"], []),
    ("So we have a 5)", ["5"], []),
    ("It is #5 here", ["5"], []),
    ("It is on page 5", ["5"], []),
    ("It makes 5 of 9", [], ["5", "9"]),
    ("It makes -5 of them", ["-5"], ["5"]),
    ("It makes +5 of them", ["5"], ["-5"]),
    ("It makes ±5 of them", ["5,-5"], ["5", "-5"]),
    (r"It makes \pm 5 of them", ["5,-5"], ["5", "-5"]),
    ("It makes =5 of them", ["5"], []),
    ("It makes x=5 of them", ["5"], []),
    ("He gets 3(5) of them", [], ["5", "3"]),
    ("He gets f(5) of them", [], ["5"]),
    ("He gets gcd(12, 5) of them", [], ["5", "12"]),
    (r"He gets \binom{7}{5} of them", ["21"], ["5", "7"]),
    ("He gets |5| of them", ["5"], []),
    ("He gets 5^x of them", ["5^x"], ["5"]),
    (r"He gets 5 \sqrt{x} of them", [r"5\sqrt{x}"], ["5"]),
    ("He gets 5/x of them", ["5/x"], ["5"]),
    ("He gets x/5 of them", ["x/5"], ["5"]),
    ("He runs 5 km/h on average", ["5"], []),
    ("He drives 5 miles/hour on average", ["5"], []),
    ("He pays $5/hour on average", ["5"], []),
    ("It makes 5 squared here", [], ["5"]),
    ("It makes 5 factorial here", [], ["5"]),
    ("It makes the square root of 5 here", [], ["5"]),
    ("It makes 7 times 5 here", [], ["5", "7"]),
    ("It makes 5 times a day", ["5"], []),
    ("It makes 7 plus 5 here", [], ["5", "7"]),
    ("I get 20 apples or 30 apples", [], ["20", "30"]),
    ("I get 20 or 30 here", [], ["20", "30"]),
    ("It makes 41, 42 here", [], ["41", "42"]),
    ("It makes 41 and 42 here", [], ["41", "42"]),
    ("It makes (3,5) here", ["(3,5)"], ["3", "5"]),
    ("It makes 3<x<5 here", [], ["3", "5"]),
    ("It makes 5 < x here", [], ["5"]),
    ("It makes <5 of them", [], ["5"]),
    ("It makes ≤ 5 of them", [], ["5"]),
    ("It makes 7 - 5 of them", ["2"], ["7", "5"]),
    ("It makes 7-5 of them", [], ["7", "5"]),
    ("It makes 7 + 5 of them", ["12"], ["7", "5"]),
    (r"It makes 35 \pmod 5 of them", [], ["35", "5"]),
    ("He is 5'2 tall here", [], ["5", "2"]),
    ("It makes x5 of them", [], ["5"]),
    ("It makes **5** of them", ["5"], []),
    ("It makes *5* of them", ["5"], []),
    ("It makes __5__ of them", ["5"], []),
    ("The total: **5**", ["5"], []),
    ("**The total: 5**", ["5"], []),
    ("So the total is:¶- 5 apples for him", ["5"], []),
    ("So the total is:¶* 5 apples for him", ["5"], []),
    ("We have 3+2=5 apples for him", ["5"], []),
    ("We have 3+2=<<3+2=5>>5 apples for him", ["5"], []),
    ("We have 3 + 2 = $5.00 for him", ["5"], []),
    ("It ends up as 5 - so be it", ["5"], []),
    ("He has 5 -- just that", ["5"], []),
    ("He has 5 => done with it", ["5"], []),
    ("It gives => 5 of them", ["5"], []),
    (r"It gives \frac{3}{5} of them", ["3/5"], ["3", "5"]),
    (r"It gives 3 \cdot \frac{1}{5} of them", ["3/5"], ["3", "5", "1/5"]),
    (r"It gives 2\frac{1}{5} of them", ["11/5"], ["5", "1/5"]),
    (r"It gives $2\frac{1}{5}$ of them", ["11/5"], ["5", "1/5"]),
    (r"It gives 2 $\sqrt{5}$ of them", [r"2\sqrt{5}"], ["5", r"\sqrt{5}"]),
    (r"It gives 3 \cdot $5$", ["15"], ["5", "3"]),
    (r"It gives 2$\sqrt{5}$", [r"2\sqrt{5}"], ["5", r"\sqrt{5}"]),
    ("It gives -$5$", ["-5"], ["5"]),
    ("It needs 5 molecules of H2O", ["5"], ["2"]),
    ("It gives 5 for the COVID-19 case", ["5"], []),
    ("It gives (5+3)*2 here", ["16"], ["2", "5", "3"]),
    ("It gives (5+3) here", ["8"], ["5", "3"]),
    ("It gives 2(5+3) here", ["16"], ["5", "3", "8"]),
    (r"It gives 5\text{ cm} here", ["5"], []),
    (r"It gives $5\text{ cm}$ here", ["5"], []),
    ("It gives 5 m here", ["5"], []),
    ("It gives 5 cm^2 here", ["5"], []),
    ("It gives 5 cm here", ["5"], []),
    ("It gives 5m^2 here", [], ["2"]),
    ("It gives <b>5</b> here", ["5"], []),
    ('It gives "5" here', ["5"], []),
    ("It gives `5` here", ["5"], []),
    ("It gives 5 (five)", ["5"], []),
    ("It gives five (5)", ["5"], []),
    ("She has 5 (and not 6)", [], ["6"]),
    ("It gives 1,000,5 here", [], ["5"]),
    ("It gives 1 000 5 here", [], []),
    ("It gives 0.5.5 here", [], ["5"]),
    ("It gives 12_5 here", [], ["5", "12"]),
    ("It gives 101_{2} here", ["101_2"], ["2", "5", "101"]),
    (r"It gives 5^\circ here", ["5"], []),
    (r"It gives 5\% here", ["5"], []),
    (r"It gives \$5 here", ["5"], []),
    ("It gives US$5 here", ["5"], []),
    ("It gives 5² here", ["25"], ["5", "2"]),
    ("It gives x² + 5 here", ["x^2+5"], ["5"]),
    ("It gives x + 5 here", ["x+5"], ["5"]),
    ("It gives 2x + 5 here", ["2x+5"], ["5"]),
    (r"It gives 5\times 10^3 here", ["5000"], ["5", "3", "10"]),
    ("It gives 5 x 10^3 here", ["5000"], ["5", "3", "10"]),
    ("It gives 5·10³ here", ["5000"], ["5", "3", "10"]),
    ("It gives 5 × 10^{-3} here", ["0.005"], ["5", "3", "10", "-3"]),
    ("It gives e^5 here", ["e^5"], ["5"]),
    ("It gives e^{-5} here", ["e^{-5}"], ["5", "-5"]),
    (r"It gives \{5\} here", ["5"], []),
    (r"It gives 5 \to 6 here", [], ["5"]),
    (r"so \boxed{90}^\circ here", ["90"], []),
    ("It is 5! Great.", ["120"], ["5"]),
    ("The answer is 5!", ["5"], ["120"]),
    ("The answer is 5! of them", [], ["5"]),
    ("We get **$5**.", ["5"], []),
    ("We get **-5**.", ["-5"], ["5"]),
    ("It makes 5 dozen eggs", ["60"], ["5"]),
    ("It makes 5 quarters for her", ["5"], []),
    ("It ends at 5°C here", ["5"], []),
    (r"We get e^{5}\text{ of them}", [], ["5"]),
]
# No number of these is an answer, wherever they stand.
PARTS = {
    r"3^{2}": "3 2", r"x^{9}": "9", r"2^{10}": "2 10", r"10^{5} people": "5 10", r"x_{3}": "3",
    r"x_{3} here": "3", "3*5": "3 5", "3*5 of them": "3 5", r"3 \cdot 5": "3 5",
    r"3 \cdot 5 of them": "3 5", "5k": "5", "5k people": "5", "5 million people": "5",
    "12 mod 5": "5 12", r"12 \bmod 5": "5 12", r"\log(5)": "5", r"\log(5) of those": "5",
    r"9^{9^{9^9}}": "9", "2**5": "2 5", "5e3": "5 3", "√5": "5", "5x": "5", "5:30": "5 30",
    "1/5": "1 5", "$5k": "5", "±5": "5", "5 of 9": "5 9", "-5": "5", "5! in all": "5", "f(5)": "5",
    "5 squared": "5", "about 5k people": "5",
    "I get 3^{2} of them": "2 3", r"x = 3 \cdot 5": "5 3", "5 - 3 of them": "5 3",
}
WHOLES = ["5", "5.0", "$5", "-5", "+5", "5%", "5 apples", "5 m", "5 cm^2", "5th"]
PLACES = [
    r"\boxed{@}", r"So $\boxed{@}$.", "#### @", "bla bla¶#### @", "A: @", "Q: x?¶A: @",
    "The answer is @.", "The answer is $@$.", "The answer is @", "Answer: @",
    "So @ is the answer.", "<answer>@</answer>", "@", "We get @.", "We get $@$ here.",
    "We get @ here¶", "We get that y = @.", r"We get \(@\).", "**@**", "We get **@**.",
    "Thus x = **@**.",
]
# fmt: on


@pytest.mark.slow
def test_what_touches_a_number_belongs_to_it() -> None:
    check_verdicts(
        (reference, response.replace("¶", "\n"), is_equal)
        for response, equal, unequal in TABLE
        for is_equal, references in ((True, equal), (False, unequal))
        for reference in references
    )


def test_a_part_is_no_answer_anywhere() -> None:
    check_verdicts(
        (number, place.replace("¶", "\n").replace("@", part), False)
        for place in PLACES
        for part, numbers in PARTS.items()
        for number in numbers.split()
    )


def test_a_number_is_an_answer_everywhere() -> None:
    check_verdicts(
        ("-5" if whole == "-5" else "5", place.replace("¶", "\n").replace("@", whole), True)
        for place in PLACES
        for whole in WHOLES
    )


PIECES = [
    *"0123456789",
    *"+-*/^_=!%()[]{}$,.:|<>° \n",
    *"xakI",
    r"\cdot ",
    r"\frac",
    r"\sqrt",
    "**",
]
WORDS = ["of", "or", "million", "mod", "cm", "people", "log", "<<", ">>", r"\(", r"\)", "not "]


@pytest.mark.slow
@given(st.lists(st.sampled_from(PIECES + WORDS), max_size=25).map("".join))
@settings(max_examples=500, deadline=None)
def test_any_text_with_a_digit_has_an_end(text: str) -> None:
    found = last_number(text)
    assert found is None or any(c.isdigit() for c in found)


@given(st.integers(0, 10**9), st.sampled_from(["x^{@}", "@!", "2*@", "@x", "@^2", "@k", "-@"]))
@settings(max_examples=100, deadline=None)
def test_the_whole_expression_is_found(n: int, form: str) -> None:
    run = form.replace("@", str(n))
    assert last_number(f"So we get {run} of those in the end.") == run


def test_a_sentence_inside_the_answer_tag_is_read_as_one() -> None:
    cases = [
        ("We get 5", "correct"),
        ("It is 5 meters", "correct"),
        ("It is 5 or 6", "wrong_answer"),
        ("It is not 5", "wrong_answer"),
        ("at least 5", "wrong_answer"),
    ]
    check_verdicts(("5", f"<answer>{inside}</answer>", verdict) for inside, verdict in cases)
