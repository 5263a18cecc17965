"""What is printed of the signs of reward hacking."""

import json

import pytest

from rejuice.operators import DataError
from rejuice.pipelines.analysis.audit import sign_lines, sign_row_lines
from rejuice.pipelines.analysis.reward_hacking import SignResult

FORMAT = SignResult("format without accuracy", "", 0.0002, 0.31, alarm=True, rows=("a1", "b2"))
SIGNS = (
    SignResult("length pays", "", 0.41, 0.02),
    FORMAT,
    SignResult("many boxes", "", None, float("nan"), reason="too few groups (12)"),
    SignResult("echo of the prompt", "", 0.8, -0.1),
)


def test_the_lines_state_the_false_alarm_rate():
    assert list(sign_lines(SIGNS)) == [
        "signs        length pays: p-value 0.41",
        "             format without accuracy: p-value 0.0002, effect 0.31 *; rows: add --rows format_without_accuracy",
        "             many boxes: no p-value, too few groups (12)",
        "             echo of the prompt: p-value 0.80",
        "             * found at a family-wise false alarm rate of 1% (Holm over 3): "
        "of clean runs, at most 1 in 100 has an alarm",
    ]


def test_without_an_alarm():
    assert list(sign_lines(SIGNS[:1]))[1:] == [
        "             nothing found at a family-wise false alarm rate of 1% (Holm over 1): "
        "of clean runs, at most 1 in 100 has an alarm",
    ]
    assert list(sign_lines(SIGNS[2:3])) == [
        "signs        many boxes: no p-value, too few groups (12)",
    ]
    assert list(sign_lines(())) == []


def test_signs_of_several_sets_have_their_names():
    of_two = [
        SignResult("length drift", "answers", 0.0001, 0.4, reason="no alarm: validation has risen"),
        FORMAT._replace(set="judgements"),
    ]  # fmt: skip
    assert list(sign_lines(of_two))[:2] == [
        "signs        length drift in answers: p-value 0.0001, no alarm: validation has risen",
        "             format without accuracy in judgements: p-value 0.0002, effect 0.31 *; "
        "rows: add --rows format_without_accuracy",
    ]


@pytest.mark.parametrize("name", ["format_without_accuracy", "format without accuracy"])
def test_rows_behind_a_sign_are_json_lines(name):
    found = [json.loads(line) for line in sign_row_lines(SIGNS, name)]
    assert [each["response_id"] for each in found] == ["a1", "b2"]
    assert found[0] == {"response_id": "a1", "sign": "format without accuracy", "set": ""}


def test_an_unknown_sign_is_one_clear_line():
    with pytest.raises(DataError, match=r"--rows lenght.*write one of length_pays, format_without"):
        list(sign_row_lines(SIGNS, "lenght"))


def test_a_name_cannot_write_to_the_terminal():
    hostile = SignResult("\x1b[31m‮ without accuracy", "\x1b", 0.001, 0.5, alarm=True)
    lines = [*sign_lines([hostile, *SIGNS])]
    assert all(line.isprintable() for line in lines)
    assert "\\u001b[31m\\u202e without accuracy" in lines[0]
