r"""One number or formula in many dresses: marks of thousands, ordinals, fonts, infix commands."""

from graded_cases import check_boxed


def test_marks_of_thousands() -> None:
    cases = [
        ("32349", r"32,\! 349", True),
        ("32349", r"32,\!349", True),
        ("11111111100", r"11,\! 111,\! 111,\! 100", True),
        ("14,916", r"14{, }916", True),
        ("(1000, 2000)", "(1{,}000,2{,}000)", True),
        ("1000", "1_000", True),
        ("1_000", "1000", True),
        ("1000", "1_00", False),
        ("14,916", "14, 916", False),  # a list
    ]
    check_boxed(cases)


def test_ordinals_and_end_marks() -> None:
    cases = [
        ("12", r"12^{\text{th}}", True),
        ("12", r"12^\text{th}", True),
        ("12", "12^{th}", True),
        ("2", "2^{nd}", True),
        ("2", "2^{st}", False),  # a power
        ("12", "12^{t}", False),
        (r"12^{\text{th}}", "12", True),
        ("new york city", "New York City!", True),
        ("yes", "Yes!", True),
        ("x", "x!", False),
        ("120", "5!", True),
        ("5", "5!", False),
        ("185\\", "185", True),
        ("1000.99", "1,000.99m²", True),
        ("4", "4m", False),
    ]
    check_boxed(cases)


def test_fonts_and_infix_commands() -> None:
    cases = [
        (r"\frac{9}{7}", r"\mathbf{\frac97}", True),
        (r"\frac{9}{7}", r"\textbf{\frac{9}{7}}", True),
        (r"\frac{9}{7}", r"\underline{\frac{9}{7}}", True),
        (r"\frac{3}{5}", r"\text{$\frac{3}{5}$}", True),
        (r"\frac{9}{7}", r"\textbf{\frac{7}{9}}", False),
        ("10", r"\dbinom{5}{2}", True),
        ("10", r"\tbinom{5}{2}", True),
        ("10", r"\binom52", True),
        ("10", r"\binom{5}2", True),
        ("10", r"{5 \choose 2}", True),
        (r"\frac{1}{2}", r"{1 \over 2}", True),
        (r"\frac{1}{2}", r"1 \over 2", True),
        ("2", r"{1 \over 2}", False),
        (r"\frac{\sqrt{3}}{2}", r"{\sqrt{3} \over 2}", True),
        (r"\frac{1}{4}", r"{{1 \over 2} \over 2}", True),
        (r"\frac \pi4 + 2", r"2+\frac{\pi}{4}", True),
        (r"\frac\pi2", r"\frac{2}{\pi}", False),
    ]
    check_boxed(cases)


def test_backslashes_escaped_twice() -> None:
    cases = [
        (r"(5,\infty)", r"(5, \\infty)", True),
        (r"\\left(\\frac{1}{5},\\frac{1}{6}\\right)", r"\left(\frac15,\frac16\right)", True),
        (r"x \in [-2,7]", r"-2 \\le x \\le 7", True),
        (r"\\{1,2\\}", r"\{1,2\}", True),
        (r"(5,\infty)", r"[5, \\infty)", False),
        (r"\sin(\frac{x}{2})", r"\text{sin}\bigg(\\frac{x}{2}\\bigg)", True),
        (r"\text{sin}\bigg(\\frac{x}{2}\\bigg)", r"\sin(\frac{x}{3})", False),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\ 2\end{pmatrix}", True),
        (r"\\begin{pmatrix}1\\\\2\\end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}", True),
    ]
    check_boxed(cases)


def test_spaces_powers_and_inverse_functions() -> None:
    cases = [
        ("a b", r"a \thinspace b", True),
        ("a b", r"a \negmedspace b", True),
        (r"x^{\frac{1}{2}}", r"x^\frac{1}{2}", True),
        (r"x^{\frac{1}{2}}", r"x^\frac12", True),
        (r"\frac{v_0^2}{g}", r"\frac{v^2_0}{g}", True),
        (r"\frac{v_0^2}{g}", r"\frac{v^0_2}{g}", False),
        (r"\sin^{-1} a", r"\operatorname{asin}{\left(a \right)}", True),
        (r"\sinh^{-1}(a)", r"\operatorname{arcsinh}(a)", True),
        (r"\sin^{-1} a", r"\frac{1}{\sin a}", False),
    ]
    check_boxed(cases)


def test_adjacent_numerals_are_factors() -> None:
    cases = [
        ("6", "2(3)", True),
        ("5", "2(3)", False),
        ("26000", "1000(26)", True),
        ("1026", "1000(26)", False),
        ("24", "(2)(3)(4)", True),
        ("9", "(2)(3)(4)", False),
        ("5", "2 3", False),
        (r"6\pi", r"2(3)\pi", True),
        (r"5\pi", r"2(3)\pi", False),
        ("17", r"\frac1234", True),
        ("3.5", r"\frac{1}{2}34", False),
        ("3", r"\log_2(8)", True),
        ("3", r"\log_2 8", True),
        (r"\frac{7}{3}", r"2\frac{1}{3}", True),  # a mixed number
    ]
    check_boxed(cases)


def test_separators_in_brackets_and_times() -> None:
    cases = [
        ("(1,7,103, 105), (3, 5, 101, 107)", "(3, 5, 101, 107), (1, 7, 103, 105)", True),
        ("(1,000, 2,000)", "(1000, 2000)", True),
        ("(0,0,0),(0,-2,0)", "(0;0;0),(0;-2;0)", True),
        ("(0,0,0),(0,-2,0)", "(0;0;0),(0;0;-2)", False),
        ("0", "(0;0;0)", False),
        ("20:34", "20:34:00", True),
        ("20:34", "20:34:01", False),
    ]
    check_boxed(cases)
