"""Datasets that a recipe generates: written where their file is missing, and only there."""

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from command import runner

from rejuice.operators import RecipeError
from rejuice.pipelines.dataset.read import read_all
from rejuice.pipelines.demo.problems import LEVELS, SPLITS, lookup_tasks
from rejuice.pipelines.recipe.head import GeneratedDataset
from rejuice.pipelines.recipe.recipe import load

RECIPES = [
    path
    for path in sorted((Path(__file__).parents[3] / "recipes").glob("*.yaml"))
    if "generated_datasets" in yaml.safe_load(path.read_text("utf-8"))
]
PROCESS = [{"prompt_template_mapper": {"reference_pattern": "#### (.*)"}}]


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    return runner(monkeypatch, capsys, tmp_path)


@pytest.fixture
def recipe(recipe_file):
    """A factory of recipes that generate `data.jsonl`."""

    def make(process=PROCESS, dataset_path="data.jsonl", **fields):
        generated = {"data.jsonl": {"type": "arithmetic", "prompts": 5, "levels": [1], **fields}}
        paths = {"dataset_path": dataset_path, "export_path": "out.parquet"}
        return recipe_file(process, **paths, generated_datasets=generated)

    return make


def test_the_fields_are_those_of_the_problems():
    fields = GeneratedDataset.model_fields
    assert get_args(fields["split"].annotation) == SPLITS
    assert get_args(get_args(fields["levels"].annotation)[0]) == LEVELS


def test_a_missing_dataset_is_what_rejuice_data_writes(rejuice, recipe, tmp_path):
    recipe(seed=3, split="validation")
    code, out, err = rejuice("run", "recipe.yaml")
    assert (code, err) == (
        0,
        "data.jsonl did not exist: it was written, as generated_datasets says\n",
    )
    assert "5 rows in out.parquet" in out
    options = "--prompts 5 --responses 0 --levels 1 --seed 3 --split validation"
    assert rejuice("data", "same.jsonl", *options.split())[0] == 0
    assert (tmp_path / "data.jsonl").read_bytes() == (tmp_path / "same.jsonl").read_bytes()
    (generated,) = load(tmp_path / "recipe.yaml").head.generated_datasets.values()
    written, known = read_all(tmp_path / "data.jsonl"), generated.first_rows(Path("x.jsonl"))
    assert written.equals(known)
    assert rejuice("run", "recipe.yaml", "-q") == (0, "", "")


def test_a_file_that_exists_is_read_as_it_is(rejuice, recipe, tmp_path):
    recipe()
    mine = '{"question": "1 + 1?", "answer": "#### 2"}\n'
    (tmp_path / "data.jsonl").write_text(mine)
    code, out, _ = rejuice("run", "recipe.yaml")
    assert code == 0
    assert "1 rows in out.parquet" in out
    assert (tmp_path / "data.jsonl").read_text() == mine


@pytest.mark.parametrize("command", ["run", "check"])
def test_another_dataset_is_never_generated(rejuice, recipe, tmp_path, command):
    recipe()
    _, out, err = rejuice(command, "recipe.yaml", "--dataset_path", "mine.jsonl")
    assert "mine.jsonl does not exist" in out + err
    assert {path.name for path in tmp_path.iterdir()} == {"recipe.yaml"}


def test_a_check_writes_nothing_and_follows_the_columns(rejuice, recipe, tmp_path):
    recipe()
    right = "recipe.yaml: 1 steps, all fields and columns are right.\n"
    assert rejuice("check", "recipe.yaml") == (0, right, "")
    code, _, err = rejuice("check", "recipe.yaml", "--prompt_template_mapper.question", "title")
    assert code == 2
    assert "column 'title' is missing" in err
    assert {path.name for path in tmp_path.iterdir()} == {"recipe.yaml"}


