"""A chain of equations is paid only if its members agree."""

import pytest

from rejuice.operators.verifier import verify


@pytest.mark.parametrize(
    ("reference", "answer"), [("42", "x=41=42"), ("0", "x=1=0"), (r"50\%", r"x=40\%=50\%")]
)
def test_chain_of_different_numbers(reference: str, answer: str) -> None:
    assert verify(rf"\boxed{{{answer}}}", reference).verdict == "wrong_answer"


@pytest.mark.parametrize(
    ("reference", "answer"),
    [("42", r"6\cdot 8=42"), (r"\sqrt{2}", r"\sqrt{3}=\sqrt{2}"), (r"5\pi", r"x=4\pi=5\pi")],
)
def test_chain_of_different_values(reference: str, answer: str) -> None:
    assert verify(rf"\boxed{{{answer}}}", reference).verdict == "wrong_answer"


@pytest.mark.parametrize(
    ("reference", "answer"),
    [("0.15", r"\frac{3}{20}=0.15"), ("1000", "10^3=1000"), ("50", "100/2=50")],
)
def test_chain_of_equal_values(reference: str, answer: str) -> None:
    assert verify(rf"\boxed{{{answer}}}", reference).verdict == "correct"
