"""A result is found again if and only if everything that led to it is unchanged."""

import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rejuice.operators import DataError, RecipeError, RejuiceError
from rejuice.pipelines.dataset.read import Dataset
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.plan import Plan
from rejuice.pipelines.engine.steps import iterate_steps
from rejuice.pipelines.recipe.columns import check_columns, group_columns
from rejuice.pipelines.recipe.recipe import load

PROCESS = [
    {"pass_rate_filter": {"max": 0.9}},
    {"exact_deduplicator": {}},
    {"length_filter": {"min": 3}},
    {"group_size_filter": {"min": 1}},
]
MINE = """
from rejuice.operators import Filter, drop
class MineFilter(Filter):
    def reads(self): return ("reward",)
    def decide(self, table): return drop({"low": [x < LIMIT for x in table["reward"].to_pylist()]})
"""


@pytest.fixture
def path(recipe_file, rollouts):
    return recipe_file(PROCESS, rollouts(20).to_pylist())


def keys(path, overrides=None, chunk_rows=16):
    recipe = load(path, overrides)
    cache = recipe.head.export_path.parent / ".rejuice"
    source = Dataset(recipe.head.dataset_path).chunks(cache, chunk_rows=chunk_rows, group_by=("prompt_id",))  # fmt: skip
    return Plan.of(recipe, source, cache).keys


def cached(path, overrides=None, **options):
    report = engine.run(load(path, overrides), overwrite=True, **options)
    return [step.cached for step in report.steps]


def test_keys_do_not_depend_on_where_files_are_or_how_they_are_called(path, tmp_path):
    first = keys(path)
    data = tmp_path / "data.jsonl"
    moved = data.rename(tmp_path / "renamed.jsonl")
    moved.touch()
    other = {"dataset_path": str(moved), "export_path": str(tmp_path / "x.jsonl"), "np": "4"}
    assert keys(path, {**other, "project_name": "another"}) == first


@pytest.mark.slow
def test_keys_are_the_same_in_another_process(path):
    code = f"import sys; sys.path[:0] = [{os.path.dirname(__file__)!r}]; import test_plan, pathlib; print(test_plan.keys(pathlib.Path({str(path)!r})))"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(keys(path))


def test_a_field_changes_its_step_and_all_after_it(path):
    first, other = keys(path), keys(path, {"exact_deduplicator.column": "response_id"})
    assert [one == two for one, two in zip(first, other, strict=True)] == [True, False, False, False]  # fmt: skip
    # A default written out is the same field.
    assert keys(path, {"length_filter.unit": "characters"}) == first


def test_content_and_chunking_change_every_step(path, tmp_path):
    first = keys(path)
    assert not set(keys(path, chunk_rows=8)) & set(first)
    with (tmp_path / "data.jsonl").open("a") as stream:
        stream.write('{"prompt_id": "new"}\n')
    assert not set(keys(path)) & set(first)


def test_what_a_run_finds_again(path, tmp_path):
    assert cached(path, chunk_rows=16) == [False] * 4
    assert cached(path, chunk_rows=16) == [True] * 4
    (tmp_path / "data.jsonl").touch()
    assert cached(path, chunk_rows=16) == [True] * 4
    assert cached(path, {"length_filter.min": "4"}, chunk_rows=16) == [True, True, False, False]
    assert cached(path, chunk_rows=17) == [False] * 4
    (tmp_path / "data.jsonl").rename(tmp_path / "data2.jsonl")
    moved = {"dataset_path": str(tmp_path / "data2.jsonl")}
    assert cached(path, moved, chunk_rows=16) == [True] * 4


