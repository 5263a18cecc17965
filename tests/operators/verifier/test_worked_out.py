r"""The form of an answer, where a formula of the right value is not enough."""

from __future__ import annotations

from graded_cases import check_verdicts

from rejuice.operators.verifier import verify


def test_a_formula_of_the_right_value_is_not_worked_out() -> None:
    table: list[tuple[str, list[str], list[str]]] = [
        (
            "42",
            ["42", "x=42", r"6 \cdot 7 = 42", r"42\text{ cm}", "forty-two", r"\boxed{42.0}"],
            ["6*7", r"\frac{84}{2}", r"\sqrt{1764}", r"\binom{9}{2}+6", r"\int_0^{42} dx"],
        ),
        ("1024", ["1024", "1,024", r"1,\! 024", r"1.024 \times 10^3"], ["2^{10}", "1000+24"]),
        (
            "0.5",
            [r"\frac12", "1/2", r"50\%", "0.50", r"$p = \frac{1}{2}$"],
            [r"\frac{2}{4}", "3/6", r"\sin(\pi/6)", "1-0.5"],
        ),
        ("3.5", ["3 1/2", r"3\frac{1}{2}", r"\frac72"], [r"\frac{14}{4}", r"3+\frac12"]),
        (
            r"8\sqrt{2}",
            [r"8\sqrt{2}", r"8\cdot 2^{1/2}", r"\sqrt{128}", r"x = 8\sqrt 2"],
            [r"\sqrt{50}+\sqrt{18}", r"\sqrt{200}-\sqrt{8}"],
        ),
        (r"\frac{\sqrt{3}}{2}", [r"\frac{\sqrt{3}}{2}", r"\sqrt{3}/2"], [r"\int_0^{\sqrt 3} \frac12 dx"]),
        ("2x", ["2x", "x+x", r"2 \cdot x"], [r"\frac{d}{dx}x^2"]),
        ("1, 2", ["1, 2", r"\{1,2\}", "x=1, x=2"], []),
        (r"\text{east}", ["east", "East!", r"\text{east}"], []),
        ("120", ["120"], ["5!", r"\binom{10}{3}"]),
    ]  # fmt: skip
    cases = [
        (reference, answer, is_worked_out)
        for reference, worked_out, formulas in table
        for is_worked_out, answers in ((True, worked_out), (False, formulas))
        for answer in answers
    ]
    check_verdicts(cases, worked_out=True)


def test_by_default_an_equal_value_is_not_enough() -> None:
    assert verify(r"\boxed{\frac{84}{2}}", "42", worked_out=False).verdict == "correct"
    assert verify(r"\boxed{\frac{84}{2}}", "42").verdict == "wrong_answer"
    assert verify(None, "42") == ("no_answer", None)
    assert verify("42", None) == ("verifier_error", "42")
