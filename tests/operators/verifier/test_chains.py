"""A chain of equations is paid only if its members agree."""

import pytest

from rejuice.operators.verifier import verify


@pytest.mark.parametrize(
    ("reference", "answer"), [("42", "x=41=42"), ("0", "x=1=0"), (r"50\%", r"x=40\%=50\%")]
)
def test_chain_of_different_numbers(reference: str, answer: str) -> None:
    assert verify(rf"\boxed{{{answer}}}", reference).verdict == "wrong_answer"
