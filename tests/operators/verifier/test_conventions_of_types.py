"""What is equal in texts that look like formulas, and in formulas with names that do not count."""

import pytest
from graded_cases import check_verdicts

from rejuice.operators.verifier import AnswerType, check_references, verify

GRID = "7 8 8\n0 1 2\n5 5 5"
EQUAL = {
    "Fe3+": ["Fe³⁺", r"\boxed{\text{Fe}^{3+}}", r"\boxed{\ce{Fe^3+}}"],
    "CC(=O)O": ["<answer>CC(=O)O</answer>", r"\boxed{\text{CC(=O)O}}"],
    "c1ccccc1O": ["c1ccccc1O"],
    r"\ce{2H2 + O2 -> 2H2O}": [r"\boxed{2H_2 + O_2 \rightarrow 2H_2O}"],
    r"1, 2, \ldots, n": [r"\boxed{1,2,\dots,n}"],
    GRID: [
        GRID,
        f"So it is:\n```\n{GRID}\n```",
        f"It becomes\n\n{GRID}",
        f"<answer>{GRID}</answer>",
    ],
    "the Red Sea": ["The answer is the Red Sea."],
    "10 Ω": [r"\boxed{10\ \Omega}", "10 ohms"],
    r"\frac{\pi}{4} + k\pi, k \in \mathbb{Z}": [
        r"\boxed{\frac{\pi}{4} + n\pi, n \in \mathbb Z}",
        r"\boxed{x = \frac{\pi + 4m\pi}{4} \text{ where } m \in \mathbb{Z}}",
        r"\boxed{\frac{\pi}{4} + k\pi}",
    ],
    r"36\pi": [r"\boxed{36\pi \text{ cm}^2}"],
    "x=3": [r"\boxed{x=3}", r"\boxed{3}", r"\boxed{x = 1 + 2 = 3}"],
    "73": [
        "🎉 73 🎉",
        "<<73>>",
        "Final Answer\n------------\n73",
        "<answer>73</answer><answer>73</answer>",
    ],
}
UNEQUAL = {
    "Fe3+": [r"\boxed{\ce{Fe^2+}}", "Fe"],
    "CC(=O)O": ["<answer>CC(O)=O</answer>"],
    r"\ce{2H2 + O2 -> 2H2O}": [r"\boxed{\ce{H2 + O2 -> H2O}}"],
    r"1, 2, \ldots, n": [r"\boxed{1, 3, 5, \ldots, 2n-1}"],
    GRID: [GRID[:-1] + "6", GRID.replace("\n", " "), "0 1 2\n7 8 8\n5 5 5", "5 5 5"],
    r"\frac{\pi}{4} + k\pi, k \in \mathbb{Z}": [
        r"\boxed{\frac{\pi}{4} + 2n\pi, n \in \mathbb{Z}}",
        r"\boxed{\frac{\pi}{4}}",
    ],
    "x=3": [r"\boxed{x=6/2}", r"\boxed{x = 2 + 1}"],
    "73": ["❌ 73", "<answer>72</answer><answer>73</answer>"],
}  # fmt: skip


@pytest.mark.parametrize("reference", EQUAL)
def test_equal(reference: str) -> None:
    assert check_references([reference]) == [None]
    check_verdicts(((reference, answer, True) for answer in EQUAL[reference]), worked_out=True)


@pytest.mark.parametrize("reference", UNEQUAL)
def test_unequal(reference: str) -> None:
    check_verdicts(((reference, answer, False) for answer in UNEQUAL[reference]), worked_out=True)


def test_a_type_that_a_reference_is_given() -> None:
    given = AnswerType
    types = [given.TEXT, given.NUMBER, given.DATE, given.LIST, None, given.NUMBER]
    found = check_references(
        ["none", "2021-03-05", "5", '["3", "-3"]', "18", "11 or 13"], answer_types=types
    )
    assert [bool(why) for why in found] == [False, True, True, False, False, False]
    assert "not of the type number" in str(found[1])
    assert verify("5", "5", answer_type=given.DATE).verdict == "verifier_error"
    assert not verify("7", "007", answer_type=given.TEXT)
    assert verify("7", "007")
    assert verify("2013", "2021-03-05", answer_type=given.EXPRESSION)
    with pytest.raises(ValueError, match="2 references but 1 types"):
        check_references(["1", "2"], answer_types=[None])
