"""`rejuice audit` on the shared tiny run, on hostile runs, and what it refuses."""

import json
import re

import pyarrow.parquet as pq
import pytest
from command import heavy_after, runner
from labelled import label, lines_of
from tiny_run import AFTER, PROCESS, run_tiny, write_tiny

from rejuice.operators import RecipeError
from rejuice.pipelines.analysis import audit
from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe import load

SAMPLE = "curated.run/audit.jsonl"
TINY = """\
tiny.yaml: 12 responses graded by math_verify_mapper; nothing is sampled or judged.
verifiers    math_verify_mapper and math-verify: 12 graded by both, 12 agree (100.0%, 95% 75.8 to 100.0)
disagree     right to wrong 0, wrong to right 0; without a second verdict 0, without an answer 0
sample       12 rows in curated.run/audit.jsonl: set "label" to right, wrong or unsure
error rate   not known without labels: two verifiers may err alike
metamorphic  8 distinct pairs of answer and reference
  must leave the verdict
    thousands         no pair
    LaTeX             0 of 8 change (0.0%, 95% 0.0 to 32.4)
    units             0 of 8 change (0.0%, 95% 0.0 to 32.4)
    order             no pair
  must change a right one
    value + 1         0 of 3 stay right (0.0%, 95% 0.0 to 56.1)
    sign              0 of 3 stay right (0.0%, 95% 0.0 to 56.1)
    inverted fraction no pair
signs        length pays: no p-value, too few groups (1)
             format without accuracy: no p-value, too few groups (2)
             format carries the advantage: no p-value, too few groups (2)
             many boxes: no p-value, too few groups (0)
             echo of the prompt: no p-value, too few groups (0)
"""


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    return runner(monkeypatch, capsys, tmp_path)


def test_tiny(rejuice, tmp_path):
    run_tiny(tmp_path)
    assert rejuice("audit", "tiny.yaml") == (0, TINY, "")
    first = (tmp_path / SAMPLE).read_bytes()
    for path in ("curated.parquet", "curated.run"):
        assert rejuice("audit", path) == (0, TINY.replace("tiny.yaml", path), "")
        assert (tmp_path / SAMPLE).read_bytes() == first


@pytest.mark.slow
@pytest.mark.recommended("pipelines/analysis/audit.py", "read it with --labels, or {…}")
@pytest.mark.recommended("pipelines/analysis/audit.py", "give another --output, or")
def test_labels_give_error_rates_and_are_never_written_over(rejuice, tmp_path):
    run_tiny(tmp_path)
    rejuice("audit", "tiny.yaml")
    path = tmp_path / SAMPLE
    label(path, lambda line: "wrong" if line["row"] in (0, 2, 3, 9, 10) else
          "unsure" if line["row"] == 11 else "right")  # fmt: skip
    labelled = path.read_bytes()
    code, out, err = rejuice("audit", "tiny.yaml")
    assert (code, out) == (2, "")
    refused = (
        f"{SAMPLE} has labels; read it with --labels, or give another --output, or --overwrite"
    )
    assert err == f"rejuice: {refused}\n"
    code, out, err = rejuice("audit", "tiny.yaml", "--labels", path)
    assert (code, err) == (0, "")
    assert path.read_bytes() == labelled
    assert "sample " not in out
    lines = out.splitlines()
    assert lines[3:7] == [
        "labels       11 right or wrong, 1 unsure, 0 without",
        "error rate   of math_verify_mapper 8.3% (95% 0.5 to 36.8)",
        "false right  14.3% (95% 0.7 to 51.3) of those graded right",
        "false wrong  0.0% (95% 0.0 to 49.0) of those graded wrong",
    ]
    code, out, _ = rejuice("audit", "tiny.yaml", "--output", "other.jsonl")
    assert (code, len(lines_of(tmp_path / "other.jsonl"))) == (0, 12)
    assert rejuice("run", "tiny.yaml", "--pass_rate_filter.max", 1)[0] == 0
    assert path.read_bytes() == labelled


def test_no_error_rate_is_stated_without_labels(rejuice, tmp_path):
    run_tiny(tmp_path)
    _, out, _ = rejuice("audit", "tiny.yaml")
    assert re.findall(r"error rate.*", out) == [
        "error rate   not known without labels: two verifiers may err alike"
    ]
    _, out, _ = rejuice("audit", "tiny.yaml", "--labels", SAMPLE)
    assert "error rate   of math_verify_mapper unknown" in out


