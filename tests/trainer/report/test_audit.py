"""`rejuice audit` of training runs and steps."""

import command
import pytest
from labelled import lines_of
from trained_run import tiny_rollouts, write_trained


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory):
    return tiny_rollouts(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    return command.runner(monkeypatch, capsys, tmp_path)


@pytest.fixture
def training_run(tmp_path, rollouts):
    return write_trained(tmp_path / "try", rollouts, (1, 2, 3))


def test_a_run_is_audited_over_its_steps(training_run, rejuice, tmp_path):
    status, out, err = rejuice("audit", training_run, "--sample", 24)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("try: 36 responses graded by math_verify_mapper;")
    assert "36 graded by both, 36 agree (100.0%, 95% 90.4 to 100.0)" in lines[1]
    rows = lines_of(training_run / "audit.jsonl")
    assert len(rows) == 24
    keys = {(row["set"], row["row"]) for row in rows}
    assert len(keys) == 24
    assert {name for name, _ in keys} == {"step 1", "step 2", "step 3"}
    # Each step draws rows of its own, though their prompts are the same.
    assert len({frozenset(row for name, row in keys if name == step) for step, _ in keys}) > 1
    status, out, _ = rejuice("audit", training_run, "--labels", training_run / "audit.jsonl")
    assert (status, out.splitlines()[3]) == (
        0,
        "labels       0 right or wrong, 0 unsure, 24 without",
    )


def test_a_step(training_run, rejuice):
    status, out, _ = rejuice("audit", training_run / "steps" / "000002")
    assert status == 0
    assert ": 12 responses graded by math_verify_mapper" in out
    assert lines_of(training_run / "steps" / "000002" / "audit.jsonl")


def test_a_step_of_an_earlier_version_has_the_rows_that_are_left(training_run, rejuice):
    step = training_run / "steps" / "000001"
    (step / "values.parquet").unlink()
    status, out, _ = rejuice("audit", step)
    assert status == 0
    assert ": 7 responses graded by math_verify_mapper" in out
