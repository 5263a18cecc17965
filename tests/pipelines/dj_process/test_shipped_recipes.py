"""Every recipe gives the same rows, values and decisions by `rejuice run` and by `dj-process`.

Responses are recorded, and read by all of them, so that no policy is needed; with a policy,
`tests/pipelines/demo/test_quickstart.py` compares.
"""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from recorded_recipes import OVERRIDES as COMPARED
from recorded_recipes import RECIPES, TABLES, write_recipe

from rejuice.operators.registry import installed
from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe import load

pytest.importorskip("data_juicer")
pytestmark = pytest.mark.slow

SOLUTIONS = "gsm8k_solutions"
AS_RECORDED = {
    "prompt_template_mapper.template": '"{question}"',
    "policy_rollout_mapper.max_tokens": "64",
}
OVERRIDES = {**COMPARED, "grpo_gsm8k_cpu": COMPARED["grpo_arithmetic"] | AS_RECORDED}
NAMES = [*OVERRIDES, SOLUTIONS]
WITH_JUDGE = {"mixed_tasks"}
"""Both ways in `tests/pipelines/demo/test_mixed_tasks.py`, where there is a judge."""
SAMPLING = {"flow_agentflow", "flow_lookup"}
"""Recipes of agents that sample: `test_agents.py` runs one of them, the other needs GPUs."""


def export(name):
    return {"export_path": f"{name}/curated.parquet"}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Writes the recipes and what they read into a folder."""

    def write(runner):
        folder = tmp_path_factory.mktemp(runner)
        shutil.copytree(TABLES, folder, dirs_exist_ok=True)
        for name, overrides in OVERRIDES.items():
            write_recipe(folder / f"{name}.yaml", name, {**overrides, **export(name)})
        found = RECIPES.parent.parent / "shared" / "data" / "gsm8k" / "model_solutions.jsonl"
        if found.is_file():
            overrides = {"dataset_path": str(found), **export(SOLUTIONS)}
            write_recipe(folder / f"{SOLUTIONS}.yaml", SOLUTIONS, overrides)
        return folder

    return write


@pytest.fixture(scope="module")
def by_rejuice(written):
    """What `rejuice run` makes of the recipe of a name; a folder of all that were asked for."""
    folder = written("rejuice")

    def make(name, monkeypatch):
        monkeypatch.chdir(folder)
        path = Path(f"{name}.yaml")
        if not path.exists():
            pytest.skip("the shared data is not beside this checkout")
        if not (folder / name).exists():
            run(load(path))
        return folder

    return make


@pytest.fixture(scope="module")
def by_dj_process(written, dj_process_of):
    """A folder of all recipes, and in it what `dj-process` makes of the one of a name."""
    folders, ended = {}, {}

    def make(executor, name):
        if executor not in folders:
            folders[executor] = written(executor)
        folder = folders[executor]
        if (executor, name) not in ended:
            words = ("--executor_type", executor, "--ray_address", "local")
            run_dj_process = dj_process_of(executor)
            ended[executor, name] = run_dj_process(folder, "--config", f"{name}.yaml", *words)
        returncode, log = ended[executor, name]
        assert returncode == 0, log[-3000:]
        return folder

    return make


def table_of(folder, name):
    table = pq.read_table(folder / name / "curated.parquet")
    return table.drop_columns([name for name in table.column_names if name.startswith("__dj__")])


def decisions_of(folder, name):
    files = sorted((folder / name / "curated.run").glob("*/decisions.parquet"))
    return {file.parent.name: pq.read_table(file) for file in files}


def cells(column):
    """Values as text: floats to the last bit, and nan is nan."""
    return json.dumps(column.to_pylist(), sort_keys=True)


def check_same(name, ours, theirs):
    """Rows, order, columns and values of the exports, and decisions of our steps."""
    expected, found = table_of(ours, name), table_of(theirs, name)
    assert found.column_names == expected.column_names
    for column in expected.column_names:
        assert cells(found[column]) == cells(expected[column]), column
    assert found.num_rows == expected.num_rows > 0
    expected, found = decisions_of(ours, name), decisions_of(theirs, name)
    of_ours = [step for step in expected if kind_of(step) in installed()]
    assert list(found) == of_ours
    for step in of_ours:
        assert found[step].equals(expected[step]), step


def kind_of(label):
    """`03_reward_sum_mapper_2` -> `reward_sum_mapper`."""
    return label[3:].rstrip("0123456789").removesuffix("_")


def test_no_recipe_is_forgotten():
    assert {path.stem for path in RECIPES.glob("*.yaml")} <= {*NAMES, *WITH_JUDGE, *SAMPLING}


@pytest.mark.parametrize("name", NAMES)
def test_the_default_executor_gives_what_rejuice_gives(
    by_rejuice, by_dj_process, name, monkeypatch
):
    ours, theirs = by_rejuice(name, monkeypatch), by_dj_process("default", name)
    check_same(name, ours, theirs)
    assert types_of(table_of(theirs, name)) == types_of(table_of(ours, name))


def types_of(table):
    return {field.name: field.type for field in table.schema}


@pytest.mark.parametrize("name", NAMES)
def test_ray_gives_what_rejuice_gives(by_rejuice, by_dj_process, name, monkeypatch):
    check_same(name, by_rejuice(name, monkeypatch), by_dj_process("ray", name))
