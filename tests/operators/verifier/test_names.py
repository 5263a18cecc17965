r"""Equations: which left sides are names of a quantity, and which are mathematics to solve."""

from graded_cases import check_boxed


def test_ratios_and_functions_are_names() -> None:
    cases = [
        ("2", r"\frac{AB}{CD}=2", True),
        ("2", r"\frac{a}{b}=2", True),
        (r"\frac{NO}{BO}=\frac{1}{\sqrt{6}}", r"\frac{1}{\sqrt{6}}", True),
        ("|AB|=1", "1", True),
        ("1", r"\lvert AB\rvert = 1", True),
        ("A:B=1", "1", True),
        (r"V_{1}:V_{2}=11:21", "11:21", True),
        ("7:32", "S_1:S=7:32", True),
        ("2", r"f_{\max}(x)=2", True),
        (r"\Phi(x,y)=\frac{x+1}{2y}", r"\Phi (x, y)=\frac{x}{2y} + \frac{1}{2y}", True),
        (
            r"\begin{bmatrix}3&7\\5&12\end{bmatrix}",
            r"A^{-1}=\begin{bmatrix}3&7\\5&12\end{bmatrix}",
            True,
        ),
        (
            r"\begin{bmatrix}3&7\\5&12\end{bmatrix}",
            r"A=\begin{bmatrix}3&7\\5&12\end{bmatrix}",
            True,
        ),
        ("2", "x=y=z=2", True),
        (r"x = y = z = \frac{\sqrt{2}}{2}", r"\frac{\sqrt{2}}{2}", True),
        # not a name but an equation of its letter
        ("2", "|x|=2", False),
        ("2", r"\tan A=2", False),
        ("2", r"\sin(x)=2", False),
        ("2", "2x=2", False),
        ("2", "x^2+y^2=2", False),
        # another quantity
        (r"\frac{a}{b}=2", r"\frac{b}{a}=2", False),
        ("S_1:S=7:32", "S:S_1=7:32", False),
        ("(1,2)", "(y,x)=(1,2)", False),
    ]
    check_boxed(cases)


def test_an_answer_is_no_name_of_another() -> None:
    cases = [
        ("C", "B=C", False),
        (r"\text{east}", r"\text{west}=\text{east}", False),
        ("C", r"\text{Answer}=C", True),
        ("3", "A=3", True),
    ]
    check_boxed(cases)


def test_members_of_a_chain_with_letters() -> None:
    cases = [
        ("-1", r"e^{i\pi} = -1", True),
        ("3", r"\begin{vmatrix} 2 & 1 \\ 1 & 2 \end{vmatrix} = 3", True),
        ("1", r"\lim_{x \to 0} \frac{\sin x}{x} = 1", True),
        ("2", r"\lim_{x \to 0} \frac{\sin x}{x} = 2", False),
        ("3", "2x = 3", False),
        ("3", "x^2 = 3", False),
    ]
    check_boxed(cases)


def test_orders_of_several_terms() -> None:
    cases = [
        (
            r"\tan \frac{7\pi}{5} > \sin \frac{2\pi}{5} > 0",
            r"\tan \frac{7}{5}\pi > \sin \frac{2}{5}\pi > 0",
            True,
        ),
        (r"\sqrt{3} > \sqrt{2} > 1", r"\sqrt{2} > \sqrt{3} > 1", False),
        (r"\sqrt{3} > \sqrt{2} > 1", r"\sqrt{3} \ge \sqrt{2} > 1", False),
    ]
    check_boxed(cases)


def test_a_letter_is_a_unit_where_the_other_side_has_it() -> None:
    cases = [
        ("0.64N", "0.6400 N", True),
        ("0.64 N", "0.64N", True),
        ("0.64N", "0.64 m", False),
        ("4", "4t", False),
        ("4t", "4", False),
    ]
    check_boxed(cases)


def test_an_equation_beside_a_named_ratio_is_wrong() -> None:
    cases = ["7 = 11a+c", "2x+3y=1", "x^2=1"]
    check_boxed(("A:B=1", answer, "wrong_answer") for answer in cases)


def test_a_derivative_of_a_letter_is_a_name_and_not_zero() -> None:
    cases = [
        ("2x", r"\frac{dy}{dx} = 2x", True),
        (r"\frac{dV}{dt} = 5", "5", True),
        (r"y + \frac{dy}{dx} = 0", r"\frac{dy}{dx} = -y", True),
        (r"\frac{dy}{dx} = 2x", "y = 2x", False),
        (r"\frac{dy}{dx} = 2x", r"\frac{dx}{dy} = 2x", False),
        (r"\frac{dy}{dx} = 2x", "x = 0", False),
        (r"\frac{d}{dx} x^2", "2x", True),
    ]
    check_boxed(cases)
