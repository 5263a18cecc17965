"""Letters of a formula are names: none is a unit, none folds its case."""

import pytest

from rejuice.operators.verifier import verify


def paid(answer: str, reference: str) -> bool:
    return verify(rf"\boxed{{{answer}}}", reference).verdict == "correct"


@pytest.mark.parametrize(
    ("reference", "answer"),
    [("x+2t", "x+2"), (r"\pi r^2 h", r"\pi r^2"), ("3 + 2s", "5"), (r"\sqrt{2} t", r"\sqrt{2}")],
)
def test_last_letter_is_no_unit(reference: str, answer: str) -> None:
    assert not paid(answer, reference)


@pytest.mark.parametrize(
    ("reference", "answer", "equal"),
    [
        ("LC", "lc", False),
        (r"\frac{V}{IR}", r"\frac{V}{ir}", False),
        (r"\frac{1}{RC}", r"\frac{1}{R C}", True),
        ("mgh", "m g h", True),
        (r"\sin t", r"\sin(t)", True),
    ],
)
def test_adjacent_letters(reference: str, answer: str, equal: bool) -> None:
    assert paid(answer, reference) is equal


@pytest.mark.parametrize(
    ("reference", "answer", "verdict"),
    [
        ("E_1", "E_{1}", "correct"),
        ("E", "4", "wrong_answer"),
        (r"\text{(E)}", "x+1", "wrong_answer"),
    ],
)
def test_capital_e_is_a_name(reference: str, answer: str, verdict: str) -> None:
    assert verify(rf"\boxed{{{answer}}}", reference).verdict == verdict


@pytest.mark.parametrize(
    ("answer", "reference", "right"),
    [
        (r"5\sqrt{2}\text{ cm}", r"5\sqrt{2}", True),
        (r"5\sqrt{2}", r"5\sqrt{2}\text{ cm}", True),
        (r"36\pi\ \mathrm{cm}^2", r"36\pi", True),
        (r"500\sqrt{2}\text{ cm}", r"5\sqrt{2}\text{ meters}", True),
        (r"25.4\pi\text{ mm}", r"\pi\text{ in}", True),
        (r"5\sqrt{2}\text{ cm}", r"5\sqrt{2}\text{ ft}", False),
        (r"2\pi r h", r"2\pi r", False),
    ],
)
def test_unit_after_a_closed_form(answer: str, reference: str, right: bool) -> None:
    assert (verify(rf"\boxed{{{answer}}}", reference).verdict == "correct") is right
