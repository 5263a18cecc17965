"""Types of answers: what a reference is, and labelled pairs of each type."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from rejuice.operators.verifier import verify, verify_batch
from rejuice.operators.verifier.places import own_part, places, sentences, stripped
from rejuice.operators.verifier.typed import type_of

PAIRS = Path(__file__).resolve().parents[2] / "data" / "answers_by_type.jsonl"

TYPES = {
    "number": ["18", "1/2", "0.5", "12 apples", "-3", "1,000", "no solution", "all real numbers"],
    "expression": [
        "x", "2x + 1", r"\sqrt{3}", "y = 3x + 1", "(1, 2)", "[1, 4]", "x < 3", "1, 2", "mgh",
        r"\begin{pmatrix}1 & 2\end{pmatrix}", r"2\sqrt{3}\text{ cm}", r"\{1, 2\}",
    ],
    "choice": ["C", "(B)", "b", "D.", "C) 8", "A, C", "AC"],
    "boolean": ["Yes", "no", "True", "FALSE"],
    "date": ["2021-03-05", "July 20, 1969", "Thursday", "June 2007", "15th century"],
    "time": ["3:30 pm", "15:30", "2.5 hours", "150 minutes"],
    "percent": ["12%", r"33\frac{1}{3}\%", "5 percent"],
    "money": ["$1,250.00", "5 dollars", "45 cents", "€3"],
    "quantity": ["240 kJ", r"9.8 \text{ m/s}^2", "12 cm^2", "5 liters"],
    "json": ['{"a": 1}', '["x", "y"]', '[{"name": "f"}]'],
    "list": ["Saturn, Jupiter", "France and Spain", "red, green, blue"],
    "text": [
        "Paris", "THE END", "CO2", "a3", "Apollo 11", "Dr. Seuss", "10-20", "555-1234",
        "SELECT * FROM t", "Cannot be determined",
    ],
}  # fmt: skip

PAID = {
    "number": (143, 1),
    "expression": (148, 5),
    "list_or_set": (132, 3),
    "quantity": (154, 0),
    "percent": (153, 2),
    "money": (150, 1),
    "date": (150, 2),
    "time": (153, 1),
    "choice": (151, 1),
    "text": (135, 1),
    "json": (155, 1),
    "boolean": (69, 0),
}
"""Right ones of 155 (of 70 of booleans), and others."""


@pytest.mark.parametrize("name", TYPES)
def test_what_a_reference_is(name: str) -> None:
    assert {text: type_of(text).value for text in TYPES[name]} == dict.fromkeys(TYPES[name], name)


@pytest.mark.parametrize(
    "text", [each for texts in TYPES.values() for each in texts if each not in ("Nf3",)]
)
def test_a_reference_answers_itself(text: str) -> None:
    for response in (text, rf"So it is \boxed{{{text}}}.", f"Answer: {text}"):
        if "{" in text and "boxed" in response:
            continue  # A box of LaTeX escapes braces.
        assert verify(response, text).verdict == "correct", response


def test_where_an_answer_stands() -> None:
    def found(response: str) -> list[tuple[str, str]]:
        return [(place.rule, place.text) for place in places((own_part(response) or ("", 0))[0])]

    assert found("<think>B</think>**Answer: C**")[0] == ("keyword", "C")
    assert found(r"\boxed{5}, so the answer is 6.")[0] == ("keyword", "6")
    assert found(r"The answer is \boxed{5}")[0] == ("boxed", "5")
    assert found(r"\boxed{5} or \boxed{6}")[0] == ("boxed", "5, 6")
    assert found("<answer>a</answer><answer>b</answer>")[0] == ("answer_tag", "a, b")
    assert found("#### Dr. Seuss\n")[0] == ("marked_line", "Dr. Seuss")
    assert found("It is one.\n(Or so.)") == [("last_line", "It is one")]
    assert found("A. 1\nB. 2") == []
    assert own_part("<think>Paris") is None


DEEP = '{"a":' * 70 + "1" + "}" * 70
UNPAID = {
    "Paris": [
        "Answer: Paris (or Lyon)", "<answer>Paris\nLyon</answer>", "It isn't in Paris.",
        "It is no longer Paris.", "Paris is not the capital.", "Lyon as well as Paris",
        "Paris, otherwise Lyon", "The answer is Paris, Lyon, or Rome.", "Answer: Paris in Lyon",
    ],
    "Lyon": ["Paris, otherwise Lyon", "<answer>Paris. However, it could be Lyon</answer>"],
    "CO2": ["CO/CO2"],
    "red, green": ["red, green, blue", "The colors are red, green, blue", "- red\n- green\n- blue"],
    "C": ["Answer: C-D", "Answer: A through C", "|A|C|", "Eliminate C.", "All but C"],
    "Yes": ["Yes/No", r"\boxed{Yes/No}", "yes, or no", "In theory yes, in practice no.", "yes no",
            "A yes-or-no question", "yes if x > 0 and no otherwise"],
    '{"a": 1}': ['{"x": {"a": 1}', '{"b": {"a": 1}, "c": }', DEEP],
    "2021-03-05": ["The day after March 5, 2021", "It was not on March 5, 2021"],
    "12%": ["more than 12%", "between 10% and 12%", "10% 11% 12%"],
    "2.5 hours": ["less than 2.5 hours"],
}  # fmt: skip
RIGHT = {
    "Paris": [
        "Therefore, the answer is Paris, not Lyon.", "It is in Paris, France.",
        "Based on the above, Paris is the answer.", r"Thus, $\text{Paris}$.",
        "The capital is Paris.\n\nLet me know if you have more questions!",
    ],
    "CO2": ["Answer: CO$_2$"],
    "Yes": ["Yes, since neither divides it."],
    "3:30 pm": ["It leaves at 3:30 pm, after 2:00 pm."],
    "2.5 hours": ["They meet after 2.5 hours."],
    '{"a": 1}': ['I [think] it is {"a": 1}'],
    DEEP: [DEEP],
}  # fmt: skip


@pytest.mark.parametrize(
    ("reference", "response", "verdict"),
    [(a, r, "correct") for a, several in RIGHT.items() for r in several]
    + [(a, r, "") for a, several in UNPAID.items() for r in several],
)
def test_one_answer_is_paid(reference: str, response: str, verdict: str) -> None:
    assert (verify(response, reference).verdict == "correct") == bool(verdict)


def test_sentences() -> None:
    assert sentences("It is by Dr. Seuss. J. Doe says no!\n---\nSo 3.5 m.") == [
        "It is by Dr. Seuss.", "J. Doe says no!", "So 3.5 m.",
    ]  # fmt: skip
    assert stripped(r"**\(\text{Paris}\)**.") == "Paris"


def test_labelled_pairs_of_each_type() -> None:
    """Seven people wrote them before they could see the code: see docs/verifier.md."""
    rows = [json.loads(line) for line in PAIRS.read_text("utf-8").splitlines()]
    verdicts = verify_batch([r["response"] for r in rows], [r["reference"] for r in rows])
    paid = Counter(
        (row["type"], row["label"] == "right")
        for row, verdict in zip(rows, verdicts, strict=True)
        if verdict.verdict == "correct"
    )
    assert {name: (paid[name, True], paid[name, False]) for name in PAID} == PAID
