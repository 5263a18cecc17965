"""Every recipe makes the table that it made before, by every runner.

`data/tables` holds, by recipe, digests of the table that version 0.4.0 made, and `data/steps` two
training steps that it trained on (see `write_tables.py`, which also says when to write them again).
Responses are recorded, so that no policy is needed and no processor rounds them another way; what
is computed of them is compared to the last bit.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from rejuice.pipelines.engine import run
from rejuice.pipelines.recipe import load

HERE = Path(__file__).parent
DATA = HERE / "data"
RECIPES = Path(__file__).resolve().parents[2] / "recipes"
COMMANDS = Path(sys.executable).parent
OVERRIDES = {
    name: fields
    for name, fields in yaml.safe_load(
        (DATA / "tables" / "recipes.yaml").read_text("utf-8")
    ).items()
    if not name.startswith(".")
}
# dj-process merges an operator that a recipe uses twice into one: known, and not compared.
USED_ONCE = [name for name in OVERRIDES if not name.startswith("self_")]


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
    """The same figures of an export, and of the decisions beside it."""
    dropped = digests.dropped(export.with_suffix(".run"))
    return {**digests.digest_of(pq.read_table(export)), "dropped": dropped}


def values_of(columns):
    """Digests without types: `dj-process` widens some."""
    return {name: digest.split(" ")[0] for name, digest in columns.items()}


def recipe_file(name, overrides):
    """The recipe with its overrides written into it, as a file of the current folder."""
    document = yaml.safe_load((RECIPES / f"{name}.yaml").read_text("utf-8"))
    for key, text in overrides.items():
        step, *path = key.split(".")
        if not path:
            document[key] = text
            continue
        (operator,) = [each for each in document["process"] if step in each]
        fields = operator[step]
        for inner in path[:-1]:
            fields = fields.setdefault(inner, {})
        fields[path[-1]] = yaml.safe_load(text)
    Path("recipe.yaml").write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")


def test_no_recipe_is_forgotten():
    recipes = {path.stem for path in RECIPES.glob("*.yaml")}
    assert recipes == {*OVERRIDES, "gsm8k_solutions"}


@pytest.mark.parametrize("name", OVERRIDES)
@pytest.mark.parametrize("chunk_rows", [65_536, 5])
def test_a_recipe_makes_the_table_that_it_made(tables, name, chunk_rows):
    export = Path("out/curated.parquet")
    overrides = {**OVERRIDES[name], "export_path": str(export), "np": "1"}
    run(load(RECIPES / f"{name}.yaml", overrides), chunk_rows=chunk_rows)
    assert found(export) == golden(f"tables/{name}")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["quickstart", "self_verify_dapo"])
def test_the_command_makes_the_table_that_it_made(tables, name):
    """With the workers that the recipe asks for."""
    export = Path("out/curated.parquet")
    words = [f"--{key}={value}" for key, value in OVERRIDES[name].items()]
    command = [COMMANDS / "rejuice", "run", RECIPES / f"{name}.yaml", *words]
    done = subprocess.run([*command, f"--export_path={export}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert found(export) == golden(f"tables/{name}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "executor"), [*((name, "default") for name in USED_ONCE), ("quickstart", "ray")]
)
def test_dj_process_makes_the_table_that_it_made(tables, name, executor):
    recipe_file(name, {**OVERRIDES[name], "export_path": "out/curated.parquet"})
    words = ["--config", "recipe.yaml", "--executor_type", executor]
    if executor == "ray":
        words += ["--ray_address", "local"]
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    command = [COMMANDS / "dj-process", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    table, before = pq.read_table("out/curated.parquet"), golden(f"tables/{name}")
    assert table.num_rows == before["rows"]
    assert values_of(digests.digest_of(table)["columns"]) == values_of(before["columns"])


@pytest.mark.parametrize("name", ["answers", "judgements"])
def test_a_training_step_is_replayed_as_it_was_trained_on(tmp_path, monkeypatch, name):
    """The golden is what `curated.parquet` held when the step was trained."""
    shutil.copytree(DATA / "steps" / name, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    run(load(Path("recipe.yaml")))
    assert found(Path("again.parquet")) == golden(f"steps/{name}/table")


@pytest.mark.slow
def test_real_solutions_make_the_table_that_they_made(shared_data, tmp_path):
    """`dj-process` is compared with this table in tests/pipelines/test_gsm8k_solutions.py."""
    export = tmp_path / "curated.parquet"
    dataset = str(shared_data / "gsm8k" / "model_solutions.jsonl")
    overrides = {"dataset_path": dataset, "export_path": str(export)}
    run(load(RECIPES / "gsm8k_solutions.yaml", overrides))
    assert found(export) == golden("tables/gsm8k_solutions")
