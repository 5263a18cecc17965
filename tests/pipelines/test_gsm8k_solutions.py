"""The recipe over 2,640 real, labelled model responses: what it says is true and repeatable.

By `dj-process`, too: tests/pipelines/dj_process/test_shipped_recipes.py.
"""

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "gsm8k_solutions.yaml"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dataset(shared_data):
    return str(shared_data / "gsm8k" / "model_solutions.jsonl")


def run(dataset, folder, chunk_rows=65_536, **overrides):
    export = folder / "curated.parquet"
    overrides = {"dataset_path": dataset, "export_path": str(export), **overrides}
    report = engine.run(load(RECIPE, overrides), chunk_rows=chunk_rows)
    return report, pq.read_table(export)


@pytest.fixture(scope="module")
def curated(dataset, tmp_path_factory):
    return run(dataset, tmp_path_factory.mktemp("curated"))


def test_accuracy_is_the_published_label_on_every_response(dataset, tmp_path):
    recipe = load(RECIPE, {"dataset_path": dataset, "export_path": str(tmp_path / "all.parquet")})
    report = engine.run(recipe.replace(steps=recipe.steps[:3]))
    rows = pq.read_table(tmp_path / "all.parquet")
    assert report.rows_out == rows.num_rows == 2640
    assert rows["reward_accuracy_missing"].null_count == 2640
    published = [float(label) for label in rows["published_is_correct"].to_pylist()]
    assert rows["reward_accuracy"].to_pylist() == published


def test_rows_in_are_rows_out_and_rows_dropped(curated):
    report, rows = curated
    before = 660
    for step in report.steps:
        assert step.rows_in == before
        assert step.rows_in + step.added == step.rows_out + sum(step.dropped.values())
        before = step.rows_out
    assert before == rows.num_rows == report.rows_out
    assert 660 + report.added == report.rows_out + report.dropped


def test_verification_prompts_are_balanced_and_their_labels_are_the_published_ones(curated):
    _, rows = curated
    rows = rows.to_pylist()
    label = {row["response_id"]: row["published_is_correct"] for row in rows}
    verify = [row for row in rows if row["task"] == "verify"]
    assert [row["label"] for row in verify].count("Yes") * 2 == len(verify) > 600
    assert len({row["prompt_id"] for row in verify}) == len(verify)
    for row in verify:
        assert row["label"] == ("Yes" if label[row["judged_response_id"]] else "No")


def test_the_pass_rate_is_that_of_all_published_labels(curated, dataset):
    """Also in groups of which deduplication has left a part."""
    models = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
    lines = Path(dataset).read_text("utf-8").splitlines()
    published = {}
    for row in map(json.loads, lines):
        labels = [bool(row[model]["is_correct"]) for model in models]
        published[row["question"]] = sum(labels) / len(labels)
    answers = [row for row in curated[1].to_pylist() if row["task"] == "generate"]
    for row in answers:
        assert row["pass_rate"] == published[row["prompt"][-1]["content"]]
        assert row["group_n"] == 4
    left = Counter(row["prompt_id"] for row in answers)
    assert 0 < sum(rows < 4 for rows in left.values()) < len(left)


@pytest.mark.parametrize("chunk_rows", [7, 100])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_workers_and_chunks_change_nothing(curated, dataset, tmp_path, chunk_rows, workers):
    _, rows = run(dataset, tmp_path, chunk_rows, np=workers)
    assert rows.equals(curated[1])


@pytest.mark.parametrize("workers", ["1", "2"])
def test_chunks_of_one_prompt_change_nothing(dataset, tmp_path, workers):
    lines = Path(dataset).read_text("utf-8").splitlines(keepends=True)
    few = tmp_path / "few.jsonl"
    few.write_text("".join(lines[:60]), "utf-8")
    _, whole = run(str(few), tmp_path / "whole")
    _, rows = run(str(few), tmp_path / "chunks", 1, np=workers)
    assert rows.equals(whole)
    assert rows.num_rows > 60
