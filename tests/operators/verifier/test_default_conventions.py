r"""Right and wrong answers by the conventions that hold by default: types, and worked-out answers."""

from __future__ import annotations

import pytest
from graded_cases import check_verdicts

from rejuice.operators.verifier import verify
from rejuice.operators.verifier.places import own_part, places

CASES: list[tuple[str, list[str], list[str]]] = [
    # What is worked out has no operation; an ordinal, a unit and a script are none.
    ("12", [r"\boxed{12^{\mathrm{th}}}", r"\boxed{12^{th}}"], [r"\boxed{12^{1}}"]),
    ("9.8", [r"\boxed{9.8\ \mathrm{m/s^2}}", r"\boxed{9.8\ \text{g/cm}^3}"], [r"\boxed{9.8^1}"]),
    (r"\binom{n}{k}", [r"\boxed{\tbinom{n}{k}}"], [r"\boxed{\binom{k}{n}}"]),
    (r"\frac{n!}{k!(n-k)!}", [r"\boxed{\binom{n}{k}}"], [r"\boxed{\binom{n}{k+1}}"]),
    # Forms
    ("(1) 3; (2) 7", [r"\boxed{3; 7}", "The answers are 3 and 7."], [r"\boxed{7; 3}"]),
    ("a) 5, b) 12", [r"\boxed{5, 12}", r"\boxed{a) 5, b) 12}"], [r"\boxed{5}", r"\boxed{12, 5}"]),
    ("①3 ②7", [r"①$\boxed{3}$ ②$\boxed{7}$"], [r"①$\boxed{7}$ ②$\boxed{3}$"]),
    (r"a\sqrt{2}", [r"\boxed{\sqrt{2a^2}}"], [r"\boxed{\sqrt{a^2}}", r"\boxed{\sqrt{2}a^2}"]),
    ("x", [r"\boxed{x}"], [r"\boxed{\sqrt{x^2}}"]),
    (
        r"\begin{pmatrix}3\\-2\end{pmatrix}",
        [r"\boxed{\begin{pmatrix}3\\-2\end{pmatrix}}"],
        [r"\boxed{\begin{pmatrix}3 & -2\end{pmatrix}}"],
    ),
    (
        r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
        [r"\boxed{\left( { \begin{array}{cc}1 & 2 \\3 & 4\end{array} } \right)}"],
        [r"\boxed{\begin{pmatrix}1&2\\3&4\end{pmatrix}^T}"],
    ),
    (r"\operatorname{asin}(a)", [r"\boxed{\sin^{-1} a}"], [r"\boxed{\sin a}"]),
    ("foo''", [r"\boxed{\mathit{foo}''}"], [r"\boxed{\mathit{foo}'}"]),
    ("['a', 'b']", ["['a', 'b']"], ["['c', 'd']"]),
    # Several answers, and a denied one
    ("C", [r"\boxed{C}"], [r"\boxed{C \lor B}", r"\boxed{C \cdot B}"]),
    (r"50\%", [r"50\%"], [r"\boxed{\lnot 50\%}", r"Possible answers: 1, 2, 3, 40\%, 50\%"]),
    # Places
    ("12", ["<|answer|>12", "final_answer(12)", "We add them.\n- 12"], [r"\boxed{-12}"]),
    ("-12", ["- 12", "It is x =\n- 12"], []),
]  # fmt: skip


def test_right_and_wrong() -> None:
    check_verdicts(
        [
            (reference, answer, is_right)
            for reference, right, wrong in CASES
            for is_right, answers in ((True, right), (False, wrong))
            for answer in answers
        ],
        worked_out=True,
    )


@pytest.mark.parametrize("unit", ["=", "answer is ", "<answer>", "```\n", ".", "- \n"])
def test_a_long_response_has_few_places(unit: str) -> None:
    text = unit * (100_000 // len(unit))
    assert sum(1 for _ in places((own_part(text) or ("", 0))[0])) < 200
    assert verify(text, "2021-03-05").verdict in ("wrong_answer", "no_answer")