def test_the_recipe_of_the_run_generates_the_same_file_from_any_folder(rejuice, recipe, tmp_path):
    recipe()
    rejuice("run", "recipe.yaml", "-q")
    head = load(tmp_path / "out.run" / "recipe.yaml").head
    assert list(head.generated_datasets) == [head.dataset_path] == [tmp_path / "data.jsonl"]
    (tmp_path / "data.jsonl").unlink()
    assert head.write_missing(head.dataset_path, None, tmp_path / "x") == [tmp_path / "data.jsonl"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": 5}, ", line 12: unknown key 'generated_datasets.data.jsonl.prompt'; did you mean 'prompts'?"),
        ({"levels": [5]}, ", line 11: 'generated_datasets.data.jsonl.levels' is 5; input should be 1, 2, 3 or 4"),
        ({"type": "algebra"}, ", line 8: 'generated_datasets.data.jsonl.type' is 'algebra'; input should be 'arithmetic', 'code', 'lookup', 'mixed', 'numbers' or 'trajectories'"),
        ({"type": "lookup"}, ", line 7, generated_datasets.data.jsonl: a dataset of type lookup has no levels"),
        ({"type": "code"}, ", line 7, generated_datasets.data.jsonl: a dataset of type code has no levels"),
        ({"prompts": 0}, ", line 9: 'generated_datasets.data.jsonl.prompts' is 0; input should be greater than 0"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_one_line(recipe, fields, message):
    path = recipe(**fields)
    with pytest.raises(RecipeError) as caught:
        load(path)
    assert str(caught.value) == f"{path}{message}"


def test_a_file_that_cannot_be_written_is_one_line(rejuice, recipe_file):
    generated = {"data.csv": {"type": "arithmetic"}}
    recipe_file(PROCESS, dataset_path="data.csv", generated_datasets=generated)
    error = "rejuice: data.csv has no known format; end it in .jsonl, .parquet, .arrow\n"
    assert rejuice("run", "recipe.yaml") == (2, "", error)
    assert rejuice("check", "recipe.yaml") == (2, "", error)


def test_references_are_checked_before_the_file_is_written(rejuice, recipe, tmp_path):
    recipe([{"prompt_template_mapper": {"reference_pattern": "A: (.*)"}}])
    found = rejuice("check", "recipe.yaml")
    assert found[0] == 2
    assert "none matches reference_pattern 'A: (.*)' in column 'answer'" in found[2]
    assert {path.name for path in tmp_path.iterdir()} == {"recipe.yaml"}
    assert rejuice("run", "recipe.yaml", "-q") == found


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_look_up_tasks_are_generated_with_their_documents(rejuice, recipe_file, tmp_path, suffix):
    name = f"data.{suffix}"
    generated = {name: {"type": "lookup", "prompts": 120, "split": "test", "seed": 4}}
    paths = {"dataset_path": name, "export_path": "out.parquet"}
    recipe_file([{"prompt_template_mapper": {}}], **paths, generated_datasets=generated)
    assert rejuice("check", "recipe.yaml")[::2] == (0, "")
    assert rejuice("run", "recipe.yaml", "-q") == (0, "", "")
    tasks = [
        {**task._asdict(), "answer": str(task.answer), "documents": list(task.documents)}
        for task in lookup_tasks(4, "test", 120)
    ]
    columns = ("question", "answer", "documents", "kind")
    rows = [{column: task[column] for column in columns} for task in tasks]
    written = read_all(tmp_path / name)
    assert written.to_pylist() == rows
    assert written.schema.field("documents").type == pa.list_(pa.string())
    (dataset,) = load(tmp_path / "recipe.yaml").head.generated_datasets.values()
    known = dataset.first_rows(Path(name))
    assert known.to_pylist() == rows[:100]
    assert known.schema.equals(written.schema)
    again = load(tmp_path / "out.run" / "recipe.yaml").head.generated_datasets
    assert list(again.values()) == [dataset]


# The recipes of this repository


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_right_on_a_bare_clone(rejuice, path, tmp_path):
    code, out, err = rejuice("check", path)
    assert (code, err) == (0, "")
    assert out.splitlines()[0].endswith("steps, all fields and columns are right.")
    assert list(tmp_path.iterdir()) == []
    head = load(path).head
    assert head.generated(head.dataset_path) is not None
    assert not head.train or head.generated(head.train.validation_path) is not None


def test_recipes_agree_on_their_datasets():
    assert len(RECIPES) >= 6
    found = {}
    for path in RECIPES:
        for name, dataset in load(path).head.generated_datasets.items():
            assert found.setdefault(name, dataset) == dataset, f"{path.name}, {name}"


# dj-process


@pytest.mark.slow
@pytest.mark.recommended("pipelines/analysis/stored.py", "`rejuice run {…}`")
def test_dj_process_writes_it_too(rejuice, recipe, tmp_path):
    path = recipe()
    dj_process = str(Path(sys.executable).with_name("dj-process"))
    command = [dj_process, "--config", str(path), "--text_keys", "question"]
    environment = {**os.environ, "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
    run = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    other = subprocess.run([*command, "--dataset_path", "mine.jsonl"], **run, check=False)
    assert other.returncode != 0
    assert not (tmp_path / "data.jsonl").exists()
    subprocess.run(command, **run, check=True)
    problems = read_all(tmp_path / "data.jsonl")["question"].to_pylist()
    assert pq.read_table(tmp_path / "out.parquet")["question"].to_pylist() == problems

    # What is recommended to those who ask for a row of such a run.
    code, _, err = rejuice("explain", path, "row 1")
    run = "`rejuice run recipe.yaml`"
    assert (code, err) == (2, f"rejuice: dj-process saves no commits; {run} to see what each step did\n")  # fmt: skip
    assert rejuice("run", "recipe.yaml", "-q") == (0, "", "")
    assert rejuice("explain", path, "row 1")[0] == 0
