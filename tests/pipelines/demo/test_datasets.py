"""Files of simulated rollouts, as recipes read them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from rejuice.operators import RejuiceError
from rejuice.operators.mapper.prompt_template_mapper import PromptTemplateMapper
from rejuice.operators.mapper.recorded_rollout_mapper import RecordedRolloutMapper
from rejuice.pipelines.cli.main import app
from rejuice.pipelines.demo.datasets import write_dataset
from rejuice.pipelines.demo.problems import DemoOptions, problems


def test_one_row_per_problem_with_its_responses(tmp_path: Path):
    path = tmp_path / "new" / "rollouts.jsonl"
    write_dataset(path, "recorded", DemoOptions(prompts=30, responses=4, seed=5))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["question"] for row in rows] == [p.question for p in problems(5, "train", 30)]
    assert {len(row["responses"]) for row in rows} == {4}
    assert list(rows[0]) == ["question", "answer", "level", "responses"]
    assert list(rows[0]["responses"][0]) == ["text", "finish_reason", "student"]


def test_formats_hold_the_same(tmp_path: Path):
    for suffix in ("jsonl", "parquet"):
        write_dataset(tmp_path / f"a.{suffix}", "recorded", DemoOptions(prompts=1_100, responses=2))
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == rows
    assert len(rows) == 1_100


def test_the_same_arguments_write_the_same_bytes(tmp_path: Path):
    first, second, other = (tmp_path / f"{name}.jsonl" for name in "abc")
    write_dataset(first, "recorded", DemoOptions(prompts=20))
    write_dataset(second, "recorded", DemoOptions(prompts=20))
    write_dataset(other, "recorded", DemoOptions(prompts=20, seed=1))
    assert first.read_bytes() == second.read_bytes() != other.read_bytes()


def test_operators_read_it(tmp_path: Path):
    write_dataset(tmp_path / "a.parquet", "recorded", DemoOptions(prompts=10, responses=3))
    table = pq.read_table(tmp_path / "a.parquet")
    change = PromptTemplateMapper(reference_pattern="#### (.*)").apply(table)
    references = [str(p.reference) for p in problems(0, "train", 10)]
    assert change.columns["reference"].to_pylist() == references
    table = table.append_column("prompt_id", change.columns["prompt_id"])
    unfold = RecordedRolloutMapper(
        columns=("responses",),
        text="text",
        keep_fields={"finish_reason": "finish_reason", "student": "policy"},
    )
    found = unfold.apply(table)
    assert len(set(found.columns["response_id"].to_pylist())) == 30
    assert set(found.columns["policy"].to_pylist()) > {"careful", "sloppy"}


def test_prompts_alone(tmp_path: Path):
    write_dataset(
        tmp_path / "p.parquet", "arithmetic", DemoOptions(prompts=10, split="test", levels=(4,))
    )
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.schema.names == ["question", "answer", "level"]
    assert set(table["level"].to_pylist()) == {4}


def test_an_unknown_format_leaves_nothing(tmp_path: Path):
    with pytest.raises(RejuiceError, match=r"a\.csv has no known format; end it in \.jsonl, "):
        write_dataset(tmp_path / "a.csv", "recorded", DemoOptions())
    assert not list(tmp_path.iterdir())


def test_an_error_on_the_way_leaves_the_old_file(tmp_path: Path, monkeypatch):
    path = tmp_path / "a.jsonl"
    write_dataset(path, "recorded", DemoOptions(prompts=3))
    before = path.read_bytes()
    monkeypatch.setattr("rejuice.pipelines.demo.problems._MOST_REPEATS", 1)
    with pytest.raises(RejuiceError, match="ask for fewer"):
        write_dataset(path, "recorded", DemoOptions(10**5, levels=(1,)))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_command(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    words = ["data", str(path), "--prompts", "5", "--responses", "2", "--levels", "1,2"]
    result = CliRunner().invoke(app, words)
    assert result.output == f"{path}: 5 problems, 2 responses each, seed 0.\n"
    write_dataset(
        tmp_path / "b.jsonl", "recorded", DemoOptions(prompts=5, responses=2, levels=(1, 2))
    )
    assert path.read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_the_command_without_responses(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    result = CliRunner().invoke(app, ["data", str(path), "--responses", "0", "--prompts", "5"])
    assert result.exit_code == 0
    assert "responses" not in path.read_text()
