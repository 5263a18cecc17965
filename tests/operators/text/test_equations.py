import json
from fractions import Fraction

import pytest
from each import check_each
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators.text.equations import arithmetic, equations

TRUE = [
    "12 + 5 = 17",
    "12+5=17",
    "16 - 3 - 4 = <<16-3-4=9>>9",
    "9 * 2 = $18",
    "$9 * 2 = $18.00",
    "2 + 3 * 4 = 14",
    "(2 + 3) * 4 = 20",
    "2 x 3 = 6",
    "2x3=6",
    "2 × 3 = 6, 6 ÷ 2 = 3",
    "2 \\times 3 = 6",
    "1,200 + 300 = 1,500",
    "10 / 3 = 3.33",
    "2 / 3 = 0.67",
    "2 / 3 = 0.66",
    "1 / 2 = .5",
    "0.1 + 0.2 = 0.30000000000000004",
    "20% * 50 = 10",
    "5 / 20 = 25%",
    "5 / 20 * 100 = 25%",
    "100% - 20% = 80%",
    "5 = 2 + 3",
    "3 - 8 = -5",
    "1 / 3 - 1 = -0.67",
    "-3 + 8 = 5",
    "(It is 2 + 3 = 5)",
    "24 + 27 + (-48) = 3",
    "1.0--2=3",
    "half: 10 / 2 = 5.",
]
FALSE = [
    "12 + 5 = 18",
    "10 / 3 = 3",
    "10 / 3 = 3.4",
    "2 / 3 = 0.68",
    "2 / 3 = 0.65",
    "3 - 3.5 = -0.6",
    "1000000000000000 * 2.5 = 2500000000000001",
    "1.25 + 1 = 2.26",
    "5 - -3 = 2",
    "1,200 + 300 = 1,501",
    "20% * 50 = 9",
    "99999999999999999999 + 1 = 99999999999999999999",
]
NONE = [
    "",
    "17",
    "x + 3 = 7",
    "2x + 3 = 7",
    "5x-5 = 33",
    "y - 3 + 5 = 9",
    "y * 3 + 5 = 9",
    "a3 + 5 = 9",
    "2^3 + 1 = 4",
    "5 + 2^3 = 7",
    "3 + 4 = 8y",
    "3 + 4 = 8 + y",
    "3 apples + 4 = 9",
    "f(9) + 1 = 4",
    "10:30 + 2 = 40",
    "3 1/2 + 1 = 9",
    "50 + 10% = 60",
    "x = 5",
    "5 = 5",
    "1 / 0 = 4",
    "5 = = 2 + 2",
    "3 + 4 ≠ 8",
    "3 + 4 <= 8",
    "3 + 4 =",
    "= 3 + 4",
    "()()=()",
    "1" * 30 + " + 1 = 3",
    " + ".join(["1"] * 99) + " = 3",
]


def test_true():
    def check(text):
        found = arithmetic(text)
        assert found.statements > 0
        assert found.false == 0

    check_each(TRUE, check)


def test_false():
    def check(text):
        assert arithmetic(text) == (1, 1)

    check_each(FALSE, check)


def test_no_statement():
    def check(text):
        assert arithmetic(text) == (0, 0)

    check_each(NONE, check)


def test_counts():
    assert arithmetic("2 + 3 = 5 + 1 = 6") == (2, 1)
    assert arithmetic("2 + 3 = 5, 5 * 2 = 11. Then 1 + 1 = 2.\n3 - 1 = 2\n") == (4, 1)
    assert arithmetic("<think>12 + 5 = 17.</think><answer>17</answer>") == (1, 0)


numbers = st.integers(0, 10**17)


@given(numbers, st.sampled_from("+-*/"), st.integers(1, 10**6), st.integers(-2, 2))
def test_fractions_agree(one, sign, other, off):
    exact = {"+": one + other, "-": one - other, "*": one * other, "/": Fraction(one, other)}[sign]
    result = int(exact) + off
    assert arithmetic(f"so {one} {sign} {other} = {result} it is") == (1, exact != result)


@given(st.text(alphabet="12 .,+-*/=()x%$\ny", max_size=60))
def test_any_text_is_read(text):
    statements, false = arithmetic(text)
    assert 0 <= false <= statements <= text.count("=")


@pytest.mark.parametrize(
    "text", ["1=" * 50_000, "- a " * 50_000 + "= 1", "(" * 99_999 + "=", "1 " * 99_999 + "="]
)
def test_long_texts_take_no_time(text):
    assert arithmetic(text).false == 0


def test_calculations_of_a_calculator(shared_data):
    """The solutions have their results in `<<...>>`, of which all but a few were calculated."""
    lines = (shared_data / "gsm8k" / "model_solutions.jsonl").read_text("utf-8").splitlines()
    texts = [
        each["solution"]
        for line in lines
        for each in json.loads(line).values()
        if isinstance(each, dict)
    ]
    found = [arithmetic(text) for text in texts]
    assert sum(each.statements for each in found) > 8000
    assert sum(each.false for each in found) == 47


def test_an_equation_has_one_way_of_writing():
    cases = [
        (
            ["12 + 5 = 17", "5+12=17", "(12 + 5) = 17", "17 = 12 + 5", "$12 + $5 = $17.00"],
            "12+5=17",
        ),
        (["2 * (3 + 4) = 14", "(4+3) x 2 = 14", "((4 + 3)) × 2 = 14"], "(3+4)*2=14"),
        (["8 - 3 = 5", "-3 + 8 = 5", "8 + (-3) = 5"], "8-3=5"),
        (["6 / 2 * 5 = 15", "5 * 6 / 2 = 15", "5 × 6 ÷ 2 = 15"], "5*6/2=15"),
        (["5 * -3 = -15", "-3 * 5 = -15"], "-3*5=-15"),
        (["10 / 3 = 3.33", "10/3 = 3.3"], "10/3=3.33333"),
        (["20% * 50 = 10", "0.2 * 50 = 10", ".20 * 50 = 10.0"], "0.2*50=10"),
        (["1,200 + 300 = 1,500"], "1200+300=1500"),
        (["2 + 2 = 5"], "2+2=5"),
        (["2 + 2 = 5 - 1"], "2+2=5-1"),
    ]

    def check(texts, written):
        assert [equations(text) for text in texts] == [(written,)] * len(texts)

    check_each(cases, check)


def test_other_numbers_results_and_operations_are_other_equations():
    texts = ["2 + 3 = 5", "2 + 3 = 6", "2 * 3 = 6", "6 / 3 = 2", "6 - 3 = 3", "2 * 3 + 4 = 10"]
    texts += ["2 * (3 + 4) = 14", "3 / 6 = 0.5", "2 - 3 = -1", "3 - 2 = 1"]
    assert len({equations(text) for text in texts}) == len(texts)


def test_equations_are_in_order_and_each_once():
    text = "2 + 3 = 5 + 1 = 6, then 6 * 2 = 12. Again: 3 + 2 = 5 + 1, and x + 1 = 2."
    assert equations(text) == ("2+3=1+5", "1+5=6", "2*6=12")


@given(st.text("0123456789+-*/().,=$% x", max_size=40))
def test_there_are_equations_where_there_are_statements(text):
    written = equations(text)
    assert bool(written) == bool(arithmetic(text).statements)
    assert len(written) <= arithmetic(text).statements
    # What was written stays as it is, but where a result without an end was rounded.
    for each in written:
        assert equations(each) in {(each,), ()} or "/" in each
