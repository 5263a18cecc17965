"""The graded rows of stored runs, and how often two verifiers agree on them."""

import json
import shutil
from collections import Counter

import pytest
from labelled import lines_of
from recorded_recipes import OVERRIDES, TABLES, recipe_path
from tiny_run import AFTER, PROCESS, ROWS, run_tiny, write_tiny
from typer.testing import CliRunner

from rejuice.operators.confidence import wilson_interval
from rejuice.operators.mapper.math_verify_mapper import MathVerifyMapper
from rejuice.pipelines.analysis.audit import STRATA, strata
from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.analysis.verdicts import agreement, graded_rows, no_answer, rechecked
from rejuice.pipelines.cli.main import app
from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe import load


def graded_in(folder):
    return graded_rows(open_stored(folder / "curated.parquet"))


def recheck(graded):
    return [each for some in rechecked(graded) for each in some]


def test_rows_that_were_dropped_later_are_audited_too(tmp_path):
    run_tiny(tmp_path)
    graded = graded_in(tmp_path)
    assert (graded.verifier, graded.ungraded) == ("math_verify_mapper", 0)
    assert graded.by_math_verify_mapper == MathVerifyMapper()
    rows = graded.rows.to_pylist()
    assert [row["row"] for row in rows] == list(range(12))
    assert [row["response"] for row in rows] == [text for row in ROWS for text in row["responses"]]
    assert [row["verdict"] for row in rows[:4]] == ["correct"] * 2 + ["wrong_answer"] * 2
    assert rows[4]["prompt"] == [{"role": "user", "content": "What is 1 + 1?"}]
    assert recheck(graded) == [row["verdict"] for row in rows]


def test_agreement_counts_each_disagreement(tmp_path):
    run_tiny(tmp_path)
    graded = graded_in(tmp_path)
    other = recheck(graded)
    other[0], other[2], other[3] = "wrong_answer", "correct", "timeout"
    found = agreement(graded, other)
    assert found[:2] + found[3:] == (11, 9, 1, 1, 1)
    assert found.interval == wilson_interval(9 / 11, 11)
    names = [STRATA[at] for at in strata(graded, other)]
    assert names[:4] == [
        "right, recheck wrong", "right, recheck right", "wrong, recheck right", "wrong, no recheck",
    ]  # fmt: skip


def test_a_response_without_an_answer_is_a_stratum(tmp_path):
    run_tiny(tmp_path)
    graded = graded_in(tmp_path)
    silent = graded.rows["verdict"].to_pylist()
    silent[3] = "no_answer"
    at = graded.rows.column_names.index("verdict")
    graded = graded._replace(rows=graded.rows.set_column(at, "verdict", [silent]))
    assert no_answer(graded).sum() == 1
    found = agreement(graded, recheck(graded))
    assert (found.both, found.undecided) == (11, 0)
    assert STRATA[strata(graded, recheck(graded))[3]] == "no answer"


def test_a_run_without_a_verifier_has_no_graded_rows(tmp_path):
    run_tiny(tmp_path, [*PROCESS[:2], AFTER[1]])
    assert graded_in(tmp_path) is None


def test_where_steps_are_not_on_file_the_rows_that_are_left_are_audited(tmp_path):
    run_tiny(tmp_path)
    shutil.rmtree(tmp_path / ".rejuice")
    graded = graded_in(tmp_path)
    assert graded.rows.num_rows == 8
    assert graded.verifier == "math_verify_mapper"


def test_verdicts_of_a_dataset_have_no_operator(tmp_path):
    path = write_tiny(tmp_path, [AFTER[1]])
    row = {"prompt_id": "a", "response": "It is 7.", "reference": "7", "verdict": "correct"}
    (tmp_path / "data.jsonl").write_text(json.dumps({**row, "response_id": "b"}) + "\n")
    run(load(path))
    graded = graded_in(tmp_path)
    assert (graded.verifier, graded.operators) == ("the dataset", ())
    # Its answers are extracted for math-verify.
    assert recheck(graded) == ["correct"]


def test_verifiers_of_different_rows_are_all_named(tmp_path):
    easy = {"math_verify_mapper": {"where": {"level": "easy"}, "timeout": 4.0}}
    hard = {"math_verify_mapper": {"where": {"level": ["hard", "harder"]}}}
    path = write_tiny(tmp_path, [*PROCESS[:2], easy, hard])
    rows = [
        {**row, "level": level} for row, level in zip(ROWS, ("easy", "hard", "hard"), strict=True)
    ]
    (tmp_path / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    run(load(path))
    graded = graded_in(tmp_path)
    assert graded.verifier == (
        "math_verify_mapper (level is easy) and math_verify_mapper_2 (level is hard or harder)"
    )
    assert [each.timeout for each in graded.operators] == [4.0, 5.0]
    assert graded.rows.num_rows == 12


def test_what_a_later_verifier_writes_in_all_rows_is_not_of_those_before(tmp_path):
    first = {"math_verify_mapper": {"where": {"question": "What is 3 + 4?"}}}
    run_tiny(tmp_path, [*PROCESS[:2], first, {"math_verify_mapper": {"timeout": 4.0}}])
    assert graded_in(tmp_path).verifier == "math_verify_mapper_2"


@pytest.mark.slow
@pytest.mark.parametrize("name", OVERRIDES)
def test_shipped_recipes(name, tmp_path, monkeypatch):
    """Judgements are not answers: their verdicts are not looked at."""
    shutil.copytree(TABLES, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    paths = {"export_path": "out/curated.parquet", "np": "1"}
    run(load(recipe_path(name), {**OVERRIDES[name], **paths}), chunk_rows=40)
    graded = graded_rows(open_stored(tmp_path / "out" / "curated.parquet"))
    assert graded.rows["response"].null_count == 0
    slugs = Counter(graded.rows["verdict"].to_pylist())
    assert set(slugs) <= {"correct", "wrong_answer", "no_answer"}
    keys = list(zip(*(graded.rows[k].to_pylist() for k in ("set", "row")), strict=True))
    assert len(set(keys)) == len(keys) > 0
    ran = CliRunner().invoke(app, ["audit", "out/curated.parquet", "--sample", "100"])
    assert ran.exit_code == 0, ran.output
    assert ran.output.startswith(f"out/curated.parquet: {len(keys):,} responses graded by ")
    sample = [
        line
        for line in lines_of(tmp_path / "out" / "curated.run" / "audit.jsonl")
        if line["kind"] == "sample"
    ]
    assert len(sample) == min(100, len(keys))
