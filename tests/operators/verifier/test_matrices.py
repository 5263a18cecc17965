r"""Matrices with operations, and definitions by cases."""

from collections.abc import Iterable

from graded_cases import check_boxed

from rejuice.operators.verifier import verify

A = r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"


def check_graded(cases: Iterable[tuple[str, str, bool]]) -> None:
    """None of the answers to the references is an error of the verifier."""
    check_boxed(
        (reference, answer, "correct" if equal else "wrong_answer")
        for reference, answer, equal in cases
    )


def test_operations_on_matrices() -> None:
    cases = [
        (rf"2{A}", r"\begin{bmatrix}2&4\\6&8\end{bmatrix}", True),
        (rf"\frac{{1}}{{2}}{A}", r"\begin{bmatrix}0.5&1\\1.5&2\end{bmatrix}", True),
        (rf"{A}/2", rf"\frac{{1}}{{2}}{A}", True),
        (rf"{A} + {A}", rf"2{A}", True),
        (rf"{A}{A}", r"\begin{pmatrix}7&10\\15&22\end{pmatrix}", True),
        (rf"{A}^2", r"\begin{pmatrix}7&10\\15&22\end{pmatrix}", True),
        (rf"{A}^{{-1}}", r"\begin{pmatrix}-2&1\\1.5&-0.5\end{pmatrix}", True),
        (rf"3{A}", rf"2{A}", False),
        (rf"{A}^2", r"\begin{pmatrix}1&4\\9&16\end{pmatrix}", False),  # not cell by cell
        (rf"x{A}", A, False),
        ("2", rf"2{A}", False),
        (rf"\det{A}", "-2", True),
        (r"\begin{vmatrix}1&2\\3&4\end{vmatrix}", "-2", True),
        (r"\begin{vmatrix}1&2\\3&4\end{vmatrix} = -2", "-2", True),
        (r"\begin{vmatrix}1&2\\3&4\end{vmatrix}", A, False),
        (r"\det\left(\left[\begin{array}{cc}a&b\\x&y\end{array}\right]\right)", "ay-bx", True),
    ]
    check_graded((reference, answer, equal) for answer, reference, equal in cases)


def test_a_matrix_to_the_power_of_a_letter_ends_at_once() -> None:
    """It is a transpose or a power without an end: neither is carried out."""
    assert verify(rf"\boxed{{({A}+{A})^T}}", A).verdict == "wrong_answer"


CASES = r"\begin{cases} x^2, & \text{if } x > 1 \\ 2 & x \le 1 \end{cases}"


def test_cases_in_any_order() -> None:
    cases = [
        (r"\begin{cases} 2, & x \le 1 \\ x^2, & x > 1 \end{cases}", True),
        (r"f(x) = \begin{cases} x^2 & \text{for } x > 1, \\ 2 & x \le 1. \end{cases}", True),
        (r"\begin{cases} 2, & x < 1 \\ x^2, & x > 1 \end{cases}", False),
        (r"\begin{cases} x^2, & x \le 1 \\ 2, & x > 1 \end{cases}", False),
        (r"\begin{cases} 2, & x \le 1 \end{cases}", False),
        ("x^2", False),
    ]
    check_graded((CASES, answer, equal) for answer, equal in cases)


def test_commas_separate_cells() -> None:
    cases = [
        (r"\begin{pmatrix}1,2\\3,4\end{pmatrix}", True),
        (r"\begin{pmatrix}2,1\\3,4\end{pmatrix}", False),  # no list in any order
        (r"\begin{pmatrix}2,1\\4,3\end{pmatrix}", False),
    ]
    check_graded((A, answer, equal) for answer, equal in cases)


def test_thousands_in_cells() -> None:
    answer = r"\begin{pmatrix}1,000\\2,000\end{pmatrix}"
    check_graded([(r"\begin{pmatrix}1000\\2000\end{pmatrix}", answer, True)])
