"""Letters of a formula are names: none is a unit, none folds its case."""

from graded_cases import check_boxed, check_verdicts


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


def test_letters_of_several_options() -> None:
    listed = [
        "A, C",
        "A,C",
        "C, A",
        "A and C",
        r"A \text{ and } C",
        "(A), (C)",
        "A、C",
        "A和C",
    ]
    check_boxed((reference, "AC", True) for reference in listed)
    check_boxed(("AC", answer, True) for answer in ["AC", *listed])
    check_boxed(("A, C", answer, True) for answer in listed)
    cases = [
        ("ABD", "A, B and D", True),
        ("AC", "A", False),
        ("AC", "A, C, D", False),
        ("AC", "A or C", False),
        ("AC", "A, A", False),
        # Without a list it may be a product, or a segment.
        ("AC", "CA", False),
        ("AB", "BA", False),
        ("AB", "CD", False),
        ("PQ", "QP", True),
        ("AB", "B, C", False),
        ("AA", "A, A", False),
    ]
    check_boxed(cases)
    check_verdicts([("AC", "The answer is A and C.", True), ("AC", "选AC", True)])


def test_the_letter_of_an_option_with_its_text() -> None:
    cases = [
        ("B", "B – twelve", True),
        ("B", "B: 12 cm", True),
        ("B", "B：12厘米", True),
        ("B", "B. 12", True),
        ("B", "B - 12", False),
        ("B", "B - A", False),
        ("B", r"B - \sin x", False),
        ("B", "A - 12 cm", False),
        ("B", "A or B - 12 cm", False),
        ("x", "x - 12 cm", False),
    ]
    check_boxed(cases)
    check_verdicts([("B", "Final answer: B - 12 cm", True)])
