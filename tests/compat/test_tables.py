"""Every recipe makes the table that it made before.

`data/tables` holds, by recipe, digests of the table that version 0.4.0 made, and `data/steps` two
training steps that it trained on (see `write_tables.py`, which also says when to write them again).
Recipes whose steps have another order or other fields since are kept in `data/recipes` as they were; the tables of
`quickstart`, `gsm8k_qwen` and `gsm8k_solutions` are those of the order that is shipped now, and
those of `arithmetic_cleaned` and `agent_solutions` are of the first versions that have them, and
that of `self_verify_dapo` is of the first version with spares.
Responses are recorded, so that no policy is needed and no processor rounds them another way; what
is computed of them is compared to the last bit. `dj-process` is compared with `rejuice run` in
tests/pipelines/dj_process/test_shipped_recipes.py.

One thing is meant to differ: 0.4.0 wrote the extracted answer over the dataset's column `answer`.
Now it is `extracted_answer`, and `answer` is the dataset's, see `as_it_was`.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from recorded_recipes import DATA, EARLIER, OVERRIDES, RECIPES, recipe_path
from version_0_4 import as_it_was

from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe import load

HERE = Path(__file__).parent
COMMANDS = Path(sys.executable).parent
OTHER_DATA = ("self_verify_dapo", "self_verify_dapo_0_4", "code_tests")
"""Recipes that do not read arithmetic problems with their solutions in the column `answer`."""
EXPORT = {"export_path": "out/curated.parquet"}


def module(name):
    """A file beside this one, which is not in a package."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


digests = module("digests")


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """The current folder holds what recipes read in the place of a policy and a scorer."""
    shutil.copytree(DATA / "tables", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


def golden(path):
    return json.loads((DATA / path).with_suffix(".json").read_text("utf-8"))


def found(export):
    """What a golden holds, of an export and of the decisions beside it."""
    dropped = digests.dropped(export.with_suffix(".run"))
    return {**digests.digest_of(as_it_was(pq.read_table(export))), "dropped": dropped}


def test_no_recipe_is_forgotten():
    recipes = {path.stem for folder in (RECIPES, EARLIER) for path in folder.glob("*.yaml")}
    # Those of agents sample from a policy, or ask servers; `agent_solutions` stands for their steps.
    agents = {"flow_agentflow", "flow_lookup"}
    same_steps = {"grpo_gsm8k_cpu"}  # as grpo_gsm8k
    new = {"mixed_tasks"}  # No earlier version had it, or its generated dataset.
    known = {*OVERRIDES, "gsm8k_solutions", "gsm8k_solutions_0_4", *agents, *same_steps, *new}
    assert recipes == known


@pytest.mark.slow
@pytest.mark.parametrize("name", OVERRIDES)
@pytest.mark.parametrize("chunk_rows", [65_536, 5])
def test_a_recipe_makes_the_table_that_it_made(tables, name, chunk_rows):
    overrides = {**OVERRIDES[name], **EXPORT, "np": "1"}
    run(load(recipe_path(name), overrides), chunk_rows=chunk_rows)
    assert found(Path(EXPORT["export_path"])) == golden(f"tables/{name}")


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in OVERRIDES if n not in OTHER_DATA])
def test_the_answer_of_the_dataset_is_in_the_table(tables, name):
    """The worked solution of each problem, beside the answer that was extracted from the response."""
    run(load(recipe_path(name), {**OVERRIDES[name], **EXPORT, "np": "1"}))
    table = pq.read_table(EXPORT["export_path"])
    lines = Path("arithmetic.jsonl").read_text("utf-8").splitlines()
    solutions = {row["question"]: row["answer"] for row in map(json.loads, lines)}
    answers = table.select(["question", "answer", "extracted_answer"]).to_pylist()
    # Rows that a step has made have no row of the dataset.
    of_dataset = [row for row in answers if row["question"] is not None]
    assert of_dataset
    assert [row["answer"] for row in of_dataset] == [solutions[r["question"]] for r in of_dataset]
    assert any(row["extracted_answer"] == "4" for row in of_dataset)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["quickstart", "self_verify_dapo"])
def test_the_command_makes_the_table_that_it_made(tables, name):
    """With the workers that the recipe asks for."""
    words = [f"--{key}={value}" for key, value in {**OVERRIDES[name], **EXPORT}.items()]
    command = [COMMANDS / "rejuice", "run", recipe_path(name), *words]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stderr
    assert found(Path(EXPORT["export_path"])) == golden(f"tables/{name}")


@pytest.mark.parametrize("name", ["answers", "judgements"])
def test_a_training_step_is_replayed_as_it_was_trained_on(tmp_path, monkeypatch, name):
    """The golden is the content of `curated.parquet` when the step was trained."""
    shutil.copytree(DATA / "steps" / name, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    run(load(Path("recipe.yaml")))
    assert found(Path("again.parquet")) == golden(f"steps/{name}/table")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gsm8k_solutions", "gsm8k_solutions_0_4"])
def test_real_solutions_make_the_table_that_they_made(shared_data, tmp_path, name):
    export = tmp_path / "curated.parquet"
    dataset = str(shared_data / "gsm8k" / "model_solutions.jsonl")
    overrides = {"dataset_path": dataset, "export_path": str(export)}
    run(load(recipe_path(name), overrides))
    assert found(export) == golden(f"tables/{name}")
