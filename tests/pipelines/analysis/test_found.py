"""An answer is found by a rule of the verifier, and its place holds it."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import real_responses
from each import check_each
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators.verifier.answer import find_answer
from rejuice.pipelines.analysis.evidence import answer_evidence


def checked(response):
    """What is found."""
    found = find_answer(response)
    assert (found.start is None) == (found.end is None)
    if found.start is not None:
        assert response[found.start : found.end] == found.text
    if found.text is not None:
        assert found.found_by
    return found


RULES = [
    (r"So it is \boxed{42}.", "42", ("boxed",), "16:18"),
    (r"\boxed{7} and 7 again, and 7", "7", ("boxed",), "7:8"),
    (r"Two: \boxed{1}, \boxed{2}.", "1, 2", ("boxed",), None),
    (r"-\boxed{3} is it", "-(3)", ("boxed",), None),
    ("<think>5 or 6</think>The answer is 6.", "6", ("think", "keyword"), "35:36"),
    ("<think>5 or 6", None, ("unclosed_think",), None),
    ("so <answer></answer>", None, ("answer_tag",), None),
    ("<think>5</think> It is 3 or so. I do not know.", None, ("think", "gives_up"), None),
    ("I say <answer> 12 </answer> and 12.", "12", ("answer_tag", "bare"), "15:17"),
    (r"<answer>it is \boxed{9}</answer> 9", "9", ("boxed",), "21:22"),
    ("1 + 1 = 2\n#### 2", "2", ("marked_line",), "15:16"),
    ("Some words.\nA: 18", "18", ("keyword",), "15:17"),
    ("  42 ", "42", ("bare",), "2:4"),
    ("It took 3 hours.\nThe answer is 42. I hope 42 is correct.", "42", ("keyword",), "31:33"),
    ("So 42 is the answer to it.", "42", ("keyword",), "3:5"),
    ("We add them.\nSo x = 5 + 7 = 12", "12", ("last_line",), "28:30"),
    ("He has 3 ducks and sells 18 of them there", "18", ("last_number",), "25:27"),
    ("He has **3** ducks and sells **18** of them there", "18", ("last_number",), "31:33"),
    ("It is 3 or so. I do not know.", None, ("gives_up",), None),
    (r"\boxed{3} Final answer: 4", "4", ("keyword",), "24:25"),
    ("Nothing here to see, at all, my friend.", None, (), None),
    ("", None, (), None),
]


def test_each_rule():
    def check(response, text, rules, place):
        found = checked(response)
        at = None if found.start is None else f"{found.start}:{found.end}"
        assert (found.text, found.found_by, at) == (text, rules, place)

    check_each(RULES, check)


@pytest.mark.slow
def test_real_responses():
    """A real model: all have a rule where they have an answer, and nearly all a place."""
    texts = pq.read_table(real_responses.FOLDER / "responses.parquet")["response"].to_pylist()
    found = [checked(text) for text in texts]
    assert sum(each.start is None for each in found) < len(found) / 100
    assert {"boxed", "last_number"} < {rule for each in found for rule in each.found_by}


def test_shared_cases(shared_data):
    for line in (shared_data / "verifier_cases.jsonl").read_text("utf-8").splitlines():
        prediction = str(json.loads(line)["prediction"])
        checked(prediction)
        checked(f"<think>{prediction}</think> <answer>{prediction}</answer>")


PIECES = st.sampled_from(
    [
        *(
            "\\boxed{42}",
            "\\boxed{\\frac{1}{2}}",
            "\\boxed{",
            "}",
            "\\fbox{3}",
            "-",
            "**18**",
            "**",
        ),
        *("<think>", "</think>", "<answer>", "</answer>", "#### ", "#### 7", "\nA: ", "A:", "\n"),
        *("The answer is ", "Answer: ", " is the answer", "Final answer: ", "at least 3", " = 12"),
        *("$x = 5$", "\\(3\\)", "1,234", "3.5%", "$18", "not ", "isn't ", "I do not know.", "?"),
        *(" 7 ", "18", "x", ". ", "Option A) 3\n", "B) 4\n", "<|im_end|>", "\nQuestion: 2+2?"),
        *("ducks and eggs ", "because 4", "(1, 2)", "é", "\U0001f600", "\u202e", "￼", "three"),
    ]
)


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(st.lists(PIECES, max_size=12).map("".join))
def test_any_text_of_pieces(response):
    checked(response)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_any_text(response):
    checked(response)


def test_the_columns():
    table = pa.table({"response": ["It is \\boxed{4}.", None, "I do not know.", ""]})
    found = answer_evidence(table)
    assert {name: column.to_pylist() for name, column in found.items()} == {
        "found_by": ["boxed", None, "gives_up", None],
        "found_at": ["13:14", None, None, None],
    }