def test_a_bad_label_is_one_line(rejuice, tmp_path):
    run_tiny(tmp_path)
    rejuice("audit", "tiny.yaml")
    path = tmp_path / SAMPLE
    label(path, lambda line: "yes" if line["row"] == 6 else None)
    at = [line["row"] for line in lines_of(path)].index(6) + 1
    message = f"{SAMPLE}, line {at}: label is 'yes'; write right, wrong or unsure"
    assert rejuice("audit", "tiny.yaml", "--labels", SAMPLE) == (2, "", f"rejuice: {message}\n")  # fmt: skip


@pytest.mark.recommended("pipelines/analysis/audit.py", "--sample {…} is too few for {…} strata")
def test_a_sample_that_is_too_small(rejuice, tmp_path):
    run_tiny(tmp_path)
    code, out, err = rejuice("audit", "tiny.yaml", "--sample", 5)
    assert (code, out) == (2, "")
    assert err == "rejuice: --sample 5 is too few for 2 strata; give 12 or more\n"
    assert rejuice("audit", "tiny.yaml", "--sample", 12)[0] == 0


def test_a_run_without_a_verifier(rejuice, tmp_path):
    run_tiny(tmp_path, [*PROCESS[:2], AFTER[1]])
    warning = (
        "rejuice: warning: no verdict in tiny.yaml: no verifier graded, so only signs that "
        "need none are computed\n"
    )
    code, _, err = rejuice("audit", "tiny.yaml")
    assert (code, err) == (0, warning)
    assert not (tmp_path / SAMPLE).exists()


