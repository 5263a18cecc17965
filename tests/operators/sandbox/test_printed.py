from each import check_each
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators.sandbox.grading import same_output


def test_white_space_at_ends_does_not_count():
    cases = [
        ("9\n", "9", True),
        ("9", "9\n\n", True),
        ("1 2 \r\n3\t\n", "1 2\n3", True),
        ("", "\n", True),
        ("1  2", "1 2", False),
        (" 1", "1", False),
        ("\n1", "1", False),
        ("1\n\n2", "1\n2", False),
        ("1.0", "1", False),
        ("yes", "YES", False),
        ("9\n9", "9", False),
        ("", "9", False),
    ]

    def check(printed, expected, is_same):
        assert same_output(printed, expected) is is_same

    check_each(cases, check)


def test_numbers_may_be_off():
    cases = [
        ("0.3333333", "0.33333333333", True),
        ("1000000.1", "1000000", True),
        ("1.001", "1", False),
        ("1  2", "1 2", True),
        ("x 1.0", "x 1", True),
        ("y 1.0", "x 1", False),
        ("1 2", "1", False),
        ("1\n2", "1 2", False),
        ("nan", "1", False),
        ("inf", "1", False),
        ("-inf", "inf", False),
        ("inf", "inf", True),
    ]

    def check(printed, expected, is_same):
        assert same_output(printed, expected, 1e-6) is is_same

    check_each(cases, check)


@given(st.text(), st.sampled_from(["", " ", "\n", " \n\n", "\t"]))
def test_a_text_is_itself(text, end):
    assert same_output(text + end, text)
    assert same_output(text, text + end, 1e-9)
    assert same_output(text + "x", text) is False
