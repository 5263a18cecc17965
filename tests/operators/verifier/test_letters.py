"""Letters of a formula are names: none is a unit, none folds its case."""

from graded_cases import check_boxed


def test_last_letter_is_no_unit() -> None:
    cases = [
        ("x+2t", "x+2"),
        (r"\pi r^2 h", r"\pi r^2"),
        ("3 + 2s", "5"),
        (r"\sqrt{2} t", r"\sqrt{2}"),
    ]
    check_boxed((*case, False) for case in cases)


def test_adjacent_letters() -> None:
    cases = [
        ("LC", "lc", False),
        (r"\frac{V}{IR}", r"\frac{V}{ir}", False),
        (r"\frac{1}{RC}", r"\frac{1}{R C}", True),
        ("mgh", "m g h", True),
        (r"\sin t", r"\sin(t)", True),
    ]
    check_boxed(cases)


def test_capital_e_is_a_name() -> None:
    cases = [
        ("E_1", "E_{1}", "correct"),
        ("E", "4", "wrong_answer"),
        (r"\text{(E)}", "x+1", "wrong_answer"),
    ]
    check_boxed(cases)


def test_unit_after_a_closed_form() -> None:
    cases = [
        (r"5\sqrt{2}\text{ cm}", r"5\sqrt{2}", True),
        (r"5\sqrt{2}", r"5\sqrt{2}\text{ cm}", True),
        (r"36\pi\ \mathrm{cm}^2", r"36\pi", True),
        (r"500\sqrt{2}\text{ cm}", r"5\sqrt{2}\text{ meters}", True),
        (r"25.4\pi\text{ mm}", r"\pi\text{ in}", True),
        (r"5\sqrt{2}\text{ cm}", r"5\sqrt{2}\text{ ft}", False),
        (r"2\pi r h", r"2\pi r", False),
    ]
    check_boxed((reference, answer, right) for answer, reference, right in cases)
