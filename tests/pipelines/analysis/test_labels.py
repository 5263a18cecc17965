"""The file for a person: written, read back, and what is refused."""

import json

import pytest
from labelled import label, lines_of
from tiny_run import run_tiny

from rejuice.operators import DataError
from rejuice.pipelines.analysis.audit import (
    check_replaceable,
    draw,
    failing_lines,
    labelled_errors,
    read_labels,
    sample_lines,
    strata,
    write_lines,
)
from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.analysis.verdicts import FailingPair, graded_rows


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    run_tiny(folder)
    return graded_rows(open_stored(folder / "curated.parquet"))


def rechecked(graded):
    """What math-verify says: it differs on the first row and fails on the last."""
    recheck_N = graded.rows["verdict"].to_pylist()
    recheck_N[0], recheck_N[-1] = "wrong_answer", None
    return recheck_N


def errors_of(path, graded):
    return labelled_errors(read_labels(path, graded), graded, strata(graded, rechecked(graded)))


@pytest.fixture
def file(graded, tmp_path):
    """The whole run as a sample."""
    recheck_N = rechecked(graded)
    strata_N = strata(graded, recheck_N)
    rows = draw(graded, strata_N, 200, 0)
    path = tmp_path / "audit.jsonl"
    pair = FailingPair("sign", "7", "7", "correct", "-7", "7", "correct")
    lines = [*sample_lines(graded, recheck_N, strata_N, rows), *failing_lines([pair])]
    write_lines(path, lines)
    return path


def agrees(line):
    return "right" if line["verdict"] == "correct" else "wrong"


def test_a_line_has_what_a_person_needs(file):
    lines = lines_of(file)
    assert len(lines) == 13
    (first,) = [line for line in lines if line.get("row") == 0]
    assert first == {
        "kind": "sample", "stratum": "right, recheck wrong", "stratum_rows": 1, "set": "",
        "row": 0, "response_id": first["response_id"],
        "prompt": [{"role": "user", "content": "What is 3 + 4?"}], "response": r"\boxed{7}",
        "reference": "7", "extracted_answer": "7", "verdict": "correct",
        "recheck": "wrong_answer", "label": None,
    }  # fmt: skip
    assert lines[-1] == {
        "kind": "metamorphic", "check": "sign", "answer": "7", "reference": "7",
        "verdict": "correct", "new_answer": "-7", "new_reference": "7", "new_verdict": "correct",
    }  # fmt: skip


def test_without_labels_no_rate_is_known(file, graded):
    found = errors_of(file, graded)
    assert (found.labelled, found.unsure, found.unlabelled) == (0, 0, 12)
    for each in found[3:]:
        assert each.rate != each.rate
        assert each.interval == (0, 1)


def test_labels_that_agree(file, graded):
    label(file, agrees)
    found = errors_of(file, graded)
    assert (found.labelled, found.unsure, found.unlabelled) == (12, 0, 0)
    assert found.errors.rate == found.false_right.rate == found.false_wrong.rate == 0


def test_errors_of_both_kinds(file, graded):
    """Row 0 is graded right and wrong; rows 8 to 11 are C's, of which 8 is right and 11 unsure."""
    given = {0: "wrong", 9: "right", 11: "unsure"}
    label(file, lambda line: given.get(line["row"], agrees(line)))
    found = errors_of(file, graded)
    assert (found.labelled, found.unsure) == (11, 1)
    right = sum(each == "correct" for each in graded.rows["verdict"].to_pylist())
    assert found.false_right.rate == pytest.approx(1 / right)
    assert found.false_wrong.rate == pytest.approx(1 / (12 - right - 1))
    assert found.errors.rate == pytest.approx(2 / 11)
    assert found.errors.unlabelled == 1


def test_removed_lines_are_rows_without_a_label(file, graded):
    label(file, agrees)
    lines = file.read_text("utf-8").splitlines()
    kept = [line for line in lines if '"right, recheck wrong"' not in line]
    write_lines(file, kept)
    found = errors_of(file, graded)
    assert found.errors.unlabelled == found.false_right.unlabelled == 1
    assert found.false_wrong.unlabelled == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": "yes"}, "label is 'yes'; write right, wrong or unsure"),
        ({"label": "\x1b[31m\u202e"}, r"label is '\x1b[31m\u202e'; write right, wrong or unsure"),
        ({"label": ["right"]}, "label is ['right']; write right, wrong or unsure"),
        ({"row": 99}, "the row is not in this run; give its own labels"),
        ({"row": []}, "the row is not in this run; give its own labels"),
        ({"response_id": "x"}, "the row is not in this run; give its own labels"),
        ({"verdict": "correct"}, "the row is not in this run; give its own labels"),
    ],
)  # fmt: skip
def test_what_is_refused(file, graded, change, message):
    lines = lines_of(file)
    wrong = [at for at, line in enumerate(lines) if line.get("stratum") == "wrong, recheck wrong"]
    at = wrong[1]
    lines[at] |= change
    write_lines(file, map(json.dumps, lines))
    with pytest.raises(DataError) as refused:
        errors_of(file, graded)
    assert str(refused.value) == f"{file}, line {at + 1}: {message}"


@pytest.mark.parametrize("text", ["no JSON", "[1]", '{"a": 1', "\x00", "null"])
def test_a_line_that_is_no_object(file, graded, text):
    lines = file.read_text("utf-8").splitlines()
    write_lines(file, [*lines[:3], "", text, *lines[3:]])
    with pytest.raises(DataError) as refused:
        errors_of(file, graded)
    message = "this is no JSON object; write one JSON object on each line"
    assert str(refused.value) == f"{file}, line 5: {message}"


def test_a_row_twice_and_a_file_without_rows(file, graded, tmp_path):
    lines = file.read_text("utf-8").splitlines()
    write_lines(file, [*lines, lines[2]])
    with pytest.raises(DataError, match="line 14: the row is on line 3, too; label it once"):
        errors_of(file, graded)
    write_lines(file, lines[-1:])
    with pytest.raises(DataError, match="has no rows to label"):
        errors_of(file, graded)
    with pytest.raises(DataError, match="cannot be read; No such file"):
        errors_of(tmp_path / "no.jsonl", graded)


def test_labels_are_never_written_over(file, tmp_path):
    check_replaceable(file)
    check_replaceable(tmp_path / "new.jsonl")
    label(file, lambda line: "unsure" if line["row"] == 3 else None)
    with pytest.raises(DataError, match="has labels; read it with"):
        check_replaceable(file)
    other = tmp_path / "data.jsonl"
    for text in ('{"question": "a"}\n', "x"):
        other.write_text(text)
        with pytest.raises(DataError, match="was not written by an audit; give another"):
            check_replaceable(other)


HOSTILE = "\x1b]0;x\x07\u202e\u2066\u200b\u2028\u061c\x85\x7f\U000e0041 √2 数 <script>\r\n"


def test_hostile_text_is_written_as_code_points(graded, tmp_path):
    path = tmp_path / "a.jsonl"
    write_lines(path, failing_lines([FailingPair("sign", *[HOSTILE] * 6)]))
    text = path.read_text("utf-8")
    assert text.endswith("\n")
    assert text.removesuffix("\n").isprintable()
    assert "√2 数 <script>" in text
    assert json.loads(text)["answer"] == HOSTILE
