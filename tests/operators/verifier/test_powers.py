r"""Large powers: distinguished to the last digit, or refused before they are carried out."""

import pytest

from rejuice.operators.verifier import verify

MATRIX = r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"


def verdict(answer: str, reference: str) -> str:
    return verify(rf"\boxed{{{answer}}}", reference).verdict


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("1+2^{-2000}", "1"),
        (r"\frac{2^{2000}-1}{2^{2000}}", "1"),
        (r"\frac{1}{2^{3000}}", "0"),
        ("0.5^{3000}", "0"),
        (r"\sqrt{2^{2000}+1}", "2^{1000}"),
        ("1+e^{-3000}", "1"),
        (r"\tanh(1000)", "1"),
        ("x+e^{-3000}", "x"),
        (r"1+(\sqrt{2}-1)^{2000}", "1"),
        (r"\sqrt{2}+\frac{1}{200! \cdot 200!}", r"\sqrt{2}"),
    ],
)
def test_a_small_term_is_no_rounding_error(answer: str, reference: str) -> None:
    assert verdict(answer, reference) == "wrong_answer"


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("1-2^{-2023}", r"1-\frac{1}{2^{2023}}"),
        (r"\sqrt{2}+e^{-3000}", r"\sqrt{2}+\frac{1}{e^{3000}}"),
        (r"\frac{3^{2020}-1}{2}", r"\frac{3^{2020}}{2}-\frac{1}{2}"),
        (r"2^{1000}\sqrt{2}", r"\sqrt{2^{2001}}"),
        ("(x-1)^{1000}(x+1)^{1000}", "(x^2-1)^{1000}"),
        ("(x^{100})^{20}", "x^{2000}"),
        ("e^{-0.123456}", r"\frac{1}{e^{0.123456}}"),
    ],
)
def test_equal_powers(answer: str, reference: str) -> None:
    assert verdict(answer, reference) == "correct"


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("((10^{3000})^{3000})^{3000}", "42"),
        (r"\left(\frac{10^{3000}}{2}\right) ^ 3000", "42"),
        ("((2^{3000})^{3000}x)^{3000}", "x"),
        ("10^{(999999999999)}", "42"),
        (r"10^{2 \cdot 999999999999}", "42"),
        (r"3^{\frac{999999999999}{2}}", "42"),
        (r"\begin{pmatrix}1&2\\3&x\end{pmatrix}^{3000}", MATRIX),
        (r"\begin{pmatrix}a&b&c\\d&e&f\\g&h&k\end{pmatrix}^{-10}", MATRIX),
    ],
)
def test_an_endless_power_is_wrong_at_once(answer: str, reference: str) -> None:
    assert verdict(answer, reference) == "wrong_answer"
