r"""One number or formula in many dresses: marks of thousands, ordinals, fonts, infix commands."""

import pytest

from rejuice.operators.verifier import verify


def paid(answer: str, reference: str) -> bool:
    return verify(rf"\boxed{{{answer}}}", reference).verdict == "correct"


@pytest.mark.parametrize(
    ("reference", "answer", "equal"),
    [
        ("32349", r"32,\! 349", True),
        ("32349", r"32,\!349", True),
        ("11111111100", r"11,\! 111,\! 111,\! 100", True),
        ("14,916", r"14{, }916", True),
        ("(1000, 2000)", "(1{,}000,2{,}000)", True),
        ("1000", "1_000", True),
        ("1_000", "1000", True),
        ("1000", "1_00", False),
        ("14,916", "14, 916", False),  # a list
    ],
)
def test_marks_of_thousands(reference: str, answer: str, equal: bool) -> None:
    assert paid(answer, reference) is equal


@pytest.mark.parametrize(
    ("reference", "answer", "equal"),
    [
        ("12", r"12^{\text{th}}", True),
        ("12", r"12^\text{th}", True),
        ("12", "12^{th}", True),
        ("2", "2^{nd}", True),
        ("2", "2^{st}", False),  # a power
        ("12", "12^{t}", False),
        (r"12^{\text{th}}", "12", True),
        ("new york city", "New York City!", True),
        ("120", "5!", True),
        ("5", "5!", False),
        ("185\\", "185", True),
    ],
)
def test_ordinals_and_end_marks(reference: str, answer: str, equal: bool) -> None:
    assert paid(answer, reference) is equal


@pytest.mark.parametrize(
    ("reference", "answer", "equal"),
    [
        (r"\frac{9}{7}", r"\mathbf{\frac97}", True),
        (r"\frac{9}{7}", r"\textbf{\frac{9}{7}}", True),
        (r"\frac{9}{7}", r"\underline{\frac{9}{7}}", True),
        (r"\frac{3}{5}", r"\text{$\frac{3}{5}$}", True),
        (r"\frac{9}{7}", r"\textbf{\frac{7}{9}}", False),
        ("10", r"\dbinom{5}{2}", True),
        ("10", r"\tbinom{5}{2}", True),
        ("10", r"{5 \choose 2}", True),
        (r"\frac{1}{2}", r"{1 \over 2}", True),
        (r"\frac{1}{2}", r"1 \over 2", True),
        ("2", r"{1 \over 2}", False),
        (r"\frac{\sqrt{3}}{2}", r"{\sqrt{3} \over 2}", True),
        (r"\frac{1}{4}", r"{{1 \over 2} \over 2}", True),
        (r"\frac \pi4 + 2", r"2+\frac{\pi}{4}", True),
        (r"\frac\pi2", r"\frac{2}{\pi}", False),
    ],
)
def test_fonts_and_infix_commands(reference: str, answer: str, equal: bool) -> None:
    assert paid(answer, reference) is equal


@pytest.mark.parametrize(
    ("reference", "answer", "equal"),
    [
        (r"(5,\infty)", r"(5, \\infty)", True),
        (r"\\left(\\frac{1}{5},\\frac{1}{6}\\right)", r"\left(\frac15,\frac16\right)", True),
        (r"x \in [-2,7]", r"-2 \\le x \\le 7", True),
        (r"\\{1,2\\}", r"\{1,2\}", True),
        (r"(5,\infty)", r"[5, \\infty)", False),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\ 2\end{pmatrix}", True),
        (r"\\begin{pmatrix}1\\\\2\\end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}", True),
    ],
)
def test_backslashes_escaped_twice(reference: str, answer: str, equal: bool) -> None:
    assert paid(answer, reference) is equal