def test_nothing_could_be_graded(rejuice, tmp_path):
    path = write_tiny(tmp_path, [AFTER[1]])
    rows = [{"response": "7", "verdict": slug} for slug in ("timeout", "verifier_error")]
    (tmp_path / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    run(load(path))
    code, out, err = rejuice("audit", "tiny.yaml")
    assert (code, err) == (0, "")
    assert "0 responses graded by the dataset, 2 not graded" in out
    assert "math-verify decides none of 0" in out
    assert "sample       0 rows" in out


HOSTILE = "\x1b[2J\u202e\u2066\u200b [bold]x[/bold] </script> "


def test_hostile_text_changes_nothing_on_a_terminal(rejuice, tmp_path):
    path = write_tiny(tmp_path)
    row = {
        "question": f"{HOSTILE}What is 3 + 4?",
        "answer": "7",
        "responses": [f"{HOSTILE}\\boxed{{7}}", f"\\boxed{{{HOSTILE}}}", HOSTILE * 1_000, "\\boxed{7"],
    }  # fmt: skip
    (tmp_path / "data.jsonl").write_text(json.dumps(row))
    run(load(path))
    code, out, err = rejuice("audit", "tiny.yaml")
    assert (code, err) == (0, "")
    text = (tmp_path / SAMPLE).read_text("utf-8")
    for each in (out, text):
        assert each.replace("\n", "").isprintable()
    assert row["responses"][0] in [line.get("response") for line in lines_of(tmp_path / SAMPLE)]


def test_the_code_of_a_run_is_graded_by_one_verifier_only(rejuice, tmp_path):
    """Its verdicts are sampled for labels; nothing else can be computed."""
    path = write_tiny(tmp_path, [AFTER[1]])
    rows = [
        {"prompt_id": f"{at}", "response_id": f"r{at}", "response": "def f(): pass",
         "verdict": ("correct", "wrong_answer")[at % 2]} for at in range(30)
    ]  # fmt: skip
    (tmp_path / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    run(load(path))
    code, out, _ = rejuice("audit", "tiny.yaml", "--sample", 20)
    assert code == 0
    assert "verifiers    the dataset alone: math-verify decides none of 30" in out
    assert "metamorphic  not computed: the dataset is not math_verify_mapper" in out
    strata = [line["stratum"] for line in lines_of(tmp_path / SAMPLE)]
    assert {name: strata.count(name) for name in strata} == {
        "right, no recheck": 10, "wrong, no recheck": 10,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("confined", [True, False])
def test_weak_tests_of_programs_are_named(rejuice, tmp_path, monkeypatch, confined):
    grading = {"tests": "tests", "style": "assert", "where": {"question": "Square it."}}
    other = {"math_verify_mapper": {"where": {"question": "Add."}}}
    path = write_tiny(tmp_path, [*PROCESS[:2], {"unit_test_mapper": grading}, other])
    tests = [
        "assert f(3) == 9",
        "assert f(3).startswith('\x1b[2J')",
        "x = [3, 1]\nf(x)\nassert sorted(x) == x",
        "assert not f(1) > 2",
    ]
    row = {"question": "Square it.", "answer": "9", "responses": ["def f(x): return x * x"] * 2}
    added = {"question": "Add.", "answer": "9", "responses": ["9"] * 2, "tests": ["not Python("]}
    rows = [{**row, "tests": tests}, added]
    (tmp_path / "data.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    run(load(path))
    if not confined:
        fail = RecipeError("this machine cannot confine programs", "use another")
        monkeypatch.setattr("rejuice.operators.sandbox.run.check_confinement", raises(fail))
    code, out, err = rejuice("audit", "tiny.yaml")
    lines = out.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("tests "))
    assert (code, err) == (0, "")
    if not confined:
        assert lines[at].startswith(
            "tests        not run on programs that solve nothing: this machine cannot"
        )
        return
    assert lines[at : at + 4] == [
        "tests        4 distinct assertions, 3 weak",
        "  the program sees the expected value, where it returns an object of its own: "
        r"assert f(3).startswith('\u001b[2J')",
        "  passed by clearing the argument: x = [3, 1] f(x) assert sorted(x) == x",
        "  passed by NaN: assert not f(1) > 2",
    ]


def raises(error):
    def fail(*_, **__):
        raise error

    return fail


@pytest.mark.slow
def test_the_help_loads_nothing_heavy(tmp_path):
    assert heavy_after(["audit", "--help"], cwd=tmp_path) == []


@pytest.mark.slow
@pytest.mark.recommended("pipelines/analysis/audit.py", "rows: add --rows {…}")
@pytest.mark.recommended("pipelines/analysis/audit.py", "--rows {…}")
def test_signs_come_last_and_name_their_rows(rejuice, tmp_path):
    """In each group the wrong half is boxed, and the right half is not."""
    rows = [
        {"question": f"What is {n} + 1?", "answer": f"{n + 1}",
         "responses": [f"It is {n + 1}."] * 4 + [f"\\boxed{{{n}}}"] * 4} for n in range(60)
    ]  # fmt: skip
    path = write_tiny(tmp_path)
    (tmp_path / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    run(load(path), chunk_rows=None)
    code, out, err = rejuice("audit", "tiny.yaml")
    assert (code, err) == (0, "")
    (alarm,) = [line for line in out.splitlines() if " *; rows: add --rows format" in line]
    *_, sign = alarm.split()
    code, out, err = rejuice("audit", "tiny.yaml", "--rows", sign)
    assert (code, err) == (0, "")
    found = {json.loads(line)["response_id"] for line in out.splitlines()}
    export = pq.read_table(tmp_path / "curated.parquet")
    assert found <= set(export["response_id"].to_pylist())
    assert found
    code, _, err = rejuice("audit", "tiny.yaml", "--rows", "nothing")
    assert code == 2
    assert "write one of length_pays, " in err
    assert "format_without_accuracy" in err


@pytest.mark.parametrize("worked_out", [False, True])
def test_right_answers_that_are_formulas_are_counted(rejuice, tmp_path, worked_out):
    """A policy that repeats the question's formula is right by value, and has learned nothing."""
    steps = [dict(step) for step in PROCESS]
    steps[2] = {"math_verify_mapper": {"worked_out": worked_out}}
    path = write_tiny(tmp_path, steps)
    responses = [r"\boxed{3 + 4}", r"\boxed{7}", "It is 7.", r"\boxed{8}"]
    row = {"question": "What is 3 + 4?", "answer": "7", "responses": responses}
    (tmp_path / "data.jsonl").write_text(json.dumps(row) + "\n")
    run(load(path))
    code, out, _ = rejuice("audit", path)
    lines = [line for line in out.splitlines() if line.startswith("formulas")]
    expected = (
        "formulas     1 of 3 right answers are not worked out, such as '3 + 4' for 7: "
        "`worked_out: true` of math_verify_mapper grades them wrong"
    )
    assert (code, lines) == (0, [] if worked_out else [expected])


def test_bad_labels_are_found_before_anything_is_verified(rejuice, tmp_path, monkeypatch):
    run_tiny(tmp_path)
    monkeypatch.setattr(audit, "rechecked", None)  # A call of it is an error.
    (tmp_path / "bad.jsonl").write_text('{"set": "", "row": 99, "label": "right"}\n')
    for name, found in (("bad.jsonl", "bad.jsonl, line 1"), ("none.jsonl", "none.jsonl")):
        code, out, err = rejuice("audit", "curated.parquet", "--labels", name)
        assert (code, out, found in err, err.count("\n")) == (2, "", True, 1)
