r"""Large powers: distinguished to the last digit, or refused before they are carried out."""

from graded_cases import check_boxed

MATRIX = r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"


def test_a_small_term_is_no_rounding_error() -> None:
    cases = [
        ("1+2^{-2000}", "1"),
        (r"\frac{2^{2000}-1}{2^{2000}}", "1"),
        (r"\frac{1}{2^{3000}}", "0"),
        ("0.5^{3000}", "0"),
        ("10^{400}+1", "10^{400}"),
        ("x+e^{-900}", "x"),
        (r"\sqrt{2}+\frac{1}{150!}", r"\sqrt{2}"),
    ]
    check_boxed((reference, answer, "wrong_answer") for answer, reference in cases)


def test_equal_powers() -> None:
    cases = [
        ("1-2^{-2023}", r"1-\frac{1}{2^{2023}}"),
        (r"\sqrt{2}+e^{-3000}", r"\sqrt{2}+\frac{1}{e^{3000}}"),
        (r"\frac{3^{2020}-1}{2}", r"\frac{3^{2020}}{2}-\frac{1}{2}"),
        (r"2^{1000}\sqrt{2}", r"\sqrt{2^{2001}}"),
        ("(x-1)^{1000}(x+1)^{1000}", "(x^2-1)^{1000}"),
        ("(x^{100})^{20}", "x^{2000}"),
        ("e^{-0.123456}", r"\frac{1}{e^{0.123456}}"),
    ]
    check_boxed((reference, answer, "correct") for answer, reference in cases)


def test_an_endless_power_is_wrong_at_once() -> None:
    cases = [
        ("((10^{3000})^{3000})^{3000}", "42"),
        (r"\left(\frac{10^{3000}}{2}\right) ^ 3000", "42"),
        ("((2^{3000})^{3000}x)^{3000}", "x"),
        ("10^{(999999999999)}", "42"),
        (r"10^{2 \cdot 999999999999}", "42"),
        (r"3^{\frac{999999999999}{2}}", "42"),
        (r"\begin{pmatrix}1&2\\3&x\end{pmatrix}^{3000}", MATRIX),
        (r"\begin{pmatrix}a&b&c\\d&e&f\\g&h&k\end{pmatrix}^{-10}", MATRIX),
    ]
    check_boxed((reference, answer, "wrong_answer") for answer, reference in cases)