def forked(work):
    """Do it in a fork of this process: a fresh one, but quick. Gives its wait status."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1]


@pytest.mark.slow
def test_an_edited_operator_file_is_run_again(recipe_file, rollouts, tmp_path):
    mine = tmp_path / "mine.py"
    path = recipe_file(
        [{"length_filter": {"min": 0}}, {"mine_filter": {}}],
        rollouts(8).to_pylist(),
        custom_operator_paths=[str(mine)],
    )
    rewards = []
    for limit in ("0.5", "2.0", "0.5"):
        mine.write_text(MINE.replace("LIMIT", limit))
        assert forked(lambda: engine.run(load(path), overwrite=True)) == 0
        rewards.append(pq.read_table(tmp_path / "out" / "curated.parquet")["reward"].to_pylist())
    assert rewards[0] == rewards[2]
    assert set(rewards[0]) == {1.0}
    assert rewards[1] == []
    report = json.loads((tmp_path / "out" / "curated.run" / "report.json").read_text())
    assert [step["cached"] for step in report["steps"]] == [True, True], "the first one was kept"


def test_an_operator_file_edited_while_the_process_lives(recipe_file, rollouts, tmp_path):
    mine = tmp_path / "mine.py"
    rows = rollouts(8).to_pylist()
    path = recipe_file([{"mine_filter": {}}], rows, custom_operator_paths=[str(mine)])
    left = []
    for limit in ("0.5", "2.0"):
        mine.write_text(MINE.replace("LIMIT", limit))
        left.append(engine.run(load(path), overwrite=True).rows_out)
    assert left == [sum(row["reward"] == 1.0 for row in rows), 0]


def run_command(path, *more):
    command = [sys.executable, "-m", "rejuice.pipelines.cli", "run", str(path), "-q", *more]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def finished(running):
    _, error = running.communicate()
    assert running.returncode == 0, error


@pytest.mark.slow
def test_two_runs_at_once_on_one_cache_give_the_same_bytes(recipe_file, rollouts, tmp_path):
    everywhere = {"exact_deduplicator": {"within": "all"}}
    path = recipe_file([*PROCESS, everywhere, everywhere], rollouts(100).to_pylist())
    finished(run_command(path, "--chunk_rows", "4"))
    expected = (tmp_path / "out" / "curated.parquet").read_bytes()
    shared = ["--chunk_rows", "4", "--cache_dir", str(tmp_path / "cache")]
    exports = [tmp_path / name / "x.parquet" for name in "ab"]
    both = [run_command(path, *shared, "--export_path", str(export)) for export in exports]
    for running in both:
        finished(running)
    assert [export.read_bytes() for export in exports] == [expected] * 2


def test_a_run_refuses_an_export_that_another_is_writing(recipe_file, rollouts):
    recipe = load(recipe_file(PROCESS, rollouts(4).to_pylist()))
    path = recipe.head.export_path
    with (
        engine.sole_writer(path),
        pytest.raises(RejuiceError) as error,
    ):
        engine.run(recipe)
    assert str(error.value) == (
        f"another run is writing {path}; wait for it, or give another --export_path"
    )
    assert engine.run(recipe).rows_out


# Columns


def checked(path, **columns):
    check_columns(load(path), pa.schema(columns))


def test_columns_are_followed_through_the_steps(recipe_file):
    path = recipe_file(
        [
            {"prompt_template_mapper": {"question": "q", "reference": "a"}},
            {"recorded_rollout_mapper": {"columns": ["r"]}},
            {"length_filter": {"min": 1}},
        ]
    )
    text = pa.string()
    checked(path, q=text, a=text, r=pa.list_(text))
    with pytest.raises(RecipeError, match=r"step 2 recorded_rollout_mapper: column 'r' is missing; there are: a, prompt, prompt_id, q, reference$"):  # fmt: skip
        checked(path, q=text, a=text)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.null()])
def test_ids_are_text(recipe_file, kind):
    checked(recipe_file(["exact_deduplicator"]), prompt_id=kind, response=pa.string())


@pytest.mark.parametrize("name", ["prompt_id", "response_id"])
def test_ids_that_are_numbers(recipe_file, tmp_path, name):
    path = recipe_file(["exact_deduplicator"], [{"prompt_id": "a", "response": "x"} | {name: 1}])
    with pytest.raises(DataError) as caught:
        engine.run(load(path))
    assert str(caught.value) == f"{tmp_path}/data.jsonl: column '{name}' is int64; make it a string"


def test_the_columns_that_make_groups(recipe_file):
    template = {"prompt_template_mapper": {"question": "q", "reference": "a"}}
    path = recipe_file(["exact_deduplicator", template])
    text = pa.string()

    def columns(**schema):
        return group_columns(load(path), pa.schema(schema))

    assert columns(prompt_id=text, q=text) == ("prompt_id",)
    assert set(columns(q=text, a=text, other=text)) == {"q", "a"}
    assert columns(other=text) == ()
    path = recipe_file([template, "pass_rate_filter"])
    assert set(columns(prompt_id=text, q=text, a=text)) == {"q", "a"}


def test_the_columns_that_make_groups_of_several_templates(recipe_file):
    def templates(**questions):
        fields = {
            source: {"question": name, "reference": "a"} for source, name in questions.items()
        }
        steps = [{**each, "where": {"source": source}} for source, each in fields.items()]
        return load(recipe_file([{"prompt_template_mapper": each} for each in steps]))

    schema = pa.schema(dict.fromkeys(("q", "p", "source"), pa.string()))
    assert group_columns(templates(x="q"), schema) == ("q",)
    assert group_columns(templates(x="q", y="p"), schema) == (("q",), ("p",))
    schema = schema.append(pa.field("a", pa.string()))
    assert group_columns(templates(x="q", y="p"), schema) == ("a",)


# Stages and replay


def test_stages_end_with_steps_that_see_everything(path, recipe_file):
    recipe = load(recipe_file([*PROCESS, {"label_balance_selector": {}}]))
    plan = Plan(recipe, None, None, (), "")
    stages = list(plan.stages())
    assert tuple(step for stage in stages for step in stage) == recipe.steps
    for stage in stages:
        assert "dataset" not in {step.operator.scope.value for step in stage[:-1]}
    assert stages[-1][-1].number == 5


def test_commits_are_applied_again_to_the_commits_of_a_chunk(path):
    recipe = load(path)
    engine.run(recipe, chunk_rows=16)
    cache = recipe.head.export_path.parent / ".rejuice"
    source = Dataset(recipe.head.dataset_path).chunks(cache, chunk_rows=16, group_by=("prompt_id",))
    plan = Plan.of(recipe, source, cache)
    assert all(plan.is_done(step) for step in plan.steps)
    tables = [plan.frame_before(chunk, None).table() for chunk in range(len(source.rows))]
    assert pa.concat_tables(tables).equals(pq.read_table(recipe.head.export_path))
    for applied in iterate_steps(plan.steps, plan.source_frame(0), plan.committed(0)):
        assert applied.before.num_rows == applied.result.rows_in
    plan.path(plan.steps[2], 1).unlink()
    assert [plan.is_done(step) for step in plan.steps] == [True, True, False, True]
