"""A chain of equations is paid only if its members agree."""

from graded_cases import check_boxed


def test_chain_of_different_numbers() -> None:
    cases = [("42", "x=41=42"), ("0", "x=1=0"), (r"50\%", r"x=40\%=50\%")]
    check_boxed((*case, "wrong_answer") for case in cases)


def test_chain_of_different_values() -> None:
    cases = [("42", r"6\cdot 8=42"), (r"\sqrt{2}", r"\sqrt{3}=\sqrt{2}"), (r"5\pi", r"x=4\pi=5\pi")]
    check_boxed((*case, "wrong_answer") for case in cases)


def test_chain_of_equal_values() -> None:
    cases = [("0.15", r"\frac{3}{20}=0.15"), ("1000", "10^3=1000"), ("50", "100/2=50")]
    check_boxed((*case, "correct") for case in cases)


def test_false_equations_of_numbers_are_not_equal() -> None:
    check_boxed([("5=6", "-5=6", "wrong_answer"), ("5=6", "5=6", "correct")])
